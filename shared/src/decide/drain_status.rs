//! The status of a maintenance: while it drains, while it waits, and when it has failed.
//!
//! Each sentence is stored once. `lastError` contains what is wrong with the maintenance as a whole; the conditions then have
//! the reason and no message. A condition has a message only about what `lastError` does not contain.

use std::fmt::Write;

use jiff::{SignedDuration, Timestamp};

use crate::api::condition::{self, ConditionReason, ConditionType, ConditionUpdate, whole_seconds};
use crate::api::hold::Hold;
use crate::api::maintenance::{DrainSpec, NodeMaintenance, OnDetachTimeout};
use crate::api::pod_state::PodCounts;
use crate::api::status::{
    ForbiddenAccess, MAX_ATTACHED_VOLUMES, NodeMaintenanceStatus, Phase, QueuePosition,
};
use crate::api::suspension::paused_seconds;
use crate::decide::cluster_state::ClusterState;
use crate::decide::drain_survey::{DrainSurvey, pods_are};
use crate::drain::eviction_outcome::AccessDenied;
use crate::drain::node_patch::CordonedBy;
use crate::drain::plan::StayReason;
use crate::drain::volume_detach::VolumeDetach;
use crate::gate::ownership;

/// A status that is being built.
struct StatusDraft<'a> {
    status: NodeMaintenanceStatus,
    maintenance: &'a NodeMaintenance,
    now: Timestamp,
}

impl<'a> StatusDraft<'a> {
    /// The present status without the reasons why a maintenance does not work.
    fn new(maintenance: &'a NodeMaintenance, now: Timestamp) -> Self {
        let mut status = maintenance.status.clone().unwrap_or_default();
        (status.queue, status.forbidden) = (None, None);
        Self { status, maintenance, now }
    }

    fn record(&mut self, type_: ConditionType, is_true: bool, reason: ConditionReason, message: String) {
        if type_ == ConditionType::Drained && !is_true && self.status.has_begun() {
            self.status.first_drained = self.status.first_drained_at().map(whole_seconds);
        }
        let update = ConditionUpdate { type_, is_true, reason, message };
        let generation = self.maintenance.metadata.generation;
        condition::record(&mut self.status.conditions, update, generation, self.now);
    }

    /// The condition `VolumesDetached`, which exists only if volumes are waited for and no pod has to leave.
    fn record_detach(&mut self, detach: Option<&VolumeDetach>) {
        match detach {
            Some(detach) => {
                let reason = detach.reason().unwrap_or(ConditionReason::AsExpected);
                self.record(ConditionType::VolumesDetached, detach.is_done(), reason, String::new());
            }
            None => condition::remove(&mut self.status.conditions, ConditionType::VolumesDetached),
        }
    }

    /// The condition `Cordoned` of a maintenance that has started. The node is schedulable while another program has `uncordoned` it
    /// and the cordon is to be restored later, or once its maintenance is deleted.
    fn record_cordoned(&mut self, uncordoned: bool) {
        let node = &self.maintenance.spec.node_name;
        let ends = self.maintenance.metadata.deletion_timestamp.is_some();
        let (reason, message) = if uncordoned && ends {
            (ConditionReason::CordonContested, format!("node {node} is uncordoned"))
        } else if uncordoned {
            let message = format!(
                "another user or program has uncordoned node {node}; nm-reconciler cordons it again within a minute"
            );
            (ConditionReason::CordonContested, message)
        } else {
            (ConditionReason::Cordoned, format!("node {node} is cordoned"))
        };
        // Timeouts are counted from the first cordon.
        let first = self.status.begun_at().map(whole_seconds).filter(|_| uncordoned);
        self.status.cordoned_since = self.status.cordoned_since.take().or(first);
        self.record(ConditionType::Cordoned, !uncordoned, reason, message);
    }

    /// The conditions of a maintenance that has started, and keeps its other ones, if another program has `uncordoned` its node.
    fn record_contested(&mut self, uncordoned: bool) {
        if uncordoned && self.status.has_begun() {
            self.record_cordoned(true);
            self.record(ConditionType::Drained, false, ConditionReason::CordonContested, String::new());
        }
    }

