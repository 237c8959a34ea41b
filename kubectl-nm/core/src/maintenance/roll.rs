//! What the annotations of a roll show of it to those who only look: who runs it, and how far a node has come.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use nm_shared::NodeMaintenance;
use nm_shared::api::roll_state::SeenRoll;
use nm_shared::cluster::pod::{self, DrainPod};
use nm_shared::drain::plan::StayReason;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::args::duration::TimeStyle;
use crate::error::Error;
use crate::maintenance::fields::{ROLL_LABEL, roll_name};
use crate::maintenance::roll_window::Windows;
use crate::terminal::command_context::shell_quoted;
use crate::terminal::text::{Line, Style};

/// Annotation of each maintenance of a roll: the record of its node as JSON.
pub const NODE: &str = "kubectl-nm.dev/roll-node";

/// Annotation of each maintenance of a roll: the settings of the roll as JSON.
pub const SETTINGS: &str = "kubectl-nm.dev/roll-settings";

pub use nm_shared::api::names::ROLL_STATE_ANNOTATION as STATE;
pub use nm_shared::api::roll_state::{Halt, HaltCause, Pause, RollStanding, Runner};

/// After this time without a heartbeat, a roll has no runner.
pub const HEARTBEAT_TIMEOUT: SignedDuration = SignedDuration::from_secs(60);

/// How far a node has come, from its maintenance being planned to its return to service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Step {
    /// Its maintenance is suspended.
    Planned,
    /// It is cordoned, and its drain waits for the command or the Job of `--before`.
    Preparing,
    /// Its drain is under way.
    Draining,
    /// It is drained, and somebody has to confirm before the roll continues.
    Confirming,
    /// The command or the Job is under way.
    Acting,
    /// It has to reboot, or to become Ready.
    Rejoining,
    /// It has to stay Ready, without new pressure and with its DaemonSet pods Ready.
    Checking,
    /// It is Ready, and returns once the command or the Job of `--after` has ended.
    Finishing,
    /// Its maintenance is being deleted.
    Returning,
    /// It is in service. The workloads and budgets that its drain disturbed have to be healthy again.
    Recovering,
    /// It is in service and healthy, and has to stay so for a while.
    Soaking,
}

impl Step {
    /// The name of the step in output.
    pub fn word(self) -> &'static str {
        match self {
            Self::Planned => "Planned",
            Self::Preparing => "Preparing",
            Self::Draining => "Draining",
            Self::Confirming => "Confirming",
            Self::Acting => "Acting",
            Self::Rejoining => "Rejoining",
            Self::Checking => "Checking",
            Self::Finishing => "Finishing",
            Self::Returning => "Returning",
            Self::Recovering => "Recovering",
            Self::Soaking => "Soaking",
        }
    }

    /// Whether a command or a Job is run in the step.
    pub fn has_action(self) -> bool {
        matches!(self, Self::Preparing | Self::Acting | Self::Finishing)
    }
}

/// Of the settings of a roll, what those who only look have to know.
#[derive(Deserialize)]
struct SeenSettings {
    #[serde(default)]
    windows: Windows,
}

/// Of the record of a node, what those who only look have to know.
#[derive(Deserialize)]
struct SeenNode {
    step: Step,
    #[serde(default)]
    action: Option<SeenAction>,
    #[serde(default)]
    after: Option<SeenAction>,
}

#[derive(Deserialize)]
struct SeenAction {
    state: Value,
}

impl SeenNode {
    /// The action of its step; none before it has started.
    fn step_action(&self) -> Option<&SeenAction> {
        if self.step == Step::Finishing { self.after.as_ref() } else { self.action.as_ref() }
    }

    /// Whether the action of its step has ended, and the roll does not continue with the node by itself.
    fn has_failed(&self) -> bool {
        // The states of actions that failed have details.
        self.step_action().is_some_and(|action| action.state.is_object())
    }
}

/// The programs that run rolls, and why rolls halted, by the names of the rolls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RollRunners {
    records: BTreeMap<String, SeenRoll>,
    /// Of rolls that have any.
    windows: BTreeMap<String, Windows>,
}

