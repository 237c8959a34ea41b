//! Several maintenances of one node, at once or one after another: what one leaves must not mislead the next.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use nm_shared::api::names::{LEASE_NAMESPACE, UNDO_ANNOTATION};
use nm_shared::cluster::node_lease;
use nm_shared::{NodeMaintenance, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::reconciler::Reconciler;
use nm_tests::until::until;
use nm_tests::workload::Workload;
use serde_json::json;

use crate::{configuration, drained, start, stop};

fn failed(found: Option<&NodeMaintenance>) -> bool {
    found.and_then(|found| found.status.as_ref()).is_some_and(|status| status.phase == Some(Phase::Failed))
}

// Case 26.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_maintenance_fails_and_takes_over_when_the_first_is_deleted() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let before = cluster.node(node).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-a-first", node).await;
    drained(&cluster, "e2e-a-first").await;
    start(&cluster, "e2e-b-second", node).await;
    let second = until(&cluster.maintenances(), "e2e-b-second", "failed", failed).await.unwrap();
    let error = format!("a NodeMaintenance for node {node} already exists: e2e-a-first");
    assert_eq!(second.status.unwrap().last_error, error);

    stop(&cluster, "e2e-a-first").await;
    let second = drained(&cluster, "e2e-b-second").await;
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
async fn a_second_maintenance_that_failed_goes_first_and_leaves_the_node_to_the_other() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let before = cluster.node(node).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-a-stays", node).await;
    drained(&cluster, "e2e-a-stays").await;
    let in_maintenance = cluster.node(node).await;
    start(&cluster, "e2e-b-goes", node).await;
    until(&cluster.maintenances(), "e2e-b-goes", "failed", failed).await;
    stop(&cluster, "e2e-b-goes").await;
    let after = cluster.node(node).await;
    assert_eq!(configuration(&after), configuration(&in_maintenance), "still cordoned, by the same marks");
    assert!(after.annotations().contains_key(UNDO_ANNOTATION), "and to be given back as it was");
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), LEASE_NAMESPACE);
    assert!(leases.get_opt(&node_lease::name(node)).await.unwrap().is_some(), "and leased");

    stop(&cluster, "e2e-a-stays").await;
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_that_was_torn_away_leaves_nothing_that_misleads_the_next() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "torn").await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-torn", node).await;
    drained(&cluster, "e2e-torn").await;
    let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    cluster.maintenances().delete("e2e-torn", &DeleteParams::default()).await.unwrap();
    // Whichever is faster, the reconciler or this patch: the object goes.
    let _ = cluster.maintenances().patch("e2e-torn", &PatchParams::default(), &bare).await;
    until(&cluster.maintenances(), "e2e-torn", "gone", |found| found.is_none()).await;

    for name in ["one", "two"] {
        workload.pod_on(node, name, json!({})).await;
    }
    start(&cluster, "e2e-next", node).await;
    let status = drained(&cluster, "e2e-next").await.status.unwrap();
    assert!(status.eviction_pods >= 2, "{status:?}");
    assert!(
        workload.pods().list(&ListParams::default()).await.unwrap().items.is_empty(),
        "they are gone indeed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_appears_under_its_maintenance_is_given_back_as_it_appeared() {
    let cluster = Cluster::start(1).await;
    if cluster.sandbox().is_none() {
        nm_tests::programs::skipped("only a sandbox lets nodes appear");
        return;
    }
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-early", "late-node").await;
    until(&cluster.maintenances(), "e2e-early", "failed", failed).await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let late = nm_tests::workload::parse(
        json!({"metadata": {"name": "late-node"}, "spec": {"unschedulable": true}}),
    );
    nodes.create(&PostParams::default(), &late).await.unwrap();
    drained(&cluster, "e2e-early").await;
    assert!(cluster.node("late-node").await.annotations().contains_key(UNDO_ANNOTATION));
    stop(&cluster, "e2e-early").await;
    let after = cluster.node("late-node").await;
    assert_eq!(
        after.spec.as_ref().and_then(|spec| spec.unschedulable),
        Some(true),
        "it was cordoned before us"
    );
    assert!(!after.annotations().contains_key(UNDO_ANNOTATION));
}
