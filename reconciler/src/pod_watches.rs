//! One watch on pods for every node in maintenance, for as long as it is.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::Store;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client};
use tokio::task::AbortHandle;
use tracing::warn;

use crate::cluster_watches::without_managed_fields;
use crate::triggers::Triggers;

/// The pods of the nodes in maintenance.
pub(crate) struct PodWatches {
    client: Client,
    triggers: Triggers,
    watches: Mutex<HashMap<String, PodWatch>>,
}

struct PodWatch {
    pods: Store<Pod>,
    listed: Arc<std::sync::atomic::AtomicBool>,
    task: AbortHandle,
}

impl Drop for PodWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl PodWatches {
    /// No watch yet. Each change of a pod wakes the maintenances of its node.
    pub(crate) fn new(client: Client, triggers: Triggers) -> Self {
        Self { client, triggers, watches: Mutex::default() }
    }

    /// The pods on `node`, which is watched from the first call on; none until they have been listed once.
    pub(crate) fn on_node(&self, node: &str) -> Option<Vec<Arc<Pod>>> {
        let mut watches = self.lock();
        let watch = watches.entry(node.to_owned()).or_insert_with(|| self.start(node));
        watch.listed.load(std::sync::atomic::Ordering::Acquire).then(|| watch.pods.state())
    }

    /// Stops watching a node.
    pub(crate) fn stop(&self, node: &str) {
        self.lock().remove(node);
    }

    fn start(&self, node: &str) -> PodWatch {
        let (pods, writer) = reflector::store();
        let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
        let stream = watcher(Api::<Pod>::all(self.client.clone()), config)
            .modify(without_managed_fields)
            .default_backoff()
            .reflect(writer);
        let listed = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let task =
            tokio::spawn(follow(stream.boxed(), listed.clone(), self.triggers.clone(), node.to_owned()));
        PodWatch { pods, listed, task: task.abort_handle() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, PodWatch>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn follow(
    mut stream: futures::stream::BoxStream<'static, watcher::Result<watcher::Event<Pod>>>,
    listed: Arc<std::sync::atomic::AtomicBool>,
    triggers: Triggers,
    node: String,
) {
    let mut interrupted = false;
    while let Some(event) = stream.next().await {
        match event {
            // A list is told once it is whole.
            Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => continue,
            Ok(watcher::Event::InitDone) => listed.store(true, std::sync::atomic::Ordering::Release),
            Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_)) => {}
            Err(error) => {
                if !interrupted {
                    warn!(%node, %error, "watch on the node's pods interrupted; it will be resumed");
                }
                interrupted = true;
                continue;
            }
        }
        interrupted = false;
        if !triggers.wake_node(&node) {
            // Someone removed the maintenance together with its finalizer: nobody asks for this node any more.
            return;
        }
    }
}
