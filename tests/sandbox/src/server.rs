//! The API server on a loopback port: TLS, HTTP/1.1, and an end that is orderly.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, header};
use http_body_util::BodyExt;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::cluster::Cluster;
use crate::http::{Api, Body};
use crate::request_log::RequestLog;
use crate::{kubeconfig, tls};

/// How long answers under way may take when the server stops.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// A running API server. Dropping it ends it at once, [`Server::shutdown`] in good order.
#[derive(Debug)]
pub struct Server {
    api: Arc<Api>,
    address: SocketAddr,
    authority: String,
    stop: Option<oneshot::Sender<()>>,
    accepting: JoinHandle<()>,
}

impl Server {
    /// Listens on a free port of loopback.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start(cluster: Arc<Cluster>) -> io::Result<Self> {
        Self::serve(Api::new(cluster)).await
    }

    /// The same over an API that is there already, as after a restart.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn serve(api: Arc<Api>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        api.listens_on(address.to_string());
        let identity = tls::identity()?;
        let (stop, stopped) = oneshot::channel();
        let accepting = tokio::spawn(accept(listener, identity.acceptor, Service::new(api.clone()), stopped));
        Ok(Self { api, address, authority: identity.authority, stop: Some(stop), accepting })
    }

    /// `https://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// A kubeconfig of the administrator, with everything embedded.
    pub fn kubeconfig(&self) -> String {
        kubeconfig::write(&self.url(), &self.authority, self.api.admin_token())
    }

    /// The same for somebody else, by their bearer token.
    pub fn kubeconfig_of(&self, token: &str) -> String {
        kubeconfig::write(&self.url(), self.authority(), token)
    }

    /// The certificate of the authority that the server's is signed by, in PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// What was asked so far.
    pub fn requests(&self) -> &RequestLog {
        self.api.requests()
    }

    /// The server without its socket.
    pub fn api(&self) -> &Arc<Api> {
        &self.api
    }

    /// Stops listening, ends every watch, and waits for the answers that are under way.
    pub async fn shutdown(mut self) {
        self.api.stop();
        if let Some(stop) = self.stop.take() {
            // An acceptor that is gone has stopped already.
            let _ = stop.send(());
        }
        let _ = (&mut self.accepting).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.api.stop();
        self.accepting.abort();
    }
}

async fn accept(
    listener: TcpListener,
    tls: TlsAcceptor,
    service: Service,
    mut stopped: oneshot::Receiver<()>,
) {
    let connections = GracefulShutdown::new();
    // They end with this task, should it be dropped.
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = &mut stopped => break,
        };
        match accepted {
            Ok((socket, _)) => {
                let watcher = connections.watcher();
                tasks.spawn(connection(socket, tls.clone(), service.clone(), watcher));
            }
            Err(error) => tracing::debug!(%error, "a connection was not accepted"),
        }
    }
    drop(listener);
    // Whoever has not finished by then is cut off.
    if timeout(LAST_ANSWERS, connections.shutdown()).await.is_err() {
        tracing::debug!("some clients did not take their last answer");
    }
}

async fn connection(socket: TcpStream, tls: TlsAcceptor, service: Service, watcher: Watcher) {
    // Events are small and wanted at once.
    let _ = socket.set_nodelay(true);
    let stream = match tls.accept(socket).await {
        Ok(stream) => TokioIo::new(stream),
        Err(error) => return tracing::debug!(%error, "a client did not like the certificate"),
    };
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(stream, TowerToHyperService::new(service));
    if let Err(error) = watcher.watch(served).await {
        tracing::debug!(%error, "a connection broke");
    }
}

/// The API as a tower service, for use without a socket too.
#[derive(Debug, Clone)]
pub struct Service {
    api: Arc<Api>,
    token: Option<String>,
}

impl Service {
    /// Requests say themselves who asks.
    pub fn new(api: Arc<Api>) -> Self {
        Self { api, token: None }
    }

    /// Requests that do not say who asks are the administrator's.
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
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
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
            // A body that breaks off is no body; whatever it was for will be missed in it.
            let body = match body.collect().await {
                Ok(body) => body.to_bytes(),
                Err(error) => {
                    tracing::debug!(%error, "a request broke off");
                    Bytes::new()
                }
            };
            Ok(api.answer(Request::from_parts(head, body)).await)
        })
    }
}
