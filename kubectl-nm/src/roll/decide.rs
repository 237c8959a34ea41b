//! What a roll does next: a pure function of its records, of what was observed in the cluster, and of the time.
//!
//! The runner calls it after each event and carries out its [`Change`]s. Every change is written on condition that the
//! object is still the one that the decision has read, so that a program that was replaced, or that sees the cluster late,
//! changes nothing.

use std::collections::HashSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::args::duration;
use crate::maintenance::status;
use crate::roll::gates::{Gates, Next};
use crate::roll::observed::{ActionState, Health, Observed, shown};
use crate::roll::record::{Halt, ReturnedNode, Roll, RollNode, RollRecord, Runner, Step};
use crate::roll::settings::RollSettings;
use crate::roll::window::WindowState;

/// How often the runner confirms that it still runs the roll.
pub(crate) const HEARTBEAT_INTERVAL: SignedDuration = SignedDuration::from_secs(15);

/// After this time without a heartbeat, a roll has no runner.
pub(crate) const HEARTBEAT_TIMEOUT: SignedDuration = SignedDuration::from_secs(60);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// Write the record of the roll to the anchor.
    Record(RollRecord),
    /// Write the baseline of a node, and resume its maintenance.
    Begin(String),
    /// Write that a node takes this step now.
    Advance(String, Step),
    /// Pause the drain of a node, because the roll was paused when it began.
    Pause(String),
    /// Start the command or the Job.
    Act(String),
    /// Delete the maintenance of a node.
    Delete(String),
}

