//! The fleet: all maintenances, the metadata of their nodes, and the rows that show them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use kube::ResourceExt;
use nm_shared::NodeMaintenance;

use crate::client::watch_stream::WatchChange;
use crate::dashboard::message::NodeMetadata;
use crate::dashboard::model::drain_rate::DrainRate;
use crate::dashboard::model::fleet_row::FleetRow;
use crate::dashboard::model::listing::{Listing, Row};

/// Something that blocks pods, on one node or several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blocker {
    /// The cause, such as `PDB shop/cart`.
    pub(crate) cause: String,
    /// How many nodes it concerns.
    pub(crate) nodes: usize,
    /// How many pods it blocks, as far as statuses list them.
    pub(crate) pods: usize,
}

/// All maintenances.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    /// The nodes that are shown; none means all.
    scope: Vec<String>,
    /// Whether the maintenances are known. Until then, the selection cannot have been deliberate.
    complete: bool,
    /// By uid.
    objects: HashMap<String, Arc<NodeMaintenance>>,
    nodes: BTreeMap<String, Arc<NodeMetadata>>,
    /// The rate of each drain, by uid.
    rates: HashMap<String, DrainRate>,
    /// The rows.
    pub(crate) rows: Listing<FleetRow>,
    /// The keys of the marked rows.
    pub(crate) marked: BTreeSet<String>,
    blockers: Vec<Blocker>,
}

impl Fleet {
    /// A fleet of these nodes; of all nodes in maintenance, if none is given.
    pub(crate) fn of(scope: Vec<String>) -> Self {
        let mut fleet = Self { scope, ..Self::default() };
        fleet.rebuild();
        fleet
    }

    /// Applies a change that the watch on maintenances reported.
    pub(crate) fn apply(&mut self, change: &WatchChange<NodeMaintenance>) {
        match change {
            WatchChange::Listed(objects) => {
                self.objects = objects.iter().map(|object| (uid(object), Arc::clone(object))).collect();
                self.rates.retain(|uid, _| self.objects.contains_key(uid));
                if !std::mem::replace(&mut self.complete, true) {
                    self.rows.unpin();
                }
                let selected = self.rows.pinned().map(|row| (row.key().to_owned(), row.node.clone()));
                self.rebuild();
                if let Some((key, node)) = selected {
                    self.select_again(&key, &node);
                }
            }
            WatchChange::Applied(object) => {
                self.objects.insert(uid(object), Arc::clone(object));
                if self.is_in_scope(&object.spec.node_name) {
                    let (row, idle) = (FleetRow::of(object), FleetRow::idle(&object.spec.node_name));
                    let key = row.key().to_owned();
                    self.rows.upsert(row);
                    self.rows.move_selection(idle.key(), &key);
                    self.rows.remove(idle.key());
                }
            }
            WatchChange::Deleted(object) => {
                self.objects.remove(&uid(object));
                self.rates.remove(&uid(object));
                let node = &object.spec.node_name;
                self.show_if_idle(node);
                self.rows.move_selection(FleetRow::of(object).key(), FleetRow::idle(node).key());
                self.rows.remove(FleetRow::of(object).key());
            }
        }
        let rows = &self.rows;
        self.marked.retain(|key| rows.get(key).is_some());
        self.blockers = self.count_blockers();
    }

    /// Applies a change that the watch on nodes reported.
    pub(crate) fn apply_nodes(&mut self, change: &WatchChange<NodeMetadata>) {
        match change {
            WatchChange::Listed(all) => {
                self.nodes =
                    all.iter().map(|metadata| (metadata.name.clone(), Arc::clone(metadata))).collect();
            }
            WatchChange::Applied(metadata) => {
                self.nodes.insert(metadata.name.clone(), Arc::clone(metadata));
            }
            WatchChange::Deleted(metadata) => {
                self.nodes.remove(&metadata.name);
            }
        }
    }

