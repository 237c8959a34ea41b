//! The decision: what one maintenance needs next, given all that was seen.
//!
//! Level-triggered: nothing here remembers an earlier call, so a reconciler that was killed anywhere goes on from what
//! the API says. A decision is made for the object as it is, never for the event that led to it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;

use crate::condition::ConditionReason;
use crate::decision::{Announcement, Decision, EventReason, Eviction, Subject};
use crate::drain_plan::{DrainPlan, Verdict};
use crate::eviction_outcome::EvictionOutcome;
use crate::maintenance::{DrainSpec, NodeMaintenance};
use crate::observed::Observed;
use crate::progress::{Survey, if_changed};
use crate::status::{NodeMaintenanceStatus, Phase};
use crate::{drain_status, node_patch, ownership, pod, pod_state};

/// Two status writes of one object are at least this far apart, unless the phase changes.
const STATUS_PACE: Duration = Duration::from_millis(500);

/// A budget that has freed up is asked again after this, however long its pods' pause would be.
const BUDGET_PAUSE: SignedDuration = SignedDuration::from_millis(200);

/// What `maintenance` needs next.
pub fn decide(maintenance: &NodeMaintenance, observed: &Observed, now: Timestamp) -> Decision {
    if maintenance.metadata.deletion_timestamp.is_some() {
        return give_back(maintenance, observed);
    }
    let mut decision =
        Decision { adopt: ownership::adopt(maintenance, observed.node.as_deref()), ..Decision::default() };
    if let Some(holder) = ownership::holder(maintenance, &observed.rivals) {
        let error =
            format!("a NodeMaintenance for node {} already exists: {holder}", maintenance.spec.node_name);
        give_up(&mut decision, maintenance, ConditionReason::DuplicateMaintenance, error, now);
        return decision;
    }
    let Some(node) = &observed.node else {
        let error = format!("nodes {:?} not found", maintenance.spec.node_name);
        give_up(&mut decision, maintenance, ConditionReason::NodeNotFound, error, now);
        return decision;
    };
    decision.node = node_patch::cordon(node, ownership::unrecorded(maintenance));
    drain(&mut decision, maintenance, observed, node, now);
    decision
}

/// The drain of a node that is cordoned, or will be by the time the rest of the decision is carried out.
fn drain(
    decision: &mut Decision,
    maintenance: &NodeMaintenance,
    observed: &Observed,
    node: &Node,
    now: Timestamp,
) {
    let Some(pods) = &observed.pods else { return };
    let spec = maintenance.spec.drain.clone().unwrap_or_default();
    let plan = match DrainPlan::new(pods.iter().cloned(), &spec, &observed.daemon_sets, now) {
        Ok(plan) => plan,
        Err(error) => {
            return give_up(decision, maintenance, ConditionReason::InvalidDrain, error.to_string(), now);
        }
    };
    let survey = Survey::new(&plan, &observed.attempts, is_ready(node), now);
    let deadline = drain_status::deadline(maintenance, &spec);
    let next = drain_status::of_drain(maintenance, &survey, deadline, now);
    let timed_out = next.phase == Some(Phase::Failed);
    settle_status(decision, maintenance, next, observed.status_written, now);

    if let Some(deadline) = deadline.filter(|deadline| *deadline > now) {
        look_again_at(decision, deadline, now);
    }
    for at in plan.pending().filter_map(|judged| pod_state::next_change(judged, now)) {
        look_again_at(decision, at, now);
    }
    if !timed_out {
        match observed.gathering.hold() {
            Some(wait) if survey.pending().next().is_some() => decision.look_again_in(wait),
            _ => evict(decision, &plan, &spec, observed, now),
        }
    }
}

/// Chooses the pods to be asked now and says when the others are due.
fn evict(decision: &mut Decision, plan: &DrainPlan, spec: &DrainSpec, observed: &Observed, now: Timestamp) {
    let mut budgets = observed.budgets.clone();
    let candidates = plan
        .pods
        .iter()
        .filter(|judged| judged.verdict == Verdict::Evict && pod::deadline(&judged.pod).is_none());
    for judged in candidates {
        let attempt = observed.attempts.get(pod::uid(&judged.pod)).cloned().unwrap_or_default();
        let free = budgets.charge(&judged.pod);
        let Some(mut due) = attempt.next_try() else {
            continue;
        };
        if let (true, Some((at, EvictionOutcome::RefusedByBudget(_)))) = (free, &attempt.last) {
            due = due.min(at.saturating_add(BUDGET_PAUSE).unwrap_or(due));
        }
        if due > now {
            look_again_at(decision, due, now);
            continue;
        }
        decision.evictions.push(Eviction {
            pod: judged.pod.clone(),
            grace_period_seconds: (spec.grace_period_seconds >= 0).then_some(spec.grace_period_seconds),
        });
    }
}

/// Undoes what was done to the node, then lets the object go.
fn give_back(maintenance: &NodeMaintenance, observed: &Observed) -> Decision {
    if !ownership::is_adopted(maintenance) {
        return Decision::default();
    }
    let mut decision = Decision { release: Some(ownership::release(maintenance)), ..Decision::default() };
    // Another maintenance of the node inherits the cordon, and the record of what the node was before.
    if let (Some(node), true) = (&observed.node, observed.rivals.is_empty()) {
        decision.node = node_patch::uncordon(node, ownership::unrecorded(maintenance));
    }
    let node = &maintenance.spec.node_name;
    if decision.node.is_some() {
        decision.events.push(announce(
            Subject::Node,
            EventReason::UncordonNode,
            format!("Node {node} is given back"),
        ));
    }
    let sentence = format!("Maintenance of node {node} is over");
    decision.events.push(announce(Subject::Maintenance, EventReason::RemovedMaintenance, sentence));
    decision
}

/// Gives the maintenance up for as long as the reason holds.
fn give_up(
    decision: &mut Decision,
    maintenance: &NodeMaintenance,
    reason: ConditionReason,
    error: String,
    now: Timestamp,
) {
    let status = drain_status::given_up(maintenance, reason, error, now);
    settle_status(decision, maintenance, status, None, now);
}

/// Writes the status if it changed, not too often, and announces a change of phase.
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
    let due = written.map(|at| at.saturating_add(STATUS_PACE).unwrap_or(at));
    if let (Some(due), true) = (due.filter(|due| *due > now), before.phase == next.phase) {
        return look_again_at(decision, due, now);
    }
    announce_phase(decision, maintenance, &before, &next);
    decision.status = Some(next);
}

fn announce_phase(
    decision: &mut Decision,
    maintenance: &NodeMaintenance,
    before: &NodeMaintenanceStatus,
    next: &NodeMaintenanceStatus,
) {
    let node = &maintenance.spec.node_name;
    let mut say = |reason, sentence| decision.events.push(announce(Subject::Maintenance, reason, sentence));
    if before.phase.is_none() {
        say(EventReason::BeginMaintenance, format!("Maintenance of node {node} begins"));
    }
    match next.phase {
        phase if phase == before.phase => {}
        Some(Phase::Succeeded) => say(EventReason::SucceedMaintenance, format!("Node {node} is drained")),
        Some(Phase::Failed) => say(EventReason::FailedMaintenance, next.last_error.clone()),
        _ => {}
    }
}

fn announce(subject: Subject, reason: EventReason, note: String) -> Announcement {
    Announcement { subject, reason, note }
}

fn look_again_at(decision: &mut Decision, at: Timestamp, now: Timestamp) {
    let wait = Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO);
    decision.look_again_in(wait);
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().find(|condition| condition.type_ == "Ready").is_none_or(|ready| ready.status == "True")
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
