//! What the decisions of a roll depend on, other than its maintenances.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use nm_core::args::duration;
use nm_core::client::watch_stream::WatchChange;
use nm_core::maintenance::{roll_name, status};
use nm_shared::api::roll_state::SeenRoll;
use nm_shared::cluster::node;
use nm_shared::{BlockedPod, NodeMaintenance};

use crate::absence::KnownMaintenance;
use crate::finisher::is_seen;
use crate::record::{
    ActionRecord, ActionState, HEARTBEAT_TIMEOUT, Halt, Health, NodeRecord, ProbedHealth, Roll, RollNode,
    RollRecord, Step,
};

/// The most nodes whose health is recorded, so that it fits into an annotation.
const MAX_PROBED: usize = 50;

/// A node as the gates read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeView {
    /// The uid of the `Node` object.
    pub(crate) uid: String,
    /// Since when this program has seen this object.
    pub(crate) seen_since: Timestamp,
    /// Since when this program has seen the node Ready without interruption; none if it is not Ready.
    pub(crate) ready_since: Option<Timestamp>,
    /// When its condition Ready last changed, by the clock of the control plane.
    pub(crate) ready_transition: Option<Time>,
    pub(crate) boot_id: String,
    /// Its conditions that report pressure.
    pub(crate) pressure: BTreeSet<String>,
    /// When pressure ended that this program has seen, by condition.
    pub(crate) relieved: BTreeMap<String, Timestamp>,
}

/// What is observed apart from the maintenances.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    pub(crate) now: Timestamp,
    /// Since when this program runs the roll. No gate times out because of the time before.
    pub(crate) started: Timestamp,
    /// When somebody let the paused roll continue, as this program has seen, or when the cluster was seen again after a long
    /// time.
    pub(crate) resumed: Option<Timestamp>,
    /// Since when the maintenances or nodes may be out of date; none while they are not.
    pub(crate) lost_since: Option<Timestamp>,
    /// Why the API server accepts no request until somebody has logged in.
    pub(crate) login: Option<String>,
    /// The id of this program.
    pub(crate) runner: String,
    /// Whether the maintenances and nodes are up to date, as far as is known.
    pub(crate) is_current: bool,
    /// The nodes of the cluster, by name.
    pub nodes: BTreeMap<String, NodeView>,
    /// The last check of each node in its step.
    pub(crate) health: BTreeMap<(String, Step), HealthCheck>,
    /// Whether no program checks the nodes any more: the roll has halted, or nobody runs it.
    pub(crate) is_unchecked: bool,
    /// When this program first saw each node in its step.
    pub(crate) steps: BTreeMap<String, SeenStep>,
    /// When this program first saw each blocked pod, by its node, its name and the time since when it is blocked.
    pub(crate) blocked: BTreeMap<(String, String, Timestamp), Timestamp>,
    /// The commands and Jobs that this program has begun, by node and step.
    pub(crate) actions: BTreeMap<(String, Step), ActionState>,
    /// The answers to the question whether the roll continues with a drained node.
    pub(crate) confirmed: BTreeMap<String, bool>,
    /// Why the maintenance of a node cannot begin yet.
    pub(crate) refused: BTreeMap<String, String>,
    /// The nodes whose drains are to be paused, because somebody has paused the roll.
    pub(crate) to_pause: BTreeSet<String>,
    /// Why a node cannot continue: the API server refuses what the roll does with it.
    pub(crate) failed: BTreeMap<String, String>,
    /// Why the roll as a whole cannot continue, and the node that this is about, if it is about one.
    pub(crate) broken: Option<(String, String)>,
    /// Why the roll had halted before this program continued it. Its node gets another try, and so do others whose time was
    /// over by then.
    pub(crate) retried: Option<Halt>,
    /// The maintenances that this program has seen, by node, without those that are released.
    pub(crate) known: BTreeMap<String, KnownMaintenance>,
    /// Since when this program has seen that a node does not exist.
    pub(crate) missing: BTreeMap<String, Timestamp>,
    /// Who aborted the roll. It is kept here because the record may be deleted before it is read.
    pub(crate) aborted: Option<String>,
}

/// The result of a check, and when the check began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HealthCheck {
    pub(crate) health: Health,
    pub(crate) began: Timestamp,
}

