//! What is drained: nodes full of pods, and as many empty ones for the pods to go to.
//!
//! Every contender gets a cluster of its own, filled in the same way. Pods start 1 s after they are bound, and end some
//! seconds after they are deleted, those of one deployment all alike.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube_sandbox::controllers::kubelet::annotations::{START_DELAY, STOP_DELAY};
use kube_sandbox::resource::{BUDGETS, DEPLOYMENTS, PODS};
use kube_sandbox::store::State;
use kube_sandbox::workload::{self, App, Kind};
use nm_tests::cluster::Cluster;
use serde_json::{Value, json};

/// Pods of one deployment. A budget of 10% lets two of them go at a time.
const REPLICAS: usize = 20;
/// Deployments of one namespace.
const NEIGHBOURS: usize = 10;

/// How many milliseconds the quickest pods have to say goodbye. Programs that close their connections well take longer.
const QUICKEST: u64 = 4_000;
/// The others end up to this much later,
const SPREAD: u64 = 1_000;
/// each deployment so much later than the one before it, and round again: in step with nobody's clock.
const STEP: u64 = 370;

/// From deleted to gone, in milliseconds, of the quickest and of the slowest pods.
pub(crate) fn ends() -> (u64, u64) {
    let quickest = std::env::var("NM_DRAIN_ENDS").map_or(QUICKEST, |text| text.parse().unwrap());
    (quickest, quickest + SPREAD)
}

/// So many nodes of so many pods.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    /// What it is called on the command line.
    pub(crate) name: &'static str,
    /// The nodes that are drained.
    pub(crate) nodes: usize,
    /// Pods on each of them.
    pub(crate) pods_a_node: usize,
    /// Whether each deployment has a budget of 10%.
    pub(crate) budgets: bool,
}

/// A cluster that stands as a scenario says, before anything is drained.
pub(crate) struct Ground {
    /// The cluster.
    pub(crate) cluster: Cluster,
    /// The nodes to drain.
    pub(crate) nodes: Vec<String>,
    /// The pods to move.
    pub(crate) pods: Vec<Pod>,
}

/// A pod to move.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Pod {
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// Its uid.
    pub(crate) uid: String,
    /// The node that it is to leave.
    pub(crate) node: String,
    /// Its deployment, which is also the name of its budget.
    pub(crate) app: String,
}

impl Scenario {
    /// All that are measured.
    pub(crate) fn all() -> Vec<Self> {
        let shapes = [("one", 1, 100), ("ten", 10, 80), ("fifty", 50, 100)];
        let with = |budgets| move |(name, nodes, pods_a_node)| Self { name, nodes, pods_a_node, budgets };
        shapes.into_iter().map(with(false)).chain(shapes.into_iter().map(with(true))).collect()
    }

    /// A fresh cluster: the pods stand on the nodes to be drained, evenly, and the others are empty.
    pub(crate) async fn stand(&self) -> Ground {
        let all = 2 * self.nodes + 1;
        let names: Vec<String> = (1..=all).map(|number| workload::node_name(number, all)).collect();
        let (drained, spare) = names.split_at(self.nodes);
        let cluster = Cluster::of_sandbox(all, 0, |sandbox| sandbox).await;
        set_unschedulable(&cluster, spare, true).await;
        self.fill(&cluster);
        until(&cluster, |state| self.is_filled(state)).await;
        set_unschedulable(&cluster, spare, false).await;
        let pods = pods(&cluster, drained);
        let mut on: HashMap<&str, usize> = HashMap::new();
        for pod in &pods {
            *on.entry(&pod.node).or_default() += 1;
        }
        assert!(drained.iter().all(|node| on.get(node.as_str()) == Some(&self.pods_a_node)), "{on:?}");
        Ground { nodes: drained.to_vec(), pods, cluster }
    }

    fn fill(&self, cluster: &Cluster) {
        let cluster = cluster.sandbox().unwrap().cluster();
        let (quickest, _) = ends();
        for number in 0..self.deployments() {
            let namespace = format!("team-{}", number / NEIGHBOURS);
            if number % NEIGHBOURS == 0 {
                workload::seed_namespace(cluster, &namespace).unwrap();
            }
            let later = STEP * u64::try_from(number).unwrap() % SPREAD;
            let stop = format!("{}ms", quickest + later);
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
        self.nodes * self.pods_a_node / REPLICAS
    }
}

/// Cordons nodes, or gives them back.
pub(crate) async fn set_unschedulable(cluster: &Cluster, nodes: &[String], unschedulable: bool) {
    let api: Api<Node> = Api::all(cluster.client.clone());
    let patch = Patch::Merge(json!({"spec": {"unschedulable": unschedulable.then_some(true)}}));
    for node in nodes {
        api.patch(node, &PatchParams::default(), &patch).await.unwrap();
    }
}

/// Waits until something holds of the cluster's memory. It is asked after every change.
async fn until(cluster: &Cluster, holds: impl Fn(&State) -> bool) {
    let store = &cluster.sandbox().unwrap().cluster().store;
    let mut wake = store.subscribe();
    loop {
        wake.borrow_and_update();
        if store.read(&holds) {
            return;
        }
        wake.changed().await.unwrap();
    }
}

/// The pods of deployments on these nodes.
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
