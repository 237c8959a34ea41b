//! Everything that a leader knows during its term, and what an event changes in it.
//!
//! What watches deliver and the API server answers are events. Each is applied by one function here, which keeps all parts in
//! step and notes the maintenances to reconcile ([`TermState::take_triggered`]). Nothing here waits. All of it is a cache: it is
//! lost with the process and derived again from the API.

use std::num::NonZeroUsize;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::ObjectRef;
use nm_shared::cluster::disruption_budget::BudgetKey;
use nm_shared::cluster::node_lease;
use nm_shared::cluster::pod::DrainPod;
use nm_shared::decide::decision::Eviction;
use nm_shared::drain::eviction_outcome::AccessDenied;
use nm_shared::drain::plan::DaemonSets;
use nm_shared::drain::steady_time::SteadyTime;
use nm_shared::drain::surge::WorkloadKey;
use nm_shared::gate::max_unavailable_queue::{GateMember, GateNode};
use nm_shared::gate::ownership;
use nm_shared::{Group, GroupedMaintenance, NodeMaintenance, NodeMaintenanceStatus};
use tokio::time::Instant;

use crate::cache::budgets::DisruptionBudgets;
use crate::cache::compact_node::CompactNode;
use crate::cache::evictions::Evictions;
use crate::cache::gate_facts::GateFacts;
use crate::cache::maintenances::Maintenances;
use crate::cache::migrations::KnownMigrations;
use crate::cache::nodes::Nodes;
use crate::cache::on_demand::OnDemand;
use crate::cache::volumes::KnownVolumes;
use crate::cache::watched::{Concerns, ListState, WatchUpdate};
use crate::cache::workloads::Workloads;
use crate::telemetry::metrics::Metrics;

/// Everything that a leader knows.
pub(crate) struct TermState {
    pub(crate) maintenances: Maintenances,
    pub(crate) nodes: Nodes,
    pub(crate) daemon_sets: Arc<DaemonSets>,
    pub(crate) budgets: DisruptionBudgets,
    pub(crate) gate: GateFacts,
    pub(crate) evictions: Evictions,
    pub(crate) migrations: OnDemand<KnownMigrations>,
    pub(crate) volumes: OnDemand<KnownVolumes>,
    pub(crate) workloads: Workloads,
    /// When the API server last denied to write the conditions of a node, if it has accepted none since.
    pub(crate) conditions_denied: Option<(Instant, AccessDenied)>,
    triggered: Vec<ObjectRef<GroupedMaintenance>>,
    /// Whether a list was taken in, or refused, since [`Self::take_list`].
    has_list: bool,
}

impl TermState {
    /// Nothing is known yet. Maintenances of these groups are watched, and at most `max_concurrent_evictions` requests are in
    /// progress at once.
    pub(crate) fn new(
        groups: impl IntoIterator<Item = Group>,
        max_concurrent_evictions: NonZeroUsize,
    ) -> Self {
        Self {
            maintenances: Maintenances::new(groups),
            nodes: Nodes::default(),
            daemon_sets: Arc::new(unlisted()),
            budgets: DisruptionBudgets::default(),
            gate: GateFacts::default(),
            evictions: Evictions::new(max_concurrent_evictions),
            migrations: OnDemand::default(),
            volumes: OnDemand::default(),
            workloads: Workloads::default(),
            conditions_denied: None,
            triggered: Vec::new(),
            has_list: false,
        }
    }

    /// A maintenance was created or changed.
    pub(crate) fn maintenance_applied(&mut self, received: Arc<GroupedMaintenance>) {
        self.maintenances.applied(received.clone());
        let member = self.gate_member(received);
        self.gate.update(member);
    }

    /// A maintenance is gone. Others of its node may have waited for it. If there are none, all work for the node ends.
    pub(crate) fn maintenance_deleted(&mut self, maintenance: &GroupedMaintenance) {
        self.maintenances.deleted(maintenance);
        self.gate.remove(maintenance);
        let node = &maintenance.spec.node_name;
        if maintenance.group != Group::Medik8s {
            // The older definitions allow the node to be changed, so it may have had others.
            self.leave_all_without_maintenance();
        } else if self.maintenances.on_node(node).next().is_none() {
            self.leave_node(node);
            self.nodes.forget(node);
        }
        self.trigger_node(node);
    }

