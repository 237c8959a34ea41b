//! The `ReplicaSet`s and Deployments of the pods that are replaced first (`spec.drain.surge`), and the pods of these
//! Deployments. They are watched only while a decision needs them: the Deployments of the cluster are never listed as a whole.
//!
//! A `ReplicaSet` is read again when the revision of its Deployment changes, which is written after its own.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::Patch;
use kube::core::Selector;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use nm_shared::api::latency_budget::POD_EVENT_COALESCING;
use nm_shared::cluster::pod::ReceivedPod;
use nm_shared::cluster::refusal::Refusal;
use nm_shared::drain::steady_time::SteadyTime;
use nm_shared::drain::surge::{Restart, RestartRefusal, WorkloadKey, deployment_of, revision};
use tokio::sync::{Notify, Semaphore};
use tracing::{debug, info};

use crate::cache::shared_state::SharedState;
use crate::cache::watched::WatchUpdate;
use crate::cache::workloads::SeenReplicaSet;
use crate::client::{patch_params, with_timeout};
use crate::runtime::tasks::{ScopedTask, TaskSpawner};
use crate::watch::watch_stream::{drop_managed_fields, map_object, only, run_watch, watch_stream};

/// How long to wait for the answer to a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// When the read of a `ReplicaSet` that failed is repeated.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// How many `ReplicaSet`s are read at once.
const MAX_CONCURRENT_READS: usize = 8;

/// Starts the watches, and restarts Deployments.
pub(crate) struct WorkloadWatches {
    client: Client,
    state: Arc<SharedState>,
    tasks: TaskSpawner,
    reads: Semaphore,
    /// Of all `ReplicaSet`s that may not be read, one is read again at intervals, each in turn. When that succeeds, the others
    /// are read too.
    retries: Semaphore,
    permitted: Notify,
}

impl WorkloadWatches {
    /// No watch runs yet. Each change of a Deployment or of one of its pods triggers the reconciles of the nodes that need it.
    pub(crate) fn new(client: Client, state: Arc<SharedState>, tasks: TaskSpawner) -> Self {
        let (reads, retries) = (Semaphore::new(MAX_CONCURRENT_READS), Semaphore::new(1));
        Self { client, state, tasks, reads, retries, permitted: Notify::new() }
    }

    /// Watches what a node needs, and ends the watches that no node needs any more.
    pub(crate) fn watch(self: &Arc<Self>, node: &str, wanted: &HashSet<WorkloadKey>) {
        self.state.lock().workloads.watch(node, wanted, |key| {
            let watch = ReplicaSetWatch { watches: self.clone(), key: key.clone() };
            self.tasks.spawn_scoped(format!("the watch on ReplicaSet {key}"), watch.run())
        });
    }

