//! Virtual machines, which KubeVirt migrates instead of evicting them. Only a sandbox simulates KubeVirt.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target, When};
use kube_sandbox::kubevirt::BACKOFF;
use kube_sandbox::request_log::Entry;
use nm_shared::cluster::pod;
use nm_shared::{BlockReason, MigratingPod, NodeMaintenanceStatus};
use nm_tests::cluster::{Cluster, has_sandbox};
use nm_tests::kubevirt::{
    LONG_MIGRATION, SHORT_MIGRATION, run_migratable_vm_on, set_kubevirt, set_others_unschedulable,
    until_migrating, until_vm_on, vms, with_kubevirt,
};
use nm_tests::maintenance::{start, stop, until_drained, until_gone, until_status};
use nm_tests::manifests;
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::{is_by_reconciler, until_requests};
use nm_tests::workload::{Workload, node_of, pods_on};
use serde_json::json;

/// Starts the maintenance `e2e-vm` of a node with a virtual machine `vm`. Returns the workload, the node and the
/// reconciler.
async fn start_with_vm(cluster: &Cluster) -> (Workload, String, Reconciler) {
    let workload = Workload::new(cluster, "vms").await;
    let node = cluster.nodes().await.remove(0);
    run_migratable_vm_on(cluster, workload.namespace(), "vm", &node).await;
    let reconciler = Reconciler::start(cluster);
    start(cluster, "e2e-vm", &node).await;
    (workload, node, reconciler)
}

/// Whether KubeVirt evacuates the virtual machine `vm` from a node.
async fn is_evacuated(cluster: &Cluster, namespace: &str, node: &str) -> bool {
    vms(cluster, namespace).get("vm").await.unwrap().is_leaving(node)
}

