//! `ReplicaSets`: as many pods as were asked for, new ones for those that go.

use std::cmp::Reverse;

use serde_json::{Value, json};

use crate::label_selector::LabelSelector;
use crate::pod;
use crate::registry::Propagation;
use crate::resource::{PODS, REPLICA_SETS};
use crate::store::{Change, Collection, Key, Object};

use super::controller::{Controller, Next, Watches};
use super::desk::Desk;
use super::owned_pods::OwnedPods;
use super::pod_template::{self, PodName};

/// The `ReplicaSet` controller.
#[derive(Debug)]
pub(crate) struct ReplicaSets {
    pods: OwnedPods,
}

impl ReplicaSets {
    /// A controller that has seen nothing yet.
    pub(crate) fn new() -> Self {
        Self { pods: OwnedPods::of_kind("ReplicaSet") }
    }

    fn reconcile(&mut self, desk: &mut Desk<'_>, key: Key) {
        let Some(set) = desk.get(&REPLICA_SETS, &key) else {
            return;
        };
        let pods: Vec<Object> = self.pods.of(pod::uid(&set)).cloned().collect();
        let active: Vec<&Object> = pods.iter().filter(|pod| pod::is_active(pod)).collect();
        let wanted = replicas(&set);
        if !pod::is_terminating(&set) {
            if active.len() < wanted {
                for _ in active.len()..wanted {
                    if desk.is_full() {
                        self.pods.again(key);
                        break;
                    }
                    if desk.create(&PODS, pod_template::pod(&set, PodName::Generated)).is_none() {
                        break;
                    }
                }
            } else {
                for pod in surplus(&active, wanted) {
                    desk.delete(&PODS, pod, None, Propagation::Background);
                }
            }
        }
        report(desk, &set, &pods);
    }
}

/// `spec.replicas`, by default one.
pub(crate) fn replicas(object: &Value) -> usize {
    let wanted = object["spec"]["replicas"].as_u64().unwrap_or(1);
    usize::try_from(wanted).unwrap_or(usize::MAX)
}

/// The pods that a smaller set can do without: those that serve least, and among equals the youngest.
fn surplus<'a>(active: &[&'a Object], wanted: usize) -> Vec<&'a Object> {
    let mut ranked = active.to_vec();
    ranked.sort_by_key(|pod| {
        let born = pod["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
        (pod::node(pod).is_some(), pod::phase(pod) == "Running", pod::is_ready(pod), Reverse(born))
    });
    ranked.truncate(active.len().saturating_sub(wanted));
    ranked
}

fn report(desk: &mut Desk<'_>, set: &Object, pods: &[Object]) {
    let selector =
        LabelSelector::parse(&json!({"matchLabels": set["spec"]["template"]["metadata"]["labels"]}));
    let active = || pods.iter().filter(|pod| pod::is_active(pod));
    let ready = active().filter(|pod| pod::is_ready(pod)).count();
    let labelled = active().filter(|pod| selector.matches(&pod["metadata"]["labels"]));
    let terminating = pods.iter().filter(|pod| pod::is_terminating(pod)).count();
    let status = json!({
        "replicas": active().count(), "fullyLabeledReplicas": labelled.count(), "readyReplicas": ready,
        "availableReplicas": ready, "terminatingReplicas": terminating,
        "observedGeneration": set["metadata"]["generation"],
    });
    desk.edit_status(&REPLICA_SETS, set, |set| set["status"] = status);
}

impl Controller for ReplicaSets {
    fn watches(&self) -> Watches {
        const WATCHED: &[Collection] = &[REPLICA_SETS, PODS];
        Watches::These(WATCHED)
    }

    fn forget(&mut self, collection: &Collection) {
        if *collection == PODS {
            self.pods.forget_pods();
        }
    }

    fn observe(&mut self, collection: &Collection, change: &Change) {
        if *collection == PODS {
            self.pods.observe_pod(change);
        } else {
            self.pods.observe_owner(change);
        }
    }

    fn act(&mut self, desk: &mut Desk<'_>) -> Next {
        while !desk.is_full() {
            let Some(key) = self.pods.next() else {
                return Next::Change;
            };
            self.reconcile(desk, key);
        }
        Next::now_if(self.pods.has_more())
    }
}
