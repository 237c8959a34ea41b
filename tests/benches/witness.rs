//! Sees each pod's end, and the status that shows it, in the sandbox's own memory: no contender can be late in its eyes
//! for want of a connection, and looking costs the API server nothing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube_sandbox::cluster::Cluster;
use kube_sandbox::resource::PODS;
use kube_sandbox::store::{Collection, State};
use serde_json::Value;
use tokio::sync::watch;

use crate::scenario::{Ground, Pod};

/// What was seen so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sight {
    /// When the last pod was gone; none while one is left.
    pub(crate) all_gone: Option<Instant>,
    /// When the last maintenance said that its node is drained.
    pub(crate) all_told: Option<Instant>,
    /// How many pods are left.
    pub(crate) left: usize,
    /// From each pod's end to the status that no longer has it.
    pub(crate) lags: Vec<Duration>,
}

/// Looks on from a thread of its own, until it is dropped.
#[derive(Debug)]
pub(crate) struct Witness {
    sight: watch::Receiver<Sight>,
    _stop: watch::Sender<()>,
}

impl Witness {
    /// Begins to look at the pods to be moved and at the maintenances of their nodes.
    pub(crate) fn start(ground: &Ground) -> Self {
        let cluster = ground.cluster.sandbox().unwrap().cluster().clone();
        let mut notes = Notes::new(&ground.pods, ground.nodes.len());
        let (tell, sight) = watch::channel(notes.sight.clone());
        let (stop, mut stopped) = watch::channel(());
        notes.seen = cluster.store.read(State::revision);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    () = notes.follow(cluster, tell) => {}
                    _ = stopped.changed() => {}
                }
            });
        });
        Self { sight, _stop: stop }
    }

    /// What was seen, once it is enough, or as it is when the time is over.
    pub(crate) async fn until(&self, limit: Duration, enough: impl Fn(&Sight) -> bool) -> Sight {
        let mut sight = self.sight.clone();
        let _ = tokio::time::timeout(limit, sight.wait_for(|sight| enough(sight))).await;
        self.sight.borrow().clone()
    }
}

struct Notes {
    /// Pods that are still there, by uid.
    there: HashMap<String, Pod>,
    /// Pods that are gone and whose node's status has not told yet, by node.
    untold: HashMap<String, Vec<(Pod, Instant)>>,
    /// Nodes whose status says that they are drained.
    drained: HashSet<String>,
    nodes: usize,
    sight: Sight,
    seen: u64,
}

impl Notes {
    fn new(pods: &[Pod], nodes: usize) -> Self {
        let there: HashMap<String, Pod> = pods.iter().map(|pod| (pod.uid.clone(), pod.clone())).collect();
        let sight = Sight { left: there.len(), ..Sight::default() };
        Self { there, untold: HashMap::new(), drained: HashSet::new(), nodes, sight, seen: 0 }
    }

    async fn follow(mut self, cluster: Arc<Cluster>, tell: watch::Sender<Sight>) {
        let maintenances = Collection::named("nodemaintenance.medik8s.io", "nodemaintenances");
        let mut wake = cluster.store.subscribe();
        loop {
            wake.borrow_and_update();
            let (gone, statuses) = cluster.store.read(|state| {
                let since = self.seen;
                self.seen = state.revision();
                let pods = state.changes_since(&PODS, since).expect("the witness keeps up");
                let gone: Vec<_> =
                    pods.filter(|change| change.after.is_none()).filter_map(|change| change.before).collect();
                let statuses = state.changes_since(&maintenances, since).expect("the witness keeps up");
                (gone, statuses.filter_map(|change| change.after).collect::<Vec<_>>())
            });
            let now = Instant::now();
            for pod in &gone {
                self.note_end(pod, now);
            }
            for maintenance in &statuses {
                self.note_status(maintenance, now);
            }
            if !(gone.is_empty() && statuses.is_empty()) {
                tell.send_replace(self.sight.clone());
            }
            if wake.changed().await.is_err() {
                return;
            }
        }
    }

    fn note_end(&mut self, pod: &Value, now: Instant) {
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
        let Some(pod) = self.there.remove(uid) else { return };
        self.untold.entry(pod.node.clone()).or_default().push((pod, now));
        self.sight.left = self.there.len();
        if self.there.is_empty() {
            self.sight.all_gone = Some(now);
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
        let lags = &mut self.sight.lags;
        self.untold.entry(node.to_owned()).or_default().retain(|(pod, end)| {
            let shown = !pending.contains(&(&*pod.namespace, &*pod.name));
            if shown {
                lags.push(now - *end);
            }
            !shown
        });
        if maintenance["status"]["phase"] == "Succeeded" && self.drained.insert(node.to_owned()) {
            self.sight.all_told = Some(now).filter(|_| self.drained.len() == self.nodes);
        }
    }
}
