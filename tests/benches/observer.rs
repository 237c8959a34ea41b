//! Observes each pod's deletion and the status that reports it, at the same cost for every program.
//!
//! In a sandbox it reads the memory of the API server: so no program appears slow because of the observer's connection,
//! and observing costs nothing. In another cluster it watches the metadata of the pods of each node, and the maintenances.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1 as core;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use kube_sandbox::cluster::Cluster;
use kube_sandbox::resource::PODS;
use kube_sandbox::store::{Collection, State};
use nm_shared::NodeMaintenance;
use nm_tests::cluster::client;
use serde_json::Value;
use tokio::sync::{oneshot, watch};

use crate::scenario::{Pod, PreparedCluster};

/// What was observed so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observation {
    /// When the last pod was gone; `None` while one is left.
    pub(crate) all_gone: Option<Instant>,
    /// When the last maintenance reported that its node is drained.
    pub(crate) all_reported: Option<Instant>,
    /// How many pods are left.
    pub(crate) left: usize,
    /// The delay from each pod's deletion to the status that no longer lists it.
    pub(crate) lags: Vec<Duration>,
}

/// Observes from a thread of its own, until it is dropped.
#[derive(Debug)]
pub(crate) struct Observer {
    observation: watch::Receiver<Observation>,
    _stop: watch::Sender<()>,
}

impl Observer {
    /// Observes the pods to evict and the maintenances of their nodes, from now on.
    pub(crate) async fn start(prepared: &PreparedCluster) -> Self {
        let mut notes = Notes::new(&prepared.pods, prepared.nodes.len());
        let (sender, observation) = watch::channel(notes.observation.clone());
        let (stop, mut stopped) = watch::channel(());
        let (started, start) = oneshot::channel();
        let sandbox = prepared.cluster.sandbox().map(|sandbox| sandbox.cluster().clone());
        if let Some(cluster) = &sandbox {
            notes.seen = cluster.store.read(State::revision);
        }
        let (kubeconfig, drained) = (prepared.cluster.kubeconfig().to_owned(), prepared.nodes.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let observe = async {
                    if let Some(cluster) = sandbox {
                        started.send(()).unwrap();
                        notes.read_memory(cluster, sender).await;
                    } else {
                        notes.watch_api(client(&kubeconfig).await, &drained, sender, started).await;
                    }
                };
                tokio::select! {
                    () = observe => {}
                    _ = stopped.changed() => {}
                }
            });
        });
        start.await.unwrap();
        Self { observation, _stop: stop }
    }

    /// What was observed, once it is `enough` or after `limit`.
    pub(crate) async fn until(&self, limit: Duration, enough: impl Fn(&Observation) -> bool) -> Observation {
        let mut observation = self.observation.clone();
        let _ = tokio::time::timeout(limit, observation.wait_for(|observation| enough(observation))).await;
        self.observation.borrow().clone()
    }
}

/// What an event of the API shows.
enum Change {
    Listed,
    /// The pod with this uid.
    Deleted(String),
    /// A maintenance with its status.
    Reported(Value),
    Other,
}

impl From<watcher::Event<PartialObjectMeta<core::Pod>>> for Change {
    fn from(event: watcher::Event<PartialObjectMeta<core::Pod>>) -> Self {
        match event {
            watcher::Event::InitDone => Self::Listed,
            watcher::Event::Delete(pod) => Self::Deleted(pod.uid().unwrap_or_default()),
            _ => Self::Other,
        }
    }
}

impl From<watcher::Event<NodeMaintenance>> for Change {
    fn from(event: watcher::Event<NodeMaintenance>) -> Self {
        match event {
            watcher::Event::InitDone => Self::Listed,
            watcher::Event::Apply(maintenance) => Self::Reported(serde_json::to_value(maintenance).unwrap()),
            _ => Self::Other,
        }
    }
}

struct Notes {
    /// Pods that still exist, by uid.
    existing: HashMap<String, Pod>,
    /// Deleted pods that the status of their node still lists, by node.
    unreported: HashMap<String, Vec<(Pod, Instant)>>,
    /// Nodes whose status reports that they are drained.
    drained: HashSet<String>,
    nodes: usize,
    observation: Observation,
    seen: u64,
}

