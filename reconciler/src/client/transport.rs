//! How the requests of a term reach the API server: by HTTP/2, or by HTTP/1.1 where the server or a proxy in front of it
//! does not speak HTTP/2.
//!
//! Each [`ConnectionPool`] has connections of its own, so that a long list or a lost connection delays only requests of its kind.
//! The lease of the leader is renewed by another client, on another connection ([`crate::leader::election`]).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Bytes;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::Config;
use kube::client::{Body, ClientBuilder, ConfigExt, DynBody};
use nm_connection::{Authenticated, http1};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tower::util::BoxService;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};
use tower_http::timeout::TimeoutBody;
use tracing::debug;

use crate::client::api_server::ApiServer;
use crate::client::http2::{Connector, Dialer, Http2Connection, MAX_STREAMS, SendError};
use crate::client::request_metrics;
use crate::telemetry::metrics::Verb;

/// Requests in progress that are neither watches nor evictions. The rest waits: status writes of many nodes at once would
/// compete with their evictions.
const MAX_OTHER_REQUESTS: usize = MAX_STREAMS;

/// Watches of few nodes do not share connections, so a lost one interrupts few of them, and 500 nodes need far fewer than 64
/// file descriptors.
const WATCH_CONNECTIONS: usize = 16;

const EVICTION_CONNECTIONS: usize = 8;

const OTHER_CONNECTIONS: usize = 2;

/// How long HTTP/1.1 is used after a server has not accepted HTTP/2. Then one request tries HTTP/2, which costs a server that never
/// speaks it one connection.
const HTTP2_RETRY_INTERVAL: Duration = Duration::from_secs(30);

type Answer = Response<Box<DynBody>>;

/// What a client sends its requests to.
pub(crate) type HttpService = BoxService<Request<Body>, Answer, BoxError>;

type Http1Client = legacy::Client<Connector, Body>;

/// A client whose connections belong to the current runtime.
///
/// # Errors
/// When the configuration has unusable certificates.
pub(crate) fn builder(server: &ApiServer) -> kube::Result<ClientBuilder<HttpService>> {
    if server.config.proxy_url.is_some() {
        // The client that speaks to proxies speaks only HTTP/1.1.
        return http1_builder(server);
    }
    let config = server.config.clone();
    let connect = move |tls| Transport::new(&config, &tls);
    stack(server, Authenticated::new(&server.config, server.credentials.clone(), connect)?)
}

/// A client that speaks HTTP/1.1, also to proxies.
///
/// # Errors
/// When the configuration has unusable certificates.
pub(crate) fn http1_builder(server: &ApiServer) -> kube::Result<ClientBuilder<HttpService>> {
    let config = server.config.clone();
    let connect = move |tls| http1::client(&config, tls);
    let client = Authenticated::new(&server.config, server.credentials.clone(), connect)?;
    stack(server, client.map_response(|answer| answer.map(boxed)))
}

/// The layers of kube's own client, except for its credentials.
fn stack<S>(server: &ApiServer, authenticated: S) -> kube::Result<ClientBuilder<HttpService>>
where
    S: Service<Request<Body>, Response = Answer, Error = BoxError> + Send + 'static,
    S::Future: Send,
{
    let config = &server.config;
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(config.extra_headers_layer()?)
        .service(authenticated);
    Ok(ClientBuilder::new(service.boxed(), config.default_namespace.clone()))
}

/// A client of a service in this process, whose answers may be silent for `read_timeout`, as those of a server.
pub(crate) fn in_process(service: HttpService, read_timeout: Duration) -> ClientBuilder<HttpService> {
    let limited = service.map_future(move |answer| async move {
        let answer: Answer = tokio::time::timeout(read_timeout, answer).await??;
        Ok(answer.map(|body| boxed(TimeoutBody::new(read_timeout, body))))
    });
    ClientBuilder::new(limited.boxed(), "default")
}

/// Sends requests to one server.
#[derive(Clone)]
struct Transport {
    dialer: Dialer,
    http1: Http1Client,
    pools: Arc<ConnectionPools>,
    /// How long an answer may be silent. Pings show only that the connection is alive.
    read_timeout: Duration,
}

struct ConnectionPools {
    watches: ConnectionPool,
    evictions: ConnectionPool,
    others: ConnectionPool,
    max_others: Semaphore,
    fallback: Http1Fallback,
}

