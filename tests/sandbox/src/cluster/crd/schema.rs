//! Validation against an `openAPIV3Schema`, with the API server's messages.

use regex::Regex;
use serde_json::{Value, json};

use crate::model::status_error::FieldError;

/// All errors in `object`. On an update, unchanged values are not validated (validation ratcheting, since Kubernetes
/// 1.30), so a stricter schema does not block unrelated changes.
pub(crate) fn check(schema: &Value, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(schema, object, old, "", &mut errors);
    errors
}

fn walk(schema: &Value, value: &Value, old: Option<&Value>, path: &str, errors: &mut Vec<FieldError>) {
    if old == Some(value) {
        return;
    }
    if value.is_null() && schema["nullable"] == true {
        return;
    }
    if !has_type(schema, value) {
        let expected = schema["type"].as_str().unwrap_or_default();
        let found = type_of(value);
        errors.push(FieldError {
            reason: "FieldValueTypeInvalid",
            field: path.to_owned(),
            message: format!(
                "Invalid value: {found:?}: {path} in body must be of type {expected}: {found:?}"
            ),
        });
        return;
    }
    enumerated(schema, value, path, errors);
    match value {
        Value::Object(fields) => object(schema, (value, old), fields, path, errors),
        Value::Array(items) => list(schema, value, items, path, errors),
        Value::String(text) => string(schema, text, path, errors),
        Value::Number(_) => number(schema, value, path, errors),
        _ => {}
    }
    alternatives(schema, value, path, errors);
}

fn object(
    schema: &Value,
    (value, old): (&Value, Option<&Value>),
    fields: &serde_json::Map<String, Value>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            errors.push(FieldError::required(join(path, name)));
        }
    }
    bounds(schema, value, path, ("minProperties", "maxProperties", "properties"), fields.len(), errors);
    for (name, value) in fields {
        if path.is_empty() && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            continue;
        }
        let known = property(schema, name).unwrap_or(&schema["additionalProperties"]);
        if known.is_object() {
            walk(known, value, old.and_then(|old| old.get(name)), &join(path, name), errors);
        }
    }
}

