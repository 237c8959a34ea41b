//! What the outcomes of changes mean for a running roll.

use std::sync::Arc;

use nm_core::client::watch_stream::WatchChange;
use nm_core::error::Error;
use nm_core::maintenance::uid;
use nm_shared::NodeMaintenance;
use nm_shared::cluster::refusal::Refusal;

use super::{RollEnd, RollRunner};
use crate::apply::{Applied, RollChangeError};
use crate::decide::RollChange;
use crate::halt_event;
use crate::record::{ActionState, Halt, Roll, RollRecord, roll_name};

/// How often in a row the result of an action that no longer fits its object is written, if the roll cannot continue: its
/// objects may not be known any more.
const MAX_CONFLICTS: u32 = 4;

impl RollRunner<'_> {
    /// Publishes that the roll has halted, unless it had before this program ran it.
    pub(super) async fn report(&self, end: &RollEnd) {
        let RollEnd::Halted(halt, _) = end else { return };
        let is_of_roll = |object: &&Arc<NodeMaintenance>| roll_name(object) == Some(self.name.as_str());
        let mut objects = self.maintenances.all().filter(is_of_roll);
        let maintenance = objects.find(|object| object.spec.node_name == halt.node);
        if let (true, Some(maintenance)) = (halt.at >= self.observed.started, maintenance) {
            let who = self.record.runner.as_ref().map_or("", |runner| &runner.who);
            halt_event::publish(self.cluster, &self.name, halt, maintenance, who).await;
        }
    }

    /// The changes without those that have failed and are made again later. Nothing is changed without the record, unless the
    /// roll has halted.
    pub(super) fn due(&self, mut changes: Vec<RollChange>) -> Vec<RollChange> {
        let is_late =
            |change: &RollChange| matches!(change, RollChange::Record(_)) && !self.backoff.is_due(change);
        if self.record.halt.is_none() && changes.iter().any(is_late) {
            return Vec::new();
        }
        changes.retain(|change| self.backoff.is_due(change));
        changes
    }

    /// Records the results of the changes of a decision.
    pub(super) fn take_applied(&mut self, applied: Applied) {
        let Applied { roll, objects, outcomes } = applied;
        for object in objects.into_iter().map(Arc::new) {
            // The watch may have shown its end meanwhile.
            if self.maintenances.get(&uid(&object)).is_some() && !self.is_older(&object) {
                self.observed.note_maintenance(&object);
                self.maintenances.apply(&WatchChange::Applied(object));
            }
        }
        for (change, outcome) in outcomes {
            let failures = match &outcome {
                Ok(()) => {
                    self.backoff.succeeded(&change);
                    0
                }
                Err(_) => self.backoff.failed(&change),
            };
            match (change, outcome) {
                (RollChange::Record(record), Ok(())) => {
                    if record.revision > self.record.revision {
                        self.record = *record;
                    }
                }
                (RollChange::Act(name, record), Ok(())) => {
                    self.observed.actions.insert((name.clone(), record.step), ActionState::Running);
                    self.act(&roll, &name, &record);
                }
                (RollChange::Act(name, record), Err(error))
                    if !error.error().is_waited_for() && !error.is_outdated() =>
                {
                    let why = error.error().to_string();
                    let failed = match error {
                        RollChangeError::Job(_) => ActionState::NotStarted(why),
                        RollChangeError::Maintenance(_) => ActionState::Failed(why),
                    };
                    self.observed.actions.insert((name, record.step), failed);
                }
                (RollChange::Begin(name, _), Ok(())) => {
                    self.observed.refused.remove(&name);
                }
                (RollChange::Recreate(object), Ok(())) => {
                    self.observed.refused.remove(&object.spec.node_name);
                }
                (RollChange::Recreate(object), Err(error)) if is_refused_by_admission(error.error()) => {
                    let name = object.spec.node_name.clone();
                    self.observed.refused.insert(name, error.error().to_string());
                }
                (RollChange::Begin(name, _), Err(error)) if is_refused_by_admission(error.error()) => {
                    self.observed.refused.insert(name, error.error().to_string());
                }
                (RollChange::Pause(name), Ok(())) => {
                    self.observed.to_pause.remove(&name);
                }
                (_, Ok(())) => {}
                // The watch has, or will have, what changed: it is decided again.
                (change, Err(error))
                    if error.error().is_waited_for()
                        || (error.is_outdated() && !self.is_given_up(&change, failures)) => {}
                (RollChange::Record(record), Err(error)) => {
                    self.halt_unrecorded(&roll, *record, error.error());
                }
                (change, Err(RollChangeError::Maintenance(error) | RollChangeError::Job(error))) => {
                    let Some(node) = change.node() else { continue };
                    self.fail(node, &format!("the maintenance of node {node} cannot be changed: {error}"));
                }
            }
        }
    }

    /// Whether a change that no longer fits its object is not made again: if the roll cannot continue, its objects may not be
    /// known any more.
    fn is_given_up(&self, change: &RollChange, failures: u32) -> bool {
        self.observed.broken.is_some() && (change.node().is_none() || failures >= MAX_CONFLICTS)
    }

    /// The record cannot be written. The roll halts, which only this program knows.
    fn halt_unrecorded(&mut self, roll: &Roll, record: RollRecord, error: &Error) {
        let anchor = roll.anchor(&record).map(|anchor| anchor.node().to_owned()).unwrap_or_default();
        self.stop(
            &anchor,
            format!("the record of the roll cannot be written to the maintenance of node {anchor}: {error}"),
        );
        let halt = record.halt.or_else(|| {
            let (node, message) = self.observed.broken.clone()?;
            Some(Halt { node, message, at: self.observed.now, cause: None })
        });
        self.record.halt = self.record.halt.take().or(halt);
    }
}

/// Whether a webhook or a policy refuses: it may allow the same request later.
fn is_refused_by_admission(error: &Error) -> bool {
    let refusal = error.status().map(Refusal::from);
    matches!(refusal, Some(Refusal::Webhook { .. } | Refusal::Policy(_)))
}
