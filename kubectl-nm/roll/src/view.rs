//! A roll as people see it on the dashboard, in lines and in JSON, and what they can do meanwhile.

use futures::future::LocalBoxFuture;
use jiff::{SignedDuration, Timestamp};
use nm_core::error::Error;

use crate::absence::Departure;
use crate::command::NodeOutputLine;
use crate::decide::{NodeProgress, RollState};
use crate::gates::ReadyTime;
use crate::record::{Roll, RollRecord, Step};
use crate::working_time;

/// When the roll will probably end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// None while a node takes longer than those.
    pub(crate) end: Option<Timestamp>,
    /// How many nodes that are done it is based on.
    pub(crate) nodes: usize,
    /// Their average time.
    pub(crate) average: SignedDuration,
}

/// A roll at a time, for a [`RollReporter`].
#[derive(Clone, Debug)]
pub struct RollView<'a> {
    /// The roll as its maintenances describe it.
    pub roll: &'a Roll,
    /// The newest known record.
    pub record: &'a RollRecord,
    /// The nodes that are not done, in the order of the roll.
    pub progress: &'a [NodeProgress],
    /// State of the roll as a whole.
    pub state: &'a RollState,
    /// Who has aborted the roll; none if nobody has.
    pub aborted: Option<&'a str>,
    /// Whether the maintenances and nodes are up to date, as far as is known.
    pub is_current: bool,
    /// The time of the view.
    pub now: Timestamp,
}

/// What the user of the dashboard or of the lines requests while the roll runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RollInput {
    /// Whether the roll continues with the node that [`RollReporter::ask`] asked about.
    Answer(bool),
    /// Pause the roll, or let it continue.
    Pause(bool),
    /// End the program, and leave the roll as it is.
    Leave,
}

/// Shows a roll while it runs.
pub trait RollReporter {
    /// Shows the roll after each decision, whether or not it has changed.
    ///
    /// # Errors
    ///
    /// If the output cannot be written.
    fn show(&mut self, view: &RollView) -> Result<(), Error>;

    /// Shows a line that the command or the Job of a node printed.
    ///
    /// # Errors
    ///
    /// If the output cannot be written.
    fn output(&mut self, line: &NodeOutputLine) -> Result<(), Error>;

    /// Asks whether the roll continues with a drained node.
    ///
    /// # Errors
    ///
    /// If the question cannot be shown.
    fn ask(&mut self, node: &str) -> Result<(), Error>;

    /// Shows that an input could not be carried out.
    fn show_error(&mut self, error: &Error);

    /// The next input. The future may be dropped and asked for again at any time, and no input is lost.
    fn next_input(&mut self) -> LocalBoxFuture<'_, Result<RollInput, Error>>;
}

