//! `status.conditions`: three facts about a maintenance, each with the time since which it has been so.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// What a condition is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionType {
    /// The node takes no new pods.
    Cordoned,
    /// Every pod that is to be moved is gone.
    Drained,
    /// Something keeps the reconciler from doing its work.
    Degraded,
}

/// Why a condition is as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionReason {
    /// The node is cordoned.
    Cordoned,
    /// There is no such node.
    NodeNotFound,
    /// Another maintenance has the node.
    DuplicateMaintenance,
    /// No pod is left to move.
    Drained,
    /// Pods are being moved and nothing refuses.
    Evicting,
    /// Some pods are refused.
    Blocked,
    /// The drain took longer than `timeoutSeconds`.
    TimedOut,
    /// Etcd would lose its quorum.
    QuorumAtRisk,
    /// As many nodes as may be are unavailable already.
    MaxUnavailable,
    /// Someone else has the node's lease.
    LeaseHeld,
    /// Someone else took the node's lease while it was ours.
    LeaseLost,
    /// Something keeps uncordoning the node.
    CordonContested,
    /// A right is missing.
    MissingRights,
    /// The drain selects pods by something that is no selector.
    InvalidDrain,
    /// All is well.
    AsExpected,
}

impl ConditionType {
    /// The word in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cordoned => "Cordoned",
            Self::Drained => "Drained",
            Self::Degraded => "Degraded",
        }
    }
}

impl ConditionReason {
    /// The word in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cordoned => "Cordoned",
            Self::NodeNotFound => "NodeNotFound",
            Self::DuplicateMaintenance => "DuplicateMaintenance",
            Self::Drained => "Drained",
            Self::Evicting => "Evicting",
            Self::Blocked => "Blocked",
            Self::TimedOut => "TimedOut",
            Self::QuorumAtRisk => "QuorumAtRisk",
            Self::MaxUnavailable => "MaxUnavailable",
            Self::LeaseHeld => "LeaseHeld",
            Self::LeaseLost => "LeaseLost",
            Self::CordonContested => "CordonContested",
            Self::MissingRights => "MissingRights",
            Self::InvalidDrain => "InvalidDrain",
            Self::AsExpected => "AsExpected",
        }
    }
}

/// A condition as it should be now.
#[derive(Debug, Clone)]
pub struct ConditionUpdate {
    /// What it is about.
    pub type_: ConditionType,
    /// Whether it holds.
    pub holds: bool,
    /// Why.
    pub reason: ConditionReason,
    /// The same for a person.
    pub message: String,
}

/// Writes a finding into `conditions`. The transition time changes only with the status.
pub fn record(
    conditions: &mut Vec<Condition>,
    finding: ConditionUpdate,
    generation: Option<i64>,
    now: Timestamp,
) {
    let status = if finding.holds { "True" } else { "False" };
    let existing = conditions.iter_mut().find(|condition| condition.type_ == finding.type_.as_str());
    let since = existing
        .as_ref()
        .filter(|condition| condition.status == status)
        .map_or_else(|| whole_seconds(now), |condition| condition.last_transition_time.clone());
    let condition = Condition {
        type_: finding.type_.as_str().to_owned(),
        status: status.to_owned(),
        reason: finding.reason.as_str().to_owned(),
        message: finding.message,
        observed_generation: generation,
        last_transition_time: since,
    };
    match existing {
        Some(existing) => *existing = condition,
        None => conditions.push(condition),
    }
}

/// The condition of one type.
pub fn find(conditions: &[Condition], type_: ConditionType) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.type_ == type_.as_str())
}

/// Whether a condition is there and True.
pub fn is_true(conditions: &[Condition], type_: ConditionType) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == "True")
}

/// `metav1.Time` has whole seconds: what is written must compare equal to what is read back.
pub fn whole_seconds(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn drained(holds: bool, message: &str) -> ConditionUpdate {
        let reason = if holds { ConditionReason::Drained } else { ConditionReason::Evicting };
        ConditionUpdate { type_: ConditionType::Drained, holds, reason, message: message.to_owned() }
    }

    #[test]
    fn a_condition_keeps_its_clock_while_its_status_stays() {
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
    fn times_are_written_as_they_are_read_back() {
        let precise = Timestamp::from_millisecond(1_700_000_000_999).unwrap();
        let written = serde_json::to_string(&whole_seconds(precise)).unwrap();
        assert_eq!(serde_json::from_str::<Time>(&written).unwrap(), whole_seconds(precise));
    }
}
