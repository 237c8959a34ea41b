//! `x-kubernetes-validations`: rules in CEL, among them those that compare a value with its old self.

use std::fmt;

use kube_cel::{CompiledSchema, Validator, compile_schema};
use serde_json::{Value, json};

use crate::refusal::FieldError;

/// The compiled rules of one schema.
pub(super) struct Rules {
    /// None where the schema has no rules, which is cheaper to know than to find out.
    compiled: Option<CompiledSchema>,
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").finish_non_exhaustive()
    }
}

impl Rules {
    /// Compiles every rule.
    pub(super) fn compile(schema: &Value) -> Result<Self, String> {
        let compiled = any_rule(schema).then(|| compile_schema(schema));
        if let Some(compiled) = &compiled {
            every_rule_compiles(compiled)?;
        }
        Ok(Self { compiled })
    }

    /// The rules that do not hold.
    pub(super) fn check(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let Some(compiled) = &self.compiled else {
            return Vec::new();
        };
        let Err(broken) = Validator::new().validate_compiled(compiled, object, old) else {
            return Vec::new();
        };
        broken
            .into_vec()
            .into_iter()
            .map(|error| {
                let shown = shown(object, &error.field_path);
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
                FieldError { reason, field: error.field_path, message }
            })
            .collect()
    }
}

/// The value that a message quotes: scalars as they are, objects and lists by their type.
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
        Value::Object(fields) => {
            fields.iter().any(|(name, value)| name == "x-kubernetes-validations" || any_rule(value))
        }
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
    fn a_rule_that_cannot_be_read_is_refused_with_its_schema() {
        let mut schema = schema();
        schema["x-kubernetes-validations"] = json!([{"rule": "self =="}]);
        assert!(Rules::compile(&schema).is_err());
    }
}
