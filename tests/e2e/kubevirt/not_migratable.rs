//! Virtual machines and hotplug pods that KubeVirt does not let anyone evict. Only a sandbox simulates KubeVirt.

use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube_sandbox::kubevirt::{Vmi, hotplug_pod};
use kube_sandbox::request_log::Entry;
use nm_shared::{BlockReason, NodeMaintenanceStatus};
use nm_tests::kubevirt::{LONG_MIGRATION, run_migratable_vm_on, run_vm_on, vms, with_kubevirt};
use nm_tests::maintenance::{
    start, start_with_drain, stop, until_blocked, until_drained_without_errors, until_status,
};
use nm_tests::reconciler::Reconciler;
use nm_tests::requests::{is_by_reconciler, is_eviction, until_requests};
use nm_tests::workload::{Workload, parse};
use serde_json::json;

const REFUSED: &str =
    "admission webhook \"virt-launcher-eviction-interceptor.kubevirt.io\" denied the request";

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_that_cannot_migrate_is_blocked_with_the_webhooks_reason() {
    let Some(cluster) = with_kubevirt(2, LONG_MIGRATION).await else { return };
    let workload = Workload::new(&cluster, "vms").await;
    let node = cluster.nodes().await.remove(0);
    let vm = Vmi::new(workload.namespace(), "vm").not_migratable();
    run_vm_on(&cluster, &vm, workload.namespace(), "vm", &node).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-vm", &node).await;
    let pod = until_blocked(&cluster, "e2e-vm", BlockReason::NotMigratable).await;
    let reason = "VMI vm is configured with an eviction strategy but is not live-migratable";
    assert_eq!(pod.message, format!("{REFUSED}: {reason}"));
    let status = cluster.maintenances().get("e2e-vm").await.unwrap().status.unwrap();
    assert_eq!((status.migrating_pods, status.pod_counts.migrating), (None, 0));
    stop(&cluster, "e2e-vm").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hotplug_pod_is_blocked_with_the_webhooks_reason_until_its_vm_is_gone() {
    let Some(cluster) = with_kubevirt(2, LONG_MIGRATION).await else { return };
    let workload = Workload::new(&cluster, "disks").await;
    let node = cluster.nodes().await.remove(0);
    let vm = Vmi::new(workload.namespace(), "vm").not_migratable();
    run_vm_on(&cluster, &vm, workload.namespace(), "vm", &node).await;
    let launchers = ListParams::default().labels("kubevirt.io=virt-launcher");
    let launcher = workload.pods().list(&launchers).await.unwrap().items.remove(0);
    let mut disk = hotplug_pod(&json!(launcher));
    disk["spec"]["nodeName"] = json!(node);
    let disk = workload.pods().create(&PostParams::default(), &parse(disk)).await.unwrap().name_any();
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-disk", &node).await;
    let is_disk = |status: &NodeMaintenanceStatus| status.blocked_pods.iter().any(|pod| pod.name == disk);
    let status = until_status(&cluster, "e2e-disk", "the disk is blocked", is_disk).await;
    let pod = status.blocked_pods.into_iter().find(|pod| pod.name == disk).unwrap();
    assert_eq!(pod.reason, BlockReason::NotMigratable);
    let namespace = workload.namespace();
    let reason =
        format!("cannot evict hotplug pod: {disk} associated with running vmi: vm in namespace {namespace}");
    let refused = "admission webhook \"hotplug-pod-eviction-interceptor.kubevirt.io\" denied the request";
    assert_eq!(pod.message, format!("{refused}: {reason}"));

    vms(&cluster, namespace).delete("vm", &DeleteParams::default()).await.unwrap();
    until_drained_without_errors(&cluster, "e2e-disk").await;
    stop(&cluster, "e2e-disk").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hotplug_pod_migrates_with_its_vm_and_is_never_deleted() {
    let Some(cluster) = with_kubevirt(2, LONG_MIGRATION).await else { return };
    cluster.grant("pod_deletion").await;
    let workload = Workload::new(&cluster, "disks").await;
    let node = cluster.nodes().await.remove(0);
    run_migratable_vm_on(&cluster, workload.namespace(), "vm", &node).await;
    let launchers = ListParams::default().labels("kubevirt.io=virt-launcher");
    let launcher = workload.pods().list(&launchers).await.unwrap().items.remove(0);
    let mut disk = hotplug_pod(&json!(launcher));
    disk["spec"]["nodeName"] = json!(node);
    let disk = workload.pods().create(&PostParams::default(), &parse(disk)).await.unwrap().name_any();
    let _reconciler = Reconciler::start(&cluster);
    start_with_drain(&cluster, "e2e-disk", &node, json!({"deleteAfterSeconds": 1})).await;
    let sandbox = cluster.sandbox().unwrap();
    let is_refused = |entry: &Entry| is_eviction(entry) && entry.name == disk;
    until_requests(sandbox, 3, "the disk is refused", is_refused).await;
    let both = |status: &NodeMaintenanceStatus| {
        let migrating = status.migrating_pods.as_deref().unwrap_or_default();
        migrating.len() == 2 && migrating.iter().all(|pod| pod.machine == "vm")
    };
    let status = until_status(&cluster, "e2e-disk", "both migrate", both).await;
    assert!(status.blocked_pods.is_empty(), "{status:?}");
    let is_deletion =
        |entry: &Entry| is_by_reconciler(entry) && entry.resource == "pods" && entry.verb == "delete";
    assert!(!sandbox.requests().all().iter().any(is_deletion), "nothing of it was deleted");
    stop(&cluster, "e2e-disk").await;
}
