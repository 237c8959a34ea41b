//! `status.conditions`: facts about a maintenance, each with the time of its last transition.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The type of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
pub enum ConditionType {
    /// The node takes no new pods.
    Cordoned,
    /// Every pod that is to be moved is gone.
    Drained,
    /// Something keeps the reconciler from doing its work.
    Degraded,
    /// `spec.suspend` is set: the maintenance is planned or paused.
    Suspended,
    /// No volume of a pod that left is attached to the node.
    VolumesDetached,
}

/// Why a condition has its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
pub enum ConditionReason {
    /// The node is cordoned.
    Cordoned,
    /// There is no such node.
    NodeNotFound,
    /// Another maintenance has the node.
    DuplicateMaintenance,
    /// No pod is left to move.
    Drained,
    /// Pods are being moved and none is blocked.
    Evicting,
    /// Some pods are blocked.
    Blocked,
    /// No pod is evicted, or the node is not returned, until whoever set a hook has removed it.
    WaitingForHooks,
    /// No pod is evicted until load balancers have had time to stop using the node.
    WaitingForLoadBalancers,
    /// The drain took longer than `timeoutSeconds`.
    TimedOut,
    /// The pods are gone, and volumes are still attached to the node.
    DetachingVolumes,
    /// Volumes were still attached to the node when `waitForVolumeDetach.timeoutSeconds` was over.
    DetachTimedOut,
    /// Etcd would lose its quorum.
    QuorumAtRisk,
    /// As many nodes as allowed are unavailable already: the maintenance is in the queue.
    MaxUnavailable,
    /// Someone else has the node's lease.
    LeaseHeld,
    /// Someone else took the node's lease while it was ours.
    LeaseLost,
    /// Something keeps uncordoning the node.
    CordonContested,
    /// The reconciler lacks access.
    MissingAccess,
    /// The API server does not accept a write that the maintenance needs, for another reason.
    WriteFailed,
    /// A selector in `spec.drain` is not valid.
    InvalidDrain,
    /// The maintenance was created suspended and has not begun.
    Planned,
    /// The maintenance was suspended after it had begun.
    Paused,
    /// The maintenance is no longer suspended.
    Resumed,
    /// Nothing is wrong.
    AsExpected,
}

impl ConditionType {
    /// The value in the status.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl ConditionReason {
    /// The reason of a condition; none if it is not one of ours, such as that of a later version.
    pub fn of(condition: &Condition) -> Option<Self> {
        condition.reason.parse().ok()
    }

    /// The value in the status.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A condition as it is to be written.
#[derive(Debug, Clone)]
pub struct ConditionUpdate {
    /// Its type.
    pub type_: ConditionType,
    /// Whether it is True.
    pub is_true: bool,
    /// Why.
    pub reason: ConditionReason,
    /// Human-readable message; empty where `lastError` contains it.
    pub message: String,
}

/// Writes a condition into `conditions`. The transition time changes only with the status.
pub fn record(
    conditions: &mut Vec<Condition>,
    update: ConditionUpdate,
    generation: Option<i64>,
    now: Timestamp,
) {
    let status = if update.is_true { "True" } else { "False" };
    let existing = conditions.iter_mut().find(|condition| condition.type_ == update.type_.as_str());
    let since = existing
        .as_ref()
        .filter(|condition| condition.status == status)
        .map_or_else(|| whole_seconds(now), |condition| condition.last_transition_time.clone());
    let condition = Condition {
        type_: update.type_.as_str().to_owned(),
        status: status.to_owned(),
        reason: update.reason.as_str().to_owned(),
        message: update.message,
        observed_generation: generation,
        last_transition_time: since,
    };
    match existing {
        Some(existing) => *existing = condition,
        None => conditions.push(condition),
    }
}

/// Removes the condition of one type.
pub fn remove(conditions: &mut Vec<Condition>, type_: ConditionType) {
    conditions.retain(|condition| condition.type_ != type_.as_str());
}

/// The condition of one type.
pub fn find(conditions: &[Condition], type_: ConditionType) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.type_ == type_.as_str())
}

/// Whether the condition exists and is True.
pub fn is_true(conditions: &[Condition], type_: ConditionType) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == "True")
}

/// Since when the condition is True; none if it is not.
pub fn true_since(conditions: &[Condition], type_: ConditionType) -> Option<Timestamp> {
    find(conditions, type_)
        .filter(|condition| condition.status == "True")
        .map(|condition| condition.last_transition_time.0)
}

/// `metav1.Time` has whole seconds, so that what is written compares equal to what is read back.
pub fn whole_seconds(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn drained(is_true: bool, message: &str) -> ConditionUpdate {
        let reason = if is_true { ConditionReason::Drained } else { ConditionReason::Evicting };
        ConditionUpdate { type_: ConditionType::Drained, is_true, reason, message: message.to_owned() }
    }

    #[test]
    fn a_condition_keeps_its_transition_time_while_its_status_stays() {
        let mut conditions = Vec::new();
        record(&mut conditions, drained(false, "3 left"), Some(1), at(100));
        record(&mut conditions, drained(false, "2 left"), Some(2), at(200));
        assert_eq!(conditions.len(), 1);
        assert_eq!(conditions[0].last_transition_time, Time(at(100)));
        assert_eq!((conditions[0].message.as_str(), conditions[0].observed_generation), ("2 left", Some(2)));
        record(&mut conditions, drained(true, ""), Some(2), at(300));
        assert_eq!(conditions[0].last_transition_time, Time(at(300)));
        assert!(
            is_true(&conditions, ConditionType::Drained) && !is_true(&conditions, ConditionType::Cordoned)
        );
    }

    #[test]
    fn a_time_reads_back_as_it_was_written() {
        let precise = Timestamp::from_millisecond(1_700_000_000_999).unwrap();
        let written = serde_json::to_string(&whole_seconds(precise)).unwrap();
        assert_eq!(serde_json::from_str::<Time>(&written).unwrap(), whole_seconds(precise));
    }
}
