//! The medik8s operator and the reconciler can take over each other's maintenances.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use nm_shared::Phase;
use nm_shared::api::names::{
    DRAIN_TAINT, EXCLUDE_LABEL, FINALIZER, LEASE_HOLDER, UNDO_ANNOTATION, UNSCHEDULABLE_TAINT,
};
use nm_shared::cluster::node_lease;
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, stop, until_drained, until_gone};
use nm_tests::nodes::configuration;
use nm_tests::reconciler::Reconciler;
use nm_tests::workload::{Workload, parse};
use serde_json::{Value, json};

/// Creates a maintenance of a node with two pods as the medik8s operator leaves it when it is stopped during the drain.
async fn started_by_medik8s(cluster: &Cluster, name: &str, node: &str) {
    let uid = cluster.node(node).await.metadata.uid.unwrap();
    let taint = |key| json!({"key": key, "effect": "NoSchedule"});
    let cordoned = json!({
        "metadata": {"labels": {EXCLUDE_LABEL: "true"}},
        "spec": {"unschedulable": true, "taints": [taint(DRAIN_TAINT), taint(UNSCHEDULABLE_TAINT)]},
    });
    cluster.patch_node(node, cordoned).await;
    let now = MicroTime(Timestamp::now());
    let lease: Lease = parse(json!({
        "metadata": {
            "name": node_lease::name(node),
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}],
        },
        "spec": {
            "holderIdentity": LEASE_HOLDER, "leaseDurationSeconds": 3600, "leaseTransitions": 0,
            "acquireTime": now, "renewTime": now,
        },
    }));
    // A test that failed may have left one on a shared cluster.
    let _ = cluster.node_leases().delete(&node_lease::name(node), &DeleteParams::default()).await;
    cluster.node_leases().create(&PostParams::default(), &lease).await.unwrap();
    start(cluster, name, node).await;
    let params = PatchParams::default();
    let finalizer = Patch::Merge(json!({"metadata": {"finalizers": [FINALIZER]}}));
    cluster.maintenances().patch(name, &params, &finalizer).await.unwrap();
    let status = Patch::Merge(json!({"status": {
        "phase": "Running", "drainProgress": 0, "totalpods": 7, "evictionPods": 5,
        "pendingPods": ["one", "two"], "lastUpdate": "2026-01-01T00:00:00Z",
        "lastError": "error when evicting pods/\"one\" -n \"shop\": global timeout reached: 30s",
    }}));
    cluster.maintenances().patch_status(name, &params, &status).await.unwrap();
}

/// Does what the medik8s operator does when a maintenance is deleted.
async fn stopped_by_medik8s(cluster: &Cluster, name: &str, node: &str) {
    cluster.maintenances().delete(name, &DeleteParams::default()).await.unwrap();
    let taints = cluster.node(node).await.spec.and_then(|spec| spec.taints).unwrap_or_default();
    let others: Vec<_> =
        taints.iter().filter(|taint| ![DRAIN_TAINT, UNSCHEDULABLE_TAINT].contains(&&*taint.key)).collect();
    cluster.patch_node(node, json!({"spec": {"unschedulable": false, "taints": others}})).await;
    cluster.patch_node(node, json!({"metadata": {"labels": {EXCLUDE_LABEL: null}}})).await;
    cluster.node_leases().delete(&node_lease::name(node), &DeleteParams::default()).await.unwrap();
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    cluster.maintenances().patch(name, &PatchParams::default(), &free).await.unwrap();
    until_gone(cluster, name).await;
}

// Case 34.
#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_that_the_medik8s_operator_started_is_finished_and_its_node_returned_to_service() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let before = cluster.node(node).await;
    let workload = Workload::new(&cluster, "begun").await;
    for name in ["one", "two"] {
        workload.pod_on(node, name, json!({})).await;
    }
    started_by_medik8s(&cluster, "e2e-begun", node).await;
    let lease = cluster.node_leases().get(&node_lease::name(node)).await.unwrap().spec.unwrap();

    let _reconciler = Reconciler::start(&cluster);
    let status = until_drained(&cluster, "e2e-begun").await.status.unwrap();
    assert_eq!((status.phase, status.drain_progress), (Some(Phase::Succeeded), 100));
    assert_eq!((status.total_pods, status.eviction_pods), (7, 5), "the operator's counts");
    assert_eq!(status.last_error, "");
    assert!(status.pending_pods.is_empty());
    let ours = cluster.node_leases().get(&node_lease::name(node)).await.unwrap().spec.unwrap();
    assert_eq!(ours.holder_identity, lease.holder_identity);
    assert_eq!(
        (ours.acquire_time, ours.lease_transitions),
        (lease.acquire_time, Some(0)),
        "the lease was not acquired again"
    );
    stop(&cluster, "e2e-begun").await;
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before));
    assert!(cluster.node_leases().get_opt(&node_lease::name(node)).await.unwrap().is_none());
}

// Case 34.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_maintenance_of_the_medik8s_operator_is_cleaned_up() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let before = cluster.node(node).await;
    started_by_medik8s(&cluster, "e2e-left", node).await;
    cluster.maintenances().delete("e2e-left", &DeleteParams::default()).await.unwrap();
    let _reconciler = Reconciler::start(&cluster);
    until_gone(&cluster, "e2e-left").await;
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before));
    assert!(cluster.node_leases().get_opt(&node_lease::name(node)).await.unwrap().is_none());
}

// Case 34.
#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_that_the_medik8s_operator_stopped_does_not_affect_the_next() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let mut before = Vec::new();
    let first = Reconciler::start(&cluster);
    for node in &nodes[..2] {
        before.push(cluster.node(node).await);
        start(&cluster, &format!("e2e-ours-{node}"), node).await;
        until_drained(&cluster, &format!("e2e-ours-{node}")).await;
    }
    first.crash().await;
    for node in &nodes[..2] {
        stopped_by_medik8s(&cluster, &format!("e2e-ours-{node}"), node).await;
    }
    // Meanwhile a user cordons one of the two nodes.
    Api::<Node>::all(cluster.client.clone()).cordon(&nodes[0]).await.unwrap();

    let _second = Reconciler::start(&cluster);
    for node in &nodes[..2] {
        start(&cluster, &format!("e2e-next-{node}"), node).await;
        until_drained(&cluster, &format!("e2e-next-{node}")).await;
        stop(&cluster, &format!("e2e-next-{node}")).await;
        assert!(cluster.node_leases().get_opt(&node_lease::name(node)).await.unwrap().is_none());
    }
    let cordoned = configuration(&cluster.node(&nodes[0]).await);
    assert_eq!(cordoned["unschedulable"], true, "cordoned by the user");
    assert!(cordoned["annotations"][UNDO_ANNOTATION].is_null());
    assert_eq!(cordoned["labels"], configuration(&before[0])["labels"]);
    let drain_taint = |taint: &Value| taint["key"] == DRAIN_TAINT;
    assert!(!cordoned["taints"].as_array().unwrap().iter().any(drain_taint));
    assert_eq!(configuration(&cluster.node(&nodes[1]).await), configuration(&before[1]));
}