    /// All maintenances of a group are known.
    pub(crate) fn maintenances_listed(
        &mut self,
        group: Group,
        all: impl IntoIterator<Item = Arc<GroupedMaintenance>>,
    ) {
        self.maintenances.listed(group, all);
        let received: Vec<_> = self.maintenances.received().cloned().collect();
        let members: Vec<_> = received.into_iter().map(|received| self.gate_member(received)).collect();
        self.gate.replace(members);
        self.leave_all_without_maintenance();
        self.trigger_all();
    }

    /// What the gate knows of a maintenance. It is outdated after the next decision.
    fn gate_member(&mut self, received: Arc<GroupedMaintenance>) -> GateMember {
        let maintenance = self.maintenances.latest(received);
        let uid = ownership::uid(&maintenance);
        GateMember::new(&maintenance, self.maintenances.memory(uid, |state| state.at_work))
    }

    /// The maintenance as it was last written. If its status has lost that it has begun, that is restored from the undo record
    /// on its node.
    pub(crate) fn restored(&mut self, received: Arc<GroupedMaintenance>) -> Arc<GroupedMaintenance> {
        let maintenance = self.maintenances.latest(received);
        let node = self.nodes.received.get(&maintenance.spec.node_name);
        match node.and_then(|node| ownership::recovered(&maintenance, &Node::from(&**node))) {
            Some(status) => {
                let mut restored = GroupedMaintenance::clone(&maintenance);
                restored.maintenance.status = Some(status);
                Arc::new(restored)
            }
            None => maintenance,
        }
    }

    /// A decision lets a maintenance work on its node, or does not.
    pub(crate) fn set_at_work(&mut self, maintenance: &GroupedMaintenance, at_work: bool) {
        self.maintenances.memory(ownership::uid(maintenance), |state| state.at_work = at_work);
        self.gate.refresh(GateMember::new(maintenance, at_work));
    }

    /// A status was written, and this is the API server's answer.
    pub(crate) fn remember_status(&mut self, written: &NodeMaintenanceStatus, answer: GroupedMaintenance) {
        let received = self.maintenances.get(&answer).cloned();
        let uid = ownership::uid(&answer).to_owned();
        self.maintenances.memory(&uid, |state| state.remember_status(written, answer));
        if let Some(received) = received {
            let member = self.gate_member(received);
            self.gate.update(member);
        }
    }

    /// What the watch on nodes delivers.
    pub(crate) fn apply_node(&mut self, update: WatchUpdate<CompactNode>) {
        self.note_list(&update);
        match &update {
            WatchUpdate::Applied(node) | WatchUpdate::Deleted(node) => {
                let name = node.name().to_owned();
                let before = self.nodes.received.get(&name).cloned();
                self.nodes.apply(update);
                let now = self.nodes.received.get(&name);
                // Kubelets write to their nodes all the time.
                if now.zip(before.as_ref()).is_none_or(|(now, before)| !now.is_alike(before)) {
                    self.refresh_gate_node(&name);
                    self.trigger_node(&name);
                }
            }
            WatchUpdate::Listed(_) => {
                self.nodes.apply(update);
                let nodes = self.nodes.received.iter();
                let nodes = nodes.map(|node| (node.name().to_owned(), GateNode::from(&Node::from(&**node))));
                self.gate.replace_nodes(nodes.collect());
                self.trigger_all();
            }
            WatchUpdate::Interrupted | WatchUpdate::Forbidden(_) => self.nodes.apply(update),
        }
    }

    fn refresh_gate_node(&mut self, name: &str) {
        let node = self.nodes.latest(name);
        self.gate.update_node(name, node.map(|node| GateNode::from(&*node)));
    }

    /// The answer to a patch of a node. It is not remembered without a maintenance of the node: it may arrive after the
    /// maintenance is gone, and nothing would forget the node again.
    pub(crate) fn remember_node(&mut self, name: &str, answer: Node) {
        if self.has_maintenance(name) {
            self.nodes.remember(name, answer);
            self.refresh_gate_node(name);
        }
    }

    /// The answer to a write of the lease on a node; none if it failed.
    pub(crate) fn remember_lease(&mut self, node: &str, answer: Option<Lease>) {
        if self.has_maintenance(node) {
            self.nodes.remember_lease(node, answer);
        }
    }

