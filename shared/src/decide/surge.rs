//! Which pods of a node are replaced before they leave, and which Deployments to restart for that.
//!
//! A pod is considered if the budget that guards it never allows its eviction, or if the status says that it is surging. Its
//! `ReplicaSet` and Deployment are read only then. While it surges, no eviction is requested: its Deployment ends it.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;

use crate::api::condition::whole_seconds;
use crate::api::maintenance::{DrainSpec, SurgePolicy};
use crate::api::status::{MAX_SURGING_PODS, NodeMaintenanceStatus, SurgingPod};
use crate::api::surge::{SurgeFacts, SurgeObstacle};
use crate::cluster::pod::{self, DrainPod};
use crate::decide::cluster_state::ClusterState;
use crate::decide::decision::RESTART_RETRY_INTERVAL;
use crate::decide::eviction_order::EvictionOrder;
use crate::drain::plan::{DrainPlan, Verdict};
use crate::drain::steady_time::SteadyTime;
use crate::drain::surge::{
    self, Restart, RestartRefusal, Surge, SurgeBlock, Workload, WorkloadKey, WorkloadState,
};

/// The surges of a node.
#[derive(Debug, Clone, Default)]
pub struct Surges {
    /// The surging pods, by uid.
    surging: HashMap<String, SurgingPod>,
    /// What prevents the surges of other pods, by uid.
    blocked: HashMap<String, SurgeBlock>,
    /// The `ReplicaSet`s whose state is needed.
    pub wanted: HashSet<WorkloadKey>,
    /// The restarts to request, once the status has their pods.
    pub restarts: Vec<Restart>,
    /// When a refused restart is due.
    pub next: Option<SteadyTime>,
}

/// What every surge of a node depends on.
struct View<'a> {
    observed: &'a ClusterState,
    paused: bool,
    now: Timestamp,
}

impl Surges {
    /// Decides about every pod of the plan. While the maintenance is `paused`, no restart is requested.
    pub fn new(
        plan: &DrainPlan,
        spec: &DrainSpec,
        observed: &ClusterState,
        status: Option<&NodeMaintenanceStatus>,
        paused: bool,
        now: Timestamp,
    ) -> Self {
        let mut surges = Self::default();
        if spec.surge == SurgePolicy::Never {
            return surges;
        }
        let view = View { observed, paused, now };
        let order = EvictionOrder::new(plan, spec, observed);
        for planned in plan.pods.iter().filter(|planned| planned.verdict == Verdict::Evict) {
            let pod = &planned.pod;
            let before = Before::of(status, pod);
            let is_surging = before.surging.is_some();
            let is_candidate = is_surging || observed.budgets.never_allow_eviction(pod);
            if pod::deadline(pod).is_some() || !is_candidate || !(is_surging || order.allows(pod)) {
                continue;
            }
            let Some(key) = surge::replica_set_of(pod) else {
                surges.block(pod, SurgeBlock::no_deployment(pod), before, &view);
                continue;
            };
            surges.wanted.insert(key.clone());
            match observed.workloads.get(&key) {
                // After a restart of the reconciler, the status is right until it is known what controls the pod.
                None => surges.keep(pod, before, &view),
                Some(WorkloadState::Forbidden(denied)) => {
                    surges.block(pod, SurgeBlock::forbidden(denied), before, &view);
                }
                Some(WorkloadState::Known(workload)) => {
                    surges.consider(pod, workload, before, &view);
                }
            }
        }
        surges
    }

