//! The validating webhook: every replica answers the API server's reviews of maintenances over TLS.
//!
//! [`reviewer`] answers a review with [live reads](live_reads); `nm_shared::admission` decides. The
//! [served certificate](served_certificate) comes from a Secret that the program itself [rotates](certificate_rotation),
//! or from [files](certificate_files) that someone else renews.

mod certificate_files;
mod certificate_rotation;
mod certificate_secret;
mod configuration;
mod credentials;
mod live_reads;
mod reviewer;
mod served_certificate;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody, to_bytes};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{Request, StatusCode};
use jiff::SignedDuration;
use kube::Client;
use nm_shared::admission::review::{self, InvalidReview, ReviewAnswer};
use nm_shared::api::names::WEBHOOK_PATH;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::config::flags::Flags;
use crate::runtime::shutdown::shutdown_begins;
use crate::server::{BindError, Server};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::readiness::Readiness;
use certificate_rotation::CertificateRotation;
use live_reads::LiveCluster;
use reviewer::Reviewer;
use served_certificate::ServedCertificate;

/// The largest review. etcd stores at most 1.5 MiB per object (`--max-request-bytes`), and a review contains the old and
/// the new object. The rest is for the request's metadata.
const MAX_REVIEW_BYTES: usize = 2 * (3 << 19) + (128 << 10);

/// How many reviews are answered at once. Others wait.
const MAX_CONCURRENT_REVIEWS: usize = 32;

/// The unit in which the memory of review bodies is limited. A parsed body may be ten times as large.
const BODY_CHUNK_BYTES: usize = 64 << 10;

/// How many chunks of bodies may be in memory at once: 6.5 MiB, which is two of the largest or many of the usual 4 KiB.
const MAX_BODY_CHUNKS: usize = 104;

/// How long the body of a review may take to arrive. Slow clients block others.
const BODY_TIMEOUT: Duration = Duration::from_secs(2);

/// How long reviews are answered after shutdown begins: until the API servers no longer send any to this replica.
const SHUTDOWN_DELAY: Duration = Duration::from_secs(3);

