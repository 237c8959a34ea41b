//! Serving what CRDs define: a CRD that is created is served with the next request, one that is deleted takes its
//! objects with it.

use serde_json::Value;

use super::call::Call;
use crate::cluster::Cluster;
use crate::custom_resource;
use crate::refusal::{Refusal, qualified};
use crate::registry::{self, DeleteOptions, Effect, Part};
use crate::resource::{CRDS, Resource};
use crate::store::{Collection, Key, Object, State};

/// Holds a CRD until the objects that it defines are gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Completes a CRD before it is written, and refuses one that cannot be served; other objects pass.
///
/// # Errors
/// 422 for a CRD that cannot be served.
pub(super) fn prepare(call: &Call, mut object: Value) -> Result<Value, Refusal> {
    if call.stored.collection == CRDS {
        custom_resource::complete(&mut object);
        custom_resource::resources(&object)?;
    }
    Ok(object)
}

/// Acts on what was just written: a CRD is served, and one whose last object has gone goes too. The answer is what was
/// written, as in a cluster, where this happens a moment later.
///
/// # Errors
/// 422 for a CRD that cannot be served.
pub(super) fn changed(
    cluster: &Cluster,
    state: &mut State,
    call: &Call,
    effect: Effect,
) -> Result<(), Refusal> {
    if effect == Effect::DryRun {
        return Ok(());
    }
    if call.stored.definition.is_some() {
        return finish(cluster, state, &call.stored.collection);
    }
    if call.stored.collection != CRDS {
        return Ok(());
    }
    let keys: Vec<Key> = state.list(&CRDS, None).map(|crd| Key::of(&crd)).collect();
    for key in keys.iter().filter(|key| call.name().is_empty() || key.name == call.name()) {
        attend(cluster, state, &call.stored, key)?;
    }
    Ok(())
}

/// Serves a CRD, or ends what it defines.
fn attend(cluster: &Cluster, state: &mut State, crds: &Resource, key: &Key) -> Result<(), Refusal> {
    let Some(stored) = state.get(&CRDS, key) else {
        return Ok(());
    };
    let collection = custom_resource::collection(&stored);
    if !stored["metadata"]["deletionTimestamp"].is_null() {
        end(cluster, state, &collection);
        return finish(cluster, state, &collection);
    }
    cluster.catalog.serve(&collection, custom_resource::resources(&stored)?);
    let mut next = Value::clone(&stored);
    if !registry::finalizers(&stored).contains(&CLEANUP) {
        let finalizers = registry::finalizers(&stored).into_iter().chain([CLEANUP]);
        next["metadata"]["finalizers"] = finalizers.collect();
        next = Value::clone(&*registry::update(state, crds, &next, Part::Main, Effect::Real)?);
    }
    next["status"] = custom_resource::established(&stored, &cluster.clock.now_string());
    registry::update(state, crds, &next, Part::Status, Effect::Real)?;
    Ok(())
}

/// Deletes every object of a collection; those with finalizers take their time.
fn end(cluster: &Cluster, state: &mut State, collection: &Collection) {
    let Some(resource) = cluster.catalog.of(collection) else {
        return;
    };
    let keys: Vec<Key> = state.list(collection, None).map(|object| Key::of(&object)).collect();
    for key in keys {
        // It was there a moment ago, under the same lock, so there is nothing to refuse.
        let options = DeleteOptions::default();
        let _ = registry::delete(state, &resource, &key, &options, cluster.clock.now(), Effect::Real);
    }
}

/// Lets a CRD go that is being deleted and has no objects left.
fn finish(cluster: &Cluster, state: &mut State, collection: &Collection) -> Result<(), Refusal> {
    let key = Key::cluster(qualified(&collection.group, &collection.plural));
    let Some(stored) = state.get(&CRDS, &key) else {
        return Ok(());
    };
    if stored["metadata"]["deletionTimestamp"].is_null() || state.list(collection, None).next().is_some() {
        return Ok(());
    }
    cluster.catalog.serve(collection, Vec::new());
    let mut next = Value::clone(&stored);
    let finalizers = registry::finalizers(&stored).into_iter().filter(|name| *name != CLEANUP);
    next["metadata"]["finalizers"] = finalizers.collect();
    if let Some(crds) = cluster.catalog.of(&CRDS) {
        registry::update(state, &crds, &next, Part::Main, Effect::Real)?;
    }
    Ok(())
}

/// Creates a CRD from within the process, or replaces the one of its name.
///
/// # Errors
/// 422 for a CRD that cannot be served.
pub(crate) fn install(cluster: &Cluster, mut object: Value) -> Result<Object, Refusal> {
    let crds =
        cluster.catalog.of(&CRDS).ok_or_else(|| Refusal::not_found("", "customresourcedefinitions", ""))?;
    custom_resource::complete(&mut object);
    custom_resource::resources(&object)?;
    let now = cluster.clock.now();
    let key = Key::of(&object);
    cluster.store.write(|state| {
        let stored = if state.get(&CRDS, &key).is_some() {
            registry::update(state, &crds, &object, Part::Main, Effect::Real)?
        } else {
            registry::create(state, &crds, object, now, Effect::Real)?
        };
        attend(cluster, state, &crds, &key)?;
        Ok(state.get(&CRDS, &key).unwrap_or(stored))
    })
}
