//! The classifier of API answers: what an answer to an eviction means, and the facts in it.
//!
//! The API server, its disruption budgets and any number of webhooks answer the same request, and the status code alone
//! does not distinguish them. So the causes and messages of the API server are read too, like in [`refusal`], which judges
//! the refusals of all other requests as well. Our own sentences are never parsed.

use std::fmt;
use std::time::Duration;

use kube::core::Status;

use crate::api::grant::Grant;
use crate::api::status::{BudgetFacts, ForbiddenAccess, PolicyFacts};
use crate::cluster::disruption_budget::BudgetRefusal;
use crate::cluster::refusal::{self, Refusal};

/// KubeVirt's webhook on evictions of the pods that run virtual machines. It refuses, and live-migrates the virtual machine instead. Its messages are those of
/// `pkg/virt-api/webhooks/validating-webhook/admitters/pod-eviction-admitter.go` in kubevirt/kubevirt, v1.3 to v1.9;
/// earlier versions leave the refusal to a disruption budget.
pub const KUBEVIRT_WEBHOOK: &str = "virt-launcher-eviction-interceptor.kubevirt.io";

/// KubeVirt's webhook on evictions of the pods of disks that are plugged into running virtual machines, since 1.7. Before, the
/// other webhook refused these too.
pub const HOTPLUG_WEBHOOK: &str = "hotplug-pod-eviction-interceptor.kubevirt.io";

/// The API server denies access.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessDenied {
    /// The API server's sentence.
    pub message: String,
    /// Who was denied what, if the message contains it.
    pub access: Option<ForbiddenAccess>,
}

impl AccessDenied {
    /// The grant that gives the missing access, if it is not installed by default.
    pub fn grant(&self) -> Option<Grant> {
        Grant::of(self.access.as_ref()?)
    }
}

impl From<&str> for AccessDenied {
    fn from(message: &str) -> Self {
        Self { message: message.to_owned(), access: refusal::denied_access(message) }
    }
}

impl fmt::Display for AccessDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match self.grant() {
            Some(grant) => write!(f, "; {}", grant.hint()),
            None => Ok(()),
        }
    }
}

impl From<&str> for BudgetRefusal {
    /// Reads `The disruption budget NAME needs 2 healthy pods and has 2 currently`.
    fn from(message: &str) -> Self {
        Self { message: message.to_owned(), budget: refusing_budget(message) }
    }
}

fn refusing_budget(message: &str) -> Option<BudgetFacts> {
    let rest = message.strip_prefix("The disruption budget ")?;
    let (name, rest) = rest.split_once(' ')?;
    let numbers = || {
        let (desired, rest) = rest.strip_prefix("needs ")?.split_once(" healthy pods and has ")?;
        Some((desired.parse().ok()?, rest.strip_suffix(" currently")?.parse().ok()?))
    };
    let numbers: Option<(i32, i32)> = numbers();
    Some(BudgetFacts {
        name: name.to_owned(),
        desired_healthy: numbers.map(|(desired, _)| desired),
        current_healthy: numbers.map(|(_, current)| current),
        // It says these numbers only if it allows no disruption.
        disruptions_allowed: numbers.map(|_| 0),
        expected_pods: None,
    })
}

/// The outcome of an eviction.
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr)]
pub enum EvictionOutcome {
    /// Accepted. The pod is gone once no pod has its uid.
    Accepted,
    /// The pod no longer exists.
    Gone,
    /// A disruption budget refuses.
    RefusedByBudget(BudgetRefusal),
    /// More than one budget selects the pod, which the Eviction API refuses until all but one are changed.
    MultipleBudgets(String),
    /// KubeVirt is migrating the virtual machine: away from the node or, so that it can be migrated away later, to it.
    Migrating(String),
    /// KubeVirt cannot migrate the virtual machine.
    NotMigratable(String),
    /// KubeVirt keeps the pod of a disk for as long as its virtual machine runs on the node.
    HotplugPod(String),
    /// An admission webhook refuses.
    RefusedByWebhook {
        /// The webhook's name.
        webhook: String,
        /// Its message.
        message: String,
    },
    /// An admission policy refuses, or another admission plugin of the API server.
    RefusedByPolicy {
        /// The policy; none if another plugin refuses.
        policy: Option<PolicyFacts>,
        /// Its message.
        message: String,
    },
    /// The pod's namespace is terminating: evictions are refused, and its pods terminate on their own.
    NamespaceTerminating,
    /// The reconciler lacks access.
    Forbidden(AccessDenied),
    /// The API server throttles.
    Throttled {
        /// The time after which to retry, if the answer contains it.
        retry_after: Option<Duration>,
        /// Its message.
        message: String,
    },
    /// It is unknown whether the eviction took effect: the API server or the connection failed.
    Unknown(String),
}