impl Change {
    /// The node that it is about; none if it is about the roll as a whole.
    pub(super) fn node(&self) -> Option<&str> {
        match self {
            Self::Record(_) => None,
            Self::Begin(node)
            | Self::Advance(node, _)
            | Self::Pause(node)
            | Self::Act(node)
            | Self::Delete(node) => Some(node),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outlook {
    Working,
    /// Nothing is under way, and nothing can begin; why.
    Waiting(String),
    Halted(Halt),
    /// Somebody else runs the roll now.
    TakenOver(Runner),
    Done,
}

/// A node of the roll, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeProgress {
    pub(crate) node: String,
    pub(crate) wave: usize,
    pub(crate) position: usize,
    pub(crate) step: Step,
    pub(crate) since: Timestamp,
    /// What it waits for, or what blocks it; empty if its step says all.
    pub(crate) detail: String,
    /// Pods that are gone, and pods that had to go.
    pub(crate) pods: (i64, i64),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decisions {
    pub(crate) changes: Vec<Change>,
    /// In the order of the roll, as it is recorded: what the changes write is shown when it is written.
    pub(crate) progress: Vec<NodeProgress>,
    pub(crate) outlook: Outlook,
}

/// Decides what the roll does next. `record` is the newest record that this program knows.
pub(crate) fn decide(roll: &Roll, record: &RollRecord, observed: &Observed) -> Decisions {
    if let Some(other) = record.runner.as_ref().filter(|runner| runner.id != observed.runner) {
        return Decisions {
            changes: Vec::new(),
            progress: Vec::new(),
            outlook: Outlook::TakenOver(other.clone()),
        };
    }
    let mut pass = Pass { roll, observed, next: record.clone(), changes: Vec::new(), progress: Vec::new() };
    pass.advance_returned();
    pass.advance_nodes(record);
    pass.pause_drains();
    let mut waits = pass.begin();
    if !observed.is_current {
        // Decisions from old data may be wrong. They are only shown.
        (pass.next, pass.changes) = (record.clone(), Vec::new());
        waits = Some(String::from("the cluster does not respond"));
    }
    pass.finish(record, waits)
}

struct Pass<'a> {
    roll: &'a Roll,
    observed: &'a Observed,
    next: RollRecord,
    changes: Vec<Change>,
    progress: Vec<NodeProgress>,
}

impl Pass<'_> {
    fn settings(&self) -> &RollSettings {
        &self.roll.settings
    }

    fn is_halted(&self) -> bool {
        self.next.halt.is_some()
    }

    fn halt(&mut self, node: &str, message: String) {
        if self.next.halt.is_none() {
            self.next.halt = Some(Halt { node: node.to_owned(), message, at: self.observed.now });
        }
    }

    fn advance_returned(&mut self) {
        let was_halted = self.is_halted();
        for before in std::mem::take(&mut self.next.returned) {
            let (after, detail) = if was_halted {
                (Some(before.clone()), String::new())
            } else {
                self.advance_one_returned(before.clone())
            };
            self.next.returned.extend(after);
            self.progress.push(NodeProgress {
                node: before.node,
                wave: before.wave,
                position: before.position,
                step: before.step,
                since: before.since,
                detail,
                pods: (before.pods, before.pods),
            });
        }
    }

    /// The node afterwards, and the detail of its progress; none if it is done.
    fn advance_one_returned(&mut self, mut returned: ReturnedNode) -> (Option<ReturnedNode>, String) {
        let now = self.observed.now;
        if returned.step == Step::Returning {
            match self.roll.node(&returned.node) {
                Some(node) if node.is_deleted() => {}
                Some(_) => self.changes.push(Change::Delete(returned.node.clone())),
                None => (returned.step, returned.since) = (Step::Recovering, now),
            }
            return (Some(returned), String::new());
        }
        if returned.step == Step::Recovering {
            match self.observed.health.get(&(returned.node.clone(), Step::Recovering)) {
                Some(Health::Healthy) => (returned.step, returned.since) = (Step::Soaking, now),
                Some(Health::Waiting(why)) => {
                    let timeout = self.settings().recovery_timeout_seconds;
                    if self.observed.has_timed_out(returned.since, timeout) {
                        let message = format!(
                            "what the drain of node {} disturbed is not healthy after {}: {why}",
                            returned.node,
                            shown(timeout)
                        );
                        self.halt(&returned.node, message);
                    }
                    return (Some(returned), why.clone());
                }
                None => return (Some(returned), String::new()),
            }
        }
        if self.observed.elapsed(returned.since) < Duration::from_secs(self.settings().soak_seconds) {
            return (Some(returned), String::new());
        }
        let seconds = now.duration_since(returned.began).as_secs().max(0);
        let done = &mut self.next.done;
        done.nodes = done.nodes.saturating_add(1);
        done.pods = done.pods.saturating_add(returned.pods);
        done.seconds = done.seconds.saturating_add(seconds);
        done.slowest_seconds = done.slowest_seconds.max(seconds);
        (None, String::new())
    }

    fn advance_nodes(&mut self, before: &RollRecord) {
        let roll = self.roll;
        for node in &roll.nodes {
            if before.returned.iter().any(|returned| returned.node == node.node()) {
                continue;
            }
            let name = node.node().to_owned();
            let mut detail = String::new();
            match (Gates { settings: &roll.settings, observed: self.observed }).next_of(node) {
                Next::Wait(why) => detail = why,
                Next::Halt(message) => {
                    detail.clone_from(&message);
                    self.halt(&name, message);
                }
                Next::Delete(why) => {
                    detail = why;
                    self.changes.push(Change::Delete(name.clone()));
                }
                // What is under way when the roll halts is left as it is, but the result of an action is not lost.
                Next::Advance(to) if !self.is_halted() || node.record.step == Step::Acting => {
                    self.changes.push(Change::Advance(name.clone(), to));
                }
                Next::Act if !self.is_halted() => self.changes.push(Change::Act(name.clone())),
                Next::Return if !self.is_halted() => {
                    self.next.returned.push(returned(node, self.observed.now));
                }
                Next::Advance(_) | Next::Act | Next::Return => {}
            }
            self.progress.push(NodeProgress {
                node: name,
                wave: node.record.wave,
                position: node.record.position,
                step: node.record.step,
                since: node.record.since,
                detail,
                pods: moved(node),
            });
        }
        self.progress.sort_by_key(|progress| progress.position);
    }

    /// Pauses the nodes that have begun at the moment at which the roll was paused.
    fn pause_drains(&mut self) {
        let draining = self.roll.nodes.iter().filter(|node| node.drains() && !node.is_deleted());
        let late = draining.filter(|node| self.observed.to_pause.contains(node.node()));
        self.changes.extend(late.map(|node| Change::Pause(node.node().to_owned())));
    }

    /// Begins the nodes whose turn it is. Returns why none can begin, if none is under way.
    fn begin(&mut self) -> Option<String> {
        let planned: Vec<&RollNode> = self
            .roll
            .nodes
            .iter()
            .filter(|node| node.record.step == Step::Planned && !node.is_deleted())
            .filter(|node| self.observed.nodes.contains_key(node.node()))
            .collect();
        let names: HashSet<&str> = planned.iter().map(|node| node.node()).collect();
        let under_way: Vec<&NodeProgress> =
            self.progress.iter().filter(|progress| !names.contains(progress.node.as_str())).collect();
        let first = planned.first()?;
        if self.is_halted() {
            return None;
        }
        if self.next.paused {
            return under_way.is_empty().then(|| String::from("paused"));
        }
        if let Some(why) = self.closed_window() {
            return under_way.is_empty().then_some(why);
        }
        // A wave is done before the next one begins.
        let wave = under_way.iter().map(|progress| progress.wave).chain([first.record.wave]).min()?;
        let slots = self.settings().max_unavailable.saturating_sub(under_way.len());
        let next = planned.iter().filter(|node| node.record.wave == wave).take(slots);
        let begun: Vec<Change> = next.map(|node| Change::Begin(node.node().to_owned())).collect();
        self.changes.extend(begun);
        None
    }

    /// Why no node may begin now; none if one may.
    fn closed_window(&self) -> Option<String> {
        let now = self.observed.now;
        match self.settings().windows.at(now) {
            WindowState::Closed { opens } => {
                Some(format!("the window opens at {}", self.settings().windows.show(opens)))
            }
            WindowState::Open { until: Some(until) } => {
                let slowest = SignedDuration::from_secs(self.next.done.slowest_seconds);
                (until.duration_since(now) < slowest).then(|| {
                    format!(
                        "the window closes at {}, and the slowest node so far took {}",
                        self.settings().windows.show(until),
                        duration::show(slowest.unsigned_abs())
                    )
                })
            }
            WindowState::Open { until: None } => None,
        }
    }

    fn finish(mut self, before: &RollRecord, waits: Option<String>) -> Decisions {
        let now = self.observed.now;
        let is_due =
            before.runner.as_ref().is_none_or(|runner| now.duration_since(runner.at) >= HEARTBEAT_INTERVAL);
        let anchor = self.roll.anchor(&self.next);
        // The object that had the record is gone, and nobody has copied it.
        let is_missing = anchor.is_some_and(|anchor| anchor.revision < Some(before.revision));
        let is_running = self.observed.actions.values().any(|action| *action == ActionState::Running);
        let outlook = match (&before.halt, waits) {
            (Some(halt), _) if !is_running => Outlook::Halted(halt.clone()),
            (None, _) if self.roll.nodes.is_empty() && before.returned.is_empty() => Outlook::Done,
            (_, Some(why)) => Outlook::Waiting(why),
            (_, None) => Outlook::Working,
        };
        if self.next != *before || is_due || is_missing {
            if let Some(runner) = &mut self.next.runner {
                runner.at = now;
            }
            self.next.revision = before.revision.saturating_add(1);
            // First: what is deleted next must be in the record.
            self.changes.insert(0, Change::Record(self.next));
        }
        Decisions { changes: self.changes, progress: self.progress, outlook }
    }
}

/// How many of the pods that had to go are gone, and how many there were.
fn moved(node: &RollNode) -> (i64, i64) {
    let status = status(&node.object);
    (status.pod_counts.gone.into(), status.eviction_pods.into())
}

fn returned(node: &RollNode, since: Timestamp) -> ReturnedNode {
    let record = &node.record;
    ReturnedNode {
        node: node.node().to_owned(),
        wave: record.wave,
        position: record.position,
        step: Step::Returning,
        since,
        began: record.began.unwrap_or(record.since),
        pods: moved(node).0,
        disturbed: record.baseline.healthy.clone(),
    }
}

#[cfg(test)]
#[path = "decide_tests/mod.rs"]
mod tests;