    fn has_maintenance(&self, node: &str) -> bool {
        self.maintenances.on_node(node).next().is_some()
    }

    /// What the watch on leases of nodes delivers.
    pub(crate) fn apply_lease(&mut self, update: WatchUpdate<Lease>) {
        self.note_list(&update);
        let concerns = match &update {
            WatchUpdate::Applied(lease) | WatchUpdate::Deleted(lease) => {
                let name = lease.name_any();
                node_lease::node(&name).map_or(Concerns::Nothing, |node| Concerns::Node(node.to_owned()))
            }
            WatchUpdate::Listed(_) => Concerns::All,
            WatchUpdate::Forbidden(_) if self.nodes.leases.is_listed() => Concerns::All,
            WatchUpdate::Forbidden(_) | WatchUpdate::Interrupted => Concerns::Nothing,
        };
        self.nodes.apply_lease(update);
        self.trigger(concerns);
    }

    /// What the watch on `DaemonSet`s delivers.
    pub(crate) fn apply_daemon_set(&mut self, update: WatchUpdate<PartialObjectMeta<DaemonSet>>) {
        self.note_list(&update);
        let key = |set: &PartialObjectMeta<DaemonSet>| (set.namespace().unwrap_or_default(), set.name_any());
        let sets = Arc::make_mut(&mut self.daemon_sets);
        match update {
            WatchUpdate::Applied(set) => _ = sets.names.insert(key(&set)),
            WatchUpdate::Deleted(set) => _ = sets.names.remove(&key(&set)),
            WatchUpdate::Listed(all) => {
                *sets = DaemonSets::listed(all.iter().map(|set| &set.metadata));
                self.trigger_all();
            }
            WatchUpdate::Interrupted => sets.interrupted = !sets.incomplete,
            WatchUpdate::Forbidden(_) => *sets = unlisted(),
        }
    }

    /// What the watch on disruption budgets delivers.
    pub(crate) fn apply_budget(&mut self, update: WatchUpdate<PodDisruptionBudget>) {
        self.note_list(&update);
        let now = self.evictions.now();
        match &update {
            WatchUpdate::Applied(budget) | WatchUpdate::Deleted(budget) => {
                let namespace = budget.namespace().unwrap_or_default();
                self.budgets.apply(update, now);
                self.trigger_waiting_in(&namespace);
            }
            WatchUpdate::Listed(_) => {
                self.budgets.apply(update, now);
                self.trigger_all();
            }
            WatchUpdate::Interrupted | WatchUpdate::Forbidden(_) => self.budgets.apply(update, now),
        }
    }

    fn note_list<K>(&mut self, update: &WatchUpdate<K>) {
        self.has_list |= matches!(update, WatchUpdate::Listed(_) | WatchUpdate::Forbidden(_));
    }

    /// Whether a list was taken in, or refused, since the last call.
    pub(crate) fn take_list(&mut self) -> bool {
        std::mem::take(&mut self.has_list)
    }

    /// Whether everything is known that decisions need at first. A node that is not known does not exist. Leases may be refused.
    pub(crate) fn are_nodes_known(&self) -> bool {
        self.nodes.received.is_listed() && self.nodes.leases.list_state != ListState::NotListed
    }

    /// Whether everything is known without which too many evictions are requested, or pods that have to leave are skipped.
    pub(crate) fn are_drains_known(&self) -> bool {
        self.budgets.received.is_listed() && !self.daemon_sets.incomplete
    }

    /// Queues evictions. A maintenance whose evictions are deferred, because others have used up what a budget allows, is
    /// reconciled.
    pub(crate) fn submit(
        &mut self,
        maintenance: &NodeMaintenance,
        evictions: Vec<Eviction>,
        metrics: &Metrics,
    ) {
        if self.evictions.submit(maintenance, evictions, metrics) {
            self.trigger_node(&maintenance.spec.node_name);
        }
    }

    /// Withdraws queued evictions that an earlier version of the maintenance's spec decided, and triggers a new decision. Those
    /// that other maintenances decided are withdrawn only if this one `has_node`.
    pub(crate) fn withdraw_outdated(&mut self, maintenance: &NodeMaintenance, has_node: bool) {
        if self.evictions.withdraw_outdated(maintenance, has_node) {
            self.trigger_node(&maintenance.spec.node_name);
        }
    }

