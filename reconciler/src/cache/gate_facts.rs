//! What the gate depends on, of all maintenances and nodes, and the queue that follows from it.
//!
//! The queue is computed when it is needed after a change, and not with every reconcile.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use nm_shared::NodeMaintenance;
use nm_shared::gate::max_unavailable_queue::{GateMember, GateNode, MaxUnavailable, Queue};
use nm_shared::gate::ownership::{self, AgeRank};

/// The members and nodes of the gate.
#[derive(Default)]
pub(crate) struct GateFacts {
    members: BTreeMap<AgeRank, GateMember>,
    nodes: HashMap<String, GateNode>,
    /// The queue, unless something has changed since it was computed.
    queue: Option<Arc<Queue>>,
    is_changed: bool,
}

impl GateFacts {
    /// Records a maintenance that was created or changed.
    pub(crate) fn update(&mut self, member: GateMember) {
        if self.members.get(&member.rank) != Some(&member) {
            self.members.insert(member.rank.clone(), member);
            self.note_change();
        }
    }

    /// Records a maintenance as a decision or an answer shows it. One that the watch has removed stays removed.
    pub(crate) fn refresh(&mut self, member: GateMember) {
        if self.members.contains_key(&member.rank) {
            self.update(member);
        }
    }

    /// Forgets a maintenance that is gone.
    pub(crate) fn remove(&mut self, maintenance: &NodeMaintenance) {
        if self.members.remove(&ownership::age_rank(maintenance)).is_some() {
            self.note_change();
        }
    }

    /// Records all maintenances, after a list.
    pub(crate) fn replace(&mut self, members: impl IntoIterator<Item = GateMember>) {
        let members = members.into_iter().map(|member| (member.rank.clone(), member)).collect();
        if self.members != members {
            self.members = members;
            self.note_change();
        }
    }

    /// Records a node; none if it does not exist.
    pub(crate) fn update_node(&mut self, name: &str, node: Option<GateNode>) {
        if self.nodes.get(name) != node.as_ref() {
            match node {
                Some(node) => self.nodes.insert(name.to_owned(), node),
                None => self.nodes.remove(name),
            };
            self.note_change();
        }
    }

    /// Records all nodes, after a list.
    pub(crate) fn replace_nodes(&mut self, nodes: HashMap<String, GateNode>) {
        if self.nodes != nodes {
            self.nodes = nodes;
            self.note_change();
        }
    }

    /// Whether the maintenance works on its node, or has begun to.
    pub(crate) fn has_begun(&self, maintenance: &NodeMaintenance) -> bool {
        let node = self.nodes.get(&maintenance.spec.node_name);
        match self.members.get(&ownership::age_rank(maintenance)) {
            Some(member) => member.has_begun(node),
            None => GateMember::new(maintenance, false).has_begun(node),
        }
    }

    /// Whether the node exists and is not cordoned for a maintenance.
    pub(crate) fn is_uncordoned(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(|node| !node.is_cordoned())
    }

    /// The nodes of other maintenances that have begun, or go before this one.
    pub(crate) fn nodes_taken_before(&self, maintenance: &NodeMaintenance) -> HashSet<&str> {
        let this = GateMember::new(maintenance, false);
        let others = self.members.values().filter(|other| other.rank != this.rank);
        let taken =
            others.filter(|other| other.has_begun(self.nodes.get(&other.node)) || other.goes_before(&this));
        taken.map(|other| other.node.as_str()).collect()
    }

    /// The queue as it is now.
    pub(crate) fn queue(&mut self, limit: MaxUnavailable) -> Arc<Queue> {
        let Self { members, nodes, queue, .. } = self;
        queue.get_or_insert_with(|| Arc::new(Queue::new(members.values(), nodes, limit))).clone()
    }

    /// Whether anything has changed since the last call that may let a maintenance begin, or move it in the queue.
    pub(crate) fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    fn note_change(&mut self) {
        (self.queue, self.is_changed) = (None, true);
    }
}
