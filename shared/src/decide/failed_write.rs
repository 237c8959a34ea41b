//! A write of a decision that failed, and how the maintenance shows it.

use kube::core::Status;

use crate::api::names::LEASE_NAMESPACE;
use crate::cluster::refusal::Refusal;
use crate::decide::decision::{EventReason, EventSubject, PendingEvent};
use crate::drain::eviction_outcome::AccessDenied;

/// A write that failed, or a read that the write depends on. Conflicts are not failures: the next reconcile resolves them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedWrite {
    /// What was attempted, such as `cannot patch node n1`.
    pub attempt: String,
    /// Why it failed.
    pub cause: WriteFailure,
}

/// Why a write failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteFailure {
    /// The reconciler lacks the permission.
    Denied(AccessDenied),
    /// The API server refuses this write: a policy, a webhook, a quota, or an object that is not valid.
    Refused(String),
    /// The API server failed or did not answer. Another attempt may succeed.
    Failed(String),
}

impl FailedWrite {
    /// The event that reports the failure where the status cannot be written either.
    pub fn event(&self) -> PendingEvent {
        let (WriteFailure::Denied(AccessDenied { message, .. })
        | WriteFailure::Refused(message)
        | WriteFailure::Failed(message)) = &self.cause;
        let note = format!("{}: {message}", self.attempt);
        PendingEvent { subject: EventSubject::Maintenance, reason: EventReason::WriteFailed, note, pod: None }
    }
}

impl WriteFailure {
    /// Classifies an answer of the API server; none for a conflict, or if the object is gone.
    pub fn of_status(status: &Status) -> Option<Self> {
        let message = || status.message.clone();
        Some(match (status.code, Refusal::from(status)) {
            (404 | 409, _) => return None,
            (_, Refusal::AccessDenied(_)) => Self::Denied(status.message.as_str().into()),
            // An API server that does not know who asks has decided nothing about the write.
            (401 | 408 | 429 | 500.., _) | (_, Refusal::NotReady) => Self::Failed(message()),
            _ => Self::Refused(message()),
        })
    }
}

/// The denial of access to leases, with a hint at the usual cause: if the namespace is removed, our permissions on leases
/// are removed with it, and the reconciler may not create namespaces.
pub fn lease_denied(denied: AccessDenied) -> AccessDenied {
    let message = format!(
        "{}; if the namespace {LEASE_NAMESPACE} was removed, apply lease_namespace.yaml, lease_role.yaml and \
         lease_role_binding.yaml of the manifests again",
        denied.message
    );
    AccessDenied { message, ..denied }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_denial_by_rbac_is_missing_access() {
        let of = |code, message: &str| {
            WriteFailure::of_status(&Status { code, message: message.to_owned(), ..Status::default() })
        };
        let rbac = "nodes \"n1\" is forbidden: User \"system:serviceaccount:a:b\" cannot patch resource \"nodes\" in API \
                    group \"\" at the cluster scope";
        assert!(matches!(of(403, rbac), Some(WriteFailure::Denied(denied)) if denied.access.is_some()));
        for (code, message) in [
            (
                403,
                "leases.coordination.k8s.io \"node-n1\" is forbidden: exceeded quota: leases, requested: \
                   count/leases.coordination.k8s.io=1, used: count/leases.coordination.k8s.io=0, limited: \
                   count/leases.coordination.k8s.io=0",
            ),
            (
                403,
                "nodes \"n1\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
            ),
            (422, "Lease.coordination.k8s.io \"node-n1\" is invalid: metadata.name: Invalid value"),
            (413, "Request entity too large: limit is 3145728"),
        ] {
            assert_eq!(of(code, message), Some(WriteFailure::Refused(message.to_owned())), "{code}");
        }
        for code in [401, 408, 429, 500, 503, 504] {
            assert_eq!(of(code, "no"), Some(WriteFailure::Failed("no".to_owned())), "{code}");
        }
        assert_eq!((of(404, "no"), of(409, "no")), (None, None));
    }
}
