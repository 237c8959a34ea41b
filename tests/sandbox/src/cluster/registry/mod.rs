//! Writes: which are valid, and what they do to `metadata`, for all resources.
//!
//! Each function performs one request on the state, completely or not at all. Decoding, schemas and permissions come
//! before it (`http`, `access`); controllers act on the result.

pub(crate) mod binding;
pub(crate) mod defaults;
pub(crate) mod definitions;
pub(crate) mod eviction;
mod grace;
mod metadata;
pub(crate) mod priority;
mod quota;
pub(crate) mod validation;

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::cluster::catalog::resource::{NAMESPACES, NODES, PODS, Resource};
pub use crate::cluster::registry::metadata::{Part, finalizers};
use crate::cluster::registry::metadata::{add_finalizer, strip, tidy};
pub(crate) use crate::cluster::registry::metadata::{merged, suffix};
use crate::cluster::store::{Key, Object, State};
use crate::model::clock::metav1_time;
use crate::model::status_error::{FieldError, StatusError};

/// Whether a write takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It takes effect.
    Real,
    /// `dryRun=All`: it is validated, and nothing changes.
    DryRun,
}

/// `metav1.DeleteOptions`.
#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    /// The grace period of a pod in seconds; none for the pod's own.
    pub grace_period_seconds: Option<i64>,
    /// Precondition: the uid of the object.
    pub uid: Option<String>,
    /// Precondition: the resourceVersion of the object.
    pub resource_version: Option<String>,
    /// The propagation policy.
    pub propagation: Propagation,
}

/// What happens to an object's dependents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Propagation {
    /// The garbage collector deletes them afterwards.
    #[default]
    Background,
    /// The object stays until they are gone.
    Foreground,
    /// They are orphaned.
    Orphan,
}

/// Creates an object. `object` already has its namespace.
///
/// # Errors
/// 409 if the name is taken, 404 and 403 for a namespace that is missing or terminating.
pub fn create(
    state: &mut State,
    resource: &Resource,
    object: Value,
    now: Timestamp,
    effect: Effect,
) -> Result<Object, StatusError> {
    let object = complete(state, resource, object, now)?;
    insert(state, resource, object, effect)
}

/// A new object in its stored form, as webhooks see it.
///
/// # Errors
/// 422 without a name, 404 and 403 for a namespace that is missing or terminating, 403 for a pod whose priority class
/// is missing or has another priority.
pub fn complete(
    state: &State,
    resource: &Resource,
    mut object: Value,
    now: Timestamp,
) -> Result<Value, StatusError> {
    let generate = object["metadata"]["generateName"].as_str().map(str::to_owned);
    if let (None, Some(prefix)) = (object["metadata"]["name"].as_str(), generate) {
        object["metadata"]["name"] = json!(format!("{prefix}{}", suffix()));
    }
    let key = Key::of(&object);
    if key.name.is_empty() {
        let cause = FieldError {
            reason: "FieldValueRequired",
            field: "metadata.name".into(),
            message: "Required value: name or generateName is required".into(),
        };
        return Err(StatusError::invalid(resource.group(), &resource.kind, "", &[cause]));
    }
    if resource.namespaced {
        admit_namespace(state, resource, &key)?;
    }
    let metadata = &mut object["metadata"];
    metadata["uid"] = json!(Uuid::new_v4().to_string());
    metadata["creationTimestamp"] = json!(metav1_time(now));
    strip(metadata, &["resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds"]);
    tidy(metadata);
    if resource.generation {
        metadata["generation"] = json!(1);
    } else {
        strip(metadata, &["generation"]);
    }
    // A node can be created with a status: kubelets register this way.
    if resource.status && resource.collection != NODES {
        strip(&mut object, &["status"]);
    }
    object["apiVersion"] = json!(resource.api_version());
    object["kind"] = json!(resource.kind);
    if resource.collection == PODS {
        priority::resolve(state, &mut object)?;
    }
    defaults::fill(resource, &mut object);
    defaults::tidy(resource, &mut object);
    Ok(object)
}

