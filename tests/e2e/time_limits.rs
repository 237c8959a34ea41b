//! Limits to a drain's patience, set and lifted while it is under way.

use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use nm_shared::Group;
use nm_shared::api::condition::{ConditionType, find};
use nm_shared::drain::node_patch::is_cordoned;
use nm_shared::{BlockReason, NodeMaintenanceStatus, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::events::events_until;
use nm_tests::reconciler::Reconciler;
use nm_tests::workload::{Workload, held};
use serde_json::json;

use crate::{change, drained, once, start, stop};

fn is_blocked(status: &NodeMaintenanceStatus, pod: &str, reason: BlockReason) -> bool {
    status.blocked_pods.iter().any(|blocked| blocked.name == pod && blocked.reason == reason)
}

// Case 31.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_is_out_of_time_fails_with_its_node_cordoned_and_goes_on_when_given_more() {
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
    let running = once(&cluster, "e2e-timeout", "blocked", refused).await;
    let counts = |status: &NodeMaintenanceStatus| (status.total_pods, status.eviction_pods);

    change(&cluster, "e2e-timeout", json!({"timeoutSeconds": 1})).await;
    let failed = once(&cluster, "e2e-timeout", "failed", |status| status.phase == Some(Phase::Failed)).await;
    let begin = "the drain timed out after 1 s, ";
    assert!(failed.last_error.starts_with(begin), "{}", failed.last_error);
    assert!(failed.last_error.contains("guarded (DisruptionBudget)"), "{}", failed.last_error);
    assert_eq!(find(&failed.conditions, ConditionType::Drained).unwrap().reason, "TimedOut");
    assert_eq!((counts(&failed), &failed.blocked_pods), (counts(&running), &running.blocked_pods));
    assert!(is_cordoned(&cluster.node(node).await, Group::Medik8s));

    // Nothing is in its way any more, but it is given up.
    workload.free("guarded").await;
    change(&cluster, "e2e-timeout", json!({"gracePeriodSeconds": 3})).await;
    let looked = |status: &NodeMaintenanceStatus| {
        status.conditions.iter().all(|condition| condition.observed_generation == Some(3))
    };
    let status = once(&cluster, "e2e-timeout", "looked at again", looked).await;
    assert_eq!(status.phase, Some(Phase::Failed));
    let pod = workload.pods().get("guarded").await.unwrap();
    assert_eq!(pod.metadata.deletion_timestamp, None);

    change(&cluster, "e2e-timeout", json!({"timeoutSeconds": 0})).await;
    let status = drained(&cluster, "e2e-timeout").await.status.unwrap();
    assert_eq!((counts(&status), status.last_error.as_str()), (counts(&running), ""));
    stop(&cluster, "e2e-timeout").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_event_of_a_failure_with_a_long_reason_is_cut() {
    let cluster = Cluster::start(1).await;
    let _reconciler = Reconciler::start(&cluster);
    let maintenance = start(&cluster, "e2e-wordy", &"n".repeat(1100)).await;
    let failed = once(&cluster, "e2e-wordy", "failed", |status| status.phase == Some(Phase::Failed)).await;
    assert!(failed.last_error.len() > 1024, "{}", failed.last_error);
    events_until(&cluster, &maintenance, "FailedMaintenance").await;
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    let told = events.list(&ListParams::default()).await.unwrap().into_iter().find_map(|event| {
        let is_it = event.reason.as_deref() == Some("FailedMaintenance")
            && event.regarding.as_ref().is_some_and(|object| object.uid == maintenance.uid());
        event.note.filter(|_| is_it)
    });
    let told = told.unwrap();
    let (begin, end) = told.split_at(told.len() - "…".len());
    assert!(failed.last_error.starts_with(begin) && end == "…", "{told}");
    stop(&cluster, "e2e-wordy").await;
}

// Case 31.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_does_not_end_is_no_longer_waited_for_or_is_again() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "skip").await;
    workload.pod_on(node, "held", held()).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-skip", node).await;
    let waits = |status: &NodeMaintenanceStatus| is_blocked(status, "held", BlockReason::Finalizers);
    once(&cluster, "e2e-skip", "held by its finalizer", waits).await;

    change(&cluster, "e2e-skip", json!({"skipWaitForDeleteTimeoutSeconds": 1})).await;
    let status = drained(&cluster, "e2e-skip").await.status.unwrap();
    assert!(status.last_error.is_empty() && status.blocked_pods.is_empty(), "{status:?}");
    let pod = workload.pods().get("held").await.unwrap();
    assert!(!pod.finalizers().is_empty(), "it is there still, and nothing was forced");

    change(&cluster, "e2e-skip", json!({"skipWaitForDeleteTimeoutSeconds": 0})).await;
    let status = once(&cluster, "e2e-skip", "waited for again", waits).await;
    assert_eq!(status.phase, Some(Phase::Succeeded));
    workload.let_go("held").await;
    drained(&cluster, "e2e-skip").await;
    stop(&cluster, "e2e-skip").await;
}

// Case 31.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_was_refused_for_long_enough_is_deleted_past_its_budget() {
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
    let counted = once(&cluster, "e2e-impatient", "blocked", blocked).await.eviction_pods;
    change(&cluster, "e2e-impatient", json!({"deleteAfterSeconds": 1})).await;
    let status = drained(&cluster, "e2e-impatient").await.status.unwrap();
    assert_eq!((status.eviction_pods, status.last_error.as_str()), (counted, ""));
    let deletes = |line: &str| line.contains("refused for longer than deleteAfterSeconds: deleted");
    let line = reconciler.until_logged("what was deleted", deletes).await;
    let pod = format!("{}/guarded", workload.namespace());
    for field in ["maintenance=\"e2e-impatient\"", &format!("node=\"{node}\""), &format!("pod=\"{pod}\"")] {
        assert!(line.contains(field), "{field} in {line}");
    }
    stop(&cluster, "e2e-impatient").await;
}
