//! How far a drain has come, in the words of the status.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::condition::whole_seconds;
use crate::api::status::{
    BlockReason, BlockedPod, MAX_BLOCKED_PODS, MAX_MIGRATING_PODS, MigratingPod, NodeMaintenanceStatus,
    PodCounts, PodReference,
};
use crate::cluster::pod;
use crate::decide::cluster_state::ClusterState;
use crate::decide::eviction_queue::EvictionQueue;
use crate::drain::plan::{DrainPlan, PlannedPod, Verdict};
use crate::drain::pod_state::{self, Blocker, PodContext, PodState};
use crate::drain::virtual_machine;

/// How many blocked pods a sentence names before it says "and N more".
const NAMED_IN_A_SENTENCE: usize = 3;

/// How often evictions were refused is a reason to write a status only so long after the last write.
const ATTEMPTS_WRITE_INTERVAL: SignedDuration = SignedDuration::from_secs(60);

/// The pods of a node by where they stand, sorted by namespace and name.
#[derive(Debug, Clone)]
pub struct DrainSurvey<'a> {
    pods: Vec<(&'a PlannedPod, PodState)>,
    migrating: Vec<MigratingPod>,
    /// What is refused and keeps no pod here.
    forbidden: Option<String>,
}

impl<'a> DrainSurvey<'a> {
    /// Looks at every pod of the plan.
    pub fn new(
        plan: &'a DrainPlan,
        observed: &ClusterState,
        queue: &EvictionQueue,
        node_ready: bool,
        now: Timestamp,
    ) -> Self {
        let pods = plan.pods.iter().map(|judged| {
            let uid = pod::uid(&judged.pod);
            let known = PodContext {
                group: observed.group,
                attempt: observed.attempts.get(uid),
                steady_now: observed.steady_now,
                held: queue.blocked_by_budget.get(uid).map(|held| held.message.as_str()),
                overdue: queue.overdue.contains(uid),
                budgets: &observed.budgets,
                evacuation: observed.evacuations.evacuation(&judged.pod),
                node_ready,
            };
            (judged, pod_state::state(judged, &known, now))
        });
        let pods: Vec<(&PlannedPod, PodState)> = pods.collect();
        let migrating = pods.iter().filter(|(_, state)| *state == PodState::Migrating);
        let migrating = migrating.map(|(judged, _)| migrating_pod(judged, observed)).collect();
        Self { pods, migrating, forbidden: observed.node_conditions_forbidden.clone() }
    }

    /// The pods whose end is waited for.
    pub fn pending(&self) -> impl Iterator<Item = PodReference> {
        self.pods
            .iter()
            .filter(|(_, state)| *state != PodState::Skipped)
            .map(|(judged, _)| pod::reference(&judged.pod))
    }

    /// The pods that something refuses to let go.
    pub fn blocked(&self) -> impl Iterator<Item = (&'a PlannedPod, &Blocker)> {
        self.pods.iter().filter_map(|(judged, state)| match state {
            PodState::Blocked(obstacle) => Some((*judged, obstacle)),
            _ => None,
        })
    }

    /// What is said of a right that is missing: the first by which a pod is kept here, before those by which none is.
    pub fn missing_access(&self) -> Option<&str> {
        let forbidden = self.blocked().find(|(_, obstacle)| obstacle.reason == BlockReason::Forbidden);
        forbidden.map(|(_, obstacle)| obstacle.message.as_str()).or(self.forbidden.as_deref())
    }

    /// Writes the survey into a status: the pods to move are counted when a maintenance begins, and not again.
    pub fn write_to(&self, status: &mut NodeMaintenanceStatus, begins: bool, now: Timestamp) {
        let pending: Vec<PodReference> = self.pending().collect();
        if begins {
            status.total_pods = count(self.pods.len());
            // What may have to stay is not counted on.
            let waits = self.pods.iter().filter(|(judged, _)| judged.verdict == Verdict::Wait).count();
            status.eviction_pods = count(pending.len() - waits);
        }
        status.drain_progress = percent_gone(status.eviction_pods, count(pending.len()));
        status.pod_counts = self.counts(status.eviction_pods);
        status.blocked_pods = self.blocked_pods(&status.blocked_pods, now);
        let migrating = self.migrating.iter().take(MAX_MIGRATING_PODS).cloned().collect();
        status.migrating_pods = Some(migrating).filter(|pods: &Vec<_>| !pods.is_empty());
        status.pending_pods = pending.iter().map(|pod| pod.name.clone()).collect();
        status.pending_pods_refs = pending;
        status.last_error = self.obstacles();
    }

    /// What stands in the way, in a sentence; empty if nothing does.
    pub fn obstacles(&self) -> String {
        let sentences: Vec<String> = self
            .blocked()
            .take(NAMED_IN_A_SENTENCE)
            .map(|(judged, obstacle)| format!("{}: {}", pod::reference(&judged.pod), obstacle.message))
            .collect();
        let more = self.blocked().count().saturating_sub(NAMED_IN_A_SENTENCE);
        let ending = if more > 0 { format!("; and {more} more") } else { String::new() };
        sentences.join("; ") + &ending
    }

