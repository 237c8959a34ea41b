//! A node that is deleted during its maintenance.
//!
//! The test creates the node, which has no kubelet.

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use kube_sandbox::request_log::Entry;
use kube_sandbox::sandbox::Sandbox;
use nm_shared::Phase;
use nm_shared::api::names::{DRAIN_TAINT, EXCLUDE_LABEL, UNDO_ANNOTATION};
use nm_shared::cluster::node_lease;
use nm_tests::cluster::{Cluster, SUITE_LABEL, has_sandbox, may_own_maintenances};
use nm_tests::maintenance::{start, stop, until_drained, until_gone, until_phase, until_status};
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::is_by_reconciler;
use nm_tests::wait::wait_until;
use nm_tests::workload::{Workload, parse, with_finalizer};
use serde_json::json;

const NODE: &str = "e2e-short-lived";

async fn create_node(cluster: &Cluster) -> Node {
    let node = json!({"metadata": {"name": NODE, "labels": {SUITE_LABEL: ""}}});
    Api::<Node>::all(cluster.client.clone()).create(&PostParams::default(), &parse(node)).await.unwrap()
}

async fn delete_node(cluster: &Cluster) {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    nodes.delete(NODE, &DeleteParams::default()).await.unwrap();
    wait_until(&nodes, NODE, "gone", |node| node.is_none()).await;
}

/// Waits until the maintenance of the deleted node and its lease are gone.
async fn until_cleaned_up(cluster: &Cluster, name: &str) {
    until_gone(cluster, name).await;
    wait_until(&cluster.node_leases(), &node_lease::name(NODE), "the lease is gone", |lease| lease.is_none())
        .await;
}

/// Drains another node, so that the reconciler has done whatever it does about the deleted one.
async fn drain_another(cluster: &Cluster, name: &str, node: &str) {
    start(cluster, name, node).await;
    until_drained(cluster, name).await;
    stop(cluster, name).await;
}

fn has_marks(node: &Node) -> bool {
    let spec = node.spec.clone().unwrap_or_default();
    spec.unschedulable == Some(true)
        || spec.taints.unwrap_or_default().iter().any(|taint| taint.key == DRAIN_TAINT)
        || node.labels().contains_key(EXCLUDE_LABEL)
        || node.annotations().contains_key(UNDO_ANNOTATION)
}

/// Requests of the reconciler that failed. The node's deletion may overtake some, but none is retried forever.
fn refusals(cluster: &Cluster) -> Vec<Entry> {
    let Some(sandbox) = cluster.sandbox() else { return Vec::new() };
    let refused = |entry: &Entry| is_by_reconciler(entry) && entry.code >= 400;
    sandbox.requests().all().into_iter().filter(refused).collect()
}

// Case 28.
#[tokio::test(flavor = "multi_thread")]
async fn deleting_a_node_during_its_drain_deletes_the_maintenance_and_a_new_node_is_left_alone() {
    if !may_own_maintenances() {
        return;
    }
    let cluster = Cluster::start(1).await;
    let other = &cluster.nodes().await[0];
    create_node(&cluster).await;
    let workload = Workload::new(&cluster, "orphans").await;
    workload.create_pod(NODE, "held", with_finalizer()).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-orphan", NODE).await;
    let pending = |status: &nm_shared::NodeMaintenanceStatus| status.pending_pods == ["held"];
    until_status(&cluster, "e2e-orphan", "draining", pending).await;

    delete_node(&cluster).await;
    until_cleaned_up(&cluster, "e2e-orphan").await;
    create_node(&cluster).await;
    drain_another(&cluster, "e2e-other", other).await;
    assert!(!has_marks(&cluster.node(NODE).await), "the new node is not cordoned");
    let refusals = refusals(&cluster);
    assert!(refusals.len() <= 5, "{refusals:#?}");
    workload.remove_finalizers("held").await;
    delete_node(&cluster).await;
}

// Case 28.
// Defect kubevirt/node-maintenance-operator#92: The node is deleted, and the object and its lease stay.
#[tokio::test(flavor = "multi_thread")]
async fn deleting_a_node_after_its_drain_deletes_the_maintenance_and_its_lease() {
    if !may_own_maintenances() {
        return;
    }
    let cluster = Cluster::start(1).await;
    let other = &cluster.nodes().await[0];
    create_node(&cluster).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-orphan", NODE).await;
    until_drained(&cluster, "e2e-orphan").await;
    delete_node(&cluster).await;
    until_cleaned_up(&cluster, "e2e-orphan").await;
    drain_another(&cluster, "e2e-other", other).await;
    let refusals = refusals(&cluster);
    assert!(refusals.len() <= 5, "{refusals:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_recreated_while_no_reconciler_ran_is_left_alone() {
    if !may_own_maintenances() {
        return;
    }
    let cluster = Cluster::start(1).await;
    create_node(&cluster).await;
    let first = Reconciler::start(&cluster);
    start(&cluster, "e2e-orphan", NODE).await;
    until_drained(&cluster, "e2e-orphan").await;
    first.crash().await;
    delete_node(&cluster).await;
    let is_deleted = |found: Option<&nm_shared::NodeMaintenance>| {
        found.is_some_and(|found| found.metadata.deletion_timestamp.is_some())
    };
    wait_until(&cluster.maintenances(), "e2e-orphan", "garbage-collected", is_deleted).await;
    create_node(&cluster).await;
    let _second = Reconciler::start(&cluster);
    until_cleaned_up(&cluster, "e2e-orphan").await;
    assert!(!has_marks(&cluster.node(NODE).await));
    delete_node(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_without_an_owner_outlives_its_node_and_takes_a_new_one_of_that_name() {
    if !has_sandbox("it needs the admission plugin OwnerReferencesPermissionEnforcement") {
        return;
    }
    let cluster = Cluster::of_sandbox(1, 0, Sandbox::enforcing_owner_references).await;
    create_node(&cluster).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-orphan", NODE).await;
    until_drained(&cluster, "e2e-orphan").await;
    delete_node(&cluster).await;
    let failed = until_phase(&cluster, "e2e-orphan", Phase::Failed).await;
    assert_eq!(failed.last_error, format!("nodes {NODE:?} not found"));
    // Whoever cordoned the new node keeps the cordon.
    let cordoned = json!({"metadata": {"name": NODE}, "spec": {"unschedulable": true}});
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    nodes.create(&PostParams::default(), &parse(cordoned)).await.unwrap();
    until_drained(&cluster, "e2e-orphan").await;
    assert!(has_marks(&cluster.node(NODE).await));
    stop(&cluster, "e2e-orphan").await;
    let spec = cluster.node(NODE).await.spec.unwrap();
    assert_eq!(
        (
            spec.unschedulable,
            spec.taints.is_some_and(|taints| taints.iter().any(|taint| taint.key == DRAIN_TAINT))
        ),
        (Some(true), false)
    );
}
