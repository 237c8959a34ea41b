//! Calls validating webhooks before a write.

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::cluster::admission::{ReviewRequest, View};
use crate::cluster::catalog::resource::{NEW_EVENTS, Resource};
use crate::cluster::registry::Effect;
use crate::cluster::store::Key;
use crate::http::handlers::write_checks;
use crate::http::request::call::Call;
use crate::model::event_versions;
use crate::model::status_error::StatusError;

/// Reviews a create, and returns warnings.
///
/// # Errors
/// A denial, or the failure of a webhook.
pub(crate) async fn on_create(
    cluster: &Cluster,
    call: &Call,
    object: &Value,
) -> Result<Vec<String>, StatusError> {
    let effect = call.effect();
    let ask = || question(cluster, call, "CREATE", &Key::of(object).name, (object, &Value::Null), effect);
    cluster.admission.review(&cluster.store, ask).await
}

/// Reviews an update or a patch.
///
/// # Errors
/// A denial, or the failure of a webhook.
pub(crate) async fn on_update(
    cluster: &Cluster,
    call: &Call,
    object: &Value,
    old: &Value,
) -> Result<Vec<String>, StatusError> {
    let effect = call.effect();
    let ask = || question(cluster, call, "UPDATE", call.name(), (object, old), effect);
    cluster.admission.review(&cluster.store, ask).await
}

/// Reviews the deletion of an object, perhaps one of a collection.
///
/// # Errors
/// A denial, or the failure of a webhook.
pub(crate) async fn on_delete(
    cluster: &Cluster,
    call: &Call,
    old: &Value,
    effect: Effect,
) -> Result<Vec<String>, StatusError> {
    let ask = || ReviewRequest {
        options: delete_options(call),
        ..question(cluster, call, "DELETE", call.name(), (&Value::Null, old), effect)
    };
    cluster.admission.review(&cluster.store, ask).await
}

/// Reviews a request to a subresource with a kind of its own.
///
/// # Errors
/// A denial, or the failure of a webhook.
pub(crate) async fn on_subresource(
    cluster: &Cluster,
    call: &Call,
    operation: &'static str,
    (group, version, kind): (&str, &str, &str),
    objects: (&Value, &Value),
) -> Result<Vec<String>, StatusError> {
    let effect = call.effect();
    let ask = || {
        let mut question = question(cluster, call, operation, call.name(), objects, effect);
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        for view in question.equivalents.iter_mut().chain([&mut question.asked]) {
            view.kind = json!({"group": group, "version": version, "kind": kind});
            for object in [&mut view.object, &mut view.old] {
                if object.is_object() {
                    object["apiVersion"] = json!(api_version);
                    object["kind"] = json!(kind);
                }
            }
        }
        question
    };
    cluster.admission.review(&cluster.store, ask).await
}

fn question(
    cluster: &Cluster,
    call: &Call,
    operation: &'static str,
    name: &str,
    (object, old): (&Value, &Value),
    effect: Effect,
) -> ReviewRequest {
    let view = |resource: &Resource| View::of(resource, shaped(resource, object), shaped(resource, old));
    let version = |resource: &Resource| (resource.group().to_owned(), resource.version.clone());
    let asked = version(&call.resource);
    let others = cluster
        .catalog
        .all()
        .into_iter()
        .filter(|other| other.storage() == call.resource.storage() && version(other) != asked);
    let equivalents = others.map(|other| view(&other)).collect();
    let is_namespace = call.resource.kind == "Namespace" && call.resource.group().is_empty();
    ReviewRequest {
        operation,
        subresource: call.subresource().to_owned(),
        name: name.to_owned(),
        namespace: if is_namespace { name.to_owned() } else { call.namespace().to_owned() },
        user: call.user.to_info(),
        options: write_options(call, operation),
        dry_run: effect == Effect::DryRun,
        asked: view(&call.resource),
        equivalents,
    }
}

/// A stored object in the version of the resource.
fn shaped(resource: &Resource, object: &Value) -> Value {
    if !object.is_object() {
        return Value::Null;
    }
    let is_event = resource.collection == NEW_EVENTS;
    let mut shown = if is_event { event_versions::to_new(object) } else { object.clone() };
    shown["apiVersion"] = json!(resource.api_version());
    shown["kind"] = json!(resource.kind);
    shown
}

fn write_options(call: &Call, operation: &str) -> Value {
    let kind = if operation == "CREATE" { "CreateOptions" } else { "UpdateOptions" };
    let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
    for field in ["fieldManager", "fieldValidation"] {
        if let Some(value) = call.query.get(field) {
            options[field] = json!(value);
        }
    }
    if let Some(value) = call.query.get("dryRun") {
        options["dryRun"] = json!([value]);
    }
    options
}

/// The options of the body, completed by those of the query.
fn delete_options(call: &Call) -> Value {
    // Invalid options were rejected before.
    let body = write_checks::body(call).ok().filter(Value::is_object);
    let mut options = body.unwrap_or_else(|| json!({}));
    options["kind"] = json!("DeleteOptions");
    options["apiVersion"] = json!("meta.k8s.io/v1");
    if let Some(seconds) = call.query.number::<i64>("gracePeriodSeconds") {
        options["gracePeriodSeconds"] = json!(seconds);
    }
    if let Some(policy) = call.query.get("propagationPolicy") {
        options["propagationPolicy"] = json!(policy);
    }
    if let Some(value) = call.query.get("dryRun") {
        options["dryRun"] = json!([value]);
    }
    options
}

#[cfg(test)]
#[path = "webhooks_tests.rs"]
mod tests;
