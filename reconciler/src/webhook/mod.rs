//! The validating webhook: every replica answers the API server's questions about maintenances over TLS.
//!
//! [`reviewer`] answers one question from what [`live`] reads; what it says is decided in `nm_shared::admission`. The
//! certificate that is [`served`] comes from a Secret that the program itself [keeps](keeper), or from [`files`] that
//! somebody else renews. Only the API server knows at which of the [`paths`] it is answered.

mod certificate_files;
mod certificate_rotation;
mod certificate_secret;
mod configuration;
mod credentials;
mod live_reads;
mod paths;
mod reviewer;
mod served_certificate;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody, to_bytes};
use axum::response::{IntoResponse, Response};
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{Method, Request, StatusCode};
use jiff::SignedDuration;
use kube::Client;
use nm_shared::admission::review::{self, InvalidReview, ReviewAnswer};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::config::flags::Flags;
use crate::runtime::shutdown::stopped;
use crate::server::connections::Visitor;
use crate::server::{BindError, Server};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::readiness::Readiness;
use certificate_rotation::Keeper;
use live_reads::Cluster;
use paths::Paths;
use reviewer::Reviewer;
use served_certificate::Served;

/// The longest review. Nothing larger than 1.5 MiB is stored, for etcd takes no more (`--max-request-bytes`), and a review
/// has the object and what it was before. The rest is who asks, and how.
const LARGEST: usize = 2 * (3 << 19) + (128 << 10);

/// So many reviews are answered at once, with all that is read for them; the others wait.
const AT_ONCE: usize = 32;

/// A review has a place for each such part of its body. So two of the longest are answered at once, or many of the usual
/// 4 KiB: what is made of a body in memory may be ten times as large.
const PART: usize = 64 << 10;

/// All such places: 6.5 MiB.
const PARTS: usize = 104;

/// A review must have arrived within this time: who is slow holds places that others wait for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who is told to stop is asked for so long still, until everybody who asks has heard of it.
const LINGER: Duration = Duration::from_secs(3);

