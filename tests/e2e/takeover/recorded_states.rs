//! The reconciler continues from every state in which the medik8s operator can stop.
//!
//! The states were recorded after each write of the operator: see `nmo/README.md`.

use std::path::Path;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use nm_shared::Phase;
use nm_shared::cluster::node_lease;
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, stop, until_drained, until_status};
use nm_tests::nodes::configuration;
use nm_tests::reconciler::Reconciler;
use nm_tests::wait::wait_until;
use nm_tests::workload::{Workload, parse};
use serde_json::{Value, json};

const NAME: &str = "e2e-recorded";

/// The operator's steps that begin a maintenance, in order.
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

/// The operator's steps that return the node to service, in order.
const ENDING: [&str; 5] =
    ["ending/0-deleted", "ending/1-taints", "ending/2-uncordoned", "ending/3-lease", "ending/4-label"];

/// A recorded state, with placeholders for the node and the namespace.
pub(crate) struct RecordedState(String);

impl RecordedState {
    /// The state of this name.
    pub(crate) fn named(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/nmo").join(name);
        Self(std::fs::read_to_string(path.with_extension("json")).unwrap())
    }

    /// The state for this node, with its pods in `namespace`.
    pub(crate) fn on(&self, node: &Node, namespace: &str) -> Value {
        let metadata = &node.metadata;
        let text = self.0.replace("NODE-UID", metadata.uid.as_deref().unwrap());
        let text = text.replace("NODE", metadata.name.as_deref().unwrap()).replace("NAMESPACE", namespace);
        serde_json::from_str(&text.replace("NOW", json!(MicroTime(Timestamp::now())).as_str().unwrap()))
            .unwrap()
    }
}

/// A cluster in a recorded state.
struct RestoredCluster {
    cluster: Cluster,
    workload: Workload,
    node: String,
    before: Value,
    state: Value,
}

impl RestoredCluster {
    async fn at(name: &str) -> Self {
        let cluster = Cluster::start(2).await;
        let node = cluster.nodes().await.remove(0);
        let found = cluster.node(&node).await;
        let workload = Workload::new(&cluster, "recorded").await;
        let state = RecordedState::named(name).on(&found, workload.namespace());
        for pod in state["pods"].as_array().unwrap() {
            workload.pod_on(&node, pod.as_str().unwrap(), json!({})).await;
        }
        let restored = Self { cluster, workload, node, before: configuration(&found), state };
        restored.put_lease().await;
        restored.put_node().await;
        restored.put_maintenance().await;
        restored
    }

    fn leases(&self) -> Api<Lease> {
        self.cluster.node_leases()
    }

    async fn put_lease(&self) {
        // A test that failed may have left one on a shared cluster.
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

    async fn assert_returned_to_service(&self, step: &str) {
        assert_eq!(configuration(&self.cluster.node(&self.node).await), self.before, "{step}");
        let lease = self.leases().get_opt(&node_lease::name(&self.node)).await.unwrap();
        assert!(lease.is_none(), "{step}: {lease:?}");
    }

    /// Waits until the node is drained, checks the status, and deletes the maintenance.
    async fn assert_finishes(&self, step: &str) {
        let status = until_drained(&self.cluster, NAME).await.status.unwrap();
        assert_eq!((status.phase, status.drain_progress), (Some(Phase::Succeeded), 100), "{step}");
        assert_eq!((status.last_error.as_str(), status.error_on_lease_count), ("", 0), "{step}");
        assert!(status.pending_pods.is_empty() && status.blocked_pods.is_empty(), "{step}: {status:?}");
        let counted = &self.state["status"];
        if counted["phase"].is_null() {
            assert!(
                status.eviction_pods >= 2 && status.total_pods >= 2,
                "{step}: the reconciler's counts, {status:?}"
            );
        } else {
            assert_eq!(json!(status.eviction_pods), counted["evictionPods"], "{step}: the operator's counts");
            assert_eq!(json!(status.total_pods), counted["totalpods"], "{step}: the operator's counts");
        }
        for pod in ["moves", "stays"] {
            assert!(
                self.workload.pods().get_opt(pod).await.unwrap().is_none(),
                "{step}: {pod} is still there"
            );
        }
        stop(&self.cluster, NAME).await;
        self.assert_returned_to_service(step).await;
    }
}

// Case 34.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_is_finished_from_every_step_of_the_medik8s_operator() {
    for step in BEGUN {
        let restored = RestoredCluster::at(step).await;
        let _reconciler = Reconciler::start(&restored.cluster);
        restored.assert_finishes(step).await;
    }
}

// Case 34.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_returned_to_service_from_every_step_of_the_medik8s_operator() {
    for step in ENDING {
        let restored = RestoredCluster::at(step).await;
        let _reconciler = Reconciler::start(&restored.cluster);
        wait_until(&restored.cluster.maintenances(), NAME, step, |found| found.is_none()).await;
        restored.assert_returned_to_service(step).await;
        let stays = restored.workload.pods().get("stays").await.unwrap();
        assert!(stays.metadata.deletion_timestamp.is_none(), "{step}: the pod is not evicted");
    }
}

// Cases 12 and 34.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_the_medik8s_operator_lost_is_acquired_again() {
    let restored = RestoredCluster::at("lease-lost").await;
    let _reconciler = Reconciler::start(&restored.cluster);
    let status = until_status(&restored.cluster, NAME, "the reconciler has written the status", |status| {
        !status.conditions.is_empty()
    })
    .await;
    assert!(status.error_on_lease_count > 0, "{status:?}");
    restored.leases().delete(&node_lease::name(&restored.node), &DeleteParams::default()).await.unwrap();
    restored.assert_finishes("lease-lost").await;
}

// Cases 13 and 34.
#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_that_the_medik8s_operator_failed_stays_failed() {
    let restored = RestoredCluster::at("failed").await;
    let _reconciler = Reconciler::start(&restored.cluster);
    let status = until_status(&restored.cluster, NAME, "the reconciler has written the status", |status| {
        !status.conditions.is_empty()
    })
    .await;
    assert_eq!(status.phase, Some(Phase::Failed));
    assert_eq!(json!(status.error_on_lease_count), restored.state["status"]["errorOnLeaseCount"]);
    assert_eq!(json!(status.last_error), restored.state["status"]["lastError"]);
    assert_eq!(
        configuration(&restored.cluster.node(&restored.node).await),
        restored.before,
        "the operator has returned it to service"
    );
    stop(&restored.cluster, NAME).await;
    assert_eq!(configuration(&restored.cluster.node(&restored.node).await), restored.before);
    let lease = node_lease::name(&restored.node);
    let holder = restored.leases().get(&lease).await.unwrap().spec.unwrap().holder_identity;
    assert_eq!(holder.as_deref(), Some("another"), "another program's lease stays");
    restored.leases().delete(&lease, &DeleteParams::default()).await.unwrap();
}
