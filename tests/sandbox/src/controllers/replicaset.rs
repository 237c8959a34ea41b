//! `ReplicaSets`: as many pods as were asked for, new ones for those that go.

use std::cmp::Reverse;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::label_selector::LabelSelector;
use crate::pod;
use crate::registry::Propagation;
use crate::resource::{PODS, REPLICA_SETS};
use crate::store::{Change, Collection, Key, Object};

use super::controller::{Controller, Next, Watches};
use super::desk::Desk;
use super::event::{Author, Event};
use super::owned_pods::OwnedPods;
use super::pod_brief::PodBrief;
use super::pod_template::{self, PodName};

const CONTROLLER: &str = "replicaset-controller";

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
        let pods = || self.pods.of(pod::uid(&set));
        let active = pods().filter(|(_, pod)| pod.is_active()).count();
        let wanted = replicas(&set);
        let mut more = false;
        if !pod::is_terminating(&set) {
            for _ in active..wanted {
                more = desk.is_full();
                if more {
                    break;
                }
                let Some(pod) = desk.create(&PODS, pod_template::pod(&set, PodName::Generated)) else {
                    break;
                };
                desk.tell(&Event::created(CONTROLLER, &set, &pod));
            }
            if active > wanted {
                for name in surplus(pods(), active - wanted) {
                    if let Some(pod) = desk.get(&PODS, &Key::new(&*key.namespace, name)) {
                        desk.delete(&PODS, &pod, None, Propagation::Background);
                        desk.tell(&Event {
                            author: Author::Controller(CONTROLLER),
                            about: &set,
                            reason: "SuccessfulDelete",
                            message: format!("Deleted pod: {}", pod::name(&pod)),
                        });
                    }
                }
            }
        }
        report(desk, &set, pods().map(|(_, pod)| pod));
        if more {
            self.pods.again(key);
        }
    }
}

/// `spec.replicas`, by default one.
pub(crate) fn replicas(object: &Value) -> usize {
    let wanted = object["spec"]["replicas"].as_u64().unwrap_or(1);
    usize::try_from(wanted).unwrap_or(usize::MAX)
}

/// The pods that a smaller set can do without: those that serve least, and among equals the youngest.
fn surplus<'a>(pods: impl Iterator<Item = (&'a str, &'a PodBrief)>, number: usize) -> Vec<&'a str> {
    let mut ranked: Vec<_> = pods.filter(|(_, pod)| pod.is_active()).collect();
    ranked.sort_by_key(|(_, pod)| (pod.bound, pod.running, pod.ready, Reverse(pod.born)));
    ranked.into_iter().take(number).map(|(name, _)| name).collect()
}

fn report<'a>(desk: &mut Desk<'_>, set: &Object, pods: impl Iterator<Item = &'a PodBrief>) {
    let selector =
        LabelSelector::parse(&json!({"matchLabels": set["spec"]["template"]["metadata"]["labels"]}));
    // As a rule all pods have the same labels, and even the same copy of them.
    let mut judged: Option<(&Arc<Value>, bool)> = None;
    let (mut active, mut labelled, mut ready, mut terminating) = (0, 0, 0, 0);
    for pod in pods {
        terminating += usize::from(pod.terminating);
        if !pod.is_active() {
            continue;
        }
        let is_labelled = match judged {
            Some((labels, verdict)) if Arc::ptr_eq(labels, &pod.labels) => verdict,
            _ => selector.matches(&pod.labels),
        };
        judged = Some((&pod.labels, is_labelled));
        active += 1;
        labelled += usize::from(is_labelled);
        ready += usize::from(pod.ready);
    }
    let status = json!({
        "replicas": active, "fullyLabeledReplicas": labelled, "readyReplicas": ready,
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
        self.pods.forget(collection);
    }

    fn observe(&mut self, collection: &Collection, change: &Change) {
        self.pods.observe(collection, change);
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
