//! Clients that speak HTTP/2, as Go's do: all their requests share a connection.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use http::{Request, Version};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::Config;
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube_sandbox::faults::{Action, Moment, Rule, Target};
use kube_sandbox::sandbox::{Options, Sandbox};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// One connection to a sandbox.
struct Connection {
    sandbox: Sandbox,
    sender: SendRequest<Empty<Bytes>>,
}

impl Connection {
    async fn open() -> Self {
        let sandbox = Sandbox::start(Options { nodes: 1, pods: 0, ..Options::default() }).await.unwrap();
        let kubeconfig = Kubeconfig::from_yaml(&sandbox.kubeconfig()).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let mut tls = config.rustls_client_config().unwrap();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let socket = TcpStream::connect(config.cluster_url.authority().unwrap().as_str()).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let stream = TlsConnector::from(Arc::new(tls)).connect(name, socket).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self { sandbox, sender }
    }

    async fn get(&self, path: &str) -> hyper::Result<http::Response<Incoming>> {
        let request = Request::get(format!("{}{path}", self.sandbox.url()))
            .header("authorization", format!("Bearer {}", self.sandbox.server().api().admin_token()))
            .body(Empty::new());
        self.sender.clone().send_request(request.unwrap()).await
    }
}

#[tokio::test]
async fn watches_and_requests_share_a_connection() {
    let connection = Connection::open().await;
    let watches: Vec<_> = join_all((0..90).map(|_| connection.get("/api/v1/nodes?watch=1"))).await;
    assert!(watches.iter().all(|watch| watch.as_ref().unwrap().status() == 200));
    let node = connection.get("/api/v1/nodes/node-01").await.unwrap();
    assert_eq!((node.status().as_u16(), node.version()), (200, Version::HTTP_2));
    assert!(!node.into_body().collect().await.unwrap().to_bytes().is_empty());
    assert_eq!(connection.sandbox.faults().open_watches(&Target::any().resource("nodes")), 90);
}

#[tokio::test]
async fn a_lost_answer_resets_its_request_and_no_other() {
    let connection = Connection::open().await;
    let mut watch = connection.get("/api/v1/nodes?watch=1").await.unwrap().into_body();
    let first = watch.frame().await.unwrap();
    assert!(first.is_ok(), "the node: {first:?}");
    let lists = Target::any().verb("list").resource("nodes");
    connection.sandbox.faults().add(Rule::new(lists, Action::Disconnect(Moment::BeforeEffect)));
    assert!(connection.get("/api/v1/nodes").await.is_err());
    assert_eq!(connection.get("/version").await.unwrap().status(), 200);
    connection.sandbox.faults().end_watches(&Target::any().resource("nodes"), 0);
    while let Some(frame) = watch.frame().await {
        assert!(frame.is_ok(), "the watch ends as it should: {frame:?}");
    }
}

#[tokio::test]
async fn a_killed_server_takes_all_requests_of_a_connection_with_it() {
    let connection = Connection::open().await;
    let mut watch = connection.get("/api/v1/nodes?watch=1").await.unwrap().into_body();
    assert!(watch.frame().await.unwrap().is_ok());
    connection.sandbox.server_down().await;
    assert!(watch.frame().await.is_none_or(|end| end.is_err()));
    assert!(connection.get("/version").await.is_err());
}
