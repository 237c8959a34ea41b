//! Requests to a server that knows its clients by their certificates.

use std::collections::HashSet;
use std::convert::Infallible;

use futures::{StreamExt, stream};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::*;
use crate::http1;
use crate::tls::test_certificates::{Authority, Issued};

/// Accepts every client, also with a certificate of version 1, which rustls cannot verify.
#[derive(Debug)]
struct AnyClient;

impl ClientCertVerifier for AnyClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// A server that answers with the name of the client, or refuses it. A watch ends when `end` is sent.
struct TestServer {
    config: Config,
    refused: Arc<Mutex<HashSet<String>>>,
    end: watch::Sender<bool>,
}

async fn server() -> TestServer {
    let authority = Authority::new("servers");
    let identity = authority.server("127.0.0.1");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    let chain = vec![CertificateDer::from(identity.der)];
    let tls = tls.with_client_cert_verifier(Arc::new(AnyClient)).with_single_cert(chain, key).unwrap();
    let tls = TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = Config::new(format!("https://{}", listener.local_addr().unwrap()).parse().unwrap());
    config.root_cert = Some(vec![authority.der()]);
    let refused = Arc::<Mutex<HashSet<String>>>::default();
    let (end, ended) = watch::channel(false);
    let known = refused.clone();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (tls, refused, ended) = (tls.clone(), known.clone(), ended.clone());
            tokio::spawn(async move {
                let Ok(stream) = tls.accept(socket).await else { return };
                let name = stream.get_ref().1.peer_certificates().map_or("anonymous".to_owned(), |chain| {
                    let (_, leaf) = X509Certificate::from_der(&chain[0]).unwrap();
                    leaf.subject().iter_common_name().next().unwrap().as_str().unwrap().to_owned()
                });
                let service = service_fn(|request| {
                    let is_refused = refused.lock().unwrap().contains(&name);
                    std::future::ready(Ok::<_, Infallible>(answer(
                        &request,
                        &name,
                        is_refused,
                        ended.clone(),
                    )))
                });
                let connection = hyper::server::conn::http1::Builder::new();
                let _ = connection.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    TestServer { config, refused, end }
}

fn answer(
    request: &Request<Incoming>,
    name: &str,
    is_refused: bool,
    mut ended: watch::Receiver<bool>,
) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    let first = stream::iter([name.to_owned()]);
    let rest = if request.uri().path() == "/watch" {
        let end = async move {
            ended.wait_for(|ended| *ended).await.unwrap();
            " to the end".to_owned()
        };
        stream::once(end).boxed()
    } else {
        stream::empty().boxed()
    };
    let frames = first.chain(rest).map(|text| Ok(Frame::data(Bytes::from(text))));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    if is_refused {
        *response.status_mut() = StatusCode::UNAUTHORIZED;
    }
    response
}

fn exec_credential(issued: &Issued) -> String {
    serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {"clientCertificateData": issued.certificate, "clientKeyData": issued.key},
    })
    .to_string()
}

fn client(server: &TestServer, credentials: Credentials) -> Authenticated<http1::Http1Client> {
    let config = server.config.clone();
    Authenticated::new(&server.config, credentials, move |tls| http1::client(&config, tls)).unwrap()
}

async fn send(
    client: &Authenticated<http1::Http1Client>,
    server: &TestServer,
    path: &str,
) -> Response<Incoming> {
    let uri = format!("{}{path}", server.config.cluster_url.to_string().trim_end_matches('/'));
    client.clone().oneshot(Request::post(uri).body(Body::from(b"body".to_vec())).unwrap()).await.unwrap()
}

async fn text(response: Response<Incoming>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn a_renewed_client_certificate_is_used_at_once_and_watches_go_on() {
    let (server, users) = (server().await, Authority::new("users"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("credential");
    std::fs::write(&file, exec_credential(&users.client("first", 3600))).unwrap();
    let user = serde_json::json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": "cat", "args": [file]}});
    let credentials = Credentials::new(serde_json::from_value(user).unwrap(), None, || false);
    let client = client(&server, credentials);
    assert_eq!(text(send(&client, &server, "/get").await).await, "first");
    let watch = send(&client, &server, "/watch").await;

    std::fs::write(&file, exec_credential(&users.client("second", 3600))).unwrap();
    assert_eq!(text(send(&client, &server, "/get").await).await, "first", "it is valid");
    server.refused.lock().unwrap().insert("first".to_owned());
    assert_eq!(text(send(&client, &server, "/get").await).await, "second", "the request is sent again");
    assert_eq!(text(send(&client, &server, "/get").await).await, "second");
    server.end.send(true).unwrap();
    assert_eq!(text(watch).await, "first to the end");

    server.refused.lock().unwrap().insert("second".to_owned());
    let response = send(&client, &server, "/get").await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "there is nothing else to try");
}

#[tokio::test]
async fn a_client_certificate_of_version_1_is_sent() {
    let (server, users) = (server().await, Authority::new("users"));
    let issued = users.version_1(&users.client("microk8s", 3600));
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("certificate"), folder.path().join("key"));
    std::fs::write(&certificate, issued.certificate).unwrap();
    std::fs::write(&key, issued.key).unwrap();
    let user = serde_json::json!({"client-certificate": certificate, "client-key": key});
    let client = client(&server, Credentials::new(serde_json::from_value(user).unwrap(), None, || false));
    assert_eq!(text(send(&client, &server, "/get").await).await, "microk8s");
}

#[tokio::test]
async fn a_server_is_verified_before_anything_is_sent_to_it() {
    let mut server = server().await;
    server.config.root_cert = Some(vec![Authority::new("others").der()]);
    let client = client(&server, Credentials::none());
    let request = Request::get(server.config.cluster_url.clone()).body(Body::empty()).unwrap();
    assert!(client.oneshot(request).await.is_err());
}
