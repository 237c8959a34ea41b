//! Defaults and validation of webhook configurations.

use serde_json::{Value, json};

use crate::cluster::admission::match_condition;
use crate::model::status_error::FieldError;

/// Sets the defaults of webhooks and policies.
pub(crate) fn fill(configuration: &mut Value) {
    if let Some(constraints) = configuration.pointer_mut("/spec/matchConstraints") {
        for (field, default) in [
            ("matchPolicy", json!("Equivalent")),
            ("namespaceSelector", json!({})),
            ("objectSelector", json!({})),
        ] {
            if constraints[field].is_null() {
                constraints[field] = default;
            }
        }
        for rule in constraints.get_mut("resourceRules").and_then(Value::as_array_mut).into_iter().flatten() {
            if rule["scope"].is_null() {
                rule["scope"] = json!("*");
            }
        }
        if configuration["spec"]["failurePolicy"].is_null() {
            configuration["spec"]["failurePolicy"] = json!("Fail");
        }
    }
    let webhooks = configuration.get_mut("webhooks").and_then(Value::as_array_mut);
    for webhook in webhooks.into_iter().flatten() {
        let defaults = [
            ("failurePolicy", json!("Fail")),
            ("matchPolicy", json!("Equivalent")),
            ("namespaceSelector", json!({})),
            ("objectSelector", json!({})),
            ("timeoutSeconds", json!(10)),
        ];
        for (field, default) in defaults {
            if webhook[field].is_null() {
                webhook[field] = default;
            }
        }
        if webhook["clientConfig"]["service"].is_object()
            && webhook["clientConfig"]["service"]["port"].is_null()
        {
            webhook["clientConfig"]["service"]["port"] = json!(443);
        }
        for rule in webhook.get_mut("rules").and_then(Value::as_array_mut).into_iter().flatten() {
            if rule["scope"].is_null() {
                rule["scope"] = json!("*");
            }
        }
    }
}

/// All errors in a configuration.
pub(crate) fn check(configuration: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for (number, webhook) in configuration["webhooks"].as_array().into_iter().flatten().enumerate() {
        let at = |field: &str| format!("webhooks[{number}].{field}");
        let name = webhook["name"].as_str().unwrap_or_default();
        if name.split('.').filter(|part| !part.is_empty()).count() < 3 {
            let because = "should be a domain with at least three segments separated by dots";
            errors.push(FieldError::invalid(at("name"), &json!(name), because));
        } else if names.contains(&name) {
            let message = format!("Duplicate value: {name:?}");
            errors.push(FieldError { reason: "FieldValueDuplicate", field: at("name"), message });
        }
        names.push(name);
        errors.extend(review_versions(webhook, at("admissionReviewVersions")));
        errors.extend(side_effects(webhook, at("sideEffects")));
        errors.extend(timeout(webhook, at("timeoutSeconds")));
        errors.extend(place(&webhook["clientConfig"], &at("clientConfig")));
        for (index, entry) in webhook["matchConditions"].as_array().into_iter().flatten().enumerate() {
            let expression = entry["expression"].as_str().unwrap_or_default();
            if let Err(because) = match_condition::compile(expression) {
                let because = format!("compilation failed: {because}");
                let field = at(&format!("matchConditions[{index}].expression"));
                errors.push(FieldError::invalid(field, &json!(expression), &because));
            }
        }
    }
    errors
}

fn review_versions(webhook: &Value, field: String) -> Option<FieldError> {
    let versions = webhook["admissionReviewVersions"].as_array();
    let Some(versions) = versions.filter(|versions| !versions.is_empty()) else {
        let message = "Required value: must specify one of v1, v1beta1".into();
        return Some(FieldError { reason: "FieldValueRequired", field, message });
    };
    let known = versions.iter().any(|version| version == "v1" || version == "v1beta1");
    let because = "must include at least one of v1, v1beta1";
    (!known).then(|| FieldError::invalid(field, &json!(versions), because))
}

fn side_effects(webhook: &Value, field: String) -> Option<FieldError> {
    match webhook["sideEffects"].as_str() {
        Some("None" | "NoneOnDryRun") => None,
        None => {
            let message = "Required value: must specify one of None, NoneOnDryRun".into();
            Some(FieldError { reason: "FieldValueRequired", field, message })
        }
        Some(other) => {
            let message =
                format!("Unsupported value: {other:?}: supported values: \"None\", \"NoneOnDryRun\"");
            Some(FieldError { reason: "FieldValueNotSupported", field, message })
        }
    }
}

fn timeout(webhook: &Value, field: String) -> Option<FieldError> {
    let seconds = &webhook["timeoutSeconds"];
    let fits = seconds.as_i64().is_none_or(|seconds| (1..=30).contains(&seconds));
    let because = "the timeout value must be between 1 and 30 seconds";
    (!fits).then(|| FieldError::invalid(field, seconds, because))
}

fn place(config: &Value, field: &str) -> Option<FieldError> {
    match (config["url"].as_str(), config["service"].is_object()) {
        (Some(_), true) | (None, false) => {
            let message = "Required value: exactly one of url or service is required".into();
            Some(FieldError { reason: "FieldValueRequired", field: field.to_owned(), message })
        }
        (Some(url), false) if !url.starts_with("https://") => {
            let scheme = url.split(':').next().unwrap_or_default();
            let because = "'https' is the only allowed URL scheme; desired format: https://host[/path]";
            Some(FieldError::invalid(format!("{field}.url"), &json!(scheme), because))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of a webhook that is right but for a change.
    fn complaints(change: &Value) -> Vec<String> {
        let mut webhook = json!({"name": "a.example.com", "admissionReviewVersions": ["v1"],
            "sideEffects": "None", "clientConfig": {"url": "https://127.0.0.1:1/x"}});
        json_patch::merge(&mut webhook, change);
        let mut configuration = json!({"webhooks": [webhook]});
        fill(&mut configuration);
        let errors = check(&configuration).into_iter();
        errors.map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    #[test]
    fn a_configuration_that_could_not_work_is_refused() {
        let none: [&str; 0] = [];
        assert_eq!(complaints(&json!({})), none);
        for (change, expected) in [
            (
                json!({"name": "x"}),
                "webhooks[0].name: Invalid value: \"x\": should be a domain with at least three segments \
                 separated by dots",
            ),
            (
                json!({"sideEffects": "Some"}),
                "webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \
                 \"NoneOnDryRun\"",
            ),
            (
                json!({"sideEffects": null}),
                "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
            ),
            (
                json!({"timeoutSeconds": 50}),
                "webhooks[0].timeoutSeconds: Invalid value: 50: the timeout value must be between 1 and 30 \
                 seconds",
            ),
            (
                json!({"admissionReviewVersions": ["v9"]}),
                "webhooks[0].admissionReviewVersions: Invalid value: [\"v9\"]: must include at least one of v1, \
                 v1beta1",
            ),
            (
                json!({"clientConfig": {"url": "http://127.0.0.1"}}),
                "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; \
                 desired format: https://host[/path]",
            ),
            (
                json!({"clientConfig": {"url": null}}),
                "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
            ),
        ] {
            assert_eq!(complaints(&change), [expected]);
        }
        let broken = complaints(&json!({"matchConditions": [{"name": "a", "expression": "foo("}]}));
        assert!(broken[0].starts_with(
            "webhooks[0].matchConditions[0].expression: Invalid value: \"foo(\": compilation failed: "
        ));
    }
}
