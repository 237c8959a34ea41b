//! Reads, completes and validates the object of a write.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::cluster::catalog::resource::{NEW_EVENTS, built_in};
use crate::cluster::registry::{finalizers, validation};
use crate::http::decode::{json_syntax, protobuf};
use crate::http::request::call::Call;
use crate::model::event_versions;
use crate::model::status_error::{FieldError, StatusError};

/// The object in the body, in its stored form, with the kind, namespace and name of the path.
///
/// # Errors
/// 415 for a body that is neither JSON nor YAML, 400 and 422 for one that does not fit the path.
pub(crate) fn object(call: &Call) -> Result<Value, StatusError> {
    let mut object = body(call)?;
    check_kind(call, &mut object)?;
    place(call, &mut object)?;
    Ok(stored_shape(call, object))
}

/// An object in its stored form.
pub(crate) fn stored_shape(call: &Call, object: Value) -> Value {
    if call.resource.collection == NEW_EVENTS { event_versions::to_core(&object) } else { object }
}

/// A stored object in the version of the path, for patches.
pub(crate) fn wire_shape(call: &Call, object: &Value) -> Value {
    let is_event = call.resource.collection == NEW_EVENTS;
    let mut shown = if is_event { event_versions::to_new(object) } else { object.clone() };
    shown["apiVersion"] = json!(call.resource.api_version());
    shown
}

/// The body.
///
/// # Errors
/// 415 for an unknown type, 400 for an invalid body.
pub(crate) fn body(call: &Call) -> Result<Value, StatusError> {
    read(&call.content_type, &call.body, &call.resource.kind)
}

/// A body that contains an object of a kind.
///
/// # Errors
/// 415 for an unknown type, 400 for an invalid body.
pub(crate) fn read(content_type: &str, body: &[u8], kind: &str) -> Result<Value, StatusError> {
    parsed(content_type, body)?.map_err(|because| unrecognized(kind, &because, body))
}

/// A parsed body, or its error.
///
/// # Errors
/// 415 for an unknown type.
pub(crate) fn parsed(content_type: &str, body: &[u8]) -> Result<Result<Value, String>, StatusError> {
    let unknown = || {
        StatusError::new(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: application/json, \
             application/yaml, application/vnd.kubernetes.protobuf",
        )
    };
    let found = match content_type {
        "" | "application/json" => json_syntax::read(body),
        "application/yaml" => yaml(body),
        "application/vnd.kubernetes.protobuf" if !body.starts_with(protobuf::MAGIC) => {
            let because =
                "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
            return Ok(Err(because.into()));
        }
        "application/vnd.kubernetes.protobuf" => return protobuf::read(body).map(Ok).ok_or_else(unknown),
        _ => return Err(unknown()),
    };
    let because = |because| format!("couldn't get version/kind; json parse error: {because}");
    Ok(found.and_then(with_kind).map_err(because))
}

/// The kind is read first.
fn with_kind(object: Value) -> Result<Value, String> {
    const WANTED: &str = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    let found = json_syntax::kind_of(&object);
    match object {
        Value::Null => Ok(json!({})),
        Value::Object(fields) => {
            let odd = ["apiVersion", "kind"].into_iter().find_map(|name| {
                let value = fields.get(name).filter(|value| !value.is_string() && !value.is_null())?;
                Some((name, json_syntax::kind_of(value)))
            });
            match odd {
                None => Ok(Value::Object(fields)),
                Some((name, found)) => {
                    Err(format!("json: cannot unmarshal {found} into Go struct field .{name} of type string"))
                }
            }
        }
        _ => Err(format!("json: cannot unmarshal {found} into Go value of type {WANTED}")),
    }
}

/// 400 for a body without a kind. The message quotes the start of the body.
fn unrecognized(kind: &str, because: &str, body: &[u8]) -> StatusError {
    const SHOWN: usize = 30;
    let (start, more) = if body.len() > SHOWN { (&body[..SHOWN], " ...") } else { (body, "") };
    let shown = match start.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(start).into_owned(),
        Some(_) => start.iter().fold(String::new(), |mut hex, byte| {
            // Writing to a string does not fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        }),
    };
    let message =
        format!("the object provided is unrecognized (must be of type {kind}): {because} ({shown}{more})");
    StatusError::bad_request(message)
}

/// Parses YAML, which includes JSON.
pub(crate) fn yaml(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    serde_saphyr::from_str(text).map_err(|error| error.to_string())
}

fn check_kind(call: &Call, object: &mut Value) -> Result<(), StatusError> {
    let resource = &call.resource;
    if resource.definition.is_none() {
        return of_kind(&call.body, object, (resource.group(), &resource.version, &resource.kind));
    }
    let expected = resource.api_version();
    let version = text_or(&object["apiVersion"], &expected);
    if version != expected {
        return Err(StatusError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        )));
    }
    let kind = text_or(&object["kind"], &resource.kind);
    if kind != resource.kind {
        let error = FieldError::invalid("kind", &json!(kind), &format!("must be {}", resource.kind));
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        return Err(StatusError::invalid(resource.group(), &kind, name, &[error]));
    }
    object["apiVersion"] = json!(version);
    object["kind"] = json!(kind);
    Ok(())
}

