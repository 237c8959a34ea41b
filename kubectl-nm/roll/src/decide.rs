//! What a roll does next: a pure function of its records, of what was observed in the cluster, and of the time.
//!
//! The runner calls it after each event and carries out its [`RollChange`]s. Every change is written on condition that the
//! object is still the one that the decision has read, so that a program that was replaced, or that sees the cluster late,
//! changes nothing.

use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};
use nm_shared::NodeMaintenance;

use crate::absence::{Departure, LeftNode};
use crate::by_now::ByNow;
use crate::departures::{self, Departures};
pub use crate::gates::ReadyTime;
use crate::gates::{Gates, Next, confirmation, paused_action};
use crate::observed::Observed;
pub use crate::record::HEARTBEAT_TIMEOUT;
use crate::record::{
    ActionState, Halt, HaltCause, NODE, NodeRecord, Roll, RollNode, RollRecord, Runner, SETTINGS, Step,
    annotation, hook,
};
use crate::settings::RollSettings;
use crate::working_time::{self, continues_in_pause};

/// How often the runner confirms that it still runs the roll.
pub(crate) const HEARTBEAT_INTERVAL: SignedDuration = SignedDuration::from_secs(15);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RollChange {
    /// Write the record of the roll to the anchor.
    Record(Box<RollRecord>),
    /// Write this record of a node with its baseline, and resume its maintenance.
    Begin(String, NodeRecord),
    /// Write this record of a node. If it returns to service, add the finalizer that keeps its maintenance.
    Write(String, NodeRecord),
    /// Pause the drain of a node, because the roll was paused when it began.
    Pause(String),
    /// Write this record of a node, and start its command or its Job.
    Act(String, NodeRecord),
    /// Delete the maintenance of a node.
    Delete(String),
    /// Remove the finalizer that keeps the maintenance of a node.
    Release(String),
    /// Create the maintenance of a node again that was deleted and has returned.
    Recreate(Box<NodeMaintenance>),
}

impl RollChange {
    /// The node that it is about; none if it is about the roll as a whole.
    pub(super) fn node(&self) -> Option<&str> {
        match self {
            Self::Record(_) => None,
            Self::Begin(node, _)
            | Self::Write(node, _)
            | Self::Pause(node)
            | Self::Act(node, _)
            | Self::Delete(node)
            | Self::Release(node) => Some(node),
            Self::Recreate(maintenance) => Some(&maintenance.spec.node_name),
        }
    }
}

/// What a roll as a whole does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RollState {
    /// Nodes are under way, or start now.
    Working,
    /// Nothing is under way or the roll is paused, and nothing can begin; why.
    Waiting(String),
    /// The roll has halted, and no action is under way.
    Halted(Halt),
    /// Somebody else runs the roll now.
    TakenOver(Runner),
    /// Somebody has aborted the roll, and nothing is left to finish; who.
    Aborted(String),
    /// All nodes are done.
    Done,
}

/// A node of the roll, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeProgress {
    /// Name of the node.
    pub node: String,
    /// Index of the node's wave, from 0.
    pub wave: usize,
    /// Index of the node in the order of the roll, from 0.
    pub position: usize,
    /// Its current step.
    pub step: Step,
    /// When the step started.
    pub since: Timestamp,
    /// What it waits for, or what blocks it; empty if its step says all.
    pub detail: String,
    /// If it has to stay Ready, for how long.
    pub ready_time: Option<ReadyTime>,
    /// Pods that are gone, and pods that had to go.
    pub pods: (i64, i64),
    /// What has become of the node since it halted the roll.
    pub by_now: Option<ByNow>,
}

/// Result of [`decide`].
#[derive(Clone, Debug, PartialEq)]
pub struct Decisions {
    pub(crate) changes: Vec<RollChange>,
    /// In the order of the roll, as it is recorded: what the changes write is shown when it is written.
    pub progress: Vec<NodeProgress>,
    /// State of the roll as a whole.
    pub state: RollState,
}

