//! Which pods of a node are replaced before they leave, and which Deployments to restart for that.
//!
//! A pod is considered if the budget that guards it never allows its eviction, or if the status shows that it is surging, why
//! it is not, or that its Deployment was restarted: a budget also counts the pods that are to replace it. Its `ReplicaSet`
//! and Deployment are read only then. While it surges, no eviction is requested: its Deployment terminates it.
//!
//! During a rollout, a budget with a number as `minAvailable` counts the additional pod too and allows an eviction, at the
//! moment at which the Deployment terminates another pod: the service would lose both. So the Deployment of such a pod is read
//! first, and its pods are left alone until the rollout has ended.
//!
//! A restart is in the status before it is requested, whatever state the pods of its `ReplicaSet` are in, so a restart that
//! a user reverted is not repeated.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;

use crate::api::condition::whole_seconds;
use crate::api::maintenance::{DrainSpec, SurgePolicy};
use crate::api::status::{MAX_RESTARTED_REPLICA_SETS, MAX_SURGING_PODS, NodeMaintenanceStatus, SurgingPod};
use crate::api::surge::{RestartedReplicaSet, SurgeFacts, SurgeObstacle};
use crate::cluster::pod::{self, DrainPod};
use crate::decide::cluster_state::ClusterState;
use crate::decide::decision::RESTART_RETRY_INTERVAL;
use crate::decide::eviction_order::EvictionOrder;
use crate::drain::plan::{DrainPlan, PlannedPod, Verdict};
use crate::drain::steady_time::SteadyTime;
use crate::drain::surge::{self, Restart, Surge, SurgeBlock, Workload, WorkloadKey, WorkloadState};

/// The number of `ReplicaSet`s of a node that are watched at most. Each costs a request and two watches. The pods of others are not replaced
/// first until some of these are gone; they are evicted as far as their budgets allow it.
pub const MAX_WATCHED_REPLICA_SETS: usize = 100;

/// The surges of a node.
#[derive(Debug, Clone, Default)]
pub struct Surges {
    /// The surging pods, by uid.
    surging: HashMap<String, SurgingPod>,
    /// How many disruptions of its budget a rollout of its Deployment may use at any moment, by the pod's uid: all of them while
    /// the Deployment is not known.
    reserved: HashMap<String, i32>,
    /// What prevents the surges of other pods, by uid.
    blocked: HashMap<String, SurgeBlock>,
    /// The pods whose controllers are being read, by uid: nothing is known that keeps them from being replaced first.
    undecided: HashSet<String>,
    /// The `ReplicaSet`s whose state is needed.
    pub wanted: HashSet<WorkloadKey>,
    /// The `ReplicaSet`s whose Deployments were restarted, as far as they have pods on the node.
    restarted: HashMap<WorkloadKey, i64>,
    /// The restarts to request, once the status has them.
    pub restarts: Vec<Restart>,
    /// When a refused restart is due.
    pub next: Option<SteadyTime>,
}

/// What every surge of a node depends on.
struct View<'a> {
    observed: &'a ClusterState,
    may_restart: bool,
    now: Timestamp,
}

impl Surges {
    /// Decides about every pod of the plan. Unless it `may_restart`, no restart is requested.
    pub(super) fn new(
        plan: &DrainPlan,
        spec: &DrainSpec,
        observed: &ClusterState,
        order: &EvictionOrder<'_>,
        status: Option<&NodeMaintenanceStatus>,
        may_restart: bool,
        now: Timestamp,
    ) -> Self {
        let mut restarted = recorded(status);
        if !restarted.is_empty() {
            let pods = plan.pods.iter();
            let sets: HashSet<_> = pods.filter_map(|planned| surge::replica_set_of(&planned.pod)).collect();
            restarted.retain(|set, _| sets.contains(set));
        }
        let mut surges = Self { restarted, ..Self::default() };
        if spec.surge == SurgePolicy::Never {
            return surges;
        }
        let view = View { observed, may_restart, now };
        let watched = watched(plan, order, &surges.restarted, observed, status);
        for planned in plan.pods.iter().filter(|planned| planned.verdict == Verdict::Evict) {
            let pod = &planned.pod;
            let before = Before::of(status, pod);
            let is_restarted = !surges.restarted.is_empty()
                && surge::replica_set_of(pod).is_some_and(|set| surges.restarted.contains_key(&set));
            let is_surging = before.surging.is_some();
            let is_known = before.is_shown() || is_restarted;
            let is_candidate = is_known || observed.budgets.never_allow_eviction_after_rollout(pod, None);
            if pod::deadline(pod).is_some() || !is_candidate || !(is_surging || order.allows(pod)) {
                continue;
            }
            let Some(set) = surge::replica_set_of(pod) else {
                surges.block(pod, SurgeBlock::no_deployment(pod));
                continue;
            };
            // The other pods are evicted as without a surge, as far as their budgets allow it.
            if !watched.contains(&set) {
                surges.keep(pod, before);
                continue;
            }
            match observed.workloads.get(&set) {
                // After a restart of the reconciler, the status is right until it is known what controls the pod.
                None => {
                    surges.reserved.insert(pod::uid(pod).to_owned(), i32::MAX);
                    if !before.is_blocked {
                        surges.undecided.insert(pod::uid(pod).to_owned());
                    }
                    surges.keep(pod, before);
                }
                Some(WorkloadState::Forbidden(denied)) => surges.block(pod, SurgeBlock::forbidden(denied)),
                Some(WorkloadState::Known(workload)) => surges.consider(pod, &set, workload, before, &view),
            }
            surges.wanted.insert(set);
        }
        surges.name_replacements(plan, observed, status);
        surges
    }

