//! What a roll in the cluster has done with its nodes. Its state is gone with its maintenances, which are deleted node by node.
//!
//! A `ConfigMap` has a key for each node that has left the roll, and one for the roll as a whole. The Job that runs the roll owns
//! it, so that both are deleted together.

use std::collections::{BTreeMap, HashSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::runner_job::{self, NAMESPACE};
use crate::absence::Departure;
use crate::decide::RollState;
use crate::record::{Halt, NodeRecord, Roll, RollNode, RollRecord, Step, annotation};
use crate::view::RollView;

/// The key of the roll as a whole, which is the name of no node.
const ROLL_KEY: &str = "_roll";

/// For how many nodes there are entries: a `ConfigMap` may have 1 MiB, and names 253 bytes.
const MAX_NODES: usize = 2500;

/// How a node has left a roll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// It is done.
    Done,
    /// Somebody took it out with `--skip`.
    Skipped,
    /// Somebody deleted its maintenance.
    MaintenanceDeleted,
    /// Its `Node` object was deleted before its maintenance began.
    NodeDeleted,
    /// Somebody aborted the roll before it was done with the node.
    Aborted,
    /// The same, but the roll had returned it to service, and only its last checks were not done.
    Returned,
}

impl Outcome {
    /// The outcome in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Skipped => "skipped",
            Self::MaintenanceDeleted => Departure::MaintenanceDeleted.words(),
            Self::NodeDeleted => Departure::NodeDeleted.words(),
            Self::Aborted => "aborted",
            Self::Returned => "returned, not checked",
        }
    }
}

impl From<Departure> for Outcome {
    fn from(why: Departure) -> Self {
        match why {
            Departure::MaintenanceDeleted => Self::MaintenanceDeleted,
            Departure::NodeDeleted => Self::NodeDeleted,
        }
    }
}

/// A node that has left a roll.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeHistory {
    /// How it has left.
    pub outcome: Outcome,
    /// When its maintenance began; none if it has not, or if that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<Timestamp>,
    /// When it left.
    pub ended: Timestamp,
    /// Pods that are gone from it.
    #[serde(default)]
    pub pods: i64,
}

/// How far a roll has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum RollEnding {
    /// The Job runs it.
    Running,
    /// It has halted.
    Halted {
        /// The node that halted it; empty if it is none.
        node: String,
        /// Why.
        message: String,
    },
    /// Somebody has aborted it; who.
    Aborted {
        /// User and machine.
        by: String,
    },
    /// Somebody runs it on a computer; who.
    TakenOver {
        /// User and machine.
        by: String,
    },
    /// No node is left.
    Done,
}

impl RollEnding {
    fn of(Halt { node, message, .. }: &Halt) -> Self {
        Self::Halted { node: node.clone(), message: message.clone() }
    }

    fn aborted(who: &str) -> Self {
        Self::Aborted { by: who.to_owned() }
    }
}

/// A roll as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RollHistory {
    /// Who started it; empty if unknown.
    #[serde(default)]
    pub started_by: String,
    /// When it began; none if unknown.
    #[serde(default)]
    pub began: Option<Timestamp>,
    /// How far it has come.
    #[serde(flatten)]
    pub ending: RollEnding,
    /// Since when.
    pub since: Timestamp,
    /// The number of its nodes.
    pub total: usize,
}

/// The `ConfigMap` with the history of a roll, without its content.
pub fn config_map(roll: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": runner_job::name(roll), "namespace": NAMESPACE, "labels": runner_job::labels(roll)},
    })
}

/// The history of a roll.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The roll as a whole; none before anything was seen.
    pub roll: Option<RollHistory>,
    /// The nodes that have left it.
    pub nodes: BTreeMap<String, NodeHistory>,
}

impl History {
    /// What a `ConfigMap` contains, without what others have written there.
    pub fn of(config_map: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let data = config_map["data"].as_object().into_iter().flatten();
        let nodes = data.filter(|(key, _)| *key != ROLL_KEY);
        Self {
            roll: text(&config_map["data"][ROLL_KEY]).and_then(|text| serde_json::from_str(&text).ok()),
            nodes: nodes
                .filter_map(|(node, value)| Some((node.clone(), serde_json::from_str(&text(value)?).ok()?)))
                .collect(),
        }
    }

    /// The history of a roll that is over. A program that ended together with its last node has not recorded the end.
    #[must_use]
    pub fn over(mut self) -> Self {
        if let Some(roll) = self.roll.as_mut().filter(|roll| roll.ending == RollEnding::Running)
            && self.nodes.len() >= roll.total
            && !self.nodes.values().any(|node| matches!(node.outcome, Outcome::Aborted | Outcome::Returned))
        {
            let last = self.nodes.values().map(|node| node.ended).max();
            (roll.ending, roll.since) = (RollEnding::Done, last.unwrap_or(roll.since));
        }
        self
    }

