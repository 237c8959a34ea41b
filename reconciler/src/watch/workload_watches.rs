//! The `ReplicaSet`s and Deployments of the pods that are replaced first (`spec.drain.surge`), and the pods of these
//! Deployments. They are watched only while a decision needs them: the Deployments of the cluster are never listed as a whole.
//!
//! A `ReplicaSet` is read again when the revision of its Deployment changes, which is written after its own.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::Patch;
use kube::core::Selector;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client};
use nm_shared::api::latency_budget::POD_EVENT_COALESCING;
use nm_shared::cluster::pod::DrainPod;
use nm_shared::cluster::refusal::Refusal;
use nm_shared::drain::eviction_outcome::AccessDenied;
use nm_shared::drain::steady_time::SteadyTime;
use nm_shared::drain::surge::{
    Restart, RestartRefusal, Workload, WorkloadKey, WorkloadState, deployment_of, revision,
};
use tokio::sync::{Notify, oneshot};
use tracing::{debug, info};

use crate::cache::read_your_writes::LastWrite;
use crate::cache::triggers::Triggers;
use crate::client::{patch_params, with_timeout};
use crate::runtime::tasks::{ScopedTask, TaskSpawner};
use crate::watch::watch_stream::{WatchUpdate, drop_managed_fields, run_watch, watch_stream};

/// How long to wait for the answer to a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// When the read of a `ReplicaSet` that failed is repeated.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Starts and ends the watches, and restarts Deployments.
pub(crate) struct WorkloadWatches {
    client: Client,
    triggers: Triggers,
    tasks: TaskSpawner,
    memory: Mutex<WorkloadMemory>,
}

#[derive(Default)]
struct WorkloadMemory {
    replica_sets: HashMap<WorkloadKey, WatchedReplicaSet>,
    refusals: HashMap<WorkloadKey, (SteadyTime, RestartRefusal)>,
    /// The Deployments whose restarts are in progress.
    restarting: HashSet<WorkloadKey>,
}

impl WorkloadMemory {
    /// Ends the watches on the `ReplicaSet`s that no node needs any more.
    fn release(&mut self, is_needed_by: impl Fn(&WorkloadKey, &str) -> bool) {
        self.replica_sets.retain(|key, set| {
            set.nodes.retain(|node| is_needed_by(key, node));
            !set.nodes.is_empty()
        });
        if self.replica_sets.is_empty() {
            self.refusals.clear();
        }
    }
}

/// A `ReplicaSet` whose Deployment is watched. Dropping this ends the watch.
struct WatchedReplicaSet {
    /// The nodes that need it.
    nodes: HashSet<String>,
    seen: Arc<Mutex<SeenWorkload>>,
    _task: ScopedTask,
}

/// What has been seen of a `ReplicaSet` and its Deployment.
#[derive(Default)]
struct SeenWorkload {
    /// None until the first read of the `ReplicaSet`.
    set: Option<SeenReplicaSet>,
    /// The API server's answer to the last restart.
    last_write: LastWrite<Deployment>,
    denied: Option<AccessDenied>,
}

#[derive(Clone)]
struct SeenReplicaSet {
    revision: Option<i64>,
    /// None if no Deployment controls it. The store is empty until the Deployment is listed.
    deployment: Option<Arc<Deployment>>,
    pods: Option<Store<DrainPod>>,
}

impl WorkloadWatches {
    /// No watch runs yet. Each change of a Deployment or of one of its pods triggers the reconciles of the nodes that need it.
    pub(crate) fn new(client: Client, triggers: Triggers, tasks: TaskSpawner) -> Self {
        Self { client, triggers, tasks, memory: Mutex::default() }
    }

    /// Watches what a node needs, and ends the watches that no node needs any more.
    pub(crate) fn watch(self: &Arc<Self>, node: &str, wanted: &HashSet<WorkloadKey>) {
        let mut memory = self.lock();
        for key in wanted {
            let set = memory.replica_sets.entry(key.clone()).or_insert_with(|| self.start(key.clone()));
            set.nodes.insert(node.to_owned());
        }
        memory.release(|key, other| other != node || wanted.contains(key));
    }

    /// Ends what only these nodes need.
    pub(crate) fn retain_nodes(&self, in_maintenance: impl Fn(&str) -> bool) {
        self.lock().release(|_, node| in_maintenance(node));
    }

    /// What is known of the `ReplicaSet`s that a node needs.
    pub(crate) fn states(&self, node: &str) -> HashMap<WorkloadKey, WorkloadState> {
        let memory = self.lock();
        let needed = memory.replica_sets.iter().filter(|(_, set)| set.nodes.contains(node));
        needed.filter_map(|(key, set)| Some((key.clone(), locked(&set.seen).state()?))).collect()
    }

    /// The last refusals of restarts.
    pub(crate) fn refusals(&self) -> HashMap<WorkloadKey, (SteadyTime, RestartRefusal)> {
        self.lock().refusals.clone()
    }

