//! What comes in: bodies are read, put in their place, completed and checked before anything is written.

use serde_json::{Value, json};

use super::call::Call;
use super::protobuf;
use crate::event_shapes;
use crate::refusal::{FieldError, Refusal};
use crate::registry::finalizers;
use crate::resource::NEW_EVENTS;
use crate::validation;

/// The object in the body, as it is stored: with its kind, in its namespace and under the name of the path.
///
/// # Errors
/// 415 for a body that is neither JSON nor YAML, 400 and 422 for one that does not fit the path.
pub(super) fn object(call: &Call) -> Result<Value, Refusal> {
    let mut object = body(call)?;
    check_kind(call, &mut object)?;
    place(call, &mut object)?;
    Ok(stored_shape(call, object))
}

/// An object as it is stored.
pub(super) fn stored_shape(call: &Call, object: Value) -> Value {
    if call.resource.collection == NEW_EVENTS { event_shapes::to_core(&object) } else { object }
}

/// A stored object as the path shows it, for patches to work on.
pub(super) fn wire_shape(call: &Call, object: &Value) -> Value {
    let is_event = call.resource.collection == NEW_EVENTS;
    let mut shown = if is_event { event_shapes::to_new(object) } else { object.clone() };
    shown["apiVersion"] = json!(call.resource.api_version());
    shown
}

/// The body, whatever it means.
///
/// # Errors
/// 415 for an unknown type, 400 for what cannot be read.
pub(super) fn body(call: &Call) -> Result<Value, Refusal> {
    read(&call.content_type, &call.body, &call.resource.kind)
}

/// A body of a type that is to hold an object of a kind.
///
/// # Errors
/// 415 for an unknown type, 400 for what cannot be read.
pub(super) fn read(content_type: &str, body: &[u8], kind: &str) -> Result<Value, Refusal> {
    let unreadable = |because: &str| {
        let shown = String::from_utf8_lossy(body);
        Refusal::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse \
             error: {because} ({shown})"
        ))
    };
    let unknown = || {
        Refusal::new(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: application/json, \
             application/yaml, application/vnd.kubernetes.protobuf",
        )
    };
    match content_type {
        "" | "application/json" => serde_json::from_slice::<Value>(body).map_err(|error| {
            let because =
                if error.is_eof() { "unexpected end of JSON input".to_owned() } else { error.to_string() };
            unreadable(&because)
        }),
        "application/yaml" => yaml(body).map_err(|because| unreadable(&because)),
        "application/vnd.kubernetes.protobuf" => protobuf::read(body).ok_or_else(unknown),
        _ => Err(unknown()),
    }
}

/// YAML, of which JSON is a part.
pub(super) fn yaml(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    serde_saphyr::from_str(text).map_err(|error| error.to_string())
}

fn check_kind(call: &Call, object: &mut Value) -> Result<(), Refusal> {
    let resource = &call.resource;
    if !object.is_object() {
        return Err(Refusal::bad_request("the object provided is unrecognized: it is not an object"));
    }
    let expected = resource.api_version();
    let version = object["apiVersion"].as_str().unwrap_or(&expected).to_owned();
    if version != expected {
        return Err(Refusal::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        )));
    }
    let kind = object["kind"].as_str().unwrap_or(&resource.kind).to_owned();
    if kind != resource.kind {
        let expected = &resource.kind;
        if resource.definition.is_none() {
            return Err(Refusal::bad_request(format!(
                "{kind} in version {:?} cannot be handled as a {expected}: converting ({kind}) to ({expected}): \
                 unknown conversion",
                resource.version
            )));
        }
        let error = FieldError::invalid("kind", &json!(kind), &format!("must be {expected}"));
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        return Err(Refusal::invalid(resource.group(), &kind, name, &[error]));
    }
    object["apiVersion"] = json!(version);
    object["kind"] = json!(kind);
    Ok(())
}

/// Puts an object where the path says, unless it says otherwise itself.
///
/// # Errors
/// 400 when path and object disagree.
pub(super) fn place(call: &Call, object: &mut Value) -> Result<(), Refusal> {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    let metadata = &mut object["metadata"];
    if call.resource.namespaced {
        let namespace = call.namespace();
        if metadata["namespace"].as_str().is_some_and(|own| !own.is_empty() && own != namespace) {
            return Err(Refusal::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        metadata["namespace"] = json!(namespace);
    } else if let Some(metadata) = metadata.as_object_mut() {
        metadata.remove("namespace");
    }
    if call.path.name.is_some() {
        let name = call.name();
        match metadata["name"].as_str() {
            None | Some("") => metadata["name"] = json!(name),
            Some(own) if own != name => {
                return Err(Refusal::bad_request(format!(
                    "the name of the object ({own}) does not match the name on the URL ({name})"
                )));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Completes and checks what is about to be stored, and says what to warn of.
///
/// # Errors
/// 422 for an object that is not valid.
pub(super) fn admit(call: &Call, object: &mut Value, old: Option<&Value>) -> Result<Vec<String>, Refusal> {
    let resource = &call.stored;
    let mut warnings = Vec::new();
    let mut errors = validation::check(resource, object, old);
    if let Some(definition) = &resource.definition {
        definition.default(object);
        warnings.extend(odd_finalizers(object, old));
        errors.extend(definition.check(object, old));
    }
    if errors.is_empty() {
        return Ok(warnings);
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    Err(Refusal::invalid(resource.group(), &resource.kind, name, &errors).with_warnings(&warnings))
}

fn odd_finalizers(object: &Value, old: Option<&Value>) -> Vec<String> {
    let known = old.map(finalizers).unwrap_or_default();
    let new = finalizers(object).into_iter();
    new.filter(|name| !name.contains('/') && !known.contains(name))
        .filter(|name| !matches!(*name, "foregroundDeletion" | "orphan"))
        .map(|name| {
            format!(
                "metadata.finalizers: {name:?}: prefer a domain-qualified finalizer name to avoid accidental \
                 conflicts with other finalizer writers"
            )
        })
        .collect()
}