    /// The data of the `ConfigMap`.
    fn data(&self) -> BTreeMap<&str, String> {
        let nodes = self.nodes.iter().map(|(node, entry)| (node.as_str(), annotation(entry)));
        nodes.chain(self.roll.as_ref().map(|roll| (ROLL_KEY, annotation(roll)))).collect()
    }

    /// A merge patch of the data, from what is stored to this.
    pub(super) fn patch(&self, stored: &Self) -> BTreeMap<String, Value> {
        let (old, new) = (stored.data(), self.data());
        let removed =
            old.keys().filter(|key| !new.contains_key(*key)).map(|key| ((*key).to_owned(), Value::Null));
        let changed = new.iter().filter(|(key, text)| old.get(*key) != Some(text));
        removed.chain(changed.map(|(key, text)| ((*key).to_owned(), json!(text)))).collect()
    }

    /// The stored history with what a later program has seen. Nodes beyond [`MAX_NODES`] are only counted in the total of the
    /// roll. Nothing is left of an earlier roll that had the same name.
    pub(super) fn continued(&self, next: &Self) -> Self {
        let began = |history: &Self| history.roll.as_ref().and_then(|roll| roll.began);
        let is_other = began(self).zip(began(next)).is_some_and(|(last, next)| last != next);
        let mut nodes = if is_other { BTreeMap::new() } else { self.nodes.clone() };
        for (node, entry) in &next.nodes {
            // What is noted of a node first counts.
            if nodes.len() < MAX_NODES {
                nodes.entry(node.clone()).or_insert_with(|| entry.clone());
            }
        }
        let roll = match (&self.roll, &next.roll) {
            (Some(last), Some(next)) if !is_other => Some(RollHistory {
                began: next.began.or(last.began),
                since: if next.ending == last.ending { last.since } else { next.since },
                ..next.clone()
            }),
            (last, None) => last.clone(),
            (_, next) => next.clone(),
        };
        Self { roll, nodes }
    }
}

/// What was seen of a node.
#[derive(Clone, Copy, Debug, Default)]
struct SeenNode {
    /// When it began.
    began: Option<Timestamp>,
    /// How many pods are gone from it.
    pods: i64,
    /// When its maintenance was gone, while the roll had halted.
    gone: Option<Timestamp>,
    /// Whether the roll was at least about to return it to service.
    returns: bool,
}

impl SeenNode {
    /// How it has left a roll that was aborted before the node was done.
    fn of_aborted(&self) -> Outcome {
        if self.returns { Outcome::Returned } else { Outcome::Aborted }
    }
}

/// Notes what a program that runs a roll sees. It never waits: a [`HistoryWriter`](super::history_writer::HistoryWriter) stores
/// the notes.
pub struct HistoryKeeper {
    seen: BTreeMap<String, SeenNode>,
    /// The nodes that the record names as done, and as taken out with `--skip`.
    left: BTreeMap<String, Outcome>,
    pub(super) noted: watch::Sender<History>,
}

impl HistoryKeeper {
    pub(super) fn new() -> Self {
        Self { seen: BTreeMap::new(), left: BTreeMap::new(), noted: watch::Sender::new(History::default()) }
    }

    /// Notes a roll that this program is about to run, or that has halted.
    pub fn know(&mut self, roll: &Roll, record: &RollRecord, now: Timestamp) {
        self.learn(roll, record);
        let halted = record.halt.as_ref().map(RollEnding::of);
        let ending = record.aborted.as_deref().map(RollEnding::aborted).or(halted);
        self.note_ending(roll, record, ending.unwrap_or(RollEnding::Running), now);
    }

    fn learn(&mut self, roll: &Roll, record: &RollRecord) {
        self.left = left(record).map(|(node, outcome)| (node.clone(), outcome)).collect();
        for name in &record.nodes {
            self.seen.entry(name.clone()).or_default();
        }
        for node in &roll.nodes {
            let NodeRecord { began, step, .. } = node.record;
            // While a hook holds it, it is not certain that it returns.
            let returns = step > Step::Returning || step == Step::Returning && !node.is_return_held();
            let seen = SeenNode { began, pods: node.pods().0, gone: None, returns };
            self.seen.insert(node.node().to_owned(), seen);
        }
    }