#[derive(Debug, thiserror::Error)]
pub(crate) enum WebhookError {
    #[error(transparent)]
    Address(#[from] BindError),
    #[error("cannot serve the webhook: {0}")]
    Tls(#[from] rustls::Error),
}

/// Serves the webhook until some time after shutdown begins, if it has an address. It never writes a maintenance or a
/// node, so it needs no lease.
///
/// # Errors
/// When the server cannot listen on the address.
pub(crate) async fn start(
    flags: &Flags,
    client: &Client,
    readiness: &Readiness,
    metrics: &Arc<Metrics>,
    shutdown: watch::Receiver<bool>,
) -> Result<Option<JoinHandle<()>>, WebhookError> {
    let Some(address) = flags.webhook_addr.0 else { return Ok(None) };
    let listener = Server::bind("webhook", "--webhook-addr", address).await?;
    let served = Arc::new(ServedCertificate::none(readiness.check("webhook"), metrics.clone()));
    let acceptor = served.acceptor()?;
    let certificate_task = if let Some(directory) = &flags.webhook_cert_dir {
        tokio::spawn(certificate_files::follow(directory.clone(), served))
    } else {
        let life = SignedDuration::from_secs(flags.webhook_cert_lifetime.into());
        tokio::spawn(CertificateRotation::new(client, &flags.namespace, life, served).run())
    };
    let router = router(Reviewer::new(LiveCluster::new(client.clone(), flags.external_etcd)));
    let handshake = move |stream: TcpStream| {
        let acceptor = acceptor.clone();
        async move {
            // Answers are small and sent at once.
            stream.set_nodelay(true)?;
            acceptor.accept(stream).await
        }
    };
    Ok(Some(tokio::spawn(async move {
        let delayed = async {
            shutdown_begins(shutdown).await;
            sleep(SHUTDOWN_DELAY).await;
        };
        listener.serve_over(handshake, router, delayed).await;
        certificate_task.abort();
    })))
}

struct ReviewHandler {
    reviewer: Reviewer,
    reviews: Semaphore,
    body_chunks: Semaphore,
}

fn router(reviewer: Reviewer) -> Router {
    let (reviews, body_chunks) = (Semaphore::new(MAX_CONCURRENT_REVIEWS), Semaphore::new(MAX_BODY_CHUNKS));
    let handler = Arc::new(ReviewHandler { reviewer, reviews, body_chunks });
    let review = move |request: Request<Body>| {
        let handler = handler.clone();
        async move {
            match handler.review(request).await {
                Ok(answer) => answer,
                Err((code, why)) => (code, format!("{why}\n")).into_response(),
            }
        }
    };
    Router::new().route(WEBHOOK_PATH, post(review))
}

impl ReviewHandler {
    /// Answers a review, or refuses it if it cannot be answered in time.
    async fn review(&self, request: Request<Body>) -> Result<Response, (StatusCode, String)> {
        let begun = Instant::now();
        let length = length(&request);
        if length > MAX_REVIEW_BYTES {
            let why = format!("a review may have at most {MAX_REVIEW_BYTES} bytes");
            return Err((StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        // The semaphores are never closed.
        let permits = async {
            let chunks = u32::try_from(length.div_ceil(BODY_CHUNK_BYTES)).unwrap_or(u32::MAX);
            (self.reviews.acquire().await, self.body_chunks.acquire_many(chunks).await)
        };
        let busy = |_| (StatusCode::SERVICE_UNAVAILABLE, "too many reviews at once".to_owned());
        let max_wait = reviewer::REVIEW_TIMEOUT.saturating_sub(BODY_TIMEOUT);
        let _permits = timeout(max_wait, permits).await.map_err(busy)?;
        let body = match timeout(BODY_TIMEOUT, to_bytes(request.into_body(), MAX_REVIEW_BYTES)).await {
            Ok(body) => body.map_err(|error| (StatusCode::PAYLOAD_TOO_LARGE, error.to_string()))?,
            Err(_) => {
                return Err((StatusCode::REQUEST_TIMEOUT, "the review did not arrive in time".to_owned()));
            }
        };
        let read = review::read(&body);
        drop(body);
        match read {
            Ok(question) => {
                let answer = self.reviewer.answer(&question, begun).await;
                Ok(answered(&question.uid, &answer))
            }
            Err(InvalidReview::NoMaintenance { uid, reason }) => {
                Ok(answered(&uid, &ReviewAnswer::Invalid(reason.to_string())))
            }
            Err(why @ InvalidReview::NoReview(_)) => Err((StatusCode::BAD_REQUEST, why.to_string())),
        }
    }
}

/// The length of a body; the maximum if the request does not declare it.
fn length(request: &Request<Body>) -> usize {
    let declared =
        request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let known = request.body().size_hint().upper().and_then(|length| usize::try_from(length).ok());
    declared.or(known).unwrap_or(MAX_REVIEW_BYTES)
}

fn answered(uid: &str, answer: &ReviewAnswer) -> Response {
    ([(CONTENT_TYPE, "application/json")], json!(review::answer(uid, answer)).to_string()).into_response()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::Method;
    use serde_json::Value;
    use tower::{ServiceExt, service_fn};

    use super::*;

    /// The webhook in a cluster whose API server never answers.
    fn without_answers() -> Router {
        let silence = service_fn(|_: Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<Body>, Infallible>>()
        });
        let reviewer = Reviewer::new(LiveCluster::new(Client::new(silence, "default"), false));
        router(reviewer)
    }

    async fn posted(router: Router, body: impl Into<Body>) -> (StatusCode, String) {
        let request = Request::builder().method(Method::POST).uri(WEBHOOK_PATH).body(body.into()).unwrap();
        answer(router, request).await
    }

    async fn answer(router: Router, request: Request<Body>) -> (StatusCode, String) {
        let response = router.oneshot(request).await.unwrap();
        let (status, body) =
            (response.status(), to_bytes(response.into_body(), MAX_REVIEW_BYTES).await.unwrap());
        (status, String::from_utf8(body.into()).unwrap())
    }

    fn creation(node: &str) -> String {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "operation": "CREATE", "name": "m", "userInfo": {},
            "kind": {"group": "nodemaintenance.medik8s.io", "version": "v1beta1", "kind": "NodeMaintenance"},
            "resource": {"group": "nodemaintenance.medik8s.io", "version": "v1beta1", "resource": "nodemaintenances"},
            "object": {"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
                "metadata": {"name": "m"}, "spec": {"nodeName": node}},
        }})
        .to_string()
    }

    #[tokio::test]
    async fn an_invalid_review_is_refused() {
        for (body, expected) in [
            (String::new(), StatusCode::BAD_REQUEST),
            ("{\"apiVersion\":".to_owned(), StatusCode::BAD_REQUEST),
            ("[".repeat(1 << 20), StatusCode::BAD_REQUEST),
            ("x".repeat(MAX_REVIEW_BYTES + 1), StatusCode::PAYLOAD_TOO_LARGE),
        ] {
            let (status, answer) = posted(without_answers(), body).await;
            assert_eq!(status, expected, "{answer}");
        }
    }

    #[tokio::test]
    async fn other_paths_are_not_found() {
        let never = || Body::from_stream(futures::stream::pending::<Result<Vec<u8>, Infallible>>());
        for path in ["/", "/validate/", "/validate/0", "/metrics"] {
            let request = Request::builder().method(Method::POST).uri(path).body(never()).unwrap();
            assert_eq!(
                answer(without_answers(), request).await,
                (StatusCode::NOT_FOUND, String::new()),
                "{path}"
            );
        }
        let get = Request::builder().uri(WEBHOOK_PATH).body(Body::empty()).unwrap();
        assert_eq!(answer(without_answers(), get).await.0, StatusCode::METHOD_NOT_ALLOWED);
    }

    #[tokio::test]
    async fn a_body_that_is_declared_too_large_is_not_read() {
        let never = Body::from_stream(futures::stream::pending::<Result<Vec<u8>, Infallible>>());
        let request = Request::builder().method(Method::POST).uri(WEBHOOK_PATH);
        let request = request.header(CONTENT_LENGTH, MAX_REVIEW_BYTES + 1);
        let (status, why) = answer(without_answers(), request.body(never).unwrap()).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{why}");
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_reviews_are_limited_and_those_that_wait_too_long_are_refused_in_time() {
        let router = without_answers();
        let begun = Instant::now();
        let asked = (0..2 * MAX_CONCURRENT_REVIEWS)
            .map(|number| posted(router.clone(), creation(&format!("n{number}"))));
        let answers = futures::future::join_all(asked).await;
        let of = |code: StatusCode| answers.iter().filter(|(status, _)| *status == code).count();
        assert_eq!(
            (of(StatusCode::OK), of(StatusCode::SERVICE_UNAVAILABLE)),
            (MAX_CONCURRENT_REVIEWS, MAX_CONCURRENT_REVIEWS)
        );
        assert!(begun.elapsed() < Duration::from_secs(10), "the configuration's timeout");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_times_out() {
        let never = Body::from_stream(futures::stream::pending::<Result<Vec<u8>, Infallible>>());
        let begun = Instant::now();
        assert_eq!(posted(without_answers(), never).await.0, StatusCode::REQUEST_TIMEOUT);
        assert!(begun.elapsed() <= Duration::from_secs(2), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_answer_from_the_api_server_reviews_are_answered_in_time() {
        let router = without_answers();
        let begun = Instant::now();
        let asked = ["n1", "n2"].map(|node| posted(router.clone(), creation(node)));
        for (status, answer) in futures::future::join_all(asked).await {
            let answer: Value = serde_json::from_str(&answer).unwrap();
            let denied = &answer["response"]["status"];
            assert_eq!(
                (status, &answer["response"]["uid"], &denied["code"]),
                (StatusCode::OK, &json!("u"), &json!(503))
            );
            assert!(denied["message"].as_str().unwrap().ends_with("; try again"), "{denied}");
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "the configuration's timeout");
    }
}
