//! The pools that are rolled: nodes of the same size, and deployments whose pods all request a twentieth of a node.

use futures::future::join_all;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::ListParams;
use nm_shared::cluster::pod_requests::Resources;
use nm_tests::cluster::Cluster;
use nm_tests::workload::{Workload, node_of};
use serde_json::{Value, json};

use crate::fewest_moves::{Place, PlacedPod, Start};

/// How many pods fit on a node.
pub(crate) const CAPACITY: usize = 20;
/// Label of the nodes on which the pods may run. The other nodes of a shared cluster are as good as not there.
const LABEL: &str = "kubectl-nm.dev/moves";
const ZONE: &str = "topology.kubernetes.io/zone";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    OneZone,
    ThreeZones,
}

impl Shape {
    pub(crate) const NAMES: [&str; 2] = ["one-zone", "three-zones"];

    pub(crate) fn nodes(self) -> usize {
        match self {
            Self::OneZone => 8,
            Self::ThreeZones => 12,
        }
    }

    /// The zone of a node of the pool. The node outside of the pool is in the first zone.
    fn zone(self, node: usize) -> &'static str {
        match self {
            Self::OneZone => "a",
            Self::ThreeZones => ["a", "b", "c"][node % 3],
        }
    }
}

/// What the pods demand beside their requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Constraint {
    /// Nothing. The scheduler spreads the pods of a deployment by default as well as it can.
    Plain,
    /// As many pods of a deployment in each zone, and if possible on each node.
    Spread,
    /// At most one pod of a deployment on a node. Each deployment has a pod on every second node.
    AntiAffinity,
}

impl Constraint {
    pub(crate) const NAMES: [&str; 3] = ["plain", "spread", "anti-affinity"];
}

/// How much is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Free {
    Percent30,
    Percent10,
    /// 30% of each node, and a whole node that is not rolled.
    Spare,
    /// 30% of the pool, of which the whole of its last node, as after an earlier roll.
    Uneven,
}

impl Free {
    pub(crate) const NAMES: [&str; 4] = ["free30", "free10", "spare", "uneven"];
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) shape: Shape,
    pub(crate) constraint: Constraint,
    free: Free,
}

