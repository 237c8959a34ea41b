//! A node goes into maintenance, is drained, and returns to service.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use nm_shared::NodeMaintenanceStatus;
use nm_shared::api::names::{DRAIN_TAINT, EXCLUDE_LABEL, FINALIZER, UNDO_ANNOTATION, UNSCHEDULABLE_TAINT};
use nm_shared::cluster::pod::{DrainPod, daemon_set, is_mirror};
use nm_shared::{NodeMaintenance, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::events::{until_event, until_events};
use nm_tests::maintenance::{
    plan, start, stop, suspend, until_drained, until_gone, until_phase, until_status,
};
use nm_tests::nodes::configuration;
use nm_tests::reconciler::Reconciler;
use nm_tests::wait::wait_until;
use nm_tests::workload::{Workload, node_of, pods_on, with_finalizer};
use serde_json::json;

/// How many of these pods a drain evicts. A real cluster's nodes also run pods of their own.
fn movable(pods: &[Pod]) -> i32 {
    let stays = |pod: &&Pod| {
        let pod = &DrainPod::from(*pod);
        daemon_set(pod).is_some() || is_mirror(pod)
    };
    i32::try_from(pods.len() - pods.iter().filter(stays).count()).unwrap()
}

// Cases 1, 2 and 17.
// Defect kubevirt/node-maintenance-operator#20: The node lifecycle controller adds or removes the taint
// `unschedulable` at the same time, and it is sometimes left behind.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_drained_and_returned_to_service_exactly_as_it_was() {
    let cluster = Cluster::start(3).await;
    let nodes = cluster.nodes().await;
    let workload = Workload::new(&cluster, "happy").await;
    workload.deployment("web", 6).await;
    let node = &nodes[1];
    workload.pod_on(node, "alone-1", json!({})).await;
    workload.pod_on(node, "alone-2", json!({})).await;
    let before = cluster.node(node).await;
    let there = pods_on(&cluster.client, node).await;

    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-happy", node).await;
    let maintenance = until_drained(&cluster, "e2e-happy").await;

    let status = maintenance.status.clone().unwrap();
    assert_eq!(status.phase, Some(Phase::Succeeded));
    assert_eq!(status.total_pods, i32::try_from(there.len()).unwrap());
    assert_eq!(status.eviction_pods, movable(&there));
    assert_eq!((status.drain_progress, status.pod_counts.gone), (100, status.eviction_pods));
    assert!(
        status.pending_pods.is_empty() && status.pending_pods_refs.is_empty() && status.last_error.is_empty()
    );
    assert!(status.last_update.is_some());
    let cordoned = cluster.node(node).await;
    let spec = cordoned.spec.clone().unwrap();
    let mut taints: Vec<String> =
        spec.taints.unwrap_or_default().into_iter().map(|taint| taint.key).collect();
    taints.sort();
    assert_eq!(
        (spec.unschedulable, taints),
        (Some(true), vec![DRAIN_TAINT.to_owned(), UNSCHEDULABLE_TAINT.to_owned()])
    );
    assert_eq!(cordoned.labels().get(EXCLUDE_LABEL).map(String::as_str), Some("true"));
    let web = workload.until_running("web", 6).await;
    assert!(web.iter().all(|pod| node_of(pod) != node), "the workload runs elsewhere");
    let expected = ["BeginMaintenance", "SucceedMaintenance"];
    assert_eq!(until_events(&cluster, &maintenance, &expected).await, expected);

    stop(&cluster, "e2e-happy").await;
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before));
    until_event(&cluster, &maintenance, "RemovedMaintenance").await;
    until_event(&cluster, &before, "UncordonNode").await;
}

// Case 3.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_status_is_running_with_all_pods_pending() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "first").await;
    for name in ["one", "two"] {
        workload.pod_on(node, name, with_finalizer()).await;
    }
    let movable = movable(&pods_on(&cluster.client, node).await);

    start(&cluster, "e2e-first", node).await;
    let _reconciler = Reconciler::start(&cluster);
    let first = |found: Option<&NodeMaintenance>| found.is_some_and(|found| found.status.is_some());
    let status =
        wait_until(&cluster.maintenances(), "e2e-first", "a status", first).await.unwrap().status.unwrap();
    assert_eq!((status.phase, status.drain_progress), (Some(Phase::Running), 0));
    assert_eq!(
        (status.eviction_pods, status.pending_pods.len()),
        (movable, usize::try_from(movable).unwrap())
    );
    let pending: Vec<String> = status.pending_pods_refs.iter().map(ToString::to_string).collect();
    for name in ["one", "two"] {
        assert!(pending.contains(&format!("{}/{name}", workload.namespace())), "{pending:?}");
    }

    for name in ["one", "two"] {
        workload.remove_finalizers(name).await;
    }
    until_drained(&cluster, "e2e-first").await;
}

