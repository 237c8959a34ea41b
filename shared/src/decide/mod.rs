//! The decision: what to do next for one maintenance, given everything that was observed.
//!
//! It is level-triggered: no function here remembers an earlier call, so a reconciler that was killed at any point
//! continues from the state in the API. A decision depends on the object as it is, never on the event that led to it.

pub mod cluster_state;
pub mod decision;
pub mod drain_status;
pub mod drain_survey;
pub mod eviction_queue;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use crate::api::condition::{self, ConditionReason, ConditionType};
use crate::api::latency_budget::STATUS_WRITE_INTERVAL;
use crate::api::maintenance::NodeMaintenance;
use crate::api::status::{BlockReason, NodeMaintenanceStatus, Phase, PodReference};
use crate::cluster::node;
use crate::cluster::node_lease;
use crate::cluster::pod::{self, DrainPod};
use crate::decide::cluster_state::ClusterState;
use crate::decide::decision::{Decision, EventReason, EventSubject, PendingEvent};
use crate::decide::drain_status::{DrainContext, Failure};
use crate::decide::drain_survey::{DrainSurvey, attempts_due, if_changed};
use crate::decide::eviction_queue::{EvictionQueue, wait_until};
use crate::drain::eviction_outcome::AccessDenied;
use crate::drain::node_conditions;
use crate::drain::node_patch;
use crate::drain::node_patch::{CordonedBy, Requester};
use crate::drain::plan::{DrainPlan, Verdict};
use crate::drain::pod_state;
use crate::gate::max_unavailable_queue::{POSITION_WRITE_INTERVAL, Queued, ShownPosition};
use crate::gate::ownership;
use crate::gate::{GateResult, evaluate};

/// A maintenance that waits for something other than its turn is reconciled when that changes. This is the fallback.
const RECHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Decides what to do next for `maintenance`.
pub fn decide(maintenance: &NodeMaintenance, observed: &ClusterState, now: Timestamp) -> Decision {
    let ends = maintenance.metadata.deletion_timestamp.is_some();
    let mut decision = if ends { stop(maintenance, observed) } else { advance(maintenance, observed, now) };
    let has_node =
        ownership::holder(maintenance, &observed.competing).is_none() && (!ends || decision.node_released);
    if observed.node_conditions && has_node {
        let status = decision.status.clone().or_else(|| maintenance.status.clone()).unwrap_or_default();
        decision.node_conditions = Some(node_conditions::wanted(maintenance, &status, ends));
    }
    decision
}

/// Whether the decision depends on the pods of the node: the maintenance has the node, and is not in front of the gate.
pub fn needs_pods(maintenance: &NodeMaintenance, observed: &ClusterState, now: Timestamp) -> bool {
    let Some(node) = &observed.node else { return false };
    let waits = || {
        matches!(
            evaluate(maintenance, node, observed.lease.as_deref(), &observed.gate, now),
            GateResult::Waits { .. }
        )
    };
    maintenance.metadata.deletion_timestamp.is_none()
        && observed.leases_forbidden.is_none()
        && ownership::holder(maintenance, &observed.competing).is_none()
        && !waits()
}

/// Decides about a maintenance that is not being deleted.
fn advance(maintenance: &NodeMaintenance, observed: &ClusterState, now: Timestamp) -> Decision {
    let mut decision = Decision {
        add_finalizer: ownership::adopt(maintenance, observed.node.as_deref()),
        ..Decision::default()
    };
    if let Some(holder) = ownership::holder(maintenance, &observed.competing) {
        let error =
            format!("a NodeMaintenance for node {} already exists: {holder}", maintenance.spec.node_name);
        fail(&mut decision, maintenance, ConditionReason::DuplicateMaintenance, error.into(), now);
        return decision;
    }
    let Some(node) = &observed.node else {
        decision.evictable = Some(HashSet::new());
        let error = format!("nodes {:?} not found", maintenance.spec.node_name);
        fail(&mut decision, maintenance, ConditionReason::NodeNotFound, error.into(), now);
        return decision;
    };
    if !pass_gate(&mut decision, maintenance, observed, node, now) {
        decision.evictable = Some(HashSet::new());
        return decision;
    }
    let postponed = cordon(&mut decision, maintenance, observed, node);
    if let Some(denied) = observed.pods_forbidden.clone() {
        decision.evictable = Some(HashSet::new());
        fail(&mut decision, maintenance, ConditionReason::MissingRights, denied.into(), now);
    } else {
        drain(&mut decision, maintenance, observed, node, postponed, now);
    }
    record_override(&mut decision, maintenance, observed);
    decision
}