/// When this program first saw a node in its step, by its own clock: the times in the objects are by the clocks of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeenStep {
    step: Step,
    /// The time in the record.
    since: Timestamp,
    at: Timestamp,
    /// Whether the node was in the step when the program began.
    is_inherited: bool,
}

impl NodeView {
    /// A node of which nothing is known, so that nothing seems to be missing.
    fn unknown() -> Self {
        Self { ready_since: Some(Timestamp::default()), boot_id: String::from("unknown"), ..Self::default() }
    }

    /// Whether anything is known of the node.
    pub(crate) fn is_known(&self) -> bool {
        !self.uid.is_empty()
    }

    /// The view of a node of which only this is known: since when it has been Ready, if it is, and its boot.
    pub fn of_boot(name: &str, ready_since: Option<Timestamp>, boot_id: &str) -> Self {
        // No other object has to be distinguished from this one.
        Self { uid: name.to_owned(), ready_since, boot_id: boot_id.to_owned(), ..Self::default() }
    }

    /// The view of a node at this time, after an earlier view of it.
    pub fn of(node: &Node, before: Option<&Self>, now: Timestamp) -> Self {
        let status = node.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let is_pressure = |type_: &str| type_.ends_with("Pressure") || type_ == "NetworkUnavailable";
        let info = status.and_then(|status| status.node_info.as_ref());
        let boot_id = info.map(|info| info.boot_id.clone()).unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
        let ready_transition = ready.and_then(|ready| ready.last_transition_time.clone());
        // A node that has rebooted in between was not Ready all the time.
        let before = before.filter(|before| before.boot_id == boot_id);
        let pressure: BTreeSet<String> = conditions
            .iter()
            .filter(|condition| condition.status == "True" && is_pressure(&condition.type_))
            .map(|condition| condition.type_.clone())
            .collect();
        let mut relieved = before.map(|before| before.relieved.clone()).unwrap_or_default();
        let ended = before.into_iter().flat_map(|before| before.pressure.difference(&pressure));
        relieved.extend(ended.map(|one| (one.clone(), now)));
        // Nor was one whose condition has changed and changed back while no watch was there to see it.
        let was_ready = before.filter(|before| before.ready_transition == ready_transition);
        let uid = node.uid().unwrap_or_default();
        let same = before.filter(|before| before.uid == uid);
        Self {
            seen_since: same.map_or(now, |before| before.seen_since),
            uid,
            ready_since: node::reports_ready(node)
                .then(|| was_ready.and_then(|before| before.ready_since).unwrap_or(now)),
            ready_transition,
            boot_id,
            pressure,
            relieved,
        }
    }
}

impl Observed {
    /// What a program observes that only shows a roll. What only the program that runs it can know is in its record. Without
    /// permission to list nodes, nothing that they wait for is shown.
    pub fn shown_at(now: Timestamp, roll: &Roll, nodes: Option<BTreeMap<String, NodeView>>) -> Self {
        let record = roll.record.as_ref();
        let runner = record.and_then(|record| record.runner.as_ref());
        let is_running = |action: &ActionRecord| runner.is_some() && action.is_running();
        let acting = roll.nodes.iter().filter(|node| node.record.current_action().is_some_and(is_running));
        let unknown =
            || roll.nodes.iter().map(|node| (node.node().to_owned(), NodeView::unknown())).collect();
        let mut nodes = nodes.unwrap_or_else(unknown);
        for view in nodes.values_mut() {
            // It may have been Ready long before it was seen first.
            let transition = view.ready_transition.as_ref().map(|at| at.0);
            view.ready_since = view.ready_since.map(|seen| transition.unwrap_or(seen));
        }
        let is_unchecked = record.is_none_or(|record| !is_checked(record, now));
        let last = record.and_then(last_checked).filter(|_| is_unchecked);
        let probed = record.into_iter().flat_map(|record| &record.health);
        let probed = probed.filter_map(|one| {
            let health = if is_unchecked { as_of(&one.health, last)? } else { one.health.clone() };
            Some(((one.node.clone(), one.step), HealthCheck { health, began: now }))
        });
        let steps = roll.nodes.iter().map(|node| {
            let NodeRecord { step, since, .. } = node.record;
            (node.node().to_owned(), SeenStep { step, since, at: since, is_inherited: false })
        });
        Self {
            now,
            started: now,
            // Whether something has timed out is decided by the program that runs the roll.
            resumed: Some(now),
            runner: runner.map(|runner| runner.id.clone()).unwrap_or_default(),
            is_current: true,
            nodes,
            steps: steps.collect(),
            health: probed.collect(),
            is_unchecked,
            actions: acting
                .map(|node| ((node.node().to_owned(), node.record.step), ActionState::Running))
                .collect(),
            ..Self::default()
        }
    }

