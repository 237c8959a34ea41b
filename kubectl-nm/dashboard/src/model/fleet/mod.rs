//! The fleet: all maintenances, the metadata of their nodes, and the rows that show them.

pub(crate) mod drain_record;
pub(crate) mod fleet_row;
pub(crate) mod halted_rolls;
pub(crate) mod node_list;
pub(crate) mod node_row;
pub(crate) mod outages;
pub(crate) mod pod_counts;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use nm_core::args::duration::{TimeStyle, age};
use nm_core::client::watch_stream::WatchChange;
use nm_core::error::Error;
use nm_core::explain::lasting_outages::may_have;
use nm_core::maintenance::changes::MaintenanceChange;
use nm_core::maintenance::roll::{RollRunners, RollStanding, awaits_confirmation, paused_words};
use nm_core::maintenance::{State, roll_name};
use nm_core::terminal::text::first_names;
use nm_core::watch::goal_tracker::{GoalTracker, TrackerUpdate};
use nm_roll::halted::HaltedRoll;
use nm_shared::NodeMaintenance;
use nm_shared::gate::ownership::oldest;

use crate::model::fleet::fleet_row::FleetRow;
use crate::model::fleet::halted_rolls::HaltedRolls;
use crate::model::fleet::outages::Outages;
use crate::model::lists::listing::{Listing, Row};
use crate::objects::node_metadata::{NodeMetadata, NodeReadiness};

