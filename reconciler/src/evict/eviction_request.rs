//! One eviction or deletion: the request, and what its answer means.

use std::error::Error;
use std::io;
use std::time::Duration;

use kube::Client;
use kube::client::Body;
use kube::core::Status;
use kube::core::response::StatusDetails;
use nm_shared::cluster::pod;
use nm_shared::decide::decision::{Eviction, RemovalRequest};
use nm_shared::drain::eviction_outcome::EvictionOutcome;
use serde_json::json;

/// How long to wait for an answer. Admission webhooks may take 30 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(35);

/// Evicts or deletes the pod, and returns what the API server answers.
pub(crate) async fn send(client: &Client, eviction: &Eviction) -> EvictionOutcome {
    let request = match request(eviction) {
        Ok(request) => request,
        Err(error) => return EvictionOutcome::Unknown(error.to_string()),
    };
    match tokio::time::timeout(ANSWER_TIMEOUT, answer(client, request)).await {
        Ok(Ok(status)) => EvictionOutcome::from(&status),
        Ok(Err(error)) => EvictionOutcome::Unknown(connection_failure(&error)),
        Err(_) => {
            let seconds = ANSWER_TIMEOUT.as_secs();
            EvictionOutcome::Unknown(format!("no answer from the API server in {seconds} s"))
        }
    }
}

/// The request. kube's `Api::evict` writes the key `delete_options`, which the API server ignores, and with it the
/// precondition.
fn request(eviction: &Eviction) -> http::Result<http::Request<Body>> {
    let pod::PodNames { namespace, name, uid } = pod::names(&eviction.pod);
    let mut options = json!({"preconditions": {"uid": uid}});
    if let Some(seconds) = eviction.grace_period_seconds {
        options["gracePeriodSeconds"] = json!(seconds);
    }
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    let (request, body) = match eviction.request {
        RemovalRequest::Evict => {
            let metadata = json!({"namespace": namespace, "name": name});
            let body = json!({
                "apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options,
            });
            (http::Request::post(format!("{path}/eviction")), body)
        }
        RemovalRequest::Delete => (http::Request::delete(path), options),
    };
    request.header(http::header::CONTENT_TYPE, "application/json").body(body.to_string().into_bytes().into())
}

/// The API server's answer. kube's `Api::evict` drops the headers, and only `Retry-After` has the wait of a throttled
/// request.
async fn answer(client: &Client, request: http::Request<Body>) -> kube::Result<Status> {
    let (head, body) = client.send(request).await?.into_parts();
    // The whole body is read, so that the connection can be reused.
    let body = body.collect_bytes().await?;
    if head.status.is_success() {
        return Ok(Status { code: head.status.as_u16(), ..Status::default() });
    }
    Ok(error_status(&head, &body))
}

/// The status of a failed request. Throttling and proxies in front of the API server answer with plain text.
fn error_status(head: &http::response::Parts, body: &[u8]) -> Status {
    let mut status = serde_json::from_slice(body).unwrap_or_else(|_| Status {
        message: String::from_utf8_lossy(body).trim().to_owned(),
        ..Status::default()
    });
    status.code = head.status.as_u16();
    let wait = head.headers.get(http::header::RETRY_AFTER).and_then(|wait| wait.to_str().ok()?.parse().ok());
    if let Some(seconds) = wait {
        status.details.get_or_insert_with(no_details).retry_after_seconds = seconds;
    }
    status
}

fn no_details() -> StatusDetails {
    StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    }
}

