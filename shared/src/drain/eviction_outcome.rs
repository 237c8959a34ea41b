//! What an answer to an eviction means.
//!
//! The API server, its disruption budgets and any number of webhooks answer the same request; the code alone does not
//! tell them apart, so causes and messages are read too. Nothing else in the project looks at an eviction's status.

use std::time::Duration;

use kube::core::Status;

/// KubeVirt's webhook on evictions: it refuses, and live-migrates the virtual machine instead. Its sentences are those of
/// `pkg/virt-api/webhooks/validating-webhook/admitters/pod-eviction-admitter.go` in kubevirt/kubevirt, v1.3 to v1.9; before
/// that it left the refusal to a disruption budget.
const KUBEVIRT_WEBHOOK: &str = "virt-launcher-eviction-interceptor.kubevirt.io";

/// What came of an eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvictionOutcome {
    /// Accepted. The pod is gone only when its uid is.
    Accepted,
    /// There is no such pod any more.
    Gone,
    /// A disruption budget refuses; its name and numbers.
    RefusedByBudget(String),
    /// More than one budget matches, which no eviction passes until someone edits one.
    MultipleBudgets(String),
    /// KubeVirt is moving the virtual machine.
    Migrating(String),
    /// KubeVirt will never move it by itself.
    NotMigratable(String),
    /// An admission webhook refuses.
    RefusedByWebhook {
        /// The webhook's name.
        webhook: String,
        /// What it said.
        message: String,
    },
    /// The pod's namespace is terminating: evictions are refused and its pods end by themselves.
    NamespaceTerminating,
    /// We lack the right.
    Forbidden(String),
    /// The server asks for patience.
    Throttled {
        /// How long, if it said so.
        retry_after: Option<Duration>,
        /// What it said.
        message: String,
    },
    /// Nobody knows whether it took: the server failed, or the connection did.
    Unknown(String),
}

impl EvictionOutcome {
    /// The kind of outcome, in a word.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::Gone => "Gone",
            Self::RefusedByBudget(_) => "RefusedByBudget",
            Self::MultipleBudgets(_) => "MultipleBudgets",
            Self::Migrating(_) => "Migrating",
            Self::NotMigratable(_) => "NotMigratable",
            Self::RefusedByWebhook { .. } => "RefusedByWebhook",
            Self::NamespaceTerminating => "NamespaceTerminating",
            Self::Forbidden(_) => "Forbidden",
            Self::Throttled { .. } => "Throttled",
            Self::Unknown(_) => "Unknown",
        }
    }

    /// Whether the cluster refuses to let the pod go, and will for as long as nothing changes. A server that fails or asks
    /// for patience, and one that misses a right of ours, refuses for reasons of its own.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::RefusedByBudget(_)
                | Self::MultipleBudgets(_)
                | Self::NotMigratable(_)
                | Self::RefusedByWebhook { .. }
        )
    }

    /// Whether the budgets of the pod will change by it, or have spoken.
    pub fn is_seen_on_budgets(&self) -> bool {
        matches!(self, Self::Accepted | Self::RefusedByBudget(_))
    }
}

impl From<&Status> for EvictionOutcome {
    fn from(status: &Status) -> Self {
        let message = || status.message.clone();
        if let Some(webhook) = denying_webhook(&status.message) {
            return refused_by_webhook(webhook, &status.message);
        }
        match status.code {
            200..=299 => Self::Accepted,
            404 => Self::Gone,
            409 if status.message.contains("precondition") => Self::Gone,
            429 if has_cause(status, "DisruptionBudget") => {
                Self::RefusedByBudget(cause(status, "DisruptionBudget"))
            }
            429 => Self::Throttled { retry_after: retry_after(status), message: message() },
            500 if status.message.contains("more than one PodDisruptionBudget") => {
                Self::MultipleBudgets(message())
            }
            403 if has_cause(status, "NamespaceTerminating") => Self::NamespaceTerminating,
            // A budget whose status is out of order, not a right that is missing (`registry/core/pod/storage/eviction.go`
            // in kubernetes/kubernetes).
            403 if status.message.contains("disruptions allowed is negative") => {
                Self::RefusedByBudget(message())
            }
            401 | 403 => Self::Forbidden(message()),
            _ => Self::Unknown(message()),
        }
    }
}