/// Stores a complete new object.
///
/// # Errors
/// 409 if the name is taken, 404 and 403 for a namespace that is missing or terminating.
pub fn insert(
    state: &mut State,
    resource: &Resource,
    object: Value,
    effect: Effect,
) -> Result<Object, StatusError> {
    let key = Key::of(&object);
    if resource.namespaced {
        // The namespace may have gone while webhooks were called.
        admit_namespace(state, resource, &key)?;
    }
    if let Some(existing) = state.get(&resource.collection, &key) {
        let terminating = !existing["metadata"]["deletionTimestamp"].is_null();
        return Err(StatusError::already_exists(resource.group(), resource.plural(), &key.name, terminating));
    }
    if resource.collection == PODS {
        quota::admit_pod(state, &key)?;
    }
    Ok(commit(state, resource, object, effect))
}

/// Replaces one part of an object. The rest of `object` is ignored.
///
/// # Errors
/// 404, 409 for an old resourceVersion or another uid, 422 for finalizers added to a terminating object.
pub fn update(
    state: &mut State,
    resource: &Resource,
    object: &Value,
    part: Part,
    effect: Effect,
) -> Result<Object, StatusError> {
    let key = Key::of(object);
    let (group, plural) = (resource.group(), resource.plural());
    let current = state
        .get(&resource.collection, &key)
        .ok_or_else(|| StatusError::not_found(group, plural, &key.name))?;
    check_version(resource, &key, &current, object)?;
    check_uid(resource, &key, &current, object, false)?;
    let next = merged(resource, &current, object, part);
    check_finalizers(resource, &key, &current, &next)?;
    let frozen = part == Part::Status && state.frozen.for_everybody(group, plural, &key.namespace, &key.name);
    if *current == next || frozen {
        return Ok(current);
    }
    if is_finished(resource, &next) {
        // Without finalizers the object is removed. Watchers see its last stored state, as from etcd.
        if effect == Effect::Real {
            state.remove(&resource.collection, &key);
        }
        return Ok(Object::new(next));
    }
    Ok(commit(state, resource, next, effect))
}

/// The result of a delete.
#[derive(Debug, Clone)]
pub enum Deleted {
    /// The object still exists, with a deletionTimestamp.
    Terminating(Object),
    /// The object is gone. This was its last state.
    Gone(Object),
}

/// Deletes an object, or marks it as terminating: a pod waits for its kubelet, and finalizers for their controllers.
///
/// # Errors
/// 404, or 409 if a precondition fails.
pub fn delete(
    state: &mut State,
    resource: &Resource,
    key: &Key,
    options: &DeleteOptions,
    now: Timestamp,
    effect: Effect,
) -> Result<Deleted, StatusError> {
    let (group, plural) = (resource.group(), resource.plural());
    let current = state
        .get(&resource.collection, key)
        .ok_or_else(|| StatusError::not_found(group, plural, &key.name))?;
    check_preconditions(resource, key, &current, options)?;
    let mut next = Value::clone(&current);
    match options.propagation {
        Propagation::Foreground => add_finalizer(&mut next, "foregroundDeletion"),
        Propagation::Orphan => add_finalizer(&mut next, "orphan"),
        Propagation::Background => {}
    }
    if resource.collection == NAMESPACES {
        next["status"]["phase"] = json!("Terminating");
    }
    grace::mark_deleted(resource, &mut next, options.grace_period_seconds, now);
    if is_finished(resource, &next) {
        let last = match effect {
            // Watchers see the end of a pod's grace period before its removal; other objects are just removed.
            Effect::Real => {
                let marked =
                    if resource.graceful { state.put(&resource.collection, next) } else { Object::new(next) };
                state.remove(&resource.collection, key).unwrap_or(marked)
            }
            Effect::DryRun => Object::new(next),
        };
        return Ok(Deleted::Gone(last));
    }
    if *current == next {
        return Ok(Deleted::Terminating(current));
    }
    Ok(Deleted::Terminating(commit(state, resource, next, effect)))
}

fn commit(state: &mut State, resource: &Resource, object: Value, effect: Effect) -> Object {
    match effect {
        Effect::Real => state.put(&resource.collection, object),
        Effect::DryRun => Object::new(object),
    }
}

fn admit_namespace(state: &State, resource: &Resource, key: &Key) -> Result<(), StatusError> {
    let namespace = state
        .get(&NAMESPACES, &Key::cluster(&*key.namespace))
        .ok_or_else(|| StatusError::not_found("", "namespaces", &key.namespace))?;
    if namespace["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    Err(namespace_terminating(resource, key))
}

/// 403 with the cause `NamespaceTerminating`, by which clients distinguish it from a missing permission.
pub fn namespace_terminating(resource: &Resource, key: &Key) -> StatusError {
    let namespace = &key.namespace;
    let because =
        format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut refusal = StatusError::forbidden(resource.group(), resource.plural(), &key.name, &because);
    if let Some(details) = &mut refusal.details {
        details["causes"] = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }]);
    }
    refusal
}

