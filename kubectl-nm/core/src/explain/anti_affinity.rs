//! Which nodes the required anti-affinity of a pod excludes, as far as the pods are known.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm};
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};

use crate::explain::cluster_facts::ClusterFacts;
use crate::explain::no_node_left::HOSTNAME;

/// The nodes of pods from which a pod is kept apart.
pub(super) fn excluded_nodes(pod: &Pod, facts: &ClusterFacts) -> BTreeSet<String> {
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
    let node = |other: &Pod| other.spec.as_ref()?.node_name.clone();
    facts.pods().filter(keeps_apart).filter_map(node).collect()
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
