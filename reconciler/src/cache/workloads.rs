//! The `ReplicaSet`s whose Deployments may replace pods first, as far as they are known, and the restarts of these Deployments.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nm_shared::cluster::pod::DrainPod;
use nm_shared::drain::eviction_outcome::AccessDenied;
use nm_shared::drain::steady_time::SteadyTime;
use nm_shared::drain::surge::{
    RestartRefusal, Workload, WorkloadKey, WorkloadState, is_kept_apart, keeps_pods_apart, revision,
};

use crate::cache::read_your_writes::LastWrite;
use crate::cache::watched::{ListState, WatchUpdate, Watched};
use crate::runtime::tasks::ScopedTask;

#[derive(Default)]
pub(crate) struct Workloads {
    replica_sets: HashMap<WorkloadKey, WatchedReplicaSet>,
    refusals: HashMap<WorkloadKey, (SteadyTime, RestartRefusal)>,
    /// The restarts in progress, by Deployment.
    restarting: HashMap<WorkloadKey, RestartInProgress>,
}

struct WatchedReplicaSet {
    /// The nodes that need it.
    nodes: HashSet<String>,
    seen: SeenReplicaSet,
    _watch: ScopedTask,
}

/// A restart that may still wait to be sent. Dropping this withdraws it.
struct RestartInProgress {
    /// The nodes whose pods it replaces.
    nodes: HashSet<String>,
    _request: ScopedTask,
}

/// What has been seen of a `ReplicaSet` and its Deployment.
#[derive(Default)]
pub(crate) struct SeenReplicaSet {
    owner: Owner,
    deployments: Watched<Deployment>,
    pods: Watched<DrainPod>,
    /// The API server's answer to the last restart.
    last_write: LastWrite<Deployment>,
    denied: Option<AccessDenied>,
}

/// What controls a `ReplicaSet`.
#[derive(Default)]
enum Owner {
    #[default]
    Unknown,
    NoDeployment,
    Deployment {
        /// Of the `ReplicaSet`.
        revision: Option<i64>,
        /// As it was when the revision was known to be current.
        deployment: Arc<Deployment>,
    },
}

impl SeenReplicaSet {
    /// The API server denies what is needed. Returns whether that is new.
    pub(crate) fn deny(&mut self, denied: AccessDenied) -> bool {
        let is_new = self.denied.as_ref() != Some(&denied);
        self.denied = Some(denied);
        is_new
    }

    /// What is needed may be read.
    pub(crate) fn permit(&mut self) {
        self.denied = None;
    }

    /// Takes in what the watch on the Deployment delivers. What is decided from it waits for [`Self::publish`].
    pub(crate) fn apply_deployment(&mut self, update: WatchUpdate<Deployment>) {
        match &update {
            WatchUpdate::Applied(_) | WatchUpdate::Deleted(_) => self.denied = None,
            // After a restore of etcd, a write may be lost although its version is higher.
            WatchUpdate::Listed(_) => (self.denied, self.last_write) = (None, LastWrite::default()),
            // A rollout may have begun meanwhile.
            WatchUpdate::Interrupted => self.owner = Owner::Unknown,
            WatchUpdate::Forbidden(denied) => _ = self.deny(denied.clone()),
        }
        self.deployments.apply(update);
    }

    /// Takes in what the watch on the pods of the Deployment delivers.
    pub(crate) fn apply_pod(&mut self, update: WatchUpdate<DrainPod>) {
        self.pods.apply(update);
    }

    /// The Deployment as it was delivered, if there is one.
    pub(crate) fn deployment(&self) -> Option<Arc<Deployment>> {
        self.deployments.iter().next().cloned()
    }

    /// The state of the `ReplicaSet` is known, with its metadata. Without a Deployment, it is being deleted or is an orphan.
    pub(crate) fn publish(&mut self, set: &ObjectMeta) {
        self.owner = match self.deployment() {
            Some(deployment) => Owner::Deployment { revision: revision(set), deployment },
            None if self.denied.is_some() => return,
            None => Owner::NoDeployment,
        };
    }

