//! Pods that their owners put back on the node, because they tolerate the cordon or are assigned to it: what to change in their
//! workloads.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use nm_shared::api::maintenance::ReturningPods;
use nm_shared::cluster::node;
use nm_shared::cluster::node_fit::{self, CandidateNode};
use nm_shared::cluster::pod::{self, DrainPod};
use nm_shared::drain::returning::{ReturnCause, tolerates_cordon};
use nm_shared::{BlockReason, BlockedPod, Group, NodeMaintenance, ReturnedPod, WorkloadReference};

use crate::explain::cause::{Cause, few_of};
use crate::explain::cause_wording::Words;
use crate::explain::cluster_facts::ClusterFacts;
use crate::explain::no_node_left;
use crate::explain::owner::{Owner, OwnerKind, owner_of};
use crate::explain::remedy::patch_drain;
use crate::terminal::command_context::shell_quoted;
use crate::terminal::text::first_names;

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
pub(super) fn name_remedy(
    cause: &mut Cause,
    pods: &[&BlockedPod],
    maintenance: &NodeMaintenance,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) {
    let returning = pods.iter().filter(|pod| pod.reason == BlockReason::KeepsReturning);
    let read: Vec<&Pod> = returning.filter_map(|pod| facts.read_pod(pod)).collect();
    let Some(first) = read.first() else { return };
    let first = DrainPod::from(*first);
    let is_assigned =
        Group::ALL.iter().all(|group| ReturnCause::of(&first, group.drain_taint()) == ReturnCause::Assigned);
    let (edit, left_out) = few_of(read.iter().map(|pod| {
        let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
        let owner = owner_of(pod);
        edit_owner(kubectl, namespace.unwrap_or_default(), name.unwrap_or_default(), owner.as_ref())
    }));
    let words = Words::of(maintenance, facts, &[], kubectl, now);
    let stuck: Vec<&Pod> = read.into_iter().filter(|pod| fits_nowhere_else(pod, &words)).collect();
    let (advice, commands) = match stuck.as_slice() {
        [] if is_assigned => (
            String::from(
                "Remove nodeName from the pod template, so that the scheduler chooses a node; or scale the owner of the pod down",
            ),
            Vec::new(),
        ),
        [] => (
            String::from(
                "In the pod template, replace the toleration with tolerations for the taints that the pod needs to tolerate; or scale \
                 the owner of the pod down",
            ),
            Vec::new(),
        ),
        stuck => without_a_node(stuck, is_assigned, maintenance, &words),
    };
    (cause.advice, cause.left_out) = (advice, left_out);
    cause.commands = commands.into_iter().chain(edit).collect();
}

/// Whether no node in service but its own can take a pod; false if that is not known.
fn fits_nowhere_else(pod: &Pod, words: &Words<'_>) -> bool {
    let Some(Ok(nodes)) = &words.facts.nodes else { return false };
    let accessible = words.facts.volumes.node_selectors(pod);
    // Without its toleration, the pod is not scheduled to a cordoned node.
    let is_open = |node: &&Node| {
        let name = node::name(node);
        name != words.node && !words.facts.in_maintenance.contains(name) && !node.is_unschedulable()
    };
    !nodes.iter().filter(is_open).any(|node| node_fit::check(pod, &accessible, node).is_ok())
}

/// What to do about pods that would only be Pending without what lets them return.
fn without_a_node(
    pods: &[&Pod],
    is_assigned: bool,
    maintenance: &NodeMaintenance,
    words: &Words<'_>,
) -> (String, Vec<String>) {
    let nodes = words.facts.nodes.iter().flatten().flatten().cloned().collect::<Vec<_>>();
    let suits =
        |pod: &&Pod| no_node_left::suitable(pod, &nodes, &words.facts.volumes, &words.facts.in_maintenance);
    let mut others: BTreeSet<String> = pods.iter().flat_map(suits).collect();
    others.remove(words.node);
    let names: Vec<String> = pods.iter().map(|pod| pod::reference_in(&pod.metadata).to_string()).collect();
    let (the_pod, its) =
        if pods.len() == 1 { ("the pod", "its toleration") } else { ("the pods", "their tolerations") };
    let without = if is_assigned { "nodeName" } else { its };
    let (mut ways, mut commands) = (Vec::new(), Vec::new());
    if !others.is_empty() {
        let back = words.ways_back(&others);
        let one = format!("return {} to service", back.one_of_stoppable());
        ways.push(back.words(&one, &one));
        commands.extend(back.commands(words));
    }
    let waits =
        maintenance.spec.drain.as_ref().is_some_and(|drain| drain.returning_pods == ReturningPods::Wait);
    let tolerates = |pod: &&Pod| {
        let pod = DrainPod::from(*pod);
        Group::ALL.iter().any(|group| tolerates_cordon(&pod, group.drain_taint()))
    };
    if waits && pods.iter().all(tolerates) {
        ways.push(format!("let {the_pod} stay on the node (returningPods)"));
        let name = maintenance.metadata.name.as_deref().unwrap_or_default();
        commands.push(patch_drain(words.kubectl, name, "{\"returningPods\":\"Stay\"}"));
    }
    ways.push(format!("scale the owner of {the_pod} down"));
    let advice = format!(
        "No other node can take {}, which would be Pending without {without}: {}",
        first_names(&names),
        ways.join(", or ")
    );
    (advice, commands)
}

fn owner(pod: &ReturnedPod) -> Option<Owner> {
    let WorkloadReference { api_version, kind, name } = pod.workload.clone()?;
    Some(Owner::of(&OwnerReference { api_version, kind, name, ..OwnerReference::default() }, None))
}
