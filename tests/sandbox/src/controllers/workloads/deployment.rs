//! The Deployment controller: one `ReplicaSet` for each template, and a rolling update or `Recreate` from one to the next.
//!
//! Source: kubernetes `pkg/controller/deployment`, v1.36.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cluster::catalog::resource::{DEPLOYMENTS, REPLICA_SETS};
use crate::cluster::store::{Change, Collection, Key, Object};
use crate::controllers::engine::context::ReconcileContext;
use crate::controllers::engine::controller::{Controller, Requeue, Watches, sync_queue};
use crate::controllers::engine::delay_queue::DelayQueue;
use crate::controllers::event::{Author, Event};
use crate::controllers::workloads::pod_template::owner_reference;
use crate::controllers::workloads::replicaset::replicas;
use crate::controllers::workloads::rolling_update::{Limits, SetSize, next_sizes};
use crate::controllers::workloads::rollout_progress;
use crate::controllers::workloads::template_hash::template_hash;
use crate::model::{condition, pod};

const HASH_LABEL: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";

/// The Deployment controller.
#[derive(Debug, Default)]
pub(crate) struct Deployments {
    /// The sets of every deployment, by the deployment's uid.
    sets: HashMap<String, BTreeMap<String, Key>>,
    /// When a rollout exceeds its deadline.
    deadlines: DelayQueue<()>,
    dirty: BTreeSet<Key>,
}

impl Deployments {
    fn observe_set(&mut self, change: &Change) {
        let Some(set) = change.after.as_ref().or(change.before.as_ref()) else {
            return;
        };
        let Some(owner) = pod::controller(set).filter(|owner| owner["kind"] == "Deployment") else {
            return;
        };
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let sets = self.sets.entry(text("uid").to_owned()).or_default();
        if change.after.is_some() {
            sets.insert(pod::name(set).to_owned(), Key::of(set));
        } else {
            sets.remove(pod::name(set));
        }
        self.dirty.insert(Key::new(pod::namespace(set), text("name")));
    }

    fn reconcile(&mut self, ctx: &mut ReconcileContext<'_>, key: &Key) {
        let Some(deployment) = ctx.get(&DEPLOYMENTS, key) else {
            return;
        };
        let keys = self.sets.get(pod::uid(&deployment)).into_iter().flatten();
        let sets: Vec<Object> = keys.filter_map(|(_, key)| ctx.get(&REPLICA_SETS, key)).collect();
        let hash = template_hash(&deployment["spec"]["template"]);
        let (current, mut old): (Vec<_>, Vec<_>) =
            sets.iter().partition(|set| set["metadata"]["labels"][HASH_LABEL] == *hash);
        old.sort_by_key(|set| revision(set));
        let deployment = if pod::is_terminating(&deployment) {
            deployment
        } else if is_paused(&deployment) {
            scale_paused(ctx, &deployment, &sets);
            deployment
        } else {
            roll(ctx, &deployment, current.first().copied(), &old, &hash)
        };
        if let Some(at) = report(ctx, &deployment, &sets, &hash) {
            self.deadlines.cancel(key);
            self.deadlines.plan(key.clone(), pod::uid(&deployment), (), at);
        }
    }
}

/// A paused Deployment is only scaled, as far as it is clear which set to scale.
fn scale_paused(ctx: &mut ReconcileContext<'_>, deployment: &Object, sets: &[Object]) {
    let mut active = sets.iter().filter(|set| replicas(set) > 0);
    let set = match (active.next(), active.next()) {
        (None, _) => sets.iter().max_by_key(|set| revision(set)),
        (only, None) => only,
        _ => None,
    };
    if let Some(set) = set {
        scale(ctx, deployment, set, replicas(deployment));
    }
}

