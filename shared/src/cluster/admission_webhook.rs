//! What the API server reports about admission webhooks.
//!
//! The messages are parsed because no field of a Status contains these facts. They are the messages of
//! `staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/errors` in kubernetes/kubernetes.

/// The webhook that denied a request: the name in `admission webhook "NAME" denied the request…`.
pub fn denied_by(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("admission webhook \"")?;
    let (name, rest) = rest.split_once('"')?;
    rest.starts_with(" denied the request").then_some(name)
}

/// The webhook that the API server could not call, and why: `failed calling webhook "NAME": WHY`.
pub fn failed_call(message: &str) -> Option<(&str, &str)> {
    let (_, rest) = message.split_once("failed calling webhook \"")?;
    let (name, rest) = rest.split_once('"')?;
    Some((name, rest.strip_prefix(": ").unwrap_or(rest)))
}

/// Whether a dry run was refused because of a webhook with side effects, which is not called in one.
pub fn is_dry_run_unsupported(message: &str) -> bool {
    message.contains("does not support dry run")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_that_denies_is_named() {
        for (message, name) in [
            ("admission webhook \"a.io\" denied the request: no", Some("a.io")),
            ("admission webhook \"a.io\" denied the request without explanation", Some("a.io")),
            ("admission webhook \"a.io\" does not support dry run", None),
            ("nodes is forbidden", None),
        ] {
            assert_eq!(denied_by(message), name, "{message}");
        }
    }

    #[test]
    fn a_webhook_that_cannot_be_called_is_named_with_the_reason() {
        let message = "Internal error occurred: failed calling webhook \"a.io\": failed to call webhook: x";
        assert_eq!(failed_call(message), Some(("a.io", "failed to call webhook: x")));
        assert_eq!(failed_call("admission webhook \"a.io\" denied the request"), None);
    }
}