// Case 4.
#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_that_has_a_phase_keeps_its_counts() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    start(&cluster, "e2e-counts", node).await;
    let begun = json!({"status": {"phase": "Running", "totalpods": 7, "evictionPods": 5}});
    let maintenances = cluster.maintenances();
    maintenances.patch_status("e2e-counts", &PatchParams::default(), &Patch::Merge(begun)).await.unwrap();

    let _reconciler = Reconciler::start(&cluster);
    let status = until_drained(&cluster, "e2e-counts").await.status.unwrap();
    assert_eq!((status.total_pods, status.eviction_pods, status.drain_progress), (7, 5, 100));
}

// Case 5.
#[tokio::test(flavor = "multi_thread")]
async fn labels_and_taints_of_others_survive_drain_and_return_to_service() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let marks = json!({
        "metadata": {"labels": {"example.com/team": "blue"}, "annotations": {"example.com/note": "keep"}},
        "spec": {"taints": [{"key": "example.com/dedicated", "value": "gpu", "effect": "NoSchedule"}]},
    });
    let before = nodes.patch(node, &PatchParams::default(), &Patch::Merge(marks)).await.unwrap();

    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-foreign", node).await;
    until_drained(&cluster, "e2e-foreign").await;
    let there = configuration(&cluster.node(node).await);
    assert_eq!(there["labels"]["example.com/team"], "blue");
    assert_eq!(there["annotations"]["example.com/note"], "keep");
    let taints = there["taints"].as_array().unwrap();
    assert!(taints.iter().any(|taint| taint["key"] == "example.com/dedicated" && taint["value"] == "gpu"));
    let late = Patch::Merge(json!({"metadata": {"labels": {"example.com/late": "yes"}}}));
    nodes.patch(node, &PatchParams::default(), &late).await.unwrap();

    stop(&cluster, "e2e-foreign").await;
    let mut expected = configuration(&before);
    expected["labels"]["example.com/late"] = json!("yes");
    assert_eq!(configuration(&cluster.node(node).await), expected);
}

// Case 6.
// Defect aws/aws-node-termination-handler#331: The node was deleted meanwhile. The program crashes, and other nodes
// wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_of_a_missing_node_fails() {
    let cluster = Cluster::start(1).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-missing", "no-such-node").await;
    until_phase(&cluster, "e2e-missing", Phase::Failed).await;
    let found = cluster.maintenances().get("e2e-missing").await.unwrap();
    assert_eq!(found.status.as_ref().unwrap().last_error, "nodes \"no-such-node\" not found");
    let expected = ["BeginMaintenance", "FailedMaintenance"];
    assert_eq!(until_events(&cluster, &found, &expected).await, expected);
    stop(&cluster, "e2e-missing").await;
    let events = until_event(&cluster, &found, "RemovedMaintenance").await;
    assert!(!events.iter().any(|reason| reason == "SucceedMaintenance"));
}

// Case 14.
#[tokio::test(flavor = "multi_thread")]
async fn with_another_finalizer_ours_is_removed_and_the_node_returns_to_service() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let before = cluster.node(node).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-held", node).await;
    until_drained(&cluster, "e2e-held").await;
    let maintenances = cluster.maintenances();
    let both = Patch::Merge(json!({"metadata": {"finalizers": [FINALIZER, "example.com/hold"]}}));
    maintenances.patch("e2e-held", &PatchParams::default(), &both).await.unwrap();

    maintenances.delete("e2e-held", &DeleteParams::default()).await.unwrap();
    let released = |found: Option<&NodeMaintenance>| {
        found.is_some_and(|found| found.finalizers() == ["example.com/hold".to_owned()])
    };
    wait_until(&maintenances, "e2e-held", "without our finalizer", released).await;
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before));
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maintenances.patch("e2e-held", &PatchParams::default(), &free).await.unwrap();
    until_gone(&cluster, "e2e-held").await;
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before), "the node stays in service");
}