    /// The same, with what this program has just probed itself.
    #[must_use]
    pub fn with_health(mut self, probed: impl IntoIterator<Item = ProbedHealth>) -> Self {
        let began = self.now;
        let checked = probed
            .into_iter()
            .map(|ProbedHealth { node, step, health }| ((node, step), HealthCheck { health, began }));
        self.health.extend(checked);
        self
    }

    /// What the last check of a node in its step has found; none before that.
    pub(crate) fn health_of(&self, node: &RollNode) -> Option<&Health> {
        let check = self.health.get(&(node.node().to_owned(), node.record.step));
        check.map(|check| &check.health)
    }

    /// The health of the nodes that are probed now, for the record.
    pub(super) fn probed(&self) -> Vec<ProbedHealth> {
        let probed = self.health.iter().map(|((node, step), check)| ProbedHealth {
            node: node.clone(),
            step: *step,
            health: check.health.clone(),
        });
        probed.take(MAX_PROBED).collect()
    }

    /// Notes the time. Returns whether this program did not run for so long that its watches may be lost without a sign: the
    /// computer slept.
    pub(super) fn advance(&mut self, now: Timestamp) -> bool {
        let before = std::mem::replace(&mut self.now, now);
        let has_slept = before != Timestamp::default() && now.duration_since(before) > HEARTBEAT_TIMEOUT;
        if has_slept {
            self.note_lost(before);
        }
        has_slept
    }

    /// The maintenances or nodes may be out of date since this time.
    pub(super) fn note_lost(&mut self, since: Timestamp) {
        self.lost_since = Some(self.lost_since.map_or(since, |earlier| earlier.min(since)));
    }

    /// Notes whether both watches are live. When the cluster is seen again after a long time, all times begin anew, and what
    /// was known of the health of nodes and workloads is forgotten. After a shorter time, a node that was not Ready meanwhile
    /// is recognised by its condition.
    pub(super) fn note_live(&mut self, is_live: bool) {
        self.is_current = is_live;
        if !is_live {
            self.note_lost(self.now);
            return;
        }
        let now = self.now;
        if self.lost_since.take().is_none_or(|since| now.duration_since(since) <= HEARTBEAT_TIMEOUT) {
            return;
        }
        self.resumed = Some(now);
        for seen in self.steps.values_mut() {
            seen.at = now;
        }
        for ready_since in self.nodes.values_mut().filter_map(|node| node.ready_since.as_mut()) {
            *ready_since = now;
        }
        self.health.clear();
    }

    /// Notes the result of a check that began at this time, unless the cluster was not seen since then, or the node was not in
    /// this step yet.
    pub(super) fn note_health(&mut self, node: String, step: Step, health: Health, began: Timestamp) {
        let is_old = self.lost_since.is_some() || self.resumed.is_some_and(|resumed| began < resumed);
        let is_of_step = self.steps.get(&node).is_some_and(|seen| seen.step == step && seen.at <= began);
        if !is_old && is_of_step {
            self.health.insert((node, step), HealthCheck { health, began });
        }
    }

    /// Applies what the watch of nodes reported at this time. Returns whether that changes what is known of one of them.
    pub(super) fn apply_nodes(&mut self, change: WatchChange<Node>, now: Timestamp) -> bool {
        let mut insert = |node: &Node| {
            let name = node.name_any();
            let view = NodeView::of(node, self.nodes.get(&name), now);
            self.nodes.insert(name, view.clone()) != Some(view)
        };
        match change {
            WatchChange::Listed(nodes) => {
                for node in &nodes {
                    insert(node);
                }
                let names: BTreeSet<String> = nodes.iter().map(|node| node.name_any()).collect();
                self.nodes.retain(|name, _| names.contains(name));
                true
            }
            WatchChange::Applied(node) => insert(&node),
            WatchChange::Deleted(node) => self.nodes.remove(&node.name_any()).is_some(),
        }
    }

