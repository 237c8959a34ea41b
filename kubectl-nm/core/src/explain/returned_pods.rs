//! Pods that their owners put back on the node, because they tolerate the cordon: what to change in their workloads.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use nm_shared::{ReturnedPod, WorkloadReference};

use crate::explain::owner::{Owner, OwnerKind};
use crate::terminal::command_context::shell_quoted;

/// What to change, as a sentence without its full stop.
pub(super) const ADVICE: &str = "To keep its pods off nodes in maintenance, replace the toleration in its pod \
    template with tolerations for the taints that it needs to tolerate";

/// The workload of a pod, as kubectl and people name it.
pub(super) fn workload(pod: &ReturnedPod) -> String {
    owner(pod).map_or_else(|| format!("the owner of {}", pod.name), |owner| owner.to_string())
}

/// The command that changes its workload, or else shows the pod.
pub(super) fn edit(kubectl: &str, pod: &ReturnedPod) -> String {
    let namespace = shell_quoted(&pod.namespace);
    match owner(pod) {
        // The template of a Job cannot be changed.
        Some(owner) if *owner.kind() != OwnerKind::Job => {
            format!("{kubectl} -n {namespace} edit {}", shell_quoted(&owner.argument()))
        }
        _ => format!("{kubectl} -n {namespace} describe pod {}", shell_quoted(&pod.name)),
    }
}

fn owner(pod: &ReturnedPod) -> Option<Owner> {
    let WorkloadReference { api_version, kind, name } = pod.workload.clone()?;
    Some(Owner::of(&OwnerReference { api_version, kind, name, ..OwnerReference::default() }, None))
}
