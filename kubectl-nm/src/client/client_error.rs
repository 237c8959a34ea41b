//! What an error of the client means: there is no way to the server, the server refuses, or what answers is none.

use std::error::Error as _;
use std::io;

use kube::core::Status;

use crate::connection::{ConnectionError, Foreign};
use crate::error::{Error, RESOURCE, UNWORDED};

/// What every API server tells, as it is asked for.
pub(crate) const VERSION: &str = "get /version";

/// What is said of a server that says nothing.
pub(crate) const SILENT: &str = "it does not answer";

/// How much is told of an answer that makes no sense.
const EXCERPT: usize = 160;

impl Error {
    /// What an error of the client means. `asked` is what was asked for, as RBAC words it.
    pub(crate) fn from_client(error: kube::Error, asked: &str, server: &str) -> Self {
        let error = match ConnectionError::of_credentials(error, server) {
            Ok(error) => return Self::Connection(error),
            Err(error) => error,
        };
        let server = server.to_owned();
        match error {
            kube::Error::Api(status) => refusal(status, asked, server),
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => {
                Self::NoApiServer { server, code: 0, said: innermost(&error) }
            }
            other if is_refused(&other) => Self::Refused { server },
            other => match causes(&other).find_map(|cause| cause.downcast_ref::<Foreign>()) {
                Some(foreign) => {
                    Self::NoApiServer { server, code: foreign.0.as_u16(), said: foreign.to_string() }
                }
                None => Self::Unreachable { server, cause: innermost(&other) },
            },
        }
    }
}

/// What a refusal means. An API server refuses in words of its own but for a few, which are plain text.
fn refusal(status: Box<Status>, asked: &str, server: String) -> Error {
    let unworded = status.reason == UNWORDED;
    let text = status.message.trim();
    let is_foreign = text.is_empty() || text.starts_with('<') || status.code >= 500 || asked == VERSION;
    // A gateway's JSON reads as a Status in which nothing is set.
    let is_empty = status.reason.is_empty() && status.code == 0;
    if is_empty || (unworded && is_foreign) {
        let said = in_short(status.code, text);
        return Error::NoApiServer { server, code: status.code, said };
    }
    // A 404 for an object names the object; one for a resource that is not served names nothing.
    let names_an_object = status.details.as_ref().is_some_and(|details| !details.name.is_empty());
    match status.code {
        404 if names_an_object => Error::Server { asked: asked.to_owned(), status },
        404 if asked.ends_with(RESOURCE) => Error::NotInstalled { server },
        404 => Error::NotServed { server, asked: asked.to_owned() },
        _ => Error::Server { asked: asked.to_owned(), status },
    }
}

/// An answer with its HTTP code, but no page: `HTTP 502 Bad Gateway`, `HTTP 500 Internal Server Error, out of memory`.
fn in_short(code: u16, text: &str) -> String {
    let reason = http::StatusCode::from_u16(code).ok().and_then(|code| code.canonical_reason());
    let code = match (code, reason) {
        (0, _) => String::from("its refusal says nothing"),
        (code, None) => format!("HTTP {code}"),
        (code, Some(reason)) => format!("HTTP {code} {reason}"),
    };
    match text.lines().next().unwrap_or_default() {
        page if page.is_empty() || page.starts_with('<') => code,
        line => format!("{code}, {}", line.chars().take(EXCERPT).collect::<String>()),
    }
}

fn is_refused(error: &kube::Error) -> bool {
    causes(error).any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    })
}

/// What is at the bottom of it; the layers above only say that a request failed.
fn innermost(error: &kube::Error) -> String {
    let timed_out = causes(error).any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
    });
    if timed_out {
        return String::from(SILENT);
    }
    causes(error).last().map_or_else(|| error.to_string(), ToString::to_string)
}

/// An error's causes, the outermost first. I/O errors hide theirs behind `get_ref`.
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

    fn told(body: &Value, asked: &str) -> String {
        let status: Status = serde_json::from_value(body.clone()).unwrap();
        Error::from_client(kube::Error::Api(Box::new(status)), asked, "https://c:6443").to_string()
    }

    #[test]
    fn what_answers_and_is_no_api_server_is_told_with_address_and_code() {
        let page = |code: u16, body: &str| json!({"message": body, "reason": UNWORDED, "code": code});
        let list = format!("list {RESOURCE}");
        for (body, asked, said) in [
            (page(502, "<html><h1>502</h1></html>"), &*list, "HTTP 502 Bad Gateway"),
            (page(500, "out of memory\nbye"), &list, "HTTP 500 Internal Server Error, out of memory"),
            (page(503, ""), "list nodes", "HTTP 503 Service Unavailable"),
            (page(404, "<!doctype html>"), &list, "HTTP 404 Not Found"),
            (page(404, "404 page not found"), VERSION, "HTTP 404 Not Found, 404 page not found"),
            (page(403, "<html>log in</html>"), &list, "HTTP 403 Forbidden"),
            (json!({"error": "no route"}), &list, "its refusal says nothing"),
        ] {
            let expected = format!("error: https://c:6443 does not answer as an API server does: {said}");
            assert_eq!(told(&body, asked), expected);
        }
    }

    #[test]
    fn only_where_maintenances_are_not_served_they_are_to_be_installed() {
        let unknown = json!({"message": "404 page not found", "reason": UNWORDED, "code": 404});
        assert_eq!(
            told(&unknown, &format!("list {RESOURCE}")),
            format!("error: the cluster at https://c:6443 does not know NodeMaintenance ({RESOURCE})")
        );
        assert_eq!(
            told(&unknown, "list deployments.apps"),
            "error: the cluster at https://c:6443 does not know what it was asked to: list deployments.apps"
        );
    }

    #[test]
    fn an_answer_that_makes_no_sense_is_no_lack_of_a_connection() {
        let broken = serde_json::from_str::<Value>("<html>").unwrap_err();
        let error = Error::from_client(kube::Error::SerdeError(broken), VERSION, "https://c");
        assert!(error.to_string().starts_with("error: https://c does not answer as an API server does: "));
        let portal = kube::Error::Service(Box::new(Foreign(http::StatusCode::FOUND)));
        let error = Error::from_client(portal, VERSION, "https://c");
        assert!(error.to_string().ends_with(": HTTP 302 Found"), "{error}");
    }

    #[test]
    fn refused_connections_are_recognised_under_their_wrapping() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let error = kube::Error::Service(Box::new(io::Error::other(refused)));
        assert!(matches!(Error::from_client(error, "list x", "https://c"), Error::Refused { .. }));
        let slow = kube::Error::Service(Box::new(io::Error::from(io::ErrorKind::TimedOut)));
        let error = Error::from_client(slow, "list x", "https://c");
        assert_eq!(error.to_string(), "Unable to connect to the server https://c: it does not answer");
    }
}
