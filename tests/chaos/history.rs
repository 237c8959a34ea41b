//! What happened to the objects of a run, from watches that reach the API server directly.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use nm_shared::cluster::leader_lease;
use nm_shared::{NodeMaintenance, NodeMaintenanceStatus, SurgeObstacle};
use nm_tests::cluster::Cluster;
use nm_tests::leader_election::leader_leases;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

/// A version of an object, and when its event arrived.
#[derive(Debug, Clone)]
pub(crate) struct Version<K> {
    pub(crate) at: Timestamp,
    /// None if the object was deleted.
    pub(crate) object: Option<K>,
    /// Whether versions before it may be unknown.
    pub(crate) is_after_gap: bool,
}

/// All versions of the objects of a kind, by uid.
#[derive(Debug)]
pub(crate) struct Versions<K>(BTreeMap<String, Vec<Version<K>>>);

impl<K> Default for Versions<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Resource> Versions<K> {
    /// All objects that ever were, each with its versions, the oldest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &[Version<K>]> {
        self.0.values().map(Vec::as_slice)
    }

    /// The objects as they are now.
    pub(crate) fn present(&self) -> impl Iterator<Item = &K> {
        self.0.values().filter_map(|versions| versions.last()?.object.as_ref())
    }

    /// The object of this name as it is now.
    pub(crate) fn named(&self, name: &str) -> Option<&K> {
        self.present().find(|object| object.meta().name.as_deref() == Some(name))
    }

    fn add(&mut self, object: K, is_deleted: bool, is_after_gap: bool) {
        let uid = object.meta().uid.clone().unwrap_or_default();
        let object = (!is_deleted).then_some(object);
        self.0.entry(uid).or_default().push(Version { at: Timestamp::now(), object, is_after_gap });
    }

    /// Those that are not listed were deleted meanwhile.
    fn end_list(&mut self, listed: &[String]) {
        for (uid, versions) in &mut self.0 {
            let is_present = versions.last().is_some_and(|version| version.object.is_some());
            if is_present && !listed.contains(uid) {
                versions.push(Version { at: Timestamp::now(), object: None, is_after_gap: true });
            }
        }
    }
}

/// What happened so far.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) nodes: Versions<Node>,
    pub(crate) maintenances: Versions<NodeMaintenance>,
    pub(crate) pods: Versions<Pod>,
    pub(crate) leases: Versions<Lease>,
    pub(crate) leader: Versions<Lease>,
}

impl Seen {
    /// How many statuses said that a pod could not be replaced first, for this reason.
    pub(crate) fn statuses_with(&self, obstacle: SurgeObstacle) -> usize {
        let versions = self.maintenances.all().flatten();
        let statuses = versions.filter_map(|version| version.object.as_ref()?.status.as_ref());
        let has_it = |status: &&NodeMaintenanceStatus| {
            let mut facts = status.blocked_pods.iter().filter_map(|pod| pod.facts.surge.as_ref());
            facts.any(|facts| facts.reason == obstacle)
        };
        statuses.filter(has_it).count()
    }
}

/// Records what happens, until it is dropped.
pub(crate) struct History {
    seen: Arc<Mutex<Seen>>,
    grown: watch::Sender<()>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl History {
    /// Records from now on: nodes, maintenances, leases and the pods of a namespace.
    pub(crate) async fn start(cluster: &Cluster, pods: Api<Pod>) -> Self {
        let mut history = Self { seen: Arc::default(), grown: watch::Sender::new(()), tasks: Vec::new() };
        let leader = watcher::Config::default().fields(&format!("metadata.name={}", leader_lease::NAME));
        let every = watcher::Config::default;
        history.record(Api::all(cluster.client.clone()), every(), |seen| &mut seen.nodes).await;
        history.record(cluster.maintenances(), every(), |seen| &mut seen.maintenances).await;
        history.record(pods, every(), |seen| &mut seen.pods).await;
        history.record(cluster.node_leases(), every(), |seen| &mut seen.leases).await;
        history.record(leader_leases(cluster), leader, |seen| &mut seen.leader).await;
        history
    }

    /// Records a kind, and waits for its first list.
    async fn record<K>(
        &mut self,
        api: Api<K>,
        selection: watcher::Config,
        of: fn(&mut Seen) -> &mut Versions<K>,
    ) where
        K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let (seen, grown) = (self.seen.clone(), self.grown.clone());
        let (listed, mut is_listed) = watch::channel(false);
        self.tasks.push(tokio::spawn(async move {
            let mut events = watcher(api, selection).default_backoff().boxed();
            let mut list = Vec::new();
            while let Some(event) = events.next().await {
                let Ok(event) = event else { continue };
                let mut seen = seen.lock().unwrap();
                let versions = of(&mut seen);
                match event {
                    watcher::Event::Apply(object) => versions.add(object, false, false),
                    watcher::Event::Delete(object) => versions.add(object, true, false),
                    watcher::Event::Init => list.clear(),
                    watcher::Event::InitApply(object) => {
                        list.extend(object.uid());
                        versions.add(object, false, true);
                    }
                    watcher::Event::InitDone => {
                        versions.end_list(&list);
                        listed.send_replace(true);
                    }
                }
                drop(seen);
                grown.send_replace(());
            }
        }));
        is_listed.wait_for(|listed| *listed).await.unwrap();
    }

    /// What happened so far.
    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    /// Waits until something is so, and returns why it is not so after the timeout.
    pub(crate) async fn until(
        &self,
        timeout: Duration,
        check: impl Fn(&Seen) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut grown = self.grown.subscribe();
        let reached = async {
            loop {
                grown.borrow_and_update();
                if check(&self.seen()).is_ok() {
                    return;
                }
                let _ = grown.changed().await;
            }
        };
        match tokio::time::timeout(timeout, reached).await {
            Ok(()) => Ok(()),
            Err(_) => check(&self.seen()),
        }
    }
}

impl Drop for History {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// The terms of leaders, in order: the identity, and when it took the lease.
pub(crate) fn terms(seen: &Seen) -> Vec<(String, Timestamp)> {
    let mut terms: Vec<(String, Timestamp)> = Vec::new();
    for version in seen.leader.all().flatten() {
        let spec = version.object.as_ref().and_then(|lease| lease.spec.as_ref());
        let holder = spec.and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
        let known = terms.iter().any(|(identity, _)| *identity == holder);
        if !holder.is_empty() && !known {
            let acquired = spec.and_then(|spec| spec.acquire_time.as_ref()).map_or(version.at, |at| at.0);
            terms.push((holder, acquired));
        }
    }
    terms.sort_by_key(|(_, acquired)| *acquired);
    terms
}

/// The process id of the replica that leads by the lease.
pub(crate) fn leader(seen: &Seen) -> Option<u32> {
    let spec = seen.leader.present().next()?.spec.as_ref()?;
    pid_of_term(spec.holder_identity.as_ref()?)
}

/// The process id in the identity of a term: `HOST-PID_TIME`.
pub(crate) fn pid_of_term(identity: &str) -> Option<u32> {
    identity.rsplit_once('_')?.0.rsplit('-').next()?.parse().ok()
}

/// The node of each pod that was ever bound to one, by name.
pub(crate) fn nodes_of_pods(seen: &Seen) -> HashMap<String, String> {
    let pods = seen.pods.all().flatten().filter_map(|version| version.object.as_ref());
    pods.filter_map(|pod| Some((pod.name_any(), pod.spec.as_ref()?.node_name.clone()?))).collect()
}
