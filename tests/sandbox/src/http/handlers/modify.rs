//! Updates and patches. An apply may also create the object.
//!
//! A handler reads the object, computes the new one, and writes it if the object is unchanged; otherwise it starts
//! again. So the store is not locked while a change is computed and checked.

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::cluster::catalog::resource::NAMESPACES;
use crate::cluster::registry::{self, Part, definitions};
use crate::cluster::store::Object;
use crate::http::decode::json_syntax;
use crate::http::decode::object::{self, Source};
use crate::http::decode::patch_body::{self, PatchBody};
use crate::http::handlers::{read, webhooks, write, write_checks};
use crate::http::patch::shapes::Shapes;
use crate::http::patch::{apply, managers, strategic};
use crate::http::request::call::Call;
use crate::http::request::options;
use crate::http::response::answer::{HandlerResult, warn};
use crate::kubevirt;
use crate::model::status_error::StatusError;

/// How often a change is computed again after a concurrent write.
const ATTEMPTS: usize = 100;

/// `PUT`.
pub(crate) async fn update(cluster: &Cluster, call: &Call) -> HandlerResult {
    options::check_write(&call.query, "UpdateOptions")?;
    let object = write_checks::object(call)?;
    change(cluster, call, Source::Body, |current| {
        current.ok_or_else(|| call.not_found())?;
        Ok(Modified::Written(object.clone()))
    })
    .await
}

/// `PATCH`.
pub(crate) async fn patch(cluster: &Cluster, call: &Call) -> HandlerResult {
    let patch = PatchBody::read(call)?;
    let source = match &patch {
        Ok(PatchBody::Strategic(patch)) => Source::Strategic(patch),
        _ => Source::Patch,
    };
    change(cluster, call, source, |current| next(cluster, call, patch.as_ref(), current)).await
}

/// The new object, and whether its managed fields are already set.
enum Modified {
    Written(Value),
    Applied(Value),
}

async fn change(
    cluster: &Cluster,
    call: &Call,
    source: Source<'_>,
    compute: impl Fn(Option<&Value>) -> Result<Modified, StatusError>,
) -> HandlerResult {
    let effect = call.effect();
    let mut attempt = 0;
    loop {
        attempt += 1;
        let current = cluster.store.read(|state| state.get(&call.stored.collection, &call.key()));
        let next = compute(current.as_deref())?;
        let Some(current) = current else {
            return match next {
                Modified::Written(object) | Modified::Applied(object) => {
                    write::created(cluster, call, object, source).await
                }
            };
        };
        let (mut object, mut warnings) = complete(cluster, call, &current, next, source)?;
        kubevirt::keep_status(&call.stored.collection, &current, &mut object);
        let more = webhooks::on_update(cluster, call, &object, &current).await;
        warnings.extend(more.map_err(|refusal| refusal.with_warnings(&warnings))?);
        let written = cluster.store.write(|state| {
            let stored = registry::update(state, &call.stored, &object, call.part(), effect)?;
            definitions::changed(cluster, state, &call.stored, call.name(), effect)?;
            Ok(stored)
        });
        match written {
            Ok(stored) => return Ok(warn(read::object_answer(cluster, call, 200, &stored), &warnings)),
            Err(StatusError { code: 409, .. }) if attempt < ATTEMPTS => {}
            Err(refusal) => return Err(refusal),
        }
    }
}