    /// Remembers that somebody has aborted the roll of this name, whose record is known until now: the object with that record is
    /// deleted soon.
    pub(super) fn note_abort(
        &mut self,
        change: &WatchChange<NodeMaintenance>,
        roll: &str,
        known: &RollRecord,
    ) {
        let WatchChange::Applied(object) = change else { return };
        let seen = SeenRoll::of(object).filter(|_| roll_name(object) == Some(roll));
        if let Some(SeenRoll { aborted: Some(who), .. }) = seen.filter(|seen| seen.revision > known.revision)
        {
            self.aborted = Some(who);
        }
    }

    /// Replaces the record that this program knows by a newer one in the objects.
    ///
    /// The command that pauses the roll also pauses the drains that are under way at that time. This program pauses those
    /// that it has begun at the same moment. Later it pauses none, because somebody may resume a single node.
    pub(super) fn adopt_newer(&mut self, record: &mut RollRecord, roll: &Roll) {
        let Some(newer) = roll.record.as_ref().filter(|newer| newer.revision > record.revision) else {
            return;
        };
        // Somebody may have resumed it since.
        self.aborted.clone_from(&newer.aborted);
        if !newer.paused {
            if record.paused {
                self.resumed = Some(self.now);
            }
            self.to_pause.clear();
        } else if !record.paused {
            // Who aborts a roll leaves the nodes that are worked on to be finished.
            let is_finished = |node: &&RollNode| newer.aborted.is_some() && node.is_worked_on();
            let drains = roll.nodes.iter().filter(|node| node.drains() && !is_finished(node));
            self.to_pause = drains.map(|node| node.node().to_owned()).collect();
        }
        *record = newer.clone();
    }

    /// Notes what is first seen of a roll now.
    pub(super) fn note(&mut self, roll: &Roll, record: &RollRecord) {
        self.note_maintenances(roll, record);
        // Whoever has paused the roll has paused these, too.
        for node in roll.nodes.iter().filter(|node| !node.drains()) {
            self.to_pause.remove(node.node());
        }
        let (now, is_inherited) = (self.now, self.steps.is_empty());
        let steps = roll.nodes.iter().map(|node| {
            let (name, since) = (node.node().to_owned(), node.record.since);
            let known = self.seen(node).copied();
            let at = match since {
                _ if is_inherited => self.started.min(now),
                // This program has written it itself.
                own if (self.started..=now).contains(&own) => own,
                _ => now,
            };
            (name, known.unwrap_or(SeenStep { step: node.record.step, since, at, is_inherited }))
        });
        let steps = steps.collect();
        let blocked = roll.nodes.iter().flat_map(|node| {
            let pods = &status(&node.object).blocked_pods;
            pods.iter().map(|pod| {
                let key = blocked_key(node, pod);
                let at = self.blocked.get(&key).copied().unwrap_or(now);
                (key, at)
            })
        });
        let blocked = blocked.collect();
        (self.steps, self.blocked) = (steps, blocked);
    }

    /// Notes which nodes and maintenances are gone.
    fn note_maintenances(&mut self, roll: &Roll, record: &RollRecord) {
        let now = self.now;
        for known in self.known.values_mut() {
            known.lost.get_or_insert(now);
        }
        for node in &roll.nodes {
            let lost = node
                .is_leaving()
                .then(|| self.known.get(node.node()).and_then(|known| known.lost).unwrap_or(now));
            let known = KnownMaintenance { object: Arc::clone(&node.object), lost };
            self.known.insert(node.node().to_owned(), known);
        }
        let is_released = |name: &String| record.released.contains(name);
        self.known.retain(|name, _| !is_released(name));
        let absent = record.absent.iter().map(|absent| absent.node().to_owned());
        let names = roll.nodes.iter().map(|node| node.node().to_owned()).chain(absent);
        let missing = names.chain(self.known.keys().cloned()).filter(|name| !self.nodes.contains_key(name));
        let since = |name: String| {
            let since = self.missing.get(&name).copied().unwrap_or(now);
            (name, since)
        };
        self.missing = missing.map(since).collect();
    }

    /// Notes the newest state of a maintenance, which may be gone before the next decision.
    pub(super) fn note_maintenance(&mut self, object: &Arc<NodeMaintenance>) {
        if let Some(known) = self.known.get_mut(&object.spec.node_name)
            && known.object.metadata.uid == object.metadata.uid
        {
            known.object = Arc::clone(object);
        }
    }

