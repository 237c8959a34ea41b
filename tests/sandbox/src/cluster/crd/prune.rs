//! Pruning and defaulting by a schema.

use serde_json::Value;

use crate::cluster::crd::schema::property;

/// Prunes an object. `apiVersion`, `kind` and `metadata` are always known.
pub(crate) fn root(schema: &Value, object: &mut Value) -> Vec<String> {
    let mut dropped = Vec::new();
    let Some(fields) = object.as_object_mut() else {
        return dropped;
    };
    fields.retain(|name, value| {
        if matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            return true;
        }
        field(schema, name, value, name, &mut dropped)
    });
    dropped
}

/// Prunes below a field; false if the field itself is unknown.
fn field(schema: &Value, name: &str, value: &mut Value, path: &str, dropped: &mut Vec<String>) -> bool {
    if let Some(known) = property(schema, name) {
        below(known, value, path, dropped);
        return true;
    }
    let additional = &schema["additionalProperties"];
    if additional.is_object() {
        below(additional, value, path, dropped);
        return true;
    }
    if *additional == true || preserves(schema) {
        return true;
    }
    dropped.push(path.to_owned());
    false
}

fn below(schema: &Value, value: &mut Value, path: &str, dropped: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let embedded = schema["x-kubernetes-embedded-resource"] == true;
            fields.retain(|name, value| {
                (embedded && matches!(name.as_str(), "apiVersion" | "kind" | "metadata"))
                    || field(schema, name, value, &format!("{path}.{name}"), dropped)
            });
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                below(&schema["items"], item, &format!("{path}[{index}]"), dropped);
            }
        }
        _ => {}
    }
}

fn preserves(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true
}

/// Sets the defaults of missing fields; a null that is not allowed counts as missing.
pub(crate) fn fill(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, known) in schema["properties"].as_object().into_iter().flatten() {
                let default = &known["default"];
                let absent =
                    fields.get(name).is_none_or(|value| value.is_null() && known["nullable"] != true);
                if absent && !default.is_null() {
                    fields.insert(name.clone(), default.clone());
                }
                if let Some(value) = fields.get_mut(name) {
                    fill(known, value);
                }
            }
            let additional = &schema["additionalProperties"];
            if additional.is_object() {
                for value in fields.values_mut() {
                    fill(additional, value);
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                fill(&schema["items"], item);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_schema_does_not_know_is_dropped_and_named() {
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }},
        }});
        let mut object = json!({"kind": "K", "metadata": {"name": "a"}, "other": 1,
            "spec": {"bogus": 1, "list": [{"a": "x", "b": 1}], "map": {"k": "v"}, "free": {"any": {"thing": 1}}}});
        let dropped = root(&schema, &mut object);
        assert_eq!(dropped, ["other", "spec.bogus", "spec.list[0].b"]);
        assert_eq!(
            object,
            json!({"kind": "K", "metadata": {"name": "a"},
                "spec": {"list": [{"a": "x"}], "map": {"k": "v"}, "free": {"any": {"thing": 1}}}})
        );
    }

    #[test]
    fn defaults_fill_what_is_missing_and_only_below_what_is_there() {
        let schema = json!({"properties": {"spec": {"properties": {
            "drain": {"properties": {"force": {"type": "boolean", "default": true}}},
            "order": {"type": "string", "default": "None"},
        }}}});
        let mut object = json!({"spec": {}});
        fill(&schema, &mut object);
        assert_eq!(object, json!({"spec": {"order": "None"}}));
        let mut object = json!({"spec": {"order": "Other", "drain": {}}});
        fill(&schema, &mut object);
        assert_eq!(object, json!({"spec": {"order": "Other", "drain": {"force": true}}}));
    }
}
