//! The decision: what one maintenance needs next, given all that was seen.
//!
//! Level-triggered: nothing here remembers an earlier call, so a reconciler that was killed anywhere goes on from what
//! the API says. A decision is made for the object as it is, never for the event that led to it.

pub mod cluster_state;
pub mod decision;
pub mod drain_status;
pub mod drain_survey;
pub mod eviction_queue;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};

use crate::api::condition::{self, ConditionReason, ConditionType};
use crate::api::latency_budget::STATUS_WRITE_INTERVAL;
use crate::api::maintenance::NodeMaintenance;
use crate::api::status::{BlockReason, NodeMaintenanceStatus, Phase, PodReference};
use crate::cluster::node;
use crate::cluster::node_lease;
use crate::cluster::pod;
use crate::decide::cluster_state::Observed;
use crate::decide::decision::{Announcement, Decision, EventReason, Subject};
use crate::decide::drain_survey::{Survey, attempts_due, if_changed};
use crate::decide::eviction_queue::{Queue, wait_until};
use crate::drain::node_conditions;
use crate::drain::node_patch;
use crate::drain::node_patch::{Past, Requester};
use crate::drain::plan::{DrainPlan, Verdict};
use crate::drain::pod_state;
use crate::gate::ownership;
use crate::gate::{Turn, turn};

/// What others do wakes those who wait for them; should that be missed, they look again this much later.
const LINE_PATIENCE: Duration = Duration::from_secs(30);

/// What `maintenance` needs next.
pub fn decide(maintenance: &NodeMaintenance, observed: &Observed, now: Timestamp) -> Decision {
    let ends = maintenance.metadata.deletion_timestamp.is_some();
    let mut decision =
        if ends { give_back(maintenance, observed) } else { advance(maintenance, observed, now) };
    let has_node = ownership::holder(maintenance, &observed.rivals).is_none() && (!ends || decision.leave);
    if observed.node_conditions && has_node {
        let status = decision.status.clone().or_else(|| maintenance.status.clone()).unwrap_or_default();
        decision.node_conditions = Some(node_conditions::wanted(maintenance, &status, ends));
    }
    decision
}

/// What a maintenance that is wanted needs next.
fn advance(maintenance: &NodeMaintenance, observed: &Observed, now: Timestamp) -> Decision {
    let mut decision =
        Decision { adopt: ownership::adopt(maintenance, observed.node.as_deref()), ..Decision::default() };
    if let Some(holder) = ownership::holder(maintenance, &observed.rivals) {
        let error =
            format!("a NodeMaintenance for node {} already exists: {holder}", maintenance.spec.node_name);
        give_up(&mut decision, maintenance, ConditionReason::DuplicateMaintenance, error, now);
        return decision;
    }
    let Some(node) = &observed.node else {
        decision.wanted = Some(HashSet::new());
        let error = format!("nodes {:?} not found", maintenance.spec.node_name);
        give_up(&mut decision, maintenance, ConditionReason::NodeNotFound, error, now);
        return decision;
    };
    if !take_turn(&mut decision, maintenance, observed, node, now) {
        decision.wanted = Some(HashSet::new());
        return decision;
    }
    let postponed = cordon(&mut decision, maintenance, observed, node);
    if let Some(error) = observed.forbidden.clone() {
        decision.wanted = Some(HashSet::new());
        give_up(&mut decision, maintenance, ConditionReason::MissingRights, error, now);
    } else {
        drain(&mut decision, maintenance, observed, node, postponed, now);
    }
    announce_override(&mut decision, maintenance, observed);
    decision
}

/// What is to be said when the API server refuses `maintenance` a right that it cannot do without.
pub fn lacking(maintenance: &NodeMaintenance, error: String, now: Timestamp) -> Decision {
    let mut decision = Decision { wanted: Some(HashSet::new()), ..Decision::default() };
    give_up(&mut decision, maintenance, ConditionReason::MissingRights, error, now);
    decision
}

