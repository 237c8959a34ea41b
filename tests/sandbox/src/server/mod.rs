//! The API server on a loopback port: TLS, HTTP/2 or HTTP/1.1, graceful shutdown, kill and restart.
//!
//! A killed server keeps its port, its certificates and its objects, and uses them again when it is restarted, like a real
//! one with etcd behind it.

pub(crate) mod kubeconfig;
pub(crate) mod tls;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, header};
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Mutex, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::cluster::Cluster;
use crate::http::request::body;
use crate::http::{Api, Body, ConnectionLost, Shutdown};
use crate::request_log::RequestLog;
use crate::server::tls::Identity;

/// How long a connection may wait for its next request, as with kube-apiserver (`IdleTimeout` in
/// `apiserver/pkg/server/secure_serving.go`). The header of a request may take as long.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// How long responses in flight may take when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// How many connections may be waiting to be accepted.
const BACKLOG: u32 = 1024;

/// How often, and after which time, a restarted server tries to get its port again.
const MAX_BINDS: u32 = 500;
const BIND_INTERVAL: Duration = Duration::from_millis(20);
/// How many requests may be in progress on an HTTP/2 connection: kube-apiserver's `--http2-max-streams-per-connection`.
const MAX_STREAMS: u32 = 100;

/// A running API server. Dropping it stops it at once; [`Server::shutdown`] stops it gracefully.
#[derive(Debug)]
pub struct Server {
    api: Arc<Api>,
    address: SocketAddr,
    identity: Identity,
    running: Mutex<Running>,
}

#[derive(Debug)]
enum Running {
    Up {
        stop: oneshot::Sender<Shutdown>,
        accepting: JoinHandle<()>,
    },
    /// Not listening. The socket keeps the port reserved, also against the local ends of outgoing connections.
    Down {
        port: Option<TcpSocket>,
    },
}

