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
use crate::terminal::command_context::shell_quoted;
use crate::terminal::text::{Line, Style};

/// Annotation of each maintenance of a roll: the record of its node as JSON.
pub const NODE: &str = "kubectl-nm.dev/roll-node";

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
pub struct RollRunners(BTreeMap<String, SeenRoll>);

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
        if self.0.get(name).is_none_or(|known| known.revision <= seen.revision) {
            self.0.insert(name.to_owned(), seen);
        }
    }

    /// Forgets what a maintenance showed that is gone. Another roll may have the same name.
    pub fn forget(&mut self, object: &NodeMaintenance) {
        if let Some((name, _)) = record(object) {
            self.0.remove(name);
        }
    }

    /// What a roll does with its nodes; none if that is not known.
    pub fn standing(&self, roll: &str, now: Timestamp) -> Option<RollStanding> {
        let seen = self.0.get(roll)?;
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
        let seen = self.0.get(roll).filter(|seen| seen.begins_nodes())?;
        Some(live_runner(seen, now)?.who.as_str())
    }

    /// Whether a program runs a roll, even if it starts nothing new: the roll is paused, has halted, or was aborted.
    pub fn is_run(&self, roll: &str, now: Timestamp) -> bool {
        self.0.get(roll).is_some_and(|seen| live_runner(seen, now).is_some())
    }

    /// What the program that runs the roll of a maintenance has last found not to be healthy yet of its node, or of the workloads
    /// affected by its drain; none if all of it is, or if nobody runs the roll.
    pub fn unhealthy(&self, maintenance: &NodeMaintenance, now: Timestamp) -> Option<&str> {
        let seen = self.0.get(roll_name(maintenance)?).filter(|seen| live_runner(seen, now).is_some())?;
        let step = parse::<SeenNode>(maintenance, NODE)?.step;
        seen.unhealthy(&maintenance.spec.node_name, step.word())
    }

    /// Whether a roll waits until somebody resumes it, because it is paused.
    pub fn is_paused(&self, roll: &str) -> bool {
        self.0.get(roll).is_some_and(SeenRoll::is_paused)
    }

    /// Who has paused a roll, and when; none if it is not paused, or if that is unknown.
    pub fn pause(&self, roll: &str) -> Option<&Pause> {
        self.0.get(roll).filter(|seen| seen.is_paused())?.pause.as_ref()
    }

    /// The program that ran a roll last, with its last sign; none if none has, or if the last one has given up the roll.
    pub fn last_runner(&self, roll: &str) -> Option<&Runner> {
        self.0.get(roll)?.runner.as_ref()
    }

    /// Whether nobody runs a roll, which has not halted: nothing becomes of its nodes by itself.
    pub fn is_abandoned(&self, roll: &str, now: Timestamp) -> bool {
        self.0.get(roll).is_some_and(|seen| live_runner(seen, now).is_none() && seen.halt().is_none())
    }

    /// The rolls that have halted and were not aborted, by name, and why.
    pub fn halts(&self) -> impl Iterator<Item = (&str, &Halt)> {
        self.0.iter().filter_map(|(name, seen)| Some((name.as_str(), seen.halt()?)))
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
        let paused = self.0.iter().filter(|(name, seen)| seen.is_paused() && names.contains(name.as_str()));
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

    /// Who has aborted a roll; none if nobody has.
    pub fn aborted_by(&self, roll: &str) -> Option<&str> {
        self.0.get(roll)?.aborted.as_deref()
    }

    /// Why a roll has halted.
    pub fn halt(&self, roll: &str) -> Option<&Halt> {
        self.0.get(roll)?.halt()
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
        Step::Planned => "has not come to the node",
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
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::objects::requested;

    fn object(annotation: &str, value: &Value) -> NodeMaintenance {
        let mut object = requested("n1");
        object.metadata.labels = Some([("kubectl-nm.dev/roll".to_owned(), "k2".to_owned())].into());
        object.metadata.annotations = Some([(annotation.to_owned(), value.to_string())].into());
        object
    }

    fn runner(seconds: i64) -> Value {
        json!({"id": "x", "who": "ada@vm", "at": Timestamp::from_second(seconds).unwrap()})
    }

    #[test]
    fn a_roll_has_a_runner_while_its_heartbeats_come_and_nodes_may_begin() {
        for (state, seconds, expected) in [
            (json!({"revision": 2, "runner": runner(100)}), 159, Some("ada@vm")),
            (json!({"revision": 2, "runner": runner(100)}), 160, None),
            (json!({"revision": 2, "runner": runner(100), "paused": true}), 101, None),
            (json!({"revision": 2, "runner": runner(100), "halt": halt()}), 101, None),
            (json!({"revision": 2}), 101, None),
            (json!("{"), 101, None),
        ] {
            let of_roll = [object(STATE, &state), object(NODE, &json!({"step": "Planned"}))];
            let runners = RollRunners::of(&of_roll);
            let now = Timestamp::from_second(seconds).unwrap();
            assert_eq!(runners.runner("k2", now), expected, "{state} at {seconds}");
            assert_eq!(runners.runner("k1", now), None);
        }
    }

    #[test]
    fn what_a_roll_does_depends_on_who_runs_it_and_on_what_has_stopped_it() {
        let ada = || String::from("ada@vm");
        for (state, expected) in [
            (json!({"runner": runner(100)}), RollStanding::Running(ada())),
            (json!({"runner": runner(100), "paused": true}), RollStanding::Paused),
            (json!({"paused": true}), RollStanding::Paused),
            (json!({"runner": runner(100), "halt": halt()}), RollStanding::Halted),
            (json!({"runner": runner(10)}), RollStanding::Abandoned),
            (json!({"runner": runner(100), "paused": true, "aborted": "bob"}), RollStanding::Ending(ada())),
            (json!({"runner": runner(10), "paused": true, "aborted": "bob"}), RollStanding::Over),
            (json!({"runner": runner(100), "aborted": "bob", "halt": halt()}), RollStanding::Over),
        ] {
            let rolls = RollRunners::of([&object(STATE, &state)]);
            let now = Timestamp::from_second(101).unwrap();
            assert_eq!(rolls.standing("k2", now), Some(expected), "{state}");
            assert_eq!(rolls.standing("k1", now), None);
        }
    }

    #[test]
    fn a_paused_roll_has_who_paused_it_unless_it_has_halted_or_was_aborted() {
        let pause = json!({"by": "bob@desk", "at": Timestamp::UNIX_EPOCH});
        let now = Timestamp::from_second(720).unwrap();
        for (state, expected) in [
            (json!({"paused": true, "pause": pause}), Some("paused by bob@desk 12m ago")),
            (json!({"paused": true}), Some("paused")),
            (json!({"revision": 2}), None),
            (json!({"paused": true, "pause": pause, "halt": halt()}), None),
            (json!({"paused": true, "pause": pause, "aborted": "ada"}), None),
        ] {
            let rolls = RollRunners::of([&object(STATE, &state)]);
            let words = rolls.is_paused("k2").then(|| paused_words(rolls.pause("k2"), TimeStyle::Ago(now)));
            assert_eq!(words.as_deref(), expected, "{state}");
        }
    }

    fn halt() -> Value {
        json!({"node": "n1", "message": "its command failed", "at": Timestamp::UNIX_EPOCH})
    }

    #[test]
    fn a_halted_roll_has_its_cause_unless_it_was_aborted() {
        for (state, expected) in [
            (json!({"revision": 2, "halt": halt()}), Some("its command failed")),
            (json!({"revision": 2, "halt": halt(), "aborted": "ada"}), None),
            (json!({"revision": 2}), None),
        ] {
            let rolls = RollRunners::of([&object(STATE, &state)]);
            assert_eq!(rolls.halt("k2").map(|halt| halt.message.as_str()), expected, "{state}");
            let all: Vec<&str> = rolls.halts().map(|(name, _)| name).collect();
            assert_eq!(all, expected.map(|_| "k2").into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_roll_has_halted_for_each_of_its_maintenances_and_for_no_other() {
        let anchor = object(STATE, &json!({"revision": 2, "halt": halt()}));
        let other = object(NODE, &json!({"step": "Planned"}));
        let rolls = RollRunners::of([&anchor, &other]);
        assert_eq!(rolls.halts_of([&requested("n3")]).len(), 0);
        let of_other = rolls.halts_of([&other]);
        assert_eq!(
            halted_line("k2", of_other["k2"], " --context blue").to_string(),
            "roll k2 halted: its command failed; `kubectl nm roll status k2 --context blue` shows more"
        );
    }

    #[test]
    fn a_pod_runs_the_action_of_a_roll_until_it_has_finished() {
        let words = |phase: &str| {
            let pod =
                json!({"metadata": {"name": "p", "labels": {ROLL_LABEL: "k2"}}, "status": {"phase": phase}});
            stay_words(&serde_json::from_value(pod).unwrap(), StayReason::NotSelected)
        };
        assert_eq!(words("Running"), "runs the action of roll k2");
        assert_eq!(words("Succeeded"), "ran the action of roll k2");
    }

    #[test]
    fn the_newest_record_of_a_roll_counts_until_its_maintenance_is_gone() {
        let (old, new) = (
            object(STATE, &json!({"revision": 7, "runner": runner(100)})),
            object(STATE, &json!({"revision": 8})),
        );
        let now = Timestamp::from_second(101).unwrap();
        let mut runners = RollRunners::of([&new, &old]);
        assert_eq!(runners.runner("k2", now), None);
        runners.forget(&new);
        runners.note(&old);
        assert_eq!(runners.runner("k2", now), Some("ada@vm"));
    }

    #[test]
    fn a_drained_node_of_a_roll_shows_what_the_roll_does_with_it() {
        let at = |step: &str| roll_progress(&object(NODE, &json!({"step": step})));
        // A roll that is paused has not started it.
        assert_eq!(at("Acting").as_deref(), Some("roll k2 has not started its action"));
        // Whether somebody runs the roll, or it has halted, is not known here.
        assert_eq!(at("Checking").as_deref(), Some("roll k2 has not finished its checks"));
        assert_eq!(at("Rejoining").as_deref(), Some("roll k2 has not seen the node return"));
        // Whether a program asks for it is not known here.
        assert_eq!(at("Confirming").as_deref(), Some("roll k2 needs a confirmation"));
        let failed = json!({"step": "Acting", "action": {"attempt": 1, "state": {"failed": "exit code 1"}}});
        let failed = roll_progress(&object(NODE, &failed));
        assert_eq!(failed.as_deref(), Some("roll k2 stopped because its action failed"));
        let running = json!({"step": "Acting", "action": {"attempt": 1, "state": "running"}});
        let running = roll_progress(&object(NODE, &running));
        assert_eq!(running.as_deref(), Some("roll k2 has started its action"));
        let failed = json!({"step": "Finishing", "action": {"attempt": 1, "state": "succeeded"},
            "after": {"attempt": 1, "state": {"failed": "exit code 1"}}});
        let failed = roll_progress(&object(NODE, &failed));
        assert_eq!(failed.as_deref(), Some("roll k2 stopped because its --after action failed"));
        assert_eq!(at("Finishing").as_deref(), Some("roll k2 has not started its --after action"));
        let running = json!({"step": "Finishing", "after": {"attempt": 1, "state": "running"}});
        let running = roll_progress(&object(NODE, &running));
        assert_eq!(running.as_deref(), Some("roll k2 has started its --after action"));
        assert_eq!(at("Draining"), None);
        assert_eq!(roll_progress(&requested("n1")), None);
    }
}
