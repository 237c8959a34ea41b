//! Converts the webhooks of the manifests to `webhookdefinitions` of the Operator Lifecycle Manager.

use nm_shared::api::names::WEBHOOK_PATH;
use serde_json::{Value, json};

/// The Deployment that serves the webhooks.
const DEPLOYMENT: &str = "nm-reconciler";

/// The definitions for a webhook of the manifests.
pub(crate) fn definitions(webhook: &Value) -> Vec<Value> {
    without_match_conditions(webhook).iter().map(definition).collect()
}

/// OLM does not support `matchConditions`. Without them, every update would be refused while the webhook does not
/// answer, even one of a finalizer or a label. So updates get a webhook of their own, with `failurePolicy: Ignore`.
fn without_match_conditions(webhook: &Value) -> Vec<Value> {
    let mut creations = webhook.clone();
    if creations.as_object_mut().unwrap().remove("matchConditions").is_none() {
        return vec![creations];
    }
    let mut updates = creations.clone();
    updates["name"] = json!(creations["name"].as_str().unwrap().replacen("validate.", "validate-update.", 1));
    updates["failurePolicy"] = json!("Ignore");
    for (webhook, operation) in [(&mut creations, "CREATE"), (&mut updates, "UPDATE")] {
        webhook["rules"][0]["operations"] = json!([operation]);
    }
    vec![creations, updates]
}

/// The definition of a webhook whose service and certificate OLM provides.
fn definition(webhook: &Value) -> Value {
    let mut definition = webhook.clone();
    let fields = definition.as_object_mut().unwrap();
    fields.remove("clientConfig");
    let name = fields.remove("name").unwrap();
    fields.extend([
        ("type".to_owned(), json!("ValidatingAdmissionWebhook")),
        ("generateName".to_owned(), name),
        ("deploymentName".to_owned(), json!(DEPLOYMENT)),
        ("containerPort".to_owned(), json!(443)),
        ("targetPort".to_owned(), json!("webhook")),
        ("webhookPath".to_owned(), json!(WEBHOOK_PATH)),
    ]);
    definition
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifests;

    #[test]
    fn a_webhook_becomes_a_definition() {
        let converted = definition(&json!({
            "name": "nodemaintenances.nodemaintenance.medik8s.io",
            "clientConfig": {"service": {"namespace": "node-maintenance", "name": "nm"}},
            "rules": [{"operations": ["CREATE"]}], "failurePolicy": "Fail", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "timeoutSeconds": 10,
        }));
        let expected = json!({
            "type": "ValidatingAdmissionWebhook", "generateName": "nodemaintenances.nodemaintenance.medik8s.io",
            "deploymentName": "nm-reconciler", "containerPort": 443, "targetPort": "webhook",
            "webhookPath": "/validate", "rules": [{"operations": ["CREATE"]}], "failurePolicy": "Fail",
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 10,
        });
        assert_eq!(converted, expected);
    }

    #[test]
    fn a_webhook_with_match_conditions_is_split_by_operation() {
        let rule = json!([{"operations": ["CREATE", "UPDATE"]}]);
        let split = without_match_conditions(&json!({
            "name": "validate.nm", "rules": rule, "failurePolicy": "Fail", "matchConditions": [{"name": "spec"}],
        }));
        let webhook = |name: &str, operation: &str, policy: &str| json!({"name": name, "rules": [{"operations": [operation]}], "failurePolicy": policy});
        let updates = webhook("validate-update.nm", "UPDATE", "Ignore");
        assert_eq!(split, [webhook("validate.nm", "CREATE", "Fail"), updates]);
        let plain = webhook("validate-delete.nm", "DELETE", "Ignore");
        assert_eq!(without_match_conditions(&plain), [plain]);
    }

    #[test]
    fn definitions_have_only_fields_that_olm_supports() {
        // `WebhookDescription` of operator-framework/api, pkg/operators/v1alpha1/clusterserviceversion_types.go
        let known = [
            "generateName",
            "type",
            "deploymentName",
            "containerPort",
            "targetPort",
            "rules",
            "failurePolicy",
            "matchPolicy",
            "objectSelector",
            "sideEffects",
            "timeoutSeconds",
            "admissionReviewVersions",
            "reinvocationPolicy",
            "webhookPath",
            "conversionCRDs",
        ];
        let configuration = manifests::read("webhook_configuration.yaml");
        let webhooks = configuration["webhooks"].as_array().unwrap();
        for definition in webhooks.iter().flat_map(definitions) {
            let fields = definition.as_object().unwrap().keys();
            let unknown: Vec<&String> = fields.filter(|field| !known.contains(&field.as_str())).collect();
            assert!(unknown.is_empty(), "{unknown:?} of {}", definition["generateName"]);
        }
    }
}