impl RollRunners {
    /// Those that these maintenances name.
    pub fn of<'a>(all: impl IntoIterator<Item = &'a NodeMaintenance>) -> Self {
        let mut runners = Self::default();
        all.into_iter().for_each(|object| runners.note(object));
        runners
    }

    /// Takes what a maintenance shows, unless something newer is known.
    pub fn note(&mut self, object: &NodeMaintenance) {
        let Some((name, seen)) = record(object) else { return };
        if self.records.get(name).is_none_or(|known| known.revision <= seen.revision) {
            self.records.insert(name.to_owned(), seen);
            let windows = parse::<SeenSettings>(object, SETTINGS).map(|settings| settings.windows);
            match windows.filter(|windows| !windows.is_empty()) {
                Some(windows) => drop(self.windows.insert(name.to_owned(), windows)),
                None => drop(self.windows.remove(name)),
            }
        }
    }

    /// Forgets what a maintenance showed that is gone. Another roll may have the same name.
    pub fn forget(&mut self, object: &NodeMaintenance) {
        if let Some((name, _)) = record(object) {
            self.records.remove(name);
            self.windows.remove(name);
        }
    }

    /// What a roll does with its nodes; none if that is not known.
    pub fn standing(&self, roll: &str, now: Timestamp) -> Option<RollStanding> {
        let seen = self.records.get(roll)?;
        Some(seen.standing(live_runner(seen, now)))
    }

    /// That a roll manages the maintenance of a node, so that it is not started otherwise.
    pub fn refusal(&self, node: &str, roll: &str, now: Timestamp) -> Error {
        let standing = self.standing(roll, now);
        Error::InRoll { node: node.to_owned(), roll: roll.to_owned(), standing }
    }

    /// The user and the machine that make the nodes of a roll begin now; none if nobody runs it, or if it is paused or has halted.
    pub fn runner(&self, roll: &str, now: Timestamp) -> Option<&str> {
        // While it is paused, and once it has halted, no node begins until somebody resumes it.
        let seen = self.records.get(roll).filter(|seen| seen.begins_nodes())?;
        Some(live_runner(seen, now)?.who.as_str())
    }

    /// Whether a program runs a roll, even if it starts nothing new: the roll is paused, has halted, or was aborted.
    pub fn is_run(&self, roll: &str, now: Timestamp) -> bool {
        self.records.get(roll).is_some_and(|seen| live_runner(seen, now).is_some())
    }

    /// Why a roll that somebody runs starts no node now, if that is because of its windows: `the window opens at …`.
    pub fn closed_window(&self, roll: &str, now: Timestamp) -> Option<String> {
        self.runner(roll, now)?;
        self.shut_window(roll, now)
    }

    /// Why the windows of a roll let no node start now, whether or not somebody runs it.
    pub fn shut_window(&self, roll: &str, now: Timestamp) -> Option<String> {
        let windows = self.windows.get(roll)?;
        let slowest = self.records.get(roll)?.done.slowest_seconds;
        windows.closed(now, SignedDuration::from_secs(slowest))
    }

    /// Of these planned maintenances, the rolls that wait for a window, and why.
    pub fn closed_windows_of<'a>(
        &self,
        planned: impl IntoIterator<Item = &'a NodeMaintenance>,
        now: Timestamp,
    ) -> BTreeMap<String, String> {
        let names: BTreeSet<&str> = planned.into_iter().filter_map(roll_name).collect();
        let closed = |name: &str| Some((name.to_owned(), self.closed_window(name, now)?));
        names.into_iter().filter_map(closed).collect()
    }

    /// What the program that runs the roll of a maintenance has last found not to be healthy yet of its node, or of the workloads
    /// affected by its drain; none if all of it is, or if nobody runs the roll.
    pub fn unhealthy(&self, maintenance: &NodeMaintenance, now: Timestamp) -> Option<&str> {
        let seen =
            self.records.get(roll_name(maintenance)?).filter(|seen| live_runner(seen, now).is_some())?;
        let step = parse::<SeenNode>(maintenance, NODE)?.step;
        seen.unhealthy(&maintenance.spec.node_name, step.word())
    }

    /// Whether a roll waits until somebody resumes it, because it is paused.
    pub fn is_paused(&self, roll: &str) -> bool {
        self.records.get(roll).is_some_and(SeenRoll::is_paused)
    }

    /// Who has paused a roll, and when; none if it is not paused, or if that is unknown.
    pub fn pause(&self, roll: &str) -> Option<&Pause> {
        self.records.get(roll).filter(|seen| seen.is_paused())?.pause.as_ref()
    }

    /// The program that ran a roll last, with its last sign; none if none has, or if the last one has given up the roll.
    pub fn last_runner(&self, roll: &str) -> Option<&Runner> {
        self.records.get(roll)?.runner.as_ref()
    }

    /// Whether nobody runs a roll, which has not halted: nothing becomes of its nodes by itself.
    pub fn is_abandoned(&self, roll: &str, now: Timestamp) -> bool {
        self.records.get(roll).is_some_and(|seen| live_runner(seen, now).is_none() && seen.halt().is_none())
    }

    /// The rolls that have halted and were not aborted, by name, and why.
    pub fn halts(&self) -> impl Iterator<Item = (&str, &Halt)> {
        self.records.iter().filter_map(|(name, seen)| Some((name.as_str(), seen.halt()?)))
    }

    /// Of [`Self::halts`], those of the rolls that these maintenances are part of.
    pub fn halts_of<'a>(
        &self,
        shown: impl IntoIterator<Item = &'a NodeMaintenance>,
    ) -> BTreeMap<&str, &Halt> {
        let names: BTreeSet<&str> = shown.into_iter().filter_map(roll_name).collect();
        self.halts().filter(|(name, _)| names.contains(name)).collect()
    }

    /// The paused rolls that these maintenances are part of, by name, with who paused them, and when, if that is known.
    pub fn pauses_of<'a>(
        &self,
        shown: impl IntoIterator<Item = &'a NodeMaintenance>,
    ) -> BTreeMap<&str, Option<&Pause>> {
        let names: BTreeSet<&str> = shown.into_iter().filter_map(roll_name).collect();
        let paused =
            self.records.iter().filter(|(name, seen)| seen.is_paused() && names.contains(name.as_str()));
        paused.map(|(name, seen)| (name.as_str(), seen.pause.as_ref())).collect()
    }

    /// The rolls that these maintenances are part of and nobody runs.
    pub fn abandoned_of<'a>(
        &self,
        shown: impl IntoIterator<Item = &'a NodeMaintenance>,
        now: Timestamp,
    ) -> BTreeSet<&'a str> {
        let names = shown.into_iter().filter_map(roll_name);
        names.filter(|name| self.standing(name, now) == Some(RollStanding::Abandoned)).collect()
    }

    /// The rolls of these maintenances that were aborted and that nobody runs, each with who aborted it. Nodes that are returning to
    /// service need nobody.
    pub fn left_of<'a>(
        &self,
        shown: impl IntoIterator<Item = &'a NodeMaintenance>,
        now: Timestamp,
    ) -> BTreeMap<&'a str, &str> {
        let staying = shown.into_iter().filter(|object| object.metadata.deletion_timestamp.is_none());
        let left = staying.filter_map(roll_name).filter(|name| self.is_left(name, now));
        left.filter_map(|name| Some((name, self.aborted_by(name)?))).collect()
    }

    /// Who has aborted a roll; none if nobody has.
    pub fn aborted_by(&self, roll: &str) -> Option<&str> {
        self.records.get(roll)?.aborted.as_deref()
    }

    /// Whether a roll was aborted, and nobody finishes its nodes.
    pub fn is_left(&self, roll: &str, now: Timestamp) -> bool {
        self.aborted_by(roll).is_some() && self.standing(roll, now) == Some(RollStanding::Over)
    }

    /// Why a roll has halted.
    pub fn halt(&self, roll: &str) -> Option<&Halt> {
        self.records.get(roll)?.halt()
    }
}