    /// The condition `Cordoned` of a maintenance that has not begun, or works no more.
    fn record_uncordoned(&mut self, reason: ConditionReason) {
        (self.status.cordoned_since, self.status.first_drained) = (None, None);
        self.record(ConditionType::Cordoned, false, reason, String::new());
    }
}

/// Whether the status has the number of pods at the beginning.
pub fn is_counted(status: Option<&NodeMaintenanceStatus>) -> bool {
    status.is_some_and(|status| {
        status.total_pods > 0 || matches!(status.phase, Some(Phase::Running | Phase::Succeeded))
    })
}

/// What the status of a drain shows.
#[derive(Debug, Clone, Copy)]
pub struct DrainView<'a> {
    /// The pods of the node.
    pub survey: &'a DrainSurvey<'a>,
    /// What it waits for before its first eviction.
    pub hold: Option<&'a Hold>,
    /// The volumes that it waits for once the last pod is gone.
    pub detach: Option<&'a VolumeDetach>,
    /// When it times out.
    pub deadline: Option<Timestamp>,
    /// Whether something else has uncordoned the node. It is not drained then: pods may come back.
    pub uncordoned: bool,
}

/// The status of a drain.
pub fn draining(
    maintenance: &NodeMaintenance,
    view: &DrainView<'_>,
    observed: &ClusterState,
    now: Timestamp,
) -> NodeMaintenanceStatus {
    let DrainView { survey, hold, detach, deadline, uncordoned } = *view;
    let mut draft = StatusDraft::new(maintenance, now);
    let status = &mut draft.status;
    let is_counted = is_counted(Some(status));
    survey.write_to(status, !is_counted, now);
    status.error_on_lease_count = 0;
    status.forbidden = denied(observed).and_then(|denied| denied.access.clone());
    let attached = detach.map(|detach| detach.attached.iter().take(MAX_ATTACHED_VOLUMES).cloned().collect());
    status.attached_volumes = attached.filter(|attached: &Vec<_>| !attached.is_empty());

    status.hold = hold.cloned();
    let (pending, blocked) = (status.pending_pods.len(), survey.blocked().count());
    let is_done = pending == 0 && hold.is_none();
    let timed_out = deadline.is_some_and(|deadline| deadline <= now);
    let reason = match (is_done, timed_out, blocked) {
        (true, ..) if uncordoned => ConditionReason::CordonContested,
        (true, ..) => detach.and_then(VolumeDetach::reason).unwrap_or(ConditionReason::Drained),
        (_, true, _) => ConditionReason::TimedOut,
        _ if maintenance.spec.suspend => ConditionReason::Paused,
        _ if uncordoned => ConditionReason::CordonContested,
        _ if let Some(hold) = hold => hold.reason(),
        (_, _, 0) => ConditionReason::Evicting,
        (..) => ConditionReason::Blocked,
    };
    if reason == ConditionReason::TimedOut {
        let seconds = maintenance.spec.drain.as_ref().map_or(0, |drain| drain.timeout_seconds);
        let waited = hold.map(|hold| format!("waiting for {hold}, ")).unwrap_or_default();
        let left = pods_left(pending, status.pod_counts.terminating);
        let error = format!("the drain timed out after {seconds} s, {waited}{left}");
        let blocked = std::mem::take(&mut status.last_error);
        status.last_error = if blocked.is_empty() { error } else { format!("{error}; {blocked}") };
    }
    let given_up = detach.filter(|detach| detach.timed_out == Some(OnDetachTimeout::Fail));
    if let Some(detach) = given_up {
        status.last_error = detach.timeout_message();
    }
    let is_drained = is_done && !uncordoned && detach.is_none_or(VolumeDetach::is_over);
    status.phase = Some(match (reason, status.phase) {
        // Pods that come later are moved too, but a drain that has succeeded does not begin again.
        (_, Some(Phase::Succeeded)) => Phase::Succeeded,
        _ if is_drained => Phase::Succeeded,
        (ConditionReason::TimedOut | ConditionReason::DetachTimedOut, _) => Phase::Failed,
        _ => Phase::Running,
    });
    let all = usize::try_from(status.eviction_pods).unwrap_or(0);
    let mut gone = format!("{} of {} gone", status.pod_counts.gone, pods_are(all));
    let returned = survey.staying(StayReason::Returned);
    if returned > 0 {
        let stay = if returned == 1 { "stays" } else { "stay" };
        let pods = if returned == 1 { "1 pod".to_owned() } else { format!("{returned} pods") };
        let _ = write!(gone, ", {pods} that came after the cordon {stay}: see status.returnedPods");
    }
    let volumes = detach.map(VolumeDetach::summary).filter(|summary| !summary.is_empty());
    let turns = survey.turns();
    let message = match (blocked, volumes) {
        _ if let Some(hold) = hold => format!("{gone}, waiting for {hold}"),
        (0, None) if turns == 1 => format!("{gone}, 1 waits for its disruption budget"),
        (0, None) if turns > 0 => format!("{gone}, {turns} wait for their disruption budgets"),
        (0, None) => gone,
        (0, Some(volumes)) => format!("{gone}, {volumes}"),
        _ => format!("{gone}, {} blocked: see status.blockedPods", pods_are(blocked)),
    };
    draft.record_cordoned(uncordoned);
    draft.record(ConditionType::Drained, is_drained, reason, message);
    draft.record_detach(detach);
    let (is_degraded, reason, message) = degraded(maintenance, survey, detach, observed);
    draft.record(ConditionType::Degraded, is_degraded, reason, message);
    draft.status
}

