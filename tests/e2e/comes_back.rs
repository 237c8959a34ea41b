//! Pods that come back to the node however often they are moved.

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::DeleteParams;
use kube::runtime::watcher;
use nm_shared::api::condition::{ConditionType, find};
use nm_shared::{BlockReason, BlockedPod, NodeMaintenanceStatus, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::reconciler::Reconciler;
use nm_tests::until::until_seen;
use nm_tests::workload::{Workload, pinned_to};
use serde_json::json;

use crate::{change, drained, evictions, once, start, stop};

const WHY: &str = "respawned 3 times and is not evicted again: \
    it tolerates every taint (a toleration with operator Exists and no key)";

fn returned(status: &NodeMaintenanceStatus) -> Vec<BlockedPod> {
    let blocked = status.blocked_pods.iter();
    blocked.filter(|pod| pod.reason == BlockReason::ComesBack).cloned().collect()
}

async fn delete_deployment(cluster: &Cluster, workload: &Workload, name: &str) {
    let deployments: Api<Deployment> = Api::namespaced(cluster.client.clone(), workload.namespace());
    deployments.delete(name, &DeleteParams::default()).await.unwrap();
}

// Case 30.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_comes_back_is_moved_three_times_and_then_reported_also_after_a_restart() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "returns").await;
    workload.deployment_of("boomerang", 1, &pinned_to(node)).await;
    let seen = tokio::spawn(until_seen(workload.pods(), watcher::Config::default(), 4));
    let first = Reconciler::start(&cluster);
    start(&cluster, "e2e-returns", node).await;
    let status = once(&cluster, "e2e-returns", "it is reported", |status| !returned(status).is_empty()).await;
    assert_eq!(status.phase, Some(Phase::Running));
    let reported = returned(&status);
    assert_eq!(reported[0].message, WHY);
    assert!(status.last_error.contains("(ComesBack)"), "{}", status.last_error);
    let drain = find(&status.conditions, ConditionType::Drained).unwrap();
    assert_eq!((drain.status.as_str(), drain.reason.as_str()), ("False", "Blocked"));
    let seen = seen.await.unwrap();

    first.crash().await;
    let _second = Reconciler::start(&cluster);
    change(&cluster, "e2e-returns", json!({"timeoutSeconds": 3600})).await;
    let looked = |status: &NodeMaintenanceStatus| {
        status.conditions.iter().all(|condition| condition.observed_generation == Some(2))
    };
    let status = once(&cluster, "e2e-returns", "the next has looked", looked).await;
    assert_eq!(returned(&status), reported, "it is still reported, since the same time");
    let pod = workload.pods().get(&reported[0].name).await.unwrap();
    assert_eq!((pod.metadata.uid.as_ref(), pod.metadata.deletion_timestamp), (seen.last(), None));
    if let Some(sandbox) = cluster.sandbox() {
        assert_eq!(evictions(sandbox).len(), 3);
    }

    delete_deployment(&cluster, &workload, "boomerang").await;
    let status = drained(&cluster, "e2e-returns").await.status.unwrap();
    assert!(status.last_error.is_empty() && status.blocked_pods.is_empty(), "{status:?}");
    stop(&cluster, "e2e-returns").await;
}

// Case 30.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_come_back_are_each_moved_three_times_at_most_and_all_reported() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "replicas").await;
    workload.deployment_of("pair", 2, &pinned_to(node)).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-replicas", node).await;
    let both = |status: &NodeMaintenanceStatus| returned(status).len() == 2;
    let status = once(&cluster, "e2e-replicas", "both are reported", both).await;
    assert!(returned(&status).iter().all(|pod| pod.message == WHY), "{status:?}");
    if let Some(sandbox) = cluster.sandbox() {
        let moved = evictions(sandbox).len();
        assert!((4..=6).contains(&moved), "{moved} evictions of two replicas");
    }
    delete_deployment(&cluster, &workload, "pair").await;
    drained(&cluster, "e2e-replicas").await;
    stop(&cluster, "e2e-replicas").await;
}
