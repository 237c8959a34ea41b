//! Errors that a busy or broken API server returns, with its messages.

use serde_json::json;

use crate::model::status_error::StatusError;
use crate::request_log::Entry;

/// An error in response to a valid request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// 401: the credentials have expired.
    Unauthorized,
    /// 403: the permission was revoked.
    Forbidden,
    /// 422: a `ValidatingAdmissionPolicy` denies it.
    DeniedByPolicy,
    /// 409: the object was changed meanwhile.
    Conflict,
    /// 429 with a `Retry-After` header in plain text: priority and fairness throttles whoever sent the request.
    Throttled {
        /// Seconds.
        retry_after: u32,
    },
    /// 429 with a `Retry-After` header and a `Status`: this request should come later.
    TooManyRequests {
        /// Seconds.
        retry_after: u32,
    },
    /// 429 with a `Retry-After` header of one second: the storage of a new resource is not ready yet.
    Initializing,
    /// 500.
    Internal,
    /// 503.
    Unavailable,
    /// 504: the request timed out in the server.
    Timeout,
}

impl Failure {
    /// The answer to a request.
    pub(crate) fn refusal(&self, entry: &Entry) -> StatusError {
        match self {
            Self::Unauthorized => StatusError::new(401, "Unauthorized", "Unauthorized"),
            Self::Forbidden => {
                let Entry { user, verb, group, resource, subresource, namespace, name, .. } = entry;
                let of_part = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
                let place = match namespace.as_str() {
                    "" => String::from("at the cluster scope"),
                    namespace => format!("in the namespace {namespace:?}"),
                };
                let because = format!(
                    "User {user:?} cannot {verb} resource \"{resource}{of_part}\" in API group {group:?} {place}"
                );
                StatusError::forbidden(group, resource, name, &because)
            }
            Self::DeniedByPolicy => {
                let because = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: not here";
                let message = format!("{} {:?} is forbidden: {because}", entry.resource, entry.name);
                let causes = json!([{"message": because}]);
                let details = json!({"name": entry.name, "kind": entry.resource, "causes": causes});
                StatusError::new(422, "Invalid", message).with_details(details)
            }
            Self::Conflict => StatusError::conflict(
                &entry.group,
                &entry.resource,
                &entry.name,
                "the object has been modified; please apply your changes to the latest version and try again",
            ),
            Self::Throttled { retry_after } | Self::TooManyRequests { retry_after } => {
                later("Too many requests, please try again later.", *retry_after)
            }
            Self::Initializing => later("storage is (re)initializing", 1),
            Self::Internal => {
                let cause = "etcdserver: leader changed";
                StatusError::new(500, "InternalError", format!("Internal error occurred: {cause}"))
                    .with_details(json!({"causes": [{"message": cause}]}))
            }
            Self::Unavailable => {
                let message = "the server is currently unable to handle the request";
                StatusError::new(503, "ServiceUnavailable", message)
            }
            Self::Timeout => {
                let message = "Timeout: request did not complete within the allotted timeout";
                StatusError::new(504, "Timeout", message).with_details(json!({}))
            }
        }
    }
}

fn later(message: &str, seconds: u32) -> StatusError {
    let details = json!({"retryAfterSeconds": seconds});
    let mut refusal = StatusError::new(429, "TooManyRequests", message).with_details(details);
    refusal.retry_after = Some(seconds);
    refusal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_the_code_and_the_reason_that_clients_look_at() {
        let entry = Entry { resource: "nodes".into(), name: "n1".into(), ..Entry::default() };
        for (failure, code, reason, retry_after) in [
            (Failure::Unauthorized, 401, "Unauthorized", None),
            (Failure::Forbidden, 403, "Forbidden", None),
            (Failure::DeniedByPolicy, 422, "Invalid", None),
            (Failure::Conflict, 409, "Conflict", None),
            (Failure::TooManyRequests { retry_after: 3 }, 429, "TooManyRequests", Some(3)),
            (Failure::Initializing, 429, "TooManyRequests", Some(1)),
            (Failure::Internal, 500, "InternalError", None),
            (Failure::Unavailable, 503, "ServiceUnavailable", None),
            (Failure::Timeout, 504, "Timeout", None),
        ] {
            let refusal = failure.refusal(&entry);
            assert_eq!((refusal.code, refusal.retry_after), (code, retry_after));
            assert_eq!(refusal.to_status()["reason"], reason);
            let seconds = refusal.to_status()["details"]["retryAfterSeconds"].as_u64();
            assert_eq!(seconds, retry_after.map(u64::from), "{failure:?}");
        }
        let conflict = Failure::Conflict.refusal(&entry).message;
        assert!(
            conflict
                .starts_with("Operation cannot be fulfilled on nodes \"n1\": the object has been modified")
        );
    }
}