impl Notes {
    fn new(pods: &[Pod], nodes: usize) -> Self {
        let existing: HashMap<String, Pod> = pods.iter().map(|pod| (pod.uid.clone(), pod.clone())).collect();
        let observation = Observation { left: existing.len(), ..Observation::default() };
        Self { existing, unreported: HashMap::new(), drained: HashSet::new(), nodes, observation, seen: 0 }
    }

    async fn read_memory(mut self, cluster: Arc<Cluster>, sender: watch::Sender<Observation>) {
        let maintenances = Collection::named("nodemaintenance.medik8s.io", "nodemaintenances");
        let mut wake = cluster.store.subscribe();
        loop {
            wake.borrow_and_update();
            let (gone, statuses) = cluster.store.read(|state| {
                let since = self.seen;
                self.seen = state.revision();
                let pods = state.changes_since(&PODS, since).expect("the observer keeps up");
                let gone: Vec<_> =
                    pods.filter(|change| change.after.is_none()).filter_map(|change| change.before).collect();
                let statuses = state.changes_since(&maintenances, since).expect("the observer keeps up");
                (gone, statuses.filter_map(|change| change.after).collect::<Vec<_>>())
            });
            let now = Instant::now();
            for pod in &gone {
                self.note_deletion(pod["metadata"]["uid"].as_str().unwrap_or_default(), now);
            }
            for maintenance in &statuses {
                self.note_status(maintenance, now);
            }
            if !(gone.is_empty() && statuses.is_empty()) {
                sender.send_replace(self.observation.clone());
            }
            if wake.changed().await.is_err() {
                return;
            }
        }
    }

    /// Watches until it is dropped. It has `started` when everything is listed.
    async fn watch_api(
        mut self,
        client: Client,
        nodes: &[String],
        sender: watch::Sender<Observation>,
        started: oneshot::Sender<()>,
    ) {
        let pods = nodes.iter().map(|node| {
            let on_node = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
            let api = Api::<PartialObjectMeta<core::Pod>>::all(client.clone());
            watcher(api, on_node).map_ok(Change::from).boxed()
        });
        let maintenances = Api::<NodeMaintenance>::all(client.clone());
        let maintenances = watcher(maintenances, watcher::Config::default()).map_ok(Change::from).boxed();
        let mut changes = stream::select_all(pods.chain([maintenances]));
        let (mut unlisted, mut started) = (nodes.len() + 1, Some(started));
        while let Some(change) = changes.try_next().await.unwrap() {
            let now = Instant::now();
            match change {
                Change::Listed => unlisted = unlisted.saturating_sub(1),
                Change::Deleted(uid) => self.note_deletion(&uid, now),
                Change::Reported(maintenance) => self.note_status(&maintenance, now),
                Change::Other => continue,
            }
            sender.send_replace(self.observation.clone());
            if unlisted == 0
                && let Some(started) = started.take()
            {
                started.send(()).unwrap();
            }
        }
    }

    fn note_deletion(&mut self, uid: &str, now: Instant) {
        let Some(pod) = self.existing.remove(uid) else { return };
        self.unreported.entry(pod.node.clone()).or_default().push((pod, now));
        self.observation.left = self.existing.len();
        if self.existing.is_empty() {
            self.observation.all_gone = Some(now);
        }
    }

    fn note_status(&mut self, maintenance: &Value, now: Instant) {
        let node = maintenance["spec"]["nodeName"].as_str().unwrap_or_default();
        let pending = maintenance["status"]["pendingPodsRefs"].as_array();
        let pending: HashSet<(&str, &str)> = pending
            .into_iter()
            .flatten()
            .filter_map(|pod| Some((pod["namespace"].as_str()?, pod["name"].as_str()?)))
            .collect();
        let lags = &mut self.observation.lags;
        self.unreported.entry(node.to_owned()).or_default().retain(|(pod, deleted)| {
            let shown = !pending.contains(&(&*pod.namespace, &*pod.name));
            if shown {
                lags.push(now - *deleted);
            }
            !shown
        });
        if maintenance["status"]["phase"] == "Succeeded" && self.drained.insert(node.to_owned()) {
            self.observation.all_reported = Some(now).filter(|_| self.drained.len() == self.nodes);
        }
    }
}
