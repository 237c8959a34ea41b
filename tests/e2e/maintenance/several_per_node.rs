//! Several maintenances of one node, at the same time or one after another, do not interfere.

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use nm_shared::Phase;
use nm_shared::api::names::UNDO_ANNOTATION;
use nm_shared::cluster::node_lease;
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, stop, until_drained, until_gone, until_phase};
use nm_tests::nodes::configuration;
use nm_tests::reconciler::Reconciler;
use nm_tests::workload::{Workload, parse};
use serde_json::json;

// Case 26.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_maintenance_fails_and_takes_over_when_the_first_is_deleted() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let before = cluster.node(node).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-a-first", node).await;
    until_drained(&cluster, "e2e-a-first").await;
    start(&cluster, "e2e-b-second", node).await;
    let second = until_phase(&cluster, "e2e-b-second", Phase::Failed).await;
    let error = format!("a NodeMaintenance for node {node} already exists: e2e-a-first");
    assert_eq!(second.last_error, error);

    stop(&cluster, "e2e-a-first").await;
    let second = until_drained(&cluster, "e2e-b-second").await;
    assert_eq!(second.status.unwrap().last_error, "");
    assert_eq!(
        cluster.node(node).await.spec.and_then(|spec| spec.unschedulable),
        Some(true),
        "still cordoned"
    );
    stop(&cluster, "e2e-b-second").await;
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before));
}

// Case 26.
#[tokio::test(flavor = "multi_thread")]
async fn deleting_a_second_failed_maintenance_leaves_the_node_to_the_first() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let before = cluster.node(node).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-a-stays", node).await;
    until_drained(&cluster, "e2e-a-stays").await;
    let in_maintenance = cluster.node(node).await;
    start(&cluster, "e2e-b-goes", node).await;
    until_phase(&cluster, "e2e-b-goes", Phase::Failed).await;
    stop(&cluster, "e2e-b-goes").await;
    let after = cluster.node(node).await;
    assert_eq!(configuration(&after), configuration(&in_maintenance), "cordoned as before");
    assert!(after.annotations().contains_key(UNDO_ANNOTATION), "with its undo record");
    let lease = cluster.node_leases().get_opt(&node_lease::name(node)).await.unwrap();
    assert!(lease.is_some(), "with its lease");

    stop(&cluster, "e2e-a-stays").await;
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_deleted_without_its_finalizer_does_not_affect_the_next() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "torn").await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-torn", node).await;
    until_drained(&cluster, "e2e-torn").await;
    let without_finalizers = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    cluster.maintenances().delete("e2e-torn", &DeleteParams::default()).await.unwrap();
    // The object is gone after either this patch or the reconciler's, whichever comes first.
    let _ = cluster.maintenances().patch("e2e-torn", &PatchParams::default(), &without_finalizers).await;
    until_gone(&cluster, "e2e-torn").await;

    for name in ["one", "two"] {
        workload.pod_on(node, name, json!({})).await;
    }
    start(&cluster, "e2e-next", node).await;
    let status = until_drained(&cluster, "e2e-next").await.status.unwrap();
    assert!(status.eviction_pods >= 2, "{status:?}");
    assert!(
        workload.pods().list(&ListParams::default()).await.unwrap().items.is_empty(),
        "all pods are gone"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_created_during_its_maintenance_returns_to_its_original_state() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "only a sandbox lets nodes appear").await else { return };
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-early", "late-node").await;
    until_phase(&cluster, "e2e-early", Phase::Failed).await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let late = parse(json!({"metadata": {"name": "late-node"}, "spec": {"unschedulable": true}}));
    nodes.create(&PostParams::default(), &late).await.unwrap();
    until_drained(&cluster, "e2e-early").await;
    assert!(cluster.node("late-node").await.annotations().contains_key(UNDO_ANNOTATION));
    stop(&cluster, "e2e-early").await;
    let after = cluster.node("late-node").await;
    assert_eq!(
        after.spec.as_ref().and_then(|spec| spec.unschedulable),
        Some(true),
        "it was created cordoned"
    );
    assert!(!after.annotations().contains_key(UNDO_ANNOTATION));
}
