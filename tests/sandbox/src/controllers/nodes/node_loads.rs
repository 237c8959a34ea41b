//! What is reserved on each node by the pods on it.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use crate::cluster::store::{Key, Object};
use crate::controllers::nodes::node_fit;
use crate::model::resources::{self, Resources, SCORED};

/// What a pod needs of a node.
#[derive(Debug, Clone, Default)]
pub(crate) struct Demand {
    /// What is reserved for it.
    pub(crate) requests: Resources,
    /// What it counts as when nodes are scored: CPU and memory.
    pub(crate) scored: [i64; 2],
}

impl Demand {
    /// The demand of a pod.
    pub(crate) fn of(pod: &Value) -> Self {
        Self { requests: Resources::of_pod(pod), scored: resources::scored(pod) }
    }
}

/// What the pods on a node need together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Usage {
    /// Their number.
    pub(crate) pods: usize,
    /// Their demands.
    pub(crate) demand: Demand,
}

/// A node, and what it has.
#[derive(Debug)]
pub(crate) struct NodeCapacity {
    /// The node.
    pub(crate) node: Object,
    /// What it has for pods.
    pub(crate) allocatable: Resources,
    /// The CPU and memory in it.
    pub(crate) scored: [i64; 2],
    /// Whether it takes every pod: it has neither a cordon nor a taint that repels pods.
    pub(crate) is_open: bool,
    /// How many of its taints repel pods where there is another node.
    pub(crate) preferences: usize,
}

impl NodeCapacity {
    fn of(node: Object) -> Self {
        let allocatable = Resources::of_node(&node);
        Self {
            scored: SCORED.map(|name| allocatable.amount(name)),
            allocatable,
            is_open: node_fit::is_open(&node),
            preferences: node_fit::preferences(&node).count(),
            node,
        }
    }
}

/// A node with what is used on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeLoad<'a> {
    /// The node.
    pub(crate) capacity: &'a NodeCapacity,
    /// What is used; none if there are no pods on it.
    pub(crate) usage: Option<&'a Usage>,
}

impl<'a> NodeLoad<'a> {
    /// The resources of which the node has too little for another pod.
    pub(crate) fn short_of<'d>(self, demand: &'d Demand) -> impl Iterator<Item = &'d str> + use<'a, 'd> {
        static NOTHING: Resources = Resources::none();
        let used = self.usage.map_or(&NOTHING, |usage| &usage.demand.requests);
        self.capacity.allocatable.short_of(used, &demand.requests)
    }
}

/// The nodes and the pods on them.
#[derive(Debug, Default)]
pub(crate) struct NodeLoads {
    nodes: HashMap<String, NodeCapacity>,
    usage: HashMap<String, Usage>,
    order: BTreeSet<(usize, usize, String)>,
    placed: HashMap<Key, (String, Demand)>,
}

impl NodeLoads {
    /// Observes a change of a node; `None` when it is gone.
    pub(crate) fn set_node(&mut self, name: &str, node: Option<Object>) {
        self.order.remove(&self.position(name));
        if let Some(node) = node {
            self.nodes.insert(name.to_owned(), NodeCapacity::of(node));
            self.order.insert(self.position(name));
        } else {
            self.nodes.remove(name);
        }
    }

    /// Moves a pod to a node, or to none. Returns whether another node has capacity now.
    pub(crate) fn place(&mut self, pod: &Key, node: Option<&str>, demand: impl FnOnce() -> Demand) -> bool {
        if self.placed.get(pod).map(|(node, _)| node.as_str()) == node {
            return false;
        }
        let left = self.placed.remove(pod);
        if let Some((left, demand)) = &left {
            self.change(left, |usage| {
                usage.pods = usage.pods.saturating_sub(1);
                usage.demand.requests.subtract(&demand.requests);
                for (sum, amount) in usage.demand.scored.iter_mut().zip(demand.scored) {
                    *sum = sum.saturating_sub(amount);
                }
            });
        }
        if let Some(node) = node {
            let demand = demand();
            self.change(node, |usage| {
                usage.pods += 1;
                usage.demand.requests.add(&demand.requests);
                for (sum, amount) in usage.demand.scored.iter_mut().zip(demand.scored) {
                    *sum = sum.saturating_add(amount);
                }
            });
            self.placed.insert(pod.clone(), (node.to_owned(), demand));
        }
        left.is_some()
    }

    /// The nodes: first those with the fewest taints that repel pods, and among these those with the fewest pods.
    pub(crate) fn emptiest_first(&self) -> impl Iterator<Item = NodeLoad<'_>> {
        self.order.iter().filter_map(|(_, _, name)| self.node(name))
    }

    /// One node.
    pub(crate) fn node(&self, name: &str) -> Option<NodeLoad<'_>> {
        Some(NodeLoad { capacity: self.nodes.get(name)?, usage: self.usage.get(name) })
    }

    /// The number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Drops all pods.
    pub(crate) fn forget_pods(&mut self) {
        self.placed.clear();
        self.usage.clear();
        self.order = self.nodes.keys().map(|name| self.position(name)).collect();
    }

    /// Drops all nodes.
    pub(crate) fn forget_nodes(&mut self) {
        self.nodes.clear();
        self.order.clear();
    }

    fn position(&self, node: &str) -> (usize, usize, String) {
        let preferences = self.nodes.get(node).map_or(0, |capacity| capacity.preferences);
        let pods = self.usage.get(node).map_or(0, |usage| usage.pods);
        (preferences, pods, node.to_owned())
    }

    fn change(&mut self, node: &str, change: impl FnOnce(&mut Usage)) {
        let was_there = self.order.remove(&self.position(node));
        let usage = self.usage.entry(node.to_owned()).or_default();
        change(usage);
        if usage.pods == 0 {
            self.usage.remove(node);
        }
        if was_there {
            self.order.insert(self.position(node));
        }
    }
}