impl EvictionOutcome {
    /// The kind of outcome, as a metric label.
    pub fn as_str(&self) -> &'static str {
        self.into()
    }

    /// Whether the cluster refuses the eviction, and will until something about the pod changes. An API server that fails,
    /// throttles or denies access has other reasons, and a plugged disk leaves with its virtual machine.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::RefusedByBudget(_)
                | Self::MultipleBudgets(_)
                | Self::NotMigratable(_)
                | Self::RefusedByWebhook { .. }
                | Self::RefusedByPolicy { .. }
        )
    }

    /// Whether the outcome changes or shows what the pod's budgets allow.
    pub fn concerns_budgets(&self) -> bool {
        matches!(self, Self::Accepted | Self::RefusedByBudget(_))
    }
}

impl From<&Status> for EvictionOutcome {
    fn from(status: &Status) -> Self {
        let message = || status.message.clone();
        let refusal = Refusal::from(status);
        match refusal {
            Refusal::Webhook { name } => return refused_by_webhook(&name, &status.message),
            Refusal::Policy(policy) => {
                return Self::RefusedByPolicy { policy: Some(policy), message: message() };
            }
            Refusal::NamespaceTerminating => return Self::NamespaceTerminating,
            Refusal::AccessDenied(access) => {
                return Self::Forbidden(AccessDenied { message: message(), access });
            }
            _ => {}
        }
        match status.code {
            200..=299 => Self::Accepted,
            404 => Self::Gone,
            409 if status.message.contains("precondition") => Self::Gone,
            429 if has_cause(status, "DisruptionBudget") => {
                Self::RefusedByBudget(cause(status, "DisruptionBudget").as_str().into())
            }
            429 => Self::Throttled { retry_after: retry_after(status), message: message() },
            500 if status.message.contains("more than one PodDisruptionBudget") => {
                Self::MultipleBudgets(message())
            }
            // A budget with an invalid status, or with more evicted pods that are still there than its status may list
            // (`registry/core/pod/storage/eviction.go` in kubernetes/kubernetes).
            403 if kind(status) == Some("poddisruptionbudget") => Self::RefusedByBudget(of_budget(status)),
            403 if refusal != Refusal::NotReady => Self::RefusedByPolicy { policy: None, message: message() },
            _ => Self::Unknown(message()),
        }
    }
}

fn refused_by_webhook(webhook: &str, message: &str) -> EvictionOutcome {
    let message = message.to_owned();
    let migrating =
        ["Eviction triggered evacuation of VMI", "Evacuation in progress", "Eviction request for target Pod"];
    let says = |phrases: &[&str]| phrases.iter().any(|phrase| message.contains(phrase));
    match webhook {
        HOTPLUG_WEBHOOK | KUBEVIRT_WEBHOOK if says(&["cannot evict hotplug pod"]) => {
            EvictionOutcome::HotplugPod(message)
        }
        // Its own requests to the API server failed, which says nothing about the pod.
        HOTPLUG_WEBHOOK | KUBEVIRT_WEBHOOK if says(&["kubevirt failed ", "failed getting "]) => {
            EvictionOutcome::Unknown(message)
        }
        KUBEVIRT_WEBHOOK if says(&["not live-migratable"]) => EvictionOutcome::NotMigratable(message),
        KUBEVIRT_WEBHOOK if says(&migrating) => EvictionOutcome::Migrating(message),
        _ => EvictionOutcome::RefusedByWebhook { webhook: webhook.to_owned(), message },
    }
}

/// The kind of object that an answer is about.
fn kind(status: &Status) -> Option<&str> {
    status.details.as_ref().map(|details| details.kind.as_str())
}

