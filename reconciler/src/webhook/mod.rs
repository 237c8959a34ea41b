//! The validating webhook: every replica answers the API server's questions about maintenances over TLS.
//!
//! [`reviewer`] answers one question from what [`live`] reads; what it says is decided in `nm_shared::admission`. The
//! certificate that is [`served`] comes from a Secret that the program itself [keeps](keeper), or from [`files`] that
//! somebody else renews.

mod configuration;
mod credentials;
mod files;
mod keeper;
mod kept;
mod live;
mod reviewer;
mod served;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::header::CONTENT_TYPE;
use http::{Request, StatusCode};
use jiff::SignedDuration;
use kube::Client;
use nm_shared::admission_review::{self, Answer, Unreadable};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::flags::Flags;
use crate::metrics::Metrics;
use crate::readiness::Readiness;
use crate::server::{BindError, Server};
use crate::stop::stopped;
use keeper::Keeper;
use live::Cluster;
use reviewer::Reviewer;
use served::Served;

/// Where the API server posts to.
const PATH: &str = "/validate";

/// No review is larger: an object and what it was before, and etcd takes 1.5 MiB of each.
const LARGEST: usize = 4 << 20;

/// So many reviews are taken in at once; the others wait. It bounds what strangers can make us remember.
const AT_ONCE: usize = 32;

/// A review must have arrived within this time: who is slow holds a place that others wait for.
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
    let kept = if let Some(directory) = &flags.webhook_cert_dir {
        tokio::spawn(files::follow(directory.clone(), served))
    } else {
        let life = SignedDuration::from_secs(i64::from(flags.webhook_cert_lifetime));
        tokio::spawn(Keeper::new(client, &flags.namespace, life, served).run())
    };
    let router = router(Reviewer::new(Cluster::new(client.clone())));
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

fn router(reviewer: Reviewer) -> Router {
    let reviewer = Arc::new((reviewer, Semaphore::new(AT_ONCE)));
    let route = post(move |request: Request<Body>| {
        let reviewer = reviewer.clone();
        async move { review(&reviewer.0, &reviewer.1, request).await }
    });
    Router::new().route(PATH, route)
}

async fn review(reviewer: &Reviewer, intake: &Semaphore, request: Request<Body>) -> Response {
    // It is never closed.
    let turn = intake.acquire().await;
    let body = match timeout(PATIENCE, to_bytes(request.into_body(), LARGEST)).await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => return (StatusCode::PAYLOAD_TOO_LARGE, format!("{error}\n")).into_response(),
        Err(_) => {
            return (StatusCode::REQUEST_TIMEOUT, "the review did not arrive in time\n").into_response();
        }
    };
    let read = admission_review::read(&body);
    drop((body, turn));
    match read {
        Ok(question) => {
            let answer = reviewer.answer(&question).await;
            answered(&question.uid, &answer)
        }
        Err(Unreadable::NoMaintenance { uid, reason }) => answered(&uid, &Answer::Nonsense(reason)),
        Err(why @ Unreadable::NoReview(_)) => (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
    }
}

fn answered(uid: &str, answer: &Answer) -> Response {
    ([(CONTENT_TYPE, "application/json")], admission_review::answer(uid, answer).to_string()).into_response()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::Method;
    use serde_json::{Value, json};
    use tokio::time::Instant;
    use tower::{ServiceExt, service_fn};

    use super::*;

    /// The webhook in a cluster whose API server never answers.
    fn in_silence() -> Router {
        let silence = service_fn(|_: Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<Body>, Infallible>>()
        });
        router(Reviewer::new(Cluster::new(Client::new(silence, "default"))))
    }

    async fn posted(router: Router, body: impl Into<Body>) -> (StatusCode, String) {
        let request = Request::builder().method(Method::POST).uri(PATH).body(body.into()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        let (status, body) = (response.status(), to_bytes(response.into_body(), LARGEST).await.unwrap());
        (status, String::from_utf8(body.into()).unwrap())
    }

    fn creation(node: &str) -> String {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "operation": "CREATE", "name": "m",
            "resource": {"group": "nodemaintenance.medik8s.io", "resource": "nodemaintenances"},
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
