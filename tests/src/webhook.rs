//! The admission webhook: served by the built reconciler, called by the API server or by any other client.
//!
//! A test's cluster has no webhook configuration at first: nothing could be created while no reconciler serves.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use nm_shared::api::names::{WEBHOOK, WEBHOOK_CONFIGURATION, WEBHOOK_PATH};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::cluster::Cluster;
use crate::manifests;
use crate::reconciler::Reconciler;
use crate::wait::wait_until;

/// Starts a reconciler that serves the webhook, configures the API server to call it instead of any other, and waits
/// until the API server trusts its certificate.
pub async fn serve_webhook(cluster: &Cluster, flags: &[&str]) -> Reconciler {
    let reconciler = start_with_certificate(cluster, flags).await;
    configure_webhook(cluster, reconciler.webhook_address().await).await;
    until_trusted(cluster).await;
    reconciler
}

/// Starts another replica that serves the webhook beside the others. Only a sandbox routes to several.
pub async fn serve_webhook_too(cluster: &Cluster, flags: &[&str]) -> Reconciler {
    let reconciler = start_with_certificate(cluster, flags).await;
    let services = &cluster.sandbox().unwrap().cluster().admission.services;
    services.serve_also(&namespace(), WEBHOOK, reconciler.webhook_address().await);
    reconciler
}

/// Starts a reconciler that serves the webhook of an installation, whose configuration exists already, on a sandbox.
pub async fn serve_installed_webhook(cluster: &Cluster, flags: &[&str]) -> Reconciler {
    cluster.write_reconciler_kubeconfig().await;
    let reconciler = start_with_webhook(cluster, flags);
    let address = reconciler.webhook_address().await;
    cluster.sandbox().unwrap().cluster().admission.services.serve(&namespace(), WEBHOOK, address);
    until_trusted(cluster).await;
    reconciler
}

async fn start_with_certificate(cluster: &Cluster, flags: &[&str]) -> Reconciler {
    let reconciler = start_with_webhook(cluster, flags);
    reconciler.until_logged("its certificate", |line| line.contains("serves a new certificate")).await;
    reconciler
}

/// Starts a reconciler that serves the webhook. The API server does not call it yet.
pub fn start_with_webhook(cluster: &Cluster, flags: &[&str]) -> Reconciler {
    Reconciler::start_with(cluster, &[&["--webhook-addr", "127.0.0.1:0"], flags].concat())
}

/// Configures the API server to call the webhook at this address.
pub async fn configure_webhook(cluster: &Cluster, address: SocketAddr) {
    let mut configuration = manifests::webhook_configuration();
    match cluster.sandbox() {
        Some(sandbox) => sandbox.cluster().admission.services.serve(&namespace(), WEBHOOK, address),
        None => {
            for webhook in configuration.data["webhooks"].as_array_mut().unwrap() {
                webhook["clientConfig"] = json!({"url": format!("https://{address}{WEBHOOK_PATH}")});
            }
        }
    }
    cluster.apply(&configuration).await;
}

/// Waits until the webhook configuration has a CA bundle.
pub async fn until_trusted(cluster: &Cluster) {
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client.clone());
    wait_until(&configurations, WEBHOOK_CONFIGURATION, "has a CA bundle", |found| {
        let webhooks = found.and_then(|found| found.webhooks.as_ref());
        webhooks.is_some_and(|all| all.iter().all(|webhook| webhook.client_config.ca_bundle.is_some()))
    })
    .await;
}

/// The namespace of the manifests.
pub fn namespace() -> String {
    manifests::service_account().metadata.namespace.unwrap()
}

/// Connects from an address other than that of the API server and of probes.
///
/// # Errors
/// When the server refuses the connection.
pub async fn connect_as_another_client(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, 2], 0).into())?;
    socket.connect(address).await
}

/// A TLS connection to the webhook by a client other than the API server.
pub struct WebhookConnection(TlsStream<TcpStream>);

impl WebhookConnection {
    /// Connects, and verifies the certificate with the CA bundle of the webhook configuration.
    ///
    /// # Errors
    /// When the server refuses the connection.
    pub async fn open(cluster: &Cluster, address: SocketAddr) -> io::Result<Self> {
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
        let stream = connect_as_another_client(address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        Ok(Self(TlsConnector::from(Arc::new(config)).connect(name, stream).await?))
    }

    /// Sends a part of a request. An error is ignored: the server may have closed the connection.
    pub async fn send(&mut self, text: &str) {
        let _ = self.0.write_all(text.as_bytes()).await;
        let _ = self.0.flush().await;
    }

    /// Everything that the server sends until it closes the connection.
    pub async fn response(&mut self) -> String {
        let mut response = Vec::new();
        // A connection that is closed without `close_notify` may have carried a response.
        let _ = self.0.read_to_end(&mut response).await;
        String::from_utf8_lossy(&response).into_owned()
    }
}