/// A refusal that names its budget as the object that it is about.
fn of_budget(status: &Status) -> BudgetRefusal {
    let name = status.details.as_ref().map(|details| details.name.clone()).filter(|name| !name.is_empty());
    let budget = name.map(|name| BudgetFacts { name, ..BudgetFacts::default() });
    BudgetRefusal { message: status.message.clone(), budget }
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
    fn each_answer_has_one_outcome() {
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
        let budget = RefusedByBudget(numbers.into());
        check(429, "Cannot evict pod as it would violate…", &caused("DisruptionBudget", numbers), &budget);
        let throttled =
            Throttled { retry_after: Some(Duration::from_secs(3)), message: "slow down".to_owned() };
        check(429, "slow down", &json!({"retryAfterSeconds": 3}), &throttled);
        let two = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        check(500, two, none, &MultipleBudgets(two.to_owned()));
        check(403, "pods \"a\" is forbidden: …", &caused("NamespaceTerminating", ""), &NamespaceTerminating);
        let denied =
            "pods \"a\" is forbidden: User \"u\" cannot create resource \"pods/eviction\" in API group \"\"";
        check(403, denied, none, &Forbidden(denied.into()));
        check(403, "no", none, &RefusedByPolicy { policy: None, message: "no".to_owned() });
        let early = "pods \"a\" is forbidden: not yet ready to handle request";
        check(403, early, none, &unknown(early));
        check(401, "Unauthorized", none, &unknown("Unauthorized"));
        check(500, "etcd is ill", none, &unknown("etcd is ill"));
        check(504, "timeout", none, &unknown("timeout"));
    }

    #[test]
    fn a_budget_refusal_has_the_budget_and_its_numbers() {
        let facts = |message: &str| BudgetRefusal::from(message).budget;
        let budget = |numbers: Option<(i32, i32)>| BudgetFacts {
            name: "cart".to_owned(),
            desired_healthy: numbers.map(|(desired, _)| desired),
            current_healthy: numbers.map(|(_, current)| current),
            disruptions_allowed: numbers.map(|_| 0),
            expected_pods: None,
        };
        let numbers = "The disruption budget cart needs 3 healthy pods and has 2 currently";
        assert_eq!(facts(numbers), Some(budget(Some((3, 2)))));
        let new = "The disruption budget cart is still being processed by the server.";
        assert_eq!(facts(new), Some(budget(None)));
        for other in ["", "pdb disruptions allowed is negative", "The disruption budget ", "no"] {
            assert_eq!(facts(other), None, "{other}");
        }
    }

    #[test]
    fn denied_access_has_the_user_the_verb_and_the_resource() {
        let message = "pods \"a\" is forbidden: User \"system:u\" cannot create resource \"pods/eviction\" in API group \"\"";
        let access = ForbiddenAccess {
            user: "system:u".to_owned(),
            verb: "create".to_owned(),
            resource: "pods/eviction".to_owned(),
        };
        let denied = AccessDenied::from(message);
        assert_eq!((denied.access.as_ref(), denied.to_string()), (Some(&access), message.to_owned()));
        let granted_apart = "User \"u\" cannot delete resource \"pods\" in API group \"\"";
        let denied = AccessDenied::from(granted_apart);
        assert_eq!(denied.grant(), Some(Grant::PodDeletion));
        assert_eq!(denied.to_string(), format!("{granted_apart}; {}", Grant::PodDeletion.hint()));
        for other in ["", "no", "User \"\" cannot create resource \"pods\"", "User \"u\" cannot"] {
            assert_eq!(AccessDenied::from(other).access, None, "{other}");
        }
    }

    #[test]
    fn a_budget_that_cannot_count_an_eviction_refuses_it_by_name() {
        for why in [
            "pdb disruptions allowed is negative",
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        ] {
            let message = format!("poddisruptionbudget.policy \"cart\" is forbidden: {why}");
            let details = json!({"name": "cart", "group": "policy", "kind": "poddisruptionbudget"});
            let budget = BudgetFacts { name: "cart".to_owned(), ..BudgetFacts::default() };
            let refusal = BudgetRefusal { message: message.clone(), budget: Some(budget) };
            check(403, &message, &details, &EvictionOutcome::RefusedByBudget(refusal));
        }
    }

    #[test]
    fn a_refusing_policy_is_named_with_its_binding_whatever_its_status_code() {
        let denied = "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: not today";
        let policy = PolicyFacts { name: "p".to_owned(), binding: Some("b".to_owned()) };
        let expected = EvictionOutcome::RefusedByPolicy { policy: Some(policy), message: denied.to_owned() };
        for code in [403, 413, 422] {
            check(code, denied, &json!({"causes": [{"message": denied}]}), &expected);
        }
        assert!(expected.is_refusal());
    }

    #[test]
    fn a_refusing_webhook_is_named_whatever_its_status_code() {
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
    fn kubevirts_webhooks_refuse_because_they_migrate_or_cannot_or_keep_a_disk() {
        let says =
            |webhook: &str, text: &str| format!("admission webhook \"{webhook}\" denied the request: {text}");
        for text in [
            "Eviction triggered evacuation of VMI \"ns/vm\"",
            "Evacuation in progress: …",
            "Eviction request for target Pod",
        ] {
            let message = says(KUBEVIRT_WEBHOOK, text);
            check(429, &message, &json!({}), &EvictionOutcome::Migrating(message.clone()));
        }
        let text = "VMI vm is configured with an eviction strategy but is not live-migratable";
        let message = says(KUBEVIRT_WEBHOOK, text);
        check(429, &message, &json!({}), &EvictionOutcome::NotMigratable(message.clone()));
        for webhook in [KUBEVIRT_WEBHOOK, HOTPLUG_WEBHOOK] {
            let message =
                says(webhook, "cannot evict hotplug pod: d associated with running vmi: vm in namespace ns");
            check(429, &message, &json!({}), &EvictionOutcome::HotplugPod(message.clone()));
        }
        for (webhook, text) in [
            (HOTPLUG_WEBHOOK, "failed getting owner for hotplug pod: timeout"),
            (KUBEVIRT_WEBHOOK, "kubevirt failed getting the vmi: timeout"),
        ] {
            let message = says(webhook, text);
            check(429, &message, &json!({}), &EvictionOutcome::Unknown(message.clone()));
        }
        let (webhook, message) = ("other.example.com", says("other.example.com", "cannot evict hotplug pod"));
        let expected =
            EvictionOutcome::RefusedByWebhook { webhook: webhook.to_owned(), message: message.clone() };
        check(429, &message, &json!({}), &expected);
    }
}
