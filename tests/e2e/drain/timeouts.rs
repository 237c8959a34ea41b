//! Timeouts of a drain, set and removed while it runs.

use std::sync::Arc;

use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use kube_sandbox::admission::Reviewer;
use nm_shared::Group;
use nm_shared::api::condition::{ConditionType, find};
use nm_shared::drain::node_patch::is_cordoned;
use nm_shared::{BlockReason, NodeMaintenanceStatus, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::events::until_event;
use nm_tests::eviction_webhook;
use nm_tests::maintenance::{
    patch_drain, start, stop, until_drained, until_observed, until_phase, until_status,
};
use nm_tests::reconciler::Reconciler;
use nm_tests::workload::{Workload, with_finalizer};
use serde_json::{Value, json};

fn is_blocked(status: &NodeMaintenanceStatus, pod: &str, reason: BlockReason) -> bool {
    status.blocked_pods.iter().any(|blocked| blocked.name == pod && blocked.reason == reason)
}

// Case 31.
// Defect aws/aws-node-termination-handler#545: A drain that a budget blocks until its timeout crashes the program.
#[tokio::test(flavor = "multi_thread")]
async fn a_timed_out_drain_fails_with_its_node_cordoned_and_continues_without_the_timeout() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "timeout").await;
    workload.pod_on(node, "guarded", json!({})).await;
    workload.budget("guarded", 1).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-timeout", node).await;
    let refused = |status: &NodeMaintenanceStatus| {
        is_blocked(status, "guarded", BlockReason::DisruptionBudget) && status.blocked_pods[0].attempts == 1
    };
    let running = until_status(&cluster, "e2e-timeout", "blocked", refused).await;
    let counts = |status: &NodeMaintenanceStatus| (status.total_pods, status.eviction_pods);

    patch_drain(&cluster, "e2e-timeout", json!({"timeoutSeconds": 1})).await;
    let failed = until_phase(&cluster, "e2e-timeout", Phase::Failed).await;
    let begin = "the drain timed out after 1 s, ";
    assert!(failed.last_error.starts_with(begin), "{}", failed.last_error);
    assert!(failed.last_error.contains("guarded (DisruptionBudget)"), "{}", failed.last_error);
    assert_eq!(find(&failed.conditions, ConditionType::Drained).unwrap().reason, "TimedOut");
    assert_eq!((counts(&failed), &failed.blocked_pods), (counts(&running), &running.blocked_pods));
    assert!(is_cordoned(&cluster.node(node).await, Group::Medik8s));

    // The pod could be evicted now, but the drain has failed.
    workload.delete_budget("guarded").await;
    patch_drain(&cluster, "e2e-timeout", json!({"gracePeriodSeconds": 3})).await;
    let status = until_observed(&cluster, "e2e-timeout", 3).await;
    assert_eq!(status.phase, Some(Phase::Failed));
    let pod = workload.pods().get("guarded").await.unwrap();
    assert_eq!(pod.metadata.deletion_timestamp, None);

    patch_drain(&cluster, "e2e-timeout", json!({"timeoutSeconds": 0})).await;
    let status = until_drained(&cluster, "e2e-timeout").await.status.unwrap();
    assert_eq!((counts(&status), status.last_error.as_str()), (counts(&running), ""));
    stop(&cluster, "e2e-timeout").await;
}

/// Refuses with more text than an event can have.
#[derive(Debug)]
struct RefuseAtLength;

