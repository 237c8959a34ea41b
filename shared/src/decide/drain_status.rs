//! The status that a maintenance deserves: of a drain under way, and of one that is given up.

use jiff::{SignedDuration, Timestamp};

use crate::api::condition::{self, ConditionReason, ConditionType, ConditionUpdate};
use crate::api::maintenance::{DrainSpec, NodeMaintenance};
use crate::api::status::{NodeMaintenanceStatus, Phase, PodCounts};
use crate::decide::drain_survey::DrainSurvey;
use crate::drain::node_patch::CordonedBy;
use crate::gate::ownership;

/// The status of a drain whose pods stand as the survey found them. The node's cordon `is_contested` if something keeps
/// removing it.
pub fn of_drain(
    maintenance: &NodeMaintenance,
    survey: &DrainSurvey<'_>,
    is_contested: bool,
    deadline: Option<Timestamp>,
    now: Timestamp,
) -> NodeMaintenanceStatus {
    let mut status = maintenance.status.clone().unwrap_or_default();
    let counted = status.total_pods > 0 || matches!(status.phase, Some(Phase::Running | Phase::Succeeded));
    survey.write_to(&mut status, !counted, now);
    status.error_on_lease_count = 0;

    let pending = status.pending_pods.len();
    let timed_out = deadline.is_some_and(|deadline| deadline <= now);
    let reason = match (pending, timed_out, status.last_error.is_empty()) {
        (0, ..) => ConditionReason::Drained,
        (_, true, _) => ConditionReason::TimedOut,
        (_, _, false) => ConditionReason::Blocked,
        (..) => ConditionReason::Evicting,
    };
    if reason == ConditionReason::TimedOut {
        let seconds = maintenance.spec.drain.as_ref().map_or(0, |drain| drain.timeout_seconds);
        let error = format!("the drain is not done after {seconds} s, {pending} pods are left");
        let obstacles = std::mem::take(&mut status.last_error);
        status.last_error = if obstacles.is_empty() { error } else { format!("{error}: {obstacles}") };
    }
    status.phase = Some(match (reason, status.phase) {
        // Pods that come later are moved too, but a drain that has succeeded does not begin again.
        (ConditionReason::Drained, _) | (_, Some(Phase::Succeeded)) => Phase::Succeeded,
        (ConditionReason::TimedOut, _) => Phase::Failed,
        _ => Phase::Running,
    });
    let moved = format!("{} of {} pods are gone", status.pod_counts.gone, status.eviction_pods);
    let message =
        if status.last_error.is_empty() { moved } else { format!("{moved}; {}", status.last_error) };
    let mut note = |type_, holds, reason, message| {
        record(&mut status, maintenance, ConditionUpdate { type_, holds, reason, message }, now);
    };
    note(ConditionType::Cordoned, true, ConditionReason::Cordoned, cordoned(maintenance));
    note(ConditionType::Drained, pending == 0, reason, message);
    match survey.missing_access() {
        Some(right) => note(ConditionType::Degraded, true, ConditionReason::MissingRights, right.to_owned()),
        None if is_contested => {
            note(ConditionType::Degraded, true, ConditionReason::CordonContested, contested(maintenance));
        }
        None => note(ConditionType::Degraded, false, ConditionReason::AsExpected, String::new()),
    }
    status
}

