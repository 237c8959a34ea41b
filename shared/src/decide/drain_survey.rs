//! The states of all pods of a node, and their part of the status.

use std::collections::{HashMap, HashSet};

use jiff::{SignedDuration, Timestamp};

use crate::api::condition::whole_seconds;
use crate::api::departed_pods::DepartedPods;
use crate::api::migration::MigratingPod;
use crate::api::pod_reference::PodReference;
use crate::api::pod_state::{PodCounts, PodState};
use crate::api::returned_pod::ReturnedPod;
use crate::api::status::{
    BlockReason, BlockedPod, BudgetFacts, MAX_BLOCKED_PODS, MAX_MIGRATING_PODS, MAX_RETURNED_PODS,
    MAX_WAITING_PODS, NodeMaintenanceStatus, WaitReason, WaitingPod,
};
use crate::cluster::pod::{self, DrainPod};
use crate::decide::cluster_state::ClusterState;
use crate::decide::eviction_queue::EvictionQueue;
use crate::decide::surge::Surges;
use crate::drain::blocker::Blocker;
use crate::drain::plan::{DrainPlan, PlannedPod, StayReason, Verdict};
use crate::drain::pod_state::{self, PodContext, PodStanding};
use crate::drain::virtual_machine::{launcher_of, machine};

/// The number of blocked pods that `lastError` names before "and N more".
const MAX_NAMED_PODS: usize = 3;

/// A status in which only such numbers have changed is written this long after the last one.
const ATTEMPTS_WRITE_INTERVAL: SignedDuration = SignedDuration::from_secs(60);

/// The pods of a node and their states, sorted by namespace and name.
#[derive(Debug, Clone)]
pub struct DrainSurvey<'a> {
    plan: &'a DrainPlan,
    pods: Vec<(&'a PlannedPod, PodStanding)>,
    migrating: Vec<MigratingPod>,
    /// When the next migration that could have begun counts as not started.
    migration_times_out: Option<Timestamp>,
    surges: &'a Surges,
    /// How many pods leave before those that wait because of the order, by uid.
    by_order: HashMap<String, usize>,
    /// The uids of the pods that have returned although their owners had none on the node at first.
    returned_later: HashSet<String>,
    own_pod: Option<PodReference>,
    /// How many pods were deleted after refusals, and are not counted yet.
    deleted: i32,
    prunes_details: bool,
}

impl<'a> DrainSurvey<'a> {
    /// Determines the state of each pod of the plan. `before` is the status so far.
    pub fn new(
        plan: &'a DrainPlan,
        before: Option<&NodeMaintenanceStatus>,
        observed: &ClusterState,
        queue: &EvictionQueue,
        surges: &'a Surges,
        withheld: bool,
        now: Timestamp,
    ) -> Self {
        let readiness = observed.readiness();
        let on_node = || plan.pods.iter().map(|planned| &*planned.pod);
        // The pod of a disk goes as its virtual machine goes.
        let subject = |planned: &'a PlannedPod| launcher_of(&planned.pod, on_node()).unwrap_or(&planned.pod);
        let waiting_since = |planned: &PlannedPod| {
            observed.evacuations.evacuation(&planned.pod)?.waiting_since(&planned.pod, before, now)
        };
        let times_out = |planned: &PlannedPod| {
            Some(observed.evacuations.evacuation(&planned.pod)?.timeout_of(waiting_since(planned)?))
        };
        let pods = plan.pods.iter().map(|planned| {
            let uid = pod::uid(&planned.pod);
            let known = PodContext {
                group: observed.group,
                attempt: observed.attempts.get(uid),
                steady_now: observed.steady_now,
                blocked_by_budget: queue
                    .blocked_by_budget
                    .get(uid)
                    .filter(|_| !surges.is_undecided(&planned.pod)),
                blocked_after: observed.blocked_after,
                before,
                overdue: queue.overdue.contains(uid),
                budgets: &observed.budgets,
                evacuation: observed.evacuations.evacuation(&planned.pod),
                waiting_since: waiting_since(planned),
                machine_moves: observed.evacuations.moves(&planned.pod, on_node(), &observed.attempts),
                surges: surges.is_surging(&planned.pod),
                surge_block: surges.block_of(&planned.pod),
                node: readiness,
                withheld,
            };
            (planned, pod_state::standing(planned, &known, now))
        });
        let pods: Vec<(&PlannedPod, PodStanding)> = pods.collect();
        let migrating = pods.iter().filter(|(_, standing)| standing.state == PodState::Migrating);
        let migrating = migrating.map(|(planned, _)| {
            let waiting_since = waiting_since(planned).map(whole_seconds);
            MigratingPod { waiting_since, ..migrating_pod(planned, subject(planned), observed) }
        });
        let migrating = migrating.collect();
        let migration_times_out = plan.pods.iter().filter_map(times_out).filter(|at| *at > now).min();
        let prunes_details = observed.prunes_details;
        let own_pod = observed.own_pod.clone();
        let by_order = queue.by_order.clone();
        let deleted = count(observed.deleted.len());
        Self {
            plan,
            pods,
            migrating,
            migration_times_out,
            surges,
            by_order,
            returned_later: observed.returning.came_later.clone(),
            own_pod,
            deleted,
            prunes_details,
        }
    }

