//! Virtual machines on a sandbox that simulates KubeVirt.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, ResourceExt};
use kube_sandbox::kubevirt::{KUBEVIRTS, NAMESPACE, Vmi};
use nm_shared::NodeMaintenanceStatus;
use nm_shared::drain::migration::VirtualMachineInstanceMigration;
use nm_shared::drain::virtual_machine::{NODE_LABEL, VirtualMachineInstance};
use serde_json::{Value, json};

use crate::cluster::{Cluster, has_sandbox};
use crate::maintenance::until_status;
use crate::wait::wait_until;

/// A migration that does not end during a test.
pub const LONG_MIGRATION: Duration = Duration::from_secs(3600);

/// Long enough for a status with the target to be written before the migration ends.
pub const SHORT_MIGRATION: Duration = Duration::from_secs(2);

/// A cluster with KubeVirt; `None` where the suite runs on another cluster than a sandbox.
pub async fn with_kubevirt(nodes: usize, migration: Duration) -> Option<Cluster> {
    if !has_sandbox("only a sandbox simulates KubeVirt") {
        return None;
    }
    Some(Cluster::of_sandbox(nodes, 0, |sandbox| sandbox.with_kubevirt(migration).unwrap()).await)
}

/// Changes the object `kubevirt`, which has the limits of migrations and the settings of the simulation.
pub async fn set_kubevirt(cluster: &Cluster, change: Value) {
    let kind = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("kubevirt.io", "v1", "KubeVirt"),
        &KUBEVIRTS.plural,
    );
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), NAMESPACE, &kind);
    api.patch("kubevirt", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

/// Limits the migrations that are under way in the cluster.
pub async fn limit_migrations(cluster: &Cluster, limit: usize) {
    let migrations =
        json!({"parallelMigrationsPerCluster": limit, "parallelOutboundMigrationsPerNode": limit});
    set_kubevirt(cluster, json!({"spec": {"configuration": {"migrations": migrations}}})).await;
}

/// The migrations of a namespace.
pub fn migrations(cluster: &Cluster, namespace: &str) -> Api<VirtualMachineInstanceMigration> {
    Api::namespaced(cluster.client.clone(), namespace)
}

/// The virtual machines of a namespace.
pub fn vms(cluster: &Cluster, namespace: &str) -> Api<VirtualMachineInstance> {
    Api::namespaced(cluster.client.clone(), namespace)
}

/// Runs a virtual machine that can be migrated on a node.
pub async fn run_migratable_vm_on(cluster: &Cluster, namespace: &str, name: &str, node: &str) {
    run_vm_on(cluster, &Vmi::new(namespace, name), namespace, name, node).await;
}

/// Runs a virtual machine on a node.
pub async fn run_vm_on(cluster: &Cluster, vm: &Vmi, namespace: &str, name: &str, node: &str) {
    set_others_unschedulable(cluster, node, true).await;
    vm.create(cluster.sandbox().unwrap().cluster()).unwrap();
    until_vm_on(cluster, namespace, name, node).await;
    set_others_unschedulable(cluster, node, false).await;
}

/// Waits until a virtual machine runs on a node.
pub async fn until_vm_on(cluster: &Cluster, namespace: &str, name: &str, node: &str) {
    let is_there = |found: Option<&VirtualMachineInstance>| {
        found.is_some_and(|found| found.labels().get(NODE_LABEL).is_some_and(|label| label == node))
    };
    wait_until(&vms(cluster, namespace), name, "it runs on the node", is_there).await;
}

/// Sets `spec.unschedulable` of all nodes but one.
pub async fn set_others_unschedulable(cluster: &Cluster, except: &str, unschedulable: bool) {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    for other in cluster.nodes().await.into_iter().filter(|node| node != except) {
        let patch = Patch::Merge(json!({"spec": {"unschedulable": unschedulable}}));
        nodes.patch(&other, &PatchParams::default(), &patch).await.unwrap();
    }
}

/// The status of a maintenance, once a virtual machine migrates to another node.
pub async fn until_migrating(cluster: &Cluster, name: &str) -> NodeMaintenanceStatus {
    let migrates = |status: &NodeMaintenanceStatus| {
        let pods = status.migrating_pods.as_deref().unwrap_or_default();
        !pods.is_empty() && pods.iter().all(|pod| pod.target.is_some())
    };
    until_status(cluster, name, "a virtual machine migrates", migrates).await
}
