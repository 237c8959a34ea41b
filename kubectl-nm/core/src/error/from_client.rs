//! Conversion of the client's errors: the server cannot be reached, it refuses, or the response is not an API server's.

use std::error::Error as _;
use std::io;

use kube::core::Status;
use nm_connection::unsupported_certificate;

use crate::connection::{ConnectionError, NotApiServer};
use crate::error::{Error, RESOURCE, UNPARSED_REASON, UnreachableCause};

pub(crate) const GET_VERSION: &str = "get /version";

const EXCERPT_LENGTH: usize = 160;

impl Error {
    /// Converts an error of the client. `asked` is the request as RBAC words it.
    pub(crate) fn from_client(error: kube::Error, asked: &str, server: &str) -> Self {
        let error = match ConnectionError::of_credentials(error, server) {
            Ok(error) => return Self::Connection(error),
            Err(error) => error,
        };
        let server = server.to_owned();
        match error {
            kube::Error::Api(status) => refusal(status, asked, server),
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => {
                Self::NoApiServer { server, code: 0, response: innermost(&error) }
            }
            other if is_refused(&other) => Self::Refused { server },
            other => match causes(&other).find_map(|cause| cause.downcast_ref::<NotApiServer>()) {
                Some(page) => Self::NoApiServer { server, code: page.0.as_u16(), response: page.to_string() },
                None => Self::Unreachable { server, cause: unreachable_cause(&other) },
            },
        }
    }
}

/// Converts a refusal. API servers send a Status, except for a few refusals in plain text.
fn refusal(status: Box<Status>, asked: &str, server: String) -> Error {
    let is_unparsed = status.reason == UNPARSED_REASON;
    let text = status.message.trim();
    let is_foreign = text.is_empty() || text.starts_with('<') || status.code >= 500 || asked == GET_VERSION;
    // The JSON of a gateway is parsed as a Status without any field.
    let is_empty = status.reason.is_empty() && status.code == 0;
    if is_empty || (is_unparsed && is_foreign) {
        let response = excerpt(status.code, text);
        return Error::NoApiServer { server, code: status.code, response };
    }
    // A 404 for an object has its name; a 404 for a resource that is not served has none.
    let names_an_object = status.details.as_ref().is_some_and(|details| !details.name.is_empty());
    match status.code {
        404 if names_an_object => Error::Server { asked: asked.to_owned(), status },
        404 if asked.ends_with(RESOURCE) => Error::NotInstalled { server },
        404 => Error::NotServed { server, asked: asked.to_owned() },
        _ => Error::Server { asked: asked.to_owned(), status },
    }
}

/// A response in one line: `HTTP 502 Bad Gateway`, `HTTP 500 Internal Server Error, out of memory`.
fn excerpt(code: u16, text: &str) -> String {
    let reason = http::StatusCode::from_u16(code).ok().and_then(|code| code.canonical_reason());
    let code = match (code, reason) {
        (0, _) => String::from("its refusal has no message"),
        (code, None) => format!("HTTP {code}"),
        (code, Some(reason)) => format!("HTTP {code} {reason}"),
    };
    match text.lines().next().unwrap_or_default() {
        page if page.is_empty() || page.starts_with('<') => code,
        line => format!("{code}, {}", line.chars().take(EXCERPT_LENGTH).collect::<String>()),
    }
}

fn is_refused(error: &kube::Error) -> bool {
    causes(error).any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    })
}

/// Why a connection failed. The TLS library's errors are no types of ours; all that are about a certificate name it.
fn unreachable_cause(error: &kube::Error) -> UnreachableCause {
    let timed_out = causes(error).any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
    });
    if let Some(unsupported) = unsupported_certificate(error) {
        return UnreachableCause::Unsupported(unsupported.clone());
    }
    match innermost(error) {
        _ if timed_out => UnreachableCause::NoResponse,
        text if text.contains("certificate") => UnreachableCause::Certificate(text),
        text => UnreachableCause::Other(text),
    }
}

/// The root cause; the errors above it only report that a request failed.
fn innermost(error: &kube::Error) -> String {
    causes(error).last().map_or_else(|| error.to_string(), ToString::to_string)
}

/// The causes of an error, the outermost first. I/O errors return theirs from `get_ref` only.
fn causes(error: &kube::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |&cause| {
        let wrapped = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        wrapped.map(|inner| inner as &(dyn std::error::Error + 'static)).or_else(|| cause.source())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn message(body: &Value, asked: &str) -> String {
        let status: Status = serde_json::from_value(body.clone()).unwrap();
        Error::from_client(kube::Error::Api(Box::new(status)), asked, "https://c:6443").to_string()
    }

    #[test]
    fn responses_of_other_servers_are_reported_with_address_and_code() {
        let page = |code: u16, body: &str| json!({"message": body, "reason": UNPARSED_REASON, "code": code});
        let list = format!("list {RESOURCE}");
        for (body, asked, response) in [
            (page(502, "<html><h1>502</h1></html>"), &*list, "HTTP 502 Bad Gateway"),
            (page(500, "out of memory\nbye"), &list, "HTTP 500 Internal Server Error, out of memory"),
            (page(503, ""), "list nodes", "HTTP 503 Service Unavailable"),
            (page(404, "<!doctype html>"), &list, "HTTP 404 Not Found"),
            (page(404, "404 page not found"), GET_VERSION, "HTTP 404 Not Found, 404 page not found"),
            (page(403, "<html>log in</html>"), &list, "HTTP 403 Forbidden"),
            (json!({"error": "no route"}), &list, "its refusal has no message"),
        ] {
            let expected = format!("https://c:6443 does not respond like an API server: {response}");
            assert_eq!(message(&body, asked), expected);
        }
    }

    #[test]
    fn only_unserved_maintenances_mean_that_nothing_is_installed() {
        let unknown = json!({"message": "404 page not found", "reason": UNPARSED_REASON, "code": 404});
        assert_eq!(
            message(&unknown, &format!("list {RESOURCE}")),
            format!("the cluster at https://c:6443 does not serve NodeMaintenance ({RESOURCE})")
        );
        assert_eq!(
            message(&unknown, "list deployments.apps"),
            "the cluster at https://c:6443 does not serve this request: list deployments.apps"
        );
    }

    #[test]
    fn a_response_that_cannot_be_parsed_is_not_a_connection_error() {
        let broken = serde_json::from_str::<Value>("<html>").unwrap_err();
        let error = Error::from_client(kube::Error::SerdeError(broken), GET_VERSION, "https://c");
        assert!(error.to_string().starts_with("https://c does not respond like an API server: "));
        let portal = kube::Error::Service(Box::new(NotApiServer(http::StatusCode::FOUND)));
        let error = Error::from_client(portal, GET_VERSION, "https://c");
        assert!(error.to_string().ends_with(": HTTP 302 Found"), "{error}");
    }

    #[test]
    fn refused_connections_are_recognised_inside_other_errors() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let error = kube::Error::Service(Box::new(io::Error::other(refused)));
        assert!(matches!(Error::from_client(error, "list x", "https://c"), Error::Refused { .. }));
        let slow = kube::Error::Service(Box::new(io::Error::from(io::ErrorKind::TimedOut)));
        let error = Error::from_client(slow, "list x", "https://c");
        assert_eq!(error.to_string(), "Unable to connect to the server https://c: it does not respond");
    }
}
