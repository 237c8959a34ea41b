//! Everything that a leader remembers during its term.
//!
//! [`LeaderState`] owns the stores of all maintenances, whatever their group, and behind one lock what is remembered of
//! each maintenance (by uid) and of each node (by name). All of it is a cache: it is lost with the process and derived
//! again from the API. A maintenance is remembered from [`LeaderState::note_seen`] until [`LeaderState::forget`], after its
//! deletion, or [`LeaderState::forget_removed`], after a list. What is written to a node or its lease is remembered only while a
//! maintenance names the node.
//!
//! The definitions of the older groups and of the medik8s operator prune status fields that they do not know. The status that
//! was written is therefore remembered beside the part that was stored, and completes the maintenance for as long as the API
//! server has exactly that part. Otherwise the status would differ from the decided one forever, and be written forever.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::reflector::{Lookup, Store};
use nm_shared::cluster::pod::DrainPod;
use nm_shared::drain::cordon_backoff::RecordonBackoff;
use nm_shared::drain::virtual_machine::VirtualMachineInstance;
use nm_shared::gate::max_unavailable_queue::{GateMember, GateNode};
use nm_shared::gate::ownership;
use nm_shared::{Group, GroupedMaintenance, NodeMaintenanceStatus};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cache::gate_index::{GateIndex, SoleDecision};
use crate::cache::node_index::NodeIndex;
use crate::cache::read_your_writes::LastWrite;
use crate::runtime::backoff::Backoff;
use crate::runtime::tasks::ScopedTask;

/// Maintenances of two groups may name the same node, so nothing is decided before every group has been listed. A group
/// that cannot be listed delays the others no longer than this.
const INITIAL_LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// The stores of all maintenances, and what is remembered of each maintenance and node.
pub(crate) struct LeaderState {
    groups: Vec<GroupStore>,
    started: Instant,
    memory: Mutex<Memory>,
    node_lists: AtomicUsize,
    /// What the gate depends on.
    pub(crate) gate: GateIndex,
}

struct GroupStore {
    group: Group,
    store: Store<GroupedMaintenance>,
    by_node: NodeIndex,
    is_listed: AtomicBool,
}

#[derive(Default)]
struct Memory {
    maintenances: HashMap<String, MaintenanceState>,
    nodes: HashMap<String, NodeState>,
    /// When the newest maintenance was first seen.
    newest: Option<Instant>,
}

/// What is remembered of one maintenance.
pub(crate) struct MaintenanceState {
    /// When this process first reconciled it, or it was last resumed.
    pub(crate) first_seen: Instant,
    is_suspended: bool,
    /// Whether the last decision lets it work on its node. Its status may not show this yet.
    at_work: bool,
    /// It is not reconciled before this time.
    pub(crate) not_before: Option<Instant>,
    pub(crate) status_written: Option<Timestamp>,
    /// Consecutive reconciles that failed.
    pub(crate) backoff: Backoff,
    /// Whether its node returned to service and its finalizer was removed. The watch may not show this yet.
    pub(crate) released: bool,
    /// The API server's answer to the last write.
    pub(crate) last_write: LastWrite<GroupedMaintenance>,
    /// Boxed, because most maintenances have none.
    pruned_status: Option<Box<PrunedStatus>>,
    recordons: u32,
    last_recordon: Option<Instant>,
}

/// A status of which the API server stored only a part.
struct PrunedStatus {
    written: NodeMaintenanceStatus,
    stored: NodeMaintenanceStatus,
}

/// What is remembered of one node.
#[derive(Default)]
pub(crate) struct NodeState {
    /// The API server's answer to the last patch of the node.
    pub(crate) last_write: LastWrite<Node>,
    /// The API server's answer to the last write of the node's lease.
    pub(crate) lease_write: LastWrite<Lease>,
    pub(crate) pods: Option<NodeWatch<DrainPod>>,
    pub(crate) virtual_machines: Option<NodeWatch<VirtualMachineInstance>>,
}