    /// Restarts a Deployment, unless that is in progress. A reconcile does not wait for the answer: a webhook in front of
    /// Deployments may take long, and a node may have many of them.
    pub(crate) fn restart(self: &Arc<Self>, node: &str, restart: Restart, now: SteadyTime) {
        if !self.lock().restarting.insert(restart.deployment.clone()) {
            return;
        }
        let (watches, node) = (self.clone(), node.to_owned());
        self.tasks.spawn_finite(format!("the restart of Deployment {}", restart.deployment), async move {
            watches.request_restart(&node, &restart, now).await;
            watches.lock().restarting.remove(&restart.deployment);
        });
    }

    /// Requests a restart. A refusal is remembered, and triggers a reconcile of the node that reports it.
    async fn request_restart(&self, node: &str, restart: &Restart, now: SteadyTime) {
        let WorkloadKey { namespace, name } = &restart.deployment;
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
        let params = patch_params();
        let patch = Patch::Merge(&restart.patch);
        let answer = with_timeout(REQUEST_TIMEOUT, api.patch(name, &params, &patch)).await;
        let deployment = restart.deployment.to_string();
        let refusal = match answer {
            Ok(answer) => {
                let Some(refusal) = restart.undone_by(&answer) else {
                    info!(
                        node,
                        deployment, "deployment restarted, so that its pods are replaced before they leave"
                    );
                    self.remember(&restart.deployment, &answer);
                    return;
                };
                refusal
            }
            // Somebody wrote it first, or it is gone. The watch shows that.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                debug!(node, deployment, "deployment changed before it was restarted");
                return;
            }
            Err(kube::Error::Api(status)) => match Refusal::from(&*status) {
                Refusal::AccessDenied(_) => RestartRefusal::Forbidden(status.message.as_str().into()),
                _ => RestartRefusal::Refused(status.message.clone()),
            },
            Err(error) => RestartRefusal::Refused(error.to_string()),
        };
        debug!(node, deployment, ?refusal, "restart of a deployment refused");
        self.lock().refusals.insert(restart.deployment.clone(), (now, refusal));
        self.triggers.node(node);
    }

    fn remember(&self, key: &WorkloadKey, restarted: &Deployment) {
        let mut memory = self.lock();
        memory.refusals.remove(key);
        for (replica_set, set) in &memory.replica_sets {
            let mut seen = locked(&set.seen);
            let deployment = seen.set.as_ref().and_then(|set| set.deployment.as_ref());
            let is_its =
                deployment.is_some_and(|deployment| deployment.metadata.uid == restarted.metadata.uid);
            if is_its && replica_set.namespace == key.namespace {
                seen.last_write.remember(restarted.clone());
            }
        }
    }

    fn start(self: &Arc<Self>, key: WorkloadKey) -> WatchedReplicaSet {
        let seen = Arc::new(Mutex::new(SeenWorkload::default()));
        let what = format!("the watch on ReplicaSet {key}");
        let watch = ReplicaSetWatch { watches: self.clone(), key, seen: seen.clone() };
        let task = self.tasks.spawn_scoped(what, watch.run());
        WatchedReplicaSet { nodes: HashSet::new(), seen, _task: task }
    }

    fn trigger(&self, key: &WorkloadKey) {
        let nodes = self.lock().replica_sets.get(key).map(|set| set.nodes.clone()).unwrap_or_default();
        for node in nodes {
            self.triggers.node(&node);
        }
    }

    fn lock(&self) -> MutexGuard<'_, WorkloadMemory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn locked(seen: &Mutex<SeenWorkload>) -> MutexGuard<'_, SeenWorkload> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SeenWorkload {
    /// The Deployment may be read, and is as it was listed. After a restore of etcd, a write may be lost although its
    /// version is higher.
    fn deployment_listed(&mut self) {
        self.denied = None;
        self.last_write = LastWrite::default();
    }

    fn state(&mut self) -> Option<WorkloadState> {
        if let Some(denied) = &self.denied {
            return Some(WorkloadState::Forbidden(denied.clone()));
        }
        let SeenReplicaSet { revision, deployment, pods } = self.set.clone()?;
        let deployment = deployment.map(|deployment| self.last_write.latest(deployment));
        let pods = pods.map(|pods| pods.state()).unwrap_or_default();
        Some(WorkloadState::Known(Workload { revision, deployment, pods }))
    }
}

/// The watch on one `ReplicaSet`.
struct ReplicaSetWatch {
    watches: Arc<WorkloadWatches>,
    key: WorkloadKey,
    seen: Arc<Mutex<SeenWorkload>>,
}

