//! The webhook configuration of the manifests: whom the API server believes.

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use nm_shared::serving_certificate::Told;
use serde_json::{Value, json};

/// The configuration, and since when it says what it says.
#[derive(Debug, Clone)]
pub(super) struct Configuration {
    found: Option<ValidatingWebhookConfiguration>,
    told: Told,
}

impl Configuration {
    /// The configuration as it is seen now, after it was seen as `before`.
    pub(super) fn seen(
        found: Option<ValidatingWebhookConfiguration>,
        before: Option<&Self>,
        now: Timestamp,
    ) -> Self {
        let told = match found.as_ref().and_then(bundle) {
            None => Told::Nobody,
            Some(pem) => match before.map(|before| &before.told) {
                Some(Told::Bundle { pem: known, since }) if *known == pem => {
                    Told::Bundle { pem, since: *since }
                }
                _ => Told::Bundle { pem, since: now },
            },
        };
        Self { found, told }
    }

    /// Whom the API server was told to believe.
    pub(super) fn told(&self) -> &Told {
        &self.told
    }

    /// Whether these are the authorities that it names.
    pub(super) fn says(&self, authorities: &str) -> bool {
        matches!(&self.told, Told::Bundle { pem, .. } if pem == authorities)
    }

    /// The strategic merge patch that tells it, if nobody was faster.
    pub(super) fn telling(&self, pem: &str) -> Value {
        let metadata = self.found.as_ref().map(|found| &found.metadata);
        let webhooks = self.found.iter().flat_map(|found| found.webhooks.iter().flatten());
        let bundle = ByteString(pem.as_bytes().into());
        let webhooks: Vec<Value> = webhooks
            .map(|webhook| json!({"name": webhook.name, "clientConfig": {"caBundle": bundle}}))
            .collect();
        json!({
            "metadata": {"resourceVersion": metadata.and_then(|metadata| metadata.resource_version.as_ref())},
            "webhooks": webhooks,
        })
    }
}

/// What all of its webhooks say; nothing where they differ, so that they are told again; none where it has none.
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
    fn the_time_counts_from_when_the_bundle_was_first_seen() {
        let first = Configuration::seen(Some(found(&["a", "a"])), None, at(0));
        let told = |configuration: &Configuration, pem: &str, since: i64| {
            let expected = Told::Bundle { pem: pem.to_owned(), since: at(since) };
            assert_eq!(*configuration.told(), expected);
        };
        told(&first, "a", 0);
        told(&Configuration::seen(Some(found(&["a"])), Some(&first), at(5)), "a", 0);
        told(&Configuration::seen(Some(found(&["b"])), Some(&first), at(5)), "b", 5);
        told(&Configuration::seen(Some(found(&["a", "b"])), Some(&first), at(5)), "", 5);
        let gone = Configuration::seen(None, Some(&first), at(5));
        assert_eq!(*gone.told(), Told::Nobody);
        assert_eq!(
            *Configuration::seen(Some(found(&[])), None, at(0)).told(),
            Told::Nobody,
            "there is nobody to tell"
        );
        told(&Configuration::seen(Some(found(&["a"])), Some(&gone), at(9)), "a", 9);
    }

    #[test]
    fn every_webhook_is_told_as_the_configuration_was_seen() {
        let patch = Configuration::seen(Some(found(&["a", "b"])), None, at(0)).telling("c");
        let entry = |name: &str| json!({"name": name, "clientConfig": {"caBundle": "Yw=="}});
        let expected =
            json!({"metadata": {"resourceVersion": "7"}, "webhooks": [entry("w-a"), entry("w-b")]});
        assert_eq!(patch, expected);
    }
}
