//! A node that is deleted during its maintenance.
//!
//! The node is of the test's own making and has no kubelet.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use kube_sandbox::request_log::Entry;
use nm_shared::api::names::{DRAIN_TAINT, EXCLUDE_LABEL, LEASE_NAMESPACE, UNDO_ANNOTATION};
use nm_shared::cluster::node_lease;
use nm_tests::cluster::{Cluster, SUITE_LABEL};
use nm_tests::reconciler::Reconciler;
use nm_tests::until::until;
use nm_tests::workload::{Workload, held, parse};
use serde_json::json;

use crate::{drained, once, start, stop};

const NODE: &str = "e2e-short-lived";

async fn create_node(cluster: &Cluster) -> Node {
    let node = json!({"metadata": {"name": NODE, "labels": {SUITE_LABEL: ""}}});
    Api::<Node>::all(cluster.client.clone()).create(&PostParams::default(), &parse(node)).await.unwrap()
}

async fn delete_node(cluster: &Cluster) {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    nodes.delete(NODE, &DeleteParams::default()).await.unwrap();
    until(&nodes, NODE, "gone", |node| node.is_none()).await;
}

/// Waits until nothing is left of a maintenance whose node is gone.
async fn until_nothing_is_left(cluster: &Cluster, name: &str) {
    until(&cluster.maintenances(), name, "gone with its node", |found| found.is_none()).await;
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), LEASE_NAMESPACE);
    until(&leases, &node_lease::name(NODE), "the lease is gone", |lease| lease.is_none()).await;
}

/// The reconciler has done something else since, so whatever it does about the node, it has done.
async fn something_else(cluster: &Cluster, name: &str, node: &str) {
    start(cluster, name, node).await;
    drained(cluster, name).await;
    stop(cluster, name).await;
}

fn has_marks(node: &Node) -> bool {
    let spec = node.spec.clone().unwrap_or_default();
    spec.unschedulable == Some(true)
        || spec.taints.unwrap_or_default().iter().any(|taint| taint.key == DRAIN_TAINT)
        || node.labels().contains_key(EXCLUDE_LABEL)
        || node.annotations().contains_key(UNDO_ANNOTATION)
}

/// What the reconciler was refused: some requests are overtaken by the end of the node, but none is repeated for ever.
fn refusals(cluster: &Cluster) -> Vec<Entry> {
    let Some(sandbox) = cluster.sandbox() else { return Vec::new() };
    let refused = |entry: &Entry| entry.user_agent.starts_with("nm-reconciler/") && entry.code >= 400;
    sandbox.requests().all().into_iter().filter(refused).collect()
}

// Case 28.
#[tokio::test(flavor = "multi_thread")]
async fn with_a_node_that_is_deleted_midway_its_maintenance_goes_and_a_new_node_is_left_alone() {
    let cluster = Cluster::start(1).await;
    let other = &cluster.nodes().await[0];
    create_node(&cluster).await;
    let workload = Workload::new(&cluster, "orphans").await;
    workload.place(NODE, "held", held()).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-orphan", NODE).await;
    let pending = |status: &nm_shared::NodeMaintenanceStatus| status.pending_pods == ["held"];
    once(&cluster, "e2e-orphan", "under way", pending).await;

    delete_node(&cluster).await;
    until_nothing_is_left(&cluster, "e2e-orphan").await;
    create_node(&cluster).await;
    something_else(&cluster, "e2e-other", other).await;
    assert!(!has_marks(&cluster.node(NODE).await), "the new node has nothing to do with it");
    let refusals = refusals(&cluster);
    assert!(refusals.len() <= 5, "{refusals:#?}");
    workload.let_go("held").await;
    delete_node(&cluster).await;
}

// Case 28.
#[tokio::test(flavor = "multi_thread")]
async fn with_a_node_that_is_deleted_after_its_drain_nothing_of_its_maintenance_is_left() {
    let cluster = Cluster::start(1).await;
    let other = &cluster.nodes().await[0];
    create_node(&cluster).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-orphan", NODE).await;
    drained(&cluster, "e2e-orphan").await;
    delete_node(&cluster).await;
    until_nothing_is_left(&cluster, "e2e-orphan").await;
    something_else(&cluster, "e2e-other", other).await;
    let refusals = refusals(&cluster);
    assert!(refusals.len() <= 5, "{refusals:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_came_back_while_nobody_reconciled_is_left_alone() {
    let cluster = Cluster::start(1).await;
    create_node(&cluster).await;
    let first = Reconciler::start(&cluster);
    start(&cluster, "e2e-orphan", NODE).await;
    drained(&cluster, "e2e-orphan").await;
    first.crash().await;
    delete_node(&cluster).await;
    let ends = |found: Option<&nm_shared::NodeMaintenance>| {
        found.is_some_and(|found| found.metadata.deletion_timestamp.is_some())
    };
    until(&cluster.maintenances(), "e2e-orphan", "collected", ends).await;
    create_node(&cluster).await;
    let _second = Reconciler::start(&cluster);
    until_nothing_is_left(&cluster, "e2e-orphan").await;
    assert!(!has_marks(&cluster.node(NODE).await));
    delete_node(&cluster).await;
}