// Case 25.
// Defect rancher/system-upgrade-controller#341, NVIDIA/k8s-driver-manager#212, rancher/rancher#44643,
// siderolabs/talos-controller-manager#31, kubereboot/kured#929: At the end of its work, the controller uncordons a
// node that somebody else had cordoned.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_cordoned_before_its_maintenance_stays_cordoned_after_it() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    nodes.cordon(node).await.unwrap();
    let settled = |node: Option<&Node>| {
        // Some clusters add the taint `unschedulable` as well; others do not.
        node.and_then(|node| node.spec.as_ref()).is_some_and(|spec| spec.unschedulable == Some(true))
    };
    wait_until(&nodes, node, "cordoned", settled).await;

    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-before", node).await;
    until_drained(&cluster, "e2e-before").await;
    assert!(cluster.node(node).await.annotations().contains_key(UNDO_ANNOTATION));
    stop(&cluster, "e2e-before").await;
    let after = cluster.node(node).await;
    assert_eq!(after.spec.as_ref().and_then(|spec| spec.unschedulable), Some(true));
    assert!(
        !after.labels().contains_key(EXCLUDE_LABEL) && !after.annotations().contains_key(UNDO_ANNOTATION)
    );
    let taints = after.spec.and_then(|spec| spec.taints).unwrap_or_default();
    assert!(taints.iter().all(|taint| taint.key != DRAIN_TAINT));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_behind_a_budget_is_reported_as_blocked_and_evicted_when_the_budget_allows_it() {
    let cluster = Cluster::start(2).await;
    let workload = Workload::new(&cluster, "budget").await;
    let node = node_of(&workload.pod_behind_budget("cart").await).to_owned();

    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-budget", &node).await;
    let refused =
        |status: &NodeMaintenanceStatus| status.blocked_pods.first().is_some_and(|pod| pod.attempts == 1);
    let status = until_status(&cluster, "e2e-budget", "refused once", refused).await;
    let pod = &status.blocked_pods[0];
    assert_eq!(pod.reason, nm_shared::BlockReason::DisruptionBudget);
    assert_eq!(pod.message, "The disruption budget cart needs 1 healthy pods and has 1 currently");
    assert_eq!(status.last_error, format!("1 pod is blocked: {} (DisruptionBudget)", pod.reference()));

    let two = Patch::Merge(json!({"spec": {"replicas": 2}}));
    workload.deployments().patch("cart", &PatchParams::default(), &two).await.unwrap();
    let status = until_drained(&cluster, "e2e-budget").await.status.unwrap();
    assert!(status.blocked_pods.is_empty() && status.last_error.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reconciler_killed_during_a_drain_is_succeeded_by_one_that_finishes_it() {
    let cluster = Cluster::start(3).await;
    let workload = Workload::new(&cluster, "crash").await;
    let node = node_of(&workload.pod_behind_budget("cart").await).to_owned();
    let before = cluster.node(&node).await;

    let first = Reconciler::start(&cluster);
    start(&cluster, "e2e-crash", &node).await;
    let counted =
        until_status(&cluster, "e2e-crash", "blocked", |status| status.pod_counts.blocked == 1).await;
    let halfway = cluster.maintenances().get("e2e-crash").await.unwrap();
    until_event(&cluster, &halfway, "BeginMaintenance").await;
    first.crash().await;

    workload.delete_budget("cart").await;
    let _second = Reconciler::start(&cluster);
    let done = until_drained(&cluster, "e2e-crash").await;
    let status = done.status.as_ref().unwrap();
    assert_eq!((status.total_pods, status.eviction_pods), (counted.total_pods, counted.eviction_pods));
    let expected = ["BeginMaintenance", "SucceedMaintenance"];
    assert_eq!(until_events(&cluster, &done, &expected).await, expected, "one begin event");
    stop(&cluster, "e2e-crash").await;
    assert_eq!(configuration(&cluster.node(&node).await), configuration(&before));
}

#[tokio::test(flavor = "multi_thread")]
async fn node_conditions_show_the_state_of_the_maintenance_where_enabled() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let has = |node: Option<&Node>, expected: &[(&str, &str)]| {
        let conditions =
            node.and_then(|node| node.status.as_ref()?.conditions.as_deref()).unwrap_or_default();
        let found = |type_: &str| conditions.iter().find(|c| c.type_ == type_).map(|c| c.status.as_str());
        expected.iter().all(|(type_, status)| found(type_).unwrap_or("-") == *status)
    };
    cluster.grant("node_conditions").await;
    let _reconciler = Reconciler::start_with(&cluster, &["--node-conditions"]);
    let workload = Workload::new(&cluster, "conditions").await;
    workload.pod_on(node, "held", with_finalizer()).await;
    plan(&cluster, "e2e-conditions", node).await;
    let planned = [("MaintenancePlanned", "True"), ("DrainInProgress", "-"), ("MaintenanceInProgress", "-")];
    wait_until(&nodes, node, "planned", |node| has(node, &planned)).await;
    suspend(&cluster, "e2e-conditions", false).await;
    let draining = [("DrainInProgress", "True"), ("Drained", "False"), ("MaintenanceInProgress", "True")];
    wait_until(&nodes, node, "draining", |node| has(node, &draining)).await;
    workload.remove_finalizers("held").await;
    let drained = [("DrainInProgress", "False"), ("Drained", "True"), ("MaintenanceInProgress", "True")];
    wait_until(&nodes, node, "drained", |node| has(node, &drained)).await;
    stop(&cluster, "e2e-conditions").await;
    let nothing =
        [("DrainInProgress", "-"), ("Drained", "-"), ("MaintenanceInProgress", "-"), ("Ready", "True")];
    wait_until(&nodes, node, "as before", |node| has(node, &nothing)).await;
}
