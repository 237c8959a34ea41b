//! The life of CRDs: one that is created is served from the next request on, one that is deleted takes its objects with
//! it.

use serde_json::Value;

use crate::cluster::Cluster;
use crate::cluster::catalog::custom_resource;
use crate::cluster::catalog::resource::{CRDS, Resource};
use crate::cluster::registry::{self, DeleteOptions, Effect, Part};
use crate::cluster::store::{Collection, Key, Object, State};
use crate::model::status_error::{StatusError, qualified};

/// The finalizer that keeps a CRD until the objects that it defines are gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Completes a CRD before it is written. Other objects are returned as they are.
///
/// # Errors
/// 422 for a CRD that cannot be served.
pub(crate) fn prepare(collection: &Collection, mut object: Value) -> Result<Value, StatusError> {
    if *collection == CRDS {
        custom_resource::complete(&mut object);
        custom_resource::resources(&object)?;
    }
    Ok(object)
}

/// Acts on a write to `resource`, of the object `name` or, if that is empty, of all objects: serves a CRD that was
/// written, and removes one that is being deleted when its last object is gone. A cluster does so a moment later.
///
/// # Errors
/// 422 for a CRD that cannot be served.
pub(crate) fn changed(
    cluster: &Cluster,
    state: &mut State,
    resource: &Resource,
    name: &str,
    effect: Effect,
) -> Result<(), StatusError> {
    if effect == Effect::DryRun {
        return Ok(());
    }
    if resource.definition.is_some() {
        return finish(cluster, state, &resource.collection);
    }
    if resource.collection != CRDS {
        return Ok(());
    }
    let keys: Vec<Key> = state.list(&CRDS, None).map(|crd| Key::of(&crd)).collect();
    for key in keys.iter().filter(|key| name.is_empty() || key.name == name) {
        reconcile(cluster, state, resource, key)?;
    }
    Ok(())
}

/// Serves a CRD, or deletes what it defines.
fn reconcile(cluster: &Cluster, state: &mut State, crds: &Resource, key: &Key) -> Result<(), StatusError> {
    let Some(stored) = state.get(&CRDS, key) else {
        return Ok(());
    };
    let collection = custom_resource::collection(&stored);
    if !stored["metadata"]["deletionTimestamp"].is_null() {
        delete_all(cluster, state, &collection);
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

/// Deletes every object of a collection. Those with finalizers stay until the finalizers are gone.
fn delete_all(cluster: &Cluster, state: &mut State, collection: &Collection) {
    let Some(resource) = cluster.catalog.of(collection) else {
        return;
    };
    let keys: Vec<Key> = state.list(collection, None).map(|object| Key::of(&object)).collect();
    for key in keys {
        // The object exists, since the state is locked, so this cannot fail.
        let options = DeleteOptions::default();
        let _ = registry::delete(state, &resource, &key, &options, cluster.clock.now(), Effect::Real);
    }
}

/// Removes the finalizer of a CRD that is being deleted and has no objects left.
fn finish(cluster: &Cluster, state: &mut State, collection: &Collection) -> Result<(), StatusError> {
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

/// Creates a CRD, or replaces the one of the same name.
///
/// # Errors
/// 422 for a CRD that cannot be served.
pub(crate) fn install(cluster: &Cluster, mut object: Value) -> Result<Object, StatusError> {
    let crds = cluster
        .catalog
        .of(&CRDS)
        .ok_or_else(|| StatusError::not_found("", "customresourcedefinitions", ""))?;
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
        reconcile(cluster, state, &crds, &key)?;
        Ok(state.get(&CRDS, &key).unwrap_or(stored))
    })
}