/// The program that runs a roll, if its last heartbeat is recent.
fn live_runner(seen: &SeenRoll, now: Timestamp) -> Option<&Runner> {
    seen.runner.as_ref().filter(|runner| now.duration_since(runner.at) < HEARTBEAT_TIMEOUT)
}

fn record(object: &NodeMaintenance) -> Option<(&str, SeenRoll)> {
    Some((roll_name(object)?, SeenRoll::of(object)?))
}

fn parse<T: DeserializeOwned>(object: &NodeMaintenance, annotation: &str) -> Option<T> {
    serde_json::from_str(object.metadata.annotations.as_ref()?.get(annotation)?).ok()
}

/// What the roll of a drained node does with it: `roll kernel has started its action`. None if its roll does nothing, or if
/// it is part of none. The words are true even if the roll has halted, or nobody runs it.
pub fn roll_progress(maintenance: &NodeMaintenance) -> Option<String> {
    let roll = roll_name(maintenance)?;
    let seen = parse::<SeenNode>(maintenance, NODE)?;
    let what = match seen.step {
        // Somebody has started its drain before its turn.
        Step::Planned => "has not reached the node",
        Step::Confirming => "needs a confirmation",
        Step::Acting if seen.step_action().is_none() => "has not started its action",
        Step::Acting if seen.has_failed() => "stopped because its action failed",
        Step::Acting => "has started its action",
        Step::Finishing if seen.step_action().is_none() => "has not started its --after action",
        Step::Finishing if seen.has_failed() => "stopped because its --after action failed",
        Step::Finishing => "has started its --after action",
        Step::Rejoining => "has not seen the node return",
        Step::Checking => "has not finished its checks",
        Step::Preparing | Step::Draining | Step::Returning | Step::Recovering | Step::Soaking => return None,
    };
    Some(format!("roll {roll} {what}"))
}

