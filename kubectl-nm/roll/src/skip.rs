//! What a skip does with a node of a roll, for the user who is about to skip it.

use nm_core::maintenance::status;
use nm_core::terminal::text::Line;

use crate::absence::is_absent;
use crate::record::{ActionState, Roll, RollNode, RollRecord, Step};

/// What a skip does with a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip<'a> {
    node: &'a str,
    effect: Effect,
}

/// What becomes of the node, and of its command or Job.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Effect {
    /// It has no maintenance, because it does not exist.
    Absent,
    /// Its maintenance has not started.
    Planned,
    /// It is back in service.
    InService,
    /// It returns to service, and nothing runs for it.
    Returns,
    /// The same, and its command is terminated.
    TerminatesCommand,
    /// The same, and its Job is deleted.
    DeletesJob,
    /// The same, and its command may continue: the program of this user has started it, and may have died.
    MayContinue(String),
}

impl<'a> Skip<'a> {
    /// The skip of a node of a roll with this record. `is_run`: a program runs the roll now, and terminates its command.
    pub fn of(node: &'a str, roll: &Roll, record: &RollRecord, is_run: bool) -> Self {
        let effect = match roll.node(node) {
            None => Effect::Absent,
            Some(found) if is_untouched(found) => Effect::Planned,
            Some(found) if found.is_in_service() => Effect::InService,
            Some(found) => returned(found, roll, record, is_run),
        };
        Self { node, effect }
    }

    /// What it means for the node; empty if nothing changes for it.
    fn consequence(&self) -> &'static str {
        match self.effect {
            Effect::Absent | Effect::InService => "",
            Effect::Planned => ", which stays in service",
            Effect::Returns | Effect::TerminatesCommand | Effect::DeletesJob | Effect::MayContinue(_) => {
                ", which returns it to service as it is"
            }
        }
    }

    /// Whether it terminates a command or deletes a Job, or leaves a command behind.
    pub fn interrupts(&self) -> bool {
        matches!(self.effect, Effect::TerminatesCommand | Effect::DeletesJob | Effect::MayContinue(_))
    }

    /// The sentence for the user.
    pub fn line(&self) -> Line {
        let node = self.node;
        let words = match &self.effect {
            Effect::Absent => String::from("stops the wait for the node, which does not exist"),
            Effect::Planned => String::from("deletes the planned maintenance; the node stays in service"),
            Effect::InService => String::from("stops the checks of the node, which is back in service"),
            Effect::Returns => String::from("returns the node to service now"),
            // Its pod may not have started.
            Effect::DeletesJob => {
                String::from("deletes the Job, which may be running, and returns the node to service now")
            }
            Effect::TerminatesCommand => {
                String::from("terminates the command, which is running, and returns the node to service now")
            }
            Effect::MayContinue(who) => {
                format!("returns the node to service now; the command that {who} has started may continue")
            }
        };
        let warning = if self.interrupts() { "warning: " } else { "" };
        Line::new(format!("{warning}--skip {node} {words}"))
    }
}

/// Whether the maintenance of a node has not started, not even before its turn in the roll.
pub fn is_untouched(node: &RollNode) -> bool {
    node.record.step == Step::Planned && !status(&node.object).has_begun()
}

/// Whether a node can be skipped: the roll is not done with it, even if it does not exist now.
pub fn can_skip(node: &str, roll: &Roll, record: &RollRecord) -> bool {
    is_absent(node, &record.absent)
        || (roll.node(node).is_some() && !record.released.iter().any(|released| released == node))
}

/// What a skip means for a node, after an offer to continue without it; none if the node cannot be skipped.
pub fn consequence(node: &str, roll: &Roll, record: &RollRecord) -> Option<&'static str> {
    // Whether a program runs what is under way there makes no difference.
    can_skip(node, roll, record).then(|| Skip::of(node, roll, record, false).consequence())
}

/// What the skip of a node did that was like this before.
pub fn result(node: &RollNode) -> Line {
    let service = if is_untouched(node) || node.is_in_service() { "stays in" } else { "returns to" };
    Line::new(format!("node/{} is skipped, and {service} service", node.node()))
}

/// The record of a roll once these nodes are skipped.
pub fn skipped(nodes: &[String], roll: &Roll, mut record: RollRecord) -> RollRecord {
    for name in nodes {
        if !record.skipped.contains(name) {
            record.skipped.push(name.clone());
        }
        // Their maintenances end.
        record.gone.note(name, roll.node(name).map_or(0, |node| node.pods().0));
    }
    record.absent.retain(|absent| !nodes.iter().any(|name| name == absent.node()));
    record
}