fn list(schema: &Value, value: &Value, items: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    bounds(schema, value, path, ("minItems", "maxItems", "items"), items.len(), errors);
    for (index, item) in items.iter().enumerate() {
        // Items can be matched to old items only if the list has keys.
        walk(&schema["items"], item, None, &format!("{path}[{index}]"), errors);
    }
    let keys: Vec<&str> = schema["x-kubernetes-list-map-keys"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let identity = |item: &Value| match schema["x-kubernetes-list-type"].as_str() {
        Some("map") => Some(keys.iter().map(|key| item[*key].clone()).collect::<Value>()),
        Some("set") => Some(item.clone()),
        _ => None,
    };
    for (index, item) in items.iter().enumerate() {
        let this = identity(item);
        if this.is_some() && items[..index].iter().any(|earlier| identity(earlier) == this) {
            errors.push(FieldError {
                reason: "FieldValueDuplicate",
                field: format!("{path}[{index}]"),
                message: format!("Duplicate value: {item}"),
            });
        }
    }
}

fn string(schema: &Value, text: &str, path: &str, errors: &mut Vec<FieldError>) {
    let (value, length) = (json!(text), text.chars().count());
    if let Some(least) = limit(schema, "minLength").filter(|least| length < *least) {
        let because = format!("{path} in body should be at least {least} chars long");
        errors.push(FieldError::invalid(path, &value, &because));
    }
    if let Some(most) = limit(schema, "maxLength").filter(|most| length > *most) {
        errors.push(FieldError {
            reason: "FieldValueTooLong",
            field: path.to_owned(),
            message: format!("Too long: may not be more than {most} bytes"),
        });
    }
    if let Some(pattern) = schema["pattern"].as_str()
        && Regex::new(pattern).is_ok_and(|pattern| !pattern.is_match(text))
    {
        let because = format!("{path} in body should match '{pattern}'");
        errors.push(FieldError::invalid(path, &value, &because));
    }
    if schema["format"] == "date-time" && text.parse::<jiff::Timestamp>().is_err() {
        let because = format!("{path} in body must be of type date-time: {value}");
        errors.push(FieldError::invalid(path, &value, &because));
    }
}

fn number(schema: &Value, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let number = value.as_f64().unwrap_or_default();
    let least = schema["minimum"].as_f64();
    if let Some(least) = least.filter(|least| number < *least) {
        let because = format!("{path} in body should be greater than or equal to {least}");
        errors.push(FieldError::invalid(path, value, &because));
    }
    let most = schema["maximum"].as_f64();
    if let Some(most) = most.filter(|most| number > *most) {
        let because = format!("{path} in body should be less than or equal to {most}");
        errors.push(FieldError::invalid(path, value, &because));
    }
}

fn enumerated(schema: &Value, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(allowed) = schema["enum"].as_array().filter(|allowed| !allowed.contains(value)) else {
        return;
    };
    let listed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
    errors.push(FieldError {
        reason: "FieldValueNotSupported",
        field: path.to_owned(),
        message: format!("Unsupported value: {value}: supported values: {}", listed.join(", ")),
    });
}

fn alternatives(schema: &Value, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let branches = |keyword: &str| schema[keyword].as_array().cloned().unwrap_or_default();
    let fits = |branch: &Value| {
        let mut found = Vec::new();
        walk(branch, value, None, path, &mut found);
        found.is_empty()
    };
    for branch in branches("allOf") {
        walk(&branch, value, None, path, errors);
    }
    let any = branches("anyOf");
    if !any.is_empty() && !any.iter().any(fits) {
        let because = format!("{path} in body must validate at least one schema (anyOf)");
        errors.push(FieldError::invalid(path, value, &because));
    }
    let one = branches("oneOf");
    if !one.is_empty() && one.iter().filter(|branch| fits(branch)).count() != 1 {
        let because = format!("{path} in body must validate one and only one schema (oneOf)");
        errors.push(FieldError::invalid(path, value, &because));
    }
    if schema["not"].is_object() && fits(&schema["not"]) {
        let because = format!("{path} in body must not validate the schema (not)");
        errors.push(FieldError::invalid(path, value, &because));
    }
}

fn bounds(
    schema: &Value,
    value: &Value,
    path: &str,
    (least, most, what): (&str, &str, &str),
    count: usize,
    errors: &mut Vec<FieldError>,
) {
    if let Some(least) = limit(schema, least).filter(|least| count < *least) {
        let because = format!("{path} in body should have at least {least} {what}");
        errors.push(FieldError::invalid(path, value, &because));
    }
    if let Some(most) = limit(schema, most).filter(|most| count > *most) {
        errors.push(FieldError {
            reason: "FieldValueTooMany",
            field: path.to_owned(),
            message: format!("Too many: {count}: must have at most {most} items"),
        });
    }
}

fn limit(schema: &Value, keyword: &str) -> Option<usize> {
    schema[keyword].as_u64().and_then(|limit| usize::try_from(limit).ok())
}

fn has_type(schema: &Value, value: &Value) -> bool {
    if schema["x-kubernetes-int-or-string"] == true {
        return value.is_i64() || value.is_u64() || value.is_string();
    }
    match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        // 1.0 is an integer to the API server.
        Some("integer") => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        Some("number") => value.is_number(),
        _ => true,
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The field in `schema.properties`, if any.
pub(crate) fn property<'a>(schema: &'a Value, field: &str) -> Option<&'a Value> {
    schema["properties"]
        .as_object()
        .and_then(|properties: &serde_json::Map<String, Value>| properties.get(field))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validation_error(schema: &Value, value: &Value) -> String {
        let wrapped = json!({"type": "object", "properties": {"f": schema}});
        let errors = check(&wrapped, &json!({"f": value}), None);
        let reported: Vec<String> =
            errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect();
        reported.join("; ")
    }

    #[test]
    fn each_keyword_is_held_in_the_servers_words() {
        for (schema, value, expected) in [
            (
                json!({"type": "string"}),
                json!(7),
                r#"f: Invalid value: "integer": f in body must be of type string: "integer""#,
            ),
            (
                json!({"type": "string", "minLength": 1}),
                json!(""),
                r#"f: Invalid value: "": f in body should be at least 1 chars long"#,
            ),
            (
                json!({"type": "string", "enum": ["a", "b"]}),
                json!("c"),
                r#"f: Unsupported value: "c": supported values: "a", "b""#,
            ),
            (
                json!({"type": "string", "pattern": "^a$"}),
                json!("b"),
                r#"f: Invalid value: "b": f in body should match '^a$'"#,
            ),
            (
                json!({"type": "integer", "minimum": 0}),
                json!(-1),
                "f: Invalid value: -1: f in body should be greater than or equal to 0",
            ),
            (
                json!({"type": "array", "maxItems": 1}),
                json!([1, 2]),
                "f: Too many: 2: must have at most 1 items",
            ),
            (
                json!({"type": "array", "x-kubernetes-list-type": "set"}),
                json!(["a", "a"]),
                r#"f[1]: Duplicate value: "a""#,
            ),
            (json!({"x-kubernetes-int-or-string": true}), json!("50%"), ""),
            (json!({"type": "string", "nullable": true}), Value::Null, ""),
            (json!({"type": "string", "format": "date-time"}), json!("2026-01-01T00:00:00Z"), ""),
        ] {
            assert_eq!(validation_error(&schema, &value), expected);
        }
    }

    #[test]
    fn unchanged_values_are_not_validated_against_a_stricter_schema() {
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"reason": {"type": "string", "maxLength": 1}, "n": {"type": "integer", "minimum": 0}}},
            "list": {"type": "array", "items": {"type": "string", "maxLength": 1}},
        }});
        let object =
            |reason: &str, n: i64, list: &[&str]| json!({"spec": {"reason": reason, "n": n}, "list": list});
        let old = object("long", 0, &["long"]);
        for (new, expected) in [
            (object("long", 1, &["long"]), vec![]),
            (object("longer", 0, &["long"]), vec!["spec.reason"]),
            (object("long", -1, &["long"]), vec!["spec.n"]),
            (object("long", 0, &["long", "x"]), vec!["list[0]"]),
            (object("l", 0, &[]), vec![]),
        ] {
            let errors = check(&schema, &new, Some(&old));
            assert_eq!(errors.iter().map(|error| &*error.field).collect::<Vec<_>>(), expected, "{new}");
        }
        assert_eq!(check(&schema, &old, None).len(), 2, "a new object is held to all of it");
    }
}
