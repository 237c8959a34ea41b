//! Creating and deleting.

use serde_json::{Value, json};

use super::Answer;
use super::answer::{self, warn};
use super::call::Call;
use super::decode::{self, Source};
use super::{definitions, intake, read};
use crate::cluster::Cluster;
use crate::patch::managers::{self, Writer};
use crate::refusal::Refusal;
use crate::registry::{self, DeleteOptions, Deleted, Effect, Propagation};
use crate::store::Key;

/// `POST` to a collection.
#[expect(clippy::unused_async, reason = "admission webhooks will be waited for here")]
pub(super) async fn create(cluster: &Cluster, call: &Call) -> Answer {
    let object = intake::object(call)?;
    created(cluster, call, object, Source::Body)
}

/// Creates an object that is in its place already; a patch may have made it.
///
/// # Errors
/// Whatever is wrong with it.
pub(super) fn created(cluster: &Cluster, call: &Call, mut object: Value, source: Source<'_>) -> Answer {
    let effect = call.effect()?;
    let metadata = &mut object["metadata"];
    let generate = metadata["generateName"].as_str().map(str::to_owned);
    if let (None | Some(""), Some(prefix)) = (metadata["name"].as_str(), generate) {
        // Here and not only in the registry, so that complaints can name it.
        metadata["name"] = json!(format!("{prefix}{}", registry::suffix()));
    }
    let mut warnings = decode::decode(call, &mut object, source)?;
    if call.stored.status
        && call.stored.definition.is_some()
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("status");
    }
    let more = intake::admit(call, &mut object, None);
    warnings.extend(more.map_err(|refusal| refusal.with_warnings(&warnings))?);
    if matches!(source, Source::Body) {
        let now = cluster.clock.now_string();
        managers::after_update(&json!({}), &mut object, &writer(call, &now));
    }
    let now = cluster.clock.now();
    let stored = cluster.store.write(|state| {
        let object = definitions::prepare(call, object)?;
        let stored = registry::create(state, &call.stored, object, now, effect)?;
        definitions::changed(cluster, state, call, effect)?;
        Ok(stored)
    })?;
    Ok(warn(read::object_answer(cluster, call, 201, &stored), &warnings))
}

/// Who writes, as managed fields tell it.
pub(super) fn writer<'a>(call: &'a Call, now: &'a str) -> Writer<'a> {
    Writer {
        manager: &call.manager,
        subresource: call.subresource(),
        resource: &call.stored,
        api_version: call.resource.api_version(),
        now,
    }
}

/// `DELETE` of one object.
#[expect(clippy::unused_async, reason = "admission webhooks will be waited for here")]
pub(super) async fn delete(cluster: &Cluster, call: &Call) -> Answer {
    let (options, effect) = options(call)?;
    let deleted = delete_one(cluster, call, &call.key(), &options, effect)?;
    let object = match deleted {
        // Pods are answered as they were, and so is what goes on terminating.
        Deleted::Terminating(object) => object,
        Deleted::Gone(object) if call.resource.graceful => object,
        Deleted::Gone(object) => return Ok(answer::json(200, &gone(call, &object))),
    };
    Ok(read::object_answer(cluster, call, 200, &object))
}

/// `DELETE` of a collection.
#[expect(clippy::unused_async, reason = "admission webhooks will be waited for here")]
pub(super) async fn delete_many(cluster: &Cluster, call: &Call) -> Answer {
    let selection = call.selection()?;
    let (options, effect) = options(call)?;
    let chosen = cluster.store.read(|state| read::selected(state, call, &selection));
    for object in &chosen {
        match delete_one(cluster, call, &Key::of(object), &options, effect) {
            // Gone meanwhile is as good.
            Ok(_) | Err(Refusal { code: 404, .. }) => {}
            Err(refusal) => return Err(refusal),
        }
    }
    let revision = cluster.store.read(|state| state.revision().to_string());
    let show = super::show::Show::new(&call.resource, call.form, None, cluster.clock.now());
    let metadata = json!({"continue": "", "resourceVersion": revision});
    Ok(answer::bytes_of(200, "application/json", show.list(&metadata, chosen)))
}

fn delete_one(
    cluster: &Cluster,
    call: &Call,
    key: &Key,
    options: &DeleteOptions,
    effect: Effect,
) -> Result<Deleted, Refusal> {
    let now = cluster.clock.now();
    cluster.store.write(|state| {
        let deleted = registry::delete(state, &call.stored, key, options, now, effect)?;
        definitions::changed(cluster, state, call, effect)?;
        Ok(deleted)
    })
}

/// The options of the body and of the query; the body wins.
fn options(call: &Call) -> Result<(DeleteOptions, Effect), Refusal> {
    let body = if call.body.is_empty() { Value::Null } else { intake::body(call)? };
    let text = |field: &str| {
        let given = body[field].as_str().or_else(|| call.query.get(field));
        given.map(str::to_owned)
    };
    let propagation = match text("propagationPolicy").as_deref() {
        Some("Foreground") => Propagation::Foreground,
        Some("Orphan") => Propagation::Orphan,
        None if body["orphanDependents"] == true => Propagation::Orphan,
        _ => Propagation::Background,
    };
    let precondition = |field: &str| body["preconditions"][field].as_str().map(str::to_owned);
    let options = DeleteOptions {
        grace_period_seconds: body["gracePeriodSeconds"]
            .as_i64()
            .or_else(|| call.query.number("gracePeriodSeconds")),
        uid: precondition("uid"),
        resource_version: precondition("resourceVersion"),
        propagation,
    };
    let effect = match body["dryRun"][0].as_str() {
        Some("All") => Effect::DryRun,
        _ => call.effect()?,
    };
    Ok((options, effect))
}

fn gone(call: &Call, object: &Value) -> Value {
    let resource = &call.resource;
    let mut details = json!({"name": object["metadata"]["name"], "kind": resource.plural(),
        "uid": object["metadata"]["uid"]});
    if !resource.group().is_empty() {
        details["group"] = json!(resource.group());
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
