//! The Deployment controller: one `ReplicaSet` for each template. A new template's set grows at once, and the old ones
//! shrink by as many pods as the new one has Ready. That is simpler than a real rolling update and never short of
//! pods.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Value, json};

use crate::cluster::catalog::resource::{DEPLOYMENTS, REPLICA_SETS};
use crate::cluster::store::{Change, Collection, Key, Object};
use crate::controllers::engine::context::ReconcileContext;
use crate::controllers::engine::controller::{Controller, Requeue, Watches, sync_queue};
use crate::controllers::event::{Author, Event};
use crate::controllers::workloads::pod_template::owner_reference;
use crate::controllers::workloads::replicaset::replicas;
use crate::controllers::workloads::template_hash::template_hash;
use crate::model::{condition, pod};

const HASH_LABEL: &str = "pod-template-hash";

/// The Deployment controller.
#[derive(Debug, Default)]
pub(crate) struct Deployments {
    /// The sets of every deployment, by the deployment's uid.
    sets: HashMap<String, BTreeMap<String, Key>>,
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
        let (current, old): (Vec<_>, Vec<_>) =
            sets.iter().partition(|set| set["metadata"]["labels"][HASH_LABEL] == *hash);
        if !pod::is_terminating(&deployment) {
            let wanted = replicas(&deployment);
            if let Some(set) = current.first() {
                scale(ctx, &deployment, set, wanted);
            } else {
                let set = replica_set(&deployment, &hash, sets.len() + 1);
                if let Some(set) = ctx.create(&REPLICA_SETS, set).filter(|_| wanted > 0) {
                    ctx.record(&scaled(&deployment, &set, 0, wanted));
                }
            }
            let replaced: usize = current.iter().map(|set| counter(&set["status"], "readyReplicas")).sum();
            let mut kept = wanted.saturating_sub(replaced);
            for set in old {
                let share = replicas(set).min(kept);
                kept -= share;
                scale(ctx, &deployment, set, share);
            }
        }
        report(ctx, &deployment, &sets, &hash);
    }
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

fn replica_set(deployment: &Value, hash: &str, revision: usize) -> Value {
    let mut template = deployment["spec"]["template"].clone();
    template["metadata"]["labels"][HASH_LABEL] = json!(hash);
    let mut selector = deployment["spec"]["selector"].clone();
    selector["matchLabels"][HASH_LABEL] = json!(hash);
    json!({
        "metadata": {
            "name": format!("{}-{hash}", pod::name(deployment)),
            "namespace": deployment["metadata"]["namespace"],
            "labels": template["metadata"]["labels"],
            "annotations": {"deployment.kubernetes.io/revision": revision.to_string()},
            "ownerReferences": [owner_reference(deployment)],
        },
        "spec": {"replicas": replicas(deployment), "selector": selector, "template": template},
    })
}

fn report(ctx: &mut ReconcileContext<'_>, deployment: &Object, sets: &[Object], hash: &str) {
    let sum = |field: &str| -> usize { sets.iter().map(|set| counter(&set["status"], field)).sum() };
    let updated: usize = sets
        .iter()
        .filter(|set| set["metadata"]["labels"][HASH_LABEL] == *hash)
        .map(|set| counter(&set["status"], "replicas"))
        .sum();
    let (wanted, ready) = (replicas(deployment), sum("readyReplicas"));
    let counts = json!({
        "observedGeneration": deployment["metadata"]["generation"], "replicas": sum("replicas"),
        "updatedReplicas": updated, "readyReplicas": ready, "availableReplicas": ready,
        "unavailableReplicas": wanted.max(sum("replicas")).saturating_sub(ready),
        "terminatingReplicas": sum("terminatingReplicas"),
    });
    let now = ctx.now;
    ctx.edit_status(&DEPLOYMENTS, deployment, |deployment| {
        let conditions = deployment["status"]["conditions"].take();
        deployment["status"] = counts;
        deployment["status"]["conditions"] = conditions;
        let status = &mut deployment["status"];
        let available = if ready >= wanted - wanted / 4 {
            json!({"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable",
                "message": "Deployment has minimum availability."})
        } else {
            json!({"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable",
                "message": "Deployment does not have minimum availability."})
        };
        condition::set(status, available, now);
        let reason =
            if ready >= wanted && updated >= wanted { "NewReplicaSetAvailable" } else { "ReplicaSetUpdated" };
        let progressing = json!({"type": "Progressing", "status": "True", "reason": reason});
        condition::set(status, progressing, now);
    });
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
        sync_queue(self, ctx, |this| this.dirty.pop_first(), |this, ctx, key| this.reconcile(ctx, &key))
    }
}