    /// Remembers when nodes of a halted roll lose their maintenances. How they have left counts once the roll is over: somebody may
    /// resume it.
    pub(super) fn watch(&mut self, roll: &Roll, now: Timestamp) {
        if let Some(record) = &roll.record {
            self.learn(roll, record);
        }
        for (name, seen) in &mut self.seen {
            if roll.node(name).is_none() {
                seen.gone.get_or_insert(now);
            }
        }
    }

    /// Notes the state of a roll, and the nodes that have left it.
    pub fn note(&mut self, view: &RollView) {
        let RollView { roll, record, now, .. } = view;
        let is_other = matches!(view.state, RollState::TakenOver(_));
        let ending = match (view.state, view.aborted) {
            // The next pod of the Job.
            (RollState::TakenOver(other), _) if other.in_cluster => return,
            (RollState::TakenOver(other), _) => RollEnding::TakenOver { by: other.who.clone() },
            // Nodes may still be finished.
            (_, Some(who)) => RollEnding::aborted(who),
            (RollState::Aborted(who), None) => RollEnding::aborted(who),
            (RollState::Halted(halt), None) => RollEnding::of(halt),
            (RollState::Done, None) => RollEnding::Done,
            (RollState::Working | RollState::Waiting(_), None) => RollEnding::Running,
        };
        self.note_ending(roll, record, ending, *now);
        if is_other {
            return;
        }
        self.learn(roll, record);
        // Whoever aborts a roll ends the maintenances of nodes that are not worked on. What has come further may still be done.
        let may_be_done = |node: &RollNode| node.is_worked_on() || node.record.step >= Step::Returning;
        let is_kept = |name: &str| view.aborted.is_none() || roll.node(name).is_none_or(may_be_done);
        let is_under_way: HashSet<&str> =
            view.progress.iter().map(|node| node.node.as_str()).filter(|node| is_kept(node)).collect();
        let aborted = self.seen.iter().filter(|_| view.aborted.is_some());
        let aborted = aborted.map(|(node, seen)| (node, seen.of_aborted()));
        let ended = left(record).chain(aborted);
        self.note_nodes(ended.filter(|(node, _)| !is_under_way.contains(node.as_str())), *now);
    }

    /// Notes that a roll is over, whose maintenances are all gone, and who has aborted it.
    pub fn note_over(&mut self, aborted: Option<&str>, now: Timestamp) {
        self.noted.send_modify(|history| {
            let ending = aborted.map_or(RollEnding::Done, RollEnding::aborted);
            if let Some(roll) = history.roll.as_mut().filter(|roll| roll.ending != ending) {
                (roll.ending, roll.since) = (ending, seconds(now));
            }
        });
        let ended = self.seen.iter().map(|(node, seen)| match aborted {
            Some(_) if seen.gone.is_none() => (node, seen.of_aborted()),
            _ => (node, self.left.get(node).copied().unwrap_or(Outcome::MaintenanceDeleted)),
        });
        self.note_nodes(ended, now);
    }

    fn note_ending(&self, roll: &Roll, record: &RollRecord, ending: RollEnding, now: Timestamp) {
        self.noted.send_if_modified(|history| {
            let is_new = history.roll.as_ref().is_none_or(|roll| roll.ending != ending);
            if is_new {
                history.roll = Some(RollHistory {
                    started_by: roll.settings.started_by.clone(),
                    began: record.began,
                    ending,
                    since: seconds(now),
                    total: roll.settings.nodes(),
                });
            }
            is_new
        });
    }

    /// Notes how nodes have left the roll, each once.
    fn note_nodes<'a>(&self, ended: impl Iterator<Item = (&'a String, Outcome)>, now: Timestamp) {
        self.noted.send_if_modified(|history| {
            let before = history.nodes.len();
            for (node, outcome) in ended {
                let SeenNode { began, pods, gone, .. } = self.seen.get(node).copied().unwrap_or_default();
                let ended = seconds(gone.unwrap_or(now));
                let entry = NodeHistory { outcome, began: began.map(seconds), ended, pods };
                history.nodes.entry(node.clone()).or_insert(entry);
            }
            history.nodes.len() > before
        });
    }
}

/// The nodes that have left a roll, as its record shows.
fn left(record: &RollRecord) -> impl Iterator<Item = (&String, Outcome)> {
    let done = record.released.iter().map(|node| (node, Outcome::Done));
    let skipped = record.skipped.iter().map(|node| (node, Outcome::Skipped));
    done.chain(skipped).chain(record.left.iter().map(|left| (&left.node, left.why.into())))
}

/// The time without the fraction of its second.
fn seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