/// The reconciler's requests to KubeVirt, or for discovering it.
fn kubevirt_requests(cluster: &Cluster) -> Vec<Entry> {
    let all = cluster.sandbox().unwrap().requests().all();
    let ours = all.into_iter().filter(is_by_reconciler);
    ours.filter(|entry| entry.group.contains("kubevirt") || entry.resource.contains("kubevirt")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migrating_vm_is_reported_with_source_target_and_start_time() {
    let Some(cluster) = with_kubevirt(3, SHORT_MIGRATION).await else { return };
    let workload = Workload::new(&cluster, "vms").await;
    workload.deployment("web", 1).await;
    let node = node_of(&workload.until_running("web", 1).await[0]).to_owned();
    run_migratable_vm_on(&cluster, workload.namespace(), "vm", &node).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-vm", &node).await;

    let is_begun = |status: &NodeMaintenanceStatus| {
        status.migrating_pods.iter().flatten().any(|pod| pod.since.is_some())
    };
    let status = until_status(&cluster, "e2e-vm", "a virtual machine moves", is_begun).await;
    let [shown]: [MigratingPod; 1] = status.migrating_pods.unwrap().try_into().unwrap();
    assert_eq!((shown.namespace.as_str(), shown.machine.as_str()), (workload.namespace(), "vm"));
    assert!(shown.name.starts_with("virt-launcher-vm-"), "{shown:?}");
    assert_eq!(shown.source.as_deref(), Some(&*node));
    assert!(shown.target.as_ref().is_some_and(|target| *target != node), "{shown:?}");
    assert!(shown.since.is_some(), "{shown:?}");
    assert_eq!((status.pod_counts.migrating, status.blocked_pods.len()), (1, 0));
    assert_eq!(status.last_error, "");

    let status = until_drained(&cluster, "e2e-vm").await.status.unwrap();
    assert_eq!((status.migrating_pods, status.pod_counts.migrating), (None, 0));
    until_vm_on(&cluster, workload.namespace(), "vm", &shown.target.unwrap()).await;
    workload.until_running("web", 1).await;
    let left = pods_on(&cluster.client, &node).await;
    assert!(left.iter().all(|pod| pod::daemon_set(&pod::DrainPod::from(pod)).is_some()), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_migration_is_reported_with_its_reason_until_the_next_begins() {
    let Some(cluster) = with_kubevirt(3, LONG_MIGRATION).await else { return };
    set_kubevirt(&cluster, json!({"metadata": {"annotations": {BACKOFF: "1"}}})).await;
    let (workload, node, _reconciler) = start_with_vm(&cluster).await;
    let target = until_migrating(&cluster, "e2e-vm").await.migrating_pods.unwrap().remove(0).target.unwrap();

    set_others_unschedulable(&cluster, &node, true).await;
    let launchers = ListParams::default().labels("kubevirt.io=virt-launcher");
    let pods: Vec<Pod> = workload.pods().list(&launchers).await.unwrap().items;
    let arriving = pods.iter().find(|pod| node_of(pod) == target).unwrap().name_any();
    workload.pods().delete(&arriving, &DeleteParams::default()).await.unwrap();
    let blocked = |status: &NodeMaintenanceStatus| !status.blocked_pods.is_empty();
    let status = until_status(&cluster, "e2e-vm", "blocked by the failure", blocked).await;
    let message =
        format!("its live migration to node {target} failed: Target pod is down; KubeVirt retries it");
    assert_eq!(
        (status.blocked_pods[0].reason, &status.blocked_pods[0].message),
        (BlockReason::MigrationFailed, &message)
    );
    assert!(status.migrating_pods.is_none() && status.last_error.contains("(MigrationFailed)"), "{status:?}");

    set_others_unschedulable(&cluster, &node, false).await;
    let status = until_migrating(&cluster, "e2e-vm").await;
    assert_eq!((status.blocked_pods.len(), status.last_error.as_str()), (0, ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_a_maintenance_removes_the_mark_of_a_vm_that_has_begun_to_move() {
    let Some(cluster) = with_kubevirt(2, LONG_MIGRATION).await else { return };
    let (workload, node, _reconciler) = start_with_vm(&cluster).await;
    until_migrating(&cluster, "e2e-vm").await;
    assert!(is_evacuated(&cluster, workload.namespace(), &node).await);
    stop(&cluster, "e2e-vm").await;
    assert!(!is_evacuated(&cluster, workload.namespace(), &node).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_reconciler_cancels_the_evacuation() {
    let Some(cluster) = with_kubevirt(2, LONG_MIGRATION).await else { return };
    let (workload, node, reconciler) = start_with_vm(&cluster).await;
    until_migrating(&cluster, "e2e-vm").await;
    reconciler.crash().await;
    cluster.maintenances().delete("e2e-vm", &DeleteParams::default()).await.unwrap();
    let _reconciler = Reconciler::start(&cluster);
    until_gone(&cluster, "e2e-vm").await;
    assert!(!is_evacuated(&cluster, workload.namespace(), &node).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubevirt_that_cannot_cancel_evacuations_does_not_block_the_maintenance() {
    if !has_sandbox("only a sandbox simulates KubeVirt") {
        return;
    }
    let older =
        |sandbox: kube_sandbox::sandbox::Sandbox| sandbox.with_kubevirt_before_1_7(LONG_MIGRATION).unwrap();
    let cluster = Cluster::of_sandbox(2, 0, older).await;
    let (workload, node, _reconciler) = start_with_vm(&cluster).await;
    until_migrating(&cluster, "e2e-vm").await;
    stop(&cluster, "e2e-vm").await;
    assert!(is_evacuated(&cluster, workload.namespace(), &node).await, "the evacuation continues");
    assert!(kubevirt_requests(&cluster).iter().all(|entry| entry.verb != "update"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_cancellation_is_retried_but_does_not_block_the_maintenance() {
    for (failures, stays) in [(When::First(3), true), (When::Always, false)] {
        let Some(cluster) = with_kubevirt(2, LONG_MIGRATION).await else { return };
        let faults = cluster.sandbox().unwrap().faults();
        let cancel = Target::any().verb("update").group("subresources.kubevirt.io");
        let fails = Action::Fail(Failure::Internal, Moment::BeforeEffect);
        faults.add(Rule::new(cancel, fails).when(failures));
        let discovery = Target::any().resource("/apis/subresources.kubevirt.io/v1");
        let unavailable = Action::Fail(Failure::Unavailable, Moment::BeforeEffect);
        faults.add(Rule::new(discovery, unavailable).when(When::First(1)));
        let (workload, node, _reconciler) = start_with_vm(&cluster).await;
        until_migrating(&cluster, "e2e-vm").await;
        stop(&cluster, "e2e-vm").await;
        assert_eq!(!is_evacuated(&cluster, workload.namespace(), &node).await, stays, "{failures:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn vms_migrate_even_without_access_to_read_them() {
    let Some(cluster) = with_kubevirt(2, SHORT_MIGRATION).await else { return };
    let api: Api<ClusterRole> = Api::all(cluster.client.clone());
    let role = manifests::cluster_role();
    let mut rules = role.rules.clone().unwrap();
    rules.retain(|rule| rule.resources.iter().flatten().all(|name| !name.contains("virtualmachine")));
    assert_ne!(role.rules.as_ref(), Some(&rules));
    let fewer = Patch::Merge(json!({"rules": rules}));
    api.patch(&role.name_any(), &PatchParams::default(), &fewer).await.unwrap();
    let (.., _reconciler) = start_with_vm(&cluster).await;
    let shown = |status: &NodeMaintenanceStatus| status.migrating_pods.is_some();
    let pod = until_status(&cluster, "e2e-vm", "migrating", shown).await.migrating_pods.unwrap().remove(0);
    assert_eq!((pod.machine.as_str(), pod.source, pod.target), ("vm", None, None));
    until_drained(&cluster, "e2e-vm").await;
    stop(&cluster, "e2e-vm").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubevirt_gets_no_requests_unless_a_node_has_vms() {
    if !has_sandbox("only a sandbox logs requests") {
        return;
    }
    for kubevirt in [false, true] {
        let cluster = Cluster::of_sandbox(2, 20, |sandbox| {
            if kubevirt { sandbox.with_kubevirt(SHORT_MIGRATION).unwrap() } else { sandbox }
        })
        .await;
        let _reconciler = Reconciler::start(&cluster);
        let node = cluster.nodes().await.remove(0);
        start(&cluster, "e2e-plain", &node).await;
        until_drained(&cluster, "e2e-plain").await;
        stop(&cluster, "e2e-plain").await;
        assert_eq!(kubevirt_requests(&cluster), [], "with KubeVirt: {kubevirt}");
        let looks_for_vms = |entry: &Entry| {
            is_by_reconciler(entry)
                && entry.metadata_only
                && (entry.verb, &*entry.resource) == ("list", "pods")
        };
        let looked = cluster.sandbox().unwrap().requests().count(looks_for_vms);
        assert_eq!(looked, 1, "pods of virtual machines are listed once, at the end");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_only_look_like_vms_cost_one_request() {
    let Some(cluster) = Cluster::sandbox_or_skip(2, "only a sandbox logs requests").await else { return };
    let workload = Workload::new(&cluster, "vms").await;
    let node = cluster.nodes().await.remove(0);
    let marks = json!({"metadata": {"labels": {"kubevirt.io": "virt-launcher"},
        "annotations": {"kubevirt.io/domain": "vm"}, "finalizers": ["kubectl-nm.dev/e2e-hold"]}});
    workload.pod_on(&node, "fake", marks).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-fake", &node).await;
    let sandbox = cluster.sandbox().unwrap();
    let is_kubevirt = |entry: &Entry| entry.group.contains("kubevirt");
    until_requests(sandbox, 1, "virtual machines are listed", is_kubevirt).await;
    let held = |status: &NodeMaintenanceStatus| {
        status.blocked_pods.iter().any(|pod| pod.reason == BlockReason::Finalizers)
    };
    until_status(&cluster, "e2e-fake", "blocked by its finalizer", held).await;
    workload.remove_finalizers("fake").await;
    until_drained(&cluster, "e2e-fake").await;
    stop(&cluster, "e2e-fake").await;
    let requests = kubevirt_requests(&cluster);
    let [Entry { resource, code, .. }] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!((resource.as_str(), *code), ("virtualmachineinstances", 404));
}
