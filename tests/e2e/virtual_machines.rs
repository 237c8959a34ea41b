//! Virtual machines, which KubeVirt migrates where others are evicted. Only a sandbox plays KubeVirt.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use kube_sandbox::faults::{Action, Failure, Moment, Rule, Target, When};
use kube_sandbox::kubevirt::Vmi;
use kube_sandbox::request_log::Entry;
use nm_shared::cluster::pod;
use nm_shared::drain::virtual_machine::{NODE_LABEL, VirtualMachineInstance};
use nm_shared::{BlockReason, MigratingPod, NodeMaintenanceStatus};
use nm_tests::cluster::Cluster;
use nm_tests::programs::skipped;
use nm_tests::reconciler::Reconciler;
use nm_tests::until::{PATIENCE, until};
use nm_tests::workload::{Workload, node_of, pods_on};
use serde_json::json;

use crate::{drained, once, start, stop};

/// A migration that no test sees the end of.
pub(crate) const LONG: Duration = Duration::from_secs(3600);

/// Long enough for a status with the target to be written before it is over.
const SHORT: Duration = Duration::from_secs(2);

/// A cluster with KubeVirt; none where a real one is tested.
pub(crate) async fn with_kubevirt(nodes: usize, migration: Duration) -> Option<Cluster> {
    if std::env::var_os("NM_E2E_KUBECONFIG").is_some() {
        skipped("only a sandbox plays KubeVirt");
        return None;
    }
    Some(Cluster::of_sandbox(nodes, 0, |sandbox| sandbox.with_kubevirt(migration).unwrap()).await)
}

/// The virtual machines of a namespace.
pub(crate) fn instances(cluster: &Cluster, namespace: &str) -> Api<VirtualMachineInstance> {
    Api::namespaced(cluster.client.clone(), namespace)
}

/// Brings a virtual machine that can be migrated to a node.
pub(crate) async fn machine_on(cluster: &Cluster, namespace: &str, name: &str, node: &str) {
    place(cluster, &Vmi::new(namespace, name), namespace, name, node).await;
}

/// Brings a virtual machine to a node.
pub(crate) async fn place(cluster: &Cluster, machine: &Vmi, namespace: &str, name: &str, node: &str) {
    cordon_others(cluster, node, true).await;
    machine.create(cluster.sandbox().unwrap().cluster()).unwrap();
    runs_on(cluster, namespace, name, node).await;
    cordon_others(cluster, node, false).await;
}

async fn runs_on(cluster: &Cluster, namespace: &str, name: &str, node: &str) {
    let there = |found: Option<&VirtualMachineInstance>| {
        found.is_some_and(|found| found.labels().get(NODE_LABEL).is_some_and(|label| label == node))
    };
    until(&instances(cluster, namespace), name, "it runs on the node", there).await;
}

/// The machine `vm` on a node whose maintenance `e2e-vm` begins: where it is, which node, and the reconciler at work.
async fn machine_that_is_to_leave(cluster: &Cluster) -> (Workload, String, Reconciler) {
    let workload = Workload::new(cluster, "machines").await;
    let node = cluster.nodes().await.remove(0);
    machine_on(cluster, workload.namespace(), "vm", &node).await;
    let reconciler = Reconciler::start(cluster);
    start(cluster, "e2e-vm", &node).await;
    (workload, node, reconciler)
}

/// Whether KubeVirt is to take the machine `vm` away.
async fn is_leaving(cluster: &Cluster, namespace: &str, node: &str) -> bool {
    instances(cluster, namespace).get("vm").await.unwrap().is_leaving(node)
}

async fn cordon_others(cluster: &Cluster, but: &str, unschedulable: bool) {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    for other in cluster.nodes().await.into_iter().filter(|node| node != but) {
        let patch = Patch::Merge(json!({"spec": {"unschedulable": unschedulable}}));
        nodes.patch(&other, &PatchParams::default(), &patch).await.unwrap();
    }
}

/// The status once a machine is on its way to another node.
pub(crate) async fn migrating(cluster: &Cluster, name: &str) -> NodeMaintenanceStatus {
    let under_way = |status: &NodeMaintenanceStatus| {
        let pods = status.migrating_pods.as_deref().unwrap_or_default();
        !pods.is_empty() && pods.iter().all(|pod| pod.target.is_some())
    };
    once(cluster, name, "a machine migrates", under_way).await
}

