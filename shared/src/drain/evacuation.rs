//! The evacuations of virtual machines from a node: what KubeVirt has been asked to move, and how far that has come.
//!
//! `status.migrationState` of a virtual machine appears only once its target pod is Ready, so what comes before is read from
//! the migrations themselves, if nm-reconciler may list them ([`crate::api::grant::Grant::VirtualMachines`]). Otherwise only
//! the time tells that nothing happens.

use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::grant::Grant;
use crate::api::migration::MigrationFacts;
use crate::api::status::{
    BlockFacts, BlockReason, MAX_BLOCKED_PODS, MAX_MIGRATING_PODS, NodeMaintenanceStatus,
};
use crate::cluster::pod::{self, DrainPod};
use crate::drain::blocker::Blocker;
use crate::drain::eviction_attempts::Attempt;
use crate::drain::eviction_outcome::EvictionOutcome;
use crate::drain::migration::{MigrationHistory, MigrationStage, VirtualMachineInstanceMigration};
use crate::drain::virtual_machine::{
    MachineKey, MigrationState, VirtualMachineInstance, launcher_of, run_by,
};

/// For how long KubeVirt may leave a virtual machine alone that it is to migrate, although no other migration is under way,
/// unless another time is set. Then its pod is blocked.
pub const MIGRATION_START_TIMEOUT: Duration = Duration::from_secs(120);

/// For how long a migration counts as under way after its last change. virt-controller may have died, and nothing else ends a
/// migration that it has left behind.
const UNCHANGED_LIMIT: Duration = Duration::from_secs(3600);

/// The evacuation of a virtual machine. What KubeVirt does not report is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evacuation {
    /// The node that it leaves.
    pub source: Option<String>,
    /// The node that it goes to.
    pub target: Option<String>,
    /// The time since which its memory is being copied.
    pub since: Option<Timestamp>,
    /// The failure of the last attempt, if no other has begun.
    pub failure: Option<MigrationFailure>,
    /// Why its memory is not being copied; none if it is.
    pub pending: Option<PendingMigration>,
    /// The migration of the virtual machine, if nm-reconciler may read it.
    pub migration: Option<MigrationFacts>,
    /// Whether it stays if the maintenance ends now.
    pub stays_on_stop: bool,
    /// When a migration that could have begun counts as not started.
    pub start_timeout: Duration,
}

/// What is known of KubeVirt in addition to the instances on a node.
#[derive(Debug, Clone, Copy)]
pub struct KubevirtView<'a, M> {
    /// The migrations of the cluster; none if they may not be read.
    pub migrations: Option<&'a [M]>,
    /// Whether this version can cancel evacuations.
    pub cancels: bool,
    /// For how long it may leave a virtual machine alone, usually [`MIGRATION_START_TIMEOUT`].
    pub start_timeout: Duration,
    /// When this was seen.
    pub seen_at: Timestamp,
}

/// A migration that failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MigrationFailure {
    /// The human-readable reason of the failure.
    pub message: String,
    /// The target node, if KubeVirt reports it.
    pub target: Option<String>,
    /// When it failed.
    pub at: Option<Timestamp>,
}

/// A migration that has not begun.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PendingMigration {
    /// Whether it may be waiting for others.
    pub queue: MigrationQueue,
    /// Since when it has been in its phase, if its migration shows that.
    pub since: Option<Timestamp>,
    /// When KubeVirt begins it at the earliest, because others have failed.
    pub not_before: Option<Timestamp>,
    /// Whether another controller has to act, because of the eviction strategy.
    pub left_to_others: bool,
    /// Whether migrations may be read.
    pub is_visible: bool,
}

/// Whether a migration may be waiting for others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MigrationQueue {
    /// Others are under way.
    Waits,
    /// Others have begun, but have not changed for so long that they no longer count as under way.
    Stuck,
    /// Nothing is known that it would wait for.
    #[default]
    Free,
}

/// The virtual machines that KubeVirt is to migrate away from a node.
#[derive(Debug, Clone, Default)]
pub struct Evacuations {
    /// Whether the virtual machines on the node are known, and KubeVirt can cancel their evacuations.
    known: bool,
    leaving: HashMap<MachineKey, Evacuation>,
}

