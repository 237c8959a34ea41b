//! `spec.drain.deleteAfterSeconds`: pods are deleted only after they were refused for this long, and retries back off.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target, When};
use kube_sandbox::request_log::Entry;
use nm_shared::{BlockReason, NodeMaintenanceStatus};
use nm_tests::cluster::Cluster;
use nm_tests::events::until_event;
use nm_tests::eviction_webhook;
use nm_tests::eviction_webhook::{REFUSAL, RefuseAll};
use nm_tests::maintenance::{patch_drain, start, until_drained, until_drained_without_errors, until_status};
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::{is_by_reconciler, is_eviction, until_requests};
use nm_tests::workload::Workload;
use serde_json::json;

const WHY: &str = "only a sandbox serves the webhook and logs requests";

/// Resources that a webhook refuses to change.
const PODS: &[&str] = &["pods", "pods/eviction"];

fn is_deletion(entry: &Entry) -> bool {
    is_by_reconciler(entry) && entry.resource == "pods" && entry.verb == "delete"
}

#[tokio::test(flavor = "multi_thread")]
async fn server_errors_do_not_count_towards_the_time_until_deletion() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, WHY).await else { return };
    cluster.grant("pod_deletion").await;
    let workload = Workload::new(&cluster, "counts").await;
    let node = &cluster.nodes().await[0];
    workload.pod_on(node, "cart", json!({})).await;
    eviction_webhook::install(&cluster, &workload, &["CREATE"], PODS, Arc::new(RefuseAll)).await;
    let fails = Action::Fail(Failure::Unavailable, Moment::BeforeEffect);
    let evictions = Target::any().subresource("eviction");
    cluster.sandbox().unwrap().faults().add(Rule::new(evictions, fails).when(When::First(2)));
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-counts", node).await;
    patch_drain(&cluster, "e2e-counts", json!({"deleteAfterSeconds": 2})).await;
    let sandbox = cluster.sandbox().unwrap();
    let deletion = until_requests(sandbox, 1, "the pod is deleted", is_deletion).await.remove(0);
    let evictions = until_requests(sandbox, 3, "the pod is refused", is_eviction).await;
    let codes: Vec<u16> = evictions.iter().map(|eviction| eviction.code).collect();
    assert_eq!(codes[..3], [503, 503, 403]);
    let refused_for = deletion.at.duration_since(evictions[2].at);
    // The times in the log are those at which requests came. Each may be a few milliseconds late.
    assert!(refused_for >= SignedDuration::from_millis(1_900), "{refused_for}");
    until_drained_without_errors(&cluster, "e2e-counts").await;
    eviction_webhook::remove(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_deletion_is_reported_and_retried_with_backoff() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, WHY).await else { return };
    cluster.grant("pod_deletion").await;
    let workload = Workload::new(&cluster, "denied").await;
    let node = &cluster.nodes().await[0];
    workload.pod_on(node, "cart", json!({})).await;
    workload.budget("cart", 1).await;
    eviction_webhook::install(&cluster, &workload, &["DELETE"], PODS, Arc::new(RefuseAll)).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-denied", node).await;
    patch_drain(&cluster, "e2e-denied", json!({"deleteAfterSeconds": 1})).await;
    let denied = |status: &NodeMaintenanceStatus| {
        status.blocked_pods.iter().any(|pod| pod.reason == BlockReason::AdmissionWebhook)
    };
    let status = until_status(&cluster, "e2e-denied", "the webhook's refusal is reported", denied).await;
    assert_eq!(status.blocked_pods[0].message, REFUSAL);
    let since = Timestamp::now();
    let is_status =
        |entry: &Entry| entry.verb == "patch" && entry.subresource == "status" && entry.at > since;
    let sandbox = cluster.sandbox().unwrap();
    let deletions = until_requests(sandbox, 3, "the deletion is retried", is_deletion).await;
    for pair in deletions.windows(2) {
        let interval = pair[1].at.duration_since(pair[0].at);
        assert!(interval >= SignedDuration::from_millis(1_900), "{interval}");
    }
    assert_eq!(sandbox.requests().count(is_status), 0, "the status does not change");
    let status = until_status(&cluster, "e2e-denied", "still refused", denied).await;
    assert_eq!(status.blocked_pods.len(), 1);
    workload.delete_budget("cart").await;
    until_drained_without_errors(&cluster, "e2e-denied").await;
    eviction_webhook::remove(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_were_deleted_after_refusals_are_counted_and_reported_by_an_event() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, WHY).await else { return };
    cluster.grant("pod_deletion").await;
    let workload = Workload::new(&cluster, "traced").await;
    let node = &cluster.nodes().await[0];
    workload.pod_on(node, "cart", json!({})).await;
    workload.pod_on(node, "till", json!({})).await;
    workload.budget("cart", 1).await;
    workload.budget("till", 1).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-traced", node).await;
    patch_drain(&cluster, "e2e-traced", json!({"deleteAfterSeconds": 1})).await;
    let done = until_drained(&cluster, "e2e-traced").await;
    let departed = done.status.as_ref().unwrap().departed_pods.unwrap();
    assert_eq!(departed.deleted_after_refusal, 2, "{departed:?}");
    until_event(&cluster, &done, "DeletedAfterRefusal").await;
}
