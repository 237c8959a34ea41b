//! The controllers of persistent volumes and claims: they bind a claim to the volume that it names, or that names it, and
//! protect both while they are in use. Nothing chooses or provisions volumes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::cluster::catalog::resource::{CLAIMS, PODS, VOLUMES};
use crate::cluster::registry;
use crate::cluster::store::{Change, Collection, Key, Object};
use crate::controllers::engine::context::ReconcileContext;
use crate::controllers::engine::controller::{Controller, Requeue, Watches};
use crate::model::clock::metav1_time;
use crate::model::{pod, volume};

/// The finalizer of a volume that may be bound.
pub(crate) const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
/// The finalizer of a claim that pods may use.
pub(crate) const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";

/// The controllers of volumes and claims.
#[derive(Debug, Default)]
pub(crate) struct VolumeBinding {
    claims: BTreeSet<Key>,
    volumes: BTreeSet<String>,
    /// Claims whose volume does not exist yet, by its name.
    waiting: BTreeMap<String, BTreeSet<Key>>,
}

impl VolumeBinding {
    fn reconcile_volume(ctx: &mut ReconcileContext<'_>, name: &str) {
        let Some(volume) = ctx.get(&VOLUMES, &Key::cluster(name)) else { return };
        let reference = &volume["spec"]["claimRef"];
        let claim = claim_key(reference).and_then(|key| ctx.get(&CLAIMS, &key));
        let is_same = |claim: &Object| reference["uid"].is_null() || reference["uid"] == pod::uid(claim);
        let phase = match claim.filter(is_same) {
            _ if !reference.is_object() => "Available",
            Some(claim) if claim["spec"]["volumeName"] == name => "Bound",
            // Its claim is gone.
            None if reference["uid"].is_string() => "Released",
            _ => "Available",
        };
        let now = ctx.now;
        let written = ctx.edit_status(&VOLUMES, &volume, |volume| {
            if volume["status"]["phase"] != phase {
                volume["status"] = json!({"phase": phase, "lastPhaseTransitionTime": metav1_time(now)});
            }
        });
        if let Some(volume) = written.filter(|volume| pod::is_terminating(volume) && phase != "Bound") {
            remove_finalizer(ctx, &VOLUMES, &volume, VOLUME_PROTECTION);
        }
    }

    fn reconcile_claim(&mut self, ctx: &mut ReconcileContext<'_>, key: &Key) {
        let Some(claim) = ctx.get(&CLAIMS, key) else { return };
        if pod::is_terminating(&claim) {
            let in_use = ctx
                .state
                .list(&PODS, Some(&key.namespace))
                .any(|pod| !pod::is_finished(&pod) && volume::claims(&pod).any(|used| used == key.name));
            if !in_use {
                remove_finalizer(ctx, &CLAIMS, &claim, CLAIM_PROTECTION);
            }
            return;
        }
        let Some(name) = claim["spec"]["volumeName"].as_str().map(str::to_owned) else {
            return Self::find_volume(ctx, &claim);
        };
        let Some(volume) = ctx.get(&VOLUMES, &Key::cluster(&*name)) else {
            self.waiting.entry(name).or_default().insert(key.clone());
            return;
        };
        let reference = &volume["spec"]["claimRef"];
        let is_taken = reference.is_object()
            && (claim_key(reference).as_ref() != Some(key)
                || !(reference["uid"].is_null() || reference["uid"] == pod::uid(&claim)));
        if is_taken {
            return;
        }
        if reference["uid"].is_null() {
            let is_chosen = reference.is_object();
            ctx.edit(&VOLUMES, &volume, |volume| {
                volume["spec"]["claimRef"] = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "namespace": key.namespace, "name": key.name, "uid": claim["metadata"]["uid"],
                    "resourceVersion": claim["metadata"]["resourceVersion"]});
                if !is_chosen {
                    volume["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] = json!("yes");
                }
            });
        }
        let bound = ctx.edit(&CLAIMS, &claim, |claim| {
            claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = json!("yes");
        });
        if let Some(claim) = bound {
            ctx.edit_status(&CLAIMS, &claim, |claim| {
                claim["status"] = json!({"phase": "Bound", "accessModes": volume["spec"]["accessModes"],
                    "capacity": volume["spec"]["capacity"]});
            });
        }
        self.volumes.insert(name);
    }

    /// Binds a claim that names no volume to the volume that names it.
    fn find_volume(ctx: &mut ReconcileContext<'_>, claim: &Object) {
        let key = Key::of(claim);
        let names_it = |volume: &Object| claim_key(&volume["spec"]["claimRef"]).as_ref() == Some(&key);
        let found = ctx.state.list(&VOLUMES, None).find(names_it);
        if let Some(volume) = found {
            ctx.edit(&CLAIMS, claim, |claim| {
                claim["spec"]["volumeName"] = volume["metadata"]["name"].clone();
                claim["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] = json!("yes");
            });
        }
    }
}

/// The key of the claim in a `claimRef`.
fn claim_key(reference: &Value) -> Option<Key> {
    Some(Key::new(reference["namespace"].as_str()?, reference["name"].as_str()?))
}

fn remove_finalizer(
    ctx: &mut ReconcileContext<'_>,
    collection: &Collection,
    object: &Object,
    finalizer: &str,
) {
    if registry::finalizers(object).contains(&finalizer) {
        ctx.edit(collection, object, |object| {
            if let Some(all) = object["metadata"]["finalizers"].as_array_mut() {
                all.retain(|own| own != finalizer);
            }
        });
    }
}

impl Controller for VolumeBinding {
    fn watches(&self) -> Watches {
        const WATCHED: &[Collection] = &[CLAIMS, VOLUMES, PODS];
        Watches::These(WATCHED)
    }

    fn forget(&mut self, _: &Collection) {}

    fn observe(&mut self, collection: &Collection, change: &Change) {
        let objects = change.before.iter().chain(&change.after);
        if *collection == PODS {
            // A claim is no longer in use once its last pod has ended.
            for pod in objects {
                let namespace = pod::namespace(pod);
                self.claims.extend(volume::claims(pod).map(|claim| Key::new(namespace, claim)));
            }
        } else if *collection == CLAIMS {
            for claim in objects {
                self.claims.insert(Key::of(claim));
                self.volumes.extend(claim["spec"]["volumeName"].as_str().map(str::to_owned));
            }
        } else {
            for volume in objects {
                self.volumes.insert(pod::name(volume).to_owned());
                self.claims.extend(self.waiting.remove(pod::name(volume)).unwrap_or_default());
                self.claims.extend(claim_key(&volume["spec"]["claimRef"]));
            }
        }
    }

    fn sync(&mut self, ctx: &mut ReconcileContext<'_>) -> Requeue {
        while !ctx.is_full()
            && let Some(key) = self.claims.pop_first()
        {
            self.reconcile_claim(ctx, &key);
        }
        while !ctx.is_full()
            && let Some(name) = self.volumes.pop_first()
        {
            Self::reconcile_volume(ctx, &name);
        }
        Requeue::now_if(!self.claims.is_empty() || !self.volumes.is_empty())
    }
}
