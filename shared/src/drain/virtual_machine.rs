//! Virtual machines: which pods run one, and what KubeVirt writes about one.
//!
//! KubeVirt runs a virtual machine in a `virt-launcher` pod. Its webhook refuses to evict that pod. Instead it marks the
//! `VirtualMachineInstance` (`status.evacuationNodeName`), and KubeVirt live-migrates it to another node, and retries
//! until that succeeds ([`crate::drain::migration`]). The pod that it leaves behind then terminates on its own. A disk that is plugged
//! into a running virtual machine has a pod of its own, which that pod owns.
//!
//! The types have only the fields that are read here, as KubeVirt 1.0 to 1.9 write them
//! (`staging/src/kubevirt.io/api/core/v1/types.go` in kubevirt/kubevirt, v1.9.0).

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::Deserialize;

use crate::api::pod_reference::PodReference;
use crate::cluster::pod::{self, DrainPod};

/// API group of virtual machines.
pub const GROUP: &str = "kubevirt.io";

/// Label of an instance: the node that it runs on, which is the target once a migration has succeeded
/// (`NodeNameLabel`, set by `pkg/virt-controller/watch/vmi/lifecycle.go` and `pkg/virt-handler/migration-target.go`).
pub const NODE_LABEL: &str = "kubevirt.io/nodeName";

/// The labels of the pods that run a virtual machine, as a selector.
pub const LAUNCHER_SELECTOR: &str = "kubevirt.io=virt-launcher";

/// Label of KubeVirt's pods (`AppLabel`), and its values on those that run a virtual machine and on those of its disks.
const APP_LABEL: &str = "kubevirt.io";
const LAUNCHER: &str = "virt-launcher";
const HOTPLUG_DISK: &str = "hotplug-disk";

/// The eviction strategy of a virtual machine that another controller moves or ends once it is marked.
const EXTERNAL: &str = "External";

/// A running virtual machine.
#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
pub struct VirtualMachineInstance {
    /// Metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Its specification.
    #[serde(default)]
    pub spec: InstanceSpec,
    /// Its status.
    #[serde(default)]
    pub status: InstanceStatus,
}

/// The specification of a virtual machine.
#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct InstanceSpec {
    /// What an eviction does. Absent if the setting of the cluster applies.
    pub eviction_strategy: Option<String>,
}

/// The status of a virtual machine.
#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct InstanceStatus {
    /// The node that it is to leave; absent once it has left, or when the evacuation is cancelled.
    pub evacuation_node_name: Option<String>,
    /// Its last migration, which may have ended. It appears once the target pod is Ready.
    pub migration_state: Option<MigrationState>,
}

/// A migration of a virtual machine.
#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct MigrationState {
    /// The source node.
    pub source_node: Option<String>,
    /// The target node.
    pub target_node: Option<String>,
    /// When copying its memory began.
    pub start_timestamp: Option<Time>,
    /// When that ended.
    pub end_timestamp: Option<Time>,
    /// Whether it has ended, successfully or not.
    pub completed: bool,
    /// Whether it failed.
    pub failed: bool,
    /// Why it failed.
    pub failure_reason: Option<String>,
}

impl Resource for VirtualMachineInstance {
    type DynamicType = ();
    type Scope = kube::core::NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "VirtualMachineInstance".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "virtualmachineinstances".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl VirtualMachineInstance {
    /// Whether KubeVirt is to migrate it away from `node`.
    pub fn is_leaving(&self, node: &str) -> bool {
        self.status.evacuation_node_name.as_deref() == Some(node)
    }

    /// Whether another controller than KubeVirt's has to act once it is marked.
    pub fn is_left_to_others(&self) -> bool {
        self.spec.eviction_strategy.as_deref() == Some(EXTERNAL)
    }
}

impl MigrationState {
    /// Whether it has not ended.
    pub fn is_active(&self) -> bool {
        !self.completed && !self.failed
    }
}

/// A virtual machine by namespace and name.
pub type MachineKey = PodReference;

fn app(pod: &DrainPod) -> Option<&str> {
    pod.labels.get(APP_LABEL).map(String::as_str)
}

/// Whether KubeVirt runs a virtual machine in the pod, or did before the pod ended.
pub fn is_launcher(pod: &DrainPod) -> bool {
    app(pod) == Some(LAUNCHER)
}

/// Whether the pod belongs to a disk that is plugged into a running virtual machine.
pub fn is_disk(pod: &DrainPod) -> bool {
    app(pod) == Some(HOTPLUG_DISK)
}

/// The name of the virtual machine that a pod runs, or ran before it ended.
pub fn machine(pod: &DrainPod) -> Option<&str> {
    pod.domain.as_deref().filter(|_| is_launcher(pod))
}

/// The virtual machine that a pod runs, if it still runs one.
pub fn run_by(pod: &DrainPod) -> Option<&str> {
    machine(pod).filter(|_| !pod::is_finished(pod))
}

/// The pod on the same node whose virtual machine a pod belongs to: itself, or the owner of the pod of a disk.
pub fn launcher_of<'a>(
    pod: &'a DrainPod,
    on_node: impl IntoIterator<Item = &'a DrainPod>,
) -> Option<&'a DrainPod> {
    match app(pod)? {
        LAUNCHER => Some(pod),
        HOTPLUG_DISK => {
            let owner = pod::controller(pod)?;
            on_node.into_iter().find(|other| pod::uid(other) == owner.uid && is_launcher(other))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn launcher(extra: &Value) -> DrainPod {
        let mut pod = json!({
            "metadata": {"namespace": "ns", "name": "virt-launcher-vm-x", "uid": "l",
                "labels": {"kubevirt.io": "virt-launcher"}, "annotations": {"kubevirt.io/domain": "vm"}},
            "status": {"phase": "Running"},
        });
        for (key, value) in extra.as_object().unwrap() {
            pod[key] = value.clone();
        }
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn a_launcher_pod_runs_a_virtual_machine_until_it_ends_and_is_known_as_its_pod_after() {
        assert_eq!(run_by(&launcher(&json!({}))), Some("vm"));
        let ended = launcher(&json!({"status": {"phase": "Succeeded"}}));
        assert_eq!((run_by(&ended), machine(&ended)), (None, Some("vm")));
        assert_eq!(run_by(&launcher(&json!({"metadata": {"name": "p"}}))), None);
        let disk = json!({"metadata": {"labels": {"kubevirt.io": "hotplug-disk"}}});
        assert_eq!(run_by(&launcher(&disk)), None);
    }

    #[test]
    fn the_pod_of_a_disk_belongs_to_the_virtual_machine_of_its_owner() {
        let owned_by = |uid: &str| {
            let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "virt-launcher-vm-x", "uid": uid,
                "controller": true});
            launcher(&json!({"metadata": {"namespace": "ns", "name": "hp-volume-x", "uid": "d",
                "labels": {"kubevirt.io": "hotplug-disk"}, "ownerReferences": [owner]}}))
        };
        let machine_pod = launcher(&json!({}));
        let (disk, other) = (owned_by("l"), owned_by("gone"));
        let found =
            |pod: &DrainPod| launcher_of(pod, [&machine_pod, &disk]).map(|pod| pod::uid(pod).to_owned());
        assert_eq!(found(&disk).as_deref(), Some("l"));
        assert_eq!(found(&machine_pod).as_deref(), Some("l"));
        assert_eq!(found(&other), None);
        assert_eq!(found(&launcher(&json!({"metadata": {"name": "p"}}))), None);
    }
}
