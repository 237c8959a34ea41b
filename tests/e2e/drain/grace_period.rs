//! Pods with a long grace period.

use std::collections::HashSet;

use kube::api::DeleteParams;
use kube_sandbox::controllers::kubelet::annotations::IGNORE_TERMINATION;
use kube_sandbox::request_log::Entry;
use nm_shared::NodeMaintenanceStatus;
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, stop, until_drained, until_status};
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::{evictions, is_by_reconciler, is_eviction, until_requests};
use nm_tests::workload::Workload;
use serde_json::json;

// Case 16.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_a_long_grace_period_is_evicted_once_and_waited_for() {
    let why = "only a sandbox has pods that use all of their grace period, and logs evictions";
    let Some(cluster) = Cluster::sandbox_or_skip(1, why).await else { return };
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "grace").await;
    let slow = json!({
        "metadata": {"annotations": {IGNORE_TERMINATION: "true"}},
        "spec": {"terminationGracePeriodSeconds": 3600},
    });
    workload.pod_on(node, "slow", slow).await;
    workload.pod_on(node, "quick", json!({})).await;
    workload.pod_on(node, "guarded", json!({})).await;
    workload.budget("guarded", 1).await;

    let first = Reconciler::start(&cluster);
    start(&cluster, "e2e-grace", node).await;
    // The pod behind a budget shows how many rounds of retries have passed.
    let sandbox = cluster.sandbox().unwrap();
    let rounds = async |count: usize| {
        let is_retry = |entry: &Entry| is_eviction(entry) && entry.name == "guarded";
        until_requests(sandbox, count, "rounds of retries", is_retry).await;
    };
    rounds(2).await;
    let quick_is_gone = |status: &NodeMaintenanceStatus| status.pod_counts.gone == 1;
    let status = until_status(&cluster, "e2e-grace", "the quick one is gone", quick_is_gone).await;
    let pending: HashSet<&str> = status.pending_pods.iter().map(String::as_str).collect();
    assert_eq!(pending, ["guarded", "slow"].into());
    let counts = status.pod_counts;
    assert_eq!((counts.gone, counts.terminating, counts.blocked), (1, 1, 1), "{status:?}");
    assert!(!status.last_error.contains("slow"), "a terminating pod is no error: {}", status.last_error);

    first.crash().await;
    let _second = Reconciler::start(&cluster);
    rounds(3).await;
    let slow: Vec<u16> =
        evictions(sandbox).iter().filter(|entry| entry.name == "slow").map(|entry| entry.code).collect();
    assert_eq!(slow, [201], "it was evicted once");
    let is_deletion =
        |entry: &Entry| is_by_reconciler(entry) && entry.resource == "pods" && entry.verb == "delete";
    assert_eq!(sandbox.requests().count(is_deletion), 0, "no pod is force-deleted");

    workload.delete_budget("guarded").await;
    workload.pods().delete("slow", &DeleteParams::default().grace_period(0)).await.unwrap();
    until_drained(&cluster, "e2e-grace").await;
    stop(&cluster, "e2e-grace").await;
}
