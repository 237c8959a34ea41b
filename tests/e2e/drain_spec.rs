//! Which pods a drain moves is changed midway: what it has done and counted so far stays as it is.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use nm_shared::api::condition::{ConditionType, find, is_true};
use nm_shared::{BlockReason, BlockedPod, NodeMaintenance, NodeMaintenanceStatus, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::reconciler::Reconciler;
use nm_tests::until::until;
use nm_tests::workload::{Workload, parse};
use serde_json::{Value, json};

use crate::{change, configuration, drained, evictions, once, start, stop};

const LONG_AGO: &str = "2026-01-01T00:00:00Z";

/// Puts a node into maintenance with a drain of one's own.
async fn start_with(cluster: &Cluster, name: &str, node: &str, drain: Value) {
    let maintenance = NodeMaintenance::new(name, parse(json!({"nodeName": node, "drain": drain})));
    cluster.maintenances().create(&PostParams::default(), &maintenance).await.unwrap();
}

/// The pods of the test that are blocked, and why.
fn blocked(status: &NodeMaintenanceStatus) -> Vec<(&str, BlockReason)> {
    status.blocked_pods.iter().map(|pod| (pod.name.as_str(), pod.reason)).collect()
}

fn counts(status: &NodeMaintenanceStatus) -> (i32, i32) {
    (status.total_pods, status.eviction_pods)
}

/// When a pod was blocked first, and how often it was refused since.
fn history(status: &NodeMaintenanceStatus, pod: &str) -> (String, i32) {
    let found = status.blocked_pods.iter().find(|blocked| blocked.name == pod);
    let BlockedPod { since, attempts, .. } = found.unwrap_or_else(|| panic!("{pod}: {status:?}"));
    (since.0.to_string(), *attempts)
}

/// Pods that are blocked have been so for long, as far as the status tells.
async fn let_time_pass(cluster: &Cluster, name: &str, status: &NodeMaintenanceStatus) {
    let mut blocked_pods = json!(status.blocked_pods);
    for pod in blocked_pods.as_array_mut().unwrap() {
        pod["since"] = json!(LONG_AGO);
    }
    let aged = Patch::Merge(json!({"status": {"blockedPods": blocked_pods}}));
    cluster.maintenances().patch_status(name, &PatchParams::default(), &aged).await.unwrap();
}

// Case 31.
#[tokio::test(flavor = "multi_thread")]
async fn pods_that_are_left_out_and_taken_in_again_change_no_count() {
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
    let status = once(&cluster, "e2e-chosen", "both are blocked", |status| {
        blocked(status) == both && status.blocked_pods.iter().all(|pod| pod.attempts == 1)
    })
    .await;
    let (counted, skipped) = (counts(&status), status.pod_counts.skipped);
    let_time_pass(&cluster, "e2e-chosen", &status).await;

    change(&cluster, "e2e-chosen", json!({"podSelector": {"matchLabels": {"app": "one"}}})).await;
    let status =
        once(&cluster, "e2e-chosen", "one of them stays", |status| blocked(status) == both[..1]).await;
    assert_eq!((status.pending_pods.as_slice(), counts(&status)), (&["one".to_owned()][..], counted));
    assert_eq!(history(&status, "one").0, LONG_AGO);
    assert!(status.pod_counts.skipped > skipped, "the other is said to: {status:?}");
    change(&cluster, "e2e-chosen", json!({"podSelector": null})).await;
    let status = once(&cluster, "e2e-chosen", "both are to go again", |status| blocked(status) == both).await;
    assert_eq!(status.pod_counts.skipped, skipped);
    assert_eq!((history(&status, "one").0.as_str(), counts(&status)), (LONG_AGO, counted));
    assert!(history(&status, "two").1 >= 1, "it was refused before");

    for name in ["one", "two"] {
        workload.free(name).await;
    }
    let status = drained(&cluster, "e2e-chosen").await.status.unwrap();
    assert_eq!((counts(&status), status.drain_progress), (counted, 100));
    stop(&cluster, "e2e-chosen").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_are_not_selected_stay_and_are_said_to() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "selected").await;
    for name in ["goes", "stays"] {
        workload.pod_on(node, name, json!({})).await;
    }
    let _reconciler = Reconciler::start(&cluster);
    start_with(&cluster, "e2e-selected", node, json!({"podSelector": {"matchLabels": {"app": "goes"}}}))
        .await;
    let status = drained(&cluster, "e2e-selected").await.status.unwrap();
    assert_eq!((status.eviction_pods, status.pod_counts.gone, status.drain_progress), (1, 1, 100));
    assert_eq!(status.pod_counts.skipped, status.total_pods - 1, "{status:?}");
    let stays = workload.pods().get("stays").await.unwrap();
    assert_eq!(stays.metadata.deletion_timestamp, None);
    if let Some(sandbox) = cluster.sandbox() {
        let asked: Vec<String> = evictions(sandbox).into_iter().map(|entry| entry.name).collect();
        assert_eq!(asked, ["goes"]);
    }
    stop(&cluster, "e2e-selected").await;
}

