//! What the medik8s operator left behind when it was killed after each of its writes, and how we go on from there.
//!
//! The states are recorded, not made up: `nmo/README.md` tells of which version and how.

use std::path::Path;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use nm_shared::Phase;
use nm_shared::api::names::LEASE_NAMESPACE;
use nm_shared::cluster::node_lease;
use nm_tests::cluster::Cluster;
use nm_tests::reconciler::Reconciler;
use nm_tests::until::until;
use nm_tests::workload::{Workload, parse};
use serde_json::{Value, json};

use crate::{configuration, drained, once, start, stop};

const NAME: &str = "e2e-recorded";

/// The steps by which the operator begins, in its order.
const BEGUN: [&str; 9] = [
    "begun/1-finalizer",
    "begun/2-status",
    "begun/3-lease",
    "begun/4-label",
    "begun/5-taints",
    "begun/6-cordoned",
    "begun/7-evicting",
    "begun/8-blocked",
    "begun/9-succeeded",
];

/// The steps by which it gives the node back once the object is deleted.
const ENDING: [&str; 5] =
    ["ending/0-deleted", "ending/1-taints", "ending/2-uncordoned", "ending/3-lease", "ending/4-label"];

/// A recorded state, for any node and namespace.
pub(crate) struct Recorded(String);

impl Recorded {
    /// The one of this name.
    pub(crate) fn named(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/nmo").join(name);
        Self(std::fs::read_to_string(path.with_extension("json")).unwrap())
    }

    /// The same on `node`, with its pods in `namespace`.
    pub(crate) fn on(&self, node: &Node, namespace: &str) -> Value {
        let metadata = &node.metadata;
        let text = self.0.replace("NODE-UID", metadata.uid.as_deref().unwrap());
        let text = text.replace("NODE", metadata.name.as_deref().unwrap()).replace("NAMESPACE", namespace);
        serde_json::from_str(&text.replace("NOW", json!(MicroTime(Timestamp::now())).as_str().unwrap()))
            .unwrap()
    }
}

/// A cluster that is as the operator left it.
struct Left {
    cluster: Cluster,
    workload: Workload,
    node: String,
    before: Value,
    state: Value,
}