/// Why the webhook cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WebhookError {
    #[error(transparent)]
    Address(#[from] BindError),
    #[error("cannot serve the webhook: {0}")]
    Tls(#[from] rustls::Error),
}

/// Serves the webhook until a while after `stop`, if there is an address for it. It never writes a maintenance or a node, so it needs
/// no lease.
///
/// # Errors
/// When the address cannot be taken.
pub(crate) async fn start(
    flags: &Flags,
    client: &Client,
    readiness: &Readiness,
    metrics: &Arc<Metrics>,
    stop: watch::Receiver<bool>,
) -> Result<Option<JoinHandle<()>>, WebhookError> {
    let Some(address) = flags.webhook_addr.0 else { return Ok(None) };
    let listener = Server::bind("webhook", "--webhook-addr", address).await?;
    let served = Arc::new(Served::nothing(readiness.check("webhook"), metrics.clone()));
    let acceptor = served.acceptor()?;
    let (kept, paths) = if let Some(directory) = &flags.webhook_cert_dir {
        let paths = Arc::new(Paths::fixed(&flags.webhook_path));
        (tokio::spawn(certificate_files::follow(directory.clone(), served)), paths)
    } else {
        let (life, paths) = (i64::from(flags.webhook_cert_lifetime), Arc::new(Paths::default()));
        let life = SignedDuration::from_secs(life);
        (tokio::spawn(Keeper::new(client, &flags.namespace, life, served, paths.clone()).run()), paths)
    };
    let router = router(Reviewer::new(Cluster::new(client.clone())), paths);
    let prepare = move |stream: TcpStream| {
        let acceptor = acceptor.clone();
        async move {
            // Answers are small and awaited.
            stream.set_nodelay(true)?;
            acceptor.accept(stream).await
        }
    };
    Ok(Some(tokio::spawn(async move {
        listener.serve_over(prepare, router, lingering(stop)).await;
        kept.abort();
    })))
}

/// Turns true some time after `stop` did.
fn lingering(stop: watch::Receiver<bool>) -> watch::Receiver<bool> {
    let (sender, receiver) = watch::channel(false);
    tokio::spawn(async move {
        stopped(stop).await;
        sleep(LINGER).await;
        sender.send_replace(true);
        sender.closed().await;
    });
    receiver
}

/// What a request to the webhook needs.
struct Desk {
    reviewer: Reviewer,
    paths: Arc<Paths>,
    places: Semaphore,
    parts: Semaphore,
}

fn router(reviewer: Reviewer, paths: Arc<Paths>) -> Router {
    let (places, parts) = (Semaphore::new(AT_ONCE), Semaphore::new(PARTS));
    let desk = Arc::new(Desk { reviewer, paths, places, parts });
    Router::new().fallback(move |request: Request<Body>| {
        let desk = desk.clone();
        async move {
            if !desk.paths.lead_to(request.uri().path()) {
                // Whoever guesses begins with another connection.
                return (StatusCode::NOT_FOUND, [(CONNECTION, "close")]).into_response();
            }
            if let Some(visitor) = request.extensions().get::<Visitor>() {
                visitor.trust();
            }
            match desk.review(request).await {
                Ok(answer) => answer,
                Err((code, why)) => (code, format!("{why}\n")).into_response(),
            }
        }
    })
}

impl Desk {
    /// Answers a review: in time, or not at all.
    async fn review(&self, request: Request<Body>) -> Result<Response, (StatusCode, String)> {
        let begun = Instant::now();
        if request.method() != Method::POST {
            return Err((StatusCode::METHOD_NOT_ALLOWED, "reviews are posted".to_owned()));
        }
        let length = length(&request);
        if length > LARGEST {
            let why = format!("a review has {LARGEST} bytes at most");
            return Err((StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        // They are never closed.
        let turn = async {
            let parts = u32::try_from(length.div_ceil(PART)).unwrap_or(u32::MAX);
            (self.places.acquire().await, self.parts.acquire_many(parts).await)
        };
        let busy = |_| (StatusCode::SERVICE_UNAVAILABLE, "too many reviews at once".to_owned());
        let longest = reviewer::PATIENCE.saturating_sub(PATIENCE);
        let _turn = timeout(longest, turn).await.map_err(busy)?;
        let body = match timeout(PATIENCE, to_bytes(request.into_body(), LARGEST)).await {
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
                Ok(answered(&uid, &ReviewAnswer::Invalid(reason)))
            }
            Err(why @ InvalidReview::NoReview(_)) => Err((StatusCode::BAD_REQUEST, why.to_string())),
        }
    }
}

/// How long a body is said to be; as long as any may be where nobody says it.
fn length(request: &Request<Body>) -> usize {
    let said = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let known = request.body().size_hint().upper().and_then(|length| usize::try_from(length).ok());
    said.or(known).unwrap_or(LARGEST)
}

fn answered(uid: &str, answer: &ReviewAnswer) -> Response {
    ([(CONTENT_TYPE, "application/json")], json!(review::answer(uid, answer)).to_string()).into_response()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use serde_json::Value;
    use tower::{ServiceExt, service_fn};

    use super::*;

    const PATH: &str = "/validate/0123";

    /// The webhook in a cluster whose API server never answers.
    fn in_silence() -> Router {
        let silence = service_fn(|_: Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<Body>, Infallible>>()
        });
        let reviewer = Reviewer::new(Cluster::new(Client::new(silence, "default")));
        router(reviewer, Arc::new(Paths::fixed(PATH)))
    }

    async fn posted(router: Router, body: impl Into<Body>) -> (StatusCode, String) {
        let request = Request::builder().method(Method::POST).uri(PATH).body(body.into()).unwrap();
        answer(router, request).await
    }

    async fn answer(router: Router, request: Request<Body>) -> (StatusCode, String) {
        let response = router.oneshot(request).await.unwrap();
        let (status, body) = (response.status(), to_bytes(response.into_body(), LARGEST).await.unwrap());
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
    async fn what_is_no_review_is_answered_as_such() {
        for (body, expected) in [
            (String::new(), StatusCode::BAD_REQUEST),
            ("{\"apiVersion\":".to_owned(), StatusCode::BAD_REQUEST),
            ("[".repeat(1 << 20), StatusCode::BAD_REQUEST),
            ("x".repeat(LARGEST + 1), StatusCode::PAYLOAD_TOO_LARGE),
        ] {
            let (status, answer) = posted(in_silence(), body).await;
            assert_eq!(status, expected, "{answer}");
        }
    }

    #[tokio::test]
    async fn nobody_is_listened_to_elsewhere() {
        let never = || Body::from_stream(futures::stream::pending::<Result<Vec<u8>, Infallible>>());
        for path in ["/", "/validate", "/validate/", "/validate/0124", "/validate/0123/"] {
            let request = Request::builder().method(Method::POST).uri(path).body(never()).unwrap();
            assert_eq!(answer(in_silence(), request).await, (StatusCode::NOT_FOUND, String::new()), "{path}");
        }
        let get = Request::builder().uri(PATH).body(Body::empty()).unwrap();
        assert_eq!(answer(in_silence(), get).await.0, StatusCode::METHOD_NOT_ALLOWED);
    }

    #[tokio::test]
    async fn a_body_that_is_said_to_be_too_large_is_not_waited_for() {
        let never = Body::from_stream(futures::stream::pending::<Result<Vec<u8>, Infallible>>());
        let request = Request::builder().method(Method::POST).uri(PATH).header(CONTENT_LENGTH, LARGEST + 1);
        let (status, why) = answer(in_silence(), request.body(never).unwrap()).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{why}");
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_is_read_at_once_than_is_allowed_and_who_waits_in_vain_is_told_so_in_time() {
        let router = in_silence();
        let begun = Instant::now();
        let asked = (0..2 * AT_ONCE).map(|number| posted(router.clone(), creation(&format!("n{number}"))));
        let answers = futures::future::join_all(asked).await;
        let of = |code: StatusCode| answers.iter().filter(|(status, _)| *status == code).count();
        assert_eq!((of(StatusCode::OK), of(StatusCode::SERVICE_UNAVAILABLE)), (AT_ONCE, AT_ONCE));
        assert!(begun.elapsed() < Duration::from_secs(10), "the configuration's timeout");
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_come_to_the_point_is_not_listened_to() {
        let never = Body::from_stream(futures::stream::pending::<Result<Vec<u8>, Infallible>>());
        let begun = Instant::now();
        assert_eq!(posted(in_silence(), never).await.0, StatusCode::REQUEST_TIMEOUT);
        assert!(begun.elapsed() <= Duration::from_secs(2), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_keeps_silent_is_answered_before_it_gives_up() {
        let router = in_silence();
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
