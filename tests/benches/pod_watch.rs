//! The deletion of pods, as a watch of their metadata shows it.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1 as core;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::scenario::PreparedCluster;

/// Watches the pods of each node, until it is dropped.
pub(crate) struct PodWatch {
    left: watch::Receiver<HashSet<String>>,
    _watches: JoinSet<()>,
}

impl PodWatch {
    /// Starts the watches, and waits until all pods to be evicted are listed.
    pub(crate) async fn start(client: Client, prepared: &PreparedCluster) -> Self {
        let evicted: HashSet<String> = prepared.pods.iter().map(|pod| pod.uid.clone()).collect();
        let (left_now, mut left) = watch::channel(HashSet::new());
        let mut watches = JoinSet::new();
        for node in &prepared.nodes {
            let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
            let pods = Api::<PartialObjectMeta<core::Pod>>::all(client.clone());
            let mut events = watcher(pods, config).boxed();
            let (left_now, evicted) = (left_now.clone(), evicted.clone());
            watches.spawn(async move {
                while let Some(event) = events.try_next().await.unwrap() {
                    match event {
                        watcher::Event::InitApply(pod) => {
                            let uid = pod.uid().unwrap();
                            left_now.send_if_modified(|left| evicted.contains(&uid) && left.insert(uid));
                        }
                        watcher::Event::Delete(pod) => {
                            let uid = pod.uid().unwrap();
                            left_now.send_if_modified(|left| left.remove(&uid));
                        }
                        _ => {}
                    }
                }
            });
        }
        left.wait_for(|left| left.len() == evicted.len()).await.unwrap();
        Self { left, _watches: watches }
    }

    /// When the last pod was deleted, if that is within `limit`.
    pub(crate) async fn all_deleted(&self, limit: Duration) -> Option<Instant> {
        let mut left = self.left.clone();
        let gone = tokio::time::timeout(limit, left.wait_for(HashSet::is_empty)).await;
        gone.is_ok().then(Instant::now)
    }
}
