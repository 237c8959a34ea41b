//! What the gate depends on, of all maintenances and nodes, and the queue that follows from it.
//!
//! The queue is computed when it is needed after a change, and not with every reconcile. [`GateIndex::changes`] reports
//! changes. Whoever changes what the index knows shows a [`SoleDecision`]: what is recorded is derived from other memory, and
//! would be outdated if a decision were made in between.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nm_shared::NodeMaintenance;
use nm_shared::gate::max_unavailable_queue::{GateMember, GateNode, MaxUnavailable, Queue};
use nm_shared::gate::ownership::{self, AgeRank};
use tokio::sync::watch;

/// The members and nodes of the gate.
pub(crate) struct GateIndex {
    deciding: Mutex<()>,
    facts: Mutex<GateFacts>,
    changes: watch::Sender<()>,
}

/// Shows that no other decision of this term is being made, and that nothing else changes what decisions count. A decision counts
/// the nodes that are taken, and takes one: between what it observes and what the gate knows of it there is no other one, on
/// whatever thread that would be. It cannot be kept across an await.
pub(crate) struct SoleDecision<'a> {
    _guard: MutexGuard<'a, ()>,
}

#[derive(Default)]
struct GateFacts {
    members: BTreeMap<AgeRank, GateMember>,
    nodes: HashMap<String, GateNode>,
    /// The queue, unless something has changed since it was computed.
    queue: Option<Arc<Queue>>,
}

impl Default for GateIndex {
    fn default() -> Self {
        Self { deciding: Mutex::default(), facts: Mutex::default(), changes: watch::Sender::new(()) }
    }
}

impl GateIndex {
    /// Waits until no other decision is being made.
    pub(crate) fn begin_decision(&self) -> SoleDecision<'_> {
        SoleDecision { _guard: self.deciding.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Records a maintenance that was created or changed.
    pub(crate) fn update(&self, _: &SoleDecision<'_>, member: GateMember) {
        self.change(|facts| {
            if facts.members.get(&member.rank) == Some(&member) {
                return false;
            }
            facts.members.insert(member.rank.clone(), member);
            true
        });
    }

    /// Records a maintenance as a decision or an answer shows it. One that the watch has removed stays removed.
    pub(crate) fn refresh(&self, _: &SoleDecision<'_>, member: GateMember) {
        self.change(|facts| match facts.members.get_mut(&member.rank) {
            Some(known) if *known != member => {
                *known = member;
                true
            }
            _ => false,
        });
    }

    /// Forgets a maintenance that is gone.
    pub(crate) fn remove(&self, _: &SoleDecision<'_>, maintenance: &NodeMaintenance) {
        self.change(|facts| facts.members.remove(&ownership::age_rank(maintenance)).is_some());
    }

    /// Records all maintenances, after a list.
    pub(crate) fn replace(&self, _: &SoleDecision<'_>, members: impl IntoIterator<Item = GateMember>) {
        let members = members.into_iter().map(|member| (member.rank.clone(), member)).collect();
        self.change(|facts| {
            let is_changed = facts.members != members;
            facts.members = members;
            is_changed
        });
    }

    /// Records a node; none if it does not exist.
    pub(crate) fn update_node(&self, _: &SoleDecision<'_>, name: &str, node: Option<GateNode>) {
        self.change(|facts| {
            if facts.nodes.get(name) == node.as_ref() {
                return false;
            }
            match node {
                Some(node) => facts.nodes.insert(name.to_owned(), node),
                None => facts.nodes.remove(name),
            };
            true
        });
    }

    /// Records a node as the answer to a patch shows it. One that the watch has removed stays removed.
    pub(crate) fn refresh_node(&self, _: &SoleDecision<'_>, name: &str, node: GateNode) {
        self.change(|facts| match facts.nodes.get_mut(name) {
            Some(known) if *known != node => {
                *known = node;
                true
            }
            _ => false,
        });
    }

    /// Records all nodes, after a list.
    pub(crate) fn replace_nodes(&self, _: &SoleDecision<'_>, nodes: HashMap<String, GateNode>) {
        self.change(|facts| {
            let is_changed = facts.nodes != nodes;
            facts.nodes = nodes;
            is_changed
        });
    }

    /// Whether the maintenance works on its node, or has begun to.
    pub(crate) fn has_begun(&self, maintenance: &NodeMaintenance) -> bool {
        let facts = self.lock();
        let node = facts.nodes.get(&maintenance.spec.node_name);
        match facts.members.get(&ownership::age_rank(maintenance)) {
            Some(member) => member.has_begun(node),
            None => GateMember::new(maintenance, false).has_begun(node),
        }
    }

    /// Whether the node exists and is not cordoned for a maintenance.
    pub(crate) fn is_uncordoned(&self, node: &str) -> bool {
        self.lock().nodes.get(node).is_some_and(|node| !node.is_cordoned())
    }

    /// The nodes of other maintenances that have begun, or go before this one.
    pub(crate) fn nodes_taken_before(&self, maintenance: &NodeMaintenance) -> HashSet<String> {
        let this = GateMember::new(maintenance, false);
        let facts = self.lock();
        let others = facts.members.values().filter(|other| other.rank != this.rank);
        let taken =
            others.filter(|other| other.has_begun(facts.nodes.get(&other.node)) || other.goes_before(&this));
        taken.map(|other| other.node.clone()).collect()
    }

    /// The queue as it is now.
    pub(crate) fn queue(&self, limit: MaxUnavailable) -> Arc<Queue> {
        let mut facts = self.lock();
        let GateFacts { members, nodes, queue } = &mut *facts;
        queue.get_or_insert_with(|| Arc::new(Queue::new(members.values(), nodes, limit))).clone()
    }

    /// Wakes after every change that may let a maintenance begin, or move it in the queue.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    fn change(&self, change: impl FnOnce(&mut GateFacts) -> bool) {
        let mut facts = self.lock();
        if change(&mut facts) {
            facts.queue = None;
            drop(facts);
            self.changes.send_replace(());
        }
    }

    fn lock(&self) -> MutexGuard<'_, GateFacts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
