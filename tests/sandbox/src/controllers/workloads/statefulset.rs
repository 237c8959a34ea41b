//! The `StatefulSet` controller: pods with stable names. Each pod is created when the previous one is Ready, and a
//! name is reused when its last pod is gone. Pods of an older template stay until something else terminates them.

use serde_json::{Value, json};

use crate::cluster::catalog::resource::{PODS, STATEFUL_SETS};
use crate::cluster::registry::Propagation;
use crate::cluster::store::{Change, Collection, Key, Object};
use crate::controllers::engine::context::ReconcileContext;
use crate::controllers::engine::controller::{Controller, Requeue, Watches, sync_queue};
use crate::controllers::event::{Author, Event};
use crate::controllers::workloads::owned_pods::OwnedPods;
use crate::controllers::workloads::pod_template::{self, PodName};
use crate::controllers::workloads::replicaset::replicas;
use crate::controllers::workloads::template_hash::template_hash;
use crate::model::pod;

/// The `StatefulSet` controller.
#[derive(Debug)]
pub(crate) struct StatefulSets {
    pods: OwnedPods,
}

/// Whether the next pods may be reconciled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Requeue,
    Wait,
    /// No, even if the pods of the set do not wait for each other: a pod was rejected, and so would the next be.
    Stop,
}

impl StatefulSets {
    /// A controller that has seen nothing yet.
    pub(crate) fn new() -> Self {
        Self { pods: OwnedPods::of_kind("StatefulSet") }
    }

    fn reconcile(&mut self, ctx: &mut ReconcileContext<'_>, key: Key) {
        let Some(set) = ctx.get(&STATEFUL_SETS, &key) else {
            return;
        };
        let pods = self.pods.objects(ctx, &set);
        if !pod::is_terminating(&set) && fill(ctx, &set) == Turn::Requeue {
            shrink(ctx, &set, &pods);
        }
        let full = ctx.is_full();
        report(ctx, &set, &pods);
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

/// Reconciles the pods in order.
fn fill(ctx: &mut ReconcileContext<'_>, set: &Object) -> Turn {
    for ordinal in ordinals(set) {
        if ctx.is_full() {
            return Turn::Wait;
        }
        match settle(ctx, set, ordinal) {
            Turn::Stop => return Turn::Stop,
            Turn::Wait if !is_parallel(set) => return Turn::Wait,
            Turn::Wait | Turn::Requeue => {}
        }
    }
    Turn::Requeue
}

fn settle(ctx: &mut ReconcileContext<'_>, set: &Object, ordinal: usize) -> Turn {
    let name = format!("{}-{ordinal}", pod::name(set));
    match ctx.get(&PODS, &Key::new(pod::namespace(set), &*name)) {
        None => {
            if ctx.create(&PODS, pod_of(set, &name, ordinal)).is_none() {
                return Turn::Stop;
            }
            ctx.record(&Event {
                author: Author::Controller("statefulset-controller"),
                about: set,
                reason: "SuccessfulCreate",
                message: format!("Create Pod {name} in StatefulSet {} successful", pod::name(set)),
            });
            Turn::Wait
        }
        Some(pod) if is_ours(set, &pod) && pod::is_finished(&pod) && !pod::is_terminating(&pod) => {
            ctx.delete(&PODS, &pod, None, Propagation::Background);
            Turn::Wait
        }
        Some(pod) if pod::is_active(&pod) && pod::is_ready(&pod) => Turn::Requeue,
        Some(_) => Turn::Wait,
    }
}

fn is_ours(set: &Value, pod: &Value) -> bool {
    pod::controller(pod).is_some_and(|owner| owner["uid"] == pod::uid(set))
}

/// Deletes surplus pods, the last one first.
fn shrink(ctx: &mut ReconcileContext<'_>, set: &Value, pods: &[Object]) {
    let kept = ordinals(set);
    let is_kept = |pod: &Object| {
        let ordinal = ordinal_of(pod).filter(|ordinal| kept.contains(ordinal));
        ordinal.is_some_and(|ordinal| pod::name(pod) == format!("{}-{ordinal}", pod::name(set)))
    };
    let mut surplus: Vec<&Object> = pods.iter().filter(|pod| !is_kept(pod)).collect();
    surplus.sort_by_key(|pod| ordinal_of(pod));
    while let Some(pod) = surplus.pop() {
        if !pod::is_terminating(pod) {
            ctx.delete(&PODS, pod, None, Propagation::Background);
        }
        if !is_parallel(set) || ctx.is_full() {
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

fn report(ctx: &mut ReconcileContext<'_>, set: &Object, pods: &[Object]) {
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
    ctx.edit_status(&STATEFUL_SETS, set, |set| set["status"] = status);
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

    fn sync(&mut self, ctx: &mut ReconcileContext<'_>) -> Requeue {
        sync_queue(self, ctx, |this| this.pods.next(), Self::reconcile)
    }
}
