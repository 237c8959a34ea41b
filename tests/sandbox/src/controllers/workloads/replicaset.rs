//! The `ReplicaSet` controller: it creates and deletes pods to match `spec.replicas`.

use std::cmp::Reverse;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cluster::catalog::resource::{PODS, REPLICA_SETS};
use crate::cluster::registry::Propagation;
use crate::cluster::store::{Change, Collection, Key, Object};
use crate::controllers::engine::context::ReconcileContext;
use crate::controllers::engine::controller::{Controller, Requeue, Watches, sync_queue};
use crate::controllers::engine::delay_queue::DelayQueue;
use crate::controllers::event::{Author, Event};
use crate::controllers::workloads::owned_pods::OwnedPods;
use crate::controllers::workloads::pod_summary::PodSummary;
use crate::controllers::workloads::pod_template::{self, PodName};
use crate::model::label_selector::LabelSelector;
use crate::model::{condition, pod};

const CONTROLLER: &str = "replicaset-controller";

/// When the creation of a pod that was refused is retried.
const RETRY_INTERVAL: SignedDuration = SignedDuration::from_secs(1);

/// The `ReplicaSet` controller.
#[derive(Debug)]
pub(crate) struct ReplicaSets {
    pods: OwnedPods,
    /// The sets that could not create a pod, and those with a pod that is going to be available.
    delayed: DelayQueue<()>,
}

impl ReplicaSets {
    /// A controller that has seen nothing yet.
    pub(crate) fn new() -> Self {
        Self { pods: OwnedPods::of_kind("ReplicaSet"), delayed: DelayQueue::default() }
    }

    fn reconcile(&mut self, ctx: &mut ReconcileContext<'_>, key: Key) {
        let Some(set) = ctx.get(&REPLICA_SETS, &key) else {
            return;
        };
        let pods = || self.pods.of(pod::uid(&set));
        let active = pods().filter(|(_, pod)| pod.is_active()).count();
        let wanted = replicas(&set);
        let mut more = false;
        let mut refusal = None;
        if !pod::is_terminating(&set) {
            for _ in active..wanted {
                more = ctx.is_full();
                if more {
                    break;
                }
                match ctx.try_create(&PODS, pod_template::pod(&set, PodName::Generated)) {
                    Ok(pod) => ctx.record(&Event::created(CONTROLLER, &set, &pod)),
                    Err(error) => {
                        refusal = Some(error.message);
                        break;
                    }
                }
            }
            if active > wanted {
                for name in surplus(pods(), active - wanted) {
                    if let Some(pod) = ctx.get(&PODS, &Key::new(&*key.namespace, name)) {
                        ctx.delete(&PODS, &pod, None, Propagation::Background);
                        ctx.record(&Event {
                            author: Author::Controller(CONTROLLER),
                            about: &set,
                            reason: "SuccessfulDelete",
                            message: format!("Deleted pod: {}", pod::name(&pod)),
                        });
                    }
                }
            }
        }
        let available = report(ctx, &set, pods().map(|(_, pod)| pod), refusal.as_deref());
        let retry = refusal.map(|_| ctx.now.saturating_add(RETRY_INTERVAL).unwrap_or(Timestamp::MAX));
        if let Some(due) = available.into_iter().chain(retry).min() {
            self.delayed.plan(key.clone(), pod::uid(&set), (), due);
        }
        if more {
            self.pods.again(key);
        }
    }
}

/// `spec.replicas`, by default 1.
pub(crate) fn replicas(object: &Value) -> usize {
    let wanted = object["spec"]["replicas"].as_u64().unwrap_or(1);
    usize::try_from(wanted).unwrap_or(usize::MAX)
}

/// The pods to delete first: those that are not Ready, then the youngest.
fn surplus<'a>(pods: impl Iterator<Item = (&'a str, &'a PodSummary)>, number: usize) -> Vec<&'a str> {
    let mut ranked: Vec<_> = pods.filter(|(_, pod)| pod.is_active()).collect();
    ranked.sort_by_key(|(_, pod)| (pod.bound, pod.running, pod.ready, Reverse(pod.born)));
    ranked.into_iter().take(number).map(|(name, _)| name).collect()
}

/// Writes the status. Returns when the next pod is available.
fn report<'a>(
    ctx: &mut ReconcileContext<'_>,
    set: &Object,
    pods: impl Iterator<Item = &'a PodSummary>,
    refusal: Option<&str>,
) -> Option<Timestamp> {
    let min_ready = SignedDuration::from_secs(set["spec"]["minReadySeconds"].as_i64().unwrap_or(0));
    let selector =
        LabelSelector::parse(&json!({"matchLabels": set["spec"]["template"]["metadata"]["labels"]}));
    // Usually all pods share one copy of their labels.
    let mut judged: Option<(&Arc<Value>, bool)> = None;
    let (mut active, mut labelled, mut ready, mut available, mut terminating) = (0, 0, 0, 0, 0);
    let mut next = None;
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
        match pod.available_at(min_ready) {
            Some(at) if at > ctx.now => next = next.into_iter().chain([at]).min(),
            at => available += usize::from(at.is_some()),
        }
    }
    let mut status = json!({
        "replicas": active, "fullyLabeledReplicas": labelled, "readyReplicas": ready,
        "availableReplicas": available, "terminatingReplicas": terminating,
        "observedGeneration": set["metadata"]["generation"],
    });
    if let Some(message) = refusal {
        status["conditions"] = set["status"]["conditions"].clone();
        let failure =
            json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message});
        condition::set(&mut status, failure, ctx.now);
    }
    ctx.edit_status(&REPLICA_SETS, set, |set| set["status"] = status);
    next
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

    fn sync(&mut self, ctx: &mut ReconcileContext<'_>) -> Requeue {
        while let Some((key, ..)) = self.delayed.pop(ctx.now) {
            self.pods.again(key);
        }
        match sync_queue(self, ctx, |this| this.pods.next(), Self::reconcile) {
            Requeue::Change => Requeue::at(self.delayed.next_at()),
            more => more,
        }
    }
}