fn text_or(value: &Value, default: &str) -> String {
    value.as_str().filter(|text| !text.is_empty()).unwrap_or(default).to_owned()
}

/// Sets the built-in kind, unless the object has another.
///
/// # Errors
/// 400 for another kind.
pub(crate) fn of_kind(
    body: &[u8],
    object: &mut Value,
    (group, version, kind): (&str, &str, &str),
) -> Result<(), StatusError> {
    let expected = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let said_version = text_or(&object["apiVersion"], &expected);
    let said_kind = text_or(&object["kind"], kind);
    if said_version.matches('/').count() > 1 {
        return Err(unrecognized(kind, &format!("unexpected GroupVersion string: {said_version}"), body));
    }
    if said_version != expected || said_kind != kind {
        let said = said_version.rsplit('/').next().unwrap_or_default();
        let because = if !is_registered(&said_version, &said_kind) {
            unregistered(&said_kind, &said_version)
        } else if said_kind != kind {
            let package = match group.split('.').next().unwrap_or_default() {
                "" | "events" => "core",
                package => package,
            };
            format!("converting ({said}.{said_kind}) to ({package}.{kind}): unknown conversion")
        } else if kind == "Eviction" {
            // The first version is accepted as well.
            String::new()
        } else {
            return Err(StatusError::bad_request(format!(
                "the API version in the data ({said_version}) does not match the expected API version ({expected})"
            )));
        };
        if !because.is_empty() {
            let message = format!("{said_kind} in version {said:?} cannot be handled as a {kind}: {because}");
            return Err(StatusError::bad_request(message));
        }
    }
    object["apiVersion"] = json!(expected);
    object["kind"] = json!(kind);
    Ok(())
}

/// The error for an unknown kind.
pub(crate) fn unregistered(kind: &str, version: &str) -> String {
    format!("no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\"")
}

fn is_registered(version: &str, kind: &str) -> bool {
    const BESIDES: [(&str, &str); 7] = [
        ("v1", "List"),
        ("v1", "Binding"),
        ("policy/v1", "Eviction"),
        ("policy/v1beta1", "Eviction"),
        ("autoscaling/v1", "Scale"),
        ("authentication.k8s.io/v1", "SelfSubjectReview"),
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview"),
    ];
    let listed = kind.strip_suffix("List").unwrap_or(kind);
    BESIDES.contains(&(version, kind))
        || built_in()
            .iter()
            .any(|known| known.api_version() == version && (known.kind == kind || known.kind == listed))
}

/// Sets name and namespace from the path.
///
/// # Errors
/// 400 if the object differs from the path.
pub(crate) fn place(call: &Call, object: &mut Value) -> Result<(), StatusError> {
    settle(call, object)?;
    if !object["metadata"].is_object() || call.path.name.is_none() {
        return Ok(());
    }
    let (name, own) = (call.name(), &object["metadata"]["name"]);
    match own {
        own if own.is_null() || own == "" => Err(StatusError::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        Value::String(own) if own != name => Err(StatusError::bad_request(format!(
            "the name of the object ({own}) does not match the name on the URL ({name})"
        ))),
        _ => Ok(()),
    }
}

/// Sets the namespace from the path.
///
/// # Errors
/// 400 if the object differs from the path.
pub(crate) fn settle(call: &Call, object: &mut Value) -> Result<(), StatusError> {
    if object["metadata"].is_null() {
        object["metadata"] = json!({});
    }
    if !object["metadata"].is_object() {
        // A value of another type is reported with all other type errors.
        return Ok(());
    }
    let metadata = &mut object["metadata"];
    if call.resource.namespaced {
        let namespace = call.namespace();
        if metadata["namespace"].as_str().is_some_and(|own| !own.is_empty() && own != namespace) {
            return Err(StatusError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        metadata["namespace"] = json!(namespace);
    } else if let Some(metadata) = metadata.as_object_mut() {
        metadata.remove("namespace");
    }
    Ok(())
}

/// Completes and validates an object before it is stored, and returns warnings.
///
/// # Errors
/// 422 for an invalid object.
pub(crate) fn admit(
    call: &Call,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<Vec<String>, StatusError> {
    let resource = &call.stored;
    let mut warnings = Vec::new();
    let mut errors = validation::check(resource, object, old, call.part());
    if let Some(definition) = &resource.definition {
        definition.default(object);
        warnings.extend(odd_finalizers(object, old));
        errors.extend(definition.check(object, old));
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if errors.is_empty() {
        let owners =
            |object: &Value| object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        if !call.may_set_owners && owners(object) != old.map(owners).unwrap_or_default() {
            let because = "cannot set an ownerRef on a resource you can't delete: , <nil>";
            return Err(StatusError::forbidden(resource.group(), resource.plural(), name, because));
        }
        return Ok(warnings);
    }
    Err(StatusError::invalid(resource.group(), &resource.kind, name, &errors).with_warnings(&warnings))
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