    /// The pods that the drain waits for.
    pub fn pending(&self) -> impl Iterator<Item = PodReference> {
        self.pods
            .iter()
            .filter(|(_, standing)| standing.state.is_pending())
            .map(|(planned, _)| pod::reference(&planned.pod))
    }

    /// When the state of a migrating pod, or of one that waits for its budget, changes without an event.
    pub fn next_change(&self) -> Option<Timestamp> {
        let turns = self.pods.iter().filter_map(|(_, standing)| Some(standing.turn.as_ref()?.until));
        turns.chain(self.migration_times_out).min()
    }

    /// The blocked pods.
    pub fn blocked(&self) -> impl Iterator<Item = (&'a PlannedPod, &Blocker)> {
        self.pods.iter().filter_map(|(planned, standing)| Some((*planned, standing.blocker.as_ref()?)))
    }

    /// The number of pods that are blocked because the reconciler lacks access.
    pub fn forbidden(&self) -> usize {
        self.blocked().filter(|(_, blocker)| blocker.reason == BlockReason::Forbidden).count()
    }

    /// Writes the states into a status. The pods to be moved are counted only when the maintenance `begins`.
    pub fn write_to(&self, status: &mut NodeMaintenanceStatus, begins: bool, now: Timestamp) {
        let pending: Vec<PodReference> = self.pending().collect();
        if begins {
            status.total_pods = count(self.pods.len());
            // Pods that may have to stay are not counted.
            let waits = self.pods.iter().filter(|(planned, _)| planned.verdict == Verdict::Wait).count();
            status.eviction_pods = count(pending.len() - waits);
        }
        status.departed_pods = self.departed(status, &pending, begins, now);
        status.drain_progress = percent_gone(status.eviction_pods, count(pending.len()));
        let counted_at = status.begun_at().filter(|_| !begins).unwrap_or(now);
        status.pod_counts = self.counts(status.total_pods, status.eviction_pods, counted_at);
        status.blocked_pods = self.blocked_pods(&status.blocked_pods, now);
        let migrating = self.migrating.iter().take(MAX_MIGRATING_PODS).cloned().collect();
        status.migrating_pods = Some(migrating).filter(|pods: &Vec<_>| !pods.is_empty());
        let waiting = self.waiting_pods(status.waiting_pods.as_deref().unwrap_or_default(), now);
        status.waiting_pods = Some(waiting).filter(|pods| !pods.is_empty());
        let returned = self.returned_pods(status.returned_pods.as_deref().unwrap_or_default(), now);
        status.returned_pods = Some(returned).filter(|pods| !pods.is_empty());
        status.unselected_pods = Some(self.unselected()).filter(|pods| *pods > 0);
        status.surging_pods = self.surges.for_status();
        status.restarted_replica_sets = self.surges.restarted_for_status();
        status.pending_pods = pending.iter().map(|pod| pod.name.clone()).collect();
        status.pending_pods_refs = pending;
        status.last_error = self.error();
    }

    /// The blocked pods for `lastError`; empty if there are none. Their sentences are in `blockedPods`, unless the
    /// definition of the maintenance prunes that.
    fn error(&self) -> String {
        let count = self.blocked().count();
        if count == 0 {
            return String::new();
        }
        let named = self.blocked().take(MAX_NAMED_PODS).map(|(planned, blocker)| {
            let (pod, reason) = (pod::reference(&planned.pod), blocker.reason.as_str());
            if self.prunes_details {
                format!("{pod}: {}", blocker.message)
            } else {
                format!("{pod} ({reason})")
            }
        });
        let separator = if self.prunes_details { "; " } else { ", " };
        let named = named.collect::<Vec<_>>().join(separator);
        let more = count.saturating_sub(MAX_NAMED_PODS);
        let ending = if more > 0 { format!("{separator}and {more} more") } else { String::new() };
        format!("{} blocked: {named}{ending}", pods_are(count))
    }

