//! The nodes on which other pods prevent a pod from being scheduled, as far as the pods are known: its required anti-affinity
//! excludes their nodes, they leave it no room, or its topology spread constraints require fewer of them there.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Pod, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use nm_shared::cluster::node;
use nm_shared::cluster::node_fit::{self, CandidateNode};
use nm_shared::cluster::pod::PodPhase;
use nm_shared::cluster::pod_exclusion::Exclusion;
use nm_shared::cluster::pod_requests::Resources;
use nm_shared::cluster::topology_spread::{self, SpreadPods};
use nm_shared::drain::surge;

use crate::explain::cluster_facts::ClusterFacts;
use crate::explain::owner::owner_of;
use crate::explain::unsatisfiable_budget::Apart;

/// The nodes that other pods keep a pod from.
pub(super) fn excluded_nodes(pod: &Pod, facts: &ClusterFacts) -> BTreeSet<String> {
    let mut excluded = taken_nodes(pod, facts);
    excluded.extend(without_room(pod, facts));
    excluded.extend(too_uneven(pod, facts));
    excluded
}

/// The cordoned nodes on which the pod would be spread too unevenly. Of a constraint that may count pods that are not known,
/// nothing is known.
fn too_uneven(pod: &Pod, facts: &ClusterFacts) -> BTreeSet<String> {
    let Some(Ok(nodes)) = &facts.nodes else { return BTreeSet::new() };
    let counted =
        |constraint| Some(SpreadPods::count(constraint, pod, nodes, all_counted(constraint, pod, facts)?));
    let constraints: Vec<SpreadPods<'_>> = topology_spread::required(pod).filter_map(counted).collect();
    let is_uneven = |node: &&Node| !constraints.iter().all(|counted| counted.allow(node));
    let is_cordoned =
        |node: &&Node| node.is_unschedulable() || facts.in_maintenance.contains(node::name(node));
    nodes.iter().filter(is_cordoned).filter(is_uneven).map(|node| node::name(node).to_owned()).collect()
}

/// The pods of a budget that guards all pods that a constraint counts.
fn all_counted<'a>(
    constraint: &TopologySpreadConstraint,
    pod: &Pod,
    facts: &'a ClusterFacts,
) -> Option<&'a [Pod]> {
    let of_namespace =
        facts.budgets.iter().filter(|(budget, _)| Some(&budget.namespace) == pod.metadata.namespace.as_ref());
    let found = of_namespace.filter_map(|(_, guarded)| {
        let selector = guarded.budget.as_ref().ok()?.as_ref()?.spec.as_ref()?.selector.as_ref()?;
        let pods = guarded.pods.as_ref().ok()?;
        contains(selector, constraint.label_selector.as_ref()?).then_some(pods.as_slice())
    });
    found.into_iter().next()
}

/// Whether a selector demands nothing that the narrower one does not demand.
fn contains(wider: &LabelSelector, narrower: &LabelSelector) -> bool {
    let labels = narrower.match_labels.clone().unwrap_or_default();
    let expressions = narrower.match_expressions.as_deref().unwrap_or_default();
    wider.match_labels.iter().flatten().all(|(label, value)| labels.get(label) == Some(value))
        && wider.match_expressions.iter().flatten().all(|wanted| expressions.contains(wanted))
}

/// The nodes of pods that keep the pod away, or that have a port of the host that it needs.
pub(super) fn taken_nodes(pod: &Pod, facts: &ClusterFacts) -> BTreeSet<String> {
    let exclusion = Exclusion::of(pod);
    let is_excluded = |other: &&Pod| other.uid() != pod.uid() && exclusion.excludes(other);
    facts.pods().filter(is_excluded).filter_map(node_of).map(str::to_owned).collect()
}

/// Whether there is a node in service for each replacement, if no two of `pods` that are of the workload of `pod` may be on one.
pub(super) fn apart(pod: &Pod, pods: &[Pod], nodes: &[Node], facts: &ClusterFacts) -> Apart {
    let (accessible, taken) = (facts.volumes.node_selectors(pod), taken_nodes(pod, facts));
    let in_service = nodes.iter().filter(|node| !facts.in_maintenance.contains(node::name(node)));
    let fitting: Vec<&Node> =
        in_service.filter(|node| node_fit::check(pod, &accessible, *node).is_ok()).collect();
    if !fitting.is_empty() && fitting.iter().all(|node| taken.contains(node::name(node))) {
        return Apart::AllTaken;
    }
    let owner = owner_of(pod);
    let is_replica = |other: &&Pod| other.metadata.deletion_timestamp.is_none() && owner_of(other) == owner;
    let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    let has_too_few =
        surge::has_too_few_nodes(count(fitting.len()), count(pods.iter().filter(is_replica).count()));
    if has_too_few && Exclusion::of(pod).excludes(pod) { Apart::TooFewNodes } else { Apart::Enough }
}

/// The nodes in maintenance on which the pods that are known, and stay there until the pod is Ready, leave no room for it.
fn without_room(pod: &Pod, facts: &ClusterFacts) -> BTreeSet<String> {
    let Some(Ok(nodes)) = &facts.nodes else { return BTreeSet::new() };
    let mut on_nodes: BTreeMap<&str, BTreeMap<Option<String>, &Pod>> = BTreeMap::new();
    // The scheduler no longer counts what a finished pod requests.
    let stays =
        |pod: &&Pod| pod.metadata.deletion_timestamp.is_none() && PodPhase::of(pod) != PodPhase::Finished;
    for other in facts.pods().filter(stays) {
        if let Some(name) = node_of(other).filter(|name| facts.in_maintenance.contains(*name)) {
            on_nodes.entry(name).or_default().insert(other.uid(), other);
        }
    }
    let wanted = Resources::of_pod(pod);
    let is_full = |node: &&Node| {
        let Some(others) = on_nodes.get(node::name(node)) else { return false };
        let mut free = Resources::of_node(node);
        for other in others.values() {
            free.subtract(&Resources::of_pod(other));
        }
        let has_numbers = node.status.as_ref().is_some_and(|status| status.allocatable.is_some());
        has_numbers && free.short_of(&wanted).is_some()
    };
    nodes.iter().filter(is_full).map(|node| node::name(node).to_owned()).collect()
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}
