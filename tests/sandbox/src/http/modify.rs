//! Updates and patches of an object that is there; an apply may also make it.
//!
//! Each reads the object, computes what it should become, and writes that if the object is still the one that was
//! read; otherwise it begins again. So nothing is held while a change is computed and checked.

use json_patch::Patch;
use serde_json::{Value, json};

use super::answer::Answer;
use super::answer::warn;
use super::call::Call;
use super::decode::{self, Source};
use super::{definitions, intake, read, webhooks, write};
use crate::cluster::Cluster;
use crate::patch::shapes::Shapes;
use crate::patch::{apply, managers, strategic};
use crate::refusal::Refusal;
use crate::registry::{self, Part};
use crate::store::Object;

/// How often a change is computed again because somebody else was quicker.
const ATTEMPTS: usize = 100;

/// `PUT`.
pub(super) async fn update(cluster: &Cluster, call: &Call) -> Answer {
    let object = intake::object(call)?;
    change(cluster, call, Source::Body, |current| {
        current.ok_or_else(|| call.not_found())?;
        Ok(Next::Written(object.clone()))
    })
    .await
}

/// `PATCH`.
pub(super) async fn patch(cluster: &Cluster, call: &Call) -> Answer {
    let patch = Kind::read(call)?;
    let source = match &patch {
        Kind::Strategic(patch) => Source::Strategic(patch),
        _ => Source::Patch,
    };
    change(cluster, call, source, |current| patch.next(cluster, call, current)).await
}

/// What an object becomes, and whether its managed fields are settled.
enum Next {
    Written(Value),
    Applied(Value),
}

async fn change(
    cluster: &Cluster,
    call: &Call,
    source: Source<'_>,
    compute: impl Fn(Option<&Value>) -> Result<Next, Refusal>,
) -> Answer {
    let effect = call.effect()?;
    let mut attempt = 0;
    loop {
        attempt += 1;
        let current = cluster.store.read(|state| state.get(&call.stored.collection, &call.key()));
        let next = compute(current.as_deref())?;
        let Some(current) = current else {
            return match next {
                Next::Written(object) | Next::Applied(object) => {
                    write::created(cluster, call, object, source).await
                }
            };
        };
        let (object, mut warnings) = complete(cluster, call, &current, next, source)?;
        let more = webhooks::on_update(cluster, call, &object, &current).await;
        warnings.extend(more.map_err(|refusal| refusal.with_warnings(&warnings))?);
        let written = cluster.store.write(|state| {
            let stored = registry::update(state, &call.stored, &object, call.part(), effect)?;
            definitions::changed(cluster, state, call, effect)?;
            Ok(stored)
        });
        match written {
            Ok(stored) => return Ok(warn(read::object_answer(cluster, call, 200, &stored), &warnings)),
            Err(Refusal { code: 409, .. }) if attempt < ATTEMPTS => {}
            Err(refusal) => return Err(refusal),
        }
    }
}

/// Merges what was computed with what stays, and checks the whole.
fn complete(
    cluster: &Cluster,
    call: &Call,
    current: &Object,
    next: Next,
    source: Source<'_>,
) -> Result<(Value, Vec<String>), Refusal> {
    let (mut wanted, applied) = match next {
        Next::Written(object) => (object, false),
        Next::Applied(object) => (object, true),
    };
    intake::place(call, &mut wanted)?;
    let mut warnings = decode::decode(call, &mut wanted, source)?;
    registry::check_identity(&call.stored, &call.key(), current, &wanted)?;
    if !applied && let Some(metadata) = wanted["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    // The one that was read, so that the registry notices if it is no longer the one that is there.
    let mut object = registry::merged(&call.stored, current, &wanted, call.part());
    let more = intake::admit(call, &mut object, Some(current));
    warnings.extend(more.map_err(|refusal| refusal.with_warnings(&warnings))?);
    if !applied {
        let now = cluster.clock.now_string();
        managers::after_update(current, &mut object, &write::writer(call, &now));
    }
    Ok((definitions::prepare(call, object)?, warnings))
}

/// A patch that was read.
enum Kind {
    Json(Patch),
    Merge(Value),
    Strategic(Value),
    Apply(Value),
}

impl Kind {
    fn read(call: &Call) -> Result<Self, Refusal> {
        let unreadable = |because: &dyn std::fmt::Display| {
            Refusal::bad_request(format!("error decoding patch: {because}"))
        };
        let json = || serde_json::from_slice::<Value>(&call.body).map_err(|error| unreadable(&error));
        match call.content_type.as_str() {
            "application/json-patch+json" => {
                serde_json::from_slice(&call.body).map(Self::Json).map_err(|error| unreadable(&error))
            }
            "application/merge-patch+json" => json().map(Self::Merge),
            "application/strategic-merge-patch+json" if call.resource.definition.is_none() => {
                json().map(Self::Strategic)
            }
            "application/apply-patch+yaml" => {
                intake::yaml(&call.body).map(Self::Apply).map_err(|error| unreadable(&error))
            }
            _ => Err(unsupported(call)),
        }
    }

    fn next(&self, cluster: &Cluster, call: &Call, current: Option<&Value>) -> Result<Next, Refusal> {
        let shapes = Shapes::of(&call.stored);
        let Some(current) = current else {
            return match self {
                Self::Apply(_) if call.part() == Part::Status => Err(call.not_found()),
                Self::Apply(applied) => apply(cluster, call, &json!({}), applied),
                _ => Err(call.not_found()),
            };
        };
        let mut object = intake::wire_shape(call, current);
        match self {
            Self::Apply(applied) => return apply(cluster, call, &object, applied),
            Self::Json(patch) => json_patch::patch(&mut object, patch).map_err(|_| {
                let message = "the server rejected our request due to an error in our request";
                Refusal::new(422, "Invalid", message).with_details(json!({}))
            })?,
            Self::Merge(patch) => json_patch::merge(&mut object, patch),
            Self::Strategic(patch) => strategic::merge(&mut object, patch, &shapes),
        }
        if !object.is_object() {
            return Err(Refusal::bad_request("the patch does not leave an object"));
        }
        Ok(Next::Written(intake::stored_shape(call, object)))
    }
}

fn apply(cluster: &Cluster, call: &Call, current: &Value, applied: &Value) -> Result<Next, Refusal> {
    let mut applied = applied.clone();
    if call.query.get("fieldManager").is_none() {
        let message = "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply \
                       patch";
        let causes = json!({"group": "meta.k8s.io", "kind": "PatchOptions", "causes": [{
            "reason": "FieldValueRequired", "field": "fieldManager",
            "message": "Required value: is required for apply patch"}]});
        return Err(Refusal::new(422, "Invalid", message).with_details(causes));
    }
    for field in ["apiVersion", "kind"] {
        if applied[field].as_str().is_none() {
            return Err(Refusal::bad_request(format!(
                "invalid object: {field} is required in an apply patch"
            )));
        }
    }
    decode::declared(call, &applied)?;
    intake::place(call, &mut applied)?;
    let now = cluster.clock.now_string();
    let force = call.query.flag("force");
    let object = apply::apply(current, &applied, &write::writer(call, &now), force)?;
    Ok(Next::Applied(intake::stored_shape(call, object)))
}

fn unsupported(call: &Call) -> Refusal {
    let strategic = match call.resource.definition {
        None => "application/strategic-merge-patch+json, ",
        Some(_) => "",
    };
    Refusal::new(
        415,
        "UnsupportedMediaType",
        format!(
            "the body of the request was in an unknown format - accepted media types include: \
             application/json-patch+json, application/merge-patch+json, {strategic}application/apply-patch+yaml"
        ),
    )
}