/// A watch on what is on one node. Dropping this ends it.
pub(crate) struct NodeWatch<K: Lookup<DynamicType: Eq + Hash> + 'static> {
    pub(crate) objects: Store<K>,
    pub(crate) list_state: watch::Receiver<ListState>,
    pub(crate) _task: ScopedTask,
}

/// Whether all objects of a watch are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListState {
    NotListed,
    Listed,
    Forbidden(ListForbidden),
}

/// The API server refuses to list a resource, with this message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ListForbidden(pub(crate) String);

impl MaintenanceState {
    fn new() -> Self {
        Self {
            first_seen: Instant::now(),
            is_suspended: false,
            at_work: false,
            not_before: None,
            status_written: None,
            backoff: Backoff::default(),
            released: false,
            last_write: LastWrite::default(),
            pruned_status: None,
            recordons: 0,
            last_recordon: None,
        }
    }

    /// Records that the cordon was put back now, for the `count`th time.
    pub(crate) fn record_recordon(&mut self, count: u32) {
        (self.recordons, self.last_recordon) = (count, Some(Instant::now()));
    }

    /// How often the cordon was put back.
    pub(crate) fn recordons(&self) -> RecordonBackoff {
        let since_last = self.last_recordon.map(|at| at.elapsed());
        since_last.map_or_else(RecordonBackoff::default, |since_last| RecordonBackoff {
            count: self.recordons,
            since_last,
        })
    }

    /// Whether the API server prunes our own fields of the status. Every status that we write has conditions.
    pub(crate) fn prunes_details(&self) -> bool {
        self.pruned_status.as_ref().is_some_and(|pruned| pruned.stored.conditions.is_empty())
    }

    fn latest(&mut self, received: Arc<GroupedMaintenance>) -> Arc<GroupedMaintenance> {
        let latest = self.last_write.latest(received);
        match &self.pruned_status {
            Some(pruned) if latest.status.as_ref() == Some(&pruned.stored) => {
                let mut complete = GroupedMaintenance::clone(&latest);
                complete.maintenance.status = Some(pruned.written.clone());
                Arc::new(complete)
            }
            _ => latest,
        }
    }
}

impl LeaderState {
    /// Starts with these stores, one per group, and nothing remembered.
    pub(crate) fn new(stores: impl IntoIterator<Item = (Group, Store<GroupedMaintenance>)>) -> Self {
        let group = |(group, store): (Group, Store<GroupedMaintenance>)| GroupStore {
            group,
            by_node: NodeIndex::new(store.clone()),
            store,
            is_listed: AtomicBool::new(false),
        };
        let groups = stores.into_iter().map(group).collect();
        Self {
            groups,
            started: Instant::now(),
            node_lists: AtomicUsize::default(),
            memory: Mutex::default(),
            gate: GateIndex::default(),
        }
    }

    /// All maintenances as the watches delivered them.
    pub(crate) fn received(&self) -> Vec<Arc<GroupedMaintenance>> {
        self.filter_received(|_| true).collect()
    }

    /// Those that `wanted` accepts, as the watches delivered them.
    pub(crate) fn filter_received(
        &self,
        wanted: impl Fn(&GroupedMaintenance) -> bool,
    ) -> impl Iterator<Item = Arc<GroupedMaintenance>> {
        self.groups.iter().flat_map(move |group| group.store.state_filter(&wanted))
    }

    /// All maintenances as they were last written, with their whole status.
    pub(crate) fn maintenances(&self) -> Vec<Arc<GroupedMaintenance>> {
        self.filter(|_| true)
    }

    /// The same for those that `wanted` accepts as the watches delivered them.
    pub(crate) fn filter(
        &self,
        wanted: impl Fn(&GroupedMaintenance) -> bool,
    ) -> Vec<Arc<GroupedMaintenance>> {
        self.filter_received(wanted).map(|maintenance| self.latest(maintenance)).collect()
    }