impl Evacuations {
    /// Reads the instances on `node`. Migrations that failed before `began` do not concern the maintenance.
    pub fn leaving<I, M>(
        instances: impl IntoIterator<Item = I>,
        kubevirt: &KubevirtView<'_, M>,
        node: &str,
        began: Timestamp,
    ) -> Self
    where
        I: Deref<Target = VirtualMachineInstance>,
        M: Deref<Target = VirtualMachineInstanceMigration>,
    {
        let instances: Vec<I> = instances.into_iter().collect();
        let leaving: Vec<&VirtualMachineInstance> =
            instances.iter().map(Deref::deref).filter(|instance| instance.is_leaving(node)).collect();
        if leaving.is_empty() {
            return Self { known: kubevirt.cancels, leaving: HashMap::new() };
        }
        let mut histories: HashMap<MachineKey, Vec<&VirtualMachineInstanceMigration>> = HashMap::new();
        let (mut under_way, mut stuck): (HashSet<MachineKey>, HashSet<MachineKey>) = Default::default();
        let is_fresh = |changed: Option<Timestamp>| {
            changed.is_none_or(|at| kubevirt.seen_at.duration_since(at).unsigned_abs() < UNCHANGED_LIMIT)
        };
        for migration in kubevirt.migrations.unwrap_or_default() {
            if matches!(migration.stage(), MigrationStage::Scheduling | MigrationStage::HandedOver) {
                let of = if is_fresh(migration.changed()) { &mut under_way } else { &mut stuck };
                of.insert(migration.machine());
            }
            // One that a person has created moves the virtual machine as well.
            if migration.evacuates(node) || migration.is_active() {
                histories.entry(migration.machine()).or_default().push(migration);
            }
        }
        let is_moving = |instance: &&VirtualMachineInstance| {
            let began = state(instance, node).filter(|state| state.is_active());
            began.is_some_and(|state| is_fresh(time(state.start_timestamp.as_ref())))
        };
        under_way.extend(
            leaving.iter().copied().filter(is_moving).map(|instance| pod::reference_in(&instance.metadata)),
        );
        let leaving = leaving.into_iter().map(|instance| {
            let key = pod::reference_in(&instance.metadata);
            let history = MigrationHistory::new(histories.remove(&key).unwrap_or_default(), began);
            let any_other = |of: &HashSet<MachineKey>| of.iter().any(|other| *other != key);
            let known = Known {
                start_timeout: kubevirt.start_timeout,
                history: kubevirt.migrations.map(|_| history),
                cancels: kubevirt.cancels,
                others: match (any_other(&under_way), any_other(&stuck)) {
                    (true, _) => MigrationQueue::Waits,
                    (false, true) => MigrationQueue::Stuck,
                    (false, false) => MigrationQueue::Free,
                },
            };
            let evacuation = evacuation(instance, node, began, &known);
            (key, evacuation)
        });
        Self { known: kubevirt.cancels, leaving: leaving.collect() }
    }

    /// The evacuation of the virtual machine in a pod, if there is one.
    pub fn evacuation(&self, pod: &DrainPod) -> Option<&Evacuation> {
        // Most clusters have no virtual machines.
        if self.leaving.is_empty() {
            return None;
        }
        let namespace = pod.namespace.to_string();
        self.leaving.get(&MachineKey { namespace, name: run_by(pod)?.to_owned() })
    }

    /// Whether the virtual machine in a pod stays if the maintenance ends now. One that is arriving is not to leave yet, and one
    /// whose pod has ended is gone.
    pub fn stays_on_stop(&self, pod: &DrainPod) -> bool {
        let is_there = run_by(pod).is_some();
        is_there && self.evacuation(pod).map_or(self.known, |evacuation| evacuation.stays_on_stop)
    }

    /// Whether a pod belongs to a virtual machine that leaves the node or is arriving: it must not be deleted. By what is known
    /// of the virtual machine, or by the answer to its last eviction.
    pub fn moves<'a>(
        &self,
        pod: &'a DrainPod,
        on_node: impl IntoIterator<Item = &'a DrainPod>,
        attempts: &HashMap<String, Attempt>,
    ) -> bool {
        let Some(launcher) = launcher_of(pod, on_node).filter(|launcher| run_by(launcher).is_some()) else {
            return false;
        };
        let attempt = attempts.get(pod::uid(launcher));
        // It may have become impossible to migrate since it was marked.
        let is_marked = self.evacuation(launcher).is_some() && attempt.is_none_or(is_left_to_kubevirt);
        is_marked || attempt.is_some_and(|attempt| attempt.migrates)
    }
}

/// What is known in addition to the instance.
struct Known<'a> {
    /// The migrations of the virtual machine; none if nm-reconciler may not read them.
    history: Option<MigrationHistory<'a>>,
    /// Whether KubeVirt can cancel evacuations.
    cancels: bool,
    /// What others do.
    others: MigrationQueue,
    start_timeout: Duration,
}

/// The last migration of an instance, unless that is how it came to the node.
fn state<'a>(instance: &'a VirtualMachineInstance, node: &str) -> Option<&'a MigrationState> {
    let last = instance.status.migration_state.as_ref();
    last.filter(|last| last.source_node.as_deref().is_none_or(|source| source == node))
}