fn refused_by_webhook(webhook: &str, message: &str) -> EvictionOutcome {
    let message = message.to_owned();
    let migrating = ["Eviction triggered evacuation of VMI", "Evacuation in progress"];
    let permanent = ["not live-migratable", "cannot evict hotplug pod"];
    let says = |phrases: &[&str]| phrases.iter().any(|phrase| message.contains(phrase));
    match webhook {
        KUBEVIRT_WEBHOOK if says(&permanent) => EvictionOutcome::NotMigratable(message),
        KUBEVIRT_WEBHOOK if says(&migrating) => EvictionOutcome::Migrating(message),
        _ => EvictionOutcome::RefusedByWebhook { webhook: webhook.to_owned(), message },
    }
}

/// The name in `admission webhook "NAME" denied the request…`.
fn denying_webhook(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("admission webhook \"")?;
    let (name, rest) = rest.split_once('"')?;
    rest.starts_with(" denied the request").then_some(name)
}

fn has_cause(status: &Status, reason: &str) -> bool {
    causes(status, reason).next().is_some()
}

fn cause(status: &Status, reason: &str) -> String {
    let messages: Vec<&str> = causes(status, reason).filter(|message| !message.is_empty()).collect();
    if messages.is_empty() { status.message.clone() } else { messages.join("; ") }
}

fn causes<'a>(status: &'a Status, reason: &'a str) -> impl Iterator<Item = &'a str> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.filter(move |cause| cause.reason == reason).map(|cause| cause.message.as_str())
}

fn retry_after(status: &Status) -> Option<Duration> {
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(code: u16, message: &str, details: &Value, expected: &EvictionOutcome) {
        let status: Status = serde_json::from_value(json!({
            "status": if code < 300 { "Success" } else { "Failure" },
            "code": code, "message": message, "details": details,
        }))
        .unwrap();
        assert_eq!(EvictionOutcome::from(&status), *expected, "{code} {message}");
    }

    fn caused(reason: &str, message: &str) -> Value {
        json!({"causes": [{"reason": reason, "message": message}]})
    }

    #[test]
    fn every_answer_has_one_meaning() {
        use EvictionOutcome::*;
        let none = &json!({});
        let unknown = |text: &str| Unknown(text.to_owned());
        check(201, "", none, &Accepted);
        check(404, "pods \"a\" not found", none, &Gone);
        check(
            409,
            "Operation cannot be fulfilled on Pod \"a\": the UID in the precondition (x) does not match the UID in record (y).",
            none,
            &Gone,
        );
        check(409, "the object has been modified", none, &unknown("the object has been modified"));
        let numbers = "The disruption budget guard needs 1 healthy pods and has 1 currently";
        let budget = RefusedByBudget(numbers.to_owned());
        check(429, "Cannot evict pod as it would violate…", &caused("DisruptionBudget", numbers), &budget);
        let throttled =
            Throttled { retry_after: Some(Duration::from_secs(3)), message: "slow down".to_owned() };
        check(429, "slow down", &json!({"retryAfterSeconds": 3}), &throttled);
        let two = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        check(500, two, none, &MultipleBudgets(two.to_owned()));
        check(403, "pods \"a\" is forbidden: …", &caused("NamespaceTerminating", ""), &NamespaceTerminating);
        check(403, "no", none, &Forbidden("no".to_owned()));
        check(500, "etcd is ill", none, &unknown("etcd is ill"));
        check(504, "timeout", none, &unknown("timeout"));
    }

    #[test]
    fn a_budget_out_of_order_is_no_missing_right() {
        let message = "pdb disruptions allowed is negative".to_owned();
        check(403, &message, &json!({}), &EvictionOutcome::RefusedByBudget(message.clone()));
    }

    #[test]
    fn a_webhook_is_named_whatever_code_it_chose() {
        let denied = "admission webhook \"guard.example.com\" denied the request: not today";
        let expected = EvictionOutcome::RefusedByWebhook {
            webhook: "guard.example.com".to_owned(),
            message: denied.to_owned(),
        };
        for code in [400, 403, 429, 500] {
            check(code, denied, &json!({}), &expected);
        }
    }

    #[test]
    fn kubevirt_refuses_because_it_migrates_or_because_it_cannot() {
        let says =
            |text: &str| format!("admission webhook \"{KUBEVIRT_WEBHOOK}\" denied the request: {text}");
        for text in ["Eviction triggered evacuation of VMI \"ns/vm\"", "Evacuation in progress: …"] {
            check(429, &says(text), &json!({}), &EvictionOutcome::Migrating(says(text)));
        }
        for text in [
            "VMI vm is configured with an eviction strategy but is not live-migratable",
            "cannot evict hotplug pod",
        ] {
            check(429, &says(text), &json!({}), &EvictionOutcome::NotMigratable(says(text)));
        }
    }
}
