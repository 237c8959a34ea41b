//! Pauses the requests of a term while the API server throttles them.
//!
//! The filters in front of the API answer 429 with `Retry-After` in plain text: API priority and fairness if the requests of
//! a flow are too many (`staging/src/k8s.io/apiserver/pkg/server/filters/priority-and-fairness.go` in kubernetes/kubernetes),
//! and an API server that shuts down (`with_retry_after.go`). Only the leader's lease, which another client renews, is not
//! paused.
//!
//! - An answer with the headers of priority and fairness concerns one [`Flow`]; without them, all requests wait.
//! - An eviction whose flow is throttled waits as long as the answer asks, and the others go on. They wait too once
//!   [`MAX_THROTTLED_IN_A_ROW`] of them have been throttled.
//! - A 429 with a `Status` is about one request: a disruption budget or a webhook refuses it, or the storage of its resource
//!   initializes.

use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{Response, StatusCode};
use kube::client::Body;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::{Layer, Service};
use tracing::warn;

use crate::client::request_metrics::verb;
use crate::client::transport::is_eviction;
use crate::telemetry::metrics::Verb;

/// The longest pause after one answer. Priority and fairness asks for 1 s to 32 s.
const MAX_PAUSE: Duration = Duration::from_secs(32);

/// Evictions and watches that waited are sent within this part of the pause after its end, not all at once. The other
/// requests, which are few, come first: otherwise a status would lose its turn whenever an eviction before it is throttled.
const SPREAD_DIVISOR: u32 = 10;

/// So many throttled evictions without another answer between them mean that there are too many, and not that one was
/// unlucky.
const MAX_THROTTLED_IN_A_ROW: usize = 3;

/// The header that priority and fairness adds to the answers to all requests that it has classified.
const FLOW_SCHEMA_HEADER: &str = "x-kubernetes-pf-flowschema-uid";

/// Requests that wait together. With the flow schemas of the installation, priority and fairness distinguishes them by
/// namespace: evictions have one, and nearly all other requests have none. Without them, each kind learns of the overload by an
/// answer of its own. The namespaces of evictions are one flow here, because fewer are in progress than the queues of one
/// namespace hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Evictions,
    Others,
}

impl Flow {
    fn of(request: &http::Request<Body>) -> Self {
        if is_eviction(request) { Self::Evictions } else { Self::Others }
    }
}

/// Until when requests wait. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Throttle {
    evictions: watch::Sender<Option<Pause>>,
    others: watch::Sender<Option<Pause>>,
    /// Evictions that were throttled since one was not.
    throttled_evictions: Arc<AtomicUsize>,
}

#[derive(Debug, Clone, Copy)]
struct Pause {
    began: Instant,
    until: Instant,
}

impl Pause {
    fn spread(&self) -> Duration {
        (self.until - self.began) / SPREAD_DIVISOR
    }
}

impl Throttle {
    /// Waits until the API server no longer throttles the flow.
    pub(crate) async fn ended(&self, flow: Flow) {
        while let Some(pause) = self.pause(flow) {
            tokio::time::sleep_until(pause.until).await;
        }
    }

    /// The same, and for a random time after a pause. A pause that begins meanwhile does not count: a request waits for one
    /// pause at most, however often others are throttled. That sends no more requests than were in progress before.
    async fn ended_for_one_of_many(&self, flow: Flow) {
        if let Some(pause) = self.pause(flow) {
            self.ended(flow).await;
            tokio::time::sleep(random_part(pause.spread())).await;
        }
    }

    fn pause(&self, flow: Flow) -> Option<Pause> {
        self.of(flow).borrow().filter(|pause| pause.until > Instant::now())
    }

    fn of(&self, flow: Flow) -> &watch::Sender<Option<Pause>> {
        match flow {
            Flow::Evictions => &self.evictions,
            Flow::Others => &self.others,
        }
    }

    /// Takes note of the answer to a request that was `sent` then.
    fn answered<B>(&self, flow: Flow, answer: &Response<B>, sent: Instant) {
        let Some(pause) = pause(answer) else {
            if flow == Flow::Evictions {
                self.throttled_evictions.store(0, Ordering::Relaxed);
            }
            return;
        };
        let is_about_flow = answer.headers().contains_key(FLOW_SCHEMA_HEADER);
        // The throttled eviction itself is sent again after the time that its answer asks for.
        if is_about_flow
            && flow == Flow::Evictions
            && self.throttled_evictions.fetch_add(1, Ordering::Relaxed) + 1 < MAX_THROTTLED_IN_A_ROW
        {
            return;
        }
        for paused in [Flow::Evictions, Flow::Others] {
            if paused == flow || !is_about_flow {
                self.begin(paused, pause, sent);
            }
        }
    }

    /// Pauses a flow for as long as the answer to a request asks that was `sent` then.
    fn begin(&self, flow: Flow, pause: Duration, sent: Instant) {
        let now = Instant::now();
        self.of(flow).send_if_modified(|current| {
            // What was sent before a pause shows the overload that led to it, not another one.
            let known = current.filter(|current| sent <= current.began);
            let began = known.map_or(now, |current| current.began);
            if current.is_none_or(|current| current.until <= now) && known.is_none() {
                let requests = if flow == Flow::Evictions { "evictions" } else { "other requests" };
                warn!("the API server throttles: no {requests} for {} s", pause.as_secs());
            }
            let until = began + pause;
            let is_longer = current.is_none_or(|current| current.until < until);
            if is_longer {
                *current = Some(Pause { began, until });
            }
            is_longer
        });
    }
}

