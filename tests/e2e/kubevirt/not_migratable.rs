//! Virtual machines and hotplug pods that KubeVirt does not let anyone evict. Only a sandbox simulates KubeVirt.

use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube_sandbox::kubevirt::{Vmi, hotplug_pod};
use nm_shared::BlockReason;
use nm_tests::kubevirt::{
    LONG_MIGRATION, run_migratable_vm_on, run_vm_on, until_migrating, vms, with_kubevirt,
};
use nm_tests::maintenance::{start, stop, until_blocked, until_drained_without_errors};
use nm_tests::reconciler::Reconciler;
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
    run_migratable_vm_on(&cluster, workload.namespace(), "vm", &node).await;
    let launchers = ListParams::default().labels("kubevirt.io=virt-launcher");
    let launcher = workload.pods().list(&launchers).await.unwrap().items.remove(0);
    let mut disk = hotplug_pod(&json!(launcher));
    disk["spec"]["nodeName"] = json!(node);
    let disk = workload.pods().create(&PostParams::default(), &parse(disk)).await.unwrap().name_any();
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-disk", &node).await;
    let pod = until_blocked(&cluster, "e2e-disk", BlockReason::NotMigratable).await;
    let namespace = workload.namespace();
    let reason =
        format!("cannot evict hotplug pod: {disk} associated with running vmi: vm in namespace {namespace}");
    assert_eq!((&pod.name, pod.message), (&disk, format!("{REFUSED}: {reason}")));
    let migrating_pods = until_migrating(&cluster, "e2e-disk").await.migrating_pods.unwrap();
    assert!(
        migrating_pods.iter().map(|pod| &pod.name).eq([&launcher.name_any()]),
        "only the virtual machine: {migrating_pods:?}"
    );

    vms(&cluster, namespace).delete("vm", &DeleteParams::default()).await.unwrap();
    until_drained_without_errors(&cluster, "e2e-disk").await;
    stop(&cluster, "e2e-disk").await;
}
