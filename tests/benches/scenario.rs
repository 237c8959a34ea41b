//! What is drained: nodes full of pods, and as many empty nodes for their replacements.
//!
//! Every drain gets a new cluster with the same pods. Pods start 1 s after they are bound, and take some seconds to terminate,
//! all pods of a deployment equally long.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube_sandbox::controllers::kubelet::annotations::{START_DELAY, STOP_DELAY};
use kube_sandbox::resource::{BUDGETS, DEPLOYMENTS, PODS};
use kube_sandbox::store::State;
use kube_sandbox::workload::{self, App, Kind};
use nm_tests::cluster::Cluster;
use nm_tests::contention::slow_evictions;
use serde_json::{Value, json};

use crate::route::Route;

/// Pods of a deployment. A budget of 10% allows two disruptions at a time.
const REPLICAS: usize = 20;
/// Deployments in a namespace.
const DEPLOYMENTS_PER_NAMESPACE: usize = 10;

/// How many milliseconds the fastest pods take to terminate. Programs that close their connections properly take longer.
const FASTEST: u64 = 4_000;
/// How many milliseconds longer the slowest pods take.
const SPREAD: u64 = 1_000;
/// How many milliseconds longer each deployment takes than the one before it, modulo [`SPREAD`], so that deletions are not
/// in step with any interval.
const STEP: u64 = 370;

/// A number from the environment.
pub(crate) fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// How many milliseconds the fastest and the slowest pods take to terminate.
pub(crate) fn termination_times() -> (u64, u64) {
    let fastest = number("NM_DRAIN_ENDS", FASTEST);
    (fastest, fastest + SPREAD)
}

/// A number of nodes with a number of pods.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    /// The name on the command line.
    pub(crate) name: &'static str,
    /// How many nodes are drained.
    pub(crate) nodes: usize,
    /// Pods on each of them.
    pub(crate) pods_per_node: usize,
    /// Whether each deployment has a budget of 10%.
    pub(crate) budgets: bool,
}

/// The cluster of a scenario, before the drain.
pub(crate) struct PreparedCluster {
    /// The cluster, which may have further rounds.
    pub(crate) cluster: Arc<Cluster>,
    /// How the programs reach it.
    pub(crate) route: Arc<Route>,
    /// The nodes to drain.
    pub(crate) nodes: Vec<String>,
    /// The pods to evict.
    pub(crate) pods: Vec<Pod>,
}

/// A pod to evict.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Pod {
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// Its uid.
    pub(crate) uid: String,
    /// Its node.
    pub(crate) node: String,
    /// The name of its deployment and of its budget.
    pub(crate) app: String,
}

impl Scenario {
    /// All scenarios.
    pub(crate) fn all() -> Vec<Self> {
        let shapes = [("one", 1, 100), ("ten", 10, 80), ("fifty", 50, 100)];
        let with = |budgets| move |(name, nodes, pods_per_node)| Self { name, nodes, pods_per_node, budgets };
        shapes.into_iter().map(with(false)).chain(shapes.into_iter().map(with(true))).collect()
    }

    /// A new cluster: the pods are spread evenly over the nodes to drain, and the other nodes are empty.
    pub(crate) async fn prepare(&self) -> PreparedCluster {
        let all = 2 * self.nodes + 1;
        let names: Vec<String> = (1..=all).map(|number| workload::node_name(number, all)).collect();
        let (drained, spare) = names.split_at(self.nodes);
        let cluster = Cluster::of_sandbox(all, 0, |sandbox| sandbox).await;
        set_unschedulable(&cluster, spare, true).await;
        self.fill(&cluster);
        until(&cluster, |state| self.is_filled(state)).await;
        set_unschedulable(&cluster, spare, false).await;
        slow_evictions(cluster.sandbox().unwrap().faults());
        let pods = pods(&cluster, drained);
        let mut on: HashMap<&str, usize> = HashMap::new();
        for pod in &pods {
            *on.entry(&pod.node).or_default() += 1;
        }
        assert!(drained.iter().all(|node| on.get(node.as_str()) == Some(&self.pods_per_node)), "{on:?}");
        let route = Arc::new(Route::to(&cluster).await);
        PreparedCluster { nodes: drained.to_vec(), pods, route, cluster: Arc::new(cluster) }
    }

    fn fill(&self, cluster: &Cluster) {
        let cluster = cluster.sandbox().unwrap().cluster();
        let (fastest, _) = termination_times();
        for number in 0..self.deployments() {
            let namespace = format!("team-{}", number / DEPLOYMENTS_PER_NAMESPACE);
            if number % DEPLOYMENTS_PER_NAMESPACE == 0 {
                workload::seed_namespace(cluster, &namespace).unwrap();
            }
            let later = STEP * u64::try_from(number).unwrap() % SPREAD;
            let stop = format!("{}ms", fastest + later);
            let app = App::new(Kind::Deployment, &namespace, &format!("app-{number}"))
                .replicas(REPLICAS)
                .annotation(START_DELAY, "1s")
                .annotation(STOP_DELAY, &stop);
            let app = if self.budgets { app.budget(json!({"maxUnavailable": "10%"})) } else { app };
            app.create(cluster).unwrap();
        }
    }

    fn is_filled(&self, state: &State) -> bool {
        let ready = |deployment: &Value| deployment["status"]["readyReplicas"] == REPLICAS;
        let free = |budget: &Value| budget["status"]["disruptionsAllowed"] == REPLICAS / 10;
        let ready = state.list(&DEPLOYMENTS, None).filter(|deployment| ready(deployment)).count();
        let free = state.list(&BUDGETS, None).filter(|budget| free(budget)).count();
        let budgets = if self.budgets { self.deployments() } else { 0 };
        ready == self.deployments() && free == budgets
    }

    fn deployments(&self) -> usize {
        self.nodes * self.pods_per_node / REPLICAS
    }
}

/// Cordons or uncordons nodes.
pub(crate) async fn set_unschedulable(cluster: &Cluster, nodes: &[String], unschedulable: bool) {
    let api: Api<Node> = Api::all(cluster.client.clone());
    let patch = Patch::Merge(json!({"spec": {"unschedulable": unschedulable.then_some(true)}}));
    for node in nodes {
        api.patch(node, &PatchParams::default(), &patch).await.unwrap();
    }
}

/// Waits until `condition` is true for the state of the cluster. It is checked after every change.
async fn until(cluster: &Cluster, condition: impl Fn(&State) -> bool) {
    let store = &cluster.sandbox().unwrap().cluster().store;
    let mut wake = store.subscribe();
    loop {
        wake.borrow_and_update();
        if store.read(&condition) {
            return;
        }
        wake.changed().await.unwrap();
    }
}

/// The deployments' pods on these nodes.
fn pods(cluster: &Cluster, nodes: &[String]) -> Vec<Pod> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    cluster.sandbox().unwrap().cluster().store.read(|state| {
        let found = nodes.iter().flat_map(|node| state.on_node(&PODS, node));
        let movable = found.filter(|pod| pod["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet");
        let pod = |pod: &Value| Pod {
            namespace: text(&pod["metadata"]["namespace"]),
            name: text(&pod["metadata"]["name"]),
            uid: text(&pod["metadata"]["uid"]),
            node: text(&pod["spec"]["nodeName"]),
            app: text(&pod["metadata"]["labels"]["app"]),
        };
        movable.map(|object| pod(&object)).collect()
    })
}
