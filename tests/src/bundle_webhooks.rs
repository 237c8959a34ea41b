//! The webhooks of the bundle: those of the manifests in the words of the Operator Lifecycle Manager.

use serde_json::{Value, json};

/// The Deployment that serves them.
const DEPLOYMENT: &str = "nm-reconciler";

/// Where reviews are posted: the program's default for certificates that somebody else renews. OLM writes the configuration,
/// and a path in a bundle that everybody can read is no secret.
const PATH: &str = "/validate";

/// What OLM is told of a webhook of the manifests.
pub(crate) fn described(of: &Value) -> Vec<Value> {
    each_told(of).iter().map(webhook).collect()
}

/// OLM knows no `matchConditions`. Without them every update would be refused while nobody answers, also those that
/// write a finalizer or a label: so there updates are asked about by a webhook of their own, which lets them pass then.
fn each_told(of: &Value) -> Vec<Value> {
    let mut asked = of.clone();
    if asked.as_object_mut().unwrap().remove("matchConditions").is_none() {
        return vec![asked];
    }
    let mut updates = asked.clone();
    updates["name"] = json!(asked["name"].as_str().unwrap().replacen("validate.", "validate-update.", 1));
    updates["failurePolicy"] = json!("Ignore");
    for (told, operation) in [(&mut asked, "CREATE"), (&mut updates, "UPDATE")] {
        told["rules"][0]["operations"] = json!([operation]);
    }
    vec![asked, updates]
}

/// A webhook, whose service and certificate are OLM's.
fn webhook(of: &Value) -> Value {
    let mut definition = of.clone();
    let fields = definition.as_object_mut().unwrap();
    fields.remove("clientConfig");
    let name = fields.remove("name").unwrap();
    fields.extend([
        ("type".to_owned(), json!("ValidatingAdmissionWebhook")),
        ("generateName".to_owned(), name),
        ("deploymentName".to_owned(), json!(DEPLOYMENT)),
        ("containerPort".to_owned(), json!(443)),
        ("targetPort".to_owned(), json!("webhook")),
        ("webhookPath".to_owned(), json!(PATH)),
    ]);
    definition
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifests;

    #[test]
    fn a_webhook_is_told_in_the_words_of_olm() {
        let told = webhook(&json!({
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
        assert_eq!(told, expected);
    }

    #[test]
    fn what_olm_does_not_know_of_a_webhook_is_said_in_another_way() {
        let rule = json!([{"operations": ["CREATE", "UPDATE"]}]);
        let told = each_told(&json!({
            "name": "validate.nm", "rules": rule, "failurePolicy": "Fail", "matchConditions": [{"name": "spec"}],
        }));
        let said = |name: &str, operation: &str, policy: &str| json!({"name": name, "rules": [{"operations": [operation]}], "failurePolicy": policy});
        let updates = said("validate-update.nm", "UPDATE", "Ignore");
        assert_eq!(told, [said("validate.nm", "CREATE", "Fail"), updates]);
        let plain = said("validate-delete.nm", "DELETE", "Ignore");
        assert_eq!(each_told(&plain), [plain]);
    }

    #[test]
    fn every_field_of_a_webhook_is_one_that_olm_knows() {
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
        for told in webhooks.iter().flat_map(described) {
            let unknown: Vec<&String> =
                told.as_object().unwrap().keys().filter(|field| !known.contains(&field.as_str())).collect();
            assert!(unknown.is_empty(), "{unknown:?} of {}", told["generateName"]);
        }
    }
}
