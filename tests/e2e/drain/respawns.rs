//! Respawns: pods that their owner recreates on the same node however often they are evicted.

use kube::api::DeleteParams;
use kube::runtime::watcher;
use nm_shared::api::condition::{ConditionType, find};
use nm_shared::{BlockReason, BlockedPod, NodeMaintenanceStatus, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{patch_drain, start, stop, until_drained, until_observed, until_status};
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::evictions;
use nm_tests::wait::wait_for_uids;
use nm_tests::workload::{Workload, pinned_to};
use serde_json::json;

const WHY: &str = "respawned 3 times and is not evicted again: \
    it tolerates every taint (a toleration with operator Exists and no key)";

fn respawned(status: &NodeMaintenanceStatus) -> Vec<BlockedPod> {
    let blocked = status.blocked_pods.iter();
    blocked.filter(|pod| pod.reason == BlockReason::ComesBack).cloned().collect()
}

async fn delete_deployment(workload: &Workload, name: &str) {
    workload.deployments().delete(name, &DeleteParams::default()).await.unwrap();
}

// Case 30.
#[tokio::test(flavor = "multi_thread")]
async fn a_respawning_pod_is_evicted_three_times_and_then_reported_even_after_a_restart() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "returns").await;
    workload.deployment_of("boomerang", 1, &pinned_to(node)).await;
    let uids = tokio::spawn(wait_for_uids(workload.pods(), watcher::Config::default(), 4));
    let first = Reconciler::start(&cluster);
    start(&cluster, "e2e-returns", node).await;
    let status =
        until_status(&cluster, "e2e-returns", "it is reported", |status| !respawned(status).is_empty()).await;
    assert_eq!(status.phase, Some(Phase::Running));
    let reported = respawned(&status);
    assert_eq!(reported[0].message, WHY);
    assert!(status.last_error.contains("(ComesBack)"), "{}", status.last_error);
    let drain = find(&status.conditions, ConditionType::Drained).unwrap();
    assert_eq!((drain.status.as_str(), drain.reason.as_str()), ("False", "Blocked"));
    let uids = uids.await.unwrap();

    first.crash().await;
    let _second = Reconciler::start(&cluster);
    patch_drain(&cluster, "e2e-returns", json!({"timeoutSeconds": 3600})).await;
    let status = until_observed(&cluster, "e2e-returns", 2).await;
    assert_eq!(respawned(&status), reported, "still reported, since the same time");
    let pod = workload.pods().get(&reported[0].name).await.unwrap();
    assert_eq!((pod.metadata.uid.as_ref(), pod.metadata.deletion_timestamp), (uids.last(), None));
    if let Some(sandbox) = cluster.sandbox() {
        assert_eq!(evictions(sandbox).len(), 3);
    }

    delete_deployment(&workload, "boomerang").await;
    let status = until_drained(&cluster, "e2e-returns").await.status.unwrap();
    assert!(status.last_error.is_empty() && status.blocked_pods.is_empty(), "{status:?}");
    stop(&cluster, "e2e-returns").await;
}

// Case 30.
#[tokio::test(flavor = "multi_thread")]
async fn respawning_replicas_are_each_evicted_three_times_at_most_and_all_reported() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "replicas").await;
    workload.deployment_of("pair", 2, &pinned_to(node)).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-replicas", node).await;
    let both = |status: &NodeMaintenanceStatus| respawned(status).len() == 2;
    let status = until_status(&cluster, "e2e-replicas", "both are reported", both).await;
    assert!(respawned(&status).iter().all(|pod| pod.message == WHY), "{status:?}");
    if let Some(sandbox) = cluster.sandbox() {
        let count = evictions(sandbox).len();
        assert!((4..=6).contains(&count), "{count} evictions of two replicas");
    }
    delete_deployment(&workload, "pair").await;
    until_drained(&cluster, "e2e-replicas").await;
    stop(&cluster, "e2e-replicas").await;
}
