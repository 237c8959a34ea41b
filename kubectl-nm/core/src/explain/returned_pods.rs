//! Pods that their owners put back on the node, because they tolerate the cordon or are assigned to it: what to change in their
//! workloads.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use nm_shared::cluster::pod::DrainPod;
use nm_shared::drain::returning::ReturnCause;
use nm_shared::{BlockReason, BlockedPod, Group, ReturnedPod, WorkloadReference};

use crate::explain::cause::{Cause, few};
use crate::explain::cluster_facts::ClusterFacts;
use crate::explain::owner::{Owner, OwnerKind, owner_of};
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
    edit_owner(kubectl, &pod.namespace, &pod.name, owner(pod).as_ref())
}

fn edit_owner(kubectl: &str, namespace: &str, name: &str, owner: Option<&Owner>) -> String {
    let namespace = shell_quoted(namespace);
    match owner {
        // The template of a Job cannot be changed.
        Some(owner) if *owner.kind() != OwnerKind::Job => {
            format!("{kubectl} -n {namespace} edit {}", shell_quoted(&owner.argument()))
        }
        _ => format!("{kubectl} -n {namespace} describe pod {}", shell_quoted(name)),
    }
}

/// Names in the cause of pods that keep returning what in their template lets them return, and their owners, as far as the pods
/// could be read.
pub(super) fn name_remedy(cause: &mut Cause, pods: &[&BlockedPod], facts: &ClusterFacts, kubectl: &str) {
    let returning = pods.iter().filter(|pod| pod.reason == BlockReason::KeepsReturning);
    let read = returning.filter_map(|pod| facts.replacements.get(&pod.reference())?.as_ref().ok()?.as_ref());
    let read: Vec<_> = read.map(|read| &read.pod).collect();
    let Some(first) = read.first() else { return };
    let first = DrainPod::from(*first);
    let is_assigned =
        Group::ALL.iter().all(|group| ReturnCause::of(&first, group.drain_taint()) == ReturnCause::Assigned);
    cause.advice = String::from(if is_assigned {
        "Remove nodeName from the pod template, so that the scheduler chooses a node; or scale the owner of the pod down"
    } else {
        "In the pod template, replace the toleration with tolerations for the taints that the pod needs to tolerate; or scale \
         the owner of the pod down"
    });
    cause.commands = few(read.iter().map(|pod| {
        let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
        let owner = owner_of(pod);
        edit_owner(kubectl, namespace.unwrap_or_default(), name.unwrap_or_default(), owner.as_ref())
    }));
}

fn owner(pod: &ReturnedPod) -> Option<Owner> {
    let WorkloadReference { api_version, kind, name } = pod.workload.clone()?;
    Some(Owner::of(&OwnerReference { api_version, kind, name, ..OwnerReference::default() }, None))
}
