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
use tokio::sync::{Notify, Semaphore, oneshot};
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

/// How many `ReplicaSet`s are read at once.
const MAX_CONCURRENT_READS: usize = 8;

/// Starts and ends the watches, and restarts Deployments.
pub(crate) struct WorkloadWatches {
    client: Client,
    triggers: Triggers,
    tasks: TaskSpawner,
    reads: Semaphore,
    /// Of all `ReplicaSet`s that may not be read, one is read again at intervals, each in turn. When that succeeds, the others
    /// are read too.
    retries: Semaphore,
    permitted: Notify,
    memory: Mutex<WorkloadMemory>,
}

#[derive(Default)]
struct WorkloadMemory {
    replica_sets: HashMap<WorkloadKey, WatchedReplicaSet>,
    refusals: HashMap<WorkloadKey, (SteadyTime, RestartRefusal)>,
    /// The restarts in progress, by Deployment.
    restarting: HashMap<WorkloadKey, RestartInProgress>,
}

/// A restart that may still wait to be sent. Dropping this withdraws it.
struct RestartInProgress {
    /// The nodes whose pods it replaces.
    nodes: HashSet<String>,
    _task: ScopedTask,
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

    /// Withdraws the restarts that no node wants any more.
    fn withdraw(&mut self, is_wanted_by: impl Fn(&WorkloadKey, &str) -> bool) {
        self.restarting.retain(|key, restart| {
            restart.nodes.retain(|node| is_wanted_by(key, node));
            !restart.nodes.is_empty()
        });
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
        let (reads, retries) = (Semaphore::new(MAX_CONCURRENT_READS), Semaphore::new(1));
        Self { client, triggers, tasks, reads, retries, permitted: Notify::new(), memory: Mutex::default() }
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

    /// Ends what only this node needs.
    pub(crate) fn leave_node(&self, node: &str) {
        self.retain_nodes(|other| other != node);
    }

    /// Ends what only these nodes need.
    pub(crate) fn retain_nodes(&self, in_maintenance: impl Fn(&str) -> bool) {
        let mut memory = self.lock();
        memory.release(|_, node| in_maintenance(node));
        memory.withdraw(|_, node| in_maintenance(node));
    }

    /// Withdraws the restarts that are in progress for a node, except those of the `wanted` Deployments: the maintenance may be
    /// paused or stopped while a request waits, for example because the API server throttles.
    pub(crate) fn withdraw_restarts(&self, node: &str, wanted: &HashSet<WorkloadKey>) {
        self.lock().withdraw(|key, other| other != node || wanted.contains(key));
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
        let mut memory = self.lock();
        if let Some(in_progress) = memory.restarting.get_mut(&restart.deployment) {
            in_progress.nodes.insert(node.to_owned());
            return;
        }
        let (watches, deployment, nodes) =
            (self.clone(), restart.deployment.clone(), [node.to_owned()].into());
        let name = format!("the restart of Deployment {deployment}");
        let node = node.to_owned();
        let task = self.tasks.spawn_scoped_finite(name, async move {
            watches.request_restart(&node, &restart, now).await;
            watches.lock().restarting.remove(&restart.deployment);
        });
        memory.restarting.insert(deployment, RestartInProgress { nodes, _task: task });
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
                if known.replace(current) != Some(current) && revision(&set) != current {
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
            // The semaphores are never closed.
            let permit = self.watches.reads.acquire().await;
            let answer = with_timeout(REQUEST_TIMEOUT, api.get_metadata_opt(&self.key.name)).await;
            drop(permit);
            match answer {
                Ok(set) => {
                    if was_denied {
                        locked(&self.seen).denied = None;
                        self.watches.permitted.notify_waiters();
                    }
                    return set.map(|set| set.metadata).unwrap_or_default();
                }
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    was_denied = true;
                    if self.deny(status.message.as_str().into()) {
                        self.watches.trigger(&self.key);
                    }
                    self.until_retry().await;
                }
                Err(error) => {
                    debug!(set = self.key.to_string(), %error, "cannot read a ReplicaSet");
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            }
        }
    }

    /// Waits until it is the turn of this `ReplicaSet` to find out whether the permission is there, or another one was permitted.
    async fn until_retry(&self) {
        let turn = async {
            let _permit = self.watches.retries.acquire().await;
            tokio::time::sleep(RETRY_INTERVAL).await;
        };
        tokio::select! {
            () = turn => {}
            () = self.watches.permitted.notified() => {}
        }
    }

    /// Records a denial, and returns whether it is new.
    fn deny(&self, denied: AccessDenied) -> bool {
        let mut seen = locked(&self.seen);
        let is_new = seen.denied.as_ref() != Some(&denied);
        seen.denied = Some(denied);
        is_new
    }

    fn publish(&self, set: SeenReplicaSet) {
        let mut seen = locked(&self.seen);
        seen.set = Some(set);
        drop(seen);
        self.watches.trigger(&self.key);
    }
}

#[cfg(test)]
#[path = "workload_watches_tests.rs"]
mod tests;