    /// Records that the evictions of these pods of `node` are not sent since `now`, because a budget would refuse them.
    pub(crate) fn defer(&mut self, node: &str, pods: &[(Arc<DrainPod>, BudgetKey)], now: SteadyTime) {
        for (pod, budget) in pods {
            self.evictions.defer(node, pod, budget, now);
        }
    }

    /// Ends the evictions and watches of a node.
    pub(crate) fn leave_node(&mut self, node: &str) {
        self.evictions.leave_node(node);
        self.nodes.end_watches(node);
        self.retain_shared_watches(|other| other != node);
    }

    fn leave_all_without_maintenance(&mut self) {
        let in_maintenance = self.maintenances.nodes();
        let stays = |node: &str| in_maintenance.contains(node);
        self.evictions.retain_nodes(stays);
        self.nodes.retain(stays);
        self.retain_shared_watches(stays);
    }

    fn retain_shared_watches(&mut self, stays: impl Fn(&str) -> bool) {
        self.migrations.retain_nodes(&stays);
        self.volumes.retain_nodes(&stays);
        self.workloads.retain_nodes(&stays);
    }

    /// The nodes without a maintenance that show conditions of one: this node or, without a name, any. None while not all
    /// maintenances are known.
    pub(crate) fn nodes_with_outdated_conditions(&self, only: Option<&str>) -> Vec<String> {
        let outdated = |node: &Arc<CompactNode>| {
            let is_outdated = node.has_maintenance_conditions()
                && self.maintenances.is_in_maintenance(node.name()) == Some(false);
            is_outdated.then(|| node.name().to_owned())
        };
        match only {
            Some(name) => self.nodes.received.get(name).and_then(outdated).into_iter().collect(),
            None => self.nodes.received.iter().filter_map(outdated).collect(),
        }
    }

    /// The maintenances to reconcile because of the events since the last call.
    pub(crate) fn take_triggered(&mut self) -> Vec<ObjectRef<GroupedMaintenance>> {
        for namespace in self.evictions.take_freed() {
            self.trigger_waiting_in(&namespace);
        }
        std::mem::take(&mut self.triggered)
    }

    /// Reconciles one maintenance.
    pub(crate) fn trigger_maintenance(&mut self, maintenance: &GroupedMaintenance) {
        self.triggered.push(ObjectRef::from_obj_with(maintenance, maintenance.group));
    }

    /// Reconciles every maintenance of a node.
    pub(crate) fn trigger_node(&mut self, node: &str) {
        let Self { maintenances, triggered, .. } = self;
        triggered
            .extend(maintenances.on_node(node).map(|found| ObjectRef::from_obj_with(&**found, found.group)));
    }

    /// Reconciles every maintenance, as after an interrupted watch, which may have missed anything.
    pub(crate) fn trigger_all(&mut self) {
        let Self { maintenances, triggered, .. } = self;
        triggered
            .extend(maintenances.received().map(|found| ObjectRef::from_obj_with(&**found, found.group)));
    }

    /// Reconciles the maintenances that an event concerns.
    pub(crate) fn trigger(&mut self, concerns: Concerns) {
        match concerns {
            Concerns::Nothing => {}
            Concerns::Node(node) => self.trigger_node(&node),
            Concerns::All => self.trigger_all(),
        }
    }

    /// Reconciles the maintenances with pods that wait for a budget in `namespace`.
    fn trigger_waiting_in(&mut self, namespace: &str) {
        for node in self.evictions.nodes_waiting_in(namespace) {
            self.trigger_node(&node);
        }
    }

    /// Reconciles the maintenances that need a `ReplicaSet`.
    pub(crate) fn trigger_workload(&mut self, key: &WorkloadKey) {
        for node in self.workloads.nodes(key) {
            self.trigger_node(&node);
        }
    }
}

/// What is known of `DaemonSet`s before they are listed.
fn unlisted() -> DaemonSets {
    DaemonSets { incomplete: true, ..DaemonSets::default() }
}

#[cfg(test)]
#[path = "term_state_tests.rs"]
mod tests;