/// What the reconciler asked KubeVirt, or asked about it.
fn kubevirt_requests(cluster: &Cluster) -> Vec<Entry> {
    let all = cluster.sandbox().unwrap().requests().all();
    let ours = all.into_iter().filter(|entry| entry.user_agent.starts_with("nm-reconciler/"));
    ours.filter(|entry| entry.group.contains("kubevirt") || entry.resource.contains("kubevirt")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_virtual_machine_migrates_and_is_shown_with_source_target_and_age() {
    let Some(cluster) = with_kubevirt(3, SHORT).await else { return };
    let workload = Workload::new(&cluster, "machines").await;
    workload.deployment("web", 1).await;
    let node = node_of(&workload.until_running("web", 1).await[0]).to_owned();
    machine_on(&cluster, workload.namespace(), "vm", &node).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-vm", &node).await;

    let status = migrating(&cluster, "e2e-vm").await;
    let [shown]: [MigratingPod; 1] = status.migrating_pods.unwrap().try_into().unwrap();
    assert_eq!((shown.namespace.as_str(), shown.machine.as_str()), (workload.namespace(), "vm"));
    assert!(shown.name.starts_with("virt-launcher-vm-"), "{shown:?}");
    assert_eq!(shown.source.as_deref(), Some(&*node));
    assert!(shown.target.as_ref().is_some_and(|target| *target != node), "{shown:?}");
    assert!(shown.since.is_some(), "{shown:?}");
    assert_eq!((status.pod_counts.migrating, status.blocked_pods.len()), (1, 0));
    assert_eq!(status.last_error, "");

    let status = drained(&cluster, "e2e-vm").await.status.unwrap();
    assert_eq!((status.migrating_pods, status.pod_counts.migrating), (None, 0));
    runs_on(&cluster, workload.namespace(), "vm", &shown.target.unwrap()).await;
    workload.until_running("web", 1).await;
    let left = pods_on(&cluster.client, &node).await;
    assert!(left.iter().all(|pod| pod::daemon_set(pod).is_some()), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_failed_is_told_with_its_reason_until_the_next_begins() {
    let Some(cluster) = with_kubevirt(3, LONG).await else { return };
    let (workload, node, _reconciler) = machine_that_is_to_leave(&cluster).await;
    let target = migrating(&cluster, "e2e-vm").await.migrating_pods.unwrap().remove(0).target.unwrap();

    cordon_others(&cluster, &node, true).await;
    let launchers = ListParams::default().labels("kubevirt.io=virt-launcher");
    let pods: Vec<Pod> = workload.pods().list(&launchers).await.unwrap().items;
    let arriving = pods.iter().find(|pod| node_of(pod) == target).unwrap().name_any();
    workload.pods().delete(&arriving, &DeleteParams::default()).await.unwrap();
    let blocked = |status: &NodeMaintenanceStatus| !status.blocked_pods.is_empty();
    let status = once(&cluster, "e2e-vm", "blocked by the failure", blocked).await;
    let message =
        format!("its live migration to node {target} failed: Target pod is down; KubeVirt retries it");
    assert_eq!(
        (status.blocked_pods[0].reason, &status.blocked_pods[0].message),
        (BlockReason::MigrationFailed, &message)
    );
    assert_eq!(status.blocked_pods[0].facts.node.as_ref(), Some(&target));
    assert!(status.migrating_pods.is_none() && status.last_error.contains("(MigrationFailed)"), "{status:?}");

    cordon_others(&cluster, &node, false).await;
    let status = migrating(&cluster, "e2e-vm").await;
    assert_eq!((status.blocked_pods.len(), status.last_error.as_str()), (0, ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_that_is_deleted_midway_calls_the_evacuation_off() {
    let Some(cluster) = with_kubevirt(2, LONG).await else { return };
    let (workload, node, _reconciler) = machine_that_is_to_leave(&cluster).await;
    migrating(&cluster, "e2e-vm").await;
    assert!(is_leaving(&cluster, workload.namespace(), &node).await);
    stop(&cluster, "e2e-vm").await;
    assert!(!is_leaving(&cluster, workload.namespace(), &node).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evacuation_is_called_off_by_a_reconciler_that_was_not_there_when_it_began() {
    let Some(cluster) = with_kubevirt(2, LONG).await else { return };
    let (workload, node, reconciler) = machine_that_is_to_leave(&cluster).await;
    migrating(&cluster, "e2e-vm").await;
    reconciler.crash().await;
    cluster.maintenances().delete("e2e-vm", &DeleteParams::default()).await.unwrap();
    let _reconciler = Reconciler::start(&cluster);
    until(&cluster.maintenances(), "e2e-vm", "gone", |found| found.is_none()).await;
    assert!(!is_leaving(&cluster, workload.namespace(), &node).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubevirt_that_cannot_call_an_evacuation_off_does_not_hold_the_maintenance() {
    if std::env::var_os("NM_E2E_KUBECONFIG").is_some() {
        return skipped("only a sandbox plays KubeVirt");
    }
    let older = |sandbox: kube_sandbox::sandbox::Sandbox| sandbox.with_kubevirt_before_1_7(LONG).unwrap();
    let cluster = Cluster::of_sandbox(2, 0, older).await;
    let (workload, node, _reconciler) = machine_that_is_to_leave(&cluster).await;
    migrating(&cluster, "e2e-vm").await;
    stop(&cluster, "e2e-vm").await;
    assert!(is_leaving(&cluster, workload.namespace(), &node).await, "it is still KubeVirt's to move");
    assert!(kubevirt_requests(&cluster).iter().all(|entry| entry.verb != "update"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubevirt_that_fails_is_asked_again_but_does_not_hold_the_maintenance() {
    for (failures, stays) in [(When::First(1), true), (When::Always, false)] {
        let Some(cluster) = with_kubevirt(2, LONG).await else { return };
        let cancel = Target::any().verb("update").group("subresources.kubevirt.io");
        let fails = Action::Fail(Failure::Internal, Moment::BeforeEffect);
        cluster.sandbox().unwrap().faults().add(Rule::new(cancel, fails).when(failures));
        let (workload, node, _reconciler) = machine_that_is_to_leave(&cluster).await;
        migrating(&cluster, "e2e-vm").await;
        stop(&cluster, "e2e-vm").await;
        assert_eq!(!is_leaving(&cluster, workload.namespace(), &node).await, stays, "{failures:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_see_them_virtual_machines_migrate_all_the_same() {
    let Some(cluster) = with_kubevirt(2, SHORT).await else { return };
    let roles: Api<ClusterRole> = Api::all(cluster.client.clone());
    let role = nm_tests::manifests::cluster_role();
    let mut rights = role.rules.clone().unwrap();
    rights.retain(|right| right.resources.iter().flatten().all(|name| !name.contains("virtualmachine")));
    assert_ne!(role.rules.as_ref(), Some(&rights));
    let fewer = Patch::Merge(json!({"rules": rights}));
    roles.patch(&role.name_any(), &PatchParams::default(), &fewer).await.unwrap();
    let (.., _reconciler) = machine_that_is_to_leave(&cluster).await;
    let shown = |status: &NodeMaintenanceStatus| status.migrating_pods.is_some();
    let pod = once(&cluster, "e2e-vm", "migrating", shown).await.migrating_pods.unwrap().remove(0);
    assert_eq!((pod.machine.as_str(), pod.source, pod.target), ("vm", None, None));
    drained(&cluster, "e2e-vm").await;
    stop(&cluster, "e2e-vm").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_kubevirt_is_asked_nothing_about_it_and_one_with_it_only_where_there_are_machines()
{
    if std::env::var_os("NM_E2E_KUBECONFIG").is_some() {
        return skipped("only a sandbox tells what it was asked");
    }
    for kubevirt in [false, true] {
        let cluster = Cluster::of_sandbox(2, 20, |sandbox| {
            if kubevirt { sandbox.with_kubevirt(SHORT).unwrap() } else { sandbox }
        })
        .await;
        let _reconciler = Reconciler::start(&cluster);
        let node = cluster.nodes().await.remove(0);
        start(&cluster, "e2e-plain", &node).await;
        drained(&cluster, "e2e-plain").await;
        stop(&cluster, "e2e-plain").await;
        assert_eq!(kubevirt_requests(&cluster), [], "with KubeVirt: {kubevirt}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_only_look_like_virtual_machines_cost_one_question() {
    if std::env::var_os("NM_E2E_KUBECONFIG").is_some() {
        return skipped("only a sandbox tells what it was asked");
    }
    let cluster = Cluster::start(2).await;
    let workload = Workload::new(&cluster, "machines").await;
    let node = cluster.nodes().await.remove(0);
    let marks = json!({"metadata": {"labels": {"kubevirt.io": "virt-launcher"},
        "annotations": {"kubevirt.io/domain": "vm"}, "finalizers": ["kubectl-nm.dev/e2e-hold"]}});
    workload.pod_on(&node, "fake", marks).await;
    let _reconciler = Reconciler::start(&cluster);
    start(&cluster, "e2e-fake", &node).await;
    let log = cluster.sandbox().unwrap().requests();
    let asked = log.until(|log| log.count(|entry| entry.resource.contains("kubevirt")) > 0);
    tokio::time::timeout(PATIENCE, asked).await.unwrap();
    let held = |status: &NodeMaintenanceStatus| {
        status.blocked_pods.iter().any(|pod| pod.reason == BlockReason::Finalizers)
    };
    once(&cluster, "e2e-fake", "held by its finalizer", held).await;
    workload.let_go("fake").await;
    drained(&cluster, "e2e-fake").await;
    stop(&cluster, "e2e-fake").await;
    let paths: Vec<String> = kubevirt_requests(&cluster).into_iter().map(|entry| entry.resource).collect();
    assert_eq!(paths, ["/apis/kubevirt.io/v1"]);
}
