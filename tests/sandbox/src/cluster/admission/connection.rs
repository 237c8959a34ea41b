//! The connections to a webhook: TLS with its own CA bundle, HTTP/1.1, kept alive.
//!
//! Errors have the messages of the API server's HTTP client, since people see them.

use std::error::Error;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, InvalidMessage, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The address, and the name that the server's certificate must have.
#[derive(Debug, Clone)]
pub(crate) struct Destination {
    /// `host:port` to connect to.
    pub(crate) dial: String,
    /// The name on the certificate.
    pub(crate) host: String,
    /// `Host`.
    pub(crate) authority: String,
    /// Path and query.
    pub(crate) path: String,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Reply {
    /// HTTP status code.
    pub(crate) code: u16,
    /// `Content-Type`.
    pub(crate) content_type: String,
    /// The body.
    pub(crate) body: Bytes,
}

type Sender = SendRequest<Full<Bytes>>;

/// The connections to one webhook.
pub(crate) struct ConnectionPool {
    tls: Result<TlsConnector, String>,
    /// Idle connections, each with its address.
    idle: Mutex<Vec<(String, Sender)>>,
}

impl std::fmt::Debug for ConnectionPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire").finish_non_exhaustive()
    }
}

impl ConnectionPool {
    /// A pool that trusts the certificates of a `caBundle`.
    pub(crate) fn new(bundle: &str) -> Self {
        Self { tls: connector(bundle), idle: Mutex::default() }
    }

    /// Posts JSON.
    ///
    /// # Errors
    /// Why there is no response.
    pub(crate) async fn post(&self, target: &Destination, body: Bytes) -> Result<Reply, String> {
        if let Some(sender) = self.take(&target.dial) {
            // The server may have closed an idle connection; then a new one is opened.
            if let Ok(reply) = self.send(sender, target, body.clone()).await {
                return Ok(reply);
            }
        }
        let sender = self.connect(target).await?;
        self.send(sender, target, body).await
    }

    async fn connect(&self, target: &Destination) -> Result<Sender, String> {
        let tls = self.tls.clone()?;
        let name = ServerName::try_from(target.host.clone()).map_err(|error| error.to_string())?;
        let socket = TcpStream::connect(&target.dial).await.map_err(|error| dialled(target, &error))?;
        // Requests are small, and latency matters.
        let _ = socket.set_nodelay(true);
        let stream = tls.connect(name, socket).await.map_err(|error| handshake(&target.host, &error))?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the connection to a webhook broke");
            }
        });
        Ok(sender)
    }

    async fn send(&self, mut sender: Sender, target: &Destination, body: Bytes) -> Result<Reply, String> {
        let request = Request::post(&target.path)
            .header(header::HOST, &target.authority)
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .header(header::ACCEPT, "application/json, */*")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|error| error.to_string())?;
        sender.ready().await.map_err(|error| broken(&error))?;
        let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
        let code = response.status().as_u16();
        let content_type = response.headers().get(header::CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        let body = response.into_body().collect().await.map_err(|error| broken(&error))?.to_bytes();
        self.put(target.dial.clone(), sender);
        Ok(Reply { code, content_type, body })
    }

    fn take(&self, dial: &str) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(_, sender)| !sender.is_closed());
        let at = idle.iter().position(|(known, _)| known == dial)?;
        Some(idle.swap_remove(at).1)
    }

    fn put(&self, dial: String, sender: Sender) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push((dial, sender));
    }
}

fn connector(bundle: &str) -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    let unusable = || "unable to load root certificates: unable to parse bytes as PEM block".to_owned();
    let pem = STANDARD.decode(bundle).map_err(|_| unusable())?;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        roots.add(certificate.map_err(|_| unusable())?).map_err(|_| unusable())?;
    }
    if roots.is_empty() && !bundle.is_empty() {
        return Err(unusable());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn dialled(target: &Destination, error: &io::Error) -> String {
    let dial = &target.dial;
    match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("dial tcp {dial}: connect: connection refused"),
        _ => format!("dial tcp {dial}: connect: {error}"),
    }
}

fn handshake(host: &str, error: &io::Error) -> String {
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let unverified = |because: &str| format!("tls: failed to verify certificate: x509: {because}");
    match cause {
        Some(rustls::Error::InvalidCertificate(error)) => match error {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                unverified("certificate signed by unknown authority")
            }
            CertificateError::NotValidForName => unverified(&format!("certificate is not valid for {host}")),
            CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
                unverified("certificate is not valid for any names, but wanted to match ") + host
            }
            CertificateError::NotValidForNameContext { presented, .. } => {
                let names: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
                unverified(&format!("certificate is valid for {}, not {host}", names.join(", ")))
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                unverified("certificate has expired or is not yet valid")
            }
            other => unverified(&other.to_string()),
        },
        Some(rustls::Error::InvalidMessage(
            InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
        )) => "http: server gave HTTP response to HTTPS client".into(),
        Some(other) => format!("remote error: tls: {other}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => "EOF".into(),
        None => error.to_string(),
    }
}

/// `localhost` of `DnsName("localhost")`.
fn bare(presented: &str) -> &str {
    presented.split('"').nth(1).unwrap_or(presented)
}

fn broken(error: &hyper::Error) -> String {
    let cut_off = error.is_incomplete_message() || error.is_closed() || error.is_canceled();
    let reset = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    match reset.map(io::Error::kind) {
        Some(io::ErrorKind::UnexpectedEof) => "EOF".into(),
        Some(io::ErrorKind::ConnectionReset) => "read: connection reset by peer".into(),
        _ if cut_off => "EOF".into(),
        _ => error.to_string(),
    }
}