impl Server {
    /// Listens on a free loopback port.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start(cluster: Arc<Cluster>) -> io::Result<Self> {
        Self::serve(Api::new(cluster)).await
    }

    /// Serves an existing API.
    ///
    /// # Errors
    /// When no port is free.
    #[expect(clippy::unused_async, reason = "what listens has to be within a runtime")]
    pub async fn serve(api: Arc<Api>) -> io::Result<Self> {
        let port = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = port.local_addr()?;
        let identity = tls::identity()?;
        let running = Mutex::new(listen(&api, address, &identity, port)?);
        Ok(Self { api, address, identity, running })
    }

    /// `https://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// A kubeconfig of the administrator, with embedded credentials.
    pub fn kubeconfig(&self) -> String {
        kubeconfig::write(&self.url(), self.authority(), self.api.admin_token())
    }

    /// A kubeconfig with a bearer token.
    pub fn kubeconfig_of(&self, token: &str) -> String {
        kubeconfig::write(&self.url(), self.authority(), token)
    }

    /// The certificate of the authority that signed the server's certificate, in PEM.
    pub fn authority(&self) -> &str {
        &self.identity.authority
    }

    /// The server's own certificate, in PEM.
    pub fn certificate(&self) -> &str {
        &self.identity.certificate
    }

    /// The requests so far.
    pub fn requests(&self) -> &RequestLog {
        self.api.requests()
    }

    /// The API server without its socket.
    pub fn api(&self) -> &Arc<Api> {
        &self.api
    }

    /// Stops listening, ends every watch, and waits for the responses in flight.
    pub async fn shutdown(self) {
        self.bring_down(Shutdown::Ended).await;
    }

    /// Kills the server: it no longer listens, and every connection is lost with the requests in flight, including those of
    /// clients without a socket. Does nothing if the server is down.
    pub async fn kill(&self) {
        self.bring_down(Shutdown::Killed).await;
    }

    /// Serves again after [`Server::kill`], with the same address, certificates and objects. Does nothing if the server is
    /// up.
    ///
    /// # Errors
    /// When the port is no longer free.
    pub async fn restart(&self) -> io::Result<()> {
        let mut running = self.running.lock().await;
        let Running::Down { port } = &mut *running else {
            return Ok(());
        };
        let mut port = port.take();
        for _ in 0..MAX_BINDS {
            let bound = port.take().map_or_else(|| bind(self.address), Ok);
            match bound.and_then(|port| listen(&self.api, self.address, &self.identity, port)) {
                // Another server, which a test started in between, has the port for a moment. Time may be paused.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => std::thread::sleep(BIND_INTERVAL),
                listens => {
                    *running = listens?;
                    return Ok(());
                }
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    async fn bring_down(&self, how: Shutdown) {
        let mut running = self.running.lock().await;
        self.api.bring_down(how);
        if let Running::Up { stop, accepting } =
            std::mem::replace(&mut *running, Running::Down { port: None })
        {
            // The task that accepts connections may have ended already.
            let _ = stop.send(how);
            let _ = accepting.await;
            // If the port is lost in between, a restart reports it.
            *running = Running::Down { port: bind(self.address).ok() };
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.api.bring_down(Shutdown::Ended);
        if let Running::Up { accepting, .. } = self.running.get_mut() {
            accepting.abort();
        }
    }
}

/// Binds a port without listening on it.
fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    // Connections of the previous server may linger.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

fn listen(api: &Arc<Api>, address: SocketAddr, identity: &Identity, port: TcpSocket) -> io::Result<Running> {
    let listener = port.listen(BACKLOG)?;
    api.begin(address.to_string());
    let (stop, stopped) = oneshot::channel();
    let service = Service::new(api.clone());
    let accepting = tokio::spawn(accept(listener, identity.acceptor.clone(), service, stopped));
    Ok(Running::Up { stop, accepting })
}

async fn accept(
    listener: TcpListener,
    tls: TlsAcceptor,
    service: Service,
    mut stopped: oneshot::Receiver<Shutdown>,
) {
    let connections = GracefulShutdown::new();
    // Dropping this task ends the connections.
    let mut tasks = JoinSet::new();
    let how = loop {
        while tasks.try_join_next().is_some() {}
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            how = &mut stopped => break how,
        };
        match accepted {
            Ok((socket, _)) => {
                let watcher = connections.watcher();
                tasks.spawn(connection(socket, tls.clone(), service.clone(), watcher));
            }
            Err(error) => tracing::debug!(%error, "a connection was not accepted"),
        }
    };
    drop(listener);
    if how == Ok(Shutdown::Killed) {
        return tasks.shutdown().await;
    }
    // Connections that are still open are closed.
    if timeout(SHUTDOWN_TIMEOUT, connections.shutdown()).await.is_err() {
        tracing::debug!("some clients did not take their last answer");
    }
}

async fn connection(socket: TcpStream, tls: TlsAcceptor, service: Service, watcher: Watcher) {
    // Events are small, and latency matters.
    let _ = socket.set_nodelay(true);
    let stream = match tls.accept(socket).await {
        Ok(stream) => TokioIo::new(stream),
        Err(error) => return tracing::debug!(%error, "a client did not like the certificate"),
    };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE_TIMEOUT);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS);
    let served = builder.serve_connection(stream, TowerToHyperService::new(service));
    if let Err(error) = watcher.watch(served).await {
        tracing::debug!(%error, "a connection broke");
    }
}

/// The API as a tower service, also for use without a socket.
#[derive(Debug, Clone)]
pub struct Service {
    api: Arc<Api>,
    token: Option<String>,
}

impl Service {
    /// Requests carry their own credentials.
    pub fn new(api: Arc<Api>) -> Self {
        Self { api, token: None }
    }

    /// Requests without credentials are the administrator's.
    pub fn admin(api: Arc<Api>) -> Self {
        let token = Some(api.admin_token().to_owned());
        Self { api, token }
    }
}

impl<B> tower::Service<Request<B>> for Service
where
    B: BodyExt<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display,
{
    type Response = Response<Body>;
    type Error = ConnectionLost;
    type Future = BoxFuture<'static, Result<Self::Response, ConnectionLost>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectionLost>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let api = self.api.clone();
        let token = self.token.clone();
        Box::pin(async move {
            let (mut head, body) = request.into_parts();
            if let Some(token) = token
                && !head.headers.contains_key(header::AUTHORIZATION)
                && let Ok(value) = HeaderValue::from_str(&format!("Bearer {token}"))
            {
                head.headers.insert(header::AUTHORIZATION, value);
            }
            let body = body::read(body).await;
            let response = api.answer(Request::from_parts(head, body)).await;
            match response.extensions().get::<ConnectionLost>() {
                Some(lost) => Err(*lost),
                None => Ok(response),
            }
        })
    }
}