    /// Whether no eviction is requested for a pod, because its Deployment terminates it.
    pub fn is_surging(&self, pod: &DrainPod) -> bool {
        self.surging.contains_key(pod::uid(pod))
    }

    /// Whether it is not known yet if the Deployment of a pod can replace it first. A pod that the status shows as blocked stays so
    /// until then.
    pub fn is_undecided(&self, pod: &DrainPod) -> bool {
        self.undecided.contains(pod::uid(pod))
    }

    /// How many disruptions its budget has to allow beyond the eviction of a pod: a rollout that may continue ends so many other
    /// pods at the same moment.
    pub fn reserved(&self, pod: &DrainPod) -> i32 {
        self.reserved.get(pod::uid(pod)).copied().unwrap_or(0)
    }

    /// Whether a pod can leave only once the stalled rollout of its Deployment continues.
    pub fn awaits_rollout(&self, pod: &DrainPod) -> bool {
        self.reserved.contains_key(pod::uid(pod)) && self.block_of(pod).is_some()
    }

    /// The Deployments that are replacing pods, or are to be restarted.
    pub fn deployments(&self) -> HashSet<WorkloadKey> {
        let key =
            |pod: &SurgingPod| WorkloadKey { namespace: pod.namespace.clone(), name: pod.deployment.clone() };
        let restarts = self.restarts.iter().map(|restart| restart.deployment.clone());
        self.surging.values().map(key).chain(restarts).collect()
    }

    /// The uids of the pods of the plan that may be evicted.
    pub fn evictable(&self, plan: &DrainPlan) -> HashSet<String> {
        let wanted = plan.pods.iter().filter(|planned| planned.verdict == Verdict::Evict);
        let wanted = wanted.filter(|planned| !self.is_surging(&planned.pod));
        wanted.map(|planned| pod::uid(&planned.pod).to_owned()).collect()
    }

    /// What prevents the surge of a pod.
    pub fn block_of(&self, pod: &DrainPod) -> Option<&SurgeBlock> {
        self.blocked.get(pod::uid(pod))
    }