/// A node that is not back in service after this time may not come back by itself.
const SLOW_RETURN: SignedDuration = SignedDuration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FrequentBlocker {
    /// The cause, such as `PDB shop/cart`.
    pub(crate) cause: String,
    pub(crate) nodes: usize,
    /// How many pods it blocks, as far as statuses list them.
    pub(crate) pods: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Fleet {
    /// The nodes that are shown; none means all.
    scope: Vec<String>,
    pub(crate) tracker: GoalTracker,
    nodes: BTreeMap<String, Arc<NodeMetadata>>,
    pub(crate) rows: Listing<FleetRow>,
    pub(crate) marked: BTreeSet<String>,
    pub(crate) blockers: Vec<FrequentBlocker>,
    /// Who runs the rolls that maintenances are part of.
    pub(crate) rolls: RollRunners,
    /// The nodes that have halted their rolls, with these.
    pub(crate) halted: BTreeSet<(String, String)>,
    /// Whether it is known that no reconciler leads.
    pub(crate) is_leaderless: bool,
    pub(crate) outages: Outages,
    pub(crate) halted_rolls: HaltedRolls,
}

impl Fleet {
    /// A fleet of these nodes; of all nodes in maintenance, if none is given.
    pub(crate) fn new(scope: Vec<String>, tracker: GoalTracker) -> Self {
        let mut fleet = Self {
            scope,
            tracker,
            nodes: BTreeMap::new(),
            rows: Listing::default(),
            marked: BTreeSet::new(),
            blockers: Vec::new(),
            rolls: RollRunners::default(),
            halted: BTreeSet::new(),
            is_leaderless: false,
            outages: Outages::default(),
            halted_rolls: HaltedRolls::default(),
        };
        fleet.rebuild();
        fleet
    }

    /// Applies a change that the watch on maintenances reported.
    pub(crate) fn apply(&mut self, change: &WatchChange<NodeMaintenance>) -> Result<TrackerUpdate, Error> {
        let update = self.tracker.apply_to_all(change)?;
        let before = self.is_of_halted_roll(&update.changes);
        if matches!(change, WatchChange::Listed(_)) {
            self.rebuild();
        } else {
            update.changes.iter().for_each(|change| self.apply_to_row(change));
            self.refresh();
        }
        let is_listed = matches!(change, WatchChange::Listed(_));
        if is_listed || before || self.is_of_halted_roll(&update.changes) {
            self.halted_rolls.outdate();
        }
        Ok(update)
    }

    fn is_of_halted_roll(&self, changes: &[MaintenanceChange]) -> bool {
        changes.iter().any(|change| {
            let (MaintenanceChange::Updated { now: object, .. } | MaintenanceChange::Deleted(object)) =
                change;
            roll_name(object).is_some_and(|roll| self.rolls.halt(roll).is_some())
        })
    }

    /// Finds out what has become of the rolls that have halted, if something of them has changed.
    pub(crate) fn tick(&mut self, now: Timestamp) {
        self.halted_rolls.refresh(&self.rolls, &self.tracker, &self.nodes, now);
    }

    /// The roll of a maintenance, if it has halted.
    pub(crate) fn halted_roll_of(&self, maintenance: &NodeMaintenance) -> Option<&HaltedRoll> {
        self.halted_rolls.get(roll_name(maintenance)?)
    }

    fn apply_to_row(&mut self, change: &MaintenanceChange) {
        match change {
            MaintenanceChange::Updated { now, .. } => self.rolls.note(now),
            MaintenanceChange::Deleted(last) => self.rolls.forget(last),
        }
        let idle = FleetRow::idle(change.node());
        match change {
            MaintenanceChange::Updated { now, .. } if self.is_in_scope(change.node()) => {
                let row = self.row(now);
                let key = row.key().to_owned();
                self.rows.upsert(row);
                self.rows.move_selection(idle.key(), &key);
                self.rows.remove(idle.key());
            }
            MaintenanceChange::Updated { .. } => {}
            MaintenanceChange::Deleted(last) => {
                self.show_if_idle(change.node());
                self.rows.move_selection(FleetRow::of(last).key(), idle.key());
                self.rows.remove(FleetRow::of(last).key());
            }
        }
    }

    /// The row of a maintenance.
    pub(super) fn row(&self, maintenance: &NodeMaintenance) -> FleetRow {
        let row = FleetRow::of(maintenance);
        let roll = row.roll.as_ref().filter(|_| !self.halted.is_empty());
        let has_halted = roll.is_some_and(|roll| self.halted.contains(&(row.node.clone(), roll.clone())));
        row.of_halted_roll(has_halted)
    }

    /// Takes over which nodes have halted their rolls: only one maintenance of a roll shows that.
    fn note_halts(&mut self) {
        let halts = self.rolls.halts().map(|(roll, halt)| (halt.node.clone(), roll.to_owned()));
        let before = std::mem::replace(&mut self.halted, halts.collect());
        let changed: Vec<String> =
            before.symmetric_difference(&self.halted).map(|(node, _)| node.clone()).collect();
        let is_changed = |object: &&Arc<NodeMaintenance>| changed.contains(&object.spec.node_name);
        if changed.is_empty() {
            return;
        }
        let objects = self.tracker.cache().all().filter(is_changed);
        let objects = objects.filter(|object| self.is_in_scope(&object.spec.node_name));
        let rows: Vec<FleetRow> = objects.map(|object| self.row(object)).collect();
        for row in rows {
            self.rows.upsert(row);
        }
    }

    fn refresh(&mut self) {
        self.note_halts();
        let Self { rows, marked, outages, tracker, .. } = self;
        marked.retain(|key| rows.get(key).is_some());
        outages.retain(|uid| tracker.cache().get(uid).is_some_and(|object| may_have(object)));
        self.blockers = self.count_blockers();
    }

    pub(crate) fn apply_nodes(&mut self, change: &WatchChange<NodeMetadata>) {
        let is_about_halt = match change {
            WatchChange::Listed(_) => true,
            WatchChange::Applied(node) | WatchChange::Deleted(node) => {
                self.rolls.halts().any(|(_, halt)| halt.node == node.name)
            }
        };
        if is_about_halt {
            self.halted_rolls.outdate();
        }
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

    /// The maintenance of a node: the oldest, if there are several, as in the reconciler.
    pub(crate) fn maintenance_of(&self, node: &str) -> Option<&Arc<NodeMaintenance>> {
        let of_node = self.tracker.cache().all().filter(|object| object.spec.node_name == node);
        oldest(of_node)
    }

    /// Whether the maintenance of some node has not begun. Each frame asks that while no reconciler is installed.
    pub(crate) fn has_requested(&self) -> bool {
        let mut requested = self.tracker.cache().all().filter(|object| State::of(object) == State::Requested);
        requested.any(|object| {
            self.maintenance_of(&object.spec.node_name).is_some_and(|oldest| Arc::ptr_eq(oldest, object))
        })
    }

    /// The maintenances by node, each as [`Self::maintenance_of`] has it.
    pub(crate) fn maintenances_by_node(&self) -> HashMap<&str, &Arc<NodeMaintenance>> {
        let mut by_node: HashMap<&str, &Arc<NodeMaintenance>> = HashMap::new();
        for object in self.tracker.cache().all() {
            let known = by_node.entry(&object.spec.node_name).or_insert(object);
            if let Some(older) = oldest([*known, object]) {
                *known = older;
            }
        }
        by_node
    }

    pub(crate) fn maintenance(&self, uid: &str) -> Option<&Arc<NodeMaintenance>> {
        self.tracker.cache().get(uid)
    }

    /// All maintenances, whether they have a row or not.
    pub(crate) fn maintenances(&self) -> impl Iterator<Item = &Arc<NodeMaintenance>> {
        self.tracker.cache().all()
    }

    /// The maintenances of the rows.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &Arc<NodeMaintenance>> {
        self.rows.all().filter_map(|row| self.maintenance(row.key()))
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Arc<NodeMaintenance>> {
        self.tracker.cache().all().find(|object| object.name_any() == name)
    }

    pub(crate) fn node(&self, node: &str) -> Option<&NodeMetadata> {
        self.nodes.get(node).map(AsRef::as_ref)
    }

    /// Since when a node has been Ready, as far as that is known.
    pub(crate) fn ready_since(&self, node: &str) -> Option<Timestamp> {
        self.node(node)?.details.as_ref()?.ready_since
    }

    pub(crate) fn shared_node(&self, node: &str) -> Option<&Arc<NodeMetadata>> {
        self.nodes.get(node)
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Arc<NodeMetadata>> {
        self.nodes.values()
    }

    pub(crate) fn node_names(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    fn is_in_scope(&self, node: &str) -> bool {
        self.scope.is_empty() || self.scope.iter().any(|name| name == node)
    }

    fn show_if_idle(&mut self, node: &str) {
        if self.scope.iter().any(|name| name == node) && self.maintenance_of(node).is_none() {
            self.rows.upsert(FleetRow::idle(node));
        }
    }

    /// Why the node of a row is in its state, or what its drain has done to workloads; empty if there is nothing to add.
    pub(crate) fn why<'a>(&self, row: &'a FleetRow, now: Timestamp) -> Cow<'a, str> {
        let why = self.why_in_state(row, now);
        let down = self.outages.of(row.key());
        match down.len() {
            0 => why,
            _ if !why.is_empty() && row.state != Some(State::Drained) => why,
            _ => {
                let more = if why.is_empty() { String::new() } else { format!("; {why}") };
                Cow::Owned(format!("down: {}{more}", first_names(down)))
            }
        }
    }

    /// The same without the workloads that are down.
    pub(crate) fn why_in_state<'a>(&self, row: &'a FleetRow, now: Timestamp) -> Cow<'a, str> {
        self.unready(row, self.why_if_ready(row, now))
    }

    fn why_if_ready<'a>(&self, row: &'a FleetRow, now: Timestamp) -> Cow<'a, str> {
        let why = Cow::Borrowed(row.why(now));
        // Where the nodes are not known, neither is what becomes of this one.
        if let Some(since) = row.ending_since.filter(|_| !self.nodes.is_empty()) {
            return self.ending(&row.node, since, now);
        }
        let Some(roll) = row.roll.as_deref() else { return why };
        let is_planned = row.state == Some(State::Planned);
        let is_left = is_planned || row.state == Some(State::Drained);
        let is_confirming = row.state == Some(State::Drained) && self.awaits_confirmation(row);
        let is_silent = why.is_empty() && matches!(row.state, Some(State::Paused | State::Drained));
        match (self.rolls.halt(roll), self.rolls.runner(roll, now)) {
            _ if (is_planned || is_silent) && self.rolls.is_paused(roll) => Cow::Owned(format!(
                "roll {roll} is {}",
                paused_words(self.rolls.pause(roll), TimeStyle::Ago(now))
            )),
            (Some(_), _) if is_planned || is_confirming => Cow::Owned(format!("roll {roll} has halted")),
            _ if is_left && self.rolls.standing(roll, now) == Some(RollStanding::Over) => {
                Cow::Owned(format!("roll {roll} was aborted"))
            }
            _ if is_left && self.rolls.is_abandoned(roll, now) => {
                Cow::Owned(format!("nobody runs roll {roll} now"))
            }
            (None, Some(who)) if is_planned && let Some(closed) = self.rolls.closed_window(roll, now) => {
                Cow::Owned(format!("roll {roll}: {closed}; run by {who}"))
            }
            // The question is on the terminal of that user.
            (None, Some(who)) if is_planned || is_confirming => Cow::Owned(format!("{why}; run by {who}")),
            _ => why,
        }
    }

    fn awaits_confirmation(&self, row: &FleetRow) -> bool {
        self.maintenance(row.key()).is_some_and(|object| awaits_confirmation(object))
    }

    /// Why a node is in its state, after that it is not Ready, if that is known.
    fn unready<'a>(&self, row: &FleetRow, why: Cow<'a, str>) -> Cow<'a, str> {
        match self.is_unready(row) && !row.is_blocked_by_node() {
            false => why,
            true if why.is_empty() => Cow::Borrowed("the node is not Ready"),
            true => Cow::Owned(format!("the node is not Ready; {why}")),
        }
    }

    /// Whether the node of a row is not Ready while it is drained, as far as that is known, so that its pods may not terminate.
    pub(crate) fn delays_drain(&self, row: &FleetRow) -> bool {
        matches!(row.state, Some(State::Draining | State::Blocked)) && self.is_unready(row)
    }

    /// Whether the node of a row is not Ready while it is drained, or after that, as far as that is known.
    pub(crate) fn is_unready(&self, row: &FleetRow) -> bool {
        let is_known = matches!(row.state, Some(State::Draining | State::Blocked | State::Drained));
        let readiness = self.node(&row.node).and_then(|node| Some(node.details.as_ref()?.readiness));
        is_known && readiness.is_some_and(|readiness| readiness != NodeReadiness::Ready)
    }

    /// What becomes of a node whose maintenance ends since then.
    pub(crate) fn ending(&self, node: &str, since: Timestamp, now: Timestamp) -> Cow<'static, str> {
        let lasts = now.duration_since(since);
        if !self.nodes.contains_key(node) {
            Cow::Borrowed("the node was deleted, and its maintenance ends")
        } else if self.is_leaderless {
            Cow::Borrowed("nobody returns the node to service: no reconciler leads")
        } else if lasts < SLOW_RETURN {
            Cow::Borrowed("the node is returning to service")
        } else {
            let lasts = age(lasts.as_secs());
            Cow::Owned(format!("not back in service after {lasts}: see kubectl nm explain {node}"))
        }
    }

    fn rebuild(&mut self) {
        self.rolls = RollRunners::of(self.tracker.cache().all().map(AsRef::as_ref));
        let selected = self.rows.chosen().map(|row| (row.key().to_owned(), row.node.clone()));
        let objects = self.tracker.cache().all().filter(|object| self.is_in_scope(&object.spec.node_name));
        let rows: Vec<FleetRow> = objects.map(|object| self.row(object)).collect();
        let scope: BTreeSet<&str> = self.scope.iter().map(String::as_str).collect();
        let idle = scope.into_iter().filter(|node| self.maintenance_of(node).is_none());
        let rows: Vec<FleetRow> = rows.into_iter().chain(idle.map(FleetRow::idle)).collect();
        self.rows.replace(rows);
        if let Some((key, node)) = selected {
            self.select_again(&key, &node);
        }
        self.refresh();
    }

    /// Moves the selection to the new row of its node, if the old one is gone.
    fn select_again(&mut self, key: &str, node: &str) {
        let now =
            self.maintenance_of(node).map_or_else(|| FleetRow::idle(node), |object| FleetRow::of(object));
        if self.rows.get(key).is_none() {
            self.rows.choose_row(now.key());
        }
    }

    fn count_blockers(&self) -> Vec<FrequentBlocker> {
        let mut counted: HashMap<&str, (usize, usize)> = HashMap::new();
        for (cause, count) in self.rows.all().flat_map(|row| &row.blockers) {
            let (nodes, pods) = counted.entry(cause).or_default();
            *nodes += 1;
            *pods += count;
        }
        let blocker =
            |(cause, (nodes, pods)): (&str, _)| FrequentBlocker { cause: cause.to_owned(), nodes, pods };
        let mut blockers: Vec<FrequentBlocker> = counted.into_iter().map(blocker).collect();
        blockers.sort_by(|a, b| (b.nodes, b.pods, &a.cause).cmp(&(a.nodes, a.pods, &b.cause)));
        blockers
    }
}
