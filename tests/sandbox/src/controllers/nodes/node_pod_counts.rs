//! The number of pods on each node.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use crate::cluster::store::{Key, Object};
use crate::model::pod;

/// The capacity of a node that does not report one.
const DEFAULT_ROOM: usize = 110;

/// The nodes and the pods on them.
#[derive(Debug, Default)]
pub(crate) struct NodePodCounts {
    nodes: HashMap<String, Object>,
    counts: HashMap<String, usize>,
    order: BTreeSet<(usize, String)>,
    placed: HashMap<Key, String>,
}

impl NodePodCounts {
    /// Observes a change of a node; `None` when it is gone.
    pub(crate) fn set_node(&mut self, name: &str, node: Option<Object>) {
        let entry = (self.count(name), name.to_owned());
        if let Some(node) = node {
            self.nodes.insert(name.to_owned(), node);
            self.order.insert(entry);
        } else {
            self.nodes.remove(name);
            self.order.remove(&entry);
        }
    }

    /// Moves a pod to a node, or to none. Returns whether another node has capacity now.
    pub(crate) fn place(&mut self, pod: &Key, node: Option<&str>) -> bool {
        if self.placed.get(pod).map(String::as_str) == node {
            return false;
        }
        let left = self.placed.remove(pod);
        if let Some(left) = &left {
            let count = self.count(left);
            self.set_count(left, count.saturating_sub(1));
        }
        if let Some(node) = node {
            self.set_count(node, self.count(node) + 1);
            self.placed.insert(pod.clone(), node.to_owned());
        }
        left.is_some()
    }

    /// The nodes, those with the fewest pods first.
    pub(crate) fn emptiest_first(&self) -> impl Iterator<Item = &Object> {
        self.order.iter().filter_map(|(_, name)| self.nodes.get(name))
    }

    /// One node.
    pub(crate) fn node(&self, name: &str) -> Option<&Object> {
        self.nodes.get(name)
    }

    /// Whether the node has capacity for another pod.
    pub(crate) fn has_room(&self, node: &Value) -> bool {
        self.count(pod::name(node)) < room(node)
    }

    /// The number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Drops all pods.
    pub(crate) fn forget_pods(&mut self) {
        self.placed.clear();
        self.counts.clear();
        self.order = self.nodes.keys().map(|name| (0, name.clone())).collect();
    }

    /// Drops all nodes.
    pub(crate) fn forget_nodes(&mut self) {
        self.nodes.clear();
        self.order.clear();
    }

    fn count(&self, node: &str) -> usize {
        self.counts.get(node).copied().unwrap_or(0)
    }

    fn set_count(&mut self, node: &str, count: usize) {
        let was = self.order.remove(&(self.count(node), node.to_owned()));
        if was {
            self.order.insert((count, node.to_owned()));
        }
        if count == 0 {
            self.counts.remove(node);
        } else {
            self.counts.insert(node.to_owned(), count);
        }
    }
}

fn room(node: &Value) -> usize {
    let said = ["allocatable", "capacity"].iter().find_map(|field| match &node["status"][field]["pods"] {
        Value::String(text) => text.parse().ok(),
        number => number.as_u64().and_then(|number| usize::try_from(number).ok()),
    });
    said.unwrap_or(DEFAULT_ROOM)
}
