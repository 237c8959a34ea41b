//! `x-kubernetes-validations`: CEL rules, including transition rules.

use std::fmt;

use kube_cel::{CompiledSchema, ValidationError, Validator, compile_schema};
use serde_json::{Value, json};

use crate::model::status_error::FieldError;

/// The rules of a schema.
const RULES: &str = "x-kubernetes-validations";

/// The compiled rules of a schema. Parts without rules are skipped.
pub(crate) enum Rules {
    /// The value has rules, or may have.
    Here(Box<CompiledSchema>),
    /// Some fields, items or entries have rules.
    Below { fields: Vec<(String, Rules)>, items: Option<Box<Rules>>, entries: Option<Box<Rules>> },
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").finish_non_exhaustive()
    }
}

impl Rules {
    /// Compiles every rule.
    pub(crate) fn compile(schema: &Value) -> Result<Self, String> {
        if schema.get(RULES).is_some() {
            let compiled = compile_schema(schema);
            every_rule_compiles(&compiled)?;
            return Ok(Self::Here(Box::new(compiled)));
        }
        let below =
            |schema: Option<&Value>| schema.filter(|schema| any_rule(schema)).map(Self::compile).transpose();
        let mut fields = Vec::new();
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            if let Some(rules) = below(Some(schema))? {
                fields.push((name.clone(), rules));
            }
        }
        let items = below(schema.get("items"))?.map(Box::new);
        let entries = below(schema.get("additionalProperties"))?.map(Box::new);
        Ok(Self::Below { fields, items, entries })
    }

    /// The rules that are violated.
    pub(crate) fn check(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        self.check_at("", object, old, &mut errors);
        errors
    }

    fn check_at(&self, path: &str, value: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        let (fields, items, entries) = match self {
            Self::Here(compiled) => {
                if let Err(broken) = Validator::new().validate_compiled(compiled, value, old) {
                    errors.extend(broken.into_vec().iter().map(|error| field_error(path, value, error)));
                }
                return;
            }
            Self::Below { fields, items, entries } => (fields, items, entries),
        };
        let mut descend = |rules: &Self, step: &str, value: &Value, old: Option<&Value>| {
            rules.check_at(&join(path, step), value, old, errors);
        };
        for (name, rules) in fields {
            if let Some(value) = value.get(name) {
                descend(rules, name, value, old.and_then(|old| old.get(name)));
            }
        }
        if let (Some(rules), Some(list)) = (items, value.as_array()) {
            for (index, item) in list.iter().enumerate() {
                descend(rules, &format!("[{index}]"), item, old.and_then(|old| old.get(index)));
            }
        }
        if let (Some(rules), Some(map)) = (entries, value.as_object()) {
            for (name, entry) in map.iter().filter(|(name, _)| fields.iter().all(|(field, _)| field != *name))
            {
                descend(rules, name, entry, old.and_then(|old| old.get(name)));
            }
        }
    }
}

fn field_error(path: &str, value: &Value, error: &ValidationError) -> FieldError {
    let shown = shown(value, &error.field_path);
    let reason = match error.reason.as_deref() {
        Some("FieldValueForbidden") => "FieldValueForbidden",
        Some("FieldValueRequired") => "FieldValueRequired",
        Some("FieldValueDuplicate") => "FieldValueDuplicate",
        _ => "FieldValueInvalid",
    };
    let message = match reason {
        "FieldValueForbidden" => format!("Forbidden: {}", error.message),
        "FieldValueRequired" => format!("Required value: {}", error.message),
        _ => format!("Invalid value: {shown}: {}", error.message),
    };
    FieldError { reason, field: join(path, &error.field_path), message }
}

fn join(path: &str, step: &str) -> String {
    let dot = if path.is_empty() || step.is_empty() || step.starts_with('[') { "" } else { "." };
    format!("{path}{dot}{step}")
}

/// The value in an error message: scalars as they are, objects and lists by type.
fn shown(object: &Value, path: &str) -> Value {
    let keys = path.split(['.', '[', ']']).filter(|key| !key.is_empty());
    let value = keys.fold(object, |value, key| match key.parse::<usize>() {
        Ok(index) if value.is_array() => &value[index],
        _ => &value[key],
    });
    match value {
        Value::Object(_) => json!("object"),
        Value::Array(_) => json!("array"),
        scalar => scalar.clone(),
    }
}

fn any_rule(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => fields.iter().any(|(name, value)| name == RULES || any_rule(value)),
        Value::Array(items) => items.iter().any(any_rule),
        _ => false,
    }
}

fn every_rule_compiles(schema: &CompiledSchema) -> Result<(), String> {
    if let Some(error) = schema.compilation_errors().first() {
        return Err(error.to_string());
    }
    let below = schema.properties.values();
    let inner = schema.items.iter().chain(&schema.additional_properties);
    below.chain(inner.map(AsRef::as_ref)).try_for_each(every_rule_compiles)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Value {
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"nodeName": {
            "type": "string",
            "x-kubernetes-validations": [
                {"rule": "self == oldSelf", "message": "updating spec.nodeName isn't allowed"},
            ],
        }}}}})
    }

    #[test]
    fn a_transition_rule_speaks_only_of_updates() {
        let rules = Rules::compile(&schema()).unwrap();
        let (old, new) = (json!({"spec": {"nodeName": "a"}}), json!({"spec": {"nodeName": "b"}}));
        assert_eq!(rules.check(&new, None), []);
        assert_eq!(rules.check(&old, Some(&old)), []);
        let errors = rules.check(&new, Some(&old));
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].field, "spec.nodeName");
        assert_eq!(errors[0].message, r#"Invalid value: "b": updating spec.nodeName isn't allowed"#);
    }

    #[test]
    fn rules_are_found_in_items_and_entries_and_told_with_their_whole_path() {
        let positive = json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0", "message": "not positive"}]});
        let schema = json!({"type": "object", "properties": {
            "list": {"type": "array", "items": {"type": "object", "properties": {"count": positive}}},
            "map": {"type": "object", "additionalProperties": positive},
            "free": {"type": "object", "properties": {"count": {"type": "integer"}}},
        }});
        let rules = Rules::compile(&schema).unwrap();
        let object = json!({"list": [{"count": 1}, {"count": -1}, {}], "map": {"a": 2, "b": 0}, "free": {"count": -1}});
        let fields: Vec<_> = rules.check(&object, None).into_iter().map(|error| error.field).collect();
        assert_eq!(fields, ["list[1].count", "map.b"]);
        let all = schema["properties"]["map"].as_object().unwrap();
        let with_rule = json!({"type": "object", "properties": {"map": all},
            "x-kubernetes-validations": [{"rule": "size(self.map) < 2", "message": "too many"}]});
        let messages: Vec<_> = Rules::compile(&with_rule)
            .unwrap()
            .check(&object, None)
            .into_iter()
            .map(|error| error.message)
            .collect();
        assert_eq!(messages.len(), 2, "{messages:?}");
    }

    #[test]
    fn a_rule_that_cannot_be_read_is_refused_with_its_schema() {
        let mut schema = schema();
        schema["x-kubernetes-validations"] = json!([{"rule": "self =="}]);
        assert!(Rules::compile(&schema).is_err());
    }
}
