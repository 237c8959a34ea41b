//! Changes of `spec.drain` during a drain keep what it has done and counted so far.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use nm_shared::api::condition::{ConditionType, find, is_true};
use nm_shared::{BlockReason, BlockedPod, NodeMaintenanceStatus, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{
    patch_drain, start, start_with_drain, stop, until_drained, until_observed, until_phase, until_status,
};
use nm_tests::nodes::configuration;
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::evictions;
use nm_tests::wait::wait_until;
use nm_tests::workload::Workload;
use serde_json::{Value, json};

const LONG_AGO: &str = "2026-01-01T00:00:00Z";

/// The blocked pods, and the reason of each.
fn blocked(status: &NodeMaintenanceStatus) -> Vec<(&str, BlockReason)> {
    status.blocked_pods.iter().map(|pod| (pod.name.as_str(), pod.reason)).collect()
}

/// All pods, and those to evict.
fn counts(status: &NodeMaintenanceStatus) -> (i32, i32) {
    (status.total_pods, status.eviction_pods)
}

/// Since when a pod is blocked, and how often its eviction was refused since.
fn history(status: &NodeMaintenanceStatus, pod: &str) -> (String, i32) {
    let found = status.blocked_pods.iter().find(|blocked| blocked.name == pod);
    let BlockedPod { since, attempts, .. } = found.unwrap_or_else(|| panic!("{pod}: {status:?}"));
    (since.0.to_string(), *attempts)
}

/// Changes the status so that the blocked pods have been blocked for a long time.
async fn backdate_blocked_pods(cluster: &Cluster, name: &str, status: &NodeMaintenanceStatus) {
    let mut blocked_pods = json!(status.blocked_pods);
    for pod in blocked_pods.as_array_mut().unwrap() {
        pod["since"] = json!(LONG_AGO);
    }
    let backdated = Patch::Merge(json!({"status": {"blockedPods": blocked_pods}}));
    cluster.maintenances().patch_status(name, &PatchParams::default(), &backdated).await.unwrap();
}

// Case 31.
#[tokio::test(flavor = "multi_thread")]
async fn deselecting_and_reselecting_pods_changes_no_count() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "chosen").await;
    for name in ["one", "two"] {
        workload.pod_on(node, name, json!({})).await;
        workload.budget(name, 1).await;
    }
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-chosen", node).await;
    let both = [("one", BlockReason::DisruptionBudget), ("two", BlockReason::DisruptionBudget)];
    let status = until_status(&cluster, "e2e-chosen", "both are blocked", |status| {
        blocked(status) == both && status.blocked_pods.iter().all(|pod| pod.attempts == 1)
    })
    .await;
    let (counted, skipped) = (counts(&status), status.pod_counts.staying);
    backdate_blocked_pods(&cluster, "e2e-chosen", &status).await;

    patch_drain(&cluster, "e2e-chosen", json!({"podSelector": {"matchLabels": {"app": "one"}}})).await;
    let status =
        until_status(&cluster, "e2e-chosen", "one of them stays", |status| blocked(status) == both[..1])
            .await;
    assert_eq!((status.pending_pods.as_slice(), counts(&status)), (&["one".to_owned()][..], counted));
    assert_eq!(history(&status, "one").0, LONG_AGO);
    assert!(status.pod_counts.staying > skipped, "the other is reported as staying: {status:?}");
    patch_drain(&cluster, "e2e-chosen", json!({"podSelector": null})).await;
    let status =
        until_status(&cluster, "e2e-chosen", "both are blocked again", |status| blocked(status) == both)
            .await;
    assert_eq!(status.pod_counts.staying, skipped);
    assert_eq!((history(&status, "one").0.as_str(), counts(&status)), (LONG_AGO, counted));
    assert!(history(&status, "two").1 >= 1, "its earlier refusal counts");

    for name in ["one", "two"] {
        workload.delete_budget(name).await;
    }
    let status = until_drained(&cluster, "e2e-chosen").await.status.unwrap();
    assert_eq!((counts(&status), status.drain_progress), (counted, 100));
    stop(&cluster, "e2e-chosen").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_are_not_selected_stay_and_are_reported_as_staying() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "selected").await;
    for name in ["goes", "stays"] {
        workload.pod_on(node, name, json!({})).await;
    }
    let _reconciler = Reconciler::start(&cluster);
    start_with_drain(
        &cluster,
        "e2e-selected",
        node,
        json!({"podSelector": {"matchLabels": {"app": "goes"}}}),
    )
    .await;
    let status = until_drained(&cluster, "e2e-selected").await.status.unwrap();
    assert_eq!((status.eviction_pods, status.pod_counts.gone, status.drain_progress), (1, 1, 100));
    assert_eq!(status.pod_counts.staying, status.total_pods - 1, "{status:?}");
    let stays = workload.pods().get("stays").await.unwrap();
    assert_eq!(stays.metadata.deletion_timestamp, None);
    if let Some(sandbox) = cluster.sandbox() {
        let evicted: Vec<String> = evictions(sandbox).into_iter().map(|entry| entry.name).collect();
        assert_eq!(evicted, ["goes"]);
    }
    stop(&cluster, "e2e-selected").await;
}

