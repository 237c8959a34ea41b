//! Whether a maintenance may work on its node, or what it waits for.
//!
//! A lost lease is handled as the medik8s node-maintenance-operator does: it is retried every five seconds, and the
//! maintenance fails permanently after the fourth failure. The count is in the status, and the time of the last attempt is
//! that of the status, so a restart neither forgets nor repeats an attempt.

pub mod etcd;
pub mod etcd_guard;
pub mod max_unavailable_queue;
pub mod ownership;
pub mod quorum;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;

use crate::api::condition::ConditionReason;
use crate::api::maintenance::NodeMaintenance;
use crate::api::names::{LEASE_NAMESPACE, OVERRIDE_QUORUM_ANNOTATION};
use crate::cluster::node_lease::{self, Claim, ForeignHolder, LeaseWrite};
use crate::drain::node_patch;
use crate::gate::max_unavailable_queue::Queued;

/// The number of failed attempts to extend a lost lease after which the next failure is final.
const LEASE_RETRIES: i32 = 3;

/// The interval of these attempts.
const LEASE_RETRY_INTERVAL: SignedDuration = SignedDuration::from_secs(5);

/// Gates other than the node lease that prevent a maintenance from starting.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gate {
    /// Why etcd would lose its quorum.
    pub quorum: Option<String>,
    /// The position of the maintenance in the queue, if too many nodes are unavailable.
    pub queue: Option<Queued>,
}

/// Whether a maintenance may work on its node.
#[derive(Debug, Clone, PartialEq)]
pub enum GateResult {
    /// The maintenance may start, once `write` is done.
    Ours {
        /// The write that takes or renews the lease.
        write: Option<LeaseWrite>,
        /// When to renew the lease.
        renew_at: Option<Timestamp>,
    },
    /// The maintenance waits.
    Waits {
        /// The machine-readable reason.
        reason: ConditionReason,
        /// The human-readable message.
        error: String,
        /// The position, if the maintenance is in the queue.
        queue: Option<Queued>,
        /// When that may end, if it is known.
        until: Option<Timestamp>,
    },
    /// The maintenance has lost the lease and may get it back.
    Lost {
        /// Who has the lease.
        error: String,
        /// Failed attempts, this one included.
        attempts: i32,
        /// When to try again.
        next: Timestamp,
    },
    /// The maintenance has lost the lease permanently.
    Forfeited {
        /// The human-readable message.
        error: String,
    },
}

/// Whether the maintenance may begin although etcd may lose its quorum.
pub fn overrides_quorum(maintenance: &NodeMaintenance) -> bool {
    let annotations = maintenance.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(OVERRIDE_QUORUM_ANNOTATION)).is_some_and(|value| value == "true")
}

/// Whether the maintenance is only planned: it was suspended before it began. One that lost its node permanently has failed.
pub fn is_planned(maintenance: &NodeMaintenance, node: &Node) -> bool {
    let failures = maintenance.status.as_ref().map_or(0, |status| status.error_on_lease_count);
    ownership::is_planned(maintenance)
        && failures <= LEASE_RETRIES
        && !node_patch::record_names(node, ownership::uid(maintenance))
}

/// Whether `maintenance` may work on `node`, which has this lease.
pub fn evaluate(
    maintenance: &NodeMaintenance,
    node: &Node,
    lease: Option<&Lease>,
    gate: &Gate,
    now: Timestamp,
) -> GateResult {
    let status = maintenance.status.as_ref();
    let failures = status.map_or(0, |status| status.error_on_lease_count);
    if failures > LEASE_RETRIES {
        let error = format!("maintenance failed: lease could not be extended after {failures} attempts");
        return GateResult::Forfeited { error };
    }
    let had_it = ownership::has_begun(maintenance)
        || status.is_some_and(|status| status.drain_progress > 0)
        || node_patch::record_names(node, ownership::uid(maintenance));
    let claim = node_lease::claim(lease, node, now);
    if let Some(waits) = waits_for(maintenance, gate, &claim).filter(|_| !had_it) {
        return waits;
    }
    let foreign = match claim {
        Claim::Held { renew_at } => return GateResult::Ours { write: None, renew_at: Some(renew_at) },
        Claim::Take(write) => return GateResult::Ours { write: Some(write), renew_at: None },
        Claim::Foreign(foreign) => foreign,
    };
    let error =
        format!("failed to extend a lease that used to be owned by us: {}", held(maintenance, &foreign));
    let counted_at = status.and_then(|status| status.last_update.as_ref()).map_or(now, |at| at.0.min(now));
    let due = counted_at.saturating_add(LEASE_RETRY_INTERVAL).unwrap_or(now);
    if failures > 0 && due > now {
        return GateResult::Lost { error, attempts: failures, next: due };
    }
    GateResult::Lost {
        error,
        attempts: failures + 1,
        next: now.saturating_add(LEASE_RETRY_INTERVAL).unwrap_or(now),
    }
}

/// What a maintenance that has not begun waits for. The queue comes last: only a maintenance that waits for nothing else
/// is in it ([`crate::gate::max_unavailable_queue`]).
fn waits_for(maintenance: &NodeMaintenance, gate: &Gate, claim: &Claim) -> Option<GateResult> {
    if let Some(violation) = gate.quorum.as_ref().filter(|_| !overrides_quorum(maintenance)) {
        let error = format!("{violation}; the annotation {OVERRIDE_QUORUM_ANNOTATION}=true overrides this");
        let reason = ConditionReason::QuorumAtRisk;
        return Some(GateResult::Waits { reason, error, queue: None, until: None });
    }
    if let Claim::Foreign(foreign) = claim {
        let error =
            format!("failed to obtain a lease that is not owned by us: {}", held(maintenance, foreign));
        let (reason, until) = (ConditionReason::LeaseHeld, Some(foreign.until));
        return Some(GateResult::Waits { reason, error, queue: None, until });
    }
    let queued = gate.queue.as_ref()?;
    Some(GateResult::Waits {
        reason: ConditionReason::MaxUnavailable,
        error: queued.to_string(),
        queue: Some(queued.clone()),
        until: None,
    })
}

