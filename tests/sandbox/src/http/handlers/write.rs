//! Creates and deletes.

use serde_json::{Value, json};

use crate::cluster::catalog::resource::NAMESPACES;
use crate::cluster::registry::{self, DeleteOptions, Deleted, Effect, defaults, definitions};
use crate::cluster::store::Key;
use crate::cluster::{Cluster, admission};
use crate::http::decode::object::{self, Source};
use crate::http::handlers::{read, webhooks, write_checks};
use crate::http::patch::managers::{self, Writer};
use crate::http::request::call::Call;
use crate::http::request::{delete_options, options};
use crate::http::response::answer::{self, HandlerResult, warn};
use crate::model::status_error::StatusError;

/// `POST` to a collection.
pub(crate) async fn create(cluster: &Cluster, call: &Call) -> HandlerResult {
    options::check_write(&call.query, "CreateOptions")?;
    let object = write_checks::object(call)?;
    created(cluster, call, object, Source::Body).await
}

/// Creates a complete object, perhaps one made by a patch.
///
/// # Errors
/// The errors of validation.
pub(crate) async fn created(
    cluster: &Cluster,
    call: &Call,
    mut object: Value,
    source: Source<'_>,
) -> HandlerResult {
    let effect = call.effect();
    let is_old = matches!(source, Source::Body) && is_of_a_version(&object);
    let metadata = &mut object["metadata"];
    let generate = metadata["generateName"].as_str().map(str::to_owned);
    if let (None | Some(""), Some(prefix)) = (metadata["name"].as_str(), generate) {
        // Set here and not only in the registry, so that errors contain the name.
        metadata["name"] = json!(format!("{prefix}{}", registry::suffix()));
    }
    let mut warnings = object::decode(call, &mut object, source)?;
    if call.stored.status
        && call.stored.definition.is_some()
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("status");
    }
    let more = write_checks::admit(call, &mut object, None);
    warnings.extend(more.map_err(|refusal| refusal.with_warnings(&warnings))?);
    if matches!(source, Source::Body) {
        // A writer owns the defaults too that its body leaves out.
        let (now, mut complete) = (cluster.clock.now_string(), object.clone());
        defaults::missing_fields(&call.stored, &mut complete);
        managers::after_update(&json!({}), &mut complete, &writer(call, &now));
        object["metadata"]["managedFields"] = complete["metadata"]["managedFields"].take();
    }
    let now = cluster.clock.now();
    let object = definitions::prepare(&call.stored.collection, object)?;
    let mut object = cluster.store.read(|state| registry::complete(state, &call.stored, object, now))?;
    defaults::not_ready(&call.stored, &mut object);
    let more = webhooks::on_create(cluster, call, &object).await;
    warnings.extend(more.map_err(|refusal| refusal.with_warnings(&warnings))?);
    if is_old && effect == Effect::Real {
        let because = "resourceVersion should not be set on objects to be created";
        return Err(StatusError::internal(because).with_warnings(&warnings));
    }
    let stored = cluster.store.write(|state| {
        let stored = registry::insert(state, &call.stored, object, effect)?;
        definitions::changed(cluster, state, &call.stored, call.name(), effect)?;
        Ok(stored)
    });
    let stored = stored.map_err(|refusal: StatusError| refusal.with_warnings(&warnings))?;
    Ok(warn(read::object_answer(cluster, call, 201, &stored), &warnings))
}

/// Whether an object was read from a cluster before.
fn is_of_a_version(object: &Value) -> bool {
    let version = object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse::<u64>().ok());
    version.is_some_and(|version| version > 0)
}

/// The entry in managed fields.
pub(crate) fn writer<'a>(call: &'a Call, now: &'a str) -> Writer<'a> {
    Writer {
        manager: &call.manager,
        subresource: call.subresource(),
        resource: &call.stored,
        api_version: call.resource.api_version(),
        now,
    }
}

/// Namespaces that cannot be deleted.
const LASTING: [&str; 3] = ["default", "kube-public", "kube-system"];

/// `DELETE` of one object.
pub(crate) async fn delete(cluster: &Cluster, call: &Call) -> HandlerResult {
    let (options, effect) = delete_options::read(call)?;
    if call.stored.collection == NAMESPACES && LASTING.contains(&call.name()) {
        let because = "this namespace may not be deleted";
        return Err(StatusError::forbidden("", NAMESPACES.plural.as_ref(), call.name(), because));
    }
    let (deleted, warnings) = delete_one(cluster, call, &call.key(), &options, effect).await?;
    let response = match deleted {
        // The response is the pod before its deletion; the same holds for an object that is already terminating.
        Deleted::Terminating(object) => read::object_answer(cluster, call, 200, &object),
        Deleted::Gone(object) if call.resource.graceful => read::object_answer(cluster, call, 200, &object),
        Deleted::Gone(object) => answer::json(200, &gone(call, &object)),
    };
    Ok(warn(response, &warnings))
}

/// `DELETE` of a collection.
pub(crate) async fn delete_many(cluster: &Cluster, call: &Call) -> HandlerResult {
    options::check_list(&call.query)?;
    let selection = call.selection()?;
    let (options, effect) = delete_options::read(call)?;
    let chosen = cluster.store.read(|state| read::selected(state, call, &selection));
    let mut warnings = Vec::new();
    for object in &chosen {
        match delete_one(cluster, call, &Key::of(object), &options, effect).await {
            Ok((_, more)) => warnings.extend(more),
            // An object that is already gone is not an error.
            Err(StatusError { code: 404, .. }) => {}
            Err(refusal) => return Err(refusal),
        }
    }
    let revision = cluster.store.read(|state| state.revision().to_string());
    let show = crate::http::response::representation::Representation::new(
        &call.resource,
        call.form,
        None,
        cluster.clock.now(),
    );
    let mut metadata = json!({"resourceVersion": revision});
    if call.stored.definition.is_some() {
        // Lists without a type of their own contain an empty continue token.
        metadata["continue"] = json!("");
    }
    let response = answer::bytes_of(200, "application/json", show.list(&metadata, chosen));
    Ok(warn(response, &warnings))
}

/// Deletes one object after admission, and returns warnings.
async fn delete_one(
    cluster: &Cluster,
    call: &Call,
    key: &Key,
    options: &DeleteOptions,
    effect: Effect,
) -> Result<(Deleted, Vec<String>), StatusError> {
    let now = cluster.clock.now();
    let mut warnings = Vec::new();
    if !admission::is_idle(&cluster.store) {
        let (current, would) = cluster.store.write(|state| {
            let would = registry::delete(state, &call.stored, key, options, now, Effect::DryRun)?;
            let current = state.get(&call.stored.collection, key);
            Ok((current.ok_or_else(|| call.not_found())?, would))
        })?;
        // A pod that is already terminating is not reviewed again.
        let nothing_new = matches!(&would, Deleted::Terminating(next) if *next == current);
        if !(nothing_new && call.stored.graceful) {
            warnings = webhooks::on_delete(cluster, call, &current, effect).await?;
        }
    }
    let deleted = cluster.store.write(|state| {
        let deleted = registry::delete(state, &call.stored, key, options, now, effect)?;
        definitions::changed(cluster, state, &call.stored, call.name(), effect)?;
        Ok(deleted)
    })?;
    Ok((deleted, warnings))
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