/// A selector that the schema allows and that is invalid: there is no such operator.
fn invalid_selector() -> Value {
    json!({"podSelector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}})
}

/// The status after the drain failed because of its selector. All fields report the same error.
async fn until_failed_by_selector(cluster: &Cluster, name: &str) -> NodeMaintenanceStatus {
    let status = until_phase(cluster, name, Phase::Failed).await;
    let error = "spec.drain.podSelector: failed to parse value as expression: Invalid expression operator";
    assert_eq!(status.last_error, error);
    for (type_, expected) in [(ConditionType::Drained, "False"), (ConditionType::Degraded, "True")] {
        let condition = find(&status.conditions, type_).unwrap();
        assert_eq!((condition.status.as_str(), condition.reason.as_str()), (expected, "InvalidDrain"));
    }
    status
}

// Case 31.
#[tokio::test(flavor = "multi_thread")]
async fn a_selector_that_becomes_invalid_evicts_no_pod_until_it_is_fixed() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "invalid").await;
    workload.pod_on(node, "guarded", json!({})).await;
    workload.budget("guarded", 1).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-invalid", node).await;
    let refused = |status: &NodeMaintenanceStatus| {
        blocked(status) == [("guarded", BlockReason::DisruptionBudget)]
            && status.blocked_pods[0].attempts == 1
    };
    let counted = counts(&until_status(&cluster, "e2e-invalid", "refused once", refused).await);

    patch_drain(&cluster, "e2e-invalid", invalid_selector()).await;
    let status = until_failed_by_selector(&cluster, "e2e-invalid").await;
    assert!(is_true(&status.conditions, ConditionType::Cordoned), "the node stays cordoned: {status:?}");
    workload.delete_budget("guarded").await;
    patch_drain(&cluster, "e2e-invalid", json!({"gracePeriodSeconds": 2})).await;
    until_observed(&cluster, "e2e-invalid", 3).await;
    assert_eq!(workload.pods().get("guarded").await.unwrap().metadata.deletion_timestamp, None);

    patch_drain(&cluster, "e2e-invalid", json!({"podSelector": null})).await;
    let status = until_drained(&cluster, "e2e-invalid").await.status.unwrap();
    assert_eq!((counts(&status), status.last_error.as_str()), (counted, ""));
    assert!(!is_true(&status.conditions, ConditionType::Degraded), "{status:?}");
    stop(&cluster, "e2e-invalid").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_selector_evicts_no_pod_and_the_node_returns_to_service() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let before = cluster.node(node).await;
    let workload = Workload::new(&cluster, "beginning").await;
    workload.pod_on(node, "cart", json!({})).await;
    let _reconciler = Reconciler::start(&cluster);
    start_with_drain(&cluster, "e2e-beginning", node, invalid_selector()).await;
    let status = until_failed_by_selector(&cluster, "e2e-beginning").await;
    assert!(is_true(&status.conditions, ConditionType::Cordoned), "{status:?}");
    assert_eq!(cluster.node(node).await.spec.unwrap().unschedulable, Some(true), "as the status reports");
    stop(&cluster, "e2e-beginning").await;
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before));
    assert_eq!(workload.pods().get("cart").await.unwrap().metadata.deletion_timestamp, None);
}

// Case 31.
#[tokio::test(flavor = "multi_thread")]
async fn protections_against_data_loss_can_be_changed_without_restarting_the_drain() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "loss").await;
    let volume = json!({"spec": {"volumes": [{"name": "cache", "emptyDir": {}}]}});
    workload.pod_on(node, "cache", volume).await;
    workload.budget("cache", 1).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-loss", node).await;
    let blocked_by = |reason| move |status: &NodeMaintenanceStatus| blocked(status) == [("cache", reason)];
    let refused = |status: &NodeMaintenanceStatus| {
        blocked_by(BlockReason::DisruptionBudget)(status) && status.blocked_pods[0].attempts == 1
    };
    let status = until_status(&cluster, "e2e-loss", "blocked by its budget", refused).await;
    let (counted, first) = (counts(&status), history(&status, "cache").0);

    for (drain, reason, message) in [
        (
            json!({"deleteEmptyDirData": false}),
            BlockReason::LocalStorage,
            "has emptyDir volumes and spec.drain.deleteEmptyDirData is false, and no controller would replace it",
        ),
        (
            json!({"deleteEmptyDirData": true, "force": false}),
            BlockReason::Unmanaged,
            "has no controller that would replace it and spec.drain.force is false",
        ),
    ] {
        patch_drain(&cluster, "e2e-loss", drain).await;
        let status = until_status(&cluster, "e2e-loss", "blocked by the spec", blocked_by(reason)).await;
        assert_eq!(status.blocked_pods[0].message, message);
        assert!(status.last_error.contains(reason.as_str()), "{}", status.last_error);
        assert_eq!(counts(&status), counted);
        backdate_blocked_pods(&cluster, "e2e-loss", &status).await;
    }
    // Changing another field keeps the reason and its time.
    patch_drain(&cluster, "e2e-loss", json!({"gracePeriodSeconds": 2})).await;
    let status = until_observed(&cluster, "e2e-loss", 4).await;
    assert_eq!(history(&status, "cache").0, LONG_AGO);

    patch_drain(&cluster, "e2e-loss", json!({"force": true})).await;
    let status = until_status(
        &cluster,
        "e2e-loss",
        "blocked by its budget again",
        blocked_by(BlockReason::DisruptionBudget),
    )
    .await;
    let (since, attempts) = history(&status, "cache");
    // It was not evicted while the spec protected it, so no refusal counts from that time.
    let is_new = since >= first && since.as_str() != LONG_AGO;
    assert!(is_new && attempts >= 1, "it is blocked since a new time: {status:?}");

    let has_new_grace =
        |pod: Option<&Pod>| pod.is_some_and(|pod| pod.metadata.deletion_grace_period_seconds == Some(2));
    let pods = workload.pods();
    let ending = wait_until(&pods, "cache", "it terminates with the new grace period", has_new_grace);
    let ((), _) = tokio::join!(workload.delete_budget("cache"), ending);
    let status = until_drained(&cluster, "e2e-loss").await.status.unwrap();
    assert_eq!(counts(&status), counted);
    stop(&cluster, "e2e-loss").await;
}
