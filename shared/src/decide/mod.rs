//! The decision: what to do next for one maintenance, given everything that was observed.
//!
//! It is level-triggered: no function here remembers an earlier call, so a reconciler that was killed at any point
//! continues from the state in the API. A decision depends on the object as it is, never on the event that led to it.

pub mod cluster_state;
pub mod decision;
pub mod drain_plan;
pub mod drain_status;
pub mod drain_survey;
pub mod evacuation_end;
mod eviction_order;
pub mod eviction_queue;
pub mod failed_write;
pub mod failure_report;
pub mod hold;
pub mod status_events;
pub mod steps;
mod stop;
pub mod surge;

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use crate::api::condition::{self, ConditionReason, ConditionType};
use crate::api::latency_budget::STATUS_WRITE_INTERVAL;
use crate::api::maintenance::NodeMaintenance;
use crate::api::status::{ForbiddenAccess, NodeMaintenanceStatus, Phase};
use crate::api::suspension;
use crate::cluster::node_lease::{self, LeaseWrite};
use crate::cluster::pod;
use crate::decide::cluster_state::ClusterState;
use crate::decide::decision::{Decision, EventReason, EventSubject, LeaseRelease, PendingEvent};
use crate::decide::drain_status::DrainView;
use crate::decide::drain_survey::{DrainSurvey, attempts_due, if_changed};
use crate::decide::eviction_order::EvictionOrder;
use crate::decide::eviction_queue::{EvictionQueue, wait_until};
use crate::decide::failed_write::lease_denied;
use crate::decide::status_events::status_events;
use crate::decide::surge::Surges;
use crate::drain::eviction_outcome::AccessDenied;
use crate::drain::node_conditions;
use crate::drain::node_patch;
use crate::drain::node_patch::{CordonedBy, Neighbours, Requester};
use crate::drain::pod_state;
use crate::drain::volume_detach::VolumeDetach;
use crate::gate::max_unavailable_queue::{POSITION_WRITE_INTERVAL, Queued, ShownPosition};
use crate::gate::ownership;
use crate::gate::{GateResult, evaluate, is_planned};

/// A maintenance that waits for something other than its turn is reconciled when that changes. This is the fallback.
const RECHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Decides what to do next for `maintenance`.
pub fn decide(maintenance: &NodeMaintenance, observed: &ClusterState, now: Timestamp) -> Decision {
    let ends = maintenance.metadata.deletion_timestamp.is_some();
    let mut decider = Decider { maintenance, observed, now, decision: Decision::default() };
    if ends {
        decider.stop();
    } else {
        decider.advance();
    }
    let relies_on_node = decider.begins() || decider.decision.remove_finalizer.is_some();
    let mut decision = decider.decision;
    decision.verify_node = relies_on_node && decision.node.is_none();
    let has_node =
        ownership::holder(maintenance, &observed.competing).is_none() && (!ends || decision.node_released);
    if observed.node_conditions && has_node {
        let status = decision.status.clone().or_else(|| maintenance.status.clone()).unwrap_or_default();
        decision.node_conditions = Some(node_conditions::wanted(maintenance, &status, ends));
    }
    decision
}

/// Whether the decision depends on the pods of the node: the maintenance has the node, is not only planned, and is not in
/// front of the gate.
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
        && !is_planned(maintenance, node)
        && !waits()
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

/// A decision that is being built.
struct Decider<'a> {
    maintenance: &'a NodeMaintenance,
    observed: &'a ClusterState,
    now: Timestamp,
    decision: Decision,
}