fn evacuation(
    instance: &VirtualMachineInstance,
    node: &str,
    began: Timestamp,
    known: &Known<'_>,
) -> Evacuation {
    let last = state(instance, node);
    let history = known.history.as_ref();
    let migration = history.and_then(MigrationHistory::facts);
    let active = history.and_then(|history| history.active);
    // KubeVirt creates no migration for one that is left to others.
    let may_keep = history.is_some() || instance.is_left_to_others();
    let stays_on_stop = known.cancels
        && may_keep
        && active.is_none_or(|active| active.is_deletable() && active.evacuates(node));
    let pending = || PendingMigration {
        queue: queue(instance, history, known),
        since: active
            .filter(|active| active.stage() != MigrationStage::Pending)
            .and_then(VirtualMachineInstanceMigration::changed),
        not_before: history.and_then(MigrationHistory::not_before),
        left_to_others: instance.is_left_to_others(),
        is_visible: history.is_some(),
    };
    if let Some(moving) = last.filter(|last| last.is_active()) {
        let since = time(moving.start_timestamp.as_ref());
        return Evacuation {
            source: moving.source_node.clone(),
            target: moving.target_node.clone(),
            since,
            // virt-handler may not answer.
            pending: since.is_none().then(|| PendingMigration { queue: MigrationQueue::Free, ..pending() }),
            migration,
            stays_on_stop: false,
            failure: None,
            start_timeout: known.start_timeout,
        };
    }
    let failure = match history {
        Some(history) if history.failures() > 0 => Some(failures(history, last)),
        _ => last.filter(|last| last.failed && ended_since(last, began)).map(one_failure),
    };
    Evacuation {
        failure,
        pending: Some(pending()),
        migration,
        stays_on_stop,
        start_timeout: known.start_timeout,
        ..Evacuation::default()
    }
}

/// What a migration that has not begun may be waiting for. KubeVirt creates one at once, whatever is under way.
fn queue(
    instance: &VirtualMachineInstance,
    history: Option<&MigrationHistory<'_>>,
    known: &Known<'_>,
) -> MigrationQueue {
    let is_pending = |history: &MigrationHistory<'_>| {
        history.active.is_some_and(|active| active.stage() == MigrationStage::Pending)
    };
    if instance.is_left_to_others() || !history.is_none_or(is_pending) {
        MigrationQueue::Free
    } else {
        known.others
    }
}

fn time(time: Option<&Time>) -> Option<Timestamp> {
    time.map(|time| time.0)
}

fn ended_since(last: &MigrationState, began: Timestamp) -> bool {
    time(last.end_timestamp.as_ref()).is_none_or(|at| at >= began)
}

fn one_failure(last: &MigrationState) -> MigrationFailure {
    let target = last.target_node.as_deref().map(|target| format!(" to node {target}"));
    let reason = last.failure_reason.as_deref().map(|reason| format!(": {reason}"));
    let (target, reason) = (target.unwrap_or_default(), reason.unwrap_or_default());
    let message = format!("its live migration{target} failed{reason}; KubeVirt retries it");
    MigrationFailure { message, target: last.target_node.clone(), at: time(last.end_timestamp.as_ref()) }
}

/// The failures that the migrations show. The reason of the last one is in the instance, if it was handed over.
fn failures(history: &MigrationHistory<'_>, last: Option<&MigrationState>) -> MigrationFailure {
    let handed_over = last.filter(|last| last.failed && !history.failed_early());
    let reason = match handed_over {
        Some(last) => {
            let target = last.target_node.as_deref().map(|target| format!(" to node {target}"));
            let reason = last.failure_reason.as_deref().map(|reason| format!(": {reason}"));
            format!("{} failed{}", target.unwrap_or_default(), reason.unwrap_or_default())
        }
        None if history.failed_early() => {
            " failed before it started: its target pod was never Ready".to_owned()
        }
        None => " failed".to_owned(),
    };
    let attempts = match history.failures() {
        1 => String::new(),
        count => format!(" ({count} attempts)"),
    };
    let not_before = history.facts().and_then(|facts| facts.not_before);
    let retry = match not_before {
        Some(at) => format!("KubeVirt retries it at {}", at.0),
        None => "KubeVirt retries it".to_owned(),
    };
    MigrationFailure {
        message: format!("its live migration{reason}{attempts}; {retry}"),
        target: handed_over.and_then(|last| last.target_node.clone()),
        at: history.failed_at(),
    }
}

impl Evacuation {
    /// What blocks the evacuation; none if it is under way or waits for its turn. `waiting_since` is since when KubeVirt could have
    /// begun ([`Self::waiting_since`]).
    pub fn block(&self, waiting_since: Option<Timestamp>, now: Timestamp) -> Option<Blocker> {
        let facts = BlockFacts { migration: self.migration.clone(), ..BlockFacts::default() };
        if let Some(failure) = &self.failure {
            let facts = BlockFacts { node: failure.target.clone(), ..facts };
            let blocker = Blocker::new(BlockReason::MigrationFailed, &*failure.message).with(facts);
            return Some(Blocker { since: failure.at, ..blocker });
        }
        let (pending, since) = (self.pending.as_ref()?, waiting_since?);
        (self.timeout_of(since) <= now).then(|| {
            let blocker = Blocker::new(BlockReason::MigrationNotStarted, self.not_started(pending));
            Blocker { since: Some(since), ..blocker.with(facts) }
        })
    }