    /// Restarts a Deployment, unless that is in progress. A reconcile does not wait for the answer: a webhook in front of
    /// Deployments may take long, and a node may have many of them.
    pub(crate) fn restart(self: &Arc<Self>, node: &str, restart: Restart, now: SteadyTime) {
        let deployment = restart.deployment.clone();
        self.state.lock().workloads.restart(node, &deployment, || {
            let (watches, node) = (self.clone(), node.to_owned());
            let name = format!("the restart of Deployment {deployment}");
            self.tasks.spawn_scoped_finite(name, async move {
                watches.request_restart(&node, &restart, now).await;
                watches.state.lock().workloads.restart_ended(&restart.deployment);
            })
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
                    return self.state.lock().workloads.restarted(&restart.deployment, &answer);
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
        let mut state = self.state.lock();
        state.workloads.restart_refused(&restart.deployment, refusal, now);
        state.trigger_node(node);
    }
}

/// The watch on one `ReplicaSet`.
struct ReplicaSetWatch {
    watches: Arc<WorkloadWatches>,
    key: WorkloadKey,
}

impl ReplicaSetWatch {
    async fn run(self) {
        let set = self.read().await;
        if let Some(name) = deployment_of(&set).map(str::to_owned) {
            let changed = Arc::new(Notify::new());
            tokio::join!(self.watch_deployment(&name, &changed), self.follow(&name, set, &changed));
        } else {
            self.publish(&set);
            std::future::pending::<()>().await;
        }
    }

    async fn watch_deployment(&self, name: &str, changed: &Notify) {
        let WorkloadKey { namespace, .. } = &self.key;
        let api = Api::<Deployment>::namespaced(self.watches.client.clone(), namespace);
        let stream = watch_stream(api, only(name)).modify(drop_managed_fields);
        run_watch(&format!("Deployment {namespace}/{name}"), None, stream, |update| {
            let is_interrupted = matches!(update, WatchUpdate::Interrupted);
            let is_forbidden = matches!(update, WatchUpdate::Forbidden(_));
            self.seen(|seen| seen.apply_deployment(update));
            if is_forbidden {
                // What follows changes may be reading the `ReplicaSet`, and a denial needs nothing of that.
                self.trigger();
            }
            if !is_interrupted {
                changed.notify_one();
            }
        })
        .await;
    }

    /// Publishes what has been seen after each change. When the revision of the Deployment has changed, its `ReplicaSet` is
    /// read again.
    async fn follow(&self, name: &str, mut set: ObjectMeta, changed: &Arc<Notify>) {
        let (mut known, mut pod_watch) = (None, None);
        loop {
            changed.notified().await;
            tokio::time::sleep(POD_EVENT_COALESCING).await;
            if let Some(deployment) = self.seen(|seen| seen.deployment()).flatten() {
                if pod_watch.is_none()
                    && let Some(spec) = &deployment.spec
                    && let Ok(selector) = Selector::try_from(spec.selector.clone())
                {
                    pod_watch = Some(self.watch_pods(name, &selector, changed.clone()));
                }
                let current = revision(&deployment.metadata);
                if known.replace(current) != Some(current) && revision(&set) != current {
                    // A rollout is under way, whatever becomes of the `ReplicaSet`.
                    self.publish(&set);
                    set = self.read().await;
                }
            }
            self.publish(&set);
        }
    }

    fn watch_pods(&self, name: &str, selector: &Selector, changed: Arc<Notify>) -> ScopedTask {
        let Self { watches, key } = self;
        let api = Api::<ReceivedPod>::namespaced(watches.client.clone(), &key.namespace);
        let selected = watcher::Config::default().labels_from(selector);
        let stream = watch_stream(api, selected).map_ok(|event| map_object(event, |received| received.pod));
        let what = format!("the pods of Deployment {}/{name}", key.namespace);
        let this = Self { watches: watches.clone(), key: key.clone() };
        watches.tasks.spawn_scoped(format!("the watch on {what}"), async move {
            run_watch(&what, None, stream, |update| {
                this.seen(|seen| seen.apply_pod(update));
                changed.notify_one();
            })
            .await;
        })
    }

    /// Reads the metadata of the `ReplicaSet`. One that does not exist has no owner.
    async fn read(&self) -> ObjectMeta {
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
                        self.seen(SeenReplicaSet::permit);
                        self.watches.permitted.notify_waiters();
                    }
                    return set.map(|set| set.metadata).unwrap_or_default();
                }
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    was_denied = true;
                    if self.seen(|seen| seen.deny(status.message.as_str().into())) == Some(true) {
                        self.trigger();
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

    /// Reads or changes what has been seen, while a node needs it.
    fn seen<T>(&self, change: impl FnOnce(&mut SeenReplicaSet) -> T) -> Option<T> {
        self.watches.state.lock().workloads.seen(&self.key).map(change)
    }

    fn publish(&self, set: &ObjectMeta) {
        self.seen(|seen| seen.publish(set));
        self.trigger();
    }

    fn trigger(&self) {
        self.watches.state.lock().trigger_workload(&self.key);
    }
}

#[cfg(test)]
#[path = "workload_watches_tests.rs"]
mod tests;
