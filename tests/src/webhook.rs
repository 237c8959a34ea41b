//! The webhook, served by built programs and asked by the API server over TLS, or by a stranger.
//!
//! No test's cluster has the webhook's configuration from the beginning: nothing could be created while nobody serves.

use std::net::SocketAddr;
use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use nm_shared::api::names::{WEBHOOK, WEBHOOK_CONFIGURATION};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

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

/// A connection to the webhook by somebody who is not the API server.
pub struct Connection(TlsStream<TcpStream>);

impl Connection {
    /// Opens one, and believes whom the API server believes.
    pub async fn open(cluster: &Cluster, address: SocketAddr) -> Self {
        let configurations: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client.clone());
        let configuration = configurations.get(WEBHOOK_CONFIGURATION).await.unwrap();
        let bundle = configuration.webhooks.unwrap().remove(0).client_config.ca_bundle.unwrap();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&bundle.0).map(Result::unwrap));
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        Self(TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap())
    }

    /// Sends this much of a request; nothing where the connection was closed.
    pub async fn send(&mut self, text: &str) {
        let _ = self.0.write_all(text.as_bytes()).await;
        let _ = self.0.flush().await;
    }

    /// Posts a body, and returns the whole answer.
    pub async fn post(&mut self, path: &str, body: &str) -> String {
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
        );
        self.send(&(head + body)).await;
        self.answer().await
    }

    /// What is answered until the connection is closed.
    pub async fn answer(&mut self) -> String {
        let mut answer = Vec::new();
        // One that is closed without a farewell has answered all the same.
        let _ = self.0.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }
}