    fn consider(
        &mut self,
        pod: &DrainPod,
        set: &WorkloadKey,
        workload: &Workload,
        before: Before<'_>,
        view: &View<'_>,
    ) {
        let View { observed, may_restart, now } = *view;
        let Some(deployment) = &workload.deployment else {
            return self.block(pod, SurgeBlock::no_deployment(pod));
        };
        let name = deployment.metadata.name.clone().unwrap_or_default();
        let restarted = self.restarted.get(set).copied();
        let found = surge::judge(pod, workload);
        let is_current = matches!(found, Surge::Required | Surge::Waiting);
        let was_undone = restarted.is_some_and(|revision| Some(revision) != workload.revision);
        // Until then, the Deployment is still ending the pods of the restart.
        if found == Surge::Required && was_undone {
            let message = format!(
                "the restart of Deployment {name}, or a rollout that came before it, was undone. What manages the Deployment has to \
                 keep the annotation kubectl.kubernetes.io/restartedAt of its pod template; then restart the Deployment"
            );
            let block =
                SurgeBlock { deployment: Some(name), ..SurgeBlock::new(SurgeObstacle::RolledBack, message) };
            return self.block(pod, block);
        }
        let is_required = found == Surge::Required;
        let replicas = surge::replicas(deployment);
        let may_be_replaced = || observed.budgets.never_allow_eviction_after_rollout(pod, Some(replicas));
        let is_blocked = || observed.budgets.never_allow_eviction(pod, replicas, &workload.pods);
        match found {
            Surge::Impossible(block) => {
                // Such a rollout may continue at any moment, before the status of the Deployment says so.
                let is_stuck = matches!(block.reason, SurgeObstacle::Stalled | SurgeObstacle::CreationFailed);
                if is_stuck && may_be_replaced() {
                    let added = observed.budgets.added_by_rollout(pod, replicas, &workload.pods);
                    self.reserved.insert(pod::uid(pod).to_owned(), added.unwrap_or(i32::MAX));
                }
                return self.block(pod, block);
            }
            Surge::Rolling | Surge::Waiting => {
                let is_known = before.is_shown() || restarted.is_some();
                if !is_known && !may_be_replaced() {
                    return;
                }
            }
            Surge::Required if !may_restart || !is_blocked() => return,
            Surge::Required if restarted.is_none() && self.is_full() => return,
            Surge::Required => {
                let Some(restart) = Restart::of(deployment, set, now) else { return };
                let refused = observed.restart_refusals.get(&restart.deployment);
                let due = refused.map(|(at, _)| at.after(RESTART_RETRY_INTERVAL));
                if due.is_some_and(|due| due > observed.steady_now) {
                    self.next = self.next.into_iter().chain(due).min();
                } else if self.restarts.iter().all(|other| other.deployment != restart.deployment) {
                    self.restarts.push(restart);
                }
                // A restart that is refused for good does not alternate between blocked and surging.
                if let Some((_, refusal)) = refused {
                    return self.block(pod, SurgeBlock::refused(&name, refusal));
                }
            }
        }
        let surging = SurgingPod {
            deployment: name,
            restarted: is_required || (restarted.is_some() && !is_current),
            ..before.surging(pod, now)
        };
        self.surging.insert(pod::uid(pod).to_owned(), surging);
    }

    /// Names the replacements of the pods that a rollout is replacing.
    fn name_replacements(
        &mut self,
        plan: &DrainPlan,
        observed: &ClusterState,
        status: Option<&NodeMaintenanceStatus>,
    ) {
        let mut deployments: BTreeMap<_, (&Workload, Vec<_>)> = BTreeMap::new();
        for PlannedPod { pod, .. } in &plan.pods {
            let Some(surging) = self.surging.get(pod::uid(pod)) else { continue };
            let set = surge::replica_set_of(pod).and_then(|set| observed.workloads.get(&set));
            let Some(WorkloadState::Known(workload)) = set else { continue };
            if surge::judge(pod, workload) == Surge::Rolling {
                let deployment = (pod::names(pod).namespace, surging.deployment.clone());
                let before = Before::of(status, pod).surging;
                let before = before.and_then(|before| Some(before.replacement.as_ref()?.name.as_str()));
                deployments.entry(deployment).or_insert((workload, Vec::new())).1.push((&**pod, before));
            }
        }
        for (workload, pods) in deployments.into_values() {
            for ((pod, _), replacement) in pods.iter().zip(surge::replacements(&pods, workload)) {
                if let Some(surging) = self.surging.get_mut(pod::uid(pod)) {
                    surging.replacement = replacement;
                }
            }
        }
    }

    /// Whether no more restarts can be recorded.
    fn is_full(&self) -> bool {
        self.restarted.len() + self.restarts.len() >= MAX_RESTARTED_REPLICA_SETS
    }

    /// What the status shows about a requested restart.
    fn keep(&mut self, pod: &DrainPod, before: Before<'_>) {
        if let Some(surging) = before.surging {
            self.surging.insert(pod::uid(pod).to_owned(), surging.clone());
        } else if let Some(facts) = before.blocked {
            self.block(pod, SurgeBlock::before(facts));
        }
    }

    fn block(&mut self, pod: &DrainPod, block: SurgeBlock) {
        self.blocked.insert(pod::uid(pod).to_owned(), block);
    }

    /// The surging pods for the status.
    pub fn for_status(&self) -> Option<Vec<SurgingPod>> {
        let mut pods: Vec<SurgingPod> = self.surging.values().cloned().collect();
        pods.sort_by_key(SurgingPod::reference);
        pods.truncate(MAX_SURGING_PODS);
        Some(pods).filter(|pods| !pods.is_empty())
    }

    /// The restarted `ReplicaSet`s for the status, and those that are to be restarted. Those that were restarted stay.
    pub fn restarted_for_status(&self) -> Option<Vec<RestartedReplicaSet>> {
        let of = |(set, revision): (&WorkloadKey, &i64)| {
            let WorkloadKey { namespace, name } = set.clone();
            RestartedReplicaSet { namespace, name, revision: *revision }
        };
        let mut sets: Vec<RestartedReplicaSet> = self.restarted.iter().map(of).collect();
        let new = self.restarts.iter().map(|restart| restart.replica_set.clone());
        let new: Vec<RestartedReplicaSet> = new.filter(|new| !sets.contains(new)).collect();
        sets.extend(new);
        sets.truncate(MAX_RESTARTED_REPLICA_SETS);
        sets.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        Some(sets).filter(|sets| !sets.is_empty())
    }