/// The decision for a maintenance whose node or lease the reconciler may not write.
pub fn missing_access(maintenance: &NodeMaintenance, denied: AccessDenied, now: Timestamp) -> Decision {
    let mut decision = Decision { evictable: Some(HashSet::new()), ..Decision::default() };
    fail(&mut decision, maintenance, ConditionReason::MissingRights, denied.into(), now);
    decision
}

/// Whether the maintenance may work on its node. If not, the status says why.
fn pass_gate(
    decision: &mut Decision,
    maintenance: &NodeMaintenance,
    observed: &ClusterState,
    node: &Node,
    now: Timestamp,
) -> bool {
    if let Some(denied) = observed.leases_forbidden.clone() {
        fail(decision, maintenance, ConditionReason::MissingRights, lease_denied(denied).into(), now);
        return false;
    }
    match evaluate(maintenance, node, observed.lease.as_deref(), &observed.gate, now) {
        GateResult::Ours { write, renew_at } => {
            decision.at_work = true;
            decision.lease = write;
            if let Some(at) = renew_at {
                decision.requeue_in(wait_until(at, now));
            }
            true
        }
        GateResult::Waits { reason, error, queue, until } => {
            let position = queue.as_ref().map(|queued| queued.position);
            let status = drain_status::waiting(maintenance, reason, error, position, now);
            if !is_renumbered_early(maintenance, queue.as_ref(), &status, observed.status_written, now) {
                settle_status(decision, maintenance, status, observed.status_written, now);
            }
            // Whoever keeps the queue triggers a maintenance when it is its turn.
            if queue.is_none() {
                decision.requeue_in(until.map_or(RECHECK_INTERVAL, |until| wait_until(until, now)));
            }
            false
        }
        GateResult::Lost { error, attempts, next } => {
            let status = drain_status::lease_lost(maintenance, error, attempts, now);
            settle_status(decision, maintenance, status, observed.status_written, now);
            decision.requeue_in(wait_until(next, now));
            false
        }
        GateResult::Forfeited { error } => {
            uncordon(decision, maintenance, observed, node);
            fail(decision, maintenance, ConditionReason::LeaseLost, error.into(), now);
            false
        }
    }
}

/// Whether only the numbers of the queue differ in the `next` status, too soon after the last write.
fn is_renumbered_early(
    maintenance: &NodeMaintenance,
    queued: Option<&Queued>,
    next: &NodeMaintenanceStatus,
    written: Option<Timestamp>,
    now: Timestamp,
) -> bool {
    let (Some(before), Some(queued)) = (&maintenance.status, queued) else { return false };
    let mut same = next.clone();
    (same.queue, same.last_error) = (before.queue, before.last_error.clone());
    queued.shown_in(before) == ShownPosition::OldNumbers
        && same == *before
        && position_due(before, written, now).is_some_and(|due| due > now)
}

/// When the numbers of the queue may be written again, after a status that was `written` then or, if that is not known,
/// at its last update.
pub fn position_due(
    status: &NodeMaintenanceStatus,
    written: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    let last = written.or(status.last_update.as_ref().map(|at| at.0))?;
    // A clock that was set back delays nothing for long.
    last.min(now).checked_add(POSITION_WRITE_INTERVAL).ok()
}

/// The denial of access to leases, with a hint at the usual cause.
pub fn lease_denied(denied: AccessDenied) -> AccessDenied {
    AccessDenied { message: node_lease::with_hint(&denied.message), ..denied }
}

/// Cordons the node. If something keeps uncordoning it, that is delayed: returns for how long.
fn cordon(
    decision: &mut Decision,
    maintenance: &NodeMaintenance,
    observed: &ClusterState,
    node: &Node,
) -> Option<Duration> {
    let requester = requester(maintenance, observed, node);
    let patch = node_patch::cordon(node, &requester)?;
    let name = &maintenance.spec.node_name;
    if requester.cordoned_by == CordonedBy::NmReconciler || node_patch::record_names(node, requester.uid) {
        if let Some(wait) = observed.recordons.wait() {
            decision.requeue_in(wait);
            return Some(wait);
        }
        decision.recordon_count = Some(observed.recordons.next_count());
        // Otherwise only the undo record was missing, or it named no maintenance.
        if !node_patch::has_all_marks(node, observed.group) {
            let sentence = format!("Node {name} was uncordoned during its maintenance and is cordoned again");
            for subject in [EventSubject::Maintenance, EventSubject::Node] {
                decision.events.push(event(subject, EventReason::RecordonNode, sentence.clone()));
            }
        }
    }
    decision.node = Some(patch);
    None
}