    /// The number of pods that stay for this reason.
    pub fn staying(&self, reason: StayReason) -> usize {
        self.pods.iter().filter(|(planned, _)| planned.verdict == Verdict::Stay(reason)).count()
    }

    /// The number of running pods that stay only because of `podSelector`, except for those of the Jobs of rolls.
    fn unselected(&self) -> i32 {
        let is_unselected = |planned: &PlannedPod| matches!(planned.verdict, Verdict::Stay(reason) if reason.leaves_out(&planned.pod));
        count(self.pods.iter().filter(|(planned, _)| is_unselected(planned)).count())
    }

    /// The counts. Of `total_pods`, `eviction_pods` had to leave at the time `counted_at`; those that the drain has stopped to wait
    /// for are still there, and so are those that need not leave any more. Pods that were created later are not among them.
    fn counts(&self, total_pods: i32, eviction_pods: i32, counted_at: Timestamp) -> PodCounts {
        let mut counts = PodCounts::default();
        let mut still_there = count(self.plan.given_up_since(counted_at));
        let (mut staying, mut not_selected) = (0, 0);
        for (planned, standing) in &self.pods {
            *counts.of_mut(standing.state) += 1;
            let came_later = planned.pod.created.is_some_and(|created| created > counted_at);
            // Times are in seconds, so such a pod may have come later.
            let may_have_come_later = planned.pod.created.is_some_and(|created| created >= counted_at);
            still_there += i32::from(standing.state.is_pending() && !came_later);
            let is_left_alone = matches!(
                planned.verdict,
                Verdict::Stay(StayReason::DaemonSet | StayReason::Mirror | StayReason::NotSelected)
            );
            staying += i32::from(is_left_alone && !may_have_come_later);
            let is_not_selected = planned.verdict == Verdict::Stay(StayReason::NotSelected);
            not_selected += i32::from(is_not_selected && !may_have_come_later);
        }
        // More of them stay than at that time, because `podSelector` has changed.
        let stayed = total_pods.saturating_sub(eviction_pods).max(0);
        let spared = staying.saturating_sub(stayed).clamp(0, not_selected);
        counts.gone = eviction_pods.saturating_sub(still_there).saturating_sub(spared).max(0);
        counts
    }

    /// What became of pods other than that they moved. Those that leave for good are known when the maintenance `begins`; the
    /// others have left since the status was written, and had a state in it that shows why.
    fn departed(
        &self,
        before: &NodeMaintenanceStatus,
        pending: &[PodReference],
        begins: bool,
        now: Timestamp,
    ) -> Option<DepartedPods> {
        let mut departed = before.departed_pods.filter(|_| !begins);
        if begins {
            let leaves = |planned: &&PlannedPod| !matches!(planned.verdict, Verdict::Stay(_) | Verdict::Wait);
            // The volumes of a virtual machine's pod are internal to KubeVirt.
            let is_machine = |planned: &PlannedPod| machine(&planned.pod).is_some();
            let leaving = || {
                let leaving = self.pods.iter().map(|(planned, _)| *planned).filter(leaves);
                leaving.filter(|planned| !is_machine(planned))
            };
            let of =
                |is: &dyn Fn(&DrainPod) -> bool| count(leaving().filter(|planned| is(&planned.pod)).count());
            let evicted = leaving().filter(|planned| planned.verdict != Verdict::AwaitCompletion);
            let of_job = |pod: &DrainPod| pod::job(pod).is_some() && !pod::is_finished(pod);
            departed = Some(DepartedPods {
                unmanaged: of(&|pod| pod::controller(pod).is_none() && !pod::is_finished(pod)),
                finished: of(&|pod| pod::is_finished(pod)),
                of_jobs: count(evicted.filter(|planned| of_job(&planned.pod)).count()),
                losing_empty_dir_data: of(&|pod| pod.has_empty_dir && !pod::is_finished(pod)),
                ..DepartedPods::default()
            });
        }
        let mut departed = departed?;
        departed.deleted_after_refusal = departed.deleted_after_refusal.saturating_add(self.deleted);
        let has_left = |namespace: &str, name: &str| {
            !pending.iter().any(|pod| pod.namespace == namespace && pod.name == name)
        };
        let migrating = before.migrating_pods.iter().flatten();
        departed.migrated += count(migrating.filter(|pod| has_left(&pod.namespace, &pod.name)).count());
        let has_completed = |pod: &&WaitingPod| {
            // Later it was evicted.
            let is_early = pod.until.as_ref().is_none_or(|until| now < until.0);
            pod.reason == WaitReason::Completing && is_early && has_left(&pod.namespace, &pod.name)
        };
        let completing = before.waiting_pods.iter().flatten();
        departed.completed += count(completing.filter(has_completed).count());
        // They have terminated on their own, or might have: they are evicted from now on.
        let was_completing = |planned: &PlannedPod| {
            let pod = pod::reference(&planned.pod);
            let mut completing = before.waiting_pods.iter().flatten();
            completing.any(|known| known.reason == WaitReason::Completing && known.reference() == pod)
        };
        let evicted = self.pods.iter().map(|(planned, _)| *planned);
        let evicted = evicted.filter(|planned| planned.verdict == Verdict::Evict && was_completing(planned));
        let (ended, others): (Vec<_>, Vec<_>) = evicted.partition(|planned| pod::is_finished(&planned.pod));
        departed.completed += count(ended.len());
        departed.of_jobs += count(others.iter().filter(|planned| pod::job(&planned.pod).is_some()).count());
        Some(departed)
    }

