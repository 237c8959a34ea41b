//! Patch bodies, with the error messages of the API server.

use json_patch::PatchOperation;
use serde_json::{Value, json};

use crate::http::decode::json_syntax;
use crate::http::handlers::write_checks;
use crate::http::request::body::LARGEST;
use crate::http::request::call::Call;
use crate::http::request::options;
use crate::model::status_error::StatusError;

/// The maximum number of operations.
const MOST_OPERATIONS: usize = 10_000;

/// The maximum number of bytes that operations may copy.
const MOST_COPIED: usize = LARGEST;
/// The maximum depth of the result, which protects the stack.
const DEEPEST: usize = 127;

/// A parsed patch.
#[derive(Debug, Clone)]
pub(crate) enum PatchBody {
    /// A JSON patch.
    Json(Vec<Value>),
    /// A merge patch.
    Merge(Value),
    /// A strategic merge patch.
    Strategic(Value),
    /// An apply.
    Apply(Value),
}

impl PatchBody {
    /// Parses the body. Its errors are separate, since they are reported only if there is an object to patch.
    ///
    /// # Errors
    /// 415 for an unknown type, 422 for options that the type does not support; inside, 400 and 413 for an invalid
    /// patch.
    pub(crate) fn read(call: &Call) -> Result<Result<Self, StatusError>, StatusError> {
        let built_in = call.resource.definition.is_none();
        let kind = match call.content_type.as_str() {
            "application/json-patch+json" => Self::json,
            "application/merge-patch+json" => Self::merge,
            "application/strategic-merge-patch+json" if built_in => Self::strategic,
            "application/apply-patch+yaml" => Self::apply,
            _ if built_in => {
                let message = "415: Unsupported Media Type";
                return Err(StatusError::new(415, "UnsupportedMediaType", message).with_details(json!({})));
            }
            _ => return Err(unsupported()),
        };
        options::check_patch(&call.query, call.content_type == "application/apply-patch+yaml")?;
        Ok(kind(&call.body))
    }

    fn json(body: &[u8]) -> Result<Self, StatusError> {
        let patch = json_syntax::read(body).map_err(|because| undecoded(&because))?;
        let Value::Array(operations) = patch else {
            let found = json_syntax::kind_of(&patch);
            let because =
                format!("json: cannot unmarshal {found} into Go value of type []handlers.jsonPatchOp");
            return Err(undecoded(&because));
        };
        if operations.len() > MOST_OPERATIONS {
            let message = format!(
                "Request entity too large: The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {}",
                operations.len()
            );
            return Err(StatusError::new(413, "RequestEntityTooLarge", message));
        }
        for operation in &operations {
            let found = json_syntax::kind_of(operation);
            if !operation.is_object() {
                let because =
                    format!("json: cannot unmarshal {found} into Go value of type handlers.jsonPatchOp");
                return Err(undecoded(&because));
            }
            for member in ["op", "path", "from"] {
                let value = &operation[member];
                if !value.is_string() && !value.is_null() {
                    let found = json_syntax::kind_of(value);
                    return Err(undecoded(&format!(
                        "json: cannot unmarshal {found} into Go struct field jsonPatchOp.{member} of type string"
                    )));
                }
            }
        }
        Ok(Self::Json(operations))
    }

    fn merge(body: &[u8]) -> Result<Self, StatusError> {
        match json_syntax::read(body).map_err(|because| undecoded(&because))? {
            Value::Null => Err(StatusError::bad_request("Invalid JSON Patch")),
            patch => fields(patch).map(Self::Merge).map_err(|because| undecoded(&because)),
        }
    }

    fn strategic(body: &[u8]) -> Result<Self, StatusError> {
        match json_syntax::read(body).map_err(StatusError::bad_request)? {
            Value::Null => Ok(Self::Strategic(json!({}))),
            patch => fields(patch).map(Self::Strategic).map_err(StatusError::bad_request),
        }
    }

