//! Validation of label selectors in objects.

use serde_json::{Value, json};

use crate::model::names;
use crate::model::status_error::FieldError;

/// All errors in a `metav1.LabelSelector`, if there is one at the path.
pub(crate) fn check(selector: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        let field = format!("{path}.matchLabels");
        errors.extend(validation_errors(&field, key, &names::qualified(key)));
        let value = value.as_str().unwrap_or_default();
        errors.extend(validation_errors(&field, value, &names::value(value)));
    }
    for (index, expression) in selector["matchExpressions"].as_array().into_iter().flatten().enumerate() {
        errors.extend(requirement(expression, &format!("{path}.matchExpressions[{index}]")));
    }
    errors
}

/// All errors in the selector of a workload, which must not be empty.
pub(crate) fn of_workload(selector: &Value, path: &str, kind: &str) -> Vec<FieldError> {
    if !selector.is_object() {
        return vec![FieldError::required(path)];
    }
    let mut errors = check(selector, path);
    let is_empty = |field: &str| match &selector[field] {
        Value::Object(labels) => labels.is_empty(),
        Value::Array(expressions) => expressions.is_empty(),
        _ => true,
    };
    if is_empty("matchLabels") && is_empty("matchExpressions") {
        let because = format!("empty selector is invalid for {}", kind.to_lowercase());
        errors.push(FieldError::invalid(path, &json!({}), &because));
    }
    errors
}

fn requirement(expression: &Value, path: &str) -> Vec<FieldError> {
    let text = |field: &str| expression[field].as_str().unwrap_or_default();
    let values = expression["values"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut errors = Vec::new();
    match text("operator") {
        "In" | "NotIn" if values.is_empty() => {
            let because = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required_because(format!("{path}.values"), because));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let because = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(format!("{path}.values"), because));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => {
            let because = "not a valid selector operator";
            errors.push(FieldError::invalid(format!("{path}.operator"), &json!(other), because));
        }
    }
    let key = text("key");
    errors.extend(validation_errors(&format!("{path}.key"), key, &names::qualified(key)));
    for (index, value) in values.iter().enumerate() {
        let value = value.as_str().unwrap_or_default();
        errors.extend(validation_errors(&format!("{path}.values[{index}]"), value, &names::value(value)));
    }
    errors
}

fn validation_errors(field: &str, text: &str, odd: &[String]) -> Vec<FieldError> {
    odd.iter().map(|because| FieldError::invalid(field, &json!(text), because)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(errors: Vec<FieldError>) -> Vec<String> {
        errors.into_iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    #[test]
    fn an_invalid_selector_has_the_servers_error_message() {
        let place = "s.matchExpressions[0]";
        for (expression, expected) in [
            (
                json!({"key": "a", "operator": "Bogus", "values": ["b"]}),
                format!("{place}.operator: Invalid value: \"Bogus\": not a valid selector operator"),
            ),
            (
                json!({"key": "a", "values": ["b"]}),
                format!("{place}.operator: Invalid value: \"\": not a valid selector operator"),
            ),
            (
                json!({"key": "a", "operator": "Gt", "values": ["1"]}),
                format!("{place}.operator: Invalid value: \"Gt\": not a valid selector operator"),
            ),
            (
                json!({"key": "a", "operator": "NotIn"}),
                format!(
                    "{place}.values: Required value: must be specified when `operator` is 'In' or 'NotIn'"
                ),
            ),
            (
                json!({"key": "a", "operator": "Exists", "values": ["b"]}),
                format!(
                    "{place}.values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                ),
            ),
            (
                json!({"key": "a/", "operator": "Exists"}),
                format!("{place}.key: Invalid value: \"a/\": name part must be non-empty"),
            ),
            (
                json!({"key": "a", "operator": "In", "values": ["-"]}),
                format!("{place}.values[0]: Invalid value: \"-\": a valid label must"),
            ),
        ] {
            let reported = reported(check(&json!({"matchExpressions": [expression]}), "s"));
            assert!(reported[0].starts_with(&expected), "{expression}: {reported:?}");
        }
        let reported = reported(check(&json!({"matchLabels": {"a": "b c"}}), "s"));
        assert!(
            reported[0].starts_with("s.matchLabels: Invalid value: \"b c\": a valid label must"),
            "{reported:?}"
        );
    }

    #[test]
    fn workloads_select_by_something_and_budgets_may_select_everything() {
        assert!(check(&json!({}), "s").is_empty());
        assert!(check(&Value::Null, "s").is_empty());
        assert_eq!(reported(of_workload(&Value::Null, "s", "Deployment")), ["s: Required value"]);
        assert_eq!(
            reported(of_workload(&json!({"matchLabels": {}}), "s", "Deployment")),
            ["s: Invalid value: {}: empty selector is invalid for deployment"]
        );
        let good = json!({"matchExpressions": [{"key": "a.b/c", "operator": "In", "values": ["d", ""]}]});
        assert!(of_workload(&good, "s", "DaemonSet").is_empty());
    }
}