/// The status of a maintenance that is given up for as long as `reason` holds. One that is `at_work` has its node
/// cordoned by now, though its status may not tell yet.
pub fn failed(
    maintenance: &NodeMaintenance,
    at_work: bool,
    reason: ConditionReason,
    error: String,
    now: Timestamp,
) -> NodeMaintenanceStatus {
    let mut status = maintenance.status.clone().unwrap_or_default();
    let is_cordoned = at_work || condition::is_true(&status.conditions, ConditionType::Cordoned);
    status.phase = Some(Phase::Failed);
    status.last_error.clone_from(&error);
    if !keeps_node(reason) {
        status.pending_pods.clear();
        status.pending_pods_refs.clear();
        status.blocked_pods.clear();
        status.migrating_pods = None;
        status.pod_counts = PodCounts::default();
    }
    let mut note = |type_, holds, reason, message| {
        record(&mut status, maintenance, ConditionUpdate { type_, holds, reason, message }, now);
    };
    if keeps_node(reason) && is_cordoned {
        note(ConditionType::Cordoned, true, ConditionReason::Cordoned, cordoned(maintenance));
    } else if !(keeps_node(reason) && ownership::cordoned_by(maintenance) == CordonedBy::Medik8s) {
        note(ConditionType::Cordoned, false, reason, error.clone());
    }
    note(ConditionType::Drained, false, reason, error.clone());
    note(ConditionType::Degraded, true, reason, error);
    status
}

/// The status of a maintenance whose turn has not come.
pub fn waiting(
    maintenance: &NodeMaintenance,
    reason: ConditionReason,
    error: String,
    now: Timestamp,
) -> NodeMaintenanceStatus {
    let mut status = maintenance.status.clone().unwrap_or_default();
    status.phase = Some(Phase::Pending);
    status.last_error.clone_from(&error);
    let mut note = |type_, message| {
        record(&mut status, maintenance, ConditionUpdate { type_, holds: false, reason, message }, now);
    };
    // Without this condition it is still known that the medik8s operator began, and may have cordoned.
    if ownership::cordoned_by(maintenance) != CordonedBy::Medik8s {
        note(ConditionType::Cordoned, error.clone());
    }
    note(ConditionType::Drained, error);
    status
}

/// The status of a maintenance that has lost the node's lease for the moment: the node stays as it is, and no pod is
/// asked to go.
pub fn lease_lost(
    maintenance: &NodeMaintenance,
    error: String,
    attempts: i32,
    now: Timestamp,
) -> NodeMaintenanceStatus {
    let mut status = maintenance.status.clone().unwrap_or_default();
    status.error_on_lease_count = attempts;
    status.last_error.clone_from(&error);
    let degraded = ConditionUpdate {
        type_: ConditionType::Degraded,
        holds: true,
        reason: ConditionReason::LeaseLost,
        message: error,
    };
    record(&mut status, maintenance, degraded, now);
    status
}

/// When an unfinished drain is given up, counted from the cordon; none without a `timeoutSeconds`, and none for pods
/// that come after it has succeeded.
pub fn deadline(maintenance: &NodeMaintenance, spec: &DrainSpec) -> Option<Timestamp> {
    let status = maintenance.status.as_ref().filter(|status| status.phase != Some(Phase::Succeeded))?;
    let cordoned = condition::find(&status.conditions, ConditionType::Cordoned)
        .filter(|condition| condition.status == "True")?;
    let patience = SignedDuration::from_secs(spec.timeout_seconds);
    if patience.is_zero() { None } else { cordoned.last_transition_time.0.saturating_add(patience).ok() }
}

/// Whether the node stays as it is while the maintenance is given up for this reason.
fn keeps_node(reason: ConditionReason) -> bool {
    matches!(reason, ConditionReason::InvalidDrain | ConditionReason::MissingRights)
}

fn cordoned(maintenance: &NodeMaintenance) -> String {
    format!("node {} takes no new pods", maintenance.spec.node_name)
}

fn contested(maintenance: &NodeMaintenance) -> String {
    let node = &maintenance.spec.node_name;
    format!(
        "something keeps uncordoning node {node}; it is cordoned again at intervals of up to a minute, and no pod \
         is evicted in between. `kubectl get node {node} -o yaml --show-managed-fields` shows who writes to it"
    )
}

fn record(
    status: &mut NodeMaintenanceStatus,
    maintenance: &NodeMaintenance,
    finding: ConditionUpdate,
    now: Timestamp,
) {
    condition::record(&mut status.conditions, finding, maintenance.metadata.generation, now);
}