impl Decider<'_> {
    /// Decides about a maintenance that is not being deleted.
    fn advance(&mut self) {
        let Self { maintenance, observed, .. } = *self;
        let name = &maintenance.spec.node_name;
        self.decision.add_finalizer = ownership::adopt(maintenance, observed.node.as_deref());
        if let Some(holder) = ownership::holder(maintenance, &observed.competing) {
            let error = format!("a NodeMaintenance for node {name} already exists: {holder}");
            return self.fail(ConditionReason::DuplicateMaintenance, error, None);
        }
        let Some(node) = &observed.node else {
            self.evict_nothing();
            return self.fail(ConditionReason::NodeNotFound, format!("nodes {name:?} not found"), None);
        };
        if is_planned(maintenance, node) {
            return self.mark_planned(node);
        }
        if !self.pass_gate(node) {
            return self.evict_nothing();
        }
        let postponed = self.cordon(node);
        if let Some(denied) = observed.pods_forbidden.clone() {
            self.forbid(denied);
        } else {
            self.drain(postponed);
        }
        self.record_override();
    }

    /// Marks the node of a maintenance that is only planned, and takes nothing from it.
    fn mark_planned(&mut self, node: &Node) {
        let Self { maintenance, observed, now, .. } = *self;
        self.evict_nothing();
        self.decision.node = node_patch::mark_planned(node, &self.requester(node));
        // It may have been suspended while it was about to begin. What another maintenance uses is left to that.
        if observed.other_uids.is_empty() {
            self.decision.node_released = true;
            let lease = observed.lease.clone().filter(|lease| node_lease::is_ours(lease));
            self.decision.release_lease = lease.map(LeaseRelease::Observed);
        }
        let status = drain_status::planned(maintenance, observed, now);
        self.settle_status(status, observed.status_written);
    }

    /// Whether the maintenance may work on its node. If not, the status shows why.
    fn pass_gate(&mut self, node: &Node) -> bool {
        let Self { maintenance, observed, now, .. } = *self;
        if let Some(denied) = observed.leases_forbidden.clone() {
            self.forbid(lease_denied(denied));
            return false;
        }
        match evaluate(maintenance, node, observed.lease.as_deref(), &observed.gate, now) {
            GateResult::Ours { write, renew_at } => {
                self.decision.at_work = true;
                self.keep_lease(write, renew_at);
                return true;
            }
            GateResult::Waits { reason, error, queue, until } => {
                let position = queue.as_ref().map(|queued| queued.position);
                let status = drain_status::waiting(maintenance, reason, error, position, now);
                if !self.is_renumbered_early(queue.as_ref(), &status) {
                    self.settle_status(status, observed.status_written);
                }
                // The queue triggers a maintenance when it may begin.
                if queue.is_none() {
                    let wait = until.map_or(RECHECK_INTERVAL, |until| wait_until(until, now));
                    self.decision.requeue_in(wait);
                }
            }
            GateResult::Lost { error, attempts, next } => {
                let uncordoned = self.is_uncordoned();
                let status = drain_status::lease_lost(maintenance, uncordoned, error, attempts, now);
                self.settle_status(status, observed.status_written);
                self.requeue_at(next);
            }
            GateResult::Forfeited { error } => {
                self.uncordon(node);
                self.decision.end_evacuations = self.decision.node.is_some() && self.may_have_evicted();
                self.fail(ConditionReason::LeaseLost, error, None);
            }
        }
        false
    }

    /// Takes or renews the lease, now or later.
    fn keep_lease(&mut self, write: Option<LeaseWrite>, renew_at: Option<Timestamp>) {
        self.decision.lease = write;
        if let Some(at) = renew_at {
            self.requeue_at(at);
        }
    }

    /// Whether only the numbers of the queue differ in the `next` status, too soon after the last write.
    fn is_renumbered_early(&self, queued: Option<&Queued>, next: &NodeMaintenanceStatus) -> bool {
        let (Some(before), Some(queued)) = (&self.maintenance.status, queued) else { return false };
        let mut same = next.clone();
        (same.queue, same.last_error) = (before.queue, before.last_error.clone());
        queued.shown_in(before) == ShownPosition::OldNumbers
            && same == *before
            && position_due(before, self.observed.status_written, self.now).is_some_and(|due| due > self.now)
    }

    /// Cordons the node. If something keeps uncordoning it, that is delayed: returns for how long.
    fn cordon(&mut self, node: &Node) -> Option<Duration> {
        let observed = self.observed;
        let requester = self.requester(node);
        let patch = node_patch::cordon(node, &requester)?;
        let was_ours = requester.cordoned_by == CordonedBy::NmReconciler
            || node_patch::record_names(node, requester.uid);
        // Otherwise only what the neighbours are to do has changed.
        if was_ours && !node_patch::is_cordoned(node, observed.group) {
            if let Some(wait) = observed.recordons.wait() {
                self.decision.requeue_in(wait);
                return Some(wait);
            }
            self.decision.recordon_count = Some(observed.recordons.next_count());
            // Otherwise only the undo record was missing, or it named no maintenance.
            if !node_patch::has_all_marks(node, observed.group) {
                let name = &self.maintenance.spec.node_name;
                let sentence =
                    format!("Node {name} was uncordoned during its maintenance and is cordoned again");
                for subject in [EventSubject::Maintenance, EventSubject::Node] {
                    self.publish(subject, EventReason::RecordonNode, sentence.clone());
                }
            }
        }
        self.decision.node = Some(patch);
        None
    }

    fn requester<'a>(&self, node: &Node) -> Requester<'a>
    where
        Self: 'a,
    {
        let Self { maintenance, observed, .. } = *self;
        let uid = ownership::uid(maintenance);
        let is_another =
            ownership::is_of_another_node(maintenance, node) && !node_patch::record_names(node, uid);
        let cordoned_by = match ownership::cordoned_by(maintenance) {
            _ if is_another || observed.has_returned => CordonedBy::Nobody,
            CordonedBy::Nobody if self.has_lost_record(node) => CordonedBy::NmReconciler,
            cordoned_by => cordoned_by,
        };
        let planned = !is_another
            && !observed.has_returned
            && (ownership::was_planned(maintenance) || observed.other_was_planned);
        let keeps_cordon = ownership::keeps_cordon(maintenance);
        Requester {
            uid,
            group: observed.group,
            cordoned_by,
            planned,
            keeps_cordon,
            neighbours: Neighbours::of(maintenance.spec.drain.as_ref()),
            others: &observed.other_uids,
            now: self.now,
        }
    }

    /// Whether a user removed the undo record before the status of this maintenance shows that it has cordoned the node: the
    /// marks are ours if another maintenance shows that it has, or if there is our lease, which is written before the
    /// marks, and our taint, which nobody else sets.
    fn has_lost_record(&self, node: &Node) -> bool {
        let Self { observed, .. } = *self;
        let is_leased = || observed.lease.as_deref().is_some_and(node_lease::is_ours);
        !node_patch::has_record(node)
            && (observed.competing.iter().any(|other| ownership::has_begun(other))
                || (node_patch::has_drain_taint(node, observed.group) && is_leased()))
    }

    /// Records the override with the status by which the maintenance has started. Until that is written it is recorded
    /// again.
    fn record_override(&mut self) {
        if let (true, Some(violation)) = (self.begins(), &self.observed.gate.quorum) {
            let sentence = format!("By annotation: {violation}");
            self.publish(EventSubject::Maintenance, EventReason::QuorumOverridden, sentence);
        }
    }

    /// Whether the new status is the first one that shows the node as cordoned.
    fn begins(&self) -> bool {
        let Some(next) = &self.decision.status else { return false };
        !ownership::has_begun(self.maintenance)
            && condition::is_true(&next.conditions, ConditionType::Cordoned)
    }

    fn uncordon(&mut self, node: &Node) {
        let requester = self.requester(node);
        let Some(patch) = node_patch::uncordon(node, &requester) else {
            self.decision.node = None;
            return;
        };
        let name = &self.maintenance.spec.node_name;
        let (reason, sentence) = match node_patch::leaves_cordoned(node, &patch) {
            true if requester.keeps_cordon => {
                (EventReason::CordonKept, format!("Node {name} stays cordoned, as its maintenance requests"))
            }
            true => {
                (EventReason::CordonKept, format!("Node {name} stays cordoned, as before its maintenance"))
            }
            false => (EventReason::UncordonNode, format!("Node {name} is uncordoned")),
        };
        self.decision.node = Some(patch);
        self.publish(EventSubject::Node, reason, sentence);
    }

    /// Drains a node that is cordoned, or will be before the rest of the decision is applied.
    fn drain(&mut self, postponed: Option<Duration>) {
        let Self { maintenance, observed, now, .. } = *self;
        let spec = maintenance.spec.drain.clone().unwrap_or_default();
        let plan = match drain_plan::drain_plan(maintenance, &spec, observed, now) {
            Ok(Some(plan)) => plan,
            Ok(None) => return,
            Err(error) => {
                self.evict_nothing();
                return self.fail(ConditionReason::InvalidDrain, error.to_string(), None);
            }
        };
        let hold =
            hold::before_eviction(maintenance, &spec, self.excluded_since(), observed.prunes_details, now);
        let deadline = drain_status::deadline(maintenance, &spec, now);
        // A drain that has timed out evicts nothing anyway, and still shows what blocked it.
        let is_paused = maintenance.spec.suspend && deadline.is_none_or(|at| at > now);
        let withheld = is_paused || hold.is_some();
        // What is not restarted must not be shown as restarted.
        let evicts = !withheld && postponed.is_none() && deadline.is_none_or(|at| at > now);
        let order = EvictionOrder::new(&plan, &spec, observed);
        let before = maintenance.status.as_ref();
        let surges = Surges::new(&plan, &spec, observed, &order, before, evicts, now);
        self.decision.workloads = Some(surges.wanted.clone());
        let mut queue = if withheld {
            EvictionQueue::default()
        } else {
            EvictionQueue::new(&plan, &spec, observed, &order, &surges, observed.steady_now)
        };
        if !evicts {
            // All pods wait alike.
            queue.by_order.clear();
        }
        let survey = DrainSurvey::new(&plan, before, observed, &queue, &surges, withheld, now);
        let detach = spec
            .wait_for_volume_detach
            .filter(|_| hold.is_none())
            .and_then(|wait| VolumeDetach::new(wait, &plan, &observed.volumes, before, now));
        let uncordoned = self.is_uncordoned();
        let view =
            DrainView { survey: &survey, hold: hold.as_ref(), detach: detach.as_ref(), deadline, uncordoned };
        let next = drain_status::draining(maintenance, &view, observed, now);
        if observed.recordons.is_contested()
            && let Some(reset) = observed.recordons.reset_in()
        {
            self.decision.requeue_in(reset);
        }
        let timed_out = next.phase == Some(Phase::Failed);
        self.settle_status(next, observed.status_written);
        let changes =
            plan.pending().filter_map(|planned| pod_state::next_change(planned, observed.readiness(), now));
        let changes =
            changes.chain(deadline.filter(|_| !maintenance.spec.suspend)).chain(plan.next_change(&spec, now));
        let changes = changes.chain(detach.and_then(|detach| detach.deadline)).chain(survey.next_change());
        let released = hold.as_ref().and_then(|hold| hold.load_balancers_until.as_ref()).map(|until| until.0);
        for at in changes.chain(released).filter(|at| *at > now) {
            self.requeue_at(at);
        }
        // The status that counts the pods, or that shows the end of a hold, may be due later: no pod is evicted before it is
        // written.
        let is_recorded =
            self.decision.status.is_some() || (drain_status::is_counted(before) && !hold::is_held(before));
        // A pod that is evicted from a schedulable node may be scheduled to it again.
        if timed_out || withheld || postponed.is_some() || !is_recorded {
            return self.evict_nothing();
        }
        self.decision.evictable = Some(surges.evictable(&plan));
        self.decision.surging = Some(surges.deployments());
        // Also while evictions are delayed: the status says already that these pods are blocked.
        let blocked = plan.pods.iter().filter_map(|planned| {
            let uid = pod::uid(&planned.pod);
            let block = queue.blocked_by_budget.get(uid)?;
            let is_asked = observed.attempts.get(uid).is_some_and(|attempt| attempt.in_flight);
            (!is_asked).then(|| (planned.pod.clone(), block.budget.clone()))
        });
        self.decision.blocked_by_budget = blocked.collect();
        match observed.batch.eviction_delay() {
            Some(wait) if survey.pending().next().is_some() => self.decision.requeue_in(wait),
            _ => {
                self.decision.evictions = queue.evictions;
                for next in queue.next.into_iter().chain(surges.next) {
                    self.decision.requeue_in(next.since(observed.steady_now));
                }
                let status = self.decision.status.as_ref().or(maintenance.status.as_ref());
                self.decision.restart(surges.recorded(status));
            }
        }
    }

    /// Since when load balancers leave the node out: from now on, if this decision asks them to. None if that is not known.
    fn excluded_since(&self) -> Option<Timestamp> {
        let node = self.observed.node.as_deref()?;
        node_patch::excluded_since(node).unwrap_or(Some(self.now))
    }

    /// Whether pods may have been evicted: the status is written before the first eviction. A definition that prunes the
    /// conditions keeps the phase.
    fn may_have_evicted(&self) -> bool {
        let phase = self.maintenance.status.as_ref().and_then(|status| status.phase);
        ownership::has_begun(self.maintenance) || phase.is_some_and(|phase| phase != Phase::Pending)
    }

    /// Whether the node lacks marks of its maintenance, and this decision does not write them. Unless the maintenance is about to
    /// begin or has returned the node, something else has removed them.
    fn is_uncordoned(&self) -> bool {
        let Self { observed, decision, .. } = self;
        let node = observed.node.as_deref().filter(|_| decision.node.is_none());
        node.is_some_and(|node| !node_patch::has_all_marks(node, observed.group))
    }

    /// The maintenance has failed for as long as the reason persists.
    fn fail(&mut self, reason: ConditionReason, error: String, forbidden: Option<ForbiddenAccess>) {
        let (at_work, uncordoned) = (self.decision.at_work, self.is_uncordoned());
        let status =
            drain_status::failed(self.maintenance, at_work, uncordoned, reason, error, forbidden, self.now);
        self.settle_status(status, None);
    }

    /// The maintenance has failed because the reconciler lacks access.
    fn forbid(&mut self, denied: AccessDenied) {
        self.evict_nothing();
        self.fail(ConditionReason::MissingAccess, denied.to_string(), denied.access);
    }

    /// Withdraws what was requested for pods of the node: evictions, and restarts of their Deployments.
    fn evict_nothing(&mut self) {
        self.decision.evictable = Some(HashSet::new());
        self.decision.surging = Some(HashSet::new());
    }

    fn requeue_at(&mut self, at: Timestamp) {
        self.decision.requeue_in(wait_until(at, self.now));
    }

    /// Writes the status if it changed, at most every [`STATUS_WRITE_INTERVAL`] after it was last `written`, and records a
    /// change of phase as an event.
    fn settle_status(&mut self, mut next: NodeMaintenanceStatus, written: Option<Timestamp>) {
        let now = self.now;
        suspension::record(&mut next, self.maintenance, now);
        let before = self.maintenance.status.clone().unwrap_or_default();
        let Some(next) = if_changed(&before, next, now) else {
            return;
        };
        // A clock that was set back must not delay the last write.
        let due = written.map(|at| at.min(now).saturating_add(STATUS_WRITE_INTERVAL).unwrap_or(now));
        let due = due.into_iter().chain(attempts_due(&before, &next, now)).max();
        if let Some(due) = due.filter(|due| *due > now) {
            return self.requeue_at(due);
        }
        self.decision.events.extend(status_events(self.maintenance, &before, &next, &self.observed.deleted));
        self.decision.status = Some(next);
    }

    fn publish(&mut self, subject: EventSubject, reason: EventReason, note: String) {
        self.decision.events.push(PendingEvent { subject, reason, note, pod: None });
    }
}

#[cfg(test)]
#[path = "drain_tests.rs"]
mod tests;