/// Whether requests are sent by HTTP/1.1, because the server has not accepted HTTP/2. From time to time one of them tries HTTP/2
/// again: the address may be that of a load balancer, of which only some servers speak it.
#[derive(Default)]
struct Http1Fallback(Mutex<Option<Instant>>);

impl Http1Fallback {
    /// Whether a request is to be sent by HTTP/2.
    fn allows_http2(&self) -> bool {
        let mut retry_at = self.lock();
        let Some(due) = &mut *retry_at else { return true };
        let is_due = *due <= Instant::now();
        if is_due {
            // The other requests do not wait for the result.
            *due = Instant::now() + HTTP2_RETRY_INTERVAL;
        }
        is_due
    }

    /// Records how the server has answered a request that was sent by HTTP/2.
    fn record(&self, is_http2: bool) {
        let retry_at = (!is_http2).then(|| Instant::now() + HTTP2_RETRY_INTERVAL);
        let was_http2 = std::mem::replace(&mut *self.lock(), retry_at).is_none();
        if was_http2 != is_http2 {
            debug!("the API server {} HTTP/2", if is_http2 { "speaks" } else { "does not speak" });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connections for one kind of request.
struct ConnectionPool {
    connections: Mutex<Vec<Arc<Http2Connection>>>,
    /// How many connections there are before two requests share one.
    spread: usize,
}

impl Transport {
    fn new(config: &Config, tls: &ClientConfig) -> kube::Result<Self> {
        let server_name = config.tls_server_name.clone().map(ServerName::try_from).transpose();
        let server_name = server_name.map_err(|error| kube::Error::Service(error.into()))?;
        let connector = |http2: bool| {
            let mut tcp = HttpConnector::new();
            tcp.enforce_http(false);
            // Requests on a shared connection do not wait for the acknowledgement of earlier ones.
            tcp.set_nodelay(true);
            let mut https = HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_or_http();
            if let Some(name) = &server_name {
                https = https.with_server_name_resolver(FixedServerNameResolver::new(name.clone()));
            }
            let https = if http2 {
                https.enable_all_versions().wrap_connector(tcp)
            } else {
                https.enable_http1().wrap_connector(tcp)
            };
            let mut connector = TimeoutConnector::new(https);
            connector.set_connect_timeout(config.connect_timeout);
            connector.set_read_timeout(config.read_timeout);
            connector.set_write_timeout(config.write_timeout);
            connector.set_reset_reader_on_write(config.reset_reader_on_write);
            connector
        };
        let pools = ConnectionPools {
            watches: ConnectionPool::new(WATCH_CONNECTIONS),
            evictions: ConnectionPool::new(EVICTION_CONNECTIONS),
            others: ConnectionPool::new(OTHER_CONNECTIONS),
            max_others: Semaphore::new(MAX_OTHER_REQUESTS),
            fallback: Http1Fallback::default(),
        };
        Ok(Self {
            dialer: Dialer::new(connector(true), config.cluster_url.clone()),
            http1: legacy::Client::builder(TokioExecutor::new()).build(connector(false)),
            pools: Arc::new(pools),
            read_timeout: config.read_timeout.unwrap_or(Duration::MAX),
        })
    }

    async fn send(self, request: Request<Body>) -> Result<Answer, BoxError> {
        let pools = &self.pools;
        let (pool, _permit) = match request_metrics::verb(&request) {
            Verb::Watch => (&pools.watches, None),
            _ if is_eviction(&request) => (&pools.evictions, None),
            _ => (&pools.others, Some(pools.max_others.acquire().await?)),
        };
        if !pools.fallback.allows_http2() {
            return self.send_by_http1(request).await;
        }
        let connection = pool.reserve();
        let answer = tokio::time::timeout(self.read_timeout, connection.send(&self.dialer, request));
        match answer.await? {
            // The body keeps its place on the connection.
            Ok(answer) => {
                pools.fallback.record(true);
                Ok(answer.map(|body| {
                    let body = body.map_frame(move |frame| {
                        let _reserved = &connection;
                        frame
                    });
                    boxed(TimeoutBody::new(self.read_timeout, body))
                }))
            }
            Err(SendError::NotHttp2(request)) => {
                pools.fallback.record(false);
                self.send_by_http1(*request).await
            }
            Err(SendError::Failed(error)) => Err(error),
        }
    }

    async fn send_by_http1(&self, request: Request<Body>) -> Result<Answer, BoxError> {
        Ok(self.http1.request(request).await?.map(boxed))
    }
}

impl ConnectionPool {
    fn new(spread: usize) -> Self {
        Self { connections: Mutex::default(), spread }
    }

    /// The connection with the fewest requests in progress. It counts as one until the result is dropped.
    fn reserve(&self) -> Arc<Http2Connection> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        // One reference is this pool's own.
        let load = |connection: &Arc<Http2Connection>| Arc::strong_count(connection) - 1;
        let is_full = connections.len() >= self.spread;
        let limit = if is_full { MAX_STREAMS } else { 1 };
        if let Some(free) =
            connections.iter().filter(|known| load(known) < limit).min_by_key(|known| load(known))
        {
            return free.clone();
        }
        let new = Arc::<Http2Connection>::default();
        connections.push(new.clone());
        new
    }
}

impl Service<Request<Body>> for Transport {
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.clone().send(request).boxed()
    }
}

/// Whether a request evicts or deletes a pod.
pub(crate) fn is_eviction(request: &Request<Body>) -> bool {
    let path = request.uri().path();
    match *request.method() {
        Method::POST => path.ends_with("/eviction"),
        Method::DELETE => path.contains("/pods/"),
        _ => false,
    }
}

fn boxed<B>(body: B) -> Box<DynBody>
where
    B: hyper::body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    Box::new(Box::pin(body.map_err(Into::into)))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::error::Error;
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;
    use futures::{StreamExt, stream};
    use http_body_util::StreamBody;
    use http_body_util::combinators::UnsyncBoxBody;
    use hyper::body::{Frame, Incoming};
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use kube::Client;
    use rustls::ServerConfig;
    use rustls::pki_types::PrivateKeyDer;
    use tokio::net::{TcpListener, TcpSocket};
    use tokio_rustls::TlsAcceptor;

