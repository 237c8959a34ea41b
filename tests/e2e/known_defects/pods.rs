//! Defects of other drain controllers about pods: one that is taken for another, or evicted when it should be waited for.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DeleteParams;
use nm_shared::{BlockReason, NodeMaintenanceStatus};
use nm_tests::cluster::Cluster;
use nm_tests::maintenance::{
    start, stop, until_blocked, until_drained, until_drained_without_errors, until_status,
};
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::evictions;
use nm_tests::wait::wait_until;
use nm_tests::workload::{Workload, node_of, pod_spec, with_finalizer};

// Defect bottlerocket-os/bottlerocket-update-operator#168, ansible-collections/kubernetes.core#792,
// folio-pro/kdashboard#61: The drain waits for a pod of a StatefulSet that runs on another node under the same name.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_a_stateful_set_that_runs_elsewhere_under_its_name_counts_as_gone() {
    let cluster = Cluster::start(2).await;
    let workload = Workload::new(&cluster, "renamed").await;
    workload.stateful_set_of("db", 1, &pod_spec()).await;
    let first = workload.until_running("db", 1).await.remove(0);
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-renamed", node_of(&first)).await;
    until_drained_without_errors(&cluster, "e2e-renamed").await;
    let second = workload.until_running("db", 1).await.remove(0);
    assert_eq!(second.name_any(), first.name_any());
    assert_ne!(node_of(&second), node_of(&first));
    if let Some(sandbox) = cluster.sandbox() {
        assert_eq!(evictions(sandbox).len(), 1, "the second was never evicted");
    }
    stop(&cluster, "e2e-renamed").await;
}

// Defect kubernetes/kubernetes#138229: A budget refuses a pod. The pod is moved meanwhile, and its eviction is
// retried forever.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_pod_that_was_moved_by_others_is_not_waited_for() {
    let cluster = Cluster::start(2).await;
    let workload = Workload::new(&cluster, "moved").await;
    workload.stateful_set_of("db", 1, &pod_spec()).await;
    workload.budget("db", 1).await;
    let first = workload.until_running("db", 1).await.remove(0);
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-moved", node_of(&first)).await;
    until_blocked(&cluster, "e2e-moved", BlockReason::DisruptionBudget).await;
    workload.pods().delete("db-0", &DeleteParams::default().grace_period(0)).await.unwrap();
    until_drained_without_errors(&cluster, "e2e-moved").await;
    let is_another = |pod: Option<&Pod>| pod.is_some_and(|pod| pod.uid() != first.uid());
    let second = wait_until(&workload.pods(), "db-0", "replaced", is_another).await.unwrap();
    assert_eq!(second.metadata.deletion_timestamp, None);
    if let Some(sandbox) = cluster.sandbox() {
        let accepted = evictions(sandbox).into_iter().filter(|entry| entry.code == 201).count();
        assert_eq!(accepted, 0, "the budget still allows none");
    }
    stop(&cluster, "e2e-moved").await;
}

// Defect kubernetes/kubernetes#91141, DataDog/draino#19: A pod that is terminating already is evicted, its budget
// refuses, and the drain never ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_terminating_pod_is_waited_for_and_not_evicted_against_its_budget() {
    let cluster = Cluster::start(2).await;
    let node = &cluster.nodes().await[0];
    let workload = Workload::new(&cluster, "ending").await;
    workload.pod_on(node, "ending", with_finalizer()).await;
    workload.budget("ending", 1).await;
    workload.pods().delete("ending", &DeleteParams::default()).await.unwrap();
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-ending", node).await;
    let pending = |status: &NodeMaintenanceStatus| status.pending_pods.iter().any(|pod| pod == "ending");
    let status = until_status(&cluster, "e2e-ending", "waited for", pending).await;
    assert!(!status.blocked_pods.iter().any(|pod| pod.reason == BlockReason::DisruptionBudget), "{status:?}");
    workload.remove_finalizers("ending").await;
    until_drained(&cluster, "e2e-ending").await;
    if let Some(sandbox) = cluster.sandbox() {
        let of_it = evictions(sandbox).into_iter().filter(|entry| entry.name == "ending").count();
        assert_eq!(of_it, 0);
    }
    stop(&cluster, "e2e-ending").await;
}
