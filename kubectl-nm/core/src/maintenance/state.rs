//! The states of a maintenance, in the words that people see: in tables, lines, NDJSON and the dashboard.
//!
//! The API keeps the phases of the medik8s node-maintenance-operator; here they become one vocabulary.

use nm_shared::api::condition::ConditionType;
use nm_shared::{NodeMaintenance, Phase, Suspension};

use crate::maintenance::fields::{condition, status};
use crate::terminal::text::Style;

/// The state of a maintenance. The order is most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// The drain is under way, and at least one pod is blocked.
    Blocked,
    /// The maintenance was aborted; `status.lastError` has the reason.
    Failed,
    /// The object exists, and no reconciler has picked it up.
    Requested,
    /// It is suspended after it had begun: no pod is evicted, and the node stays cordoned.
    Paused,
    /// The drain is under way.
    Draining,
    /// The object is being deleted, and the node returns to service.
    Stopping,
    /// It waits for a gate: another holder of the node's lease, `--max-unavailable`, or the quorum of the control plane.
    Queued,
    /// It is suspended and has not begun: the node is in service.
    Planned,
    /// Every pod that had to go is gone. The node stays cordoned.
    Drained,
}

impl State {
    /// All states, the most urgent first.
    pub const ALL: [Self; 9] = [
        Self::Blocked,
        Self::Failed,
        Self::Requested,
        Self::Paused,
        Self::Draining,
        Self::Stopping,
        Self::Queued,
        Self::Planned,
        Self::Drained,
    ];

    /// The state of a maintenance. The condition `Drained` takes precedence over the phase, unless it is about an older
    /// spec.
    pub fn of(maintenance: &NodeMaintenance) -> Self {
        if maintenance.metadata.deletion_timestamp.is_some() {
            return Self::Stopping;
        }
        let drained = condition(maintenance, ConditionType::Drained).map(|condition| {
            let observed = condition.observed_generation.or(maintenance.metadata.generation);
            condition.status == "True" && observed >= maintenance.metadata.generation
        });
        let status = status(maintenance);
        match (status.phase, drained) {
            (Some(Phase::Failed), _) => Self::Failed,
            (_, Some(true)) | (Some(Phase::Succeeded), None) => Self::Drained,
            (Some(_), _) if Suspension::in_status(status) == Some(Suspension::Planned) => Self::Planned,
            (Some(_), _) if Suspension::in_status(status) == Some(Suspension::Paused) => Self::Paused,
            (Some(Phase::Pending), _) => Self::Queued,
            (Some(_), _) if status.pod_counts.blocked > 0 => Self::Blocked,
            (Some(_), _) => Self::Draining,
            (None, _) => Self::Requested,
        }
    }

    /// The word for output; NDJSON has it in lower case.
    pub fn word(self) -> &'static str {
        match self {
            Self::Blocked => "Blocked",
            Self::Failed => "Failed",
            Self::Requested => "Requested",
            Self::Paused => "Paused",
            Self::Planned => "Planned",
            Self::Draining => "Draining",
            Self::Stopping => "Stopping",
            Self::Queued => "Queued",
            Self::Drained => "Drained",
        }
    }

    /// The meaning of the word, for its colour.
    pub fn style(self) -> Style {
        match self {
            Self::Requested | Self::Paused | Self::Queued | Self::Draining | Self::Stopping => Style::Busy,
            Self::Planned => Style::Plain,
            Self::Drained => Style::Good,
            Self::Blocked | Self::Failed => Style::Bad,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::objects::{requested, running, stopping, with_status};

    fn drained(status: &str, observed: i64) -> serde_json::Value {
        json!([{"type": "Drained", "status": status, "observedGeneration": observed, "reason": "R",
            "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}])
    }

    fn suspended(status: &str, reason: &str) -> serde_json::Value {
        json!([{"type": "Suspended", "status": status, "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z"}])
    }

    #[test]
    fn the_drained_condition_takes_precedence_unless_it_is_stale_or_missing() {
        for (status, state) in [
            (json!({}), State::Requested),
            (json!({"phase": "Pending"}), State::Queued),
            (json!({"phase": "Running"}), State::Draining),
            (json!({"phase": "Pending", "conditions": suspended("True", "Planned")}), State::Planned),
            (json!({"phase": "Running", "conditions": suspended("True", "Paused")}), State::Paused),
            (json!({"phase": "Running", "conditions": suspended("False", "Resumed")}), State::Draining),
            (json!({"phase": "Failed", "conditions": suspended("True", "Paused")}), State::Failed),
            (running(40, &[("cart-0", "m")]), State::Blocked),
            (json!({"phase": "Succeeded"}), State::Drained),
            (json!({"phase": "Succeeded", "conditions": drained("True", 1)}), State::Drained),
            (json!({"phase": "Succeeded", "conditions": drained("True", 0)}), State::Draining),
            (json!({"phase": "Succeeded", "conditions": drained("False", 1)}), State::Draining),
            (json!({"phase": "Failed", "conditions": drained("False", 1)}), State::Failed),
        ] {
            let object = with_status("n1", status.clone());
            assert_eq!(State::of(&object), state, "{status}");
            assert_eq!(State::of(&stopping(object)), State::Stopping);
        }
        assert_eq!(State::of(&requested("n1")), State::Requested);
    }

    #[test]
    fn states_are_listed_in_their_order() {
        assert!(State::ALL.is_sorted());
    }
}