impl ReplicaSetWatch {
    async fn run(self) {
        let set = self.read_replica_set().await;
        let Some(name) = deployment_of(&set).map(str::to_owned) else {
            self.publish(SeenReplicaSet { revision: None, deployment: None, pods: None });
            return std::future::pending().await;
        };
        let WorkloadKey { namespace, .. } = &self.key;
        let changed = Notify::new();
        let client = || self.watches.client.clone();

        let (deployments, writer) = reflector::store();
        let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let stream = watch_stream(Api::<Deployment>::namespaced(client(), namespace), only);
        let what = format!("Deployment {namespace}/{name}");
        let deployment_watch =
            run_watch(&what, None, stream.modify(drop_managed_fields).reflect(writer), |update| {
                match update {
                    // A rollout may have begun meanwhile.
                    WatchUpdate::Interrupted => {
                        locked(&self.seen).set = None;
                        return;
                    }
                    WatchUpdate::Forbidden(refusal) => {
                        self.deny(refusal.to_string().as_str().into());
                        self.watches.trigger(&self.key);
                    }
                    WatchUpdate::Listed => locked(&self.seen).deployment_listed(),
                    WatchUpdate::Changed(_) => locked(&self.seen).denied = None,
                }
                changed.notify_one();
            });

        let (pods, pod_writer) = reflector::store();
        let (selected, selection) = oneshot::channel::<Selector>();
        let pod_watch = async {
            // The sender lives as long as this.
            let Ok(selector) = selection.await else { return std::future::pending().await };
            let config = watcher::Config::default().labels_from(&selector);
            let stream = watch_stream(Api::<DrainPod>::namespaced(client(), namespace), config);
            let what = format!("the pods of Deployment {namespace}/{name}");
            run_watch(&what, None, stream.modify(drop_managed_fields).reflect(pod_writer), |_| {
                changed.notify_one();
            })
            .await;
        };

        let key = ObjectRef::new(&name).within(namespace);
        let publish = async {
            let (mut set, mut selected) = (set, Some(selected));
            let mut known = None;
            loop {
                changed.notified().await;
                tokio::time::sleep(POD_EVENT_COALESCING).await;
                let Some(deployment) = deployments.get(&key) else {
                    // Its `ReplicaSet`s are being deleted, or are orphans.
                    if locked(&self.seen).denied.is_none() {
                        self.publish(SeenReplicaSet { revision: None, deployment: None, pods: None });
                    }
                    continue;
                };
                let selector = deployment.spec.as_ref().map(|spec| spec.selector.clone());
                if let Some(selector) = selector.and_then(|selector| Selector::try_from(selector).ok())
                    && let Some(selected) = selected.take()
                {
                    // The watch lives as long as this.
                    let _ = selected.send(selector);
                }
                let current = revision(&deployment.metadata);
                let publish = |set: &ObjectMeta| {
                    self.publish(SeenReplicaSet {
                        revision: revision(set),
                        deployment: Some(deployment.clone()),
                        pods: Some(pods.clone()),
                    });
                };
                if known.replace(current) != Some(current) {
                    // A rollout is under way, whatever becomes of the `ReplicaSet`.
                    publish(&set);
                    set = self.read_replica_set().await;
                }
                publish(&set);
            }
        };
        tokio::join!(deployment_watch, pod_watch, publish);
    }

    /// Reads the metadata of the `ReplicaSet`. One that does not exist has no owner.
    async fn read_replica_set(&self) -> ObjectMeta {
        let api: Api<ReplicaSet> = Api::namespaced(self.watches.client.clone(), &self.key.namespace);
        let mut was_denied = false;
        loop {
            match with_timeout(REQUEST_TIMEOUT, api.get_metadata_opt(&self.key.name)).await {
                Ok(set) => {
                    if was_denied {
                        locked(&self.seen).denied = None;
                    }
                    return set.map(|set| set.metadata).unwrap_or_default();
                }
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    was_denied = true;
                    self.deny(status.message.as_str().into());
                    self.watches.trigger(&self.key);
                }
                Err(error) => debug!(set = self.key.to_string(), %error, "cannot read a ReplicaSet"),
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    fn deny(&self, denied: AccessDenied) {
        locked(&self.seen).denied = Some(denied);
    }

    fn publish(&self, set: SeenReplicaSet) {
        let mut seen = locked(&self.seen);
        seen.set = Some(set);
        drop(seen);
        self.watches.trigger(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(version: &str) -> Deployment {
        let mut deployment = Deployment::default();
        deployment.metadata.resource_version = Some(version.to_owned());
        deployment
    }

    fn version(seen: &mut SeenWorkload) -> Option<String> {
        match seen.state() {
            Some(WorkloadState::Known(workload)) => workload.deployment?.metadata.resource_version.clone(),
            _ => None,
        }
    }

    #[test]
    fn a_restart_that_a_restore_of_etcd_has_undone_does_not_count() {
        let listed = |version| {
            Some(SeenReplicaSet {
                revision: Some(1),
                deployment: Some(Arc::new(deployment(version))),
                pods: None,
            })
        };
        let mut seen = SeenWorkload { set: listed("9"), ..SeenWorkload::default() };
        seen.last_write.remember(deployment("10"));
        assert_eq!(version(&mut seen).as_deref(), Some("10"));
        seen.deployment_listed();
        seen.set = listed("8");
        assert_eq!(version(&mut seen).as_deref(), Some("8"));
    }
}