fn requester<'a>(maintenance: &'a NodeMaintenance, observed: &'a ClusterState, node: &Node) -> Requester<'a> {
    let uid = ownership::uid(maintenance);
    let is_another = ownership::is_of_another_node(maintenance, node) && !node_patch::record_names(node, uid);
    let cordoned_by = match ownership::cordoned_by(maintenance) {
        _ if is_another => CordonedBy::Nobody,
        CordonedBy::Nobody if has_lost_record(maintenance, observed, node) => CordonedBy::NmReconciler,
        cordoned_by => cordoned_by,
    };
    Requester { uid, group: observed.group, cordoned_by, others: &observed.other_uids }
}

/// Whether the node has all marks and no undo record, before the status says that it was cordoned. The finalizer and the
/// lease are written before the marks, so the marks are ours and someone removed the record.
fn has_lost_record(maintenance: &NodeMaintenance, observed: &ClusterState, node: &Node) -> bool {
    node_patch::has_all_marks(node, observed.group)
        && !node_patch::has_record(node)
        && ownership::is_adopted(maintenance)
        && observed.lease.as_deref().is_some_and(node_lease::is_ours)
}

/// Records the override with the status by which the maintenance has begun. Until that is written it is recorded again.
fn record_override(decision: &mut Decision, maintenance: &NodeMaintenance, observed: &ClusterState) {
    let Some(next) = &decision.status else { return };
    let begins =
        !ownership::has_begun(maintenance) && condition::is_true(&next.conditions, ConditionType::Cordoned);
    if let (true, Some(violation)) = (begins, &observed.gate.quorum) {
        let sentence = format!("By annotation: {violation}");
        decision.events.push(event(EventSubject::Maintenance, EventReason::QuorumOverridden, sentence));
    }
}

fn uncordon(decision: &mut Decision, maintenance: &NodeMaintenance, observed: &ClusterState, node: &Node) {
    decision.node = node_patch::uncordon(node, &requester(maintenance, observed, node));
    if decision.node.is_some() {
        let sentence = format!("Node {} is uncordoned", maintenance.spec.node_name);
        decision.events.push(event(EventSubject::Node, EventReason::UncordonNode, sentence));
    }
}

/// Drains a node that is cordoned, or will be before the rest of the decision is applied.
fn drain(
    decision: &mut Decision,
    maintenance: &NodeMaintenance,
    observed: &ClusterState,
    node: &Node,
    postponed: Option<Duration>,
    now: Timestamp,
) {
    let Some(pods) = &observed.pods else { return };
    let spec = maintenance.spec.drain.clone().unwrap_or_default();
    let mut plan = match DrainPlan::new(pods.iter().cloned(), &spec, &observed.daemon_sets, now) {
        Ok(plan) => plan,
        Err(error) => {
            decision.evictable = Some(HashSet::new());
            return fail(decision, maintenance, ConditionReason::InvalidDrain, error.to_string().into(), now);
        }
    };
    plan.block_respawning(|pod| {
        observed.respawned.contains(pod::uid(pod)) || is_blocked_as_respawning(maintenance, pod)
    });
    let queue = EvictionQueue::new(&plan, &spec, observed, observed.steady_now);
    let survey = DrainSurvey::new(&plan, observed, &queue, node::is_ready(node), now);
    let deadline = drain_status::deadline(maintenance, &spec);
    let is_contested = observed.recordons.is_contested();
    let node_conditions_forbidden = observed.node_conditions_forbidden.as_ref();
    let context = DrainContext { deadline, is_contested, node_conditions_forbidden };
    let next = drain_status::draining(maintenance, &survey, context, now);
    if let Some(reset) = observed.recordons.reset_in().filter(|_| is_contested) {
        decision.requeue_in(reset);
    }
    let timed_out = next.phase == Some(Phase::Failed);
    settle_status(decision, maintenance, next, observed.status_written, now);

    if let Some(at) = plan.next_change(&spec, now) {
        decision.requeue_in(wait_until(at, now));
    }
    let changes = plan.pending().filter_map(|planned| pod_state::next_change(planned, now));
    for at in changes.chain(deadline).filter(|at| *at > now) {
        decision.requeue_in(wait_until(at, now));
    }
    // A pod that is evicted from a schedulable node may be scheduled to it again.
    if timed_out || postponed.is_some() {
        decision.evictable = Some(HashSet::new());
        return;
    }
    let wanted = plan.pods.iter().filter(|planned| planned.verdict == Verdict::Evict);
    decision.evictable = Some(wanted.map(|planned| pod::uid(&planned.pod).to_owned()).collect());
    // Also while evictions are delayed: the status says already that these pods are blocked.
    let blocked = plan.pods.iter().filter_map(|planned| {
        let block = queue.blocked_by_budget.get(pod::uid(&planned.pod))?;
        Some((planned.pod.clone(), block.budget.clone()))
    });
    decision.blocked_by_budget = blocked.collect();
    match observed.batch.eviction_delay() {
        Some(wait) if survey.pending().next().is_some() => decision.requeue_in(wait),
        _ => {
            decision.evictions = queue.evictions;
            if let Some(next) = queue.next {
                decision.requeue_in(next.since(observed.steady_now));
            }
        }
    }
}