    fn apply(body: &[u8]) -> Result<Self, StatusError> {
        let undecoded = |because: String| StatusError::bad_request(format!("error decoding YAML: {because}"));
        let applied = match write_checks::yaml(body) {
            _ if body.is_empty() => Value::Null,
            Ok(applied) => applied,
            Err(because) => return Err(undecoded(format!("error converting YAML to JSON: yaml: {because}"))),
        };
        match applied {
            Value::Null => Ok(Self::Apply(json!({}))),
            applied => fields(applied).map(Self::Apply).map_err(|because| {
                undecoded(format!("error unmarshaling JSON: while decoding JSON: {because}"))
            }),
        }
    }
}

/// Applies a JSON patch with the API server's semantics, in which missing values are null.
///
/// # Errors
/// 422, with the same message for every failure.
pub(crate) fn operate(object: &mut Value, operations: &[Value]) -> Result<(), StatusError> {
    let rejected = || {
        let message = "the server rejected our request due to an error in our request";
        StatusError::new(422, "Invalid", message).with_details(json!({}))
    };
    let (mut copied, mut deepest) = (0, depth(object));
    for operation in operations {
        let mut operation = operation.clone();
        let (word, path) = (operation["op"].clone(), operation["path"].clone());
        let (Some(word), Some(path)) = (word.as_str(), path.as_str()) else {
            return Err(rejected());
        };
        if matches!(word, "add" | "replace" | "test") && operation.get("value").is_none() {
            operation["value"] = Value::Null;
        }
        if word == "test" && operation["value"].is_null() && is_free(object, path) {
            continue;
        }
        if word == "replace" && is_free(object, path) {
            operation["op"] = json!("add");
        }
        if word == "copy" && operation["from"].as_str().is_some_and(|from| is_free(object, from)) {
            operation = json!({"op": "add", "path": path, "value": null});
        }
        deepest = deepest.max(reach(object, &operation, path, deepest));
        if word == "copy"
            && let Some(value) = operation["from"].as_str().and_then(|from| object.pointer(from))
        {
            copied += size(value, MOST_COPIED - copied);
        }
        if deepest > DEEPEST || copied >= MOST_COPIED {
            return Err(rejected());
        }
        let operation: PatchOperation = serde_json::from_value(operation).map_err(|_| rejected())?;
        json_patch::patch(object, &[operation]).map_err(|_| rejected())?;
    }
    Ok(())
}