/// `2 pods are left, 1 pod is still terminating`: the pods of a drain that has timed out. Those that terminate leave on their own.
fn pods_left(pending: usize, terminating: i32) -> String {
    let terminating = usize::try_from(terminating).unwrap_or(0).min(pending);
    let left = pending - terminating;
    let words = [
        (left > 0 || terminating == 0).then(|| format!("{} left", pods_are(left))),
        (terminating > 0).then(|| format!("{} still terminating", pods_are(terminating))),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The access that the drain can do without, and does not have.
fn denied(observed: &ClusterState) -> Option<&AccessDenied> {
    observed.volumes_forbidden.as_ref().or(observed.node_conditions_forbidden.as_ref())
}

fn degraded(
    maintenance: &NodeMaintenance,
    survey: &DrainSurvey<'_>,
    detach: Option<&VolumeDetach>,
    observed: &ClusterState,
) -> (bool, ConditionReason, String) {
    if let Some(denied) = denied(observed) {
        return (true, ConditionReason::MissingAccess, denied.to_string());
    }
    // If the maintenance fails, lastError has the message.
    let given_up = detach.filter(|detach| detach.timed_out == Some(OnDetachTimeout::Succeed));
    if let Some(detach) = given_up {
        return (true, ConditionReason::DetachTimedOut, detach.timeout_message());
    }
    match survey.forbidden() {
        0 if observed.recordons.is_contested() => {
            let node = &maintenance.spec.node_name;
            let message = format!(
                "something keeps uncordoning node {node}: the cordon is restored at intervals of up to a minute, and no \
                 pod is evicted in between. `kubectl get node {node} -o yaml --show-managed-fields` shows what writes to it"
            );
            (true, ConditionReason::CordonContested, message)
        }
        0 => (false, ConditionReason::AsExpected, String::new()),
        pods => {
            let message = format!("{} blocked by missing access: see status.blockedPods", pods_are(pods));
            (true, ConditionReason::MissingAccess, message)
        }
    }
}

/// The status of a maintenance that has failed for as long as `reason` persists. If it is `at_work`, its node is cordoned
/// by now, though its status may not show that yet, unless something else has `uncordoned` it.
pub fn failed(
    maintenance: &NodeMaintenance,
    at_work: bool,
    uncordoned: bool,
    reason: ConditionReason,
    error: String,
    forbidden: Option<ForbiddenAccess>,
    now: Timestamp,
) -> NodeMaintenanceStatus {
    let mut draft = StatusDraft::new(maintenance, now);
    let status = &mut draft.status;
    let has_begun = at_work || status.has_begun();
    // The node stays as it is.
    let keeps_node = matches!(
        reason,
        ConditionReason::InvalidDrain | ConditionReason::MissingAccess | ConditionReason::WriteFailed
    );
    status.phase = Some(Phase::Failed);
    status.last_error = error;
    status.forbidden = forbidden;
    if !keeps_node {
        status.pending_pods.clear();
        status.pending_pods_refs.clear();
        status.blocked_pods.clear();
        (status.migrating_pods, status.surging_pods) = (None, None);
        (status.waiting_pods, status.attached_volumes) = (None, None);
        (status.returned_pods, status.hold, status.unselected_pods) = (None, None, None);
        status.pod_counts = PodCounts::default();
        draft.record_detach(None);
    }
    if keeps_node && has_begun {
        draft.record_cordoned(uncordoned);
    } else if !(keeps_node && ownership::cordoned_by(maintenance) == CordonedBy::Medik8s) {
        draft.record_uncordoned(reason);
    }
    draft.record(ConditionType::Drained, false, reason, String::new());
    draft.record(ConditionType::Degraded, true, reason, String::new());
    draft.status
}

/// The status of a maintenance that does not advance because a write fails, perhaps not for long, while something else may have
/// `uncordoned` its node.
pub fn write_failed(
    maintenance: &NodeMaintenance,
    uncordoned: bool,
    error: String,
    now: Timestamp,
) -> NodeMaintenanceStatus {
    let mut draft = StatusDraft::new(maintenance, now);
    draft.record_contested(uncordoned);
    draft.status.phase.get_or_insert(Phase::Pending);
    draft.status.last_error = error;
    if !ownership::has_begun(maintenance) && ownership::cordoned_by(maintenance) != CordonedBy::Medik8s {
        draft.record_uncordoned(ConditionReason::WriteFailed);
        draft.record(ConditionType::Drained, false, ConditionReason::WriteFailed, String::new());
    }
    draft.record(ConditionType::Degraded, true, ConditionReason::WriteFailed, String::new());
    draft.status
}

/// The status of a maintenance that waits, in the `queue` or for something else.
pub fn waiting(
    maintenance: &NodeMaintenance,
    reason: ConditionReason,
    error: String,
    queue: Option<QueuePosition>,
    now: Timestamp,
) -> NodeMaintenanceStatus {
    let mut draft = StatusDraft::new(maintenance, now);
    draft.status.phase = Some(Phase::Pending);
    draft.status.last_error = error;
    (draft.status.queue, draft.status.hold) = (queue, None);
    // A status without this condition shows that the medik8s operator began, and may have cordoned.
    if ownership::cordoned_by(maintenance) != CordonedBy::Medik8s {
        draft.record_uncordoned(reason);
    }
    draft.record(ConditionType::Drained, false, reason, String::new());
    draft.record(ConditionType::Degraded, false, ConditionReason::AsExpected, String::new());
    draft.status
}

/// The status of a maintenance that is only planned.
pub fn planned(
    maintenance: &NodeMaintenance,
    observed: &ClusterState,
    now: Timestamp,
) -> NodeMaintenanceStatus {
    let mut draft = StatusDraft::new(maintenance, now);
    draft.status.phase = Some(Phase::Pending);
    draft.status.last_error.clear();
    draft.status.hold = None;
    draft.record_uncordoned(ConditionReason::Planned);
    draft.record(ConditionType::Drained, false, ConditionReason::Planned, String::new());
    let (is_degraded, reason, message) = match &observed.node_conditions_forbidden {
        Some(denied) => (true, ConditionReason::MissingAccess, denied.to_string()),
        None => (false, ConditionReason::AsExpected, String::new()),
    };
    draft.status.forbidden =
        observed.node_conditions_forbidden.as_ref().and_then(|denied| denied.access.clone());
    draft.record(ConditionType::Degraded, is_degraded, reason, message);
    draft.status
}

/// The status of a maintenance that has lost the node's lease for the moment: the node stays as it is and no pod is
/// evicted, though something else may have `uncordoned` it.
pub fn lease_lost(
    maintenance: &NodeMaintenance,
    uncordoned: bool,
    error: String,
    attempts: i32,
    now: Timestamp,
) -> NodeMaintenanceStatus {
    let mut draft = StatusDraft::new(maintenance, now);
    draft.status.error_on_lease_count = attempts;
    draft.status.last_error = error;
    draft.record_contested(uncordoned);
    if !condition::is_true(&draft.status.conditions, ConditionType::Drained) {
        draft.record(ConditionType::Drained, false, ConditionReason::LeaseLost, String::new());
    }
    draft.record(ConditionType::Degraded, true, ConditionReason::LeaseLost, String::new());
    draft.status
}

/// The status of a maintenance that is being deleted and waits before it returns the node. If it has the node, something
/// else may have `uncordoned` that.
pub fn stopping(
    maintenance: &NodeMaintenance,
    hold: Hold,
    uncordoned: Option<bool>,
    now: Timestamp,
) -> NodeMaintenanceStatus {
    let mut draft = StatusDraft::new(maintenance, now);
    if let Some(uncordoned) = uncordoned {
        draft.record_cordoned(uncordoned);
    }
    if uncordoned == Some(false) {
        let message = format!("node {} stays cordoned, waiting for {hold}", maintenance.spec.node_name);
        draft.record(ConditionType::Cordoned, true, hold.reason(), message);
    }
    draft.status.hold = Some(hold);
    // The drain has ended: what it waited for stays on the node.
    let status = &mut draft.status;
    status.blocked_pods.clear();
    status.waiting_pods = None;
    let counts = &mut status.pod_counts;
    counts.staying = [counts.blocked, counts.waiting].into_iter().fold(counts.staying, i32::saturating_add);
    (counts.blocked, counts.waiting) = (0, 0);
    draft.status
}

/// When an unfinished drain times out, measured from the cordon and without pauses; none without a `timeoutSeconds`, and
/// none for pods that come after it has succeeded. During a pause it moves on with the time.
pub fn deadline(maintenance: &NodeMaintenance, spec: &DrainSpec, now: Timestamp) -> Option<Timestamp> {
    if has_succeeded(maintenance) { None } else { after_cordon(maintenance, spec.timeout_seconds, now) }
}

/// Whether the drain has succeeded, as far as the status knows.
pub fn has_succeeded(maintenance: &NodeMaintenance) -> bool {
    maintenance.status.as_ref().is_some_and(|status| status.phase == Some(Phase::Succeeded))
}

/// When the pods that `waitForCompletion` selects are evicted like any other, measured like the [`deadline`]; none if they
/// never are. The wait for pods that come after the drain has succeeded is not longer.
pub fn completion_ends(maintenance: &NodeMaintenance, spec: &DrainSpec, now: Timestamp) -> Option<Timestamp> {
    after_cordon(maintenance, spec.wait_for_completion.as_ref()?.timeout_seconds, now)
}

/// When the node has been cordoned for so many seconds without pauses; none for 0 seconds. A node that is not cordoned yet
/// is cordoned now.
fn after_cordon(maintenance: &NodeMaintenance, seconds: i64, now: Timestamp) -> Option<Timestamp> {
    if seconds == 0 {
        return None;
    }
    let status = maintenance.status.as_ref();
    let since = status.and_then(NodeMaintenanceStatus::begun_at).unwrap_or_else(|| whole_seconds(now).0);
    let paused = SignedDuration::from_secs(status.map_or(0, |status| paused_seconds(status, now)));
    since.checked_add(SignedDuration::from_secs(seconds).saturating_add(paused)).ok()
}
