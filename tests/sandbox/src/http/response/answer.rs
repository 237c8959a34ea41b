//! Responses.

use bytes::Bytes;
use futures::Stream;
use http::header::{CONTENT_TYPE, RETRY_AFTER, WARNING};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use serde::Serialize;

use crate::model::status_error::StatusError;

/// The body of a response: bytes, or the events of a watch until the connection is lost.
pub type Body = UnsyncBoxBody<Bytes, ConnectionLost>;

/// The connection is lost: the response breaks off, or never comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the connection was lost")]
pub struct ConnectionLost;

/// JSON.
pub(crate) fn json(code: u16, value: &impl Serialize) -> Response<Body> {
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    bytes_of(code, "application/json", bytes)
}

/// Plain text.
pub(crate) fn text(code: u16, text: &str) -> Response<Body> {
    bytes_of(code, "text/plain; charset=utf-8", text.as_bytes().to_vec())
}

/// Bytes with a content type.
pub(crate) fn bytes_of(code: u16, content_type: &'static str, bytes: Vec<u8>) -> Response<Body> {
    let body = Full::new(Bytes::from(bytes)).map_err(|never| match never {}).boxed_unsync();
    finish(code, content_type, body)
}

/// The events of a watch, each as a line of JSON.
pub(crate) fn stream(events: impl Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    use futures::StreamExt;
    let frames = events.map(|bytes| Ok(Frame::data(bytes)));
    finish(200, "application/json", StreamBody::new(frames).boxed_unsync())
}

/// The response to an unknown path.
pub(crate) fn page_not_found() -> Response<Body> {
    text(404, "404 page not found\n")
}

/// Stands for a response that the client never receives.
pub(crate) fn lost() -> Response<Body> {
    let mut response = text(500, "");
    response.extensions_mut().insert(ConnectionLost);
    response
}

/// An error as a `Status`.
pub(crate) fn refusal(refusal: &StatusError) -> Response<Body> {
    let response = json(refusal.code, &refusal.to_status());
    warn(retry_after(response, refusal), &refusal.warnings)
}

/// The refusal of priority and fairness, in plain text and with the headers by which it names the classification.
pub(crate) fn throttled(refusal: &StatusError) -> Response<Body> {
    let mut response = text(refusal.code, &format!("{}\n", refusal.message));
    for name in ["x-kubernetes-pf-flowschema-uid", "x-kubernetes-pf-prioritylevel-uid"] {
        response.headers_mut().insert(name, HeaderValue::from_static("0f9e3a55-3f7f-4c83-8f0a-6d1d0c1b2a99"));
    }
    retry_after(response, refusal)
}

fn retry_after(mut response: Response<Body>, refusal: &StatusError) -> Response<Body> {
    if let Some(seconds) = refusal.retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Adds a `Warning` header for each text.
pub(crate) fn warn(mut response: Response<Body>, warnings: &[String]) -> Response<Body> {
    for warning in warnings {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
    response
}

fn finish(code: u16, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The result of a handler.
pub(crate) type HandlerResult = Result<Response<Body>, StatusError>;

/// 405
pub(crate) fn not_allowed() -> StatusError {
    let message = "the server does not allow this method on the requested resource";
    StatusError::new(405, "MethodNotAllowed", message).with_details(serde_json::json!({}))
}