/// Merges the new part with the rest of the object, and validates the result.
fn complete(
    cluster: &Cluster,
    call: &Call,
    current: &Object,
    next: Modified,
    source: Source<'_>,
) -> Result<(Value, Vec<String>), StatusError> {
    let (mut wanted, applied) = match next {
        Modified::Written(object) => (object, false),
        Modified::Applied(object) => (object, true),
    };
    write_checks::place(call, &mut wanted)?;
    let mut warnings = object::decode(call, &mut wanted, source)?;
    let is_patch = !matches!(source, Source::Body);
    registry::check_version(&call.stored, &call.key(), current, &wanted)?;
    registry::check_uid(&call.stored, &call.key(), current, &wanted, is_patch)?;
    if !applied && let Some(metadata) = wanted["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    // The revision that was read, so that the registry detects a concurrent write.
    let mut object = registry::merged(&call.stored, current, &wanted, call.part());
    if call.stored.collection == NAMESPACES {
        // Only `finalize` removes them.
        object["spec"] = current["spec"].clone();
    }
    let more = write_checks::admit(call, &mut object, Some(current));
    warnings.extend(more.map_err(|refusal| refusal.with_warnings(&warnings))?);
    if !applied {
        let now = cluster.clock.now_string();
        managers::after_update(current, &mut object, &write::writer(call, &now));
    }
    Ok((definitions::prepare(&call.stored.collection, object)?, warnings))
}

/// The result of a patch.
fn next(
    cluster: &Cluster,
    call: &Call,
    patch: Result<&PatchBody, &StatusError>,
    current: Option<&Value>,
) -> Result<Modified, StatusError> {
    let Some(current) = current else {
        return match patch {
            Ok(PatchBody::Apply(_)) if call.part() == Part::Status => Err(call.not_found()),
            Ok(PatchBody::Apply(applied)) => {
                nobody_in_particular(call, applied)?;
                apply(cluster, call, &json!({}), applied)
            }
            _ => Err(call.not_found()),
        };
    };
    let mut object = write_checks::wire_shape(call, current);
    match patch.map_err(Clone::clone)? {
        PatchBody::Apply(applied) => return apply(cluster, call, &object, applied),
        PatchBody::Json(operations) => patch_body::operate(&mut object, operations)?,
        PatchBody::Merge(patch) => json_patch::merge(&mut object, patch),
        PatchBody::Strategic(patch) => {
            if let Some(odd) = strategic::nonsense(&object, patch) {
                let (directive, map) = (object::go_text(&odd["$patch"]), object::go_text(odd));
                return Err(StatusError::internal(format!("unknown patch type: {directive} in map: {map}")));
            }
            strategic::merge(&mut object, patch, &Shapes::of(&call.stored));
        }
    }
    if !object.is_object() {
        return Err(StatusError::bad_request("the patch does not leave an object"));
    }
    Ok(Modified::Written(write_checks::stored_shape(call, object)))
}

/// A new object must not have the uid of an old one.
fn nobody_in_particular(call: &Call, applied: &Value) -> Result<(), StatusError> {
    let Some(uid) = applied["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty()) else {
        return Ok(());
    };
    let because =
        format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
    Err(StatusError::conflict(call.stored.group(), call.stored.plural(), call.name(), &because))
}

fn apply(cluster: &Cluster, call: &Call, current: &Value, applied: &Value) -> Result<Modified, StatusError> {
    let mut applied = applied.clone();
    let resource = &call.resource;
    let said = |field: &str| applied[field].as_str().unwrap_or_default();
    let (version, kind) = (said("apiVersion"), said("kind"));
    if version != resource.api_version() || kind != resource.kind {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        return Err(StatusError::bad_request(format!("invalid object type: {group}/{version}, Kind={kind}")));
    }
    let metadata = &mut applied["metadata"];
    if !metadata["managedFields"].is_null() {
        return Err(StatusError::bad_request("metadata.managedFields must be nil"));
    }
    if metadata["name"].as_str().is_none_or(str::is_empty) {
        metadata["name"] = json!(call.name());
    }
    object::declared(call, &applied)?;
    json_syntax::write_whole_numbers(&mut applied);
    write_checks::place(call, &mut applied)?;
    let now = cluster.clock.now_string();
    let force = call.query.flag("force");
    let object = apply::apply(current, &applied, &write::writer(call, &now), force)?;
    Ok(Modified::Applied(write_checks::stored_shape(call, object)))
}