/// The depth of an object after an operation, if it was at most `deepest` before. Moved values are not checked.
fn reach(object: &Value, operation: &Value, path: &str, deepest: usize) -> usize {
    let steps = |path: &str| path.matches('/').count();
    let from = operation["from"].as_str().unwrap_or_default();
    match operation["op"].as_str() {
        Some("add" | "replace") => steps(path) + depth(&operation["value"]),
        Some("copy") => object.pointer(from).map_or(0, |value| steps(path) + depth(value)),
        Some("move") => deepest + steps(path).saturating_sub(steps(from)),
        _ => 0,
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

/// Approximate size of a value as JSON, counted up to `enough`.
fn size(value: &Value, enough: usize) -> usize {
    let mut taken = 2;
    let mut add = |bytes: usize, value: &Value| {
        taken += bytes + if taken < enough { size(value, enough - taken) } else { 0 };
        taken < enough
    };
    match value {
        Value::Array(items) => _ = items.iter().all(|item| add(1, item)),
        Value::Object(fields) => _ = fields.iter().all(|(name, value)| add(name.len() + 4, value)),
        Value::String(text) => taken += text.len(),
        _ => {}
    }
    taken.min(enough)
}

/// Whether a path refers to a missing field of an existing object.
fn is_free(object: &Value, path: &str) -> bool {
    let parent = path.rsplit_once('/').and_then(|(parent, _)| object.pointer(parent));
    parent.is_some_and(Value::is_object) && object.pointer(path).is_none()
}

fn fields(patch: Value) -> Result<Value, String> {
    if patch.is_object() {
        return Ok(patch);
    }
    let found = json_syntax::kind_of(&patch);
    Err(format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"))
}

fn undecoded(because: &str) -> StatusError {
    StatusError::bad_request(format!("error decoding patch: {because}"))
}

fn unsupported() -> StatusError {
    let message = "the body of the request was in an unknown format - accepted media types include: \
                   application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
    StatusError::new(415, "UnsupportedMediaType", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(read: fn(&[u8]) -> Result<PatchBody, StatusError>, body: &str) -> String {
        read(body.as_bytes()).unwrap_err().message
    }

    #[test]
    fn an_invalid_patch_has_the_servers_error_message() {
        let map = "Go value of type map[string]interface {}";
        for (body, expected) in [
            ("[]", format!("error decoding patch: json: cannot unmarshal array into {map}")),
            ("\"x\"", format!("error decoding patch: json: cannot unmarshal string into {map}")),
            ("null", "Invalid JSON Patch".into()),
            ("{", "error decoding patch: unexpected end of JSON input".into()),
        ] {
            assert_eq!(told(PatchBody::merge, body), expected);
        }
        assert_eq!(told(PatchBody::strategic, "7"), format!("json: cannot unmarshal number into {map}"));
        for (body, expected) in [
            ("{}", "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
            ("[\"x\"]", "json: cannot unmarshal string into Go value of type handlers.jsonPatchOp"),
            (
                "[{\"op\": 7}]",
                "json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
            ),
            ("[{", "unexpected end of JSON input"),
        ] {
            assert_eq!(told(PatchBody::json, body), format!("error decoding patch: {expected}"));
        }
        let many = json!(vec![json!({"op": "add", "path": "/a", "value": 1}); 10_001]).to_string();
        assert!(told(PatchBody::json, &many).ends_with("a JSON patch is 10000, got 10001"));
    }

    #[test]
    fn operations_make_an_object_neither_huge_nor_bottomless() {
        let copy = |from: &str, path: &str| json!({"op": "copy", "from": from, "path": path});
        let doubling = vec![copy("/list", "/list/-"); 64];
        let root = vec![copy("", "/data/a"); 64];
        let deeper = |count: usize| {
            let paths = (1..=count).map(|steps| "/a".repeat(steps));
            paths.map(|path| json!({"op": "add", "path": path, "value": {}})).collect::<Vec<_>>()
        };
        let moved = (0..200).flat_map(|_| {
            [
                json!({"op": "move", "from": "/data", "path": "/b"}),
                json!({"op": "add", "path": "/data", "value": {}}),
                json!({"op": "move", "from": "/b", "path": "/data/b"}),
            ]
        });
        for (operations, fits) in [
            (vec![copy("/list", "/data/list"); 64], true),
            (deeper(100), true),
            (deeper(200), false),
            (doubling, false),
            (root, false),
            (moved.collect(), false),
        ] {
            let mut object = json!({"data": {}, "list": ["x".repeat(1000)]});
            let done = operate(&mut object, &operations);
            assert_eq!(done.is_ok(), fits, "{}", operations[0]);
        }
    }

    #[test]
    fn operations_mean_what_they_mean_to_a_server() {
        let object = json!({"data": {"a": "b"}, "list": [1]});
        for (operation, fits) in [
            (json!({"op": "add", "path": "/data/q", "value": "x"}), true),
            (json!({"op": "add", "path": "/data/q"}), true),
            (json!({"op": "replace", "path": "/data/q", "value": "x"}), true),
            (json!({"op": "copy", "from": "/data/q", "path": "/data/r"}), true),
            (json!({"op": "test", "path": "/data/q", "value": null}), true),
            (json!({"op": "test", "path": "/data/a", "value": "b"}), true),
            (json!({"op": "test", "path": "/data/a", "value": "c"}), false),
            (json!({"op": "remove", "path": "/data/q"}), false),
            (json!({"op": "add", "path": "/nothing/q", "value": "x"}), false),
            (json!({"op": "remove", "path": "/list/9"}), false),
            (json!({"op": "move", "from": "/data/q", "path": "/data/r"}), false),
            (json!({"op": "bogus", "path": "/data/a"}), false),
            (json!({"op": "remove"}), false),
            (json!({"op": "remove", "path": "data"}), false),
        ] {
            let done = operate(&mut object.clone(), std::slice::from_ref(&operation));
            assert_eq!(done.is_ok(), fits, "{operation}");
        }
    }
}