/// Decides what the roll does next. `record` is the newest record that this program knows.
pub fn decide(roll: &Roll, record: &RollRecord, observed: &Observed) -> Decisions {
    if let Some(other) = record.runner.as_ref().filter(|runner| runner.id != observed.runner) {
        return Decisions {
            changes: Vec::new(),
            progress: Vec::new(),
            state: RollState::TakenOver(other.clone()),
        };
    }
    let mut next = RollRecord { asked: false, ..record.clone() };
    next.released.retain(|released| roll.node(released).is_some());
    let Departures { roll: whole, are_pending } = departures::note(roll, observed, &mut next);
    let mut pass =
        Pass { roll: &whole, stored: roll, observed, next, changes: Vec::new(), progress: Vec::new() };
    if let Some((node, why)) = &observed.broken {
        pass.halt(node, why.clone(), None);
    }
    pass.advance_nodes();
    pass.pause_drains();
    let mut waits = pass.begin().or_else(|| pass.halting(record));
    let is_settled = pass.is_settled();
    if !observed.is_current {
        // Decisions from old data may be wrong. They are only shown.
        waits = Some(match pass.next.halt.as_ref().filter(|_| record.halt.is_none()) {
            // Whoever resumes the roll has to know it.
            Some(halt) => format!("{}; the roll halts when the cluster responds again", halt.message),
            None => match &observed.login {
                Some(why) => format!("log in again to continue: {why}"),
                None => String::from("the cluster does not respond"),
            },
        });
        (pass.next, pass.changes) = (record.clone(), Vec::new());
    }
    pass.finish(record, waits, is_settled, are_pending)
}

/// The record with a heartbeat, if one is due while the changes of a decision are still being carried out.
pub(crate) fn heartbeat(roll: &Roll, record: &RollRecord, observed: &Observed) -> Option<RollRecord> {
    let is_mine = record.runner.as_ref().is_some_and(|runner| runner.id == observed.runner);
    if !is_mine || !(record.asked || is_due(record, observed.now)) {
        return None;
    }
    let next = RollRecord { asked: false, ..record.clone() };
    let pass = Pass { roll, stored: roll, observed, next, changes: Vec::new(), progress: Vec::new() };
    Some(pass.stamped())
}

/// Whether it is time for a heartbeat.
pub(crate) fn is_due(record: &RollRecord, now: Timestamp) -> bool {
    record.runner.as_ref().is_none_or(|runner| now.duration_since(runner.at).abs() >= HEARTBEAT_INTERVAL)
}

struct Pass<'a> {
    /// With its absent nodes.
    roll: &'a Roll,
    /// As its maintenances describe it.
    stored: &'a Roll,
    observed: &'a Observed,
    next: RollRecord,
    changes: Vec<RollChange>,
    progress: Vec<NodeProgress>,
}

