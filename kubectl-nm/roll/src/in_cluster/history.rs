//! What a roll in the cluster has done with its nodes. Its state is gone with its maintenances, which are deleted node by node.
//!
//! A `ConfigMap` has a key for each node that has left the roll, and one for the roll as a whole. The Job that runs the roll owns
//! it, so that both are deleted together.

use std::collections::{BTreeMap, HashSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::runner_job::{self, NAMESPACE};
use crate::absence::Departure;
use crate::decide::RollState;
use crate::error::RollError;
use crate::record::{Halt, Roll, RollRecord, annotation};
use crate::view::RollView;

/// The key of the roll as a whole, which is the name of no node.
const ROLL_KEY: &str = "_roll";

/// The most bytes of an entry without the name of its node.
const ENTRY_BYTES: usize = 130;

/// The most bytes of the entries. A `ConfigMap` may have 1 MiB.
const MAX_BYTES: usize = 900 << 10;

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
    /// Somebody aborted the roll.
    Aborted,
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

/// What a program that runs a roll has seen.
#[derive(Clone, Debug)]
pub(super) enum HistoryChange {
    Roll(RollHistory),
    Node(String, NodeHistory),
    /// Its maintenances are gone. Whoever aborted it is known.
    Over(Option<String>, Timestamp),
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

    /// The data of the `ConfigMap`.
    pub(super) fn data(&self) -> Value {
        let mut data: BTreeMap<&str, Value> =
            self.nodes.iter().map(|(node, entry)| (node.as_str(), annotation(entry).into())).collect();
        data.extend(self.roll.as_ref().map(|roll| (ROLL_KEY, annotation(roll).into())));
        json!(data)
    }

    /// About how many bytes the entries of the nodes have.
    fn bytes(&self) -> usize {
        self.nodes.keys().map(|node| node.len() + ENTRY_BYTES).sum()
    }

    /// Adds what was seen; `patch` is what it changes of the data. A node is noted once. If the entries are too large, further
    /// nodes are only counted in the total of the roll.
    pub(super) fn note(&mut self, change: HistoryChange, patch: &mut BTreeMap<String, Value>) {
        let roll = match (change, self.roll.take()) {
            (HistoryChange::Node(node, entry), roll) => {
                self.roll = roll;
                if !self.nodes.contains_key(&node) && self.bytes() < MAX_BYTES {
                    patch.insert(node.clone(), annotation(&entry).into());
                    self.nodes.insert(node, entry);
                }
                return;
            }
            (HistoryChange::Over(who, since), Some(roll)) => {
                let ending = match (&roll.ending, who) {
                    (RollEnding::Running | RollEnding::Halted { .. }, Some(by)) => RollEnding::Aborted { by },
                    (RollEnding::Running, None) if self.nodes.len() >= roll.total => RollEnding::Done,
                    _ => {
                        self.roll = Some(roll);
                        return;
                    }
                };
                RollHistory { ending, since, ..roll }
            }
            (HistoryChange::Over(..), None) => return,
            (HistoryChange::Roll(next), Some(last))
                if next.began.is_none() || last.began.is_none() || next.began == last.began =>
            {
                let since = if next.ending == last.ending { last.since } else { next.since };
                RollHistory { began: next.began.or(last.began), since, ..next }
            }
            (HistoryChange::Roll(next), _) => {
                // An earlier roll had this name.
                patch.extend(std::mem::take(&mut self.nodes).into_keys().map(|node| (node, Value::Null)));
                next
            }
        };
        patch.insert(ROLL_KEY.to_owned(), annotation(&roll).into());
        self.roll = Some(roll);
    }
}

/// Notes what a program that runs a roll sees. It never waits: a [`HistoryWriter`](super::history_writer::HistoryWriter) stores
/// the notes.
pub struct HistoryKeeper {
    /// When each node began, and how many pods are gone from it.
    seen: BTreeMap<String, (Option<Timestamp>, i64)>,
    noted: HashSet<String>,
    ending: Option<RollEnding>,
    pub(super) changes: UnboundedSender<HistoryChange>,
    pub(super) failures: UnboundedReceiver<RollError>,
}

impl HistoryKeeper {
    pub(super) fn new(
        changes: UnboundedSender<HistoryChange>,
        failures: UnboundedReceiver<RollError>,
    ) -> Self {
        Self { seen: BTreeMap::new(), noted: HashSet::new(), ending: None, changes, failures }
    }

    /// Why nothing is stored any more, once.
    pub fn failure(&mut self) -> Option<RollError> {
        self.failures.try_recv().ok()
    }

    /// Learns the nodes of a roll.
    pub fn know(&mut self, roll: &Roll, record: &RollRecord) {
        for name in &record.nodes {
            if !self.seen.contains_key(name) {
                self.seen.insert(name.clone(), (None, 0));
            }
        }
        for node in &roll.nodes {
            self.seen.insert(node.node().to_owned(), (node.record.began, node.pods().0));
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
            (RollState::Halted(_), Some(who)) => RollEnding::Aborted { by: who.to_owned() },
            (RollState::Aborted(who), _) => RollEnding::Aborted { by: who.clone() },
            (RollState::Halted(Halt { node, message, .. }), None) => {
                RollEnding::Halted { node: node.clone(), message: message.clone() }
            }
            (RollState::Done, _) => RollEnding::Done,
            (RollState::Working | RollState::Waiting(_), _) => RollEnding::Running,
        };
        if self.ending.as_ref() != Some(&ending) {
            self.send(HistoryChange::Roll(RollHistory {
                started_by: roll.settings.started_by.clone(),
                began: record.began,
                ending: ending.clone(),
                since: seconds(*now),
                total: roll.settings.nodes(),
            }));
            self.ending = Some(ending);
        }
        if is_other {
            return;
        }
        self.know(roll, record);
        let is_under_way: HashSet<&str> = view.progress.iter().map(|node| node.node.as_str()).collect();
        let done = record.released.iter().map(|node| (node, Outcome::Done));
        let skipped = record.skipped.iter().map(|node| (node, Outcome::Skipped));
        let left = record.left.iter().map(|left| (&left.node, left.why.into()));
        let mut ended: Vec<(String, Outcome)> =
            done.chain(skipped).chain(left).map(|(node, outcome)| (node.clone(), outcome)).collect();
        if view.aborted.is_some() {
            ended.extend(self.seen.keys().map(|node| (node.clone(), Outcome::Aborted)));
        }
        ended.retain(|(node, _)| !is_under_way.contains(node.as_str()));
        for (node, outcome) in ended {
            self.end(node, outcome, *now);
        }
    }

    /// Notes that the maintenances of the roll are gone, and who has aborted it.
    pub fn note_over(&mut self, aborted: Option<String>, now: Timestamp) {
        if aborted.is_some() {
            for node in self.seen.keys().cloned().collect::<Vec<_>>() {
                self.end(node, Outcome::Aborted, now);
            }
        }
        self.send(HistoryChange::Over(aborted, seconds(now)));
    }

    fn end(&mut self, node: String, outcome: Outcome, now: Timestamp) {
        if self.noted.insert(node.clone()) {
            let (began, pods) = self.seen.get(&node).copied().unwrap_or_default();
            let entry = NodeHistory { outcome, began: began.map(seconds), ended: seconds(now), pods };
            self.send(HistoryChange::Node(node, entry));
        }
    }

    fn send(&self, change: HistoryChange) {
        // The writer outlives the program that notes.
        let _ = self.changes.send(change);
    }
}

/// The time without the fraction of its second.
fn seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