impl RollView<'_> {
    /// Why a node is no longer part of the roll although it is not done.
    pub fn departure(&self, node: &str) -> String {
        match self.aborted {
            _ if self.record.skipped.iter().any(|skipped| skipped == node) => String::from("skipped"),
            Some(who) => format!("{who} aborted the roll"),
            None => Departure::MaintenanceDeleted.words().to_owned(),
        }
    }

    /// Pods that are gone from the nodes so far, including those that were skipped or have left the roll.
    pub fn moved_pods(&self) -> i64 {
        let RollRecord { done, gone, .. } = self.record;
        let shown = self.progress.iter().map(|node| (node.node.as_str(), node.pods.0));
        done.pods.saturating_add(gone.total(shown))
    }

    /// The end, if every node takes as long as those that are done on average, or as the slowest of them once it takes longer, and no
    /// window closes before; unknown while one takes longer than each of them did. A node that has yet to stay Ready takes that time
    /// at least. None before the first is done, and none if the roll does not go on to its last node: it was
    /// aborted, has halted or is over, or no window is as long as the slowest node took.
    pub fn estimate(&self) -> Option<Estimate> {
        let goes_on = matches!(self.state, RollState::Working | RollState::Waiting(_));
        // Nobody knows when a node returns that does not exist.
        let waits_for_node = !self.record.absent.is_empty();
        if !goes_on || waits_for_node || self.aborted.is_some() || self.record.halt.is_some() {
            return None;
        }
        let done = &self.record.done;
        let nodes = i64::try_from(done.nodes).ok().filter(|nodes| *nodes > 0)?;
        let average = SignedDuration::from_secs(done.seconds / nodes);
        // The whole time of the node was outside the roll: in a pause, for example.
        if average.is_zero() {
            return None;
        }
        let slowest = average.max(SignedDuration::from_secs(done.slowest_seconds));
        let settings = &self.roll.settings;
        let are_planned = self.progress.iter().any(|node| node.step == Step::Planned);
        if are_planned
            && !settings.windows.open_for(SignedDuration::from_secs(done.slowest_seconds), self.now)
        {
            return None;
        }
        let worked = working_time::until(self.now, self.record, false);
        let (mut rest, mut is_overdue) = (SignedDuration::ZERO, false);
        for wave in 0..settings.waves.len() {
            let of_wave = || self.progress.iter().filter(|node| node.wave == wave);
            let planned = of_wave().filter(|node| node.step == Step::Planned).count();
            let rounds = planned.div_ceil(settings.max_unavailable.max(1));
            let rounds = i32::try_from(rounds).unwrap_or(i32::MAX);
            rest = rest.saturating_add(average.saturating_mul(rounds));
            let under_way = of_wave().filter(|node| node.step != Step::Planned);
            let left = under_way.map(|node| {
                let took = self.worked_on(node, worked);
                is_overdue |= took > slowest;
                let expected = if took > average { slowest } else { average };
                expected.saturating_sub(took).max(self.ready_time_left(node))
            });
            rest = rest.saturating_add(left.max().unwrap_or_default());
        }
        let end = self.now.checked_add(rest).ok()?;
        Some(Estimate { end: Some(end).filter(|_| !is_overdue), nodes: done.nodes, average })
    }

    /// For how long a node has to stay Ready yet.
    fn ready_time_left(&self, progress: &NodeProgress) -> SignedDuration {
        let whole = ReadyTime { since: self.now, wanted: self.roll.settings.min_ready_seconds };
        let time = match progress.step {
            Step::Preparing | Step::Draining | Step::Confirming | Step::Acting | Step::Rejoining => whole,
            Step::Checking => progress.ready_time.unwrap_or(whole),
            _ => return SignedDuration::ZERO,
        };
        time.left(self.now)
    }

    /// How much of the working time of the roll, in milliseconds, is since the begin of a node. If that is not recorded, the time
    /// of its step.
    fn worked_on(&self, progress: &NodeProgress, worked_millis: i64) -> SignedDuration {
        let mut nodes = self.roll.nodes.iter();
        let begun = nodes.find(|node| node.node() == progress.node && node.record.began.is_some());
        begun.map_or_else(
            || self.now.duration_since(progress.since),
            |node| SignedDuration::from_millis(worked_millis.saturating_sub(node.record.began_millis)),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::absence::AbsentNode;
    use crate::record::{DoneNodes, Halt, LABEL, NODE, SETTINGS};
    use crate::report::estimate_text;

    #[test]
    fn the_time_of_a_node_under_way_does_not_pass_in_a_pause() {
        let settings = json!({"waves": [2], "maxUnavailable": 1, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
            "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
        let now = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1);
        let node = json!({"wave": 0, "position": 0, "step": "Draining", "since": Timestamp::UNIX_EPOCH,
            "began": Timestamp::UNIX_EPOCH, "beganMillis": 60_000});
        let mut object = nm_core::testing::objects::requested("n2");
        object.metadata.labels = Some([(LABEL.to_owned(), "r".to_owned())].into());
        let annotations = [(SETTINGS.to_owned(), settings.to_string()), (NODE.to_owned(), node.to_string())];
        object.metadata.annotations = Some(annotations.into());
        let roll = Roll::find("r", &[Arc::new(object)]).unwrap().unwrap();
        let done = DoneNodes { nodes: 1, seconds: 60, ..DoneNodes::default() };
        let record = RollRecord { done, paused: true, worked_millis: 80_000, ..RollRecord::default() };
        let progress = [NodeProgress {
            node: "n2".into(),
            wave: 0,
            position: 0,
            step: Step::Draining,
            since: Timestamp::UNIX_EPOCH,
            detail: String::new(),
            ready_time: None,
            pods: (0, 0),
            by_now: None,
        }];
        let (state, aborted, is_current) = (&RollState::Working, None, true);
        let view =
            RollView { roll: &roll, record: &record, progress: &progress, state, aborted, is_current, now };
        assert_eq!(view.estimate().unwrap().end, Some(now + SignedDuration::from_secs(40)));
        let late = RollRecord { worked_millis: 121_000, ..record.clone() };
        let estimate = RollView { record: &late, ..view }.estimate().unwrap();
        assert_eq!(estimate.end, None, "nothing is known of a node that takes longer than the others");
        assert_eq!(estimate_text(&estimate, now), "longer than before: 1 node took 1m");
        let done = DoneNodes { slowest_seconds: 90, ..late.done.clone() };
        let late = RollRecord { done, ..late };
        let estimate = RollView { record: &late, ..view }.estimate().unwrap();
        assert_eq!(
            estimate.end,
            Some(now + SignedDuration::from_secs(30)),
            "the slowest took 90 s, and it 61 s"
        );
        let almost = RollRecord { worked_millis: 149_000, ..late.clone() };
        let estimate = RollView { record: &almost, ..view }.estimate().unwrap();
        assert_eq!(estimate.end, Some(now + SignedDuration::from_secs(30)), "it has to stay Ready for 30 s");
        let mut checked = progress.clone();
        checked[0].step = Step::Returning;
        let estimate = RollView { record: &almost, progress: &checked, ..view }.estimate().unwrap();
        assert_eq!(estimate.end, Some(now + SignedDuration::from_secs(1)));
    }

    #[test]
    fn no_end_is_estimated_of_a_roll_that_starts_no_other_node_because_its_windows_are_too_short() {
        for (slowest_seconds, step, is_estimated) in
            [(3600, Step::Planned, true), (3601, Step::Planned, false), (3601, Step::Draining, true)]
        {
            let settings = json!({"waves": [2], "maxUnavailable": 1, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
                "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1, "windows": ["13:00-14:00 UTC"]});
            let settings = serde_json::from_value(settings).unwrap();
            let roll = Roll { name: "r".into(), settings, nodes: Vec::new(), record: None };
            let done =
                DoneNodes { nodes: 1, seconds: slowest_seconds, slowest_seconds, ..DoneNodes::default() };
            let progress = NodeProgress {
                node: "n2".into(),
                wave: 0,
                position: 1,
                step,
                since: Timestamp::UNIX_EPOCH,
                detail: String::new(),
                ready_time: None,
                pods: (0, 0),
                by_now: None,
            };
            let (record, state) = (RollRecord { done, ..RollRecord::default() }, RollState::Working);
            let view = RollView {
                roll: &roll,
                record: &record,
                progress: &[progress],
                state: &state,
                aborted: None,
                is_current: true,
                now: Timestamp::UNIX_EPOCH,
            };
            assert_eq!(view.estimate().is_some(), is_estimated, "{slowest_seconds} {step:?}");
        }
    }

    #[test]
    fn the_end_is_estimated_only_while_the_roll_goes_on_to_its_last_node() {
        let settings = json!({"waves": [3], "maxUnavailable": 1, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
            "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
        let settings = serde_json::from_value(settings).unwrap();
        let roll = Roll { name: "r".into(), settings, nodes: Vec::new(), record: None };
        let done = DoneNodes { nodes: 1, seconds: 60, ..DoneNodes::default() };
        let goes_on = RollRecord { done, ..RollRecord::default() };
        let now = Timestamp::UNIX_EPOCH;
        let halt = Halt { node: "n2".into(), message: "failed".into(), at: now, cause: None };
        let halted = RollRecord { halt: Some(halt.clone()), ..goes_on.clone() };
        let absent = vec![AbsentNode::of(&nm_core::testing::objects::requested("n2"), &[])];
        let waits = RollRecord { absent, ..goes_on.clone() };
        for (record, state, aborted, is_estimated) in [
            (&goes_on, RollState::Working, None, true),
            (&goes_on, RollState::Waiting("paused".into()), None, true),
            (&waits, RollState::Working, None, false),
            (&goes_on, RollState::Working, Some("ada@laptop"), false),
            (&goes_on, RollState::Aborted("ada@laptop".into()), None, false),
            (&halted, RollState::Working, None, false),
            (&goes_on, RollState::Halted(halt), None, false),
            (&goes_on, RollState::Done, None, false),
        ] {
            let view = RollView {
                roll: &roll,
                record,
                progress: &[],
                state: &state,
                aborted,
                is_current: true,
                now,
            };
            assert_eq!(view.estimate().is_some(), is_estimated, "{state:?} {aborted:?}");
        }
    }
}