/// Checks the resourceVersion of a write, if it has one.
///
/// # Errors
/// 409 if the object has another.
pub(crate) fn check_version(
    resource: &Resource,
    key: &Key,
    current: &Value,
    object: &Value,
) -> Result<(), StatusError> {
    let version = object["metadata"]["resourceVersion"].as_str().filter(|version| !version.is_empty());
    if version.is_none_or(|version| current["metadata"]["resourceVersion"] == version) {
        return Ok(());
    }
    let because =
        "the object has been modified; please apply your changes to the latest version and try again";
    Err(StatusError::conflict(resource.group(), resource.plural(), &key.name, because))
}

/// Checks the uid of a write, if it has one. The error says for a patch that a uid is immutable, and otherwise that
/// the object was replaced.
///
/// # Errors
/// 422 for a patch and 409 for an object if the uid differs.
pub(crate) fn check_uid(
    resource: &Resource,
    key: &Key,
    current: &Value,
    object: &Value,
    is_patch: bool,
) -> Result<(), StatusError> {
    let (uid, own) = (&object["metadata"]["uid"], &current["metadata"]["uid"]);
    let Some(text) = uid.as_str().filter(|text| !text.is_empty() && own != *text) else {
        return Ok(());
    };
    if is_patch {
        let cause = FieldError::invalid("metadata.uid", uid, "field is immutable");
        // Most updates validate metadata twice and report both errors.
        let causes = vec![cause; if resource.group() == "policy" { 1 } else { 2 }];
        return Err(StatusError::invalid(resource.group(), &resource.kind, &key.name, &causes));
    }
    let own = own.as_str().unwrap_or_default();
    let because = format!("Precondition failed: UID in precondition: {text}, UID in object meta: {own}");
    Err(StatusError::conflict(resource.group(), resource.plural(), &key.name, &because))
}

fn check_preconditions(
    resource: &Resource,
    key: &Key,
    current: &Value,
    options: &DeleteOptions,
) -> Result<(), StatusError> {
    let metadata = &current["metadata"];
    let mismatch = |what: &str, wanted: &str, found: &Value, happened: &str| {
        let found = found.as_str().unwrap_or_default();
        let kind = &resource.kind;
        let because = format!(
            "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). \
             The object might have been {happened}"
        );
        // This message names the kind instead of the resource, in the core group.
        let name = &key.name;
        StatusError::new(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {kind} {name:?}: {because}"),
        )
        .with_details(json!({"name": name, "kind": kind}))
    };
    match (&options.uid, &options.resource_version) {
        (Some(uid), _) if metadata["uid"] != **uid => {
            Err(mismatch("UID", uid, &metadata["uid"], "deleted and then recreated"))
        }
        (_, Some(version)) if metadata["resourceVersion"] != **version => {
            Err(mismatch("ResourceVersion", version, &metadata["resourceVersion"], "modified"))
        }
        _ => Ok(()),
    }
}

fn check_finalizers(
    resource: &Resource,
    key: &Key,
    current: &Value,
    next: &Value,
) -> Result<(), StatusError> {
    if current["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    let old = finalizers(current);
    let added: Vec<&str> = finalizers(next).into_iter().filter(|name| !old.contains(name)).collect();
    if added.is_empty() {
        return Ok(());
    }
    let list = added.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    let because = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{list}}}"
    );
    let cause = FieldError::forbidden("metadata.finalizers", &because);
    Err(StatusError::invalid(
        resource.group(),
        &resource.kind,
        &key.name,
        // Updates validate metadata twice and report both errors.
        &[cause.clone(), cause],
    ))
}

fn is_finished(resource: &Resource, object: &Value) -> bool {
    let metadata = &object["metadata"];
    let waits_for_kubelet = resource.graceful && metadata["deletionGracePeriodSeconds"].as_i64() != Some(0);
    let waits_for_content = resource.collection == NAMESPACES
        && object["spec"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
    !metadata["deletionTimestamp"].is_null()
        && finalizers(object).is_empty()
        && !waits_for_kubelet
        && !waits_for_content
}