    /// Whether no eviction is requested for a pod, because its Deployment ends it.
    pub fn is_surging(&self, pod: &DrainPod) -> bool {
        self.surging.contains_key(pod::uid(pod))
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

    fn consider(&mut self, pod: &DrainPod, workload: &Workload, before: Before<'_>, view: &View<'_>) {
        let View { observed, paused, now } = *view;
        let Some(deployment) = &workload.deployment else {
            return self.block(pod, SurgeBlock::no_deployment(pod), before, view);
        };
        let name = deployment.metadata.name.clone().unwrap_or_default();
        let restarted = before.restarted();
        let found = surge::judge(pod, workload);
        let is_current = matches!(found, Surge::Required | Surge::Waiting);
        let was_undone = restarted.is_some_and(|revision| Some(revision) != workload.revision);
        if is_current && was_undone {
            let message = format!(
                "the restart of Deployment {name} was undone. What manages the Deployment has to keep the annotation \
                 kubectl.kubernetes.io/restartedAt of its pod template: then run `kubectl rollout restart deployment/{name}`"
            );
            let block =
                SurgeBlock { deployment: Some(name), ..SurgeBlock::new(SurgeObstacle::RolledBack, message) };
            return self.block(pod, block, before, view);
        }
        let mut revision = restarted;
        match found {
            Surge::Impossible(block) => return self.block(pod, block, before, view),
            Surge::Rolling | Surge::Waiting => {}
            Surge::Required if paused || !observed.budgets.never_allow_eviction(pod) => return,
            Surge::Required => {
                let Some(restart) = Restart::of(deployment, now) else { return };
                if let Some((at, refusal)) = observed.restart_refusals.get(&restart.deployment) {
                    let block = match refusal {
                        RestartRefusal::Forbidden(denied) => SurgeBlock::forbidden(denied),
                        RestartRefusal::Refused(why) => {
                            let message =
                                format!("the restart of Deployment {name} failed and is retried: {why}");
                            SurgeBlock::new(SurgeObstacle::Refused, message)
                        }
                    };
                    let due = at.after(RESTART_RETRY_INTERVAL);
                    if due > observed.steady_now {
                        self.next = self.next.into_iter().chain([due]).min();
                        let block = SurgeBlock { deployment: Some(name), ..block };
                        return self.block(pod, block, before, view);
                    }
                }
                revision = Some(restart.revision);
                if self.restarts.iter().all(|other| other.deployment != restart.deployment) {
                    self.restarts.push(restart);
                }
            }
        }
        let surging = SurgingPod {
            deployment: name,
            revision,
            replacement: surge::replacement(pod, workload).filter(|_| !is_current),
            ..before.surging(pod, now)
        };
        self.surging.insert(pod::uid(pod).to_owned(), surging);
    }

    /// What the status says about a restart that was requested.
    fn keep(&mut self, pod: &DrainPod, before: Before<'_>, view: &View<'_>) {
        if let Some(surging) = before.surging {
            self.surging.insert(pod::uid(pod).to_owned(), surging.clone());
        } else if let Some(facts) = before.blocked.filter(|facts| facts.revision.is_some()) {
            self.block(pod, SurgeBlock::before(facts), before, view);
        }
    }

    fn block(&mut self, pod: &DrainPod, block: SurgeBlock, before: Before<'_>, view: &View<'_>) {
        let (uid, restarted) = (pod::uid(pod).to_owned(), before.restarted());
        if view.paused && restarted.is_some() {
            // The status of a paused maintenance has no blocked pods, and the restart must not be forgotten.
            let deployment = block.deployment.unwrap_or_default();
            let surging = SurgingPod { deployment, revision: restarted, ..before.surging(pod, view.now) };
            self.surging.insert(uid, surging);
        } else {
            self.blocked.insert(uid, SurgeBlock { restarted, ..block });
        }
    }

    /// The surging pods for the status.
    pub fn for_status(&self) -> Option<Vec<SurgingPod>> {
        let mut pods: Vec<SurgingPod> = self.surging.values().cloned().collect();
        pods.sort_by_key(SurgingPod::reference);
        pods.truncate(MAX_SURGING_PODS);
        Some(pods).filter(|pods| !pods.is_empty())
    }

    /// The restarts that the status shows already. It outlives this process, so that none is requested twice for a pod.
    pub fn recorded(self, status: Option<&NodeMaintenanceStatus>) -> Vec<Restart> {
        let shown = || status.iter().flat_map(|status| status.surging_pods.iter().flatten());
        let is_recorded = |restart: &Restart| {
            shown().any(|pod| {
                pod.namespace == restart.deployment.namespace
                    && pod.deployment == restart.deployment.name
                    && pod.revision == Some(restart.revision)
            })
        };
        self.restarts.into_iter().filter(is_recorded).collect()
    }
}

/// What the status says about the surge of a pod. It outlives this process.
#[derive(Clone, Copy)]
struct Before<'a> {
    surging: Option<&'a SurgingPod>,
    blocked: Option<&'a SurgeFacts>,
}

impl<'a> Before<'a> {
    fn of(status: Option<&'a NodeMaintenanceStatus>, pod: &DrainPod) -> Self {
        let reference = pod::reference(pod);
        let mut surging = status.into_iter().flat_map(|status| status.surging_pods.iter().flatten());
        let mut blocked = status.into_iter().flat_map(|status| &status.blocked_pods);
        Self {
            surging: surging.find(|before| before.reference() == reference),
            blocked: blocked
                .find(|before| before.reference() == reference)
                .and_then(|before| before.facts.surge.as_ref()),
        }
    }

    /// The revision of the pod's `ReplicaSet` when its Deployment was restarted for it.
    fn restarted(self) -> Option<i64> {
        let surging = self.surging.and_then(|before| before.revision);
        surging.or_else(|| self.blocked.and_then(|before| before.revision))
    }

    /// The pod as surging, since the time that the status says.
    fn surging(self, pod: &DrainPod, now: Timestamp) -> SurgingPod {
        let pod::PodNames { namespace, name, .. } = pod::names(pod);
        SurgingPod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            since: self.surging.map_or_else(|| whole_seconds(now), |before| before.since.clone()),
            deployment: self.surging.map(|before| before.deployment.clone()).unwrap_or_default(),
            revision: None,
            replacement: None,
        }
    }
}

#[cfg(test)]
#[path = "surge_tests.rs"]
mod tests;
