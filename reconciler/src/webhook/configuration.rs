//! The webhook configuration of the manifests: which authorities the API server trusts.

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use nm_shared::admission::certificate_renewal::ConfiguredTrust;
use serde_json::{Value, json};

/// The configuration, and since when it has its present bundle of authorities.
#[derive(Debug, Clone)]
pub(super) struct WebhookConfiguration {
    found: Option<ValidatingWebhookConfiguration>,
    trust: ConfiguredTrust,
}

impl WebhookConfiguration {
    /// The configuration as it is `now`. `before` is its last state.
    pub(super) fn observe(
        found: Option<ValidatingWebhookConfiguration>,
        before: Option<&Self>,
        now: Timestamp,
    ) -> Self {
        let trust = match found.as_ref().and_then(bundle) {
            None => ConfiguredTrust::NotConfigured,
            Some(pem) => match before.map(|before| &before.trust) {
                Some(ConfiguredTrust::Bundle { pem: known, since }) if *known == pem => {
                    ConfiguredTrust::Bundle { pem, since: *since }
                }
                _ => ConfiguredTrust::Bundle { pem, since: now },
            },
        };
        Self { found, trust }
    }

    /// The authorities that the API server trusts.
    pub(super) fn trust(&self) -> &ConfiguredTrust {
        &self.trust
    }

    /// Whether the API server trusts exactly these authorities.
    pub(super) fn has_bundle(&self, authorities: &str) -> bool {
        matches!(&self.trust, ConfiguredTrust::Bundle { pem, .. } if pem == authorities)
    }

    /// The strategic merge patch that sets the bundle. It fails if the configuration has changed.
    pub(super) fn patch(&self, pem: &str) -> Value {
        let metadata = self.found.as_ref().map(|found| &found.metadata);
        let bundle = ByteString(pem.as_bytes().into());
        let webhooks = self.found.iter().flat_map(|found| found.webhooks.iter().flatten());
        let webhooks: Vec<Value> = webhooks
            .map(|webhook| json!({"name": webhook.name, "clientConfig": {"caBundle": bundle}}))
            .collect();
        json!({
            "metadata": {"resourceVersion": metadata.and_then(|metadata| metadata.resource_version.as_ref())},
            "webhooks": webhooks,
        })
    }
}

/// The bundle of all webhooks; empty if they differ, so that they are written again; none without webhooks.
fn bundle(configuration: &ValidatingWebhookConfiguration) -> Option<String> {
    let mut bundles = configuration.webhooks.iter().flatten().map(|webhook| {
        let bundle = webhook.client_config.ca_bundle.as_ref();
        bundle.map(|bundle| String::from_utf8_lossy(&bundle.0).into_owned()).unwrap_or_default()
    });
    let first = bundles.next()?;
    Some(if bundles.all(|other| other == first) { first } else { String::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(bundles: &[&str]) -> ValidatingWebhookConfiguration {
        let webhook = |bundle: &&str| {
            json!({"name": format!("w-{bundle}"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "clientConfig": {"caBundle": ByteString(bundle.as_bytes().into())}})
        };
        let webhooks: Vec<Value> = bundles.iter().map(webhook).collect();
        serde_json::from_value(json!({"metadata": {"resourceVersion": "7"}, "webhooks": webhooks})).unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    #[test]
    fn the_time_counts_from_when_the_bundle_was_first_observed() {
        let first = WebhookConfiguration::observe(Some(found(&["a", "a"])), None, at(0));
        let check = |configuration: &WebhookConfiguration, pem: &str, since: i64| {
            let expected = ConfiguredTrust::Bundle { pem: pem.to_owned(), since: at(since) };
            assert_eq!(*configuration.trust(), expected);
        };
        check(&first, "a", 0);
        check(&WebhookConfiguration::observe(Some(found(&["a"])), Some(&first), at(5)), "a", 0);
        check(&WebhookConfiguration::observe(Some(found(&["b"])), Some(&first), at(5)), "b", 5);
        check(&WebhookConfiguration::observe(Some(found(&["a", "b"])), Some(&first), at(5)), "", 5);
        let gone = WebhookConfiguration::observe(None, Some(&first), at(5));
        assert_eq!(*gone.trust(), ConfiguredTrust::NotConfigured);
        assert_eq!(
            *WebhookConfiguration::observe(Some(found(&[])), None, at(0)).trust(),
            ConfiguredTrust::NotConfigured,
            "there is no webhook"
        );
        check(&WebhookConfiguration::observe(Some(found(&["a"])), Some(&gone), at(9)), "a", 9);
    }

    #[test]
    fn the_patch_changes_every_webhook_of_the_observed_configuration() {
        let patch = WebhookConfiguration::observe(Some(found(&["a", "b"])), None, at(0)).patch("c");
        let entry = |name: &str| json!({"name": name, "clientConfig": {"caBundle": "Yw=="}});
        let expected =
            json!({"metadata": {"resourceVersion": "7"}, "webhooks": [entry("w-a"), entry("w-b")]});
        assert_eq!(patch, expected);
    }
}