    fn counts(&self, eviction_pods: i32) -> PodCounts {
        let mut counts = PodCounts::default();
        let mut pending = 0;
        for (_, state) in &self.pods {
            pending += i32::from(*state != PodState::Skipped);
            *match state {
                PodState::Skipped => &mut counts.skipped,
                PodState::Waiting => &mut counts.waiting,
                PodState::Evicting => &mut counts.evicting,
                PodState::Terminating => &mut counts.terminating,
                PodState::Migrating => &mut counts.migrating,
                PodState::Blocked(_) => &mut counts.blocked,
            } += 1;
        }
        counts.gone = (eviction_pods - pending).max(0);
        counts
    }

    fn blocked_pods(&self, before: &[BlockedPod], now: Timestamp) -> Vec<BlockedPod> {
        let blocked = self.blocked().take(MAX_BLOCKED_PODS).map(|(judged, obstacle)| {
            let PodReference { namespace, name } = pod::reference(&judged.pod);
            let same = before
                .iter()
                .find(|b| b.namespace == namespace && b.name == name && b.reason == obstacle.reason);
            let since = match (same, obstacle.since) {
                (Some(same), _) => same.since.clone(),
                (None, since) => whole_seconds(since.unwrap_or(now).min(now)),
            };
            BlockedPod {
                namespace,
                name,
                reason: obstacle.reason,
                message: obstacle.message.clone(),
                since,
                attempts: i32::try_from(obstacle.refusals).unwrap_or(i32::MAX),
            }
        });
        blocked.collect()
    }
}

fn migrating_pod(judged: &PlannedPod, observed: &ClusterState) -> MigratingPod {
    let PodReference { namespace, name } = pod::reference(&judged.pod);
    let machine = virtual_machine::run_by(&judged.pod).unwrap_or_default().to_owned();
    let evacuation = observed.evacuations.evacuation(&judged.pod).cloned().unwrap_or_default();
    let since = evacuation.since.map(whole_seconds);
    MigratingPod { namespace, name, machine, source: evacuation.source, target: evacuation.target, since }
}

/// Per cent of `all` that are gone while `pending` are not; pods that came later do not count against it.
fn percent_gone(all: i32, pending: i32) -> i32 {
    match all {
        0 if pending == 0 => 100,
        0 => 0,
        all => ((all - pending) * 100 / all).clamp(0, 100),
    }
}

fn count(pods: usize) -> i32 {
    i32::try_from(pods).unwrap_or(i32::MAX)
}

/// Stamps `next` with the time if it differs from `before`; none if it does not.
pub fn if_changed(
    before: &NodeMaintenanceStatus,
    mut next: NodeMaintenanceStatus,
    now: Timestamp,
) -> Option<NodeMaintenanceStatus> {
    next.last_update.clone_from(&before.last_update);
    if next == *before {
        return None;
    }
    next.last_update = Some(Time(whole_seconds(now).0));
    Some(next)
}

/// When `next` is to be written, if it differs from `before` in nothing but how often evictions were refused: a node
/// whose pods are stuck would else write its status with each retry, for ever. That a pod was refused at all is a change
/// like any other.
pub fn attempts_due(
    before: &NodeMaintenanceStatus,
    next: &NodeMaintenanceStatus,
    now: Timestamp,
) -> Option<Timestamp> {
    let mut same = next.clone();
    same.last_update.clone_from(&before.last_update);
    for (pod, told) in same.blocked_pods.iter_mut().zip(&before.blocked_pods) {
        if told.attempts > 0 {
            pod.attempts = told.attempts;
        }
    }
    // A clock that was set back holds nothing up.
    let written = before.last_update.as_ref().map(|at| at.0).filter(|at| *at <= now && same == *before);
    written.and_then(|at| at.checked_add(ATTEMPTS_WRITE_INTERVAL).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_the_share_that_is_gone() {
        for (all, pending, expected) in
            [(2, 2, 0), (2, 1, 50), (3, 1, 66), (2, 0, 100), (0, 0, 100), (2, 5, 0), (0, 1, 0)]
        {
            assert_eq!(percent_gone(all, pending), expected, "{all} {pending}");
        }
    }

    #[test]
    fn a_status_that_says_the_same_is_not_written() {
        let before =
            NodeMaintenanceStatus { last_update: Some(Time(Timestamp::UNIX_EPOCH)), ..Default::default() };
        assert_eq!(if_changed(&before, NodeMaintenanceStatus::default(), Timestamp::UNIX_EPOCH), None);
        let next = NodeMaintenanceStatus { drain_progress: 1, ..Default::default() };
        let now = Timestamp::from_second(60).unwrap();
        assert_eq!(if_changed(&before, next, now).unwrap().last_update, Some(Time(now)));
    }
}
