//! The write fence of a leader: it closes by the clock before another replica may lead, whatever the leader itself has
//! noticed by then.
//!
//! A process can be paused for any time between two instructions, and does not notice that its lease was lost meanwhile.
//! Each request is therefore checked whenever it is about to make progress, and one that is too late is never sent. A
//! closed fence stays closed: the next term has its own.
//!
//! A fence closes four fifths of the lease's duration (12 of 15 s) after the time of the last renewal that the watch on the
//! lease has shown, by the wall clock and by the steady clock. Another replica takes the lease when it has seen no renewal for
//! the whole duration, by its own steady clock, so it does not matter what time their clocks show. What can still be late is
//! a request that was sent before and takes longer than the last fifth (3 s) to arrive, and a process that is paused between
//! the check and the write to its socket. Such a request does little: patches of nodes, leases, finalizers and statuses carry
//! a resourceVersion, evictions and deletions the uid of the pod.

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

/// Until when requests may be sent. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Fence {
    term: Duration,
    deadline: watch::Sender<Option<Deadline>>,
}

/// A moment, on the monotonic clock and on the wall clock, which also advances while the host is suspended.
#[derive(Debug, Clone, Copy)]
struct Deadline {
    monotonic: Instant,
    wall: SystemTime,
}

impl Deadline {
    fn after(left: Duration, now: Instant) -> Self {
        Self { monotonic: now + left, wall: SystemTime::now() + left }
    }

    fn is_ahead(self) -> bool {
        Instant::now() < self.monotonic && SystemTime::now() < self.wall
    }
}

impl Fence {
    /// A fence that stays open for `term` after each renewal, the first of which was at `renewed`.
    pub(crate) fn new(term: Duration, renewed: Timestamp) -> Self {
        let fence = Self { term, deadline: watch::Sender::new(None) };
        fence.deadline.send_replace(Some(fence.deadline_after(renewed)));
        fence
    }

    /// Extends the fence for a term after `renewed`, a time of this host's clock, unless it has closed.
    pub(crate) fn renew(&self, renewed: Timestamp) {
        let extended = self.deadline_after(renewed);
        self.deadline.send_if_modified(|deadline| {
            let is_open = deadline.is_some_and(Deadline::is_ahead);
            *deadline = is_open.then_some(extended);
            true
        });
    }

    pub(crate) fn close(&self) {
        self.deadline.send_replace(None);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.deadline.borrow().is_some_and(Deadline::is_ahead)
    }

    pub(crate) async fn closed(&self) {
        let mut changes = self.deadline.subscribe();
        while self.is_open() {
            let Some(deadline) = *changes.borrow_and_update() else { return };
            tokio::select! {
                () = tokio::time::sleep_until(deadline.monotonic) => {}
                _ = changes.changed() => {}
            }
        }
    }

    fn deadline_after(&self, renewed: Timestamp) -> Deadline {
        // Read before the wall clock: a pause in between makes the deadline earlier, never later.
        let now = Instant::now();
        let age = Duration::try_from(Timestamp::now().duration_since(renewed)).unwrap_or_default();
        Deadline::after(self.term.saturating_sub(age), now)
    }
}

impl<S> Layer<S> for Fence {
    type Service = FencedClient<S>;

    fn layer(&self, inner: S) -> FencedClient<S> {
        FencedClient { fence: self.clone(), inner }
    }
}

/// A client behind a fence. Reads always pass. A write that is too late never resolves: what waits for it ends with the
/// term.
#[derive(Debug, Clone)]
pub(crate) struct FencedClient<S> {
    fence: Fence,
    inner: S,
}

impl<S> Service<http::Request<Body>> for FencedClient<S>
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
        let is_read = request.method() == Method::GET;
        let mut answer = Box::pin(self.inner.call(request));
        let fence = self.fence.clone();
        // A request may wait for a connection or for credentials, so it is checked whenever it continues.
        Box::pin(poll_fn(move |context| {
            if is_read || fence.is_open() { answer.as_mut().poll(context) } else { Poll::Pending }
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

    /// A server behind a fence that answers at once, and how many requests it has received.
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
    async fn only_reads_pass_after_the_term() {
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
    async fn a_renewal_in_time_keeps_it_open_and_a_late_one_does_not() {
        let fence = Fence::new(TERM, Timestamp::now());
        tokio::time::advance(ALMOST).await;
        fence.renew(Timestamp::now());
        tokio::time::advance(ALMOST).await;
        assert!(fence.is_open());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!fence.is_open());
        fence.renew(Timestamp::now());
        assert!(!fence.is_open(), "another replica may lead already");
        fence.closed().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_counts_from_when_it_was_made_not_from_when_it_was_noticed() {
        let long_ago = Timestamp::now() - TERM;
        assert!(!Fence::new(TERM, long_ago).is_open());
        let fence = Fence::new(TERM, Timestamp::now());
        fence.renew(long_ago);
        assert!(!fence.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_when_the_fence_closes_is_not_sent() {
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
