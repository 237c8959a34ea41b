//! The status of a maintenance: while it drains, while it waits, and when it has failed.
//!
//! Each sentence is stored once. `lastError` says what is wrong with the maintenance as a whole; the conditions then have
//! the reason and no message. A condition has a message only about what `lastError` does not say.

use jiff::{SignedDuration, Timestamp};

use crate::api::condition::{self, ConditionReason, ConditionType, ConditionUpdate};
use crate::api::maintenance::{DrainSpec, NodeMaintenance};
use crate::api::status::{ForbiddenAccess, NodeMaintenanceStatus, Phase, PodCounts, QueuePosition};
use crate::decide::drain_survey::{DrainSurvey, pods_are};
use crate::drain::eviction_outcome::AccessDenied;
use crate::drain::node_patch::CordonedBy;
use crate::gate::ownership;

/// What a drain depends on beside its pods.
#[derive(Debug, Clone, Copy)]
pub struct DrainContext<'a> {
    /// When the drain times out, if it does.
    pub deadline: Option<Timestamp>,
    /// Whether something keeps removing the cordon.
    pub is_contested: bool,
    /// The denial, if the node's conditions may not be written.
    pub node_conditions_forbidden: Option<&'a AccessDenied>,
}

/// The status of a drain.
pub fn draining(
    maintenance: &NodeMaintenance,
    survey: &DrainSurvey<'_>,
    context: DrainContext<'_>,
    now: Timestamp,
) -> NodeMaintenanceStatus {
    let mut status = maintenance.status.clone().unwrap_or_default();
    let counted = status.total_pods > 0 || matches!(status.phase, Some(Phase::Running | Phase::Succeeded));
    survey.write_to(&mut status, !counted, now);
    status.error_on_lease_count = 0;
    status.queue = None;
    status.forbidden = context.node_conditions_forbidden.and_then(|denied| denied.access.clone());

    let (pending, blocked) = (status.pending_pods.len(), survey.blocked().count());
    let timed_out = context.deadline.is_some_and(|deadline| deadline <= now);
    let reason = match (pending, timed_out, blocked) {
        (0, ..) => ConditionReason::Drained,
        (_, true, _) => ConditionReason::TimedOut,
        (_, _, 0) => ConditionReason::Evicting,
        (..) => ConditionReason::Blocked,
    };
    if reason == ConditionReason::TimedOut {
        let seconds = maintenance.spec.drain.as_ref().map_or(0, |drain| drain.timeout_seconds);
        let error = format!("the drain timed out after {seconds} s, {} left", pods_are(pending));
        let blocked = std::mem::take(&mut status.last_error);
        status.last_error = if blocked.is_empty() { error } else { format!("{error}; {blocked}") };
    }
    status.phase = Some(match (reason, status.phase) {
        // Pods that come later are moved too, but a drain that has succeeded does not begin again.
        (ConditionReason::Drained, _) | (_, Some(Phase::Succeeded)) => Phase::Succeeded,
        (ConditionReason::TimedOut, _) => Phase::Failed,
        _ => Phase::Running,
    });
    let gone = format!("{} of {} pods are gone", status.pod_counts.gone, status.eviction_pods);
    let message = match blocked {
        0 => gone,
        _ => format!("{gone}, {} blocked: see status.blockedPods", pods_are(blocked)),
    };
    let mut record = |type_, holds, reason, message| {
        record(&mut status, maintenance, ConditionUpdate { type_, holds, reason, message }, now);
    };
    record(ConditionType::Cordoned, true, ConditionReason::Cordoned, cordoned(maintenance));
    record(ConditionType::Drained, pending == 0, reason, message);
    let (is_degraded, reason, message) = degraded(maintenance, survey, context);
    record(ConditionType::Degraded, is_degraded, reason, message);
    status
}

fn degraded(
    maintenance: &NodeMaintenance,
    survey: &DrainSurvey<'_>,
    context: DrainContext<'_>,
) -> (bool, ConditionReason, String) {
    match (survey.forbidden(), context.node_conditions_forbidden) {
        (0, None) if context.is_contested => (true, ConditionReason::CordonContested, contested(maintenance)),
        (0, None) => (false, ConditionReason::AsExpected, String::new()),
        (_, Some(denied)) => (true, ConditionReason::MissingRights, denied.to_string()),
        (pods, None) => {
            let message = format!("{} blocked by missing access: see status.blockedPods", pods_are(pods));
            (true, ConditionReason::MissingRights, message)
        }
    }
}

