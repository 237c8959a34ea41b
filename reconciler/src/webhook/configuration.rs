//! The webhook configuration of the manifests: which authorities the API server trusts, and at which path it posts reviews.

use std::collections::BTreeSet;

use http::Uri;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{ValidatingWebhookConfiguration, WebhookClientConfig};
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

    /// The paths to which the API server posts reviews. A webhook without a bundle counts for none.
    pub(super) fn paths(&self) -> BTreeSet<String> {
        let has_bundle = |client: &WebhookClientConfig| {
            client.ca_bundle.as_ref().is_some_and(|bundle| !bundle.0.is_empty())
        };
        self.clients().filter(|(_, client)| has_bundle(client)).map(|(_, client)| path_of(client)).collect()
    }

    /// Whether all webhooks behind a Service have this path. Those with a URL are not changed.
    pub(super) fn has_path(&self, path: &str) -> bool {
        self.clients().all(|(_, client)| client.service.is_none() || path_of(client) == path)
    }

    fn clients(&self) -> impl Iterator<Item = (&str, &WebhookClientConfig)> {
        let webhooks = self.found.iter().flat_map(|found| found.webhooks.iter().flatten());
        webhooks.map(|webhook| (webhook.name.as_str(), &webhook.client_config))
    }

    /// The strategic merge patch that sets the bundle and the path, if any. It fails if the configuration has changed.
    pub(super) fn patch(&self, pem: &str, path: Option<&str>) -> Value {
        let metadata = self.found.as_ref().map(|found| &found.metadata);
        let bundle = ByteString(pem.as_bytes().into());
        let entry = |(name, client): (&str, &WebhookClientConfig)| {
            let mut webhook = json!({"name": name, "clientConfig": {"caBundle": bundle}});
            if let (Some(path), true) = (path, client.service.is_some()) {
                webhook["clientConfig"]["service"] = json!({"path": path});
            }
            webhook
        };
        let webhooks: Vec<Value> = self.clients().map(entry).collect();
        json!({
            "metadata": {"resourceVersion": metadata.and_then(|metadata| metadata.resource_version.as_ref())},
            "webhooks": webhooks,
        })
    }
}

fn path_of(client: &WebhookClientConfig) -> String {
    let path = match (&client.service, &client.url) {
        (Some(service), _) => service.path.clone(),
        (None, Some(url)) => url.parse::<Uri>().ok().map(|url| url.path().to_owned()),
        (None, None) => None,
    };
    path.filter(|path| !path.is_empty()).unwrap_or_else(|| "/".to_owned())
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
        let patch =
            WebhookConfiguration::observe(Some(found(&["a", "b"])), None, at(0)).patch("c", Some("/p"));
        let entry = |name: &str| json!({"name": name, "clientConfig": {"caBundle": "Yw=="}});
        let expected =
            json!({"metadata": {"resourceVersion": "7"}, "webhooks": [entry("w-a"), entry("w-b")]});
        assert_eq!(patch, expected);
    }

    #[test]
    fn the_path_is_written_to_webhooks_behind_a_service_and_read_from_all() {
        let webhook = |name: &str, client: Value| json!({"name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": client});
        let service = |path: Option<&str>| json!({"caBundle": "Yw==", "service": {"namespace": "n", "name": "s", "path": path}});
        let url = |url: &str| json!({"caBundle": "Yw==", "url": url});
        let observe = |clients: &[Value]| {
            let webhooks: Vec<Value> = clients.iter().map(|client| webhook("w", client.clone())).collect();
            let found = serde_json::from_value(json!({"webhooks": webhooks})).unwrap();
            WebhookConfiguration::observe(Some(found), None, at(0))
        };
        for (clients, paths, has_path) in [
            (vec![], vec![], true),
            (vec![service(Some("/p")), service(Some("/p"))], vec!["/p"], true),
            (vec![service(Some("/p")), service(None)], vec!["/", "/p"], false),
            (vec![url("https://127.0.0.1:9443/validate?a=b")], vec!["/validate"], true),
            (vec![url("https://example.com"), service(Some("/q"))], vec!["/", "/q"], false),
            (vec![json!({"service": {"namespace": "n", "name": "s", "path": "/q"}})], vec![], false),
        ] {
            let configuration = observe(&clients);
            assert_eq!(configuration.paths().iter().map(String::as_str).collect::<Vec<_>>(), paths);
            assert_eq!(configuration.has_path("/p"), has_path, "{clients:?}");
        }
        let patch = observe(&[service(None), url("https://example.com")]).patch("c", Some("/p"));
        assert_eq!(
            patch["webhooks"][0]["clientConfig"],
            json!({"caBundle": "Yw==", "service": {"path": "/p"}})
        );
        assert_eq!(patch["webhooks"][1]["clientConfig"], json!({"caBundle": "Yw=="}));
    }
}