    fn state(&mut self) -> Option<WorkloadState> {
        if let Some(denied) = &self.denied {
            return Some(WorkloadState::Forbidden(denied.clone()));
        }
        let (revision, deployment) = match &self.owner {
            Owner::Unknown => return None,
            Owner::NoDeployment => (None, None),
            Owner::Deployment { revision, deployment } => {
                (*revision, Some(self.last_write.latest(deployment.clone())))
            }
        };
        let needs_pods = deployment.as_deref().is_some_and(keeps_pods_apart);
        if needs_pods && self.pods.list_state == ListState::NotListed {
            return None;
        }
        let pods = self.pods.all();
        Some(WorkloadState::Known(Workload { revision, deployment, pods, is_kept_apart: false }))
    }
}

impl Workloads {
    /// Needs these `ReplicaSet`s for a node, and ends the watches that no node needs any more.
    pub(crate) fn watch(
        &mut self,
        node: &str,
        wanted: &HashSet<WorkloadKey>,
        start: impl Fn(&WorkloadKey) -> ScopedTask,
    ) {
        for key in wanted {
            let set = self.replica_sets.entry(key.clone()).or_insert_with(|| WatchedReplicaSet {
                nodes: HashSet::new(),
                seen: SeenReplicaSet::default(),
                _watch: start(key),
            });
            set.nodes.insert(node.to_owned());
        }
        self.release(|key, other| other != node || wanted.contains(key));
    }

    /// Ends what no node but these needs.
    pub(crate) fn retain_nodes(&mut self, stays: impl Fn(&str) -> bool) {
        self.release(|_, node| stays(node));
        self.withdraw(|_, node| stays(node));
    }

    /// Withdraws the restarts that are in progress for a node, except those of the `wanted` Deployments: the maintenance may be
    /// paused or stopped while a request waits, for example because the API server throttles.
    pub(crate) fn withdraw_restarts(&mut self, node: &str, wanted: &HashSet<WorkloadKey>) {
        self.withdraw(|key, other| other != node || wanted.contains(key));
    }

    fn release(&mut self, is_needed_by: impl Fn(&WorkloadKey, &str) -> bool) {
        self.replica_sets.retain(|key, set| {
            set.nodes.retain(|node| is_needed_by(key, node));
            !set.nodes.is_empty()
        });
        if self.replica_sets.is_empty() {
            self.refusals.clear();
        }
    }

    fn withdraw(&mut self, is_wanted_by: impl Fn(&WorkloadKey, &str) -> bool) {
        self.restarting.retain(|key, restart| {
            restart.nodes.retain(|node| is_wanted_by(key, node));
            !restart.nodes.is_empty()
        });
    }

    /// What has been seen of a `ReplicaSet`; none if no node needs it any more.
    pub(crate) fn seen(&mut self, key: &WorkloadKey) -> Option<&mut SeenReplicaSet> {
        self.replica_sets.get_mut(key).map(|set| &mut set.seen)
    }

    /// The nodes that need a `ReplicaSet`.
    pub(crate) fn nodes(&self, key: &WorkloadKey) -> Vec<String> {
        self.replica_sets.get(key).into_iter().flat_map(|set| set.nodes.iter().cloned()).collect()
    }

    /// What is known of the `ReplicaSet`s that a node needs. `others` are the other nodes, which are read only
    /// if a Deployment keeps its pods apart.
    pub(crate) fn states<O: Iterator<Item = Node>>(
        &mut self,
        node: &str,
        others: impl Fn() -> O,
    ) -> HashMap<WorkloadKey, WorkloadState> {
        let needed = self.replica_sets.iter_mut().filter(|(_, set)| set.nodes.contains(node));
        let state = |(key, set): (&WorkloadKey, &mut WatchedReplicaSet)| {
            let mut state = set.seen.state()?;
            if let WorkloadState::Known(workload) = &mut state {
                workload.is_kept_apart = is_kept_apart(workload, others());
            }
            Some((key.clone(), state))
        };
        needed.filter_map(state).collect()
    }