/// One step towards the current template. Returns the Deployment with the revision of that.
fn roll(
    ctx: &mut ReconcileContext<'_>,
    deployment: &Object,
    current: Option<&Object>,
    old: &[&Object],
    hash: &str,
) -> Object {
    let newest = old.iter().map(|set| revision(set)).max().unwrap_or(0) + 1;
    let sizes: Vec<SetSize> = old.iter().map(|set| size(set)).collect();
    let new = current.map_or(SetSize { wanted: 0, available: 0 }, size);
    let wanted = replicas(deployment);
    let recreates = deployment["spec"]["strategy"]["type"] == "Recreate";
    let old_pods = old.iter().map(|set| counter(&set["status"], "replicas"));
    let has_old_pods = old_pods.sum::<usize>() > 0
        || old.iter().any(|set| replicas(set) > 0 || counter(&set["status"], "terminatingReplicas") > 0);
    let (grown, shrunk) = match (recreates, has_old_pods) {
        (true, true) => (new.wanted, vec![0; old.len()]),
        (true, false) => (wanted, vec![0; old.len()]),
        (false, _) => next_sizes(Limits::of(deployment, wanted), new, &sizes),
    };
    let revised = match current {
        Some(set) => {
            let revised = revise(ctx, set, newest);
            scale(ctx, deployment, &revised, grown);
            revision(&revised)
        }
        None if recreates && has_old_pods => newest - 1,
        None => {
            let set = replica_set(deployment, hash, newest, grown);
            if let Some(set) = ctx.create(&REPLICA_SETS, set).filter(|_| grown > 0) {
                ctx.record(&scaled(deployment, &set, 0, grown));
            }
            newest
        }
    };
    for (set, size) in old.iter().zip(shrunk) {
        scale(ctx, deployment, set, size);
    }
    let marked = ctx.edit(&DEPLOYMENTS, deployment, |deployment| {
        deployment["metadata"]["annotations"][REVISION] = json!(revised.to_string());
    });
    marked.unwrap_or_else(|| deployment.clone())
}

/// The set of a template that is current again gets a new revision, and remembers its earlier ones.
fn revise(ctx: &mut ReconcileContext<'_>, set: &Object, newest: u64) -> Object {
    let before = revision(set);
    if before >= newest {
        return set.clone();
    }
    let revised = ctx.edit(&REPLICA_SETS, set, |set| {
        let annotations = &mut set["metadata"]["annotations"];
        let earlier = annotations[REVISION_HISTORY].as_str().map(|earlier| format!("{earlier},"));
        annotations[REVISION_HISTORY] = json!(format!("{}{before}", earlier.unwrap_or_default()));
        annotations[REVISION] = json!(newest.to_string());
    });
    revised.unwrap_or_else(|| set.clone())
}

fn size(set: &Object) -> SetSize {
    SetSize { wanted: replicas(set), available: counter(&set["status"], "availableReplicas") }
}

fn revision(object: &Value) -> u64 {
    pod::annotation(object, REVISION).and_then(|revision| revision.parse().ok()).unwrap_or(0)
}

fn is_paused(deployment: &Value) -> bool {
    deployment["spec"]["paused"] == true
}

fn scale(ctx: &mut ReconcileContext<'_>, deployment: &Value, set: &Object, wanted: usize) {
    let before = replicas(set);
    if before == wanted {
        return;
    }
    let written = ctx.edit(&REPLICA_SETS, set, |set| {
        set["spec"]["replicas"] = json!(wanted);
    });
    if written.is_some() {
        ctx.record(&scaled(deployment, set, before, wanted));
    }
}

fn scaled<'a>(deployment: &'a Value, set: &Value, from: usize, to: usize) -> Event<'a> {
    let way = if to > from { "up" } else { "down" };
    Event {
        author: Author::Controller("deployment-controller"),
        about: deployment,
        reason: "ScalingReplicaSet",
        message: format!("Scaled {way} replica set {} from {from} to {to}", pod::name(set)),
    }
}

fn replica_set(deployment: &Value, hash: &str, revision: u64, size: usize) -> Value {
    let mut template = deployment["spec"]["template"].clone();
    template["metadata"]["labels"][HASH_LABEL] = json!(hash);
    let mut selector = deployment["spec"]["selector"].clone();
    selector["matchLabels"][HASH_LABEL] = json!(hash);
    let mut set = json!({
        "metadata": {
            "name": format!("{}-{hash}", pod::name(deployment)),
            "namespace": deployment["metadata"]["namespace"],
            "labels": template["metadata"]["labels"],
            "annotations": {REVISION: revision.to_string()},
            "ownerReferences": [owner_reference(deployment)],
        },
        "spec": {"replicas": size, "selector": selector, "template": template},
    });
    if let Some(seconds) = deployment["spec"].get("minReadySeconds") {
        set["spec"]["minReadySeconds"] = seconds.clone();
    }
    set
}