    /// Whether the watches show this maintenance.
    pub(crate) fn is_received(&self, maintenance: &GroupedMaintenance) -> bool {
        let uid = maintenance.metadata.uid.as_ref();
        self.received_on(&maintenance.spec.node_name).any(|found| found.metadata.uid.as_ref() == uid)
    }

    /// The maintenances of a node as the watches delivered them.
    pub(crate) fn received_on(&self, node: &str) -> impl Iterator<Item = Arc<GroupedMaintenance>> {
        self.groups.iter().flat_map(move |group| group.by_node.on_node(node))
    }

    /// The maintenance as it was last written, with its whole status, unless someone else has written it since.
    pub(crate) fn latest(&self, received: Arc<GroupedMaintenance>) -> Arc<GroupedMaintenance> {
        let mut memory = self.lock();
        let uid = received.metadata.uid.as_deref().unwrap_or_default();
        match memory.maintenances.get_mut(uid) {
            Some(state) => state.latest(received),
            None => received,
        }
    }

    /// Records that the store of a group is complete, and forgets what was last written to the maintenances in it and that
    /// they were released: if etcd was restored from a backup, those writes never happened.
    pub(crate) fn mark_listed(&self, group: Group) {
        let mut memory = self.lock();
        for listed in self.of_group(group) {
            listed.by_node.rebuild();
            listed.is_listed.store(true, Ordering::Release);
            for maintenance in listed.store.state() {
                if let Some(state) = memory.maintenances.get_mut(ownership::uid(&maintenance)) {
                    state.last_write = LastWrite::default();
                    state.released = false;
                }
            }
        }
    }

    /// Whether a maintenance names this node; none while not all of them are known.
    pub(crate) fn is_in_maintenance(&self, node: &str) -> Option<bool> {
        let found = self.received_on(node).next().is_some();
        let are_listed = || self.groups.iter().all(|group| group.is_listed.load(Ordering::Acquire));
        (found || are_listed()).then_some(found)
    }

    /// How long to wait for groups that have not been listed; none if nothing has to be waited for.
    pub(crate) fn initial_list_wait(&self) -> Option<Duration> {
        if self.groups.iter().all(|group| group.is_listed.load(Ordering::Acquire)) {
            return None;
        }
        INITIAL_LIST_TIMEOUT.checked_sub(self.started.elapsed()).filter(|left| !left.is_zero())
    }

    /// Remembers a maintenance from now on, until it is gone. Nothing else does: an answer may arrive after the deletion of its
    /// object.
    pub(crate) fn note_seen(&self, uid: &str) {
        let mut memory = self.lock();
        let Memory { maintenances, newest, .. } = &mut *memory;
        maintenances.entry(uid.to_owned()).or_insert_with(|| {
            let new = MaintenanceState::new();
            *newest = Some(new.first_seen);
            new
        });
    }

    /// Reads or changes what is remembered of a maintenance. Of one that is not remembered nothing is known, and nothing is kept.
    pub(crate) fn maintenance<T>(&self, uid: &str, change: impl FnOnce(&mut MaintenanceState) -> T) -> T {
        match self.lock().maintenances.get_mut(uid) {
            Some(known) => change(known),
            None => change(&mut MaintenanceState::new()),
        }
    }

    /// Records whether a maintenance is suspended. Maintenances that are resumed together begin together, like new ones.
    pub(crate) fn note_suspension(&self, uid: &str, is_suspended: bool) {
        let was = self.maintenance(uid, |state| std::mem::replace(&mut state.is_suspended, is_suspended));
        if was && !is_suspended {
            self.maintenance(uid, |state| state.first_seen = Instant::now());
            self.lock().newest = Some(Instant::now());
        }
    }

    /// Records whether a decision lets a maintenance work on its node.
    pub(crate) fn set_at_work(
        &self,
        alone: &SoleDecision<'_>,
        maintenance: &GroupedMaintenance,
        at_work: bool,
    ) {
        self.maintenance(ownership::uid(maintenance), |state| state.at_work = at_work);
        self.gate.refresh(alone, GateMember::new(maintenance, at_work));
    }