    /// The last refusals of restarts.
    pub(crate) fn refusals(&self) -> HashMap<WorkloadKey, (SteadyTime, RestartRefusal)> {
        self.refusals.clone()
    }

    /// Restarts a Deployment for a node, unless that is in progress.
    pub(crate) fn restart(
        &mut self,
        node: &str,
        deployment: &WorkloadKey,
        request: impl FnOnce() -> ScopedTask,
    ) {
        let in_progress = self.restarting.entry(deployment.clone());
        let in_progress =
            in_progress.or_insert_with(|| RestartInProgress { nodes: HashSet::new(), _request: request() });
        in_progress.nodes.insert(node.to_owned());
    }

    /// The request of a restart has ended, unless it was withdrawn.
    pub(crate) fn restart_ended(&mut self, deployment: &WorkloadKey) {
        self.restarting.remove(deployment);
    }

    /// A restart was refused.
    pub(crate) fn restart_refused(
        &mut self,
        deployment: &WorkloadKey,
        refusal: RestartRefusal,
        now: SteadyTime,
    ) {
        self.refusals.insert(deployment.clone(), (now, refusal));
    }

    /// A Deployment was restarted.
    pub(crate) fn restarted(&mut self, key: &WorkloadKey, restarted: &Deployment) {
        self.refusals.remove(key);
        for (replica_set, WatchedReplicaSet { seen, .. }) in &mut self.replica_sets {
            let is_its = matches!(&seen.owner, Owner::Deployment { deployment, .. }
                if deployment.metadata.uid == restarted.metadata.uid);
            if is_its && replica_set.namespace == key.namespace {
                seen.last_write.remember(restarted.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(version: &str) -> Deployment {
        let mut deployment = Deployment::default();
        deployment.metadata.resource_version = Some(version.to_owned());
        deployment
    }

    fn version(seen: &mut SeenReplicaSet) -> Option<String> {
        match seen.state() {
            Some(WorkloadState::Known(workload)) => workload.deployment?.metadata.resource_version.clone(),
            _ => None,
        }
    }

    #[test]
    fn the_pods_of_a_deployment_that_keeps_them_apart_are_known_before_it_is_restarted() {
        let apart = json!({"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}]});
        for (affinity, waits) in [(json!({"podAntiAffinity": apart}), true), (json!({}), false)] {
            let mut seen = SeenReplicaSet::default();
            let template = json!({"spec": {"containers": [], "affinity": affinity}});
            let deployment =
                json!({"metadata": {"name": "web"}, "spec": {"selector": {}, "template": template}});
            seen.apply_deployment(WatchUpdate::Listed(vec![serde_json::from_value(deployment).unwrap()]));
            seen.publish(&ObjectMeta::default());
            assert_eq!(seen.state().is_none(), waits);
            seen.apply_pod(WatchUpdate::Listed(Vec::new()));
            assert!(seen.state().is_some());
        }
    }

    #[test]
    fn a_restart_that_a_restore_of_etcd_has_undone_does_not_count() {
        let (mut seen, set) = (SeenReplicaSet::default(), ObjectMeta::default());
        seen.apply_deployment(WatchUpdate::Listed(vec![deployment("9")]));
        assert!(seen.state().is_none(), "its ReplicaSet may be of another revision");
        seen.publish(&set);
        seen.last_write.remember(deployment("10"));
        assert_eq!(version(&mut seen).as_deref(), Some("10"));
        seen.apply_deployment(WatchUpdate::Interrupted);
        assert!(seen.state().is_none(), "a rollout may have begun");
        seen.apply_deployment(WatchUpdate::Listed(vec![deployment("8")]));
        seen.publish(&set);
        assert_eq!(version(&mut seen).as_deref(), Some("8"));
    }
}