/// The status of a maintenance that has failed for as long as `reason` persists. If it is `at_work`, its node is cordoned
/// by now, though its status may not say so yet.
pub fn failed(
    maintenance: &NodeMaintenance,
    at_work: bool,
    reason: ConditionReason,
    error: Failure,
    now: Timestamp,
) -> NodeMaintenanceStatus {
    let mut status = maintenance.status.clone().unwrap_or_default();
    let is_cordoned = at_work || condition::is_true(&status.conditions, ConditionType::Cordoned);
    status.phase = Some(Phase::Failed);
    status.last_error = error.message;
    status.forbidden = error.forbidden;
    status.queue = None;
    if !keeps_node(reason) {
        status.pending_pods.clear();
        status.pending_pods_refs.clear();
        status.blocked_pods.clear();
        status.migrating_pods = None;
        status.pod_counts = PodCounts::default();
    }
    let mut record = |type_, holds, reason, message| {
        record(&mut status, maintenance, ConditionUpdate { type_, holds, reason, message }, now);
    };
    if keeps_node(reason) && is_cordoned {
        record(ConditionType::Cordoned, true, ConditionReason::Cordoned, cordoned(maintenance));
    } else if !(keeps_node(reason) && ownership::cordoned_by(maintenance) == CordonedBy::Medik8s) {
        record(ConditionType::Cordoned, false, reason, String::new());
    }
    record(ConditionType::Drained, false, reason, String::new());
    record(ConditionType::Degraded, true, reason, String::new());
    status
}

/// The status of a maintenance that waits, in the `queue` or for something else.
pub fn waiting(
    maintenance: &NodeMaintenance,
    reason: ConditionReason,
    error: String,
    queue: Option<QueuePosition>,
    now: Timestamp,
) -> NodeMaintenanceStatus {
    let mut status = maintenance.status.clone().unwrap_or_default();
    status.phase = Some(Phase::Pending);
    status.last_error = error;
    status.queue = queue;
    status.forbidden = None;
    let mut record = |type_| {
        let update = ConditionUpdate { type_, holds: false, reason, message: String::new() };
        record(&mut status, maintenance, update, now);
    };
    // A status without this condition shows that the medik8s operator began, and may have cordoned.
    if ownership::cordoned_by(maintenance) != CordonedBy::Medik8s {
        record(ConditionType::Cordoned);
    }
    record(ConditionType::Drained);
    status
}

/// The status of a maintenance that has lost the node's lease for the moment: the node stays as it is and no pod is
/// evicted.
pub fn lease_lost(
    maintenance: &NodeMaintenance,
    error: String,
    attempts: i32,
    now: Timestamp,
) -> NodeMaintenanceStatus {
    let mut status = maintenance.status.clone().unwrap_or_default();
    status.error_on_lease_count = attempts;
    status.last_error = error;
    status.queue = None;
    status.forbidden = None;
    let is_drained = condition::is_true(&status.conditions, ConditionType::Drained);
    let mut record = |type_, holds| {
        let reason = ConditionReason::LeaseLost;
        let update = ConditionUpdate { type_, holds, reason, message: String::new() };
        record(&mut status, maintenance, update, now);
    };
    if !is_drained {
        record(ConditionType::Drained, false);
    }
    record(ConditionType::Degraded, true);
    status
}

/// When an unfinished drain times out, measured from the cordon; none without a `timeoutSeconds`, and none for pods that
/// come after it has succeeded.
pub fn deadline(maintenance: &NodeMaintenance, spec: &DrainSpec) -> Option<Timestamp> {
    let status = maintenance.status.as_ref().filter(|status| status.phase != Some(Phase::Succeeded))?;
    let cordoned = condition::find(&status.conditions, ConditionType::Cordoned)
        .filter(|condition| condition.status == "True")?;
    let timeout = SignedDuration::from_secs(spec.timeout_seconds);
    if timeout.is_zero() { None } else { cordoned.last_transition_time.0.saturating_add(timeout).ok() }
}

/// Whether the node stays as it is while the maintenance has failed for this reason.
fn keeps_node(reason: ConditionReason) -> bool {
    matches!(reason, ConditionReason::InvalidDrain | ConditionReason::MissingRights)
}

/// Why a maintenance has failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failure {
    /// The sentence for `lastError`.
    pub message: String,
    /// The access that is missing, if that is the reason and it is known.
    pub forbidden: Option<ForbiddenAccess>,
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self { message, forbidden: None }
    }
}

impl From<AccessDenied> for Failure {
    fn from(denied: AccessDenied) -> Self {
        Self { message: denied.to_string(), forbidden: denied.access }
    }
}

fn cordoned(maintenance: &NodeMaintenance) -> String {
    format!("node {} is cordoned", maintenance.spec.node_name)
}

fn contested(maintenance: &NodeMaintenance) -> String {
    let node = &maintenance.spec.node_name;
    format!(
        "something keeps uncordoning node {node}: the cordon is restored at intervals of up to a minute, and no pod is \
         evicted in between. `kubectl get node {node} -o yaml --show-managed-fields` shows what writes to it"
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