    use super::*;

    type Protocols = Arc<Mutex<Vec<Vec<u8>>>>;

    fn protocols(offered: &[&[u8]]) -> Vec<Vec<u8>> {
        offered.iter().map(|protocol| protocol.to_vec()).collect()
    }

    async fn server(offered: &[&[u8]]) -> (Config, Arc<AtomicUsize>) {
        changing_server(Arc::new(Mutex::new(protocols(offered)))).await
    }

    /// An API server that offers these protocols at the time of a connection, and how many connections it has accepted. Each answer begins with the
    /// version of HTTP, and a watch never ends.
    async fn changing_server(offered: Protocols) -> (Config, Arc<AtomicUsize>) {
        let identity = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(identity.signing_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = tls.with_no_client_auth().with_single_cert(vec![identity.cert.der().clone()], key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut config = Config::new(format!("https://{}", listener.local_addr().unwrap()).parse().unwrap());
        config.root_cert = Some(vec![identity.cert.der().to_vec()]);
        let accepted = Arc::<AtomicUsize>::default();
        let count = accepted.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (mut tls, count) = (tls.clone(), count.clone());
                tls.alpn_protocols = offered.lock().unwrap().clone();
                let tls = TlsAcceptor::from(Arc::new(tls));
                tokio::spawn(async move {
                    let stream = tls.accept(socket).await.unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    let (stream, service) = (TokioIo::new(stream), service_fn(answer));
                    // A client may close its connection.
                    if is_http2 {
                        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        let _ = server.serve_connection(stream, service).await;
                    } else {
                        let server = hyper::server::conn::http1::Builder::new();
                        let _ = server.serve_connection(stream, service).await;
                    }
                });
            }
        });
        (config, accepted)
    }

    async fn answer(
        request: Request<Incoming>,
    ) -> Result<Response<UnsyncBoxBody<Bytes, Infallible>>, Infallible> {
        let version = Bytes::from(format!("{:?}", request.version()));
        let is_watch = request.uri().query() == Some("watch=1");
        let rest = if is_watch { stream::pending().boxed() } else { stream::empty().boxed() };
        let frames = stream::iter([version]).chain(rest).map(|bytes| Ok(Frame::data(bytes)));
        Ok(Response::new(StreamBody::new(frames).boxed_unsync()))
    }

    fn client(config: Config) -> Client {
        builder(&ApiServer::new(config)).unwrap().build()
    }

    fn get(path: &str) -> Request<Body> {
        Request::get(path).body(Body::empty()).unwrap()
    }

    async fn version(client: &Client) -> String {
        client.request_text(get("/version").map(|_| Vec::new())).await.unwrap()
    }

    #[tokio::test]
    async fn http2_is_used_where_the_server_speaks_it() {
        for (protocols, expected) in
            [(&[&b"h2"[..], b"http/1.1"][..], "HTTP/2.0"), (&[b"http/1.1"], "HTTP/1.1"), (&[], "HTTP/1.1")]
        {
            let (config, _) = server(protocols).await;
            let client = client(config);
            assert_eq!(version(&client).await, expected);
            assert_eq!(version(&client).await, expected);
        }
    }

    #[tokio::test]
    async fn one_connection_without_http2_does_not_end_its_use() {
        let (both, old): ([&[u8]; 2], [&[u8]; 1]) = ([b"h2", b"http/1.1"], [b"http/1.1"]);
        let offered: Protocols = Arc::new(Mutex::new(protocols(&old)));
        let (config, _) = changing_server(offered.clone()).await;
        let client = client(config);
        assert_eq!(version(&client).await, "HTTP/1.1");
        *offered.lock().unwrap() = protocols(&both);
        assert_eq!(version(&client).await, "HTTP/1.1", "nobody asks all the time");
        let later = async || {
            tokio::time::pause();
            tokio::time::advance(Duration::from_secs(31)).await;
            tokio::time::resume();
        };
        later().await;
        assert_eq!(version(&client).await, "HTTP/2.0");
        assert_eq!(version(&client).await, "HTTP/2.0");
        // The connections that are open stay.
        *offered.lock().unwrap() = protocols(&old);
        assert_eq!(version(&client).await, "HTTP/2.0");
    }

    #[tokio::test]
    async fn watches_share_few_connections_and_none_with_other_requests() {
        let (config, accepted) = server(&[b"h2"]).await;
        let client = client(config);
        let watch = async || client.send(get("/api/v1/pods?watch=1")).await.unwrap();
        let few = join_all((0..WATCH_CONNECTIONS).map(|_| watch())).await;
        assert_eq!(accepted.load(Ordering::Relaxed), WATCH_CONNECTIONS, "each has its own");
        let many = join_all((0..500).map(|_| watch())).await;
        assert_eq!(accepted.load(Ordering::Relaxed), WATCH_CONNECTIONS, "they share them");
        assert_eq!(version(&client).await, "HTTP/2.0");
        assert_eq!(accepted.load(Ordering::Relaxed), WATCH_CONNECTIONS + 1);
        drop((few, many));
        // Streams of watches that ended are free again.
        let _again = join_all((0..WATCH_CONNECTIONS * MAX_STREAMS).map(|_| watch())).await;
        assert_eq!(accepted.load(Ordering::Relaxed), WATCH_CONNECTIONS + 1);
        let _more = watch().await;
        assert_eq!(accepted.load(Ordering::Relaxed), WATCH_CONNECTIONS + 2, "the others are full");
    }

    #[tokio::test]
    async fn concurrent_requests_wait_for_one_connection() {
        let (config, accepted) = server(&[b"h2"]).await;
        let client = client(config);
        let versions = join_all((0..40).map(|_| version(&client))).await;
        assert!(versions.iter().all(|version| version == "HTTP/2.0"));
        assert_eq!(accepted.load(Ordering::Relaxed), OTHER_CONNECTIONS);
    }

    #[tokio::test]
    async fn a_server_that_cannot_be_reached_is_an_error_with_its_cause() {
        let (mut config, _) = server(&[b"h2"]).await;
        // It listens to nobody, and no other test can take its port.
        let closed = TcpSocket::new_v4().unwrap();
        closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = closed.local_addr().unwrap();
        config.cluster_url = format!("https://{address}").parse().unwrap();
        let client = client(config);
        let failed = join_all((0..3).map(|_| client.request_text(get("/version").map(|_| Vec::new())))).await;
        for failure in failed {
            let failure = failure.unwrap_err();
            let mut causes =
                std::iter::successors(failure.source(), |cause: &&(dyn Error + 'static)| (*cause).source());
            let is_refused = |cause: &(dyn Error + 'static)| {
                cause
                    .downcast_ref::<io::Error>()
                    .is_some_and(|io| io.kind() == io::ErrorKind::ConnectionRefused)
            };
            assert!(causes.any(is_refused), "{failure:?}");
        }
    }
}