impl Reviewer for RefuseAtLength {
    fn review(&self, _: &Value) -> Value {
        json!({"allowed": false, "status": {"code": 403, "message": "change freeze, see the runbook – ".repeat(40)}})
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_truncates_a_failure_message_that_is_too_long() {
    let Some(cluster) = Cluster::sandbox_or_skip(1, "only a sandbox serves the webhook").await else {
        return;
    };
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "wordy").await;
    eviction_webhook::install(&cluster, &workload, &["UPDATE"], &["nodes"], Arc::new(RefuseAtLength)).await;
    let _reconciler = Reconciler::start(&cluster);
    let maintenance = start(&cluster, "e2e-wordy", node).await;
    let failed = until_phase(&cluster, "e2e-wordy", Phase::Failed).await;
    assert!(failed.last_error.len() > 1024, "{}", failed.last_error);
    until_event(&cluster, &maintenance, "FailedMaintenance").await;
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    let message = events.list(&ListParams::default()).await.unwrap().into_iter().find_map(|event| {
        let is_it = event.reason.as_deref() == Some("FailedMaintenance")
            && event.regarding.as_ref().is_some_and(|object| object.uid == maintenance.uid());
        event.note.filter(|_| is_it)
    });
    let message = message.unwrap();
    let (begin, end) = message.split_at(message.len() - "…".len());
    assert!(failed.last_error.starts_with(begin) && end == "…", "{message}");
    eviction_webhook::remove(&cluster).await;
    stop(&cluster, "e2e-wordy").await;
}

// Case 31.
// Defect kubernetes-sigs/karpenter#2316, kubernetes-sigs/cluster-api#10706: Pods of an unreachable node terminate
// for as long as their grace period, which may be days.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_a_terminating_pod_can_be_skipped_and_resumed() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "skip").await;
    workload.pod_on(node, "held", with_finalizer()).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-skip", node).await;
    let waits = |status: &NodeMaintenanceStatus| is_blocked(status, "held", BlockReason::Finalizers);
    until_status(&cluster, "e2e-skip", "blocked by its finalizer", waits).await;

    patch_drain(&cluster, "e2e-skip", json!({"skipWaitForDeleteTimeoutSeconds": 1})).await;
    let status = until_drained(&cluster, "e2e-skip").await.status.unwrap();
    assert!(status.last_error.is_empty() && status.blocked_pods.is_empty(), "{status:?}");
    let pod = workload.pods().get("held").await.unwrap();
    assert!(!pod.finalizers().is_empty(), "the pod still exists");

    patch_drain(&cluster, "e2e-skip", json!({"skipWaitForDeleteTimeoutSeconds": 0})).await;
    let status = until_status(&cluster, "e2e-skip", "waited for again", waits).await;
    assert_eq!(status.phase, Some(Phase::Succeeded));
    workload.remove_finalizers("held").await;
    until_drained(&cluster, "e2e-skip").await;
    stop(&cluster, "e2e-skip").await;
}

// Case 31.
// Defect kubernetes-sigs/cluster-api#13508: The node is unreachable and a budget refuses its pods. The drain never
// ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_refused_for_longer_than_delete_after_seconds_is_deleted() {
    let cluster = Cluster::start(2).await;
    cluster.grant("pod_deletion").await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "impatient").await;
    workload.pod_on(node, "guarded", json!({})).await;
    workload.budget("guarded", 1).await;
    let reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-impatient", node).await;
    let blocked =
        |status: &NodeMaintenanceStatus| is_blocked(status, "guarded", BlockReason::DisruptionBudget);
    let counted = until_status(&cluster, "e2e-impatient", "blocked", blocked).await.eviction_pods;
    patch_drain(&cluster, "e2e-impatient", json!({"deleteAfterSeconds": 1})).await;
    let status = until_drained(&cluster, "e2e-impatient").await.status.unwrap();
    assert_eq!((status.eviction_pods, status.last_error.as_str()), (counted, ""));
    let deletes = |line: &str| line.contains("refused for longer than deleteAfterSeconds");
    let line = reconciler.until_logged("the deletion", deletes).await;
    let pod = format!("{}/guarded", workload.namespace());
    for field in ["maintenance=\"e2e-impatient\"", &format!("node=\"{node}\""), &format!("pod=\"{pod}\"")] {
        assert!(line.contains(field), "{field} in {line}");
    }
    stop(&cluster, "e2e-impatient").await;
}