/// Whether the node is ours to work on; says why, if it is not.
fn take_turn(
    decision: &mut Decision,
    maintenance: &NodeMaintenance,
    observed: &Observed,
    node: &Node,
    now: Timestamp,
) -> bool {
    if let Some(sentence) = &observed.leases_forbidden {
        let error = node_lease::refused(sentence);
        give_up(decision, maintenance, ConditionReason::MissingRights, error, now);
        return false;
    }
    match turn(maintenance, node, observed.lease.as_deref(), &observed.gate, now) {
        Turn::Ours { write, renew_at } => {
            decision.at_work = true;
            decision.lease = write;
            if let Some(at) = renew_at {
                decision.look_again_in(wait_until(at, now));
            }
            true
        }
        Turn::Waits { reason, error, until } => {
            let status = drain_status::waiting(maintenance, reason, error, now);
            settle_status(decision, maintenance, status, observed.status_written, now);
            decision.look_again_in(until.map_or(LINE_PATIENCE, |until| wait_until(until, now)));
            false
        }
        Turn::Lost { error, attempts, next } => {
            let status = drain_status::lease_lost(maintenance, error, attempts, now);
            settle_status(decision, maintenance, status, observed.status_written, now);
            decision.look_again_in(wait_until(next, now));
            false
        }
        Turn::Forfeited { error } => {
            uncordon(decision, maintenance, observed, node);
            give_up(decision, maintenance, ConditionReason::LeaseLost, error, now);
            false
        }
    }
}

/// Cordons the node. Where something else keeps uncordoning it, that is put off: returns for how long.
fn cordon(
    decision: &mut Decision,
    maintenance: &NodeMaintenance,
    observed: &Observed,
    node: &Node,
) -> Option<Duration> {
    let requester = requester(maintenance, observed, node);
    let patch = node_patch::cordon(node, &requester)?;
    let name = &maintenance.spec.node_name;
    if requester.past == Past::Ours || node_patch::is_named(node, requester.uid) {
        if let Some(wait) = observed.recordons.wait() {
            decision.look_again_in(wait);
            return Some(wait);
        }
        decision.recordons = Some(observed.recordons.next_count());
        // Otherwise it was only the record that was missing, or that named nobody.
        if !node_patch::bears_every_mark(node, observed.group) {
            let sentence =
                format!("Node {name} was uncordoned during its maintenance, and is cordoned again");
            for subject in [Subject::Maintenance, Subject::Node] {
                decision.events.push(announce(subject, EventReason::RecordonNode, sentence.clone()));
            }
        }
    }
    decision.node = Some(patch);
    None
}

fn requester<'a>(maintenance: &'a NodeMaintenance, observed: &'a Observed, node: &Node) -> Requester<'a> {
    let uid = ownership::uid(maintenance);
    let is_another = ownership::is_of_another_node(maintenance, node) && !node_patch::is_named(node, uid);
    let past = match ownership::past(maintenance) {
        _ if is_another => Past::Fresh,
        Past::Fresh if has_lost_record(maintenance, observed, node) => Past::Ours,
        past => past,
    };
    Requester { uid, group: observed.group, past, others: &observed.others }
}

/// Whether the node bears every mark and no record, before any status tells of them: the finalizer and the lease come
/// before the marks, so these are ours, and somebody removed the record.
fn has_lost_record(maintenance: &NodeMaintenance, observed: &Observed, node: &Node) -> bool {
    node_patch::bears_every_mark(node, observed.group)
        && !node_patch::has_record(node)
        && ownership::is_adopted(maintenance)
        && observed.lease.as_deref().is_some_and(node_lease::is_ours)
}

/// Said with the status by which a maintenance has begun: until that is written, whoever looks again says it again, and
/// afterwards nobody does.
fn announce_override(decision: &mut Decision, maintenance: &NodeMaintenance, observed: &Observed) {
    let Some(next) = &decision.status else { return };
    let begins =
        !ownership::has_begun(maintenance) && condition::holds(&next.conditions, ConditionType::Cordoned);
    if let (true, Some(violation)) = (begins, &observed.gate.quorum) {
        let sentence = format!("By annotation: {violation}");
        decision.events.push(announce(Subject::Maintenance, EventReason::QuorumOverridden, sentence));
    }
}

fn uncordon(decision: &mut Decision, maintenance: &NodeMaintenance, observed: &Observed, node: &Node) {
    decision.node = node_patch::uncordon(node, &requester(maintenance, observed, node));
    if decision.node.is_some() {
        let sentence = format!("Node {} is given back", maintenance.spec.node_name);
        decision.events.push(announce(Subject::Node, EventReason::UncordonNode, sentence));
    }
}

