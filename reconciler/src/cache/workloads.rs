//! The `ReplicaSet`s whose Deployments may replace pods first, as far as they are known, and the restarts of these Deployments.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use nm_shared::cluster::pod::DrainPod;
use nm_shared::drain::eviction_outcome::AccessDenied;
use nm_shared::drain::steady_time::SteadyTime;
use nm_shared::drain::surge::{
    RestartRefusal, Workload, WorkloadKey, WorkloadState, keeps_pods_apart, nodes_for_replacements, revision,
};

use crate::cache::compact_node::CompactNode;
use crate::cache::read_your_writes::LastWrite;
use crate::cache::watched::{WatchUpdate, Watched};
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
        keeps_pods_apart: bool,
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
            Some(deployment) => {
                let keeps_pods_apart = keeps_pods_apart(&deployment);
                Owner::Deployment { revision: revision(set), deployment, keeps_pods_apart }
            }
            None if self.denied.is_some() => return,
            None => Owner::NoDeployment,
        };
    }

    /// What is known. `nodes` are those that may take replacements, as far as they matter.
    fn state<'a, N: Iterator<Item = &'a CompactNode>>(
        &mut self,
        nodes: impl FnOnce() -> N,
    ) -> Option<WorkloadState> {
        if let Some(denied) = &self.denied {
            return Some(WorkloadState::Forbidden(denied.clone()));
        }
        let (revision, deployment, keeps_pods_apart) = match &self.owner {
            Owner::Unknown => return None,
            Owner::NoDeployment => (None, None, false),
            Owner::Deployment { revision, deployment, keeps_pods_apart } => {
                (*revision, Some(self.last_write.latest(deployment.clone())), *keeps_pods_apart)
            }
        };
        let mut workload = Workload { revision, deployment, pods: self.pods.all(), ..Workload::default() };
        if keeps_pods_apart {
            workload.nodes = nodes_for_replacements(&workload, nodes());
        }
        Some(WorkloadState::Known(workload))
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
    /// before the restart of a Deployment that keeps its pods apart.
    pub(crate) fn states<'a, O: Iterator<Item = &'a CompactNode>>(
        &mut self,
        node: &str,
        others: impl Fn() -> O,
    ) -> HashMap<WorkloadKey, WorkloadState> {
        let needed = self.replica_sets.iter_mut().filter(|(_, set)| set.nodes.contains(node));
        needed.filter_map(|(key, set)| Some((key.clone(), set.seen.state(&others)?))).collect()
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
    use std::cell::RefCell;

    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;

    use super::*;

    fn deployment(version: &str) -> Deployment {
        let mut deployment = Deployment::default();
        deployment.metadata.resource_version = Some(version.to_owned());
        deployment
    }

    fn state(seen: &mut SeenReplicaSet) -> Option<WorkloadState> {
        seen.state(std::iter::empty)
    }

    fn version(seen: &mut SeenReplicaSet) -> Option<String> {
        match state(seen) {
            Some(WorkloadState::Known(workload)) => workload.deployment?.metadata.resource_version.clone(),
            _ => None,
        }
    }

    #[test]
    fn nodes_are_read_only_before_the_restart_of_a_deployment_that_keeps_its_pods_apart() {
        let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}]}});
        let (careful, careless) = (json!({"maxUnavailable": 0}), json!({"maxUnavailable": 1}));
        for (affinity, rolling, updated, read) in [
            (&apart, &careful, 3, vec!["n2", "n3", "n4"]),
            (&apart, &careful, 2, Vec::new()),
            (&apart, &careless, 3, Vec::new()),
            (&json!({}), &careful, 3, Vec::new()),
        ] {
            let template = json!({"spec": {"containers": [], "affinity": affinity}});
            let deployment = json!({
                "metadata": {"name": "web"},
                "spec": {"replicas": 3, "selector": {}, "template": template, "strategy": {"rollingUpdate": rolling}},
                "status": {"replicas": 3, "updatedReplicas": updated},
            });
            let mut seen = SeenReplicaSet::default();
            seen.apply_deployment(WatchUpdate::Listed(vec![serde_json::from_value(deployment).unwrap()]));
            seen.publish(&ObjectMeta::default());
            let nodes = ["n2", "n3", "n4", "n5", "n6"].map(|name| {
                let node = json!({"metadata": {"name": name}});
                CompactNode::from(serde_json::from_value::<Node>(node).unwrap())
            });
            let found = RefCell::new(Vec::new());
            let others = || nodes.iter().inspect(|node| found.borrow_mut().push(node.name()));
            let state = seen.state(others);
            assert_eq!(*found.borrow(), read, "{affinity} {rolling} {updated}");
            let Some(WorkloadState::Known(workload)) = state else { panic!("it is known") };
            assert_eq!(workload.nodes, (!read.is_empty()).then_some(3));
        }
    }

    #[test]
    fn a_restart_that_a_restore_of_etcd_has_undone_does_not_count() {
        let (mut seen, set) = (SeenReplicaSet::default(), ObjectMeta::default());
        seen.apply_deployment(WatchUpdate::Listed(vec![deployment("9")]));
        assert!(state(&mut seen).is_none(), "its ReplicaSet may be of another revision");
        seen.publish(&set);
        seen.last_write.remember(deployment("10"));
        assert_eq!(version(&mut seen).as_deref(), Some("10"));
        seen.apply_deployment(WatchUpdate::Interrupted);
        assert!(state(&mut seen).is_none(), "a rollout may have begun");
        seen.apply_deployment(WatchUpdate::Listed(vec![deployment("8")]));
        seen.publish(&set);
        assert_eq!(version(&mut seen).as_deref(), Some("8"));
    }
}
