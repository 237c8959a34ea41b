//! One HTTP/2 connection to the API server that many requests share. It is opened by the first of them, and opened again
//! after it was lost.
//!
//! A lost connection may give no sign. It is therefore pinged after [`PING_INTERVAL`] of silence, and ends with all of its
//! requests if there is no answer in [`PING_TIMEOUT`]. Idle connections are pinged too, so that no request is sent on a
//! lost one.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_rustls::HttpsConnector;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::{Connection as _, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::Body;
use tokio::runtime::Handle;
use tower::{BoxError, ServiceExt};
use tracing::debug;

/// Connects by TCP and TLS.
pub(crate) type Connector = TimeoutConnector<HttpsConnector<HttpConnector>>;

/// Requests on one connection. The API server accepts 100 (`--http2-max-streams-per-connection`); more would wait in the
/// connection, behind the write fence.
pub(crate) const MAX_STREAMS: usize = 80;

const PING_INTERVAL: Duration = Duration::from_secs(10);

const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// How much of one answer may be sent before it is read.
const STREAM_WINDOW: u32 = 256 * 1024;

/// Enough for all answers, so that one that is not read delays no other.
#[expect(clippy::cast_possible_truncation, reason = "80 times 256 KiB")]
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * MAX_STREAMS as u32;

/// How many connections a request tries that are closed before it is sent, as they are by an API server that restarts.
const MAX_ATTEMPTS: u32 = 3;

/// Why a request was not sent by HTTP/2, or has no answer.
#[derive(Debug)]
pub(crate) enum SendError {
    /// The server does not speak HTTP/2. The request was not sent.
    NotHttp2(Box<Request<Body>>),
    Failed(BoxError),
}

/// Opens connections to one server.
#[derive(Clone)]
pub(crate) struct Dialer {
    connector: Connector,
    server: Uri,
    /// The connections belong to it.
    runtime: Handle,
}

/// A connection that is open, being opened, or closed.
#[derive(Default)]
pub(crate) struct Http2Connection(Mutex<Option<Shared<BoxFuture<'static, Opened>>>>);

type Opened = Result<SendRequest<Body>, OpenError>;

/// Why there is no connection. All requests that waited for it share this.
#[derive(Debug, Clone)]
enum OpenError {
    NotHttp2,
    Failed(Arc<dyn Error + Send + Sync>),
}

impl Http2Connection {
    /// Sends the request and returns its answer, whose body may still arrive.
    pub(crate) async fn send(
        &self,
        dialer: &Dialer,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, SendError> {
        let mut attempts = 0;
        loop {
            let mut sender = match self.opened(dialer).await {
                Ok(sender) => sender,
                Err(OpenError::NotHttp2) => return Err(SendError::NotHttp2(Box::new(request))),
                Err(failed @ OpenError::Failed(_)) => return Err(SendError::Failed(failed.into())),
            };
            let mut error = match sender.try_send_request(request).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            attempts += 1;
            match error.take_message() {
                Some(unsent) if attempts < MAX_ATTEMPTS => request = unsent,
                _ => return Err(SendError::Failed(error.into_error().into())),
            }
        }
    }

    /// The connection, which is opened if it is not. Concurrent callers share one attempt.
    fn opened(&self, dialer: &Dialer) -> Shared<BoxFuture<'static, Opened>> {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = &*current
            && opened.peek().is_none_or(|opened| opened.as_ref().is_ok_and(|sender| !sender.is_closed()))
        {
            return opened.clone();
        }
        // In a task of its own: requests that give up do not interrupt it.
        let opening = dialer.runtime.spawn(dialer.clone().open());
        let opened = async { opening.await.unwrap_or_else(|ended| Err(OpenError::Failed(Arc::new(ended)))) };
        let opened = opened.boxed().shared();
        *current = Some(opened.clone());
        opened
    }
}

impl Dialer {
    /// Opens connections to `server` that belong to the current runtime.
    pub(crate) fn new(connector: Connector, server: Uri) -> Self {
        Self { connector, server, runtime: Handle::current() }
    }

    async fn open(self) -> Opened {
        let failed = |error: BoxError| OpenError::Failed(error.into());
        let stream = self.connector.oneshot(self.server).await.map_err(failed)?;
        if !stream.connected().is_negotiated_h2() {
            return Err(OpenError::NotHttp2);
        }
        let (sender, connection) = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .handshake(stream)
            .await
            .map_err(|error| failed(error.into()))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "a connection to the API server ended");
            }
        });
        Ok(sender)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHttp2 => f.write_str("the server does not speak HTTP/2"),
            Self::Failed(_) => f.write_str("cannot connect"),
        }
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NotHttp2 => None,
            Self::Failed(error) => Some(error.as_ref()),
        }
    }
}