impl Pass<'_> {
    fn settings(&self) -> &RollSettings {
        &self.roll.settings
    }

    fn is_halted(&self) -> bool {
        self.next.halt.is_some()
    }

    /// Whether actions begin and questions are asked. A program may only show a roll which nobody runs.
    fn goes_on(&self) -> bool {
        !self.is_halted() && self.next.runner.is_some()
    }

    fn is_aborted(&self) -> bool {
        self.observed.aborted.is_some() || self.next.aborted.is_some()
    }

    fn halt(&mut self, node: &str, message: String, cause: Option<HaltCause>) {
        let (node, at) = (node.to_owned(), self.observed.now);
        self.next.halt.get_or_insert(Halt { node, message, at, cause });
    }

    fn advance_nodes(&mut self) {
        let roll = self.roll;
        for node in &roll.nodes {
            let name = node.node().to_owned();
            if self.next.released.contains(&name) {
                match self.observed.failed.get(&name) {
                    Some(why) => self.halt(&name, why.clone(), None),
                    None if node.is_kept() => self.changes.push(RollChange::Release(name)),
                    None => {}
                }
                continue;
            }
            let (mut detail, mut ready_time) = (String::new(), None);
            let gates = Gates { roll: self.stored, settings: &roll.settings, observed: self.observed };
            match self.next_of(node, &gates) {
                Next::Wait(why) => (detail, ready_time) = (why, gates.ready_time(node)),
                Next::Confirm => detail = confirmation(self.goes_on()),
                Next::Halt(cause, message) => {
                    detail.clone_from(&message);
                    self.halt(&name, message, cause);
                }
                Next::Failed(record, message) => {
                    detail.clone_from(&message);
                    self.write(node, record);
                    self.halt(&name, message, None);
                }
                Next::Delete if !self.is_halted() => self.changes.push(RollChange::Delete(name.clone())),
                Next::Leave(why) => {
                    detail = why;
                    self.leave(node);
                }
                // What is under way when the roll halts is left as it is, but the result of an action is not lost.
                Next::Write(record)
                    if !self.is_halted()
                        || (node.record.step.has_action() && record.step != Step::Draining) =>
                {
                    self.write(node, record);
                }
                Next::Act(..) if self.is_aborted() && !node.is_worked_on() => {
                    detail = String::from("the roll was aborted");
                }
                Next::Act(_, again) if self.next.paused && !self.is_aborted() => {
                    detail = paused_action(again.as_ref());
                }
                Next::Act(record, again) => {
                    detail = again.map(|again| again.words(self.goes_on())).unwrap_or_default();
                    if !self.is_halted() {
                        self.changes.push(RollChange::Act(name.clone(), record));
                    }
                }
                Next::Done if !self.is_halted() => self.release(node),
                Next::Write(_) | Next::Delete | Next::Done => {}
            }
            if detail.is_empty() && self.is_last_of_wave(node) {
                detail = String::from("last in its wave: the pod that runs the roll is on it");
            }
            self.progress.push(NodeProgress {
                node: name,
                wave: node.record.wave,
                position: node.record.position,
                step: node.record.step,
                since: node.record.since,
                detail,
                ready_time,
                pods: node.pods(),
                by_now: ByNow::of(&self.next, node, &roll.settings, self.observed),
            });
        }
        self.progress.sort_by_key(|progress| progress.position);
    }

    /// What a node does next. A node that was absent and has returned gets its maintenance again.
    fn next_of(&mut self, node: &RollNode, gates: &Gates) -> Next {
        if !(node.is_absent() && self.observed.nodes.contains_key(node.node())) {
            return gates.next_of(node);
        }
        if let Some(why) = self.observed.failed.get(node.node()) {
            return Next::halt(why.clone());
        }
        if self.stored.node(node.node()).is_some() {
            return Next::Wait(String::from(
                "the node has returned: its earlier maintenance is being deleted",
            ));
        }
        if !self.is_halted() {
            self.changes.push(RollChange::Recreate(Box::new(self.recreated(node))));
        }
        let refused = self.observed.refused.get(node.node()).cloned();
        Next::Wait(
            refused
                .unwrap_or_else(|| String::from("the node has returned: its maintenance is created again")),
        )
    }

    /// The maintenance of a node that has returned, which goes on from where it was. What is not drained any more is drained
    /// before its action begins.
    fn recreated(&self, node: &RollNode) -> NodeMaintenance {
        let step = match node.record.step {
            Step::Confirming => Step::Draining,
            Step::Acting if node.record.action.is_none() => Step::Draining,
            // It was back in service already. Its maintenance is deleted again, without a drain.
            Step::Recovering | Step::Soaking => Step::Returning,
            step => step,
        };
        let record = NodeRecord { step, since: self.observed.now, ..node.record.clone() };
        let mut object = (*node.object).clone();
        object.spec.suspend = matches!(step, Step::Planned | Step::Returning)
            || (matches!(step, Step::Preparing | Step::Draining) && self.next.paused);
        let annotations = object.metadata.annotations.get_or_insert_default();
        annotations.insert(SETTINGS.to_owned(), annotation(self.settings()));
        annotations.insert(NODE.to_owned(), annotation(&record));
        if !matches!(step, Step::Planned | Step::Preparing) {
            // What it waited for is done. The object may be known from before the hook was removed.
            annotations.remove(&hook());
        }
        object
    }

    /// Writes the record of a node: to its maintenance or, if that is gone with the node, to the record of the roll.
    fn write(&mut self, node: &RollNode, record: NodeRecord) {
        if !node.is_absent() {
            return self.changes.push(RollChange::Write(node.node().to_owned(), record));
        }
        let absent = self.next.absent.iter_mut().filter(|absent| absent.node() == node.node());
        for absent in absent {
            let annotations = absent.maintenance.metadata.annotations.get_or_insert_default();
            annotations.insert(NODE.to_owned(), annotation(&record));
        }
    }

    /// A node whose maintenance has not started leaves the roll, because it does not exist any more.
    fn leave(&mut self, node: &RollNode) {
        let name = node.node();
        if !self.next.left.iter().any(|left| left.node == name) {
            self.next.left.push(LeftNode { node: name.to_owned(), why: Departure::NodeDeleted });
        }
        self.next.absent.retain(|absent| absent.node() != name);
        if !node.is_absent() {
            self.changes.push(RollChange::Delete(name.to_owned()));
        }
    }

    /// The node is done. Its maintenance is released once that is recorded.
    fn release(&mut self, node: &RollNode) {
        let seconds = self.worked_millis().saturating_sub(node.record.began_millis).max(0) / 1000;
        let pods = self.next.gone.of(node.node(), node.pods().0);
        self.next.done.add(pods, node.departures(), seconds);
        self.next.done.note_unchecked(&node.record.baseline.unchecked);
        self.next.gone.forget(node.node());
        self.next.skipped.retain(|skipped| skipped != node.node());
        self.next.nodes.retain(|left| left != node.node());
        self.next.released.push(node.node().to_owned());
        self.changes.push(RollChange::Release(node.node().to_owned()));
    }

    /// The working time of the roll until now, in milliseconds.
    fn worked_millis(&self) -> i64 {
        let mut nodes = self.roll.nodes.iter();
        let continues = nodes.any(|node| continues_in_pause(node, self.observed));
        working_time::until(self.observed.now, &self.next, continues)
    }

    /// Pauses the nodes that have begun at the moment at which the roll was paused.
    fn pause_drains(&mut self) {
        let draining = self.stored.nodes.iter().filter(|node| node.drains() && !node.is_leaving());
        let late = draining.filter(|node| self.observed.to_pause.contains(node.node()));
        self.changes.extend(late.map(|node| RollChange::Pause(node.node().to_owned())));
    }

    /// Begins the nodes whose turn it is. Returns why none can begin, if none is under way.
    fn begin(&mut self) -> Option<String> {
        let planned: Vec<&RollNode> = self
            .roll
            .nodes
            .iter()
            .filter(|node| node.record.step == Step::Planned && !node.is_leaving())
            .collect();
        let names: HashSet<&str> = planned.iter().map(|node| node.node()).collect();
        let under_way: Vec<_> = self.progress.iter().filter(|one| !names.contains(&*one.node)).collect();
        let exists = |node: &&&RollNode| !node.is_absent() && self.observed.nodes.contains_key(node.node());
        if self.is_halted() {
            return None;
        }
        if self.next.paused {
            return (under_way.is_empty() || !self.is_aborted()).then(|| self.next.paused_words());
        }
        let first = planned.iter().find(exists)?;
        let slowest = SignedDuration::from_secs(self.next.done.slowest_seconds);
        if let Some(why) = self.settings().windows.closed(self.observed.now, slowest) {
            return under_way.is_empty().then_some(why);
        }
        // A wave is done before the next one begins.
        let wave = under_way.iter().map(|progress| progress.wave).chain([first.record.wave]).min()?;
        let held = under_way.len() + departures::unexplained(self.roll, self.observed, &self.next);
        let slots = self.settings().max_unavailable.saturating_sub(held);
        let mut next: Vec<&&RollNode> =
            planned.iter().filter(exists).filter(|node| node.record.wave == wave).collect();
        // Its drain ends this program, and the next one should not start on a node whose turn is still to come.
        next.sort_by_key(|node| self.runs_on(node));
        let (now, began_millis) = (self.observed.now, self.worked_millis());
        let begun: Vec<RollChange> = next
            .into_iter()
            .take(slots)
            .map(|node| {
                let first = if self.settings().before.is_some() { Step::Preparing } else { Step::Draining };
                let (step, began, record) = (first, Some(now), node.record.clone());
                let record = NodeRecord { step, since: now, began, began_millis, ..record };
                RollChange::Begin(node.node().to_owned(), record)
            })
            .collect();
        self.changes.extend(begun);
        None
    }

    /// Whether the program that runs the roll is a pod on this node, whose drain ends it.
    fn runs_on(&self, node: &RollNode) -> bool {
        self.next.runner.as_ref().and_then(|runner| runner.node.as_deref()) == Some(node.node())
    }

    /// Whether a node begins when all others of its wave have begun.
    fn is_last_of_wave(&self, node: &RollNode) -> bool {
        let is_before = |other: &RollNode| {
            other.node() != node.node()
                && !other.is_leaving()
                && !other.is_absent()
                && (other.record.step, other.record.wave) == (Step::Planned, node.record.wave)
        };
        node.record.step == Step::Planned && self.runs_on(node) && self.roll.nodes.iter().any(is_before)
    }

    /// What a roll that halts still waits for; none if it does not halt, or has halted.
    fn halting(&self, before: &RollRecord) -> Option<String> {
        let halt = before.halt.as_ref().filter(|_| !self.is_settled())?;
        let acting = self.observed.actions.iter().filter(|(_, state)| **state == ActionState::Running);
        let acting: Vec<&str> = acting.map(|((node, _), _)| node.as_str()).collect();
        if acting.is_empty() {
            return None;
        }
        Some(format!(
            "{}; the roll halts once the action of {} has finished",
            halt.message,
            acting.join(", ")
        ))
    }

    /// Whether no action is under way, and nothing is left to write: the program may end.
    fn is_settled(&self) -> bool {
        let is_running = self.observed.actions.values().any(|action| *action == ActionState::Running);
        !is_running && self.changes.is_empty()
    }

    /// The next record, with a heartbeat of this program.
    fn stamped(&self) -> RollRecord {
        let (worked_millis, health) = (self.worked_millis(), self.observed.probed());
        let mut next = RollRecord { worked_millis, health, ..self.next.next() };
        if let Some(runner) = &mut next.runner {
            runner.at = self.observed.now;
        }
        next
    }

    fn finish(
        mut self,
        before: &RollRecord,
        waits: Option<String>,
        is_settled: bool,
        are_pending: bool,
    ) -> Decisions {
        // The object that had the record is gone, and nobody has copied it: not even to another one than the anchor.
        let mut staying = self.stored.staying().peekable();
        let is_missing =
            staying.peek().is_some() && staying.all(|node| node.revision < Some(before.revision));
        let aborted = self.observed.aborted.as_ref().or(before.aborted.as_ref());
        // The finalizers of others may keep the maintenance of a node that is done.
        let is_over =
            |node: &RollNode| !node.is_kept() && before.released.iter().any(|one| one == node.node());
        let state = match (&before.halt, waits) {
            (Some(halt), _) if is_settled => RollState::Halted(halt.clone()),
            // Which nodes are not done is in the record first.
            (None, _)
                if self.roll.nodes.iter().all(is_over)
                    && !are_pending
                    && (&self.next.left, &self.next.absent) == (&before.left, &before.absent) =>
            {
                aborted.map_or(RollState::Done, |who| RollState::Aborted(who.clone()))
            }
            (_, Some(why)) => RollState::Waiting(why),
            (_, None) => RollState::Working,
        };
        if self.next != *before || is_due(before, self.observed.now) || is_missing {
            // First: what is released next must be in the record.
            self.changes.insert(0, RollChange::Record(Box::new(self.stamped())));
        }
        Decisions { changes: self.changes, progress: self.progress, state }
    }
}

#[cfg(test)]
#[path = "decide_tests/mod.rs"]
mod tests;
