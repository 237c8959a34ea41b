//! Which other pods keep a pod off their nodes: those that its required anti-affinity excludes per node, and those with a port of
//! the host that it needs.
//!
//! Source: `pkg/scheduler/framework/plugins/interpodaffinity` and `nodeports` in kubernetes.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ContainerPort, Pod, PodAffinityTerm, PodSpec, PodTemplateSpec};
use kube::core::{Selector, SelectorExt};

/// The label whose values differ from node to node.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// What keeps a pod off the nodes of some other pods.
#[derive(Debug, Default)]
pub struct Exclusion {
    namespace: Option<String>,
    selectors: Vec<Selector>,
    ports: BTreeSet<(i32, String)>,
}

impl Exclusion {
    /// What keeps `pod` off.
    pub fn of(pod: &Pod) -> Self {
        let namespace = pod.metadata.namespace.clone();
        let Some(spec) = &pod.spec else { return Self::default() };
        let selectors = terms(spec).filter_map(|term| repelled(term, namespace.as_deref())).collect();
        Self { selectors, ports: host_ports(spec), namespace }
    }

    /// Whether the node of `other` is excluded.
    pub fn excludes(&self, other: &Pod) -> bool {
        let (none, metadata) = (BTreeMap::new(), &other.metadata);
        let labels = metadata.labels.as_ref().unwrap_or(&none);
        let repels = || self.selectors.iter().any(|selector| selector.matches(labels));
        let has_port = || other.spec.as_ref().is_some_and(|spec| !host_ports(spec).is_disjoint(&self.ports));
        (self.namespace == metadata.namespace && repels()) || has_port()
    }
}

/// Whether no two pods that are created of this template may be on one node.
pub fn keeps_apart(template: &PodTemplateSpec, namespace: Option<&str>) -> bool {
    let Some(spec) = &template.spec else { return false };
    let (none, metadata) = (BTreeMap::new(), template.metadata.as_ref());
    let labels = metadata.and_then(|metadata| metadata.labels.as_ref()).unwrap_or(&none);
    // The API server adds the values of `matchLabelKeys` and `mismatchLabelKeys` to the selectors of pods. Pods of one template
    // that have just been created share these values, so the former changes nothing here, and with the latter none matches.
    let concerned = terms(spec).filter(|term| term.mismatch_label_keys.is_none());
    let mut selectors = concerned.filter_map(|term| repelled(term, namespace));
    selectors.any(|selector| selector.matches(labels)) || !host_ports(spec).is_empty()
}

fn terms(spec: &PodSpec) -> impl Iterator<Item = &PodAffinityTerm> {
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    affinity
        .into_iter()
        .flat_map(|apart| apart.required_during_scheduling_ignored_during_execution.iter().flatten())
}

/// The pods of the same namespace whose nodes a term excludes.
fn repelled(term: &PodAffinityTerm, namespace: Option<&str>) -> Option<Selector> {
    let mut others = term.namespaces.iter().flatten();
    let is_of_namespace =
        term.namespace_selector.is_none() && others.all(|other| Some(other.as_str()) == namespace);
    let selector = term.label_selector.as_ref().filter(|_| is_of_namespace && term.topology_key == HOSTNAME);
    Selector::try_from(selector?.clone()).ok()
}

/// The ports of the host that the pod needs. The API server adds the ports of pods in the network of the host to the pods, and not
/// to the templates of Deployments.
pub(super) fn host_ports(spec: &PodSpec) -> BTreeSet<(i32, String)> {
    let is_on_host = spec.host_network == Some(true);
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    let host_port = |port: &ContainerPort| {
        let number = port.host_port.or(is_on_host.then_some(port.container_port))?;
        Some((number, port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())))
    };
    ports.filter_map(host_port).filter(|(number, _)| *number > 0).collect()
}
