//! Serving what CRDs define: a CRD that is created is served with the next request, one that is deleted takes its
//! objects with it.

use jiff::Timestamp;
use serde_json::Value;

use super::call::Call;
use crate::clock::metav1_time;
use crate::cluster::Cluster;
use crate::crd;
use crate::refusal::Refusal;
use crate::registry::{self, DeleteOptions, Effect, Part};
use crate::resource::{CRDS, Resource};
use crate::store::{Key, Object, State};

/// Completes a CRD before it is written, and refuses one that cannot be served; other objects pass.
///
/// # Errors
/// 422 for a CRD that cannot be served.
pub(super) fn prepare(call: &Call, mut object: Value) -> Result<Value, Refusal> {
    if call.stored.collection == CRDS {
        crd::complete(&mut object);
        crd::resources(&object)?;
    }
    Ok(object)
}

/// Serves a CRD that was just written, and says in its status that it is.
///
/// # Errors
/// 422 for a CRD that cannot be served.
pub(super) fn changed(
    cluster: &Cluster,
    state: &mut State,
    call: &Call,
    stored: Object,
    effect: Effect,
) -> Result<Object, Refusal> {
    if call.stored.collection != CRDS || effect == Effect::DryRun {
        return Ok(stored);
    }
    serve(cluster, state, &call.stored, &stored)
}

/// Serves the CRD and establishes it.
fn serve(cluster: &Cluster, state: &mut State, crds: &Resource, stored: &Object) -> Result<Object, Refusal> {
    if !stored["metadata"]["deletionTimestamp"].is_null() {
        return Ok(stored.clone());
    }
    cluster.catalog.serve(&crd::collection(stored), crd::resources(stored)?);
    let mut established = Value::clone(stored);
    established["status"] = crd::established(stored, &cluster.clock.now_string());
    registry::update(state, crds, &established, Part::Status, Effect::Real)
}

/// Creates a CRD from within the process, or replaces the one of its name.
///
/// # Errors
/// 422 for a CRD that cannot be served.
pub fn install(cluster: &Cluster, mut object: Value) -> Result<Object, Refusal> {
    let crds =
        cluster.catalog.of(&CRDS).ok_or_else(|| Refusal::not_found("", "customresourcedefinitions", ""))?;
    crd::complete(&mut object);
    crd::resources(&object)?;
    let now = cluster.clock.now();
    cluster.store.write(|state| {
        let exists = state.get(&CRDS, &Key::of(&object)).is_some();
        let stored = if exists {
            registry::update(state, &crds, &object, Part::Main, Effect::Real)?
        } else {
            registry::create(state, &crds, object, now, Effect::Real)?
        };
        serve(cluster, state, &crds, &stored)
    })
}

/// Takes a CRD that was just removed out of service, with everything that it defined.
pub(super) fn removed(cluster: &Cluster, state: &mut State, call: &Call, object: &Value, now: Timestamp) {
    if call.stored.collection != CRDS {
        return;
    }
    let collection = crd::collection(object);
    if let Some(resource) = cluster.catalog.of(&collection) {
        let keys: Vec<Key> = state.list(&collection, None).map(|object| Key::of(object)).collect();
        for key in keys {
            // What has finalizers stays in the store, out of sight, as it would if the CRD came back.
            let _ = registry::delete(state, &resource, &key, &DeleteOptions::default(), now, Effect::Real);
        }
    }
    cluster.catalog.serve(&collection, Vec::new());
    tracing::debug!(at = metav1_time(now), ?collection, "no longer served");
}