/// Why there is no answer: the innermost cause, or what happened to the connection.
fn connection_failure(error: &(dyn Error + 'static)) -> String {
    let causes = || std::iter::successors(Some(error), |cause: &&(dyn Error + 'static)| (*cause).source());
    let io = causes().find_map(|cause| connection_error(cause.downcast_ref::<io::Error>()?.kind()));
    // A request that is reset, and a connection that does not answer pings, have no I/O error.
    let http = || causes().find_map(|cause| http_error(cause.downcast_ref::<hyper::Error>()?));
    let why = io.or_else(http).map(str::to_owned);
    let why = why.or_else(|| causes().last().map(ToString::to_string)).unwrap_or_default();
    format!("no answer from the API server: {why}")
}

fn http_error(error: &hyper::Error) -> Option<&'static str> {
    if error.is_timeout() {
        return Some("the connection timed out");
    }
    (!error.is_parse() && !error.is_user()).then_some("the connection was lost")
}

fn connection_error(kind: io::ErrorKind) -> Option<&'static str> {
    match kind {
        io::ErrorKind::ConnectionRefused => Some("the connection was refused"),
        io::ErrorKind::TimedOut => Some("the connection timed out"),
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe => Some("the connection was lost"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use serde_json::Value;
    use tokio::time::Instant;

    use super::*;

    fn eviction(request: RemovalRequest) -> Eviction {
        let pod = json!({"metadata": {"namespace": "ns", "name": "p", "uid": "u"}});
        let pod = Arc::new(serde_json::from_value(pod).unwrap());
        Eviction { pod, request, grace_period_seconds: Some(7), guards: Vec::new(), uses_disruption: None }
    }

    #[test]
    fn throttling_in_plain_text_is_understood() {
        let head = |wait: &str| {
            let response =
                http::Response::builder().status(429).header("Retry-After", wait).body(()).unwrap();
            response.into_parts().0
        };
        let text = "Too many requests, please try again later.";
        let throttled = |retry_after| EvictionOutcome::Throttled { retry_after, message: text.to_owned() };
        let check = |wait: &str, body: &str, expected: EvictionOutcome| {
            assert_eq!(EvictionOutcome::from(&error_status(&head(wait), body.as_bytes())), expected);
        };
        check("7", &format!("{text}\n"), throttled(Some(Duration::from_secs(7))));
        check("soon", text, throttled(None));
        check("7", &json!({"message": text}).to_string(), throttled(Some(Duration::from_secs(7))));
    }

    #[test]
    fn a_lost_connection_is_described() {
        let check = |error: kube::Error, why: &str| {
            assert_eq!(connection_failure(&error), format!("no answer from the API server: {why}"));
        };
        let io = |kind| kube::Error::Service(io::Error::new(kind, "peer closed, see https://docs.rs").into());
        check(io(io::ErrorKind::UnexpectedEof), "the connection was lost");
        check(io(io::ErrorKind::ConnectionRefused), "the connection was refused");
        check(kube::Error::Service("no route".into()), "no route");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_times_out_after_the_longest_webhook() {
        let silent = tower::service_fn(|_: http::Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, Infallible>>()
        });
        let client = Client::new(silent, "default");
        let begun = Instant::now();
        for sent in [RemovalRequest::Evict, RemovalRequest::Delete] {
            let outcome = tokio::time::timeout(2 * ANSWER_TIMEOUT, send(&client, &eviction(sent))).await;
            let message = "no answer from the API server in 35 s".to_owned();
            assert_eq!(outcome.expect("it ends by itself"), EvictionOutcome::Unknown(message));
        }
        assert_eq!(begun.elapsed().as_secs(), 2 * 35);
    }

    #[tokio::test]
    async fn the_precondition_is_in_delete_options_as_the_api_spells_them() {
        let evict = request(&eviction(RemovalRequest::Evict)).unwrap();
        assert_eq!(
            (evict.method().as_str(), evict.uri().path()),
            ("POST", "/api/v1/namespaces/ns/pods/p/eviction")
        );
        let body = read(evict).await;
        let options = json!({"preconditions": {"uid": "u"}, "gracePeriodSeconds": 7});
        assert_eq!(body["deleteOptions"], options);
        let delete = request(&eviction(RemovalRequest::Delete)).unwrap();
        assert_eq!(
            (delete.method().as_str(), delete.uri().path()),
            ("DELETE", "/api/v1/namespaces/ns/pods/p")
        );
        assert_eq!(read(delete).await, options);
    }

    async fn read(request: http::Request<Body>) -> Value {
        serde_json::from_slice(&request.into_body().collect_bytes().await.unwrap()).unwrap()
    }
}
