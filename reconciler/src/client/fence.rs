//! The fence before everything that a leader writes: it closes by the clock, before anybody else may lead, whatever the
//! leader itself has noticed by then.
//!
//! A process can be stopped for any time between two instructions, and a lease that was lost meanwhile does not tell.
//! So each request is looked at whenever it is about to go on, and what comes too late is never sent. A fence that has
//! closed stays closed: the next term has another one.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use http::Method;
use jiff::Timestamp;
use kube::client::Body;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::{Layer, Service};

/// Until when requests may go out. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Fence {
    term: Duration,
    until: watch::Sender<Option<Limit>>,
}

/// A moment, by the clock that never goes back and by the one that goes on while the machine sleeps.
#[derive(Debug, Clone, Copy)]
struct Limit {
    steady: Instant,
    wall: SystemTime,
}

impl Limit {
    fn after(left: Duration, steady: Instant) -> Self {
        Self { steady: steady + left, wall: SystemTime::now() + left }
    }

    fn is_ahead(self) -> bool {
        Instant::now() < self.steady && SystemTime::now() < self.wall
    }
}

impl Fence {
    /// A fence that is open for a term after each renewal, the first of which was at `renewed`.
    pub(crate) fn new(term: Duration, renewed: Timestamp) -> Self {
        let fence = Self { term, until: watch::Sender::new(None) };
        fence.until.send_replace(Some(fence.limit(renewed)));
        fence
    }

    /// Opens it for a term from `renewed` on, a time by this machine's clock, unless it has closed.
    pub(crate) fn renew(&self, renewed: Timestamp) {
        let limit = self.limit(renewed);
        self.until.send_if_modified(|until| {
            let goes_on = until.is_some_and(Limit::is_ahead);
            *until = goes_on.then_some(limit);
            true
        });
    }

    /// Closes it.
    pub(crate) fn close(&self) {
        self.until.send_replace(None);
    }

    /// Whether requests may go out.
    pub(crate) fn is_open(&self) -> bool {
        self.until.borrow().is_some_and(Limit::is_ahead)
    }

    /// Resolves once it has closed.
    pub(crate) async fn closed(&self) {
        let mut changes = self.until.subscribe();
        while self.is_open() {
            let Some(limit) = *changes.borrow_and_update() else { return };
            tokio::select! {
                () = tokio::time::sleep_until(limit.steady) => {}
                _ = changes.changed() => {}
            }
        }
    }

    fn limit(&self, renewed: Timestamp) -> Limit {
        // Read before the wall clock: a stop in between makes the limit earlier, never later.
        let steady = Instant::now();
        let age = Duration::try_from(Timestamp::now().duration_since(renewed)).unwrap_or_default();
        Limit::after(self.term.saturating_sub(age), steady)
    }
}

/// Puts a client behind a fence.
impl<S> Layer<S> for Fence {
    type Service = Fenced<S>;

    fn layer(&self, inner: S) -> Fenced<S> {
        Fenced { fence: self.clone(), inner }
    }
}

/// A client behind a fence. Reading is never refused. Writing that comes too late is not answered, as there is nobody
/// left to hear it: what waits for it ends with the term.
#[derive(Debug, Clone)]
pub(crate) struct Fenced<S> {
    fence: Fence,
    inner: S,
}

impl<S> Service<http::Request<Body>> for Fenced<S>
where
    S: Service<http::Request<Body>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let reads = request.method() == Method::GET;
        let mut answer = Box::pin(self.inner.call(request));
        let fence = self.fence.clone();
        // A request may wait for its connection or its credentials, so it is looked at each time it goes on.
        Box::pin(poll_fn(move |context| {
            if reads || fence.is_open() { answer.as_mut().poll(context) } else { Poll::Pending }
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt;
    use tokio::sync::Notify;

    use super::*;

    const TERM: Duration = Duration::from_secs(12);
    const ALMOST: Duration = Duration::from_secs(11);

    fn request(method: Method) -> http::Request<Body> {
        http::Request::builder().method(method).body(Body::empty()).unwrap()
    }

    /// A server that answers at once, behind a fence, and how many requests it has had.
    fn server(fence: &Fence) -> (impl Service<http::Request<Body>, Future: Send>, Arc<AtomicUsize>) {
        let served = Arc::new(AtomicUsize::new(0));
        let count = served.clone();
        let service = tower::service_fn(move |_| {
            let count = count.clone();
            async move { Ok::<_, Infallible>(count.fetch_add(1, Ordering::Relaxed)) }
        });
        (fence.layer(service), served)
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_but_reading_passes_once_the_term_is_over() {
        let fence = Fence::new(TERM, Timestamp::now());
        let (mut client, served) = server(&fence);
        for method in [Method::GET, Method::POST, Method::PATCH, Method::PUT, Method::DELETE] {
            assert!(client.call(request(method)).now_or_never().is_some());
        }
        tokio::time::advance(TERM).await;
        for method in [Method::POST, Method::PATCH, Method::PUT, Method::DELETE] {
            assert!(client.call(request(method)).now_or_never().is_none());
        }
        assert_eq!(served.load(Ordering::Relaxed), 5);
        assert!(client.call(request(Method::GET)).now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_in_time_keeps_it_open_and_one_that_is_late_does_not() {
        let fence = Fence::new(TERM, Timestamp::now());
        tokio::time::advance(ALMOST).await;
        fence.renew(Timestamp::now());
        tokio::time::advance(ALMOST).await;
        assert!(fence.is_open());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!fence.is_open());
        fence.renew(Timestamp::now());
        assert!(!fence.is_open(), "somebody else may lead already");
        fence.closed().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_counts_from_when_it_was_made_not_from_when_it_was_heard_of() {
        let long_ago = Timestamp::now() - TERM;
        assert!(!Fence::new(TERM, long_ago).is_open());
        let fence = Fence::new(TERM, Timestamp::now());
        fence.renew(long_ago);
        assert!(!fence.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_when_the_fence_closes_goes_no_further() {
        let fence = Fence::new(TERM, Timestamp::now());
        let connected = Arc::new(Notify::new());
        let connection = connected.clone();
        let mut client = fence.layer(tower::service_fn(move |_| {
            let connection = connection.clone();
            async move {
                connection.notified().await;
                Ok::<_, Infallible>(())
            }
        }));
        let mut eviction = client.call(request(Method::POST));
        assert!((&mut eviction).now_or_never().is_none());
        fence.close();
        connected.notify_one();
        assert!(eviction.now_or_never().is_none());
    }
}
