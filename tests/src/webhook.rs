//! The webhook, served by built programs and asked by the API server over TLS.
//!
//! No test's cluster has the webhook's configuration from the beginning: nothing could be created while nobody serves.

use std::net::SocketAddr;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use nm_shared::names::{WEBHOOK, WEBHOOK_CONFIGURATION};
use serde_json::json;

use crate::cluster::Cluster;
use crate::manifests;
use crate::reconciler::Reconciler;
use crate::until::until;

/// Starts a reconciler that serves the webhook, and waits until it can be asked. Whatever was asked before is asked no
/// more.
pub async fn serving(cluster: &Cluster, flags: &[&str]) -> Reconciler {
    let reconciler = begin(cluster, flags).await;
    configure(cluster, address(&reconciler).await).await;
    believed(cluster).await;
    reconciler
}

/// The same beside those that serve already, which only a sandbox can play.
pub async fn serving_also(cluster: &Cluster, flags: &[&str]) -> Reconciler {
    let reconciler = begin(cluster, flags).await;
    let services = &cluster.sandbox().unwrap().cluster().admission.services;
    services.serve_also(&namespace(), WEBHOOK, address(&reconciler).await);
    reconciler
}

/// Starts one that serves, once it has a certificate to be asked with.
async fn begin(cluster: &Cluster, flags: &[&str]) -> Reconciler {
    let reconciler = start(cluster, flags);
    reconciler.until_logged("its certificate", |line| line.contains("serves a new certificate")).await;
    reconciler
}

/// Starts one that would serve.
pub fn start(cluster: &Cluster, flags: &[&str]) -> Reconciler {
    Reconciler::start_with(cluster, &[&["--webhook-addr", "127.0.0.1:0"], flags].concat())
}

/// Where it serves the webhook.
pub async fn address(reconciler: &Reconciler) -> SocketAddr {
    let line = reconciler.until_logged("where it serves", |line| line.contains("serving the webhook")).await;
    let (_, address) = line.split_once("address=").unwrap();
    address.split_whitespace().next().unwrap().parse().unwrap()
}

/// Has the API server ask the webhook at this address.
pub async fn configure(cluster: &Cluster, address: SocketAddr) {
    let mut configuration = manifests::webhook_configuration();
    match cluster.sandbox() {
        Some(sandbox) => sandbox.cluster().admission.services.serve(&namespace(), WEBHOOK, address),
        None => {
            for webhook in configuration.data["webhooks"].as_array_mut().unwrap() {
                webhook["clientConfig"] = json!({"url": format!("https://{address}/validate")});
            }
        }
    }
    cluster.apply(&configuration).await;
}

/// Waits until the API server was told whom to believe.
pub async fn believed(cluster: &Cluster) {
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client.clone());
    until(&configurations, WEBHOOK_CONFIGURATION, "believes the webhook", |found| {
        let webhooks = found.and_then(|found| found.webhooks.as_ref());
        webhooks.is_some_and(|all| all.iter().all(|webhook| webhook.client_config.ca_bundle.is_some()))
    })
    .await;
}

/// The namespace of the manifests.
pub fn namespace() -> String {
    manifests::service_account().metadata.namespace.unwrap()
}
