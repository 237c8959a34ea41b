//! A pod is identified by its uid: its replacement of the same name is another pod.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::DeleteParams;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use kube_sandbox::faults::{Action, Rule, Target, When};
use nm_shared::{BlockReason, NodeMaintenanceStatus};
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{patch_drain, start, stop, until_drained, until_status};
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::{evictions, is_eviction, until_fault_played, until_requests};
use nm_tests::wait::{wait_for_uids, wait_until};
use nm_tests::workload::{Workload, bound_to};
use serde_json::json;

// Case 33.
#[tokio::test(flavor = "multi_thread")]
async fn each_replacement_in_a_stateful_set_is_evicted_separately() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "set").await;
    workload.stateful_set_of("db", 1, &bound_to(node)).await;
    let uids = tokio::spawn(wait_for_uids(workload.pods(), watcher::Config::default(), 4));
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-set", node).await;
    let reported = |status: &NodeMaintenanceStatus| {
        status.blocked_pods.iter().any(|pod| pod.reason == BlockReason::KeepsReturning)
    };
    let status = until_status(&cluster, "e2e-set", "it is reported", reported).await;
    let uids = uids.await.unwrap();
    assert_eq!(status.blocked_pods[0].name, "db-0");
    assert_eq!(status.pending_pods, ["db-0"], "its predecessors are gone");
    let last = workload.pods().get("db-0").await.unwrap();
    assert_eq!((last.uid().as_ref(), last.metadata.deletion_timestamp), (uids.last(), None));
    if let Some(sandbox) = cluster.sandbox() {
        let answers: Vec<u16> = evictions(sandbox).iter().map(|entry| entry.code).collect();
        assert_eq!(answers, [201; 3], "each of the three was evicted once");
    }
    let sets: Api<StatefulSet> = Api::namespaced(cluster.client.clone(), workload.namespace());
    sets.delete("db", &DeleteParams::default()).await.unwrap();
    until_drained(&cluster, "e2e-set").await;
    stop(&cluster, "e2e-set").await;
}

// Case 33.
// Defect kubernetes-sigs/karpenter#998, kubernetes/kubernetes#64923, zalando-incubator/cluster-lifecycle-manager#54:
// An eviction meets the replacement of the same name on another node.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_eviction_leaves_the_replacement_alone() {
    let why = "only a sandbox delays an eviction until its pod is replaced";
    let Some(cluster) = Cluster::sandbox_or_skip(1, why).await else { return };
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "twins").await;
    workload.pod_on(node, "twin", json!({})).await;
    let sandbox = cluster.sandbox().unwrap();
    let slow = Rule::new(Target::any().subresource("eviction"), Action::Delay(Duration::from_secs(5)));
    let rule = sandbox.faults().add(slow.when(When::First(1)));
    let reconciler = Reconciler::start(&cluster);
    let drain = json!({"podSelector": {"matchLabels": {"app": "twin"}}});
    start(&cluster, "e2e-twins", node).await;
    patch_drain(&cluster, "e2e-twins", drain).await;
    until_fault_played(sandbox, rule).await;

    // Otherwise it would cancel the eviction when it learns that the pod is gone.
    reconciler.signal("STOP");
    workload.pods().delete("twin", &DeleteParams::default().grace_period(0)).await.unwrap();
    wait_until(&workload.pods(), "twin", "gone", |pod| pod.is_none()).await;
    // The maintenance does not select the second pod, so only the late eviction could evict it.
    let second = workload.create_pod(node, "twin", json!({"metadata": {"labels": {"app": "other"}}})).await;
    let late = until_requests(sandbox, 1, "the late eviction is answered", is_eviction).await;
    assert_eq!(late.iter().map(|entry| entry.code).collect::<Vec<_>>(), [409], "the uid does not match");
    reconciler.signal("CONT");
    until_drained(&cluster, "e2e-twins").await;
    let there = workload.pods().get("twin").await.unwrap();
    assert_eq!((there.uid(), there.metadata.deletion_timestamp), (second.uid(), None));
    stop(&cluster, "e2e-twins").await;
}
