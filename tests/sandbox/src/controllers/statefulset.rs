//! `StatefulSets`: pods with names that stay. One follows another only when that one is Ready, and a name is given
//! again only when its last bearer is gone. Pods of an older template stay until something else ends them.

use serde_json::{Value, json};

use crate::pod;
use crate::registry::Propagation;
use crate::resource::{PODS, STATEFUL_SETS};
use crate::store::{Change, Collection, Key, Object};

use super::controller::{Controller, Next, Watches};
use super::desk::Desk;
use super::event::{Author, Event};
use super::owned_pods::OwnedPods;
use super::pod_template::{self, PodName};
use super::replicaset::replicas;
use super::template_hash::template_hash;

/// The `StatefulSet` controller.
#[derive(Debug)]
pub(crate) struct StatefulSets {
    pods: OwnedPods,
}

/// Whether the pods after this one may be seen to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Next,
    Wait,
    /// Not even of a set whose pods do not wait for each other: a pod was refused, and so would the next be.
    Stop,
}

impl StatefulSets {
    /// A controller that has seen nothing yet.
    pub(crate) fn new() -> Self {
        Self { pods: OwnedPods::of_kind("StatefulSet") }
    }

    fn reconcile(&mut self, desk: &mut Desk<'_>, key: Key) {
        let Some(set) = desk.get(&STATEFUL_SETS, &key) else {
            return;
        };
        let pods = self.pods.objects(desk, &set);
        if !pod::is_terminating(&set) && fill(desk, &set) == Turn::Next {
            shrink(desk, &set, &pods);
        }
        let full = desk.is_full();
        report(desk, &set, &pods);
        if full {
            self.pods.again(key);
        }
    }
}

fn is_parallel(set: &Value) -> bool {
    set["spec"]["podManagementPolicy"] == "Parallel"
}

fn ordinals(set: &Value) -> std::ops::Range<usize> {
    let start = set["spec"]["ordinals"]["start"].as_u64().unwrap_or(0);
    let start = usize::try_from(start).unwrap_or(0);
    start..start.saturating_add(replicas(set))
}

/// Sees to every name in turn.
fn fill(desk: &mut Desk<'_>, set: &Object) -> Turn {
    for ordinal in ordinals(set) {
        if desk.is_full() {
            return Turn::Wait;
        }
        match settle(desk, set, ordinal) {
            Turn::Stop => return Turn::Stop,
            Turn::Wait if !is_parallel(set) => return Turn::Wait,
            Turn::Wait | Turn::Next => {}
        }
    }
    Turn::Next
}

fn settle(desk: &mut Desk<'_>, set: &Object, ordinal: usize) -> Turn {
    let name = format!("{}-{ordinal}", pod::name(set));
    match desk.get(&PODS, &Key::new(pod::namespace(set), &*name)) {
        None => {
            if desk.create(&PODS, pod_of(set, &name, ordinal)).is_none() {
                return Turn::Stop;
            }
            desk.tell(&Event {
                author: Author::Controller("statefulset-controller"),
                about: set,
                reason: "SuccessfulCreate",
                message: format!("Create Pod {name} in StatefulSet {} successful", pod::name(set)),
            });
            Turn::Wait
        }
        Some(pod) if is_ours(set, &pod) && pod::is_finished(&pod) && !pod::is_terminating(&pod) => {
            desk.delete(&PODS, &pod, None, Propagation::Background);
            Turn::Wait
        }
        Some(pod) if pod::is_active(&pod) && pod::is_ready(&pod) => Turn::Next,
        Some(_) => Turn::Wait,
    }
}

fn is_ours(set: &Value, pod: &Value) -> bool {
    pod::controller(pod).is_some_and(|owner| owner["uid"] == pod::uid(set))
}

/// Deletes the pods that a smaller set has no name for, the last one first.
fn shrink(desk: &mut Desk<'_>, set: &Value, pods: &[Object]) {
    let kept = ordinals(set);
    let is_kept = |pod: &Object| {
        let ordinal = ordinal_of(pod).filter(|ordinal| kept.contains(ordinal));
        ordinal.is_some_and(|ordinal| pod::name(pod) == format!("{}-{ordinal}", pod::name(set)))
    };
    let mut surplus: Vec<&Object> = pods.iter().filter(|pod| !is_kept(pod)).collect();
    surplus.sort_by_key(|pod| ordinal_of(pod));
    while let Some(pod) = surplus.pop() {
        if !pod::is_terminating(pod) {
            desk.delete(&PODS, pod, None, Propagation::Background);
        }
        if !is_parallel(set) || desk.is_full() {
            return;
        }
    }
}

fn ordinal_of(pod: &Value) -> Option<usize> {
    let (_, ordinal) = pod::name(pod).rsplit_once('-')?;
    ordinal.parse().ok()
}

fn pod_of(set: &Value, name: &str, ordinal: usize) -> Value {
    let mut pod = pod_template::pod(set, PodName::Fixed(name));
    let labels = &mut pod["metadata"]["labels"];
    labels["statefulset.kubernetes.io/pod-name"] = json!(name);
    labels["apps.kubernetes.io/pod-index"] = json!(ordinal.to_string());
    labels["controller-revision-hash"] = json!(revision(set));
    pod["spec"]["hostname"] = json!(name);
    if set["spec"]["serviceName"].is_string() {
        pod["spec"]["subdomain"] = set["spec"]["serviceName"].clone();
    }
    pod
}

fn revision(set: &Value) -> String {
    format!("{}-{}", pod::name(set), template_hash(&set["spec"]["template"]))
}

fn report(desk: &mut Desk<'_>, set: &Object, pods: &[Object]) {
    let active = || pods.iter().filter(|pod| pod::is_active(pod));
    let ready = active().filter(|pod| pod::is_ready(pod)).count();
    let revision = revision(set);
    let updated =
        active().filter(|pod| pod["metadata"]["labels"]["controller-revision-hash"] == *revision).count();
    let status = json!({
        "replicas": pods.len(), "readyReplicas": ready, "availableReplicas": ready, "currentReplicas": updated,
        "updatedReplicas": updated, "currentRevision": revision, "updateRevision": revision,
        "collisionCount": 0, "observedGeneration": set["metadata"]["generation"],
    });
    desk.edit_status(&STATEFUL_SETS, set, |set| set["status"] = status);
}

impl Controller for StatefulSets {
    fn watches(&self) -> Watches {
        const WATCHED: &[Collection] = &[STATEFUL_SETS, PODS];
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
