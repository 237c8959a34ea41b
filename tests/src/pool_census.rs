//! Counts what happens to the nodes and pods of a sandbox, in its memory: no change is missed, even while its API server is down.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use kube_sandbox::cluster::Cluster;
use kube_sandbox::resource::{JOBS, NODES, PODS};
use kube_sandbox::store::{Change, Collection, Object, State};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::runner_pods::NAMESPACE;

/// The namespace of the DaemonSet of a sandbox, whose pods stay.
const SYSTEM: &str = "kube-system";

/// A roll in which no node is done for so long does not go on, even if the pool is large and the machine is slow.
const STALLED: Duration = Duration::from_secs(300);

/// The counts so far.
#[derive(Debug, Default)]
pub struct Counts {
    /// How often each node was cordoned.
    pub cordoned: BTreeMap<String, usize>,
    /// How often a maintenance of each node was created.
    pub maintenances: BTreeMap<String, usize>,
    /// How often a Job was created for each node.
    pub actions: BTreeMap<String, usize>,
    /// The nodes that are cordoned.
    pub unavailable: BTreeSet<String>,
    /// The most nodes that were cordoned at the same time.
    pub most_unavailable: usize,
    /// How many nodes are schedulable again.
    pub done: usize,
    /// How many pods of workloads were created.
    pub created: usize,
    /// How often each pod of a workload was deleted, by uid.
    pub deleted: BTreeMap<String, usize>,
    /// Pods of workloads that were deleted on a node that was not cordoned.
    pub deleted_in_service: Vec<String>,
}

/// Counts until it is dropped.
pub struct PoolCensus {
    counts: Arc<Mutex<Counts>>,
    changes: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl Drop for PoolCensus {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl PoolCensus {
    /// Counts what happens from now on.
    pub fn start(cluster: &Arc<Cluster>) -> Self {
        let counts = Arc::new(Mutex::new(Counts::default()));
        let (sender, changes) = watch::channel(0);
        let task = tokio::spawn(follow(Arc::clone(cluster), Arc::clone(&counts), sender));
        Self { counts, changes, task }
    }

    /// The counts so far.
    pub fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap()
    }

    /// Waits until so many nodes are done, as long as another one is done from time to time.
    pub async fn until_done(&mut self, nodes: usize) {
        while *self.changes.borrow_and_update() < nodes {
            let changed = tokio::time::timeout(STALLED, self.changes.changed()).await;
            changed.expect("another node is done").unwrap();
        }
    }
}

async fn follow(cluster: Arc<Cluster>, counts: Arc<Mutex<Counts>>, done: watch::Sender<usize>) {
    let maintenances = Collection::named("nodemaintenance.medik8s.io", "nodemaintenances");
    let watched = [&NODES, &PODS, &JOBS, &maintenances];
    let mut wake = cluster.store.subscribe();
    let mut seen = cluster.store.read(State::revision);
    loop {
        wake.borrow_and_update();
        let mut all: Vec<(&Collection, Change)> = cluster.store.read(|state| {
            let since = std::mem::replace(&mut seen, state.revision());
            let of = |collection| {
                let changes = state.changes_since(collection, since).expect("the census keeps up");
                changes.map(move |change| (collection, change)).collect::<Vec<_>>()
            };
            watched.into_iter().flat_map(of).collect()
        });
        all.sort_by_key(|(_, change)| change.revision);
        let now_done = {
            let mut counts = counts.lock().unwrap();
            for (collection, change) in &all {
                counts.note(collection, change);
            }
            counts.done
        };
        done.send_if_modified(|done| std::mem::replace(done, now_done) != now_done);
        if wake.changed().await.is_err() {
            return;
        }
    }
}

impl Counts {
    fn note(&mut self, collection: &Collection, change: &Change) {
        let is_created = change.before.is_none();
        let Some(object) = change.after.as_ref().or(change.before.as_ref()) else { return };
        if *collection == NODES {
            self.note_node(change);
        } else if *collection == PODS {
            self.note_pod(change);
        } else if *collection == JOBS {
            let node = object["spec"]["template"]["spec"]["nodeName"].as_str();
            if let Some(node) = node.filter(|_| is_created) {
                *self.actions.entry(node.to_owned()).or_default() += 1;
            }
        } else if let Some(node) = object["spec"]["nodeName"].as_str().filter(|_| is_created) {
            *self.maintenances.entry(node.to_owned()).or_default() += 1;
        }
    }

    fn note_node(&mut self, change: &Change) {
        let is_cordoned = |node: &Object| node["spec"]["unschedulable"] == true;
        let Some(node) = &change.after else { return };
        let name = text(&node["metadata"]["name"]);
        match (change.before.as_ref().is_some_and(is_cordoned), is_cordoned(node)) {
            (false, true) => {
                *self.cordoned.entry(name.clone()).or_default() += 1;
                self.unavailable.insert(name);
                self.most_unavailable = self.most_unavailable.max(self.unavailable.len());
            }
            (true, false) => {
                self.unavailable.remove(&name);
                self.done += 1;
            }
            _ => {}
        }
    }

    fn note_pod(&mut self, change: &Change) {
        let Some(pod) = change.after.as_ref().or(change.before.as_ref()) else { return };
        if [SYSTEM, NAMESPACE].iter().any(|namespace| pod["metadata"]["namespace"] == *namespace) {
            return;
        }
        let leaves = |pod: &Object| !pod["metadata"]["deletionTimestamp"].is_null();
        let Some(before) = &change.before else {
            self.created += 1;
            return;
        };
        if !leaves(before) && change.after.as_ref().is_none_or(leaves) {
            *self.deleted.entry(text(&pod["metadata"]["uid"])).or_default() += 1;
            let node = text(&pod["spec"]["nodeName"]);
            if !self.unavailable.contains(&node) {
                self.deleted_in_service.push(format!("{} on {node}", pod["metadata"]["name"]));
            }
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