    /// Records the progress of every drain; once a second.
    pub(crate) fn tick(&mut self) {
        for row in self.rows.all().filter(|row| row.state.is_some()) {
            self.rates.entry(row.key().to_owned()).or_default().note(row.gone);
        }
    }

    /// The maintenance of a node: the oldest, if there are several, as in the reconciler.
    pub(crate) fn maintenance_of(&self, node: &str) -> Option<&Arc<NodeMaintenance>> {
        let rank =
            |object: &&Arc<NodeMaintenance>| (object.metadata.creation_timestamp.clone(), object.name_any());
        self.objects.values().filter(|object| object.spec.node_name == node).min_by_key(rank)
    }

    /// The maintenance with that uid.
    pub(crate) fn maintenance(&self, uid: &str) -> Option<&Arc<NodeMaintenance>> {
        self.objects.get(uid)
    }

    /// The maintenance with that name.
    pub(crate) fn named(&self, name: &str) -> Option<&Arc<NodeMaintenance>> {
        self.objects.values().find(|object| object.name_any() == name)
    }

    /// The metadata of a node, if it is known.
    pub(crate) fn node(&self, node: &str) -> Option<&NodeMetadata> {
        self.nodes.get(node).map(AsRef::as_ref)
    }

    /// The names of all nodes that are known.
    pub(crate) fn node_names(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    /// The rate of the drain with that uid.
    pub(crate) fn rate(&self, uid: &str) -> Option<&DrainRate> {
        self.rates.get(uid)
    }

    /// The blockers, those of most nodes first.
    pub(crate) fn blockers(&self) -> &[Blocker] {
        &self.blockers
    }

    fn is_in_scope(&self, node: &str) -> bool {
        self.scope.is_empty() || self.scope.iter().any(|name| name == node)
    }

    fn show_if_idle(&mut self, node: &str) {
        if self.scope.iter().any(|name| name == node) && self.maintenance_of(node).is_none() {
            self.rows.upsert(FleetRow::idle(node));
        }
    }

    fn rebuild(&mut self) {
        let objects = self.objects.values().filter(|object| self.is_in_scope(&object.spec.node_name));
        let mut rows: Vec<FleetRow> = objects.map(|object| FleetRow::of(object)).collect();
        let scope: BTreeSet<&str> = self.scope.iter().map(String::as_str).collect();
        let idle = scope.into_iter().filter(|node| self.maintenance_of(node).is_none());
        rows.extend(idle.map(FleetRow::idle));
        self.rows.replace(rows);
    }

    /// Moves the selection to the new row of its node, if the old one is gone.
    fn select_again(&mut self, key: &str, node: &str) {
        let now =
            self.maintenance_of(node).map_or_else(|| FleetRow::idle(node), |object| FleetRow::of(object));
        let is_there = |key: &str| self.rows.get(key).is_some();
        if is_there(key) || !is_there(now.key()) {
            return;
        }
        if let Some(instead) = self.rows.selected().map(|row| row.key().to_owned()) {
            self.rows.move_selection(&instead, now.key());
        }
    }

    fn count_blockers(&self) -> Vec<Blocker> {
        let mut counted: HashMap<&str, (usize, usize)> = HashMap::new();
        for (cause, count) in self.rows.all().flat_map(|row| &row.blockers) {
            let (nodes, pods) = counted.entry(cause).or_default();
            *nodes += 1;
            *pods += count;
        }
        let blocker = |(cause, (nodes, pods)): (&str, _)| Blocker { cause: cause.to_owned(), nodes, pods };
        let mut blockers: Vec<Blocker> = counted.into_iter().map(blocker).collect();
        blockers.sort_by(|a, b| (b.nodes, b.pods, &a.cause).cmp(&(a.nodes, a.pods, &b.cause)));
        blockers
    }
}

fn uid(object: &NodeMaintenance) -> String {
    object.uid().unwrap_or_else(|| object.name_any())
}
