//! One watch on pods for every node in maintenance, for as long as it is.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::Store;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::follow::{Known, News, follow, watched, without_managed_fields};
use crate::triggers::Triggers;

/// The pods of the nodes in maintenance.
pub(crate) struct PodWatches {
    client: Client,
    triggers: Triggers,
    watches: Mutex<HashMap<String, PodWatch>>,
}

/// What is known of a node's pods.
#[derive(Debug, Clone)]
pub(crate) enum Pods {
    /// They have not been listed yet.
    Unknown,
    /// All of them.
    Known(Vec<Arc<Pod>>),
    /// The API server refuses to list them, with this sentence.
    Forbidden(String),
}

struct PodWatch {
    pods: Store<Pod>,
    known: watch::Receiver<Known>,
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

    /// The pods on `node`, which is watched from the first call on.
    pub(crate) fn on_node(&self, node: &str) -> Pods {
        let mut watches = self.lock();
        let watch = watches.entry(node.to_owned()).or_insert_with(|| self.start(node));
        match &*watch.known.borrow() {
            Known::Unlisted => Pods::Unknown,
            Known::Listed => Pods::Known(watch.pods.state()),
            Known::Forbidden(sentence) => Pods::Forbidden(sentence.clone()),
        }
    }

    /// Stops watching all nodes but those in maintenance.
    pub(crate) fn retain(&self, in_maintenance: impl Fn(&str) -> bool) {
        self.lock().retain(|node, _| in_maintenance(node));
    }

    fn start(&self, node: &str) -> PodWatch {
        let (pods, writer) = reflector::store();
        let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
        let stream = watched(Api::<Pod>::all(self.client.clone()), config)
            .modify(without_managed_fields)
            .reflect(writer);
        let (sender, known) = watch::channel(Known::Unlisted);
        let (triggers, node) = (self.triggers.clone(), node.to_owned());
        let task = tokio::spawn(async move {
            let what = format!("pods on {node}");
            follow(&what, None, stream, |news| {
                let next = match news {
                    News::Changed(_) | News::Listed => Known::Listed,
                    News::Forbidden(sentence) => Known::Forbidden(sentence),
                };
                sender.send_replace(next);
                triggers.wake_node(&node);
            })
            .await;
        });
        PodWatch { pods, known, task: task.abort_handle() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, PodWatch>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
