//! The nodes and their leases, and what is remembered of each node in maintenance.
//!
//! What is written to a node or its lease, and what is on a node, is remembered only while a maintenance names the node.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use nm_shared::api::names::LEASE_NAMESPACE;
use nm_shared::cluster::node_lease;
use nm_shared::cluster::pod::DrainPod;
use nm_shared::drain::eviction_outcome::AccessDenied;
use nm_shared::drain::virtual_machine::VirtualMachineInstance;

use crate::cache::compact_node::CompactNode;
use crate::cache::read_your_writes::LastWrite;
use crate::cache::watched::{ListState, WatchUpdate, Watched};
use crate::runtime::tasks::ScopedTask;

#[derive(Default)]
pub(crate) struct Nodes {
    /// Every node as the watch delivered it, without the parts that nothing here reads.
    pub(crate) received: Watched<CompactNode>,
    /// How often the nodes have been listed.
    pub(crate) lists: usize,
    pub(crate) leases: Watched<Lease>,
    memory: HashMap<String, NodeState>,
}

/// What is remembered of one node.
#[derive(Default)]
pub(crate) struct NodeState {
    /// The API server's answer to the last patch of the node.
    last_write: LastWrite<Node>,
    /// The API server's answer to the last write of the node's lease.
    lease_write: LastWrite<Lease>,
    pub(crate) pods: Option<NodeWatch<DrainPod>>,
    pub(crate) virtual_machines: Option<NodeWatch<VirtualMachineInstance>>,
}

/// A watch on what is on one node. Dropping this ends it.
pub(crate) struct NodeWatch<K> {
    pub(crate) objects: Watched<K>,
    pub(crate) _task: ScopedTask,
}

impl Nodes {
    /// Takes in what the watch on nodes delivers.
    pub(crate) fn apply(&mut self, update: WatchUpdate<CompactNode>) {
        if let WatchUpdate::Listed(_) = update {
            self.lists += 1;
            self.memory.values_mut().for_each(|state| state.last_write = LastWrite::default());
        }
        self.received.apply(update);
    }

    /// Takes in what the watch on leases delivers.
    pub(crate) fn apply_lease(&mut self, update: WatchUpdate<Lease>) {
        match &update {
            WatchUpdate::Applied(lease) | WatchUpdate::Deleted(lease) => {
                let name = lease.name_any();
                if let Some(state) = node_lease::node(&name).and_then(|node| self.memory.get_mut(node)) {
                    state.lease_write.forget_up_to(lease);
                }
            }
            WatchUpdate::Listed(_) => {
                self.memory.values_mut().for_each(|state| state.lease_write = LastWrite::default());
            }
            WatchUpdate::Interrupted | WatchUpdate::Forbidden(_) => {}
        }
        self.leases.apply(update);
    }

    /// The newer of the node that the watch delivered and the answer to the last patch; none if there is no such node.
    pub(crate) fn latest(&mut self, name: &str) -> Option<Arc<Node>> {
        let received = Arc::new(Node::from(&**self.received.get(name)?));
        Some(match self.memory.get_mut(name) {
            Some(state) => state.last_write.latest(received),
            None => received,
        })
    }

    /// The lease as the watch delivered it.
    pub(crate) fn received_lease(&self, node: &str) -> Option<&Arc<Lease>> {
        self.leases.get(&format!("{LEASE_NAMESPACE}/{}", node_lease::name(node)))
    }

    /// The newer of the lease that the watch delivered, if any, and the answer to the last write. A lease that was just
    /// created is not delivered yet.
    ///
    /// # Errors
    /// When the API server refuses to list leases.
    pub(crate) fn latest_lease(&mut self, node: &str) -> Result<Option<Arc<Lease>>, AccessDenied> {
        if let ListState::Forbidden(refusal) = &self.leases.list_state {
            return Err(refusal.clone());
        }
        let received = self.received_lease(node).cloned();
        let Some(state) = self.memory.get_mut(node) else { return Ok(received) };
        Ok(match received {
            Some(received) => Some(state.lease_write.latest(received)),
            None => state.lease_write.get(),
        })
    }

    /// Remembers the answer to a patch of a node in maintenance.
    pub(crate) fn remember(&mut self, name: &str, answer: Node) {
        _ = self.memory(name).last_write.remember(answer);
    }

    /// Remembers the answer to a write of the lease on a node in maintenance. After a failure, none is remembered: the lease may
    /// have been deleted before the answer to the write before it arrived.
    pub(crate) fn remember_lease(&mut self, node: &str, answer: Option<Lease>) {
        let state = self.memory(node);
        state.lease_write.forget();
        if let Some(lease) = answer {
            _ = state.lease_write.remember(lease);
        }
    }

    /// Takes in that a lease was deleted. Before the watch delivers that, a new maintenance would take the lease for its own.
    pub(crate) fn lease_deleted(&mut self, lease: &Arc<Lease>) {
        let is_same = |received: &Arc<Lease>| received.metadata.uid == lease.metadata.uid;
        if node_lease::node(&lease.name_any()).and_then(|node| self.received_lease(node)).is_some_and(is_same)
        {
            self.apply_lease(WatchUpdate::Deleted(Lease::clone(lease)));
        }
    }

    /// What is remembered of a node in maintenance, which may be nothing yet.
    pub(crate) fn memory(&mut self, name: &str) -> &mut NodeState {
        self.memory.entry(name.to_owned()).or_default()
    }

    /// The same, unless nothing is remembered.
    pub(crate) fn remembered(&mut self, name: &str) -> Option<&mut NodeState> {
        self.memory.get_mut(name)
    }

    /// Ends the watches on what is on a node.
    pub(crate) fn end_watches(&mut self, node: &str) {
        if let Some(state) = self.remembered(node) {
            (state.pods, state.virtual_machines) = (None, None);
        }
    }

    /// Forgets all nodes except those in maintenance, which ends the watches on what is on them.
    pub(crate) fn retain(&mut self, in_maintenance: impl Fn(&str) -> bool) {
        self.memory.retain(|node, _| in_maintenance(node));
    }

    /// Forgets a node that is no longer in maintenance.
    pub(crate) fn forget(&mut self, node: &str) {
        self.memory.remove(node);
    }

    /// Whether anything is remembered of a node.
    #[cfg(test)]
    pub(crate) fn remembers(&self, node: &str) -> bool {
        self.memory.contains_key(node)
    }
}