fn returned(node: &RollNode, roll: &Roll, record: &RollRecord, is_run: bool) -> Effect {
    let action = node.record.current_action();
    if action.is_none_or(|action| action.state != ActionState::Running) {
        return Effect::Returns;
    }
    match (&record.runner, roll.settings.runs_command(node.record.step)) {
        (_, false) => Effect::DeletesJob,
        _ if is_run => Effect::TerminatesCommand,
        (Some(runner), true) => Effect::MayContinue(runner.who.clone()),
        // The program that ran the roll has terminated it.
        (None, true) => Effect::Returns,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;
    use nm_core::testing::objects::requested;
    use serde_json::{Value, json};

    use super::*;
    use crate::decide::{NodeProgress, RollState};
    use crate::record::{DoneNodes, LABEL, NODE, Runner, SETTINGS};
    use crate::view::RollView;

    /// A roll of `n1` at a step, with this command or Job, from which four pods are gone.
    fn roll(step: &str, action: &Value, runs: &Value) -> Roll {
        let settings = json!({"waves": [1], "maxUnavailable": 1, "action": runs, "minReadySeconds": 30,
            "actionTimeoutSeconds": 1, "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
        let node =
            json!({"wave": 0, "position": 0, "step": step, "since": Timestamp::UNIX_EPOCH, "action": action});
        let mut object = requested("n1");
        object.metadata.labels = Some([(LABEL.to_owned(), "r".to_owned())].into());
        let annotations = [(SETTINGS, settings), (NODE, node)];
        object.metadata.annotations =
            Some(annotations.map(|(key, value)| (key.to_owned(), value.to_string())).into());
        object.status =
            serde_json::from_value(json!({"phase": "Running", "podCounts": {"gone": 4}})).unwrap();
        Roll::find("r", &[Arc::new(object)]).unwrap().unwrap()
    }

    /// The sentence about a skip of its node, and whether something is interrupted.
    fn skip(roll: &Roll, is_run: bool, has_runner: bool) -> (String, bool) {
        let (id, who, at) = ("x".into(), "ada@vm".into(), Timestamp::UNIX_EPOCH);
        let runner = has_runner.then_some(Runner { id, who, at, in_cluster: false, node: None });
        let record = RollRecord { runner, ..RollRecord::default() };
        let skip = Skip::of("n1", roll, &record, is_run);
        (skip.line().to_string(), skip.interrupts())
    }

    #[test]
    fn the_pods_that_are_gone_from_a_skipped_node_stay_counted() {
        let roll = roll("Draining", &Value::Null, &Value::Null);
        let record =
            RollRecord { done: DoneNodes { pods: 8, ..DoneNodes::default() }, ..RollRecord::default() };
        let record = skipped(&[String::from("n1")], &roll, record);
        for progress in [progress(&roll), Vec::new()] {
            let (roll, record, progress) = (&roll, &record, progress.as_slice());
            let (state, aborted, now) = (&RollState::Working, None, Timestamp::UNIX_EPOCH);
            let view = RollView { roll, record, progress, state, aborted, is_current: true, now };
            assert_eq!(view.moved_pods(), 12, "{progress:?}");
        }
    }

    fn progress(roll: &Roll) -> Vec<NodeProgress> {
        let of = |node: &RollNode| NodeProgress {
            node: node.node().to_owned(),
            wave: 0,
            position: 0,
            step: node.record.step,
            since: node.record.since,
            detail: String::new(),
            ready_time: None,
            pods: node.pods(),
            by_now: None,
        };
        roll.nodes.iter().map(of).collect()
    }

    #[test]
    fn a_node_that_was_not_cordoned_stays_in_service_when_it_is_skipped() {
        for (step, is_back, expected) in [
            ("Planned", false, "stays in"),
            ("Draining", false, "returns to"),
            ("Recovering", true, "stays in"),
        ] {
            let mut roll = roll(step, &Value::Null, &Value::Null);
            let deleted = is_back.then(|| serde_json::from_value(json!("2026-01-02T03:04:05Z")).unwrap());
            Arc::make_mut(&mut roll.nodes[0].object).metadata.deletion_timestamp = deleted;
            let expected = format!("node/n1 is skipped, and {expected} service");
            assert_eq!(result(&roll.nodes[0]).to_string(), expected, "{step}");
        }
    }

    #[test]
    fn a_skip_names_what_it_terminates_and_that_the_node_returns_now() {
        let running = || json!({"attempt": 1, "state": "running"});
        let done = || json!({"attempt": 1, "state": "succeeded"});
        let (command, job) = (|| json!({"run": "reboot {}"}), || json!({"job": {}}));
        let returns = "--skip n1 returns the node to service now";
        let mut early = roll("Planned", &Value::Null, &command());
        let status = json!({"conditions": [{"type": "Cordoned", "status": "True", "reason": "r", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z"}]});
        Arc::make_mut(&mut early.nodes[0].object).status = serde_json::from_value(status).unwrap();
        assert_eq!(skip(&early, true, true).0, returns, "somebody has started its drain before its turn");
        for (step, action, runs, is_run, has_runner, expected) in [
            (
                "Acting",
                running(),
                command(),
                true,
                true,
                "warning: --skip n1 terminates the command, which is running, and returns the node to service now",
            ),
            (
                "Acting",
                running(),
                job(),
                false,
                true,
                "warning: --skip n1 deletes the Job, which may be running, and returns the node to service now",
            ),
            (
                "Acting",
                running(),
                command(),
                false,
                true,
                "warning: --skip n1 returns the node to service now; the command that ada@vm has started may continue",
            ),
            ("Acting", running(), command(), false, false, returns),
            ("Acting", done(), command(), true, true, returns),
            ("Draining", Value::Null, command(), true, true, returns),
            (
                "Planned",
                Value::Null,
                command(),
                true,
                true,
                "--skip n1 deletes the planned maintenance; the node stays in service",
            ),
        ] {
            let (line, interrupts) = skip(&roll(step, &action, &runs), is_run, has_runner);
            assert_eq!((line.as_str(), interrupts), (expected, expected.starts_with("warning")), "{step}");
        }
    }
}