/// A selector that the schema lets pass and that selects nothing: there is no such operator.
fn unreadable() -> Value {
    json!({"podSelector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}})
}

/// The status once the drain has failed because its selector is invalid.
async fn given_up(cluster: &Cluster, name: &str) -> NodeMaintenanceStatus {
    let failed = |status: &NodeMaintenanceStatus| status.phase == Some(Phase::Failed);
    let status = once(cluster, name, "given up", failed).await;
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
async fn a_selector_that_becomes_unreadable_moves_nobody_until_it_is_mended() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "unreadable").await;
    workload.pod_on(node, "guarded", json!({})).await;
    workload.budget("guarded", 1).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-unreadable", node).await;
    let refused = |status: &NodeMaintenanceStatus| {
        blocked(status) == [("guarded", BlockReason::DisruptionBudget)]
            && status.blocked_pods[0].attempts == 1
    };
    let counted = counts(&once(&cluster, "e2e-unreadable", "refused once", refused).await);

    change(&cluster, "e2e-unreadable", unreadable()).await;
    let status = given_up(&cluster, "e2e-unreadable").await;
    assert!(is_true(&status.conditions, ConditionType::Cordoned), "the node stays cordoned: {status:?}");
    workload.free("guarded").await;
    change(&cluster, "e2e-unreadable", json!({"gracePeriodSeconds": 2})).await;
    let looked = |status: &NodeMaintenanceStatus| {
        status.conditions.iter().all(|condition| condition.observed_generation == Some(3))
    };
    once(&cluster, "e2e-unreadable", "looked at again", looked).await;
    assert_eq!(workload.pods().get("guarded").await.unwrap().metadata.deletion_timestamp, None);

    change(&cluster, "e2e-unreadable", json!({"podSelector": null})).await;
    let status = drained(&cluster, "e2e-unreadable").await.status.unwrap();
    assert_eq!((counts(&status), status.last_error.as_str()), (counted, ""));
    assert!(!is_true(&status.conditions, ConditionType::Degraded), "{status:?}");
    stop(&cluster, "e2e-unreadable").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_selector_that_is_unreadable_from_the_beginning_moves_nobody_and_the_node_is_given_back() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let before = cluster.node(node).await;
    let workload = Workload::new(&cluster, "beginning").await;
    workload.pod_on(node, "cart", json!({})).await;
    let _reconciler = Reconciler::start(&cluster);
    start_with(&cluster, "e2e-beginning", node, unreadable()).await;
    let status = given_up(&cluster, "e2e-beginning").await;
    assert!(is_true(&status.conditions, ConditionType::Cordoned), "{status:?}");
    assert_eq!(cluster.node(node).await.spec.unwrap().unschedulable, Some(true), "as the status says");
    stop(&cluster, "e2e-beginning").await;
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before));
    assert_eq!(workload.pods().get("cart").await.unwrap().metadata.deletion_timestamp, None);
}

// Case 31.
#[tokio::test(flavor = "multi_thread")]
async fn what_may_be_lost_is_forbidden_and_allowed_again_without_beginning_anew() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "loss").await;
    let volume = json!({"spec": {"volumes": [{"name": "cache", "emptyDir": {}}]}});
    workload.pod_on(node, "cache", volume).await;
    workload.budget("cache", 1).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-loss", node).await;
    let by = |reason| move |status: &NodeMaintenanceStatus| blocked(status) == [("cache", reason)];
    let refused = |status: &NodeMaintenanceStatus| {
        by(BlockReason::DisruptionBudget)(status) && status.blocked_pods[0].attempts == 1
    };
    let status = once(&cluster, "e2e-loss", "blocked by its budget", refused).await;
    let (counted, first) = (counts(&status), history(&status, "cache").0);

    for (drain, reason, message) in [
        (
            json!({"deleteEmptyDirData": false}),
            BlockReason::LocalStorage,
            "has emptyDir volumes and spec.drain.deleteEmptyDirData is false",
        ),
        (
            json!({"deleteEmptyDirData": true, "force": false}),
            BlockReason::Unmanaged,
            "has no controller that would replace it and spec.drain.force is false",
        ),
    ] {
        change(&cluster, "e2e-loss", drain).await;
        let status = once(&cluster, "e2e-loss", "blocked by the spec", by(reason)).await;
        assert_eq!(status.blocked_pods[0].message, message);
        assert!(status.last_error.contains(reason.as_str()), "{}", status.last_error);
        assert_eq!(counts(&status), counted);
        let_time_pass(&cluster, "e2e-loss", &status).await;
    }
    // The reason stays when something else of the spec is changed, and so does its time.
    change(&cluster, "e2e-loss", json!({"gracePeriodSeconds": 2})).await;
    let looked = |status: &NodeMaintenanceStatus| {
        status.conditions.iter().all(|condition| condition.observed_generation == Some(4))
    };
    let status = once(&cluster, "e2e-loss", "looked at again", looked).await;
    assert_eq!(history(&status, "cache").0, LONG_AGO);

    change(&cluster, "e2e-loss", json!({"force": true})).await;
    let status =
        once(&cluster, "e2e-loss", "its budget's turn again", by(BlockReason::DisruptionBudget)).await;
    let (since, attempts) = history(&status, "cache");
    // While nobody wanted it to go nobody refused.
    let anew = since >= first && since.as_str() != LONG_AGO;
    assert!(anew && attempts >= 1, "it is refused anew: {status:?}");

    let graceful =
        |pod: Option<&Pod>| pod.is_some_and(|pod| pod.metadata.deletion_grace_period_seconds == Some(2));
    let pods = workload.pods();
    let ending = until(&pods, "cache", "it ends within the grace that was set midway", graceful);
    let ((), _) = tokio::join!(workload.free("cache"), ending);
    let status = drained(&cluster, "e2e-loss").await.status.unwrap();
    assert_eq!(counts(&status), counted);
    stop(&cluster, "e2e-loss").await;
}
