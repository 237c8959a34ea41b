//! A maintenance is kept up for as long as it exists, however others change the node meanwhile.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use nm_shared::Group;
use nm_shared::api::condition::{ConditionType, is_true};
use nm_shared::drain::node_patch::is_cordoned;
use nm_shared::{NodeMaintenanceStatus, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::events::events_until;
use nm_tests::reconciler::Reconciler;
use nm_tests::until::until;
use nm_tests::workload::{Workload, held};
use serde_json::json;

use crate::{configuration, drained, once, start, stop};

/// What `kubectl uncordon` does, and no more.
async fn uncordon(nodes: &Api<Node>, node: &str) {
    let schedulable = Patch::Merge(json!({"spec": {"unschedulable": false}}));
    nodes.patch(node, &PatchParams::default(), &schedulable).await.unwrap();
}

async fn until_cordoned(nodes: &Api<Node>, node: &str) {
    until(nodes, node, "cordoned again", |node| node.is_some_and(|node| is_cordoned(node, Group::Medik8s)))
        .await;
}

fn has_pending(status: &NodeMaintenanceStatus, pod: &str) -> bool {
    status.pending_pods.iter().any(|pending| pending == pod)
}

// Case 27.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_someone_uncordons_is_cordoned_again_and_still_given_back_as_it_was() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let before = cluster.node(node).await;
    let workload = Workload::new(&cluster, "uncordoned").await;
    workload.pod_on(node, "held", held()).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-uncordoned", node).await;
    once(&cluster, "e2e-uncordoned", "under way", |status| has_pending(status, "held")).await;

    uncordon(&nodes, node).await;
    until_cordoned(&nodes, node).await;
    workload.let_go("held").await;
    let maintenance = drained(&cluster, "e2e-uncordoned").await;
    events_until(&cluster, &maintenance, "RecordonNode").await;
    events_until(&cluster, &before, "RecordonNode").await;

    uncordon(&nodes, node).await;
    until_cordoned(&nodes, node).await;
    let drained = drained(&cluster, "e2e-uncordoned").await;
    assert_eq!(drained.status.unwrap().phase, Some(Phase::Succeeded), "it is not done anew");
    stop(&cluster, "e2e-uncordoned").await;
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_cordoned_before_is_so_again_even_if_someone_uncordoned_it_meanwhile() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    nodes.cordon(node).await.unwrap();
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-twice", node).await;
    drained(&cluster, "e2e-twice").await;
    uncordon(&nodes, node).await;
    until_cordoned(&nodes, node).await;
    stop(&cluster, "e2e-twice").await;
    let after = cluster.node(node).await;
    assert_eq!(after.spec.as_ref().and_then(|spec| spec.unschedulable), Some(true));
    assert!(!is_cordoned(&after, Group::Medik8s), "nothing of the maintenance is left");
}

// Case 29.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_arrives_after_the_drain_is_moved_too() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "late").await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-late", node).await;
    let counted = drained(&cluster, "e2e-late").await.status.unwrap();

    workload.place(node, "late", held()).await;
    let status =
        once(&cluster, "e2e-late", "the late pod is seen", |status| has_pending(status, "late")).await;
    assert_eq!(status.phase, Some(Phase::Succeeded));
    assert!(!is_true(&status.conditions, ConditionType::Drained), "{status:?}");
    workload.let_go("late").await;
    let done = drained(&cluster, "e2e-late").await;
    let status = done.status.clone().unwrap();
    assert_eq!((status.total_pods, status.eviction_pods), (counted.total_pods, counted.eviction_pods));
    assert!(status.pending_pods.is_empty() && status.last_error.is_empty(), "{status:?}");
    let left = workload.pods().get_opt("late").await.unwrap();
    assert!(left.is_none());
    stop(&cluster, "e2e-late").await;
    let told = events_until(&cluster, &done, "RemovedMaintenance").await;
    assert_eq!(told, ["BeginMaintenance", "SucceedMaintenance", "RemovedMaintenance"], "it succeeds once");
}