/// Writes the status. Returns when the rollout exceeds its deadline.
fn report(
    ctx: &mut ReconcileContext<'_>,
    deployment: &Object,
    sets: &[Object],
    hash: &str,
) -> Option<Timestamp> {
    let sum = |field: &str| -> usize { sets.iter().map(|set| counter(&set["status"], field)).sum() };
    let updated: usize = sets
        .iter()
        .filter(|set| set["metadata"]["labels"][HASH_LABEL] == *hash)
        .map(|set| counter(&set["status"], "replicas"))
        .sum();
    let (wanted, available) = (replicas(deployment), sum("availableReplicas"));
    let counts = json!({
        "observedGeneration": deployment["metadata"]["generation"], "replicas": sum("replicas"),
        "updatedReplicas": updated, "readyReplicas": sum("readyReplicas"), "availableReplicas": available,
        "unavailableReplicas": wanted.max(sum("replicas")).saturating_sub(available),
        "terminatingReplicas": sum("terminatingReplicas"),
    });
    let failure =
        sets.iter().rev().find_map(|set| condition::find(&set["status"], "ReplicaFailure").cloned());
    let missing = Limits::of(deployment, wanted).unavailable;
    let (all, now) = (sum("replicas"), ctx.now);
    let is_complete = available >= wanted && updated >= wanted && all == updated;
    let deadline =
        SignedDuration::from_secs(deployment["spec"]["progressDeadlineSeconds"].as_i64().unwrap_or(600));
    let (progressing, exceeded_at) = if is_paused(deployment) {
        (rollout_progress::paused(), None)
    } else {
        rollout_progress::next(&deployment["status"], &counts, is_complete, deadline, now)
    };
    ctx.edit_status(&DEPLOYMENTS, deployment, |deployment| {
        let conditions = deployment["status"]["conditions"].take();
        deployment["status"] = counts;
        deployment["status"]["conditions"] = conditions;
        let status = &mut deployment["status"];
        let condition = if available >= wanted.saturating_sub(missing) {
            json!({"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable",
                "message": "Deployment has minimum availability."})
        } else {
            json!({"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable",
                "message": "Deployment does not have minimum availability."})
        };
        condition::set(status, condition, now);
        condition::set(status, progressing, now);
        match failure {
            Some(failure) => condition::set(status, failure, now),
            None => condition::remove(status, "ReplicaFailure"),
        }
    });
    exceeded_at
}

fn counter(status: &Value, field: &str) -> usize {
    let count = status[field].as_u64().unwrap_or(0);
    usize::try_from(count).unwrap_or(usize::MAX)
}

impl Controller for Deployments {
    fn watches(&self) -> Watches {
        const WATCHED: &[Collection] = &[DEPLOYMENTS, REPLICA_SETS];
        Watches::These(WATCHED)
    }

    fn forget(&mut self, collection: &Collection) {
        if *collection == REPLICA_SETS {
            self.sets.clear();
        }
    }

    fn observe(&mut self, collection: &Collection, change: &Change) {
        if *collection == REPLICA_SETS {
            self.observe_set(change);
            return;
        }
        match (&change.before, &change.after) {
            (_, Some(deployment)) => drop(self.dirty.insert(Key::of(deployment))),
            (Some(deployment), None) => drop(self.sets.remove(pod::uid(deployment))),
            (None, None) => {}
        }
    }

    fn sync(&mut self, ctx: &mut ReconcileContext<'_>) -> Requeue {
        while let Some((key, ..)) = self.deadlines.pop(ctx.now) {
            self.dirty.insert(key);
        }
        match sync_queue(self, ctx, |this| this.dirty.pop_first(), |this, ctx, key| this.reconcile(ctx, &key))
        {
            Requeue::Change => Requeue::at(self.deadlines.next_at()),
            more => more,
        }
    }
}
