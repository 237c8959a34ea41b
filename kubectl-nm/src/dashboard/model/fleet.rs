//! The fleet: all maintenances, what is known of their nodes, and the rows that show them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use kube::ResourceExt;
use nm_shared::NodeMaintenance;

use crate::dashboard::message::{Change, NodeMarks};
use crate::dashboard::model::fleet_row::{FleetRow, NodeState};
use crate::dashboard::model::listing::{Listing, Row};
use crate::dashboard::model::pace::Pace;

/// An obstacle of many pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blocker {
    /// What it is.
    pub(crate) obstacle: String,
    /// How many nodes it holds up.
    pub(crate) nodes: usize,
    /// How many pods, as far as statuses list them.
    pub(crate) pods: usize,
}

/// All maintenances.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    /// Nodes that it is narrowed to; none is all.
    scope: Vec<String>,
    /// Whether maintenances have been told of; until then nobody could choose between rows.
    told: bool,
    /// By uid.
    objects: HashMap<String, Arc<NodeMaintenance>>,
    marks: BTreeMap<String, Arc<NodeMarks>>,
    /// How fast each goes, by uid.
    paces: HashMap<String, Pace>,
    /// The rows.
    pub(crate) rows: Listing<FleetRow>,
    /// The rows that were marked, by key.
    pub(crate) marked: BTreeSet<String>,
    blockers: Vec<Blocker>,
}

impl Fleet {
    /// A fleet of these nodes; of all that are in maintenance, if there are none.
    pub(crate) fn of(scope: Vec<String>) -> Self {
        let mut fleet = Self { scope, ..Self::default() };
        fleet.rebuild();
        fleet
    }

    /// Takes in what the watch on maintenances said.
    pub(crate) fn see(&mut self, change: &Change<NodeMaintenance>) {
        match change {
            Change::All(objects) => {
                self.objects = objects.iter().map(|object| (uid(object), Arc::clone(object))).collect();
                self.paces.retain(|uid, _| self.objects.contains_key(uid));
                if !std::mem::replace(&mut self.told, true) {
                    self.rows.unpin();
                }
                let selected = self.rows.pinned().map(|row| (row.key().to_owned(), row.node.clone()));
                self.rebuild();
                if let Some((key, node)) = selected {
                    self.select_again(&key, &node);
                }
            }
            Change::Applied(object) => {
                self.objects.insert(uid(object), Arc::clone(object));
                if self.is_in_scope(&object.spec.node_name) {
                    let (row, idle) = (FleetRow::of(object), FleetRow::idle(&object.spec.node_name));
                    let key = row.key().to_owned();
                    self.rows.put(row);
                    self.rows.succeed(idle.key(), &key);
                    self.rows.remove(idle.key());
                }
            }
            Change::Gone(object) => {
                self.objects.remove(&uid(object));
                self.paces.remove(&uid(object));
                let node = &object.spec.node_name;
                self.show_if_idle(node);
                self.rows.succeed(FleetRow::of(object).key(), FleetRow::idle(node).key());
                self.rows.remove(FleetRow::of(object).key());
            }
        }
        let rows = &self.rows;
        self.marked.retain(|key| rows.get(key).is_some());
        self.blockers = self.count_blockers();
    }

    /// Takes in what the watch on nodes said.
    pub(crate) fn see_nodes(&mut self, change: &Change<NodeMarks>) {
        match change {
            Change::All(all) => {
                self.marks = all.iter().map(|marks| (marks.name.clone(), Arc::clone(marks))).collect();
            }
            Change::Applied(marks) => {
                self.marks.insert(marks.name.clone(), Arc::clone(marks));
            }
            Change::Gone(marks) => {
                self.marks.remove(&marks.name);
            }
        }
    }

    /// Notes how far everybody is, once a second.
    pub(crate) fn tick(&mut self) {
        for row in self.rows.all().filter(|row| row.state != NodeState::Idle) {
            self.paces.entry(row.key().to_owned()).or_default().note(row.gone);
        }
    }

    /// The maintenance that has the node: the oldest, as the reconciler sees it too.
    pub(crate) fn maintenance_of(&self, node: &str) -> Option<&Arc<NodeMaintenance>> {
        let rank =
            |object: &&Arc<NodeMaintenance>| (object.metadata.creation_timestamp.clone(), object.name_any());
        self.objects.values().filter(|object| object.spec.node_name == node).min_by_key(rank)
    }

    /// The maintenance of that uid.
    pub(crate) fn maintenance(&self, uid: &str) -> Option<&Arc<NodeMaintenance>> {
        self.objects.get(uid)
    }

    /// Whose name that is among the maintenances.
    pub(crate) fn named(&self, name: &str) -> Option<&Arc<NodeMaintenance>> {
        self.objects.values().find(|object| object.name_any() == name)
    }

    /// What is known of a node.
    pub(crate) fn marks(&self, node: &str) -> Option<&NodeMarks> {
        self.marks.get(node).map(AsRef::as_ref)
    }

    /// The names of all nodes that are known.
    pub(crate) fn node_names(&self) -> impl Iterator<Item = &str> {
        self.marks.keys().map(String::as_str)
    }

    /// How fast the maintenance of that uid goes.
    pub(crate) fn pace(&self, uid: &str) -> Option<&Pace> {
        self.paces.get(uid)
    }

    /// What holds up most nodes, the worst first.
    pub(crate) fn blockers(&self) -> &[Blocker] {
        &self.blockers
    }

    fn is_in_scope(&self, node: &str) -> bool {
        self.scope.is_empty() || self.scope.iter().any(|name| name == node)
    }

    fn show_if_idle(&mut self, node: &str) {
        if self.scope.iter().any(|name| name == node) && self.maintenance_of(node).is_none() {
            self.rows.put(FleetRow::idle(node));
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

    /// Has the selection stay with its node where that has another row now.
    fn select_again(&mut self, key: &str, node: &str) {
        let now =
            self.maintenance_of(node).map_or_else(|| FleetRow::idle(node), |object| FleetRow::of(object));
        let is_there = |key: &str| self.rows.get(key).is_some();
        if is_there(key) || !is_there(now.key()) {
            return;
        }
        if let Some(instead) = self.rows.selected().map(|row| row.key().to_owned()) {
            self.rows.succeed(&instead, now.key());
        }
    }

    fn count_blockers(&self) -> Vec<Blocker> {
        let mut counted: HashMap<&str, (usize, usize)> = HashMap::new();
        for (obstacle, count) in self.rows.all().flat_map(|row| &row.obstacles) {
            let (nodes, pods) = counted.entry(obstacle).or_default();
            *nodes += 1;
            *pods += count;
        }
        let blocker =
            |(obstacle, (nodes, pods)): (&str, _)| Blocker { obstacle: obstacle.to_owned(), nodes, pods };
        let mut blockers: Vec<Blocker> = counted.into_iter().map(blocker).collect();
        blockers.sort_by(|a, b| (b.nodes, b.pods, &a.obstacle).cmp(&(a.nodes, a.pods, &b.obstacle)));
        blockers
    }
}

fn uid(object: &NodeMaintenance) -> String {
    object.uid().unwrap_or_else(|| object.name_any())
}
