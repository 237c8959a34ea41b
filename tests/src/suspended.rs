//! Suspended maintenances beside those of a test: one planned and one paused, each with a node of its own.
//!
//! With `NM_E2E_SUSPENDED`, every sandbox of a test has them. The test does not see their nodes, and must pass as it does
//! without them; they must be as they were when its cluster is dropped.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use kube_sandbox::cluster::Cluster;
use kube_sandbox::cluster::store::{Collection, Key};
use kube_sandbox::workload::{App, Kind};
use nm_shared::api::condition::{ConditionReason, ConditionType};
use nm_shared::api::names::LEASE_NAMESPACE;
use nm_shared::cluster::node_lease::{self, Claim, LeaseWrite};
use nm_shared::drain::node_patch::{self, CordonedBy, Requester, is_cordoned};
use nm_shared::{Group, NodeMaintenance, NodeMaintenanceSpec, Phase, Suspension};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// How many nodes a sandbox needs for them.
pub(crate) const NODES: usize = 2;

/// The label of their nodes. With a taint of the same key, no other pod is scheduled to them.
pub(crate) const LABEL: &str = "kubectl-nm.dev/e2e-suspended";

/// The maintenance that is planned.
pub const PLANNED: &str = "e2e-beside-planned";

/// The maintenance that is paused.
pub const PAUSED: &str = "e2e-beside-paused";

/// The namespace of the pods on their nodes.
const NAMESPACE: &str = "kube-system";

/// The name of the pod on a node of them.
fn pod_of(node: &str) -> String {
    format!("stays-{node}")
}

/// Whether the tests of this process run beside suspended maintenances.
pub(crate) fn is_wanted() -> bool {
    std::env::var_os("NM_E2E_SUSPENDED").is_some()
}

/// A planned and a paused maintenance. When this is dropped, the test fails if they have changed.
pub struct SuspendedMaintenances {
    cluster: Arc<Cluster>,
    planned_node: String,
    paused_node: String,
}

impl SuspendedMaintenances {
    /// Creates them on two nodes of a sandbox on which the manifests are installed and no reconciler runs.
    pub(crate) async fn create(client: &Client, cluster: Arc<Cluster>, nodes: [String; NODES]) -> Self {
        for node in &nodes {
            let taint = json!({"key": LABEL, "effect": "NoSchedule"});
            let marks = json!({"metadata": {"labels": {LABEL: ""}}, "spec": {"taints": [taint]}});
            patch_node(client, node, marks).await;
            App::new(Kind::Pod, NAMESPACE, &pod_of(node)).node_name(node).create(&cluster).unwrap();
        }
        let [planned_node, paused_node] = nodes;
        suspended(client, PLANNED, &planned_node).await;
        let paused = suspended(client, PAUSED, &paused_node).await;
        begin(client, &paused).await;
        Self { cluster, planned_node, paused_node }
    }

    fn get<K: DeserializeOwned>(&self, group: &str, plural: &str, key: &Key) -> Option<K> {
        let found = self.cluster.store.read(|state| state.get(&Collection::named(group, plural), key))?;
        Some(serde_json::from_value((*found).clone()).unwrap())
    }

    /// Whether the maintenances are suspended as they were, and their nodes and pods are untouched.
    ///
    /// # Errors
    /// What has changed.
    pub fn check(&self) -> Result<(), String> {
        self.check_one(PLANNED, &self.planned_node, Suspension::Planned, Phase::Pending)?;
        self.check_one(PAUSED, &self.paused_node, Suspension::Paused, Phase::Running)
    }

    fn check_one(&self, name: &str, node: &str, suspension: Suspension, phase: Phase) -> Result<(), String> {
        let changed =
            |what: &str, now: &dyn std::fmt::Debug| Err(format!("{what} of {name} has changed: {now:#?}"));
        let object: Option<NodeMaintenance> =
            self.get("nodemaintenance.medik8s.io", "nodemaintenances", &Key::cluster(name));
        let status = object.as_ref().filter(|object| object.spec.suspend).map(|object| object.status.clone());
        let Some(status) = status else { return changed("the maintenance", &object) };
        // It has none before a reconciler has seen it.
        let status = status.unwrap_or_default();
        let is_shown = Suspension::in_status(&status).is_none_or(|shown| shown == suspension);
        if !is_shown || status.phase.is_some_and(|shown| shown != phase) {
            return changed("the status", &status);
        }
        let found: Option<Node> = self.get("", "nodes", &Key::cluster(node));
        let wanted = suspension == Suspension::Paused;
        if found.as_ref().map(|node| is_cordoned(node, Group::Medik8s)) != Some(wanted) {
            return changed("the node", &found);
        }
        let pod: Option<Pod> = self.get("", "pods", &Key::new(NAMESPACE, pod_of(node)));
        match pod {
            Some(pod) if pod.metadata.deletion_timestamp.is_none() => Ok(()),
            pod => changed("the pod", &pod),
        }
    }
}

impl Drop for SuspendedMaintenances {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.check(), Ok(()));
        }
    }
}

async fn suspended(client: &Client, name: &str, node: &str) -> NodeMaintenance {
    let spec = NodeMaintenanceSpec { node_name: node.to_owned(), suspend: true, ..Default::default() };
    let all: Api<NodeMaintenance> = Api::all(client.clone());
    all.create(&PostParams::default(), &NodeMaintenance::new(name, spec)).await.unwrap()
}

async fn patch_node(client: &Client, name: &str, patch: Value) {
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Writes what a reconciler leaves that has begun a maintenance: a suspended one is paused then.
async fn begin(client: &Client, maintenance: &NodeMaintenance) {
    let now = Timestamp::now();
    let node = Api::<Node>::all(client.clone()).get(&maintenance.spec.node_name).await.unwrap();
    let Claim::Take(LeaseWrite::Create(lease)) = node_lease::claim(None, &node, now) else {
        panic!("there is no lease, so it is created");
    };
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASE_NAMESPACE);
    leases.create(&PostParams::default(), &lease).await.unwrap();
    let requester = Requester {
        uid: maintenance.metadata.uid.as_deref().unwrap(),
        group: Group::Medik8s,
        cordoned_by: CordonedBy::Nobody,
        planned: false,
        keeps_cordon: false,
        neighbours: node_patch::Neighbours::default(),
        others: &HashSet::new(),
        now,
    };
    patch_node(client, &node.name_any(), node_patch::cordon(&node, &requester).unwrap().0).await;
    let cordoned = json!({"type": ConditionType::Cordoned.as_str(), "status": "True", "message": "",
        "reason": ConditionReason::Cordoned.as_str(), "lastTransitionTime": Time(now)});
    let status = json!({"status": {"phase": Phase::Running, "conditions": [cordoned],
        "evictionPods": 1, "totalpods": 1}});
    let all: Api<NodeMaintenance> = Api::all(client.clone());
    let (name, params) = (maintenance.name_any(), PatchParams::default());
    all.patch_status(&name, &params, &Patch::Merge(status)).await.unwrap();
}
