//! The nodes on which other pods prevent a pod from being scheduled, as far as the pods are known: its required anti-affinity
//! excludes their nodes, or they leave it no room.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Pod, PodAffinityTerm};
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};
use nm_shared::cluster::node;
use nm_shared::cluster::pod::PodPhase;
use nm_shared::cluster::pod_requests::Resources;

use crate::explain::cluster_facts::ClusterFacts;
use crate::explain::no_node_left::HOSTNAME;

/// The nodes that other pods keep a pod from.
pub(super) fn excluded_nodes(pod: &Pod, facts: &ClusterFacts) -> BTreeSet<String> {
    let mut excluded = taken_nodes(pod, facts);
    excluded.extend(without_room(pod, facts));
    excluded
}

/// The nodes of pods that keep the pod away, or that have a port of the host that it needs.
pub(super) fn taken_nodes(pod: &Pod, facts: &ClusterFacts) -> BTreeSet<String> {
    let mut taken = kept_apart(pod, facts);
    taken.extend(without_port(pod, facts));
    taken
}

/// The nodes on which another pod that is known has a port of the host that the pod needs.
fn without_port(pod: &Pod, facts: &ClusterFacts) -> BTreeSet<String> {
    let wanted = host_ports(pod);
    let has_one = |other: &&Pod| other.uid() != pod.uid() && !host_ports(other).is_disjoint(&wanted);
    facts.pods().filter(has_one).filter_map(node_of).map(str::to_owned).collect()
}

fn host_ports(pod: &Pod) -> BTreeSet<(i32, &str)> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports.filter_map(|port| Some((port.host_port?, port.protocol.as_deref().unwrap_or("TCP")))).collect()
}

/// The nodes of pods from which a pod is kept apart.
fn kept_apart(pod: &Pod, facts: &ClusterFacts) -> BTreeSet<String> {
    let namespace = pod.namespace().unwrap_or_default();
    let selectors: Vec<Selector> = terms(pod)
        .filter(|term| is_of_namespace(term, &namespace) && term.topology_key == HOSTNAME)
        .filter_map(|term| Selector::try_from(term.label_selector.clone()?).ok())
        .collect();
    let keeps_apart = |other: &&Pod| {
        other.uid() != pod.uid()
            && other.namespace().as_ref() == Some(&namespace)
            && selectors.iter().any(|selector| selector.matches(other.labels()))
    };
    facts.pods().filter(keeps_apart).filter_map(node_of).map(str::to_owned).collect()
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

fn terms(pod: &Pod) -> impl Iterator<Item = &PodAffinityTerm> {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.pod_anti_affinity.as_ref());
    affinity
        .into_iter()
        .flat_map(|apart| apart.required_during_scheduling_ignored_during_execution.iter().flatten())
}

/// Whether a term concerns the pods of the pod's own namespace only.
fn is_of_namespace(term: &PodAffinityTerm, namespace: &str) -> bool {
    term.namespace_selector.is_none() && term.namespaces.iter().flatten().all(|other| other == namespace)
}