impl Scenario {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let shapes = [Shape::OneZone, Shape::ThreeZones].into_iter();
        let constraints = [Constraint::Plain, Constraint::Spread, Constraint::AntiAffinity];
        let all_free = [Free::Percent30, Free::Percent10, Free::Spare, Free::Uneven];
        shapes.flat_map(move |shape| {
            constraints.into_iter().flat_map(move |constraint| {
                all_free.into_iter().map(move |free| Self { shape, constraint, free })
            })
        })
    }

    /// The words that select it.
    pub(crate) fn names(self) -> [&'static str; 3] {
        [
            Shape::NAMES[self.shape as usize],
            Constraint::NAMES[self.constraint as usize],
            Free::NAMES[self.free as usize],
        ]
    }

    /// A cluster with this pool, whose pods all run.
    pub(crate) async fn prepare(self) -> Pool {
        let nodes = self.shape.nodes() + usize::from(self.free == Free::Spare);
        let cluster = Cluster::start(nodes).await;
        let mut names = cluster.nodes().await;
        names.sort_unstable();
        let others = names.split_off(nodes);
        let places: Vec<Place> =
            names.into_iter().enumerate().map(|(at, name)| self.place(at, name)).collect();
        unlabel(&cluster, &others).await;
        let is_last = |place: &Place| place.name == places[self.shape.nodes() - 1].name;
        let is_empty = |place: &Place| !place.is_rolled || self.free == Free::Uneven && is_last(place);
        for place in &places {
            let labels = json!({LABEL: "", ZONE: place.zone});
            let spec = json!({"unschedulable": is_empty(place).then_some(true)});
            cluster.patch_node(&place.name, json!({"metadata": {"labels": labels}, "spec": spec})).await;
        }
        let workload = Workload::new(&cluster, "moves").await;
        let spec = pod_spec(&cluster.node(&places[0].name).await);
        let (deployments, replicas) = self.deployments();
        let names: Vec<String> = (0..deployments).map(|number| format!("app-{number}")).collect();
        let create = names.iter().map(async |name| {
            workload.deployment_of(name, replicas, &self.for_app(&spec, name)).await;
        });
        join_all(create).await;
        for place in places.iter().filter(|place| is_empty(place)) {
            cluster.patch_node(&place.name, json!({"spec": {"unschedulable": null}})).await;
        }
        let pods = workload.pods().list(&ListParams::default()).await.unwrap();
        let pods = pods.iter().map(|pod| PlacedPod {
            uid: pod.uid().unwrap(),
            app: pod.labels()["app"].clone(),
            node: node_of(pod).to_owned(),
        });
        let start = Start { pods: pods.collect(), places, capacity: CAPACITY, constraint: self.constraint };
        assert_eq!(start.pods.len(), deployments * replicas);
        Pool { cluster, workload, start }
    }

    fn place(self, at: usize, name: String) -> Place {
        let is_rolled = at < self.shape.nodes();
        Place { name, zone: if is_rolled { self.shape.zone(at) } else { "a" }, is_rolled }
    }

    /// How many deployments there are, and the pods of each.
    fn deployments(self) -> (usize, usize) {
        let nodes = self.shape.nodes();
        let per_node = match self.free {
            Free::Percent30 | Free::Spare | Free::Uneven => CAPACITY * 7 / 10,
            Free::Percent10 => CAPACITY * 9 / 10,
        };
        match self.constraint {
            Constraint::Plain | Constraint::Spread => (per_node, nodes),
            Constraint::AntiAffinity => (2 * per_node, nodes / 2),
        }
    }

    fn for_app(self, spec: &Value, app: &str) -> Value {
        let mut spec = spec.clone();
        let selector = json!({"matchLabels": {"app": app}});
        let host = "kubernetes.io/hostname";
        match self.constraint {
            Constraint::Plain => {}
            Constraint::Spread => {
                spec["topologySpreadConstraints"] = json!([
                    {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector},
                    {"maxSkew": 1, "topologyKey": host, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector},
                ]);
            }
            Constraint::AntiAffinity => {
                spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                    json!([{"topologyKey": host, "labelSelector": selector}]);
            }
        }
        spec
    }
}

/// The spec of a pod that requests a twentieth of this node.
fn pod_spec(node: &Node) -> Value {
    let allocatable = Resources::of_node(node);
    let part = |resource| allocatable.amount(resource) / i128::try_from(CAPACITY).unwrap();
    let requests = json!({"cpu": format!("{}m", part("cpu")), "memory": (part("memory") / 1000).to_string()});
    json!({
        "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1, "nodeSelector": {LABEL: ""},
        "containers": [
            {"name": "c", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": requests}},
        ],
    })
}

/// A pool whose pods all run.
pub(crate) struct Pool {
    pub(crate) cluster: Cluster,
    pub(crate) workload: Workload,
    pub(crate) start: Start,
}

impl Pool {
    /// The nodes that are rolled, by name.
    pub(crate) fn nodes(&self) -> Vec<&str> {
        let rolled = self.start.places.iter().filter(|place| place.is_rolled);
        rolled.map(|place| place.name.as_str()).collect()
    }

    /// Removes the labels of the nodes, so that nothing else that uses the cluster sees zones.
    pub(crate) async fn clean_up(&self) {
        unlabel(&self.cluster, &self.cluster.nodes().await).await;
    }
}

async fn unlabel(cluster: &Cluster, nodes: &[String]) {
    for node in nodes {
        cluster.patch_node(node, json!({"metadata": {"labels": {LABEL: null, ZONE: null}}})).await;
    }
}
