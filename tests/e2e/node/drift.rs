//! A maintenance restores what others change on the node, for as long as it exists.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use nm_shared::Group;
use nm_shared::api::condition::{ConditionType, is_true};
use nm_shared::drain::node_patch::{has_drain_taint, has_record, is_cordoned};
use nm_shared::{NodeMaintenanceStatus, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::events::until_event;
use nm_tests::maintenance::{start, stop, until_drained, until_status};
use nm_tests::nodes::{configuration, until_cordoned};
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::wait::wait_until;
use nm_tests::workload::{Workload, with_finalizer};
use serde_json::json;

/// Does what `kubectl uncordon` does: it leaves taints and labels.
async fn uncordon(nodes: &Api<Node>, node: &str) {
    let schedulable = Patch::Merge(json!({"spec": {"unschedulable": false}}));
    nodes.patch(node, &PatchParams::default(), &schedulable).await.unwrap();
}

fn has_pending(status: &NodeMaintenanceStatus, pod: &str) -> bool {
    status.pending_pods.iter().any(|pending| pending == pod)
}

// Case 27.
// Defect openshift/machine-config-operator#6028, kubevirt/node-maintenance-operator#46: Somebody uncordons the node
// during the drain. This is not noticed, and the drain is reported as complete.
#[tokio::test(flavor = "multi_thread")]
async fn an_uncordoned_node_is_cordoned_again_and_still_returned_to_its_original_state() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let before = cluster.node(node).await;
    let workload = Workload::new(&cluster, "uncordoned").await;
    workload.pod_on(node, "held", with_finalizer()).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-uncordoned", node).await;
    until_status(&cluster, "e2e-uncordoned", "draining", |status| has_pending(status, "held")).await;

    uncordon(&nodes, node).await;
    until_cordoned(&cluster, node).await;
    workload.remove_finalizers("held").await;
    let maintenance = until_drained(&cluster, "e2e-uncordoned").await;
    until_event(&cluster, &maintenance, "RecordonNode").await;
    until_event(&cluster, &before, "RecordonNode").await;

    uncordon(&nodes, node).await;
    until_cordoned(&cluster, node).await;
    let drained = until_drained(&cluster, "e2e-uncordoned").await;
    assert_eq!(drained.status.unwrap().phase, Some(Phase::Succeeded), "the phase stays");
    stop(&cluster, "e2e-uncordoned").await;
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cordon_that_is_kept_has_no_gap() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, node, node).await;
    until_drained(&cluster, node).await;
    let is_cordoned = |node: &Node| node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
    let is_released = |found: Option<&Node>| {
        let found = found.unwrap();
        assert!(is_cordoned(found), "it was schedulable: {found:#?}");
        !has_drain_taint(found, Group::Medik8s)
    };
    let stop = ["stop", node, "--keep-cordon", "--wait", "--timeout", "60s"];
    let stop = plugin(&cluster, &stop);
    let (stopped, left) = tokio::join!(stop, wait_until(&nodes, node, "released", is_released));
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert!(stopped.stdout.contains("maintenance stopped: stays cordoned"), "{stopped:?}");
    until_event(&cluster, &left.unwrap(), "CordonKept").await;
    let after = cluster.node(node).await;
    assert!(is_cordoned(&after) && !has_record(&after));

    // Nobody uncordons it before the next one, so it stays cordoned as before.
    start(&cluster, node, node).await;
    until_drained(&cluster, node).await;
    let stopped = plugin(&cluster, &["stop", node, "--wait", "--timeout", "60s"]).await;
    assert!(stopped.stdout.contains("maintenance stopped: stays cordoned, as before"), "{stopped:?}");
    uncordon(&nodes, node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_cordoned_before_its_maintenance_stays_cordoned_even_if_uncordoned_meanwhile() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    nodes.cordon(node).await.unwrap();
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-twice", node).await;
    until_drained(&cluster, "e2e-twice").await;
    uncordon(&nodes, node).await;
    until_cordoned(&cluster, node).await;
    stop(&cluster, "e2e-twice").await;
    let after = cluster.node(node).await;
    assert_eq!(after.spec.as_ref().and_then(|spec| spec.unschedulable), Some(true));
    assert!(!is_cordoned(&after, Group::Medik8s), "the marks of the maintenance are removed");
}

// Case 29.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_arrives_after_the_drain_is_evicted_too() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "late").await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-late", node).await;
    let counted = until_drained(&cluster, "e2e-late").await.status.unwrap();

    workload.create_pod(node, "late", with_finalizer()).await;
    let status =
        until_status(&cluster, "e2e-late", "the late pod is seen", |status| has_pending(status, "late"))
            .await;
    assert_eq!(status.phase, Some(Phase::Succeeded));
    assert!(!is_true(&status.conditions, ConditionType::Drained), "{status:?}");
    workload.remove_finalizers("late").await;
    let done = until_drained(&cluster, "e2e-late").await;
    let status = done.status.clone().unwrap();
    assert_eq!((status.total_pods, status.eviction_pods), (counted.total_pods, counted.eviction_pods));
    assert!(status.pending_pods.is_empty() && status.last_error.is_empty(), "{status:?}");
    assert_eq!(status.first_drained_at(), counted.first_drained_at(), "the drain took no longer for it");
    let left = workload.pods().get_opt("late").await.unwrap();
    assert!(left.is_none());
    stop(&cluster, "e2e-late").await;
    let events = until_event(&cluster, &done, "RemovedMaintenance").await;
    assert_eq!(
        events,
        ["BeginMaintenance", "SucceedMaintenance", "RemovedMaintenance"],
        "success is reported once"
    );
}