impl Left {
    async fn at(name: &str) -> Self {
        let cluster = Cluster::start(2).await;
        let node = cluster.nodes().await.remove(0);
        let found = cluster.node(&node).await;
        let workload = Workload::new(&cluster, "recorded").await;
        let state = Recorded::named(name).on(&found, workload.namespace());
        for pod in state["pods"].as_array().unwrap() {
            workload.pod_on(&node, pod.as_str().unwrap(), json!({})).await;
        }
        let left = Self { cluster, workload, node, before: configuration(&found), state };
        left.put_lease().await;
        left.put_node().await;
        left.put_maintenance().await;
        left
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.cluster.client.clone(), LEASE_NAMESPACE)
    }

    async fn put_lease(&self) {
        // A cluster that the tests share may hold one from a test that failed.
        let _ = self.leases().delete(&node_lease::name(&self.node), &DeleteParams::default()).await;
        if !self.state["lease"].is_null() {
            let lease: Lease = parse(self.state["lease"].clone());
            self.leases().create(&PostParams::default(), &lease).await.unwrap();
        }
    }

    async fn put_node(&self) {
        let nodes: Api<Node> = Api::all(self.cluster.client.clone());
        let patch = Patch::Merge(&self.state["node"]);
        nodes.patch(&self.node, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn put_maintenance(&self) {
        let (maintenances, params) = (self.cluster.maintenances(), PatchParams::default());
        start(&self.cluster, NAME, &self.node).await;
        let finalizers = Patch::Merge(json!({"metadata": {"finalizers": self.state["finalizers"]}}));
        maintenances.patch(NAME, &params, &finalizers).await.unwrap();
        let status = Patch::Merge(json!({"status": self.state["status"]}));
        maintenances.patch_status(NAME, &params, &status).await.unwrap();
        if self.state["deleted"] == true {
            maintenances.delete(NAME, &DeleteParams::default()).await.unwrap();
        }
    }

    async fn is_given_back(&self, step: &str) {
        assert_eq!(configuration(&self.cluster.node(&self.node).await), self.before, "{step}");
        let lease = self.leases().get_opt(&node_lease::name(&self.node)).await.unwrap();
        assert!(lease.is_none(), "{step}: {lease:?}");
    }

    /// Waits for the end of the drain, looks at what is told of it, and ends the maintenance.
    async fn is_finished(&self, step: &str) {
        let status = drained(&self.cluster, NAME).await.status.unwrap();
        assert_eq!((status.phase, status.drain_progress), (Some(Phase::Succeeded), 100), "{step}");
        assert_eq!((status.last_error.as_str(), status.error_on_lease_count), ("", 0), "{step}");
        assert!(status.pending_pods.is_empty() && status.blocked_pods.is_empty(), "{step}: {status:?}");
        let counted = &self.state["status"];
        if counted["phase"].is_null() {
            assert!(status.eviction_pods >= 2 && status.total_pods >= 2, "{step}: counted by us, {status:?}");
        } else {
            assert_eq!(json!(status.eviction_pods), counted["evictionPods"], "{step}: as it was counted");
            assert_eq!(json!(status.total_pods), counted["totalpods"], "{step}: as it was counted");
        }
        for pod in ["moves", "stays"] {
            assert!(
                self.workload.pods().get_opt(pod).await.unwrap().is_none(),
                "{step}: {pod} is here still"
            );
        }
        stop(&self.cluster, NAME).await;
        self.is_given_back(step).await;
    }
}

// Case 34.
#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_is_finished_from_each_step_at_which_the_medik8s_operator_stopped() {
    for step in BEGUN {
        let left = Left::at(step).await;
        let _reconciler = Reconciler::start(&left.cluster);
        left.is_finished(step).await;
    }
}

// Case 34.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_given_back_from_each_step_at_which_the_medik8s_operator_stopped() {
    for step in ENDING {
        let left = Left::at(step).await;
        let _reconciler = Reconciler::start(&left.cluster);
        until(&left.cluster.maintenances(), NAME, step, |found| found.is_none()).await;
        left.is_given_back(step).await;
        let stays = left.workload.pods().get("stays").await.unwrap();
        assert!(stays.metadata.deletion_timestamp.is_none(), "{step}: nobody asks it to go any more");
    }
}

// Cases 12 and 34.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_the_medik8s_operator_lost_is_waited_for_and_taken_again() {
    let left = Left::at("lease-lost").await;
    let _reconciler = Reconciler::start(&left.cluster);
    let told = once(&left.cluster, NAME, "told in our words", |status| !status.conditions.is_empty()).await;
    assert!(told.error_on_lease_count > 0, "{told:?}");
    left.leases().delete(&node_lease::name(&left.node), &DeleteParams::default()).await.unwrap();
    left.is_finished("lease-lost").await;
}

// Cases 13 and 34.
#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_that_the_medik8s_operator_has_failed_stays_failed() {
    let left = Left::at("failed").await;
    let _reconciler = Reconciler::start(&left.cluster);
    let told = once(&left.cluster, NAME, "told in our words", |status| !status.conditions.is_empty()).await;
    assert_eq!(told.phase, Some(Phase::Failed));
    assert_eq!(json!(told.error_on_lease_count), left.state["status"]["errorOnLeaseCount"]);
    assert_eq!(json!(told.last_error), left.state["status"]["lastError"]);
    assert_eq!(configuration(&left.cluster.node(&left.node).await), left.before, "it was given back");
    stop(&left.cluster, NAME).await;
    assert_eq!(configuration(&left.cluster.node(&left.node).await), left.before);
    let lease = node_lease::name(&left.node);
    let holder = left.leases().get(&lease).await.unwrap().spec.unwrap().holder_identity;
    assert_eq!(holder.as_deref(), Some("another"), "what is another's stays");
    left.leases().delete(&lease, &DeleteParams::default()).await.unwrap();
}
