//! What stopping a maintenance does to virtual machines. Only a sandbox simulates KubeVirt.

use kube::ResourceExt;
use kube::api::{ListParams, PostParams};
use kube_sandbox::kubevirt::{BACKOFF, CONTROLLER_DOWN, NAMESPACE, SERVICE, UNSCHEDULABLE_TIMEOUT};
use kube_sandbox::request_log::Entry;
use nm_shared::drain::migration::VirtualMachineInstanceMigration;
use nm_shared::{BlockReason, NodeMaintenanceStatus};
use nm_tests::cluster::Cluster;
use nm_tests::events::until_event;
use nm_tests::kubevirt::{
    LONG_MIGRATION, SHORT_MIGRATION, limit_migrations, migrations, run_migratable_vm_on, set_kubevirt,
    set_others_unschedulable, until_migrating, until_vm_on, vms, with_kubevirt,
};
use nm_tests::maintenance::{start, stop, until_status};
use nm_tests::programs::plugin;
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::{is_eviction, until_requests};
use nm_tests::workload::{Workload, parse};
use serde_json::json;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Three virtual machines on a node, and a maintenance of it in which one of them moves and two wait.
async fn start_with_queue(cluster: &Cluster) -> (Workload, String, Reconciler) {
    limit_migrations(cluster, 1).await;
    let workload = Workload::new(cluster, "vms").await;
    let node = cluster.nodes().await.remove(0);
    for name in NAMES {
        run_migratable_vm_on(cluster, workload.namespace(), name, &node).await;
    }
    let reconciler = Reconciler::start(cluster);
    start(cluster, "e2e-vms", &node).await;
    (workload, node, reconciler)
}

fn is_begun(status: &NodeMaintenanceStatus) -> bool {
    let pods = status.migrating_pods.as_deref().unwrap_or_default();
    pods.len() == 3 && pods.iter().any(|pod| pod.since.is_some())
}

/// The virtual machines that are still on a node after the limit is gone and the one that moves has arrived.
async fn left_on(cluster: &Cluster, workload: &Workload, node: &str, moving: &str) -> Vec<String> {
    limit_migrations(cluster, 5).await;
    let target = cluster.nodes().await.remove(1);
    until_vm_on(cluster, workload.namespace(), moving, &target).await;
    let active = migrations(cluster, workload.namespace()).list(&ListParams::default()).await.unwrap();
    let active = active.items.iter().filter(|migration| migration.is_active());
    let leaving: Vec<String> = active.map(|migration| migration.spec.vmi_name.clone()).collect();
    let found = vms(cluster, workload.namespace()).list(&ListParams::default()).await.unwrap();
    let on_node = found.items.iter().filter(|vm| vm.labels()["kubevirt.io/nodeName"] == node);
    on_node.map(ResourceExt::name_any).filter(|name| !leaving.contains(name)).collect()
}

fn moving(status: &NodeMaintenanceStatus) -> String {
    let pods = status.migrating_pods.as_deref().unwrap_or_default();
    pods.iter().find(|pod| pod.since.is_some()).unwrap().machine.clone()
}

