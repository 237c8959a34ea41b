//! Decodes bodies and patches as objects of their kinds: drops unknown fields, and reports them and values of the
//! wrong type.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::http::decode::json_syntax;
use crate::http::decode::known_fields;
use crate::http::decode::known_fields::{Decoded, TypeMismatch};
use crate::http::patch::shapes::{ListKind, Shapes, identity};
use crate::http::request::call::Call;
use crate::model::micro_time;
use crate::model::status_error::{FieldError, StatusError};

/// The source of an object, which error messages quote.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source<'a> {
    /// A body.
    Body,
    /// The result of a patch.
    Patch,
    /// A strategic merge patch.
    Strategic(&'a Value),
}

/// Drops unknown fields and returns warnings.
///
/// # Errors
/// 400, or 422 for a patch: for values of the wrong type, and for unknown fields if validation is strict.
pub(crate) fn decode(
    call: &Call,
    object: &mut Value,
    source: Source<'_>,
) -> Result<Vec<String>, StatusError> {
    let quoted = match source {
        Source::Body => String::new(),
        Source::Patch => object.to_string(),
        Source::Strategic(patch) => go_text(patch),
    };
    let mut decoded = worded(read(call, object), matches!(source, Source::Strategic(_)));
    if let Some(because) = micro_time::complaint(call.stored.group(), call.stored.plural(), object) {
        decoded.misfit.get_or_insert(because);
    }
    json_syntax::write_whole_numbers(object);
    let (kind, version) = (&call.resource.kind, &call.resource.version);
    judge(call, decoded, |because| match source {
        Source::Body => unreadable(kind, version, because),
        _ => bad_patch(&quoted, because),
    })
}

/// Decodes the body of a subresource with a kind of its own.
///
/// # Errors
/// 400 for values of the wrong type, and for unknown fields if validation is strict.
pub(crate) fn decode_as(
    call: &Call,
    (group, version, kind): (&str, &str, &str),
    object: &mut Value,
) -> Result<Vec<String>, StatusError> {
    let decoded = worded(known_fields::decode(group, kind, object), false);
    judge(call, decoded, |because| unreadable(kind, version, because))
}

/// Decodes a body that is not stored, such as a review. Unknown fields are ignored.
///
/// # Errors
/// 400 for values of the wrong type.
pub(crate) fn warnings_of(
    (group, version, kind): (&str, &str, &str),
    object: &mut Value,
) -> Result<Vec<String>, StatusError> {
    let found = worded(known_fields::decode(group, kind, object), false);
    match found.misfit {
        Some(because) => Err(unreadable(kind, version, &because)),
        None => Ok(found.unknown.iter().map(|field| format!("unknown field {field:?}")).collect()),
    }
}

/// Unknown fields, and the first type error.
struct Findings {
    unknown: Vec<String>,
    misfit: Option<String>,
}

fn judge(
    call: &Call,
    found: Findings,
    refuse: impl Fn(&str) -> StatusError,
) -> Result<Vec<String>, StatusError> {
    if let Some(because) = found.misfit {
        return Err(refuse(&because));
    }
    let complaints: Vec<String> =
        found.unknown.iter().map(|field| format!("unknown field {field:?}")).collect();
    match call.query.get("fieldValidation") {
        Some("Ignore") => Ok(Vec::new()),
        Some("Strict") if !complaints.is_empty() => {
            Err(refuse(&format!("strict decoding error: {}", complaints.join(", "))))
        }
        _ => Ok(complaints),
    }
}

/// Checks an apply against the declared fields. Nothing is dropped.
///
/// # Errors
/// 500 that names the undeclared field, as the API server does.
pub(crate) fn declared(call: &Call, applied: &Value) -> Result<(), StatusError> {
    let unknown = read(call, &mut applied.clone()).unknown;
    let errors: Vec<String> = unknown
        .iter()
        .map(|path| format!("{}: field not declared in schema", typed_path(call, applied, path)))
        .collect();
    let listed = match errors.as_slice() {
        [] => return Ok(()),
        [only] => only.clone(),
        many => format!("errors:\n  {}", many.join("\n  ")),
    };
    let text = |field: &str| applied["metadata"][field].as_str().unwrap_or_default();
    let resource = &call.resource;
    let message = format!(
        "failed to create typed patch object ({}/{}; {}/{}, Kind={}): {listed}",
        text("namespace"),
        text("name"),
        resource.group(),
        resource.version,
        resource.kind
    );
    Err(StatusError { reason: None, ..StatusError::new(500, "", message) })
}

fn read(call: &Call, object: &mut Value) -> Decoded {
    let Some(definition) = &call.stored.definition else {
        return known_fields::decode(call.stored.group(), &call.stored.kind, object);
    };
    let mut decoded = known_fields::decode_metadata(object);
    decoded.unknown.extend(definition.prune(object));
    decoded
}

/// The values of a strategic merge patch are decoded without their position.
fn worded(decoded: Decoded, strategic: bool) -> Findings {
    let misfit = decoded.misfit.map(|misfit| {
        if !strategic {
            return misfit.to_string();
        }
        let TypeMismatch { read_as, expected, .. } = misfit;
        match expected.as_str() {
            // Go would accept a number as a rune; the API server does not.
            "string" if read_as == "int64" => format!("cannot convert {read_as} to {expected}"),
            "string" | "bool" | "int32" | "int64" => format!("unrecognized type: {expected}"),
            list if list.starts_with("[]") => format!("cannot restore slice from {read_as}"),
            map if map.starts_with("map[") => format!("cannot restore map from {read_as}"),
            _ => format!("cannot restore struct from: {read_as}"),
        }
    });
    Findings { unknown: decoded.unknown, misfit }
}

/// 400 for a body of another kind.
fn unreadable(kind: &str, version: &str, because: &str) -> StatusError {
    StatusError::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {kind}: {because}"
    ))
}

/// 422 for a patch as a whole.
fn bad_patch(quoted: &str, because: &str) -> StatusError {
    let error = FieldError::invalid("patch", &json!(quoted), because);
    let mut refusal = StatusError::invalid("", "", "", &[error]);
    if let Some(details) = refusal.details.as_mut().and_then(Value::as_object_mut) {
        details.retain(|name, _| name == "causes");
    }
    refusal
}

/// A value as Go prints it.
pub(crate) fn go_text(value: &Value) -> String {
    let all = |items: Vec<String>| items.join(" ");
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", all(items.iter().map(go_text).collect())),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{name}:{}", go_text(value)));
            format!("map[{}]", all(fields.collect()))
        }
        other => other.to_string(),
    }
}

/// `spec.containers[0].x` as `.spec.containers[name="c"].x`.
fn typed_path(call: &Call, object: &Value, path: &str) -> String {
    let mut typed = String::new();
    let (mut place, mut shapes) = (object, Shapes::of(&call.stored));
    for step in path.split('.') {
        let (name, index) = step.split_once('[').unwrap_or((step, ""));
        let below = shapes.field(name);
        place = &place[name];
        let _ = write!(typed, ".{name}");
        if let Ok(index) = index.trim_end_matches(']').parse::<usize>() {
            place = &place[index];
            let keys = match below.list(name) {
                ListKind::Map(keys) => identity(place, &keys),
                _ => Value::Null,
            };
            let keys: Vec<String> =
                keys.as_object().into_iter().flatten().map(|(key, value)| format!("{key}={value}")).collect();
            let item = if keys.is_empty() { index.to_string() } else { keys.join(",") };
            let _ = write!(typed, "[{item}]");
            shapes = below.items();
        } else {
            shapes = below;
        }
    }
    typed
}