    /// Indexes a maintenance that was created or changed.
    pub(crate) fn index(&self, received: Arc<GroupedMaintenance>) {
        self.of_group(received.group).for_each(|group| group.by_node.update(&received));
        let alone = self.gate.begin_decision();
        self.gate.update(&alone, self.gate_member(received));
    }

    /// Removes a maintenance that is gone from the indexes.
    pub(crate) fn remove_from_index(&self, maintenance: &GroupedMaintenance) {
        self.of_group(maintenance.group).for_each(|group| group.by_node.remove(maintenance));
        self.gate.remove(&self.gate.begin_decision(), maintenance);
    }

    /// Lets the gate know all maintenances, after a list.
    pub(crate) fn replace_gate(&self) {
        let alone = self.gate.begin_decision();
        self.gate.replace(&alone, self.received().into_iter().map(|received| self.gate_member(received)));
    }

    /// What the gate knows of a maintenance. It is outdated after the next decision.
    fn gate_member(&self, received: Arc<GroupedMaintenance>) -> GateMember {
        let maintenance = self.latest(received);
        let at_work =
            self.lock().maintenances.get(ownership::uid(&maintenance)).is_some_and(|state| state.at_work);
        GateMember::new(&maintenance, at_work)
    }

    /// When this process last wrote the status of a maintenance.
    pub(crate) fn status_written(&self, uid: &str) -> Option<Timestamp> {
        self.lock().maintenances.get(uid)?.status_written
    }

    /// How long ago the newest maintenance was first seen.
    pub(crate) fn quiet_for(&self) -> Duration {
        self.lock().newest.map_or(Duration::MAX, |newest| newest.elapsed())
    }

    /// Remembers a status that was written, and what the API server answered.
    pub(crate) fn remember_status(&self, written: &NodeMaintenanceStatus, answer: GroupedMaintenance) {
        let stored = answer.status.clone().unwrap_or_default();
        let uid = answer.metadata.uid.clone().unwrap_or_default();
        let alone = self.gate.begin_decision();
        let (is_newest, at_work) = self.maintenance(&uid, |state| {
            let is_pruned = stored != *written;
            state.pruned_status =
                is_pruned.then(|| Box::new(PrunedStatus { written: written.clone(), stored }));
            (state.last_write.remember(answer.clone()), state.at_work)
        });
        if is_newest {
            // The answer may lack what the API server prunes.
            let mut complete = answer;
            complete.maintenance.status = Some(written.clone());
            self.gate.refresh(&alone, GateMember::new(&complete, at_work));
        }
    }

    /// Reads or changes what is remembered of a node, which may be nothing yet.
    pub(crate) fn node<T>(&self, name: &str, change: impl FnOnce(&mut NodeState) -> T) -> T {
        change(self.lock().nodes.entry(name.to_owned()).or_default())
    }

    /// Remembers the answer to a patch of a node that has a maintenance, and lets the gate know it, unless the watch has delivered
    /// a newer one.
    pub(crate) fn remember_node(&self, name: &str, answer: Node) {
        let (alone, node) = (self.gate.begin_decision(), GateNode::from(&answer));
        if self.remembered_node(name, |state| state.last_write.remember(answer)) == Some(true) {
            self.gate.refresh_node(&alone, name, node);
        }
    }

    /// Remembers the answer to a write of the lease on a node that has a maintenance. After a failure, none is remembered: the
    /// lease may have been deleted before the answer to the write before it arrived.
    pub(crate) fn remember_lease(&self, node: &str, answer: Option<Lease>) {
        self.remembered_node(node, |state| {
            state.lease_write.forget();
            if let Some(lease) = answer {
                state.lease_write.remember(lease);
            }
        });
    }

    /// Whether anything is remembered of a node.
    #[cfg(test)]
    pub(crate) fn remembers_node(&self, name: &str) -> bool {
        self.lock().nodes.contains_key(name)
    }

