//! Returning pods: those that their owner recreates on the same node. Those that tolerate the cordon stay there, unless the drain
//! waits for them.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use kube::runtime::watcher;
use nm_shared::api::condition::{ConditionType, find};
use nm_shared::{BlockReason, BlockedPod, NodeMaintenanceStatus, Phase};
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{
    patch_drain, start, start_with_drain, stop, until_drained, until_observed, until_status,
};
use nm_tests::manifests::the_one;
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::evictions;
use nm_tests::wait::{wait_for_uids, wait_until_all};
use nm_tests::workload::{Workload, bound_to, pinned_to};
use serde_json::json;

const WHY: &str = "pods of its owner have returned to the node at least 3 times and are not evicted again: \
    they tolerate every taint (a toleration with operator Exists and no key)";

fn kept_returning(status: &NodeMaintenanceStatus) -> Vec<BlockedPod> {
    let blocked = status.blocked_pods.iter();
    blocked.filter(|pod| pod.reason == BlockReason::KeepsReturning).cloned().collect()
}

async fn delete_deployment(workload: &Workload, name: &str) {
    workload.deployments().delete(name, &DeleteParams::default()).await.unwrap();
}

/// The deployment's pods that are not terminating, once there are `count` and none of them is one of `before`.
async fn until_replaced(workload: &Workload, count: usize, before: &[Pod]) -> Vec<Pod> {
    let are_new = |pods: &[Pod]| {
        pods.len() == count && pods.iter().all(|pod| before.iter().all(|old| old.uid() != pod.uid()))
    };
    wait_until_all(&workload.pods(), watcher::Config::default(), "the replacements are alone", are_new).await
}

// Case 30.
#[tokio::test(flavor = "multi_thread")]
async fn pods_that_tolerate_the_cordon_are_evicted_once_and_stay_when_they_are_back_even_after_a_restart() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "tolerant").await;
    workload.deployment_of("operator", 2, &pinned_to(node)).await;
    let before = workload.until_running("operator", 2).await;
    let first = Reconciler::start(&cluster);
    start(&cluster, "e2e-tolerant", node).await;
    let back = until_replaced(&workload, 2, &before).await;
    let both =
        |status: &NodeMaintenanceStatus| status.returned_pods.as_ref().is_some_and(|all| all.len() == 2);
    until_status(&cluster, "e2e-tolerant", "both are back", both).await;
    let status = until_drained(&cluster, "e2e-tolerant").await.status.unwrap();
    assert!(status.last_error.is_empty() && status.blocked_pods.is_empty(), "{status:?}");
    let workloads: Vec<String> =
        status.returned_pods.iter().flatten().map(|pod| pod.workload.clone().unwrap().name).collect();
    assert_eq!(workloads, ["operator"; 2]);
    assert_eq!((status.phase, status.drain_progress), (Some(Phase::Succeeded), 100));

    first.crash().await;
    let _second = Reconciler::start(&cluster);
    patch_drain(&cluster, "e2e-tolerant", json!({"timeoutSeconds": 3600})).await;
    let after = until_observed(&cluster, "e2e-tolerant", 2).await;
    assert_eq!(after.returned_pods, status.returned_pods, "still, and since the same time");
    for pod in back {
        let found = workload.pods().get(&pod.name_any()).await.unwrap();
        assert_eq!((found.uid(), found.metadata.deletion_timestamp), (pod.uid(), None));
    }
    if let Some(sandbox) = cluster.sandbox() {
        assert_eq!(evictions(sandbox).len(), 2, "each was evicted once");
    }

    patch_drain(&cluster, "e2e-tolerant", json!({"returningPods": "Wait"})).await;
    let status =
        until_status(&cluster, "e2e-tolerant", "waited for", |status| kept_returning(status).len() == 2)
            .await;
    assert_eq!(status.returned_pods, None);
    patch_drain(&cluster, "e2e-tolerant", json!({"returningPods": "Stay"})).await;
    until_drained(&cluster, "e2e-tolerant").await;
    stop(&cluster, "e2e-tolerant").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reconcilers_own_pod_that_returns_to_the_only_node_stays_and_the_node_is_drained() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "own").await;
    let mut spec = pinned_to(node);
    let template = the_one::<Deployment>().spec.unwrap().template;
    spec["tolerations"] = json!(template.spec.unwrap().tolerations);
    workload.deployment_of("reconciler", 1, &spec).await;
    let before = workload.until_running("reconciler", 1).await;
    workload.pod_on(node, "web", json!({})).await;
    let own = format!("{}/{}", workload.namespace(), before[0].name_any());
    let _reconciler = Reconciler::start_with(&cluster, &["--own-pod", &own]);
    start(&cluster, "e2e-own", node).await;
    let is_back = |status: &NodeMaintenanceStatus| status.returned_pods.is_some();
    until_status(&cluster, "e2e-own", "it is back", is_back).await;
    let status = until_drained(&cluster, "e2e-own").await.status.unwrap();
    assert_eq!((status.blocked_pods.len(), status.last_error.as_str()), (0, ""), "{status:?}");
    let left = workload.pods().list(&ListParams::default()).await.unwrap().items;
    assert!(left.len() == 1 && left[0].uid() != before[0].uid(), "{left:?}");
    stop(&cluster, "e2e-own").await;
}

// Case 30.
#[tokio::test(flavor = "multi_thread")]
async fn a_returning_pod_is_evicted_three_times_and_then_reported_even_after_a_restart() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "returns").await;
    workload.deployment_of("boomerang", 1, &pinned_to(node)).await;
    let uids = tokio::spawn(wait_for_uids(workload.pods(), watcher::Config::default(), 4));
    let first = Reconciler::start(&cluster);
    start_with_drain(&cluster, "e2e-returns", node, json!({"returningPods": "Wait"})).await;
    let status =
        until_status(&cluster, "e2e-returns", "it is reported", |status| !kept_returning(status).is_empty())
            .await;
    assert_eq!(status.phase, Some(Phase::Running));
    let reported = kept_returning(&status);
    assert_eq!(reported[0].message, WHY);
    assert!(status.last_error.contains("(KeepsReturning)"), "{}", status.last_error);
    let drain = find(&status.conditions, ConditionType::Drained).unwrap();
    assert_eq!((drain.status.as_str(), drain.reason.as_str()), ("False", "Blocked"));
    let uids = uids.await.unwrap();

    first.crash().await;
    let _second = Reconciler::start(&cluster);
    patch_drain(&cluster, "e2e-returns", json!({"timeoutSeconds": 3600})).await;
    let status = until_observed(&cluster, "e2e-returns", 2).await;
    assert_eq!(kept_returning(&status), reported, "still reported, since the same time");
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
async fn returning_replicas_are_each_evicted_three_times_at_most_and_all_reported() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "replicas").await;
    workload.deployment_of("pair", 2, &bound_to(node)).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-replicas", node).await;
    let both = |status: &NodeMaintenanceStatus| kept_returning(status).len() == 2;
    let status = until_status(&cluster, "e2e-replicas", "both are reported", both).await;
    let bypasses = |pod: &BlockedPod| pod.message.ends_with("bypassing the scheduler");
    assert!(kept_returning(&status).iter().all(bypasses), "{status:?}");
    if let Some(sandbox) = cluster.sandbox() {
        let count = evictions(sandbox).len();
        assert!((4..=6).contains(&count), "{count} evictions of two replicas");
    }
    delete_deployment(&workload, "pair").await;
    until_drained(&cluster, "e2e-replicas").await;
    stop(&cluster, "e2e-replicas").await;
}