/// The step in which a roll is with the node of a maintenance; none if that is not known.
pub fn step(maintenance: &NodeMaintenance) -> Option<Step> {
    Some(parse::<SeenNode>(maintenance, NODE)?.step)
}

/// Whether the roll of a node waits until somebody confirms that it continues with the node.
pub fn awaits_confirmation(maintenance: &NodeMaintenance) -> bool {
    parse::<SeenNode>(maintenance, NODE).is_some_and(|seen| seen.step == Step::Confirming)
}

/// Whether the action of a node failed, so that its roll does nothing more with it until somebody acts.
pub fn has_failed_action(maintenance: &NodeMaintenance) -> bool {
    parse::<SeenNode>(maintenance, NODE).is_some_and(|seen| seen.has_failed())
}

/// That a roll has halted, why, and the command that shows more. `flags` are the connection flags of the command, each with a
/// space before it.
pub fn halted_line(roll: &str, halt: &Halt, flags: &str) -> Line {
    let status = format!("`kubectl nm roll status {}{flags}`", shell_quoted(roll));
    Line::new(format!("roll {roll} "))
        .with(Style::Bad, "halted")
        .and(format!(": {}; {status} shows more", halt.message))
}

/// That a roll is paused, by whom and since when, and the command that continues it. `flags` are the connection flags of the
/// command, each with a space before it.
pub fn paused_line(roll: &str, pause: Option<&Pause>, flags: &str) -> Line {
    let resume = format!("`kubectl nm roll resume {}{flags}`", shell_quoted(roll));
    let by = pause.map(|Pause { by, at }| {
        let at = Timestamp::from_second(at.as_second()).unwrap_or(*at);
        format!(" by {by} since {at}")
    });
    Line::new(format!("roll {roll} is "))
        .with(Style::Busy, "paused")
        .and(by.unwrap_or_default())
        .and(format!(": no further node, command or Job is started; {resume} continues it"))
}

/// That nobody runs a roll, and the command that shows what becomes of it. `flags` are the connection flags of the command, each
/// with a space before it.
pub fn abandoned_line(roll: &str, flags: &str) -> Line {
    let status = format!("`kubectl nm roll status {}{flags}`", shell_quoted(roll));
    Line::default()
        .with(Style::Bad, "nobody")
        .and(format!(" runs roll {roll} now: {status} shows whether it continues by itself"))
}

/// That nobody runs a roll that was aborted, and the command that shows what becomes of its nodes. `flags` are the
/// connection flags of the command, each with a space before it.
pub fn left_line(roll: &str, who: &str, flags: &str) -> Line {
    let status = format!("`kubectl nm roll status {}{flags}`", shell_quoted(roll));
    let aborted = format!("{who} aborted roll {roll}, and ");
    Line::new(aborted)
        .with(Style::Bad, "nobody")
        .and(format!(" runs it now: {status} shows what becomes of its nodes"))
}

/// Why a pod stays: what runs the action of a roll stays because the roll wants it so.
pub fn stay_words(pod: &DrainPod, reason: StayReason) -> String {
    match pod.labels.get(ROLL_LABEL) {
        Some(roll) if reason == StayReason::NotSelected => {
            let runs = if pod::is_finished(pod) { "ran" } else { "runs" };
            format!("{runs} the action of roll {roll}")
        }
        _ => reason.word().to_owned(),
    }
}

/// `paused by ada@laptop 12m ago`, as far as that is known.
pub fn paused_words(pause: Option<&Pause>, times: TimeStyle) -> String {
    pause.map_or_else(
        || String::from("paused"),
        |Pause { by, at }| format!("paused by {by} {}", times.words(*at)),
    )
}

/// What lets a planned maintenance begin: `waits for its turn in roll kernel`. The words are true even if nobody runs the roll.
pub fn planned_begin(maintenance: &NodeMaintenance) -> String {
    match roll_name(maintenance) {
        Some(roll) => format!("waits for its turn in roll {roll}"),
        None => String::from("starts when it is resumed"),
    }
}

#[cfg(test)]
#[path = "roll_tests.rs"]
mod tests;
