//! Which other pods keep a pod off their nodes: those that its required anti-affinity excludes per node, and those with a port of
//! the host that it needs.
//!
//! Source: `pkg/scheduler/framework/plugins/interpodaffinity` and `nodeports` in kubernetes.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ContainerPort, Node, NodeSelector, Pod, PodAffinityTerm};
use kube::core::{Selector, SelectorExt};

use crate::cluster::node;
use crate::cluster::node_fit;

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
        let selectors = terms(pod)
            .filter(|term| term.topology_key == HOSTNAME && is_of_namespace(term, namespace.as_deref()))
            .filter_map(|term| Selector::try_from(term.label_selector.clone()?).ok());
        Self { selectors: selectors.collect(), ports: host_ports(pod), namespace }
    }

    /// Whether the nodes of no pods are excluded.
    pub fn is_empty(&self) -> bool {
        self.selectors.is_empty() && self.ports.is_empty()
    }

    /// Whether a pod with the same ports is excluded, whatever its labels.
    pub fn needs_port(&self) -> bool {
        !self.ports.is_empty()
    }

    /// Whether the anti-affinity excludes the node of a pod with these labels.
    pub fn repels(&self, namespace: Option<&str>, labels: &BTreeMap<String, String>) -> bool {
        self.namespace.as_deref() == namespace
            && self.selectors.iter().any(|selector| selector.matches(labels))
    }

    /// Whether the node of `other` is excluded.
    pub fn excludes(&self, other: &Pod) -> bool {
        let metadata = &other.metadata;
        let labels = metadata.labels.as_ref();
        self.repels(metadata.namespace.as_deref(), labels.unwrap_or(&BTreeMap::new()))
            || !host_ports(other).is_disjoint(&self.ports)
    }
}

/// Whether there are nodes that `pod` fits, and other pods keep it off each of them: its node is taken.
pub fn is_kept_apart<N: Borrow<Node>>(
    pod: &Pod,
    volumes: &[&NodeSelector],
    nodes: impl IntoIterator<Item = N>,
    is_taken: impl Fn(&str) -> bool,
) -> bool {
    let mut fitting =
        nodes.into_iter().filter(|node| node_fit::check(pod, volumes, node.borrow()).is_ok()).peekable();
    fitting.peek().is_some() && fitting.all(|node| is_taken(node::name(node.borrow())))
}

fn terms(pod: &Pod) -> impl Iterator<Item = &PodAffinityTerm> {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.pod_anti_affinity.as_ref());
    affinity
        .into_iter()
        .flat_map(|apart| apart.required_during_scheduling_ignored_during_execution.iter().flatten())
}

/// Whether a term concerns the pods of the pod's own namespace only.
fn is_of_namespace(term: &PodAffinityTerm, namespace: Option<&str>) -> bool {
    let mut others = term.namespaces.iter().flatten();
    term.namespace_selector.is_none() && others.all(|other| Some(other.as_str()) == namespace)
}

/// The ports of the host that the pod needs. The API server adds the ports of pods in the network of the host to the pods, and not
/// to the templates of Deployments.
pub(super) fn host_ports(pod: &Pod) -> BTreeSet<(i32, String)> {
    let Some(spec) = &pod.spec else { return BTreeSet::new() };
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
