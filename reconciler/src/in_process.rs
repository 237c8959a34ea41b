//! A leader in this process, for tests: it works for one term on any API server, is killed at any request, and reads a
//! clock that the test moves.
//!
//! It needs no socket and no thread of its own, so on tokio's paused time hours of its work take milliseconds.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use http::{Request, Response};
use http_body_util::BodyExt;
use jiff::Timestamp;
use kube::client::{Body, DynBody};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tower::{Service, ServiceExt};

use crate::client::TermClient;
use crate::client::fence::Fence;
use crate::config::flags::Flags;
use crate::leader_term::{self, Term};
pub use crate::runtime::clock::Clock;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::readiness::Readiness;
use crate::watch::watch_stream::SILENCE_TIMEOUT;

/// A term that does not end by itself.
const ENDLESS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// What an answer, or its absence, may be.
type BoxError = Box<dyn Error + Send + Sync>;

/// A leader during its term.
#[derive(Debug)]
pub struct Leader {
    fence: Fence,
    work: JoinHandle<()>,
    _shutdown: watch::Sender<bool>,
}

impl Leader {
    /// Begins a term with these flags on an API server. `failed` is called if a task ends before the term does.
    ///
    /// # Errors
    /// When the flags are not valid.
    pub fn start<S, B>(
        api_server: S,
        flags: &[&str],
        clock: Clock,
        failed: impl FnOnce(String) + Send + 'static,
    ) -> Result<Self, String>
    where
        S: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>, Future: Send>
            + Send
            + 'static,
        B: hyper::body::Body<Data = hyper::body::Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let arguments = ["nm-reconciler"].iter().chain(flags);
        let flags = Flags::try_parse_from(arguments).map_err(|error| error.to_string())?;
        let fence = Fence::new(ENDLESS, Timestamp::now());
        let (readiness, metrics) = (Readiness::default(), Arc::new(Metrics::new()));
        let service = api_server.map_err(Into::into).map_response(|answer: Response<B>| {
            answer.map(|body| Box::new(Box::pin(body.map_err(Into::into))) as Box<DynBody>)
        });
        let client = TermClient::in_process(service.boxed(), SILENCE_TIMEOUT, &metrics, &fence);
        let (sender, shutdown) = watch::channel(false);
        let term = Term { client, clock, flags, readiness, metrics, shutdown };
        let work = tokio::spawn(async move {
            if let Err(exit) = leader_term::run(term).await {
                failed(exit.to_string());
            }
        });
        Ok(Self { fence, work, _shutdown: sender })
    }

    /// Closes the write fence, as when the lease is lost. Reads continue until the leader is dropped.
    pub fn close_fence(&self) {
        self.fence.close();
    }
}

impl Drop for Leader {
    /// Ends the term at once. Tasks that it has started may be left; the API server has to leave their requests unanswered.
    fn drop(&mut self) {
        self.work.abort();
    }
}