/// How long an answer asks to wait, if it does not come from the API itself.
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
        let flow = Flow::of(&request);
        let is_one_of_many = flow == Flow::Evictions || verb(&request) == Verb::Watch;
        let answer = self.inner.call(request);
        let throttle = self.throttle.clone();
        Box::pin(async move {
            if is_one_of_many {
                throttle.ended_for_one_of_many(flow).await;
            } else {
                throttle.ended(flow).await;
            }
            // The request is sent when its answer is first polled.
            let sent = Instant::now();
            let answer = answer.await;
            if let Ok(answer) = &answer {
                throttle.answered(flow, answer, sent);
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
    fn only_an_answer_that_does_not_come_from_the_api_pauses_requests() {
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

    fn eviction() -> http::Request<Body> {
        http::Request::post("/api/v1/namespaces/shop/pods/cart/eviction").body(Body::empty()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn requests_wait_for_the_longest_pause_and_evictions_are_not_sent_all_at_once() {
        let throttle = Throttle::default();
        let throttled = ["10", "2"].map(|wait| answer(429, TEXT, Some(wait)));
        let (mut client, arrived) = server(&throttle, throttled.to_vec());
        // Both are sent before the first answer.
        let _ = tokio::join!(client.call(request()), client.call(request()));
        let waiting: Vec<_> = (0..20).map(|_| client.call(eviction())).collect();
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
    async fn one_throttled_eviction_delays_nothing_and_three_in_a_row_delay_evictions_only() {
        let throttle = Throttle::default();
        let mut of_flow = answer(429, TEXT, Some("2"));
        of_flow.headers_mut().insert(FLOW_SCHEMA_HEADER, "uid".parse().unwrap());
        let ok = || answer(201, STATUS, None);
        let refused = || of_flow.clone();
        let answers = vec![refused(), refused(), ok(), refused(), refused(), refused()];
        let (mut client, arrived) = server(&throttle, answers);
        for _ in 0..6 {
            let _ = client.call(eviction()).await;
        }
        let _ = client.call(request()).await;
        assert!(arrived.lock().unwrap().iter().all(Duration::is_zero));
        let _ = client.call(eviction()).await;
        assert!(*arrived.lock().unwrap().last().unwrap() >= Duration::from_secs(2));

        let throttle = Throttle::default();
        let (mut client, arrived) = server(&throttle, vec![refused()]);
        let _ = client.call(request()).await;
        let _ = client.call(eviction()).await;
        assert!(arrived.lock().unwrap().iter().all(Duration::is_zero), "evictions are another flow");
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_headers_of_a_flow_all_requests_wait() {
        let throttle = Throttle::default();
        let (mut client, arrived) = server(&throttle, vec![answer(429, TEXT, Some("2"))]);
        let _ = client.call(eviction()).await;
        let _ = client.call(request()).await;
        assert_eq!(arrived.lock().unwrap().last(), Some(&Duration::from_secs(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_one_pause_and_a_status_not_for_evictions() {
        let throttle = Throttle::default();
        let (mut client, arrived) = server(&throttle, vec![answer(429, TEXT, Some("1")); 20]);
        let _ = client.call(eviction()).await;
        let evictions: Vec<_> = (0..9).map(|_| client.call(eviction())).collect();
        let status = client.call(request());
        tokio::join!(futures::future::join_all(evictions), async {
            let _ = status.await;
            assert_eq!(arrived.lock().unwrap()[1..], [Duration::from_secs(1)]);
        });
        let last = *arrived.lock().unwrap().last().unwrap();
        assert!(last < Duration::from_millis(1_110), "{last:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn late_answers_to_requests_from_before_a_pause_do_not_prolong_it() {
        let throttle = Throttle::default();
        let (second, sent) = (Duration::from_secs(1), Instant::now());
        throttle.begin(Flow::Others, second, sent);
        tokio::time::advance(second / 2).await;
        throttle.begin(Flow::Others, second, sent);
        throttle.ended(Flow::Others).await;
        assert_eq!(sent.elapsed(), second, "the same overload");
        throttle.begin(Flow::Others, 2 * second, sent);
        throttle.ended(Flow::Others).await;
        assert_eq!(sent.elapsed(), 2 * second, "it asks for a longer pause");
        throttle.begin(Flow::Others, second, Instant::now());
        throttle.ended(Flow::Others).await;
        assert_eq!(sent.elapsed(), 3 * second, "another overload");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_of_one_request_delays_no_other() {
        let throttle = Throttle::default();
        let (mut client, arrived) = server(&throttle, vec![answer(429, STATUS, Some("10"))]);
        let _ = client.call(request()).await;
        let _ = client.call(request()).await;
        assert!(arrived.lock().unwrap().iter().all(Duration::is_zero));
        throttle.ended(Flow::Others).await;
    }
}