/// The drain of a node that is cordoned, or will be by the time the rest of the decision is carried out.
fn drain(
    decision: &mut Decision,
    maintenance: &NodeMaintenance,
    observed: &Observed,
    node: &Node,
    postponed: Option<Duration>,
    now: Timestamp,
) {
    let Some(pods) = &observed.pods else { return };
    let spec = maintenance.spec.drain.clone().unwrap_or_default();
    let mut plan = match DrainPlan::new(pods.iter().cloned(), &spec, &observed.daemon_sets, now) {
        Ok(plan) => plan,
        Err(error) => {
            decision.wanted = Some(HashSet::new());
            return give_up(decision, maintenance, ConditionReason::InvalidDrain, error.to_string(), now);
        }
    };
    plan.give_up_on(|pod| observed.returned.contains(pod::uid(pod)) || is_given_up(maintenance, pod));
    let queue = Queue::new(&plan, &spec, observed, observed.steady_now);
    let survey = Survey::new(&plan, observed, &queue, node::is_ready(node), now);
    let deadline = drain_status::deadline(maintenance, &spec);
    let is_contested = observed.recordons.is_contested();
    let next = drain_status::of_drain(maintenance, &survey, is_contested, deadline, now);
    if let Some(calm) = observed.recordons.calm_in().filter(|_| is_contested) {
        decision.look_again_in(calm);
    }
    let timed_out = next.phase == Some(Phase::Failed);
    settle_status(decision, maintenance, next, observed.status_written, now);

    if let Some(at) = plan.next_change(&spec, now) {
        decision.look_again_in(wait_until(at, now));
    }
    let changes = plan.pending().filter_map(|judged| pod_state::next_change(judged, now));
    for at in changes.chain(deadline).filter(|at| *at > now) {
        decision.look_again_in(wait_until(at, now));
    }
    // A pod that is evicted from a node that takes pods may land on it again.
    if timed_out || postponed.is_some() {
        decision.wanted = Some(HashSet::new());
        return;
    }
    let wanted = plan.pods.iter().filter(|judged| judged.verdict == Verdict::Evict);
    decision.wanted = Some(wanted.map(|judged| pod::uid(&judged.pod).to_owned()).collect());
    // Also while nothing is asked yet: the status says of them already that they are blocked.
    let held = plan.pods.iter().filter_map(|judged| {
        queue.held.get(pod::uid(&judged.pod)).map(|held| (judged.pod.clone(), held.budget.clone()))
    });
    decision.held = held.collect();
    match observed.gathering.hold() {
        Some(wait) if survey.pending().next().is_some() => decision.look_again_in(wait),
        _ => {
            decision.evictions = queue.evictions;
            if let Some(next) = queue.next {
                decision.look_again_in(next.since(observed.steady_now));
            }
        }
    }
}

/// Whether the status says that the pod is not to be moved again: that outlives the process that counted.
fn is_given_up(maintenance: &NodeMaintenance, pod: &Pod) -> bool {
    let blocked = maintenance.status.iter().flat_map(|status| &status.blocked_pods);
    let mut given_up = blocked.filter(|blocked| blocked.reason == BlockReason::ComesBack);
    let PodReference { namespace, name } = pod::reference(pod);
    given_up.any(|blocked| blocked.namespace == namespace && blocked.name == name)
}

/// Undoes what was done to the node, then lets the object go.
fn give_back(maintenance: &NodeMaintenance, observed: &Observed) -> Decision {
    // Another maintenance of the node inherits the cordon, and the record of what the node was before.
    let node = observed.node.as_deref();
    let heir = ownership::heir(&observed.rivals);
    let has_record = |rival: &Arc<NodeMaintenance>| {
        node.is_some_and(|node| node_patch::is_named(node, ownership::uid(rival)))
    };
    let inherited = heir.is_some() || observed.rivals.iter().any(has_record);
    let mut decision = Decision { leave: !inherited, ..Decision::default() };
    if !ownership::is_adopted(maintenance) {
        return decision;
    }
    decision.release = Some(ownership::release(maintenance));
    let asked = observed.machines.asked_to_leave(&observed.attempts, maintenance.status.as_ref());
    decision.call_off = asked && !inherited;
    if let (Some(node), Some(heir)) = (node, heir) {
        decision.node = node_patch::hand_over(node, &requester(maintenance, observed, node), heir);
    }
    if !inherited {
        if let Some(node) = node {
            uncordon(&mut decision, maintenance, observed, node);
        }
        decision.drop_lease = observed.lease.clone().filter(|lease| node_lease::is_ours(lease));
    }
    let node = &maintenance.spec.node_name;
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
    let status = drain_status::given_up(maintenance, decision.at_work, reason, error, now);
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
    // A clock that was set back must not hold the last word.
    let due = written.map(|at| at.min(now).saturating_add(STATUS_WRITE_INTERVAL).unwrap_or(now));
    let due = due.into_iter().chain(attempts_due(&before, &next, now)).max();
    if let Some(due) = due.filter(|due| *due > now) {
        return decision.look_again_in(wait_until(due, now));
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

#[cfg(test)]
#[path = "drain_tests.rs"]
mod tests;