    /// Changes what is remembered of a node that has a maintenance; none without one. An answer may arrive after the
    /// maintenance is forgotten, and nothing would forget the node again.
    fn remembered_node<T>(&self, name: &str, change: impl FnOnce(&mut NodeState) -> T) -> Option<T> {
        let mut memory = self.lock();
        self.received_on(name).next()?;
        Some(change(memory.nodes.entry(name.to_owned()).or_default()))
    }

    /// The newer of the node that the watch delivered and the answer to the last patch.
    pub(crate) fn latest_node(&self, received: Arc<Node>) -> Arc<Node> {
        let mut memory = self.lock();
        match memory.nodes.get_mut(received.metadata.name.as_deref().unwrap_or_default()) {
            Some(state) => state.last_write.latest(received),
            None => received,
        }
    }

    /// The newer of the lease that the watch delivered, if any, and the answer to the last write. A lease that was just
    /// created is in no store yet.
    pub(crate) fn latest_lease(&self, node: &str, received: Option<Arc<Lease>>) -> Option<Arc<Lease>> {
        let mut memory = self.lock();
        let Some(state) = memory.nodes.get_mut(node) else { return received };
        match received {
            Some(received) => Some(state.lease_write.latest(received)),
            None => state.lease_write.get(),
        }
    }

    /// Forgets the last write of a node's lease, unless it is newer than this event of the watch.
    pub(crate) fn lease_delivered(&self, node: &str, event: &Lease) {
        if let Some(state) = self.lock().nodes.get_mut(node) {
            state.lease_write.forget_up_to(event);
        }
    }

    /// Forgets the last writes of all nodes: the store is complete.
    pub(crate) fn nodes_listed(&self) {
        self.node_lists.fetch_add(1, Ordering::AcqRel);
        for state in self.lock().nodes.values_mut() {
            state.last_write = LastWrite::default();
        }
    }

    /// How often the nodes have been listed.
    pub(crate) fn node_lists(&self) -> usize {
        self.node_lists.load(Ordering::Acquire)
    }

    /// Forgets the last writes of all leases: the store is complete.
    pub(crate) fn leases_listed(&self) {
        for state in self.lock().nodes.values_mut() {
            state.lease_write = LastWrite::default();
        }
    }

    /// Ends the watches on what is on a node.
    pub(crate) fn end_watches(&self, node: &str) {
        if let Some(state) = self.lock().nodes.get_mut(node) {
            (state.pods, state.virtual_machines) = (None, None);
        }
    }

    /// Forgets a maintenance that the watch has removed, and its node unless another maintenance names it. Returns whether one
    /// does.
    pub(crate) fn forget(&self, maintenance: &GroupedMaintenance) -> bool {
        let node = &maintenance.spec.node_name;
        let mut memory = self.lock();
        let is_needed = self.received_on(node).next().is_some();
        memory.maintenances.remove(ownership::uid(maintenance));
        if !is_needed {
            memory.nodes.remove(node);
        }
        is_needed
    }

    /// Forgets every maintenance that no longer exists and every node that has none, which ends its watches. Returns
    /// the nodes in maintenance.
    pub(crate) fn forget_removed(&self) -> HashSet<String> {
        let mut memory = self.lock();
        let present = self.received();
        let uids: HashSet<&str> = present.iter().filter_map(|m| m.metadata.uid.as_deref()).collect();
        let nodes: HashSet<String> = present.iter().map(|m| m.spec.node_name.clone()).collect();
        memory.maintenances.retain(|uid, _| uids.contains(uid.as_str()));
        memory.nodes.retain(|node, _| nodes.contains(node));
        nodes
    }

    /// The store of a group, if it has one.
    fn of_group(&self, group: Group) -> impl Iterator<Item = &GroupStore> {
        self.groups.iter().filter(move |store| store.group == group)
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "leader_state_tests.rs"]
mod tests;
