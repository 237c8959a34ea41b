//! The nodes on which other pods prevent a pod from being scheduled, as far as the pods are known: its required anti-affinity
//! excludes their nodes, or they leave it no room.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use nm_shared::cluster::node;
use nm_shared::cluster::pod::PodPhase;
use nm_shared::cluster::pod_exclusion::Exclusion;
use nm_shared::cluster::pod_requests::Resources;

use crate::explain::cluster_facts::ClusterFacts;

/// The nodes that other pods keep a pod from.
pub(super) fn excluded_nodes(pod: &Pod, facts: &ClusterFacts) -> BTreeSet<String> {
    let mut excluded = taken_nodes(pod, facts);
    excluded.extend(without_room(pod, facts));
    excluded
}

/// The nodes of pods that keep the pod away, or that have a port of the host that it needs.
pub(super) fn taken_nodes(pod: &Pod, facts: &ClusterFacts) -> BTreeSet<String> {
    let exclusion = Exclusion::of(pod);
    let is_excluded = |other: &&Pod| other.uid() != pod.uid() && exclusion.excludes(other);
    facts.pods().filter(is_excluded).filter_map(node_of).map(str::to_owned).collect()
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
