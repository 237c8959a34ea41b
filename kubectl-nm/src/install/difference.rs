//! Differences between two objects.

use serde_json::Value;

const SERVER_METADATA: [&str; 5] =
    ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"];

/// Whether two states of an object, both as the API server returned them, differ in more than the status.
pub(crate) fn is_changed(before: &Value, after: &Value) -> bool {
    without_server_fields(before) != without_server_fields(after)
}

/// The first field of `wanted` that has another value in `actual`, if there is one. Further fields of `actual` are ignored,
/// because the API server fills in defaults. Texts that differ only in white space are equal: tools that rewrite YAML break
/// the lines of expressions anew.
pub(crate) fn first_deviation(wanted: &Value, actual: &Value) -> Option<String> {
    deviation(wanted, actual, "")
}

/// Takes over the texts of `installed` that differ from those of `wanted` only in white space, so that they are neither a change
/// nor a conflict with the tool that has applied them.
pub(crate) fn keep_white_space(wanted: &mut Value, installed: &Value) {
    match (wanted, installed) {
        (Value::Object(fields), Value::Object(installed)) => {
            for (key, value) in fields {
                if let Some(installed) = installed.get(key) {
                    keep_white_space(value, installed);
                }
            }
        }
        (Value::Array(items), Value::Array(installed)) if items.len() == installed.len() => {
            items.iter_mut().zip(installed).for_each(|(item, installed)| keep_white_space(item, installed));
        }
        (Value::String(text), Value::String(installed)) if same_words(text, installed) => {
            text.clone_from(installed);
        }
        _ => {}
    }
}

fn without_server_fields(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|field, _| !SERVER_METADATA.contains(&field.as_str()));
    }
    object
}

fn deviation(wanted: &Value, actual: &Value, path: &str) -> Option<String> {
    match (wanted, actual) {
        (Value::Object(fields), Value::Object(_)) => {
            fields.iter().find_map(|(key, value)| deviation(value, &actual[key.as_str()], &below(path, key)))
        }
        (Value::Array(wanted), Value::Array(actual)) if wanted.len() == actual.len() => {
            let mut pairs = wanted.iter().zip(actual).enumerate();
            pairs.find_map(|(at, (wanted, actual))| deviation(wanted, actual, &format!("{path}[{at}]")))
        }
        (Value::String(wanted), Value::String(actual)) if same_words(wanted, actual) => None,
        (wanted, actual) => (!same(wanted, actual)).then(|| path.to_owned()),
    }
}

/// Whether two values are equal. An API server returns `0` where `0.0` was written.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() != b.is_f64() => a.as_f64() == b.as_f64(),
        _ => one == other,
    }
}

fn same_words(one: &str, other: &str) -> bool {
    one.split_whitespace().eq(other.split_whitespace())
}

fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_numbers_in_different_notations_do_not_differ() {
        let written =
            |minimum: &str| -> Value { serde_json::from_str(&format!("{{\"a\": {minimum}}}")).unwrap() };
        for (one, other, same) in [
            ("0.0", "0", true),
            ("-1.0", "-1", true),
            ("1e3", "1000", true),
            ("0.5", "0", false),
            ("1", "2", false),
        ] {
            let (one, other) = (written(one), written(other));
            assert_eq!(first_deviation(&one, &other).is_none(), same, "{one} {other}");
            assert_eq!(first_deviation(&other, &one).is_none(), same, "{other} {one}");
        }
        let (most, less) = (written("9223372036854775807"), written("9223372036854775806"));
        assert!(first_deviation(&most, &less).is_some(), "integers are compared exactly");
    }

    #[test]
    fn an_empty_line_in_an_expression_is_no_difference() {
        let policy = |expression: &str| json!({"spec": {"validations": [{"expression": expression}]}});
        let wanted = policy("a ||\n  b");
        for (expression, is_same) in [("a || b", true), ("a ||\n\n  b\n", true), ("a || c", false)] {
            let found = policy(expression);
            assert_eq!(first_deviation(&wanted, &found).is_none(), is_same, "{expression:?}");
            let mut kept = wanted.clone();
            keep_white_space(&mut kept, &found);
            assert_eq!(kept == found, is_same, "{expression:?}");
        }
    }

    #[test]
    fn defaults_are_not_a_deviation() {
        let wanted = json!({"spec": {"versions": [{"name": "v1", "served": true}]}});
        let filled =
            json!({"spec": {"conversion": {}, "versions": [{"name": "v1", "served": true, "x": 1}]}});
        assert_eq!(first_deviation(&wanted, &filled), None);
        for (actual, path) in [
            (json!({"spec": {"versions": [{"name": "v2", "served": true}]}}), "spec.versions[0].name"),
            (json!({"spec": {"versions": [{"name": "v1"}]}}), "spec.versions[0].served"),
            (json!({"spec": {"versions": []}}), "spec.versions"),
            (json!({}), "spec"),
        ] {
            assert_eq!(first_deviation(&wanted, &actual).as_deref(), Some(path));
        }
    }
}