    /// Since when KubeVirt could have begun: by its migration, by an earlier status, or from now on. None if it has begun, or waits
    /// for others or for KubeVirt's back-off.
    pub fn waiting_since(
        &self,
        pod: &DrainPod,
        before: Option<&NodeMaintenanceStatus>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let pending = self.pending.as_ref().filter(|pending| pending.queue != MigrationQueue::Waits)?;
        if pending.since.is_none() && pending.not_before.is_some_and(|at| at > now) {
            return None;
        }
        let by_status = || {
            let (status, reference) = (before?, pod::reference(pod));
            let mut migrating = status.migrating_pods.iter().flatten();
            let migrating = migrating.find(|other| other.reference() == reference);
            let mut blocked = status.blocked_pods.iter();
            let blocked = blocked.find(|other| {
                other.reason == BlockReason::MigrationNotStarted && other.reference() == reference
            });
            let since =
                migrating.and_then(|pod| pod.waiting_since.as_ref()).or(blocked.map(|pod| &pod.since));
            since.or_else(|| of_others(status)).map(|since| since.0)
        };
        Some(pending.since.or_else(by_status).unwrap_or(now).min(now))
    }

    /// When a migration that could have begun then counts as not started.
    pub fn timeout_of(&self, waiting_since: Timestamp) -> Timestamp {
        waiting_since.checked_add(self.start_timeout).unwrap_or(Timestamp::MAX)
    }

    fn not_started(&self, pending: &PendingMigration) -> String {
        let seconds = self.start_timeout.as_secs();
        if pending.left_to_others {
            return format!(
                "its virtual machine has the eviction strategy External, and was not moved within {seconds} s: the \
                 controller that manages it must migrate it or shut it down"
            );
        }
        match &self.migration {
            Some(migration) if migration.phase == "Scheduling" => format!(
                "its migration {} has been Scheduling for more than {seconds} s: no node takes its target pod, or the pod \
                 does not become Ready",
                migration.name
            ),
            Some(migration) => {
                let phase = if migration.phase.is_empty() { "new" } else { migration.phase.as_str() };
                let others = if pending.queue == MigrationQueue::Stuck {
                    "no other migration has changed for an hour: virt-controller may be down"
                } else {
                    "no other migration is under way"
                };
                format!(
                    "its migration {} has been {phase} for more than {seconds} s, and {others}",
                    migration.name
                )
            }
            None if self.target.is_some() => {
                format!(
                    "its migration was handed over to virt-handler, but has not started after {seconds} s"
                )
            }
            None if pending.is_visible => format!(
                "KubeVirt was asked to migrate its virtual machine, but has created no migration for {seconds} s: \
                 virt-controller \
                 may be down"
            ),
            None => format!(
                "KubeVirt is to migrate its virtual machine, but no migration has started for {seconds} s; {}",
                Grant::VirtualMachines.hint()
            ),
        }
    }
}

/// Since when others have waited, of which a status lists as many as it can: those that are not listed wait with them.
fn of_others(status: &NodeMaintenanceStatus) -> Option<&Time> {
    let migrating = status.migrating_pods.as_deref().unwrap_or_default();
    let is_cut = migrating.len() >= MAX_MIGRATING_PODS || status.blocked_pods.len() >= MAX_BLOCKED_PODS;
    let blocked = status.blocked_pods.iter().filter(|pod| pod.reason == BlockReason::MigrationNotStarted);
    let since = migrating.iter().filter_map(|pod| pod.waiting_since.as_ref());
    since.chain(blocked.map(|pod| &pod.since)).max_by_key(|since| since.0).filter(|_| is_cut)
}

/// Whether an answer to an eviction leaves the pod to KubeVirt, if its virtual machine is known to leave. An answer of the API
/// server that contains nothing about the pod changes nothing. KubeVirt before 1.3 marks the virtual machine and leaves the refusal
/// to a budget of its own (`pod-eviction-admitter.go` in kubevirt/kubevirt).
pub(super) fn is_left_to_kubevirt(attempt: &Attempt) -> bool {
    use EvictionOutcome::{Migrating, RefusedByBudget, Throttled, Unknown};
    let last = attempt.last.as_ref().map(|(_, outcome)| outcome);
    matches!(last, None | Some(Migrating(_) | RefusedByBudget(_) | Throttled { .. } | Unknown(_)))
}

#[cfg(test)]
#[path = "evacuation_tests.rs"]
mod tests;
