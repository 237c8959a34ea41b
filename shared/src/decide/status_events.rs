//! The events about a change of status, derived from the status before and the next one.

use crate::api::condition::{self, ConditionReason, ConditionType};
use crate::api::maintenance::NodeMaintenance;
use crate::api::pod_reference::PodReference;
use crate::api::status::{NodeMaintenanceStatus, Phase};
use crate::api::suspension::Suspension;
use crate::decide::decision::{EventReason, EventSubject, PendingEvent};

/// How many pods were deleted because their eviction was refused for too long.
pub fn deleted_after_refusal(status: &NodeMaintenanceStatus) -> i32 {
    status.departed_pods.map_or(0, |departed| departed.deleted_after_refusal)
}

/// The events of a maintenance whose status changes. `deleted` are pods that no status has counted before.
pub fn status_events(
    maintenance: &NodeMaintenance,
    before: &NodeMaintenanceStatus,
    next: &NodeMaintenanceStatus,
    deleted: &[PodReference],
) -> Vec<PendingEvent> {
    let node = &maintenance.spec.node_name;
    let events = [suspension(node, before, next), phase(node, before, next), attached_volumes(before, next)];
    let event = |(reason, note): (EventReason, String)| PendingEvent {
        subject: EventSubject::Maintenance,
        reason,
        note,
        pod: None,
    };
    let is_counted = deleted_after_refusal(next) > deleted_after_refusal(before);
    let deletions = deleted_pods(maintenance, deleted).filter(|_| is_counted);
    deletions.into_iter().chain(events.into_iter().flatten().map(event)).collect()
}

/// Pods were deleted because their eviction was refused: one event for all.
fn deleted_pods(maintenance: &NodeMaintenance, deleted: &[PodReference]) -> Option<PendingEvent> {
    let first = deleted.first()?;
    let seconds = maintenance.spec.drain.as_ref().map_or(0, |drain| drain.delete_after_seconds);
    let (pods, their) = match deleted.len() {
        1 => (String::from("1 pod"), "its eviction was"),
        many => (format!("{many} pods"), "their evictions were"),
    };
    let names: Vec<String> = deleted.iter().map(PodReference::to_string).collect();
    Some(PendingEvent {
        subject: EventSubject::Maintenance,
        reason: EventReason::DeletedAfterRefusal,
        note: format!(
            "{pods} of node {} deleted: {their} refused for {seconds} s (deleteAfterSeconds): {}",
            maintenance.spec.node_name,
            names.join(", ")
        ),
        pod: Some(first.clone()),
    })
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