    /// The pods that wait for their budgets.
    pub fn turns(&self) -> usize {
        self.pods.iter().filter(|(_, standing)| standing.turn.is_some()).count()
    }

    fn waiting_pods(&self, before: &[WaitingPod], now: Timestamp) -> Vec<WaitingPod> {
        let waiting = self.pods.iter().filter(|(_, standing)| standing.state == PodState::Waiting);
        let waiting = waiting.filter_map(|(planned, standing)| {
            let reference = pod::reference(&planned.pod);
            let by_order = self.by_order.get(pod::uid(&planned.pod));
            let reason = match &standing.turn {
                Some(_) => WaitReason::BudgetTurn,
                None if planned.verdict == Verdict::AwaitCompletion => WaitReason::Completing,
                None if by_order.is_none() => return None,
                None if self.own_pod.as_ref() == Some(&reference) => WaitReason::EvictedLast,
                None => WaitReason::Order,
            };
            let PodReference { namespace, name } = reference;
            let same = before
                .iter()
                .find(|pod| pod.namespace == namespace && pod.name == name && pod.reason == reason);
            let since = same.map_or_else(|| whole_seconds(now), |same| same.since.clone());
            let until =
                self.plan.completion_ends.filter(|_| reason == WaitReason::Completing).map(whole_seconds);
            let turn = standing.turn.as_ref();
            let by_order = by_order.filter(|_| reason == WaitReason::Order).copied();
            let ahead = count(turn.map(|turn| turn.ahead).or(by_order).unwrap_or(0));
            let budget = turn.and_then(|turn| turn.budget.clone());
            Some(WaitingPod { namespace, name, reason, since, until, budget, ahead })
        });
        waiting.take(MAX_WAITING_PODS).collect()
    }

    fn returned_pods(&self, before: &[ReturnedPod], now: Timestamp) -> Vec<ReturnedPod> {
        let has_returned = |(planned, _): &&(&PlannedPod, PodStanding)| {
            planned.verdict == Verdict::Stay(StayReason::Returned)
        };
        let returned = self.pods.iter().filter(has_returned).take(MAX_RETURNED_PODS).map(|(planned, _)| {
            let PodReference { namespace, name } = pod::reference(&planned.pod);
            let same = before.iter().find(|pod| pod.namespace == namespace && pod.name == name);
            let since = same.map_or_else(|| whole_seconds(now), |same| same.since.clone());
            // Who begins to count later knows less than the process before.
            let came_later = same
                .map_or_else(|| self.returned_later.contains(pod::uid(&planned.pod)), |same| same.came_later);
            ReturnedPod { namespace, name, workload: pod::workload(&planned.pod), since, came_later }
        });
        returned.collect()
    }

    fn blocked_pods(&self, before: &[BlockedPod], now: Timestamp) -> Vec<BlockedPod> {
        let blocked = self.blocked().take(MAX_BLOCKED_PODS).map(|(planned, blocker)| {
            let PodReference { namespace, name } = pod::reference(&planned.pod);
            let same = before
                .iter()
                .find(|b| b.namespace == namespace && b.name == name && b.reason == blocker.reason);
            let since = match (same, blocker.since) {
                (Some(same), _) => same.since.clone(),
                (None, since) => whole_seconds(since.unwrap_or(now).min(now)),
            };
            BlockedPod {
                namespace,
                name,
                reason: blocker.reason,
                message: blocker.message.clone(),
                facts: blocker.facts.clone(),
                since,
                attempts: i32::try_from(blocker.refusals).unwrap_or(i32::MAX),
            }
        });
        blocked.collect()
    }
}

