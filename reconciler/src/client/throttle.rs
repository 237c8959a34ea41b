//! Pauses all requests of a term while the API server throttles them.
//!
//! The filters in front of the API answer 429 with `Retry-After` in plain text: API priority and fairness if the requests of
//! this service account are too many (`staging/src/k8s.io/apiserver/pkg/server/filters/priority-and-fairness.go` in
//! kubernetes/kubernetes), and an API server that shuts down (`with_retry_after.go`). Such an answer does not depend on the
//! request, so every request waits: reads and writes, evictions and new watches. Only the leader's lease, which another
//! client renews, does not.
//!
//! A 429 with a `Status` is about one request: a disruption budget or a webhook refuses it, or the storage of its resource
//! initializes.

use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{Response, StatusCode};
use kube::client::Body;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::{Layer, Service};
use tracing::warn;

/// The longest pause after one answer. Priority and fairness asks for 1 s to 32 s.
const MAX_PAUSE: Duration = Duration::from_secs(32);

/// Requests that waited are sent within this part of the pause after its end, not all at once.
const SPREAD_DIVISOR: u32 = 10;

/// Until when requests wait. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Throttle(watch::Sender<Pause>);

#[derive(Debug, Clone, Copy, Default)]
struct Pause {
    until: Option<Instant>,
    spread: Duration,
}

impl Throttle {
    /// Waits until the API server no longer throttles.
    pub(crate) async fn ended(&self) {
        while let Some(until) = self.paused_until() {
            tokio::time::sleep_until(until).await;
        }
    }

    /// The same, and for a random time after a pause.
    async fn ended_for_one(&self) {
        while self.paused_until().is_some() {
            self.ended().await;
            let spread = self.0.borrow().spread;
            tokio::time::sleep(random_part(spread)).await;
        }
    }

    fn paused_until(&self) -> Option<Instant> {
        self.0.borrow().until.filter(|until| *until > Instant::now())
    }

    fn begin(&self, pause: Duration) {
        let now = Instant::now();
        self.0.send_if_modified(|current| {
            if current.until.is_none_or(|until| until <= now) {
                warn!("the API server throttles: no requests for {} s", pause.as_secs());
            }
            let until = now + pause;
            let is_longer = current.until.is_none_or(|current| current < until);
            if is_longer {
                *current = Pause { until: Some(until), spread: pause / SPREAD_DIVISOR };
            }
            is_longer
        });
    }
}

/// How long an answer asks all requests to wait.
fn pause<B>(answer: &Response<B>) -> Option<Duration> {
    let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
    let is_refusal =
        matches!(answer.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let is_status = header(CONTENT_TYPE).is_some_and(|kind| !kind.starts_with("text/"));
    if !is_refusal || is_status {
        return None;
    }
    let seconds = header(RETRY_AFTER)?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_PAUSE))
}

fn random_part(whole: Duration) -> Duration {
    let random = u32::try_from(RandomState::new().hash_one(()) >> 32).unwrap_or_default();
    whole.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

impl<S> Layer<S> for Throttle {
    type Service = ThrottledClient<S>;

    fn layer(&self, inner: S) -> ThrottledClient<S> {
        ThrottledClient { throttle: self.clone(), inner }
    }
}

/// A client whose requests wait while the API server throttles.
#[derive(Debug, Clone)]
pub(crate) struct ThrottledClient<S> {
    throttle: Throttle,
    inner: S,
}

impl<S, B> Service<http::Request<Body>> for ThrottledClient<S>
where
    S: Service<http::Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let answer = self.inner.call(request);
        let throttle = self.throttle.clone();
        Box::pin(async move {
            // The request is sent when its answer is first polled.
            throttle.ended_for_one().await;
            let answer = answer.await;
            if let Some(pause) = answer.as_ref().ok().and_then(pause) {
                throttle.begin(pause);
            }
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use super::*;

    const TEXT: &str = "text/plain; charset=utf-8";
    const STATUS: &str = "application/json";

    fn answer(code: u16, kind: &str, retry_after: Option<&str>) -> Response<()> {
        let mut answer = Response::builder().status(code).header(CONTENT_TYPE, kind);
        if let Some(wait) = retry_after {
            answer = answer.header(RETRY_AFTER, wait);
        }
        answer.body(()).unwrap()
    }

    #[test]
    fn only_an_answer_that_does_not_come_from_the_api_pauses_all_requests() {
        let check = |code, kind, retry_after, expected: Option<u64>| {
            let found = pause(&answer(code, kind, retry_after));
            assert_eq!(found, expected.map(Duration::from_secs), "{code} {kind} {retry_after:?}");
        };
        check(429, TEXT, Some("1"), Some(1));
        check(503, TEXT, Some("5"), Some(5));
        check(429, TEXT, Some("86400"), Some(32));
        check(429, STATUS, Some("10"), None);
        check(429, "application/vnd.kubernetes.protobuf", Some("10"), None);
        check(429, TEXT, None, None);
        check(429, TEXT, Some("Thu, 01 Jan 2026 00:00:00 GMT"), None);
        check(200, TEXT, Some("1"), None);
        check(404, TEXT, Some("1"), None);
    }

    /// A server behind a throttle that gives these answers and then accepts everything, and when each request arrived.
    fn server(
        throttle: &Throttle,
        answers: Vec<Response<()>>,
    ) -> (impl Service<http::Request<Body>, Future: Send + 'static>, Arc<Mutex<Vec<Duration>>>) {
        let (answers, began) = (Arc::new(Mutex::new(answers.into_iter())), Instant::now());
        let arrived = Arc::<Mutex<Vec<Duration>>>::default();
        let log = arrived.clone();
        let service = tower::service_fn(move |_| {
            let (answers, log) = (answers.clone(), log.clone());
            async move {
                log.lock().unwrap().push(began.elapsed());
                tokio::task::yield_now().await;
                let next = answers.lock().unwrap().next();
                Ok::<_, Infallible>(next.unwrap_or_else(|| answer(200, STATUS, None)))
            }
        });
        (throttle.layer(service), arrived)
    }

    fn request() -> http::Request<Body> {
        http::Request::new(Body::empty())
    }

    #[tokio::test(start_paused = true)]
    async fn requests_wait_for_the_longest_pause_and_are_not_sent_all_at_once() {
        let throttle = Throttle::default();
        let throttled = ["10", "2"].map(|wait| answer(429, TEXT, Some(wait)));
        let (mut client, arrived) = server(&throttle, throttled.to_vec());
        // Both are sent before the first answer.
        let _ = tokio::join!(client.call(request()), client.call(request()));
        let waiting: Vec<_> = (0..20).map(|_| client.call(request())).collect();
        let _ = futures::future::join_all(waiting).await;
        let arrived = arrived.lock().unwrap();
        assert!(arrived[..2].iter().all(Duration::is_zero));
        let late = &arrived[2..];
        let range = Duration::from_secs(10)..Duration::from_millis(11_010);
        assert!(late.iter().all(|at| range.contains(at)), "{late:?}");
        assert!(
            late.iter().max().unwrap().abs_diff(*late.iter().min().unwrap()) > Duration::from_millis(100)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_of_one_request_delays_no_other() {
        let throttle = Throttle::default();
        let (mut client, arrived) = server(&throttle, vec![answer(429, STATUS, Some("10"))]);
        let _ = client.call(request()).await;
        let _ = client.call(request()).await;
        assert!(arrived.lock().unwrap().iter().all(Duration::is_zero));
        throttle.ended().await;
    }
}
