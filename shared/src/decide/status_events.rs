//! The events about a change of status, derived from the status before and the next one.

use crate::api::condition::{self, ConditionReason, ConditionType};
use crate::api::status::{NodeMaintenanceStatus, Phase};
use crate::api::suspension::Suspension;
use crate::decide::decision::{EventReason, EventSubject, PendingEvent};

/// The events of the maintenance of `node` whose status changes.
pub fn status_events(
    node: &str,
    before: &NodeMaintenanceStatus,
    next: &NodeMaintenanceStatus,
) -> Vec<PendingEvent> {
    let events = [suspension(node, before, next), phase(node, before, next), attached_volumes(before, next)];
    let event = |(reason, note): (EventReason, String)| PendingEvent {
        subject: EventSubject::Maintenance,
        reason,
        note,
    };
    events.into_iter().flatten().map(event).collect()
}

/// The maintenance succeeds or fails.
fn phase(
    node: &str,
    before: &NodeMaintenanceStatus,
    next: &NodeMaintenanceStatus,
) -> Option<(EventReason, String)> {
    match next.phase {
        phase if phase == before.phase => None,
        Some(Phase::Succeeded) => Some((EventReason::SucceedMaintenance, format!("Node {node} is drained"))),
        Some(Phase::Failed) => Some((EventReason::FailedMaintenance, next.last_error.clone())),
        _ => None,
    }
}

/// The maintenance starts, is planned or paused, or continues.
fn suspension(
    node: &str,
    before: &NodeMaintenanceStatus,
    next: &NodeMaintenanceStatus,
) -> Option<(EventReason, String)> {
    use Suspension::{Paused, Planned};
    let (reason, what) = match (Suspension::in_status(before), Suspension::in_status(next)) {
        (None, None) if before.phase.is_some() => return None,
        (None | Some(Planned), None) => (EventReason::BeginMaintenance, "begins"),
        (Some(Paused), None) => (EventReason::ResumedMaintenance, "continues"),
        (was, is) if was == is => return None,
        (_, Some(Planned)) => (EventReason::PlannedMaintenance, "is planned"),
        (_, Some(Paused)) => (EventReason::PausedMaintenance, "is paused"),
    };
    Some((reason, format!("Maintenance of node {node} {what}")))
}

/// The maintenance succeeds although volumes are still attached.
fn attached_volumes(
    before: &NodeMaintenanceStatus,
    next: &NodeMaintenanceStatus,
) -> Option<(EventReason, String)> {
    let warning = |status: &NodeMaintenanceStatus| {
        condition::find(&status.conditions, ConditionType::Degraded)
            .filter(|degraded| ConditionReason::of(degraded) == Some(ConditionReason::DetachTimedOut))
            .map(|degraded| degraded.message.clone())
    };
    warning(next)
        .filter(|_| warning(before).is_none())
        .map(|sentence| (EventReason::DetachTimedOut, sentence))
}
