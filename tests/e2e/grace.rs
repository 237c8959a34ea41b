//! Pods that take their time to end.

use std::collections::HashSet;

use kube::api::DeleteParams;
use kube_sandbox::controllers::kubelet::annotations::IGNORE_TERMINATION;
use kube_sandbox::request_log::Entry;
use nm_shared::NodeMaintenanceStatus;
use nm_tests::cluster::Cluster;
use nm_tests::programs::skipped;
use nm_tests::reconciler::Reconciler;
use nm_tests::until::PATIENCE;
use nm_tests::workload::Workload;
use serde_json::json;

use crate::{drained, evictions, once, start, stop};

// Case 16.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_a_long_grace_is_asked_once_and_waited_for() {
    if std::env::var_os("NM_E2E_KUBECONFIG").is_some() {
        skipped("only a sandbox has pods that use all of their grace, and tells who was asked how often");
        return;
    }
    let cluster = Cluster::start(1).await;
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
    // The pod behind a budget tells when rounds of retries are over.
    let requests = cluster.sandbox().unwrap().requests();
    let rounds = async |rounds: usize| {
        let asked = |entry: &Entry| entry.subresource == "eviction" && entry.name == "guarded";
        let over = requests.until(|log| log.count(asked) >= rounds);
        assert!(tokio::time::timeout(PATIENCE, over).await.is_ok(), "{rounds} rounds are over");
    };
    rounds(2).await;
    let quick_is_gone = |status: &NodeMaintenanceStatus| status.pod_counts.gone == 1;
    let status = once(&cluster, "e2e-grace", "the quick one is gone", quick_is_gone).await;
    let pending: HashSet<&str> = status.pending_pods.iter().map(String::as_str).collect();
    assert_eq!(pending, ["guarded", "slow"].into());
    let counts = status.pod_counts;
    assert_eq!((counts.gone, counts.terminating, counts.blocked), (1, 1, 1), "{status:?}");
    assert!(!status.last_error.contains("slow"), "it is on its way: {}", status.last_error);

    first.crash().await;
    let _second = Reconciler::start(&cluster);
    rounds(3).await;
    let slow: Vec<u16> = evictions(cluster.sandbox().unwrap())
        .iter()
        .filter(|entry| entry.name == "slow")
        .map(|entry| entry.code)
        .collect();
    assert_eq!(slow, [201], "it was asked once");
    let forced = |entry: &Entry| {
        entry.user_agent.starts_with("nm-reconciler/") && entry.resource == "pods" && entry.verb == "delete"
    };
    assert_eq!(requests.count(forced), 0, "nothing is forced");

    workload.free("guarded").await;
    workload.pods().delete("slow", &DeleteParams::default().grace_period(0)).await.unwrap();
    drained(&cluster, "e2e-grace").await;
    stop(&cluster, "e2e-grace").await;
}