/// Whether the status says that the pod respawns and is not to be evicted again, which outlives the process that counted.
fn is_blocked_as_respawning(maintenance: &NodeMaintenance, pod: &DrainPod) -> bool {
    let blocked = maintenance.status.iter().flat_map(|status| &status.blocked_pods);
    let mut respawning = blocked.filter(|blocked| blocked.reason == BlockReason::ComesBack);
    let PodReference { namespace, name } = pod::reference(pod);
    respawning.any(|blocked| blocked.namespace == namespace && blocked.name == name)
}

/// Returns the node to service, then removes the finalizer.
fn stop(maintenance: &NodeMaintenance, observed: &ClusterState) -> Decision {
    // Another maintenance of the node inherits the cordon and the undo record.
    let node = observed.node.as_deref();
    let heir = ownership::heir(&observed.competing);
    let has_record = |rival: &Arc<NodeMaintenance>| {
        node.is_some_and(|node| node_patch::record_names(node, ownership::uid(rival)))
    };
    let inherited = heir.is_some() || observed.competing.iter().any(has_record);
    let mut decision = Decision { node_released: !inherited, ..Decision::default() };
    if !ownership::is_adopted(maintenance) {
        return decision;
    }
    decision.remove_finalizer = Some(ownership::release(maintenance));
    let asked = observed.evacuations.may_be_evacuating(&observed.attempts, maintenance.status.as_ref());
    decision.cancel_evacuation = asked && !inherited;
    if let (Some(node), Some(heir)) = (node, heir) {
        decision.node = node_patch::hand_over(node, &requester(maintenance, observed, node), heir);
    }
    if !inherited {
        if let Some(node) = node {
            uncordon(&mut decision, maintenance, observed, node);
        }
        decision.release_lease = observed.lease.clone().filter(|lease| node_lease::is_ours(lease));
    }
    let node = &maintenance.spec.node_name;
    let sentence = format!("Maintenance of node {node} is removed");
    decision.events.push(event(EventSubject::Maintenance, EventReason::RemovedMaintenance, sentence));
    decision
}

/// The maintenance has failed for as long as the reason persists.
fn fail(
    decision: &mut Decision,
    maintenance: &NodeMaintenance,
    reason: ConditionReason,
    error: Failure,
    now: Timestamp,
) {
    let status = drain_status::failed(maintenance, decision.at_work, reason, error, now);
    settle_status(decision, maintenance, status, None, now);
}

/// Writes the status if it changed, at most every [`STATUS_WRITE_INTERVAL`], and records a change of phase as an event.
fn settle_status(
    decision: &mut Decision,
    maintenance: &NodeMaintenance,
    next: NodeMaintenanceStatus,
    written: Option<Timestamp>,
    now: Timestamp,
) {
    let before = maintenance.status.clone().unwrap_or_default();
    let Some(next) = if_changed(&before, next, now) else {
        return;
    };
    // A clock that was set back must not delay the last write.
    let due = written.map(|at| at.min(now).saturating_add(STATUS_WRITE_INTERVAL).unwrap_or(now));
    let due = due.into_iter().chain(attempts_due(&before, &next, now)).max();
    if let Some(due) = due.filter(|due| *due > now) {
        return decision.requeue_in(wait_until(due, now));
    }
    record_phase(decision, maintenance, &before, &next);
    decision.status = Some(next);
}

fn record_phase(
    decision: &mut Decision,
    maintenance: &NodeMaintenance,
    before: &NodeMaintenanceStatus,
    next: &NodeMaintenanceStatus,
) {
    let node = &maintenance.spec.node_name;
    let mut record =
        |reason, sentence| decision.events.push(event(EventSubject::Maintenance, reason, sentence));
    if before.phase.is_none() {
        record(EventReason::BeginMaintenance, format!("Maintenance of node {node} begins"));
    }
    match next.phase {
        phase if phase == before.phase => {}
        Some(Phase::Succeeded) => record(EventReason::SucceedMaintenance, format!("Node {node} is drained")),
        Some(Phase::Failed) => record(EventReason::FailedMaintenance, next.last_error.clone()),
        _ => {}
    }
}

fn event(subject: EventSubject, reason: EventReason, note: String) -> PendingEvent {
    PendingEvent { subject, reason, note }
}

#[cfg(test)]
#[path = "drain_tests.rs"]
mod tests;