    /// The restarts that the status shows already. It outlives this process, so that none is requested twice for a pod.
    pub fn recorded(self, status: Option<&NodeMaintenanceStatus>) -> Vec<Restart> {
        let shown = || status.iter().flat_map(|status| status.restarted_replica_sets.iter().flatten());
        let is_recorded = |restart: &Restart| shown().any(|set| *set == restart.replica_set);
        self.restarts.into_iter().filter(is_recorded).collect()
    }
}

/// The `ReplicaSet`s of a node that may be watched, if they are more than [`MAX_WATCHED_REPLICA_SETS`]. First those of pods of
/// which the status shows something, and of restarted Deployments; then those of pods that their budget allows to leave: these
/// make room.
fn watched(
    plan: &DrainPlan,
    order: &EvictionOrder<'_>,
    restarted: &HashMap<WorkloadKey, i64>,
    observed: &ClusterState,
    status: Option<&NodeMaintenanceStatus>,
) -> HashSet<WorkloadKey> {
    let mut ranked: BTreeMap<WorkloadKey, u8> = BTreeMap::new();
    for planned in plan.pods.iter().filter(|planned| planned.verdict == Verdict::Evict) {
        let pod = &planned.pod;
        let Some(set) = surge::replica_set_of(pod) else { continue };
        let before = Before::of(status, pod);
        if pod::deadline(pod).is_some() || !(before.surging.is_some() || order.allows(pod)) {
            continue;
        }
        let is_shown = || restarted.contains_key(&set) || before.is_shown();
        let rank = if !observed.budgets.never_allow_eviction_after_rollout(pod, None) && !is_shown() {
            continue;
        } else if is_shown() {
            0
        } else {
            1 + u8::from(!observed.budgets.allow_eviction(pod))
        };
        let known = ranked.entry(set).or_insert(rank);
        *known = rank.min(*known);
    }
    let mut ranked: Vec<_> = ranked.into_iter().map(|(set, rank)| (rank, set)).collect();
    ranked.sort();
    ranked.into_iter().take(MAX_WATCHED_REPLICA_SETS).map(|(_, set)| set).collect()
}

/// The revisions of the `ReplicaSet`s when their Deployments were restarted.
fn recorded(status: Option<&NodeMaintenanceStatus>) -> HashMap<WorkloadKey, i64> {
    let sets = status.into_iter().flat_map(|status| status.restarted_replica_sets.iter().flatten());
    let of = |set: &RestartedReplicaSet| {
        let key = WorkloadKey { namespace: set.namespace.clone(), name: set.name.clone() };
        (key, set.revision)
    };
    sets.map(of).collect()
}

/// What the status shows about the surge of a pod. It survives a restart of this process.
#[derive(Clone, Copy)]
struct Before<'a> {
    surging: Option<&'a SurgingPod>,
    /// Whether it is blocked, for whatever reason.
    is_blocked: bool,
    /// What prevents its surge.
    blocked: Option<&'a SurgeFacts>,
}

impl<'a> Before<'a> {
    fn of(status: Option<&'a NodeMaintenanceStatus>, pod: &DrainPod) -> Self {
        let reference = pod::reference(pod);
        let mut surging = status.into_iter().flat_map(|status| status.surging_pods.iter().flatten());
        let mut blocked = status.into_iter().flat_map(|status| &status.blocked_pods);
        let blocked = blocked.find(|before| before.reference() == reference);
        Self {
            surging: surging.find(|before| before.reference() == reference),
            is_blocked: blocked.is_some(),
            blocked: blocked.and_then(|before| before.facts.surge.as_ref()),
        }
    }

    /// Whether the status shows anything about it.
    fn is_shown(self) -> bool {
        self.surging.is_some() || self.blocked.is_some()
    }

    /// The pod as surging, since the time in the status.
    fn surging(self, pod: &DrainPod, now: Timestamp) -> SurgingPod {
        let pod::PodNames { namespace, name, .. } = pod::names(pod);
        SurgingPod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            since: self.surging.map_or_else(|| whole_seconds(now), |before| before.since.clone()),
            deployment: self.surging.map(|before| before.deployment.clone()).unwrap_or_default(),
            restarted: false,
            replacement: None,
        }
    }
}

#[cfg(test)]
#[path = "surge_tests.rs"]
mod tests;
