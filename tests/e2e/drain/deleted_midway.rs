//! A maintenance that is deleted before its node is drained.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube_sandbox::faults::{Action, Rule, Target};
use kube_sandbox::request_log::Entry;
use nm_shared::NodeMaintenanceStatus;
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{start, stop, until_drained, until_status};
use nm_tests::nodes::configuration;
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::{evictions, is_by_reconciler, is_eviction, until_requests};
use nm_tests::wait::wait_until;
use nm_tests::workload::{Workload, with_finalizer};
use serde_json::json;

// Case 32.
// Defect rancher/system-upgrade-controller#71: The plan is deleted while it fails, and its nodes stay cordoned.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_returns_to_service_while_pods_terminate_and_the_others_stay() {
    let cluster = Cluster::start(2).await;
    let nodes = cluster.nodes().await;
    let node = &nodes[0];
    let before = cluster.node(node).await;
    let workload = Workload::new(&cluster, "midway").await;
    workload.pod_on(node, "terminating", with_finalizer()).await;
    workload.pod_on(node, "guarded", json!({})).await;
    workload.budget("guarded", 1).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-midway", node).await;
    let terminating = |pod: Option<&Pod>| pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some());
    wait_until(&workload.pods(), "terminating", "the pod terminates", terminating).await;
    let refused = |status: &NodeMaintenanceStatus| {
        status.blocked_pods.iter().any(|pod| pod.name == "guarded" && pod.attempts > 0)
    };
    until_status(&cluster, "e2e-midway", "refused", refused).await;

    stop(&cluster, "e2e-midway").await;
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before));
    assert!(
        terminating(Some(&workload.pods().get("terminating").await.unwrap())),
        "the pod still terminates"
    );
    let stopped = Timestamp::now();

    // The pod that may go now is not evicted, while the reconciler works on another node.
    workload.delete_budget("guarded").await;
    workload.remove_finalizers("terminating").await;
    wait_until(&workload.pods(), "terminating", "gone", |pod| pod.is_none()).await;
    start(&cluster, "e2e-elsewhere", &nodes[1]).await;
    until_drained(&cluster, "e2e-elsewhere").await;
    stop(&cluster, "e2e-elsewhere").await;
    assert!(!terminating(Some(&workload.pods().get("guarded").await.unwrap())), "the pod stays");
    if let Some(sandbox) = cluster.sandbox() {
        let late: Vec<_> = evictions(sandbox).into_iter().filter(|entry| entry.at > stopped).collect();
        assert_eq!(late, [], "no eviction after the maintenance is gone");
    }
    assert_eq!(configuration(&cluster.node(node).await), configuration(&before));
}

// Case 32.
#[tokio::test(flavor = "multi_thread")]
async fn queued_evictions_are_not_sent_after_the_maintenance_is_deleted() {
    let why = "only a sandbox delays evictions and logs when they came";
    let Some(cluster) = Cluster::sandbox_or_skip(2, why).await else { return };
    let nodes = cluster.nodes().await;
    let workload = Workload::new(&cluster, "unsent").await;
    for number in 0..6 {
        workload.pod_on(&nodes[0], &format!("pod-{number}"), json!({})).await;
    }
    workload.pod_on(&nodes[1], "elsewhere", json!({})).await;
    let sandbox = cluster.sandbox().unwrap();
    let slow = Rule::new(Target::any().subresource("eviction"), Action::Delay(Duration::from_secs(3)));
    sandbox.faults().add(slow);
    // One at a time: the others are queued.
    let _reconciler = Reconciler::start_with(&cluster, &["--max-concurrent-evictions", "1"]);
    start(&cluster, "e2e-unsent", &nodes[0]).await;
    until_requests(sandbox, 1, "the first pod is evicted", is_eviction).await;
    stop(&cluster, "e2e-unsent").await;

    // Evictions that are still queued would be sent before this node is drained: its own eviction is in the same queue, and
    // its pod takes a moment to terminate.
    sandbox.faults().clear();
    start(&cluster, "e2e-elsewhere", &nodes[1]).await;
    until_drained(&cluster, "e2e-elsewhere").await;
    let all = sandbox.requests().all();
    let is_node_patch = |entry: &&Entry| {
        let request = (entry.verb, entry.resource.as_str(), entry.name.as_str());
        is_by_reconciler(entry) && request == ("patch", "nodes", &nodes[0])
    };
    let uncordoned = all.iter().rfind(is_node_patch).unwrap().at;
    let mut sent = evictions(sandbox);
    sent.retain(|entry| entry.name != "elsewhere");
    // A response that takes over a second frees its slot for the next eviction, so several may have been sent by then.
    assert!(sent.len() < 6, "some are still queued: {sent:?}");
    assert!(sent.iter().all(|entry| entry.at < uncordoned), "{sent:?}");
    let pods = workload.pods().list(&ListParams::default()).await.unwrap().items;
    let stay = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).count();
    assert!(stay >= 4, "{stay} of 6 stay");
    stop(&cluster, "e2e-elsewhere").await;
}