    /// Whether somebody has deleted the maintenance of a node that this program has seen, and the node exists.
    pub(super) fn has_lost_maintenance(&self, name: &str) -> bool {
        let uid_now = self.nodes.get(name).map(|view| view.uid.as_str());
        self.known.get(name).is_some_and(|known| known.is_deleted_alone(uid_now, self.now))
    }

    /// Whether a node has not existed for this long. The time before this program started, or before the end of a pause, does
    /// not count.
    pub(super) fn is_missing_for(&self, name: &str, seconds: u64) -> bool {
        let Some(since) = self.missing.get(name) else { return false };
        self.has_passed(*since, seconds)
    }

    /// Whether this time has passed. Nothing times out while the cluster is not seen.
    pub(super) fn has_passed(&self, since: Timestamp, seconds: u64) -> bool {
        let since = self.resumed.map_or(since, |resumed| since.max(resumed));
        self.is_current && self.elapsed(since) >= Duration::from_secs(seconds)
    }

    fn seen(&self, node: &RollNode) -> Option<&SeenStep> {
        let NodeRecord { step, since, .. } = &node.record;
        self.steps.get(node.node()).filter(|seen| (seen.step, seen.since) == (*step, *since))
    }

    /// Since when a node is in its step, as far as this program has seen it.
    pub(super) fn since(&self, node: &RollNode) -> Timestamp {
        self.seen(node).map_or_else(|| node.record.since.max(self.started), |seen| seen.at)
    }

    /// Whether a node was in its step before this program began.
    pub(super) fn is_inherited(&self, node: &RollNode) -> bool {
        self.seen(node).is_some_and(|seen| seen.is_inherited)
    }

    /// Since when this program has seen a pod of a node blocked. A pause does not count.
    pub(super) fn blocked_since(&self, node: &RollNode, pod: &BlockedPod) -> Timestamp {
        let since = self.blocked.get(&blocked_key(node, pod)).copied().unwrap_or(self.now);
        self.resumed.map_or(since, |resumed| since.max(resumed))
    }

    pub(super) fn elapsed(&self, since: Timestamp) -> Duration {
        Duration::try_from(self.now.duration_since(since)).unwrap_or_default()
    }

    /// Whether a node is in its step for this long. The time before this program started, or before the end of a pause, does not
    /// count. Nothing times out while the cluster is not seen.
    pub(super) fn has_timed_out(&self, node: &RollNode, seconds: u64) -> bool {
        self.has_passed(self.since(node), seconds)
    }

    /// Whether a pod of a node is blocked for this long.
    pub(super) fn is_blocked_for(&self, node: &RollNode, pod: &BlockedPod, seconds: u64) -> bool {
        self.is_current && self.elapsed(self.blocked_since(node, pod)) >= Duration::from_secs(seconds)
    }
}

fn blocked_key(node: &RollNode, pod: &BlockedPod) -> (String, String, Timestamp) {
    (node.node().to_owned(), format!("{}/{}", pod.namespace, pod.name), pod.since.0)
}

/// Whether a program checks the health of the nodes of a roll: one that is halted is not checked.
pub(crate) fn is_checked(record: &RollRecord, now: Timestamp) -> bool {
    record.halt.is_none() && is_seen(record, now)
}

/// When a program checked the nodes of a roll last, which none checks any more, as far as that is known.
fn last_checked(record: &RollRecord) -> Option<Timestamp> {
    let halt = record.halt.as_ref().map(|halt| halt.at);
    halt.or_else(|| record.runner.as_ref().map(|runner| runner.at))
}

/// What was not healthy at that time. What was healthy need not be so any more.
fn as_of(health: &Health, last: Option<Timestamp>) -> Option<Health> {
    let Health::Waiting(why) = health else { return None };
    let when = last.map_or_else(
        || String::from("when it was checked last"),
        |at| format!("at {}", at.strftime("%Y-%m-%d %H:%M:%S UTC")),
    );
    Some(Health::Waiting(format!("{when}: {why}")))
}

/// A number of seconds as people write it.
pub(super) fn shown(seconds: u64) -> String {
    duration::show(Duration::from_secs(seconds))
}