/// A migrating pod; `launcher` is the pod of its virtual machine.
fn migrating_pod(planned: &PlannedPod, launcher: &DrainPod, observed: &ClusterState) -> MigratingPod {
    let PodReference { namespace, name } = pod::reference(&planned.pod);
    let evacuation = observed.evacuations.evacuation(launcher).cloned().unwrap_or_default();
    MigratingPod {
        namespace,
        name,
        machine: machine(launcher).unwrap_or_default().to_owned(),
        source: evacuation.source,
        target: evacuation.target,
        since: evacuation.since.map(whole_seconds),
        migration: evacuation.migration,
        stays_on_stop: observed.evacuations.stays_on_stop(launcher),
        ..MigratingPod::default()
    }
}

/// The percentage of `all` that are gone while `pending` are not; pods that came later do not count.
fn percent_gone(all: i32, pending: i32) -> i32 {
    match all {
        0 if pending == 0 => 100,
        0 => 0,
        all => {
            let (all, pending) = (i64::from(all), i64::from(pending));
            i32::try_from(((all - pending) * 100 / all).clamp(0, 100)).unwrap_or_default()
        }
    }
}

/// `1 pod is`, `2 pods are`.
pub(super) fn pods_are(count: usize) -> String {
    if count == 1 { "1 pod is".to_owned() } else { format!("{count} pods are") }
}

fn count(pods: usize) -> i32 {
    i32::try_from(pods).unwrap_or(i32::MAX)
}

/// `next` with the time as its `lastUpdate`; none if it does not differ from `before`.
pub fn if_changed(
    before: &NodeMaintenanceStatus,
    mut next: NodeMaintenanceStatus,
    now: Timestamp,
) -> Option<NodeMaintenanceStatus> {
    next.last_update.clone_from(&before.last_update);
    if next == *before {
        return None;
    }
    next.last_update = Some(whole_seconds(now));
    Some(next)
}

/// When to write `next` if it differs from `before` only in how often evictions were refused, or in the numbers of budgets that
/// pods wait for: otherwise the status of a node with such pods would be written with each retry, or with each pod that another
/// node evicts. The first refusal of a pod is a change like any other.
pub fn attempts_due(
    before: &NodeMaintenanceStatus,
    next: &NodeMaintenanceStatus,
    now: Timestamp,
) -> Option<Timestamp> {
    let mut same = next.clone();
    same.last_update.clone_from(&before.last_update);
    for (pod, old) in same.blocked_pods.iter_mut().zip(&before.blocked_pods) {
        if old.attempts > 0 {
            pod.attempts = old.attempts;
        }
    }
    let waiting = same.waiting_pods.iter_mut().flatten().zip(before.waiting_pods.iter().flatten());
    for (pod, old) in waiting {
        let name = |budget: &Option<BudgetFacts>| budget.as_ref().map(|budget| budget.name.clone());
        if name(&pod.budget) == name(&old.budget) {
            pod.budget.clone_from(&old.budget);
            pod.ahead = old.ahead;
        }
    }
    // A clock that was set back delays nothing.
    let written = before.last_update.as_ref().map(|at| at.0).filter(|at| *at <= now && same == *before);
    written.and_then(|at| at.checked_add(ATTEMPTS_WRITE_INTERVAL).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    #[test]
    fn progress_is_the_percentage_of_pods_that_are_gone() {
        for (all, pending, expected) in
            [(2, 2, 0), (2, 1, 50), (3, 1, 66), (2, 0, 100), (0, 0, 100), (2, 5, 0), (0, 1, 0)]
        {
            assert_eq!(percent_gone(all, pending), expected, "{all} {pending}");
        }
    }

    #[test]
    fn an_unchanged_status_is_not_written() {
        let before =
            NodeMaintenanceStatus { last_update: Some(Time(Timestamp::UNIX_EPOCH)), ..Default::default() };
        assert_eq!(if_changed(&before, NodeMaintenanceStatus::default(), Timestamp::UNIX_EPOCH), None);
        let next = NodeMaintenanceStatus { drain_progress: 1, ..Default::default() };
        let now = Timestamp::from_second(60).unwrap();
        assert_eq!(if_changed(&before, next, now).unwrap().last_update, Some(Time(now)));
    }
}