// Defect kubevirt/kubevirt#5177: The drain is cancelled, and KubeVirt goes on evacuating the virtual machines.
#[tokio::test(flavor = "multi_thread")]
async fn stop_keeps_the_vms_that_have_not_begun_to_move() {
    let Some(cluster) = with_kubevirt(2, SHORT_MIGRATION).await else { return };
    cluster.grant("virtual_machines").await;
    let (workload, node, _reconciler) = start_with_queue(&cluster).await;
    let two_stay = |status: &NodeMaintenanceStatus| {
        let pods = status.migrating_pods.as_deref().unwrap_or_default();
        is_begun(status) && pods.iter().filter(|pod| pod.stays_on_stop).count() == 2
    };
    let status = until_status(&cluster, "e2e-vms", "one moves and two would stay", two_stay).await;
    let moves = moving(&status);
    stop(&cluster, "e2e-vms").await;
    let kept = left_on(&cluster, &workload, &node, &moves).await;
    let expected: Vec<&str> = NAMES.into_iter().filter(|name| *name != moves).collect();
    assert_eq!(kept, expected);
    for name in NAMES {
        assert!(!vms(&cluster, workload.namespace()).get(name).await.unwrap().is_leaving(&node), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_permission_stop_and_an_event_name_the_vms_that_leave() {
    let Some(cluster) = with_kubevirt(2, SHORT_MIGRATION).await else { return };
    let (workload, node, _reconciler) = start_with_queue(&cluster).await;
    let status = until_status(&cluster, "e2e-vms", "one moves", is_begun).await;
    assert!(status.migrating_pods.as_ref().unwrap().iter().all(|pod| !pod.stays_on_stop), "{status:?}");
    let moves = moving(&status);
    let stopped = plugin(&cluster, &["stop", &node, "--wait"]).await.ok();
    for part in ["3 virtual machines still leave", "--grant virtual-machines"] {
        assert!(stopped.stderr.contains(part), "{part}: {stopped:?}");
    }
    let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(cluster.client.clone());
    until_event(&cluster, &nodes.get(&node).await.unwrap(), "MachinesStillLeave").await;
    assert_eq!(left_on(&cluster, &workload, &node, &moves).await, [""; 0], "KubeVirt moves all of them");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_is_removed_although_the_last_answer_was_an_error() {
    let Some(cluster) = with_kubevirt(2, LONG_MIGRATION).await else { return };
    cluster.grant("virtual_machines").await;
    set_kubevirt(&cluster, json!({"metadata": {"annotations": {CONTROLLER_DOWN: "true"}}})).await;
    let workload = Workload::new(&cluster, "vms").await;
    let node = cluster.nodes().await.remove(0);
    run_marked(&cluster, &workload, &node).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-vm", &node).await;
    let sandbox = cluster.sandbox().unwrap();
    until_requests(sandbox, 1, "it is marked", is_eviction).await;
    sandbox.cluster().admission.services.withdraw(NAMESPACE, SERVICE);
    let fails = |entry: &Entry| is_eviction(entry) && entry.code == 500;
    until_requests(sandbox, 1, "virt-api does not answer", fails).await;
    let migrates = |status: &NodeMaintenanceStatus| status.pod_counts.migrating == 1;
    until_status(&cluster, "e2e-vm", "still migrating", migrates).await;
    stop(&cluster, "e2e-vm").await;
    assert!(!vms(&cluster, workload.namespace()).get("vm").await.unwrap().is_leaving(&node));
}

/// Runs a virtual machine although virt-controller is down.
async fn run_marked(cluster: &Cluster, workload: &Workload, node: &str) {
    set_kubevirt(cluster, json!({"metadata": {"annotations": {CONTROLLER_DOWN: null}}})).await;
    run_migratable_vm_on(cluster, workload.namespace(), "vm", node).await;
    set_kubevirt(cluster, json!({"metadata": {"annotations": {CONTROLLER_DOWN: "true"}}})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_that_no_status_shows_is_removed_by_the_next_process() {
    let Some(cluster) = with_kubevirt(2, LONG_MIGRATION).await else { return };
    cluster.grant("virtual_machines").await;
    let workload = Workload::new(&cluster, "vms").await;
    let node = cluster.nodes().await.remove(0);
    run_marked(&cluster, &workload, &node).await;
    let reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-vm", &node).await;
    until_requests(cluster.sandbox().unwrap(), 1, "it is marked", is_eviction).await;
    reconciler.crash().await;
    let maintenances = cluster.maintenances();
    let unaware =
        json!({"status": {"migratingPods": null, "blockedPods": [], "podCounts": {"migrating": 0}}});
    let unaware = kube::api::Patch::Merge(unaware);
    maintenances.patch_status("e2e-vm", &kube::api::PatchParams::default(), &unaware).await.unwrap();
    let deleted = kube::api::DeleteParams::default();
    maintenances.delete("e2e-vm", &deleted).await.unwrap();
    let _reconciler = Reconciler::start(&cluster);
    nm_tests::maintenance::until_gone(&cluster, "e2e-vm").await;
    assert!(!vms(&cluster, workload.namespace()).get("vm").await.unwrap().is_leaving(&node));
}

#[tokio::test(flavor = "multi_thread")]
async fn migrations_that_fail_before_the_handoff_are_reported_with_their_number() {
    let Some(cluster) = with_kubevirt(2, LONG_MIGRATION).await else { return };
    cluster.grant("virtual_machines").await;
    let settings = json!({"metadata": {"annotations": {BACKOFF: "1", UNSCHEDULABLE_TIMEOUT: "1"}}});
    set_kubevirt(&cluster, settings).await;
    let workload = Workload::new(&cluster, "vms").await;
    let node = cluster.nodes().await.remove(0);
    run_migratable_vm_on(&cluster, workload.namespace(), "vm", &node).await;
    set_others_unschedulable(&cluster, &node, true).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-vm", &node).await;
    let twice = |status: &NodeMaintenanceStatus| {
        let facts = status.blocked_pods.iter().filter_map(|pod| pod.facts.migration.as_ref());
        facts.into_iter().any(|facts| facts.failures >= 2)
    };
    let status = until_status(&cluster, "e2e-vm", "two failures are reported", twice).await;
    assert_eq!(status.blocked_pods[0].reason, BlockReason::MigrationFailed);
    stop(&cluster, "e2e-vm").await;
    set_others_unschedulable(&cluster, &node, false).await;
    let found = migrations(&cluster, workload.namespace()).list(&ListParams::default()).await.unwrap();
    assert!(found.items.iter().all(|migration| !migration.is_active()), "{:?}", found.items);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_that_arrives_is_migrating_and_then_leaves_in_its_turn() {
    let Some(cluster) = with_kubevirt(2, SHORT_MIGRATION).await else { return };
    let workload = Workload::new(&cluster, "vms").await;
    let nodes = cluster.nodes().await;
    run_migratable_vm_on(&cluster, workload.namespace(), "vm", &nodes[0]).await;
    let manual = json!({"metadata": {"name": "manual"}, "spec": {"vmiName": "vm"}});
    let by_hand: kube::Api<kube::core::DynamicObject> = kube::Api::namespaced_with(
        cluster.client.clone(),
        workload.namespace(),
        &kube::core::ApiResource::erase::<VirtualMachineInstanceMigration>(&()),
    );
    by_hand.create(&PostParams::default(), &parse(manual)).await.unwrap();
    nm_tests::wait::wait_until(&vms(&cluster, workload.namespace()), "vm", "it moves", |vm| {
        vm.is_some_and(|vm| vm.status.migration_state.is_some())
    })
    .await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-vm", &nodes[1]).await;
    let shown = |status: &NodeMaintenanceStatus| status.pod_counts.migrating + status.pod_counts.blocked > 0;
    let status = until_status(&cluster, "e2e-vm", "the pod is refused", shown).await;
    assert_eq!((status.pod_counts.migrating, status.pod_counts.blocked), (1, 0), "{status:?}");
    until_migrating(&cluster, "e2e-vm").await;
    until_vm_on(&cluster, workload.namespace(), "vm", &nodes[0]).await;
    nm_tests::maintenance::until_drained(&cluster, "e2e-vm").await;
}