fn held(maintenance: &NodeMaintenance, foreign: &ForeignHolder) -> String {
    let lease = node_lease::name(&maintenance.spec.node_name);
    format!("lease {LEASE_NAMESPACE}/{lease} is held by {:?}", foreign.holder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::status::QueuePosition;
    use crate::gate::max_unavailable_queue::QueueReason;
    use serde_json::{Value, json};

    fn queued() -> Queued {
        let position = QueuePosition { position: 2, length: 3, limit: 1 };
        Queued { position, reason: QueueReason::ControlPlane }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + second).unwrap()
    }

    /// The result `second` seconds after someone else took the lease for an hour.
    fn after(second: i64, status: &Value) -> GateResult {
        after_with(&Gate::default(), second, status)
    }

    /// The same with a gate.
    fn after_with(gate: &Gate, second: i64, status: &Value) -> GateResult {
        let maintenance = serde_json::from_value(json!({
            "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
            "metadata": {"name": "m"}, "spec": {"nodeName": "n1"}, "status": status,
        }))
        .unwrap();
        let lease = serde_json::from_value(json!({"spec": {
            "holderIdentity": "nhc", "leaseDurationSeconds": 3600, "renewTime": "2026-01-01T00:00:00.000000Z",
        }}))
        .unwrap();
        let node = serde_json::from_value(json!({"metadata": {"name": "n1", "uid": "u"}})).unwrap();
        evaluate(&maintenance, &node, Some(&lease), gate, at(second))
    }

    #[test]
    fn a_maintenance_waits_for_the_lease_of_another_holder() {
        let GateResult::Waits { error, until, .. } = after(10, &json!({"phase": "Pending"})) else {
            panic!("no wait")
        };
        assert_eq!(until, Some(at(3600)));
        assert_eq!(
            error,
            "failed to obtain a lease that is not owned by us: lease medik8s-leases/node-n1 is held by \"nhc\""
        );
    }

    #[test]
    fn a_maintenance_that_waits_for_a_lease_is_not_in_the_queue() {
        let gate = Gate { queue: Some(queued()), ..Gate::default() };
        let reason = |second| match after_with(&gate, second, &json!({"phase": "Pending"})) {
            GateResult::Waits { reason, .. } => Some(reason),
            _ => None,
        };
        assert_eq!(reason(10), Some(ConditionReason::LeaseHeld));
        assert_eq!(reason(3600), Some(ConditionReason::MaxUnavailable));
    }

    #[test]
    fn a_lost_lease_is_tried_four_times_at_intervals_of_five_seconds() {
        let begun = |failures: i32, updated: &str| json!({"phase": "Running", "drainProgress": 10, "errorOnLeaseCount": failures, "lastUpdate": updated});
        let attempts = |second, status: &Value| match after(second, status) {
            GateResult::Lost { attempts, next, .. } => (attempts, next),
            other => panic!("{other:?}"),
        };
        let zero = "2026-01-01T00:00:00Z";
        assert_eq!(attempts(1, &begun(0, zero)), (1, at(6)), "at once");
        assert_eq!(attempts(4, &begun(1, zero)), (1, at(5)), "not with every reconcile");
        assert_eq!(attempts(5, &begun(1, zero)), (2, at(10)));
        assert_eq!(attempts(5, &begun(3, zero)), (4, at(10)));
        let GateResult::Forfeited { error } = after(5, &begun(4, zero)) else { panic!("retries") };
        assert_eq!(error, "maintenance failed: lease could not be extended after 4 attempts");
        assert!(
            matches!(after(3600, &begun(2, zero)), GateResult::Ours { write: Some(_), .. }),
            "the lease has expired"
        );
        assert!(matches!(after(3600, &begun(4, zero)), GateResult::Forfeited { .. }), "for good");
    }

    #[test]
    fn a_cordoned_node_was_ours_even_if_no_pod_is_gone() {
        let cordoned = json!({"type": "Cordoned", "status": "True", "reason": "Cordoned", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"phase": "Running", "conditions": [cordoned]});
        assert!(matches!(after(1, &status), GateResult::Lost { attempts: 1, .. }));
    }

    #[test]
    fn the_gate_applies_only_before_a_maintenance_begins() {
        let gate = Gate { quorum: Some("quorum".to_owned()), queue: Some(queued()) };
        let node = serde_json::from_value(json!({"metadata": {"name": "n1", "uid": "u"}})).unwrap();
        let said = |annotations: Value, progress: i32, gate: &Gate| {
            let maintenance = serde_json::from_value(json!({
                "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
                "metadata": {"name": "m", "annotations": annotations}, "spec": {"nodeName": "n1"},
                "status": {"phase": "Pending", "drainProgress": progress},
            }));
            match evaluate(&maintenance.unwrap(), &node, None, gate, at(0)) {
                GateResult::Waits { reason, .. } => Some(reason),
                _ => None,
            }
        };
        let overridden = json!({OVERRIDE_QUORUM_ANNOTATION: "true"});
        assert_eq!(said(json!({}), 0, &gate), Some(ConditionReason::QuorumAtRisk));
        assert_eq!(said(overridden.clone(), 0, &gate), Some(ConditionReason::MaxUnavailable));
        assert_eq!(said(overridden, 0, &Gate { queue: None, ..gate.clone() }), None);
        assert_eq!(said(json!({}), 10, &gate), None, "it has begun");
    }
}
