//! The lines that a command prints while it watches maintenances.
//!
//! `start --wait` and `stop --wait` report the progress towards a goal; `watch` prints a log. Nothing here does I/O other
//! than printing, so that tests play whole waits.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use jiff::Timestamp;
use nm_shared::{NodeMaintenance, Phase};

use crate::args::duration;
use crate::client::watch_stream::{WatchChange, WatchUpdate};
use crate::error::Error;
use crate::error::exit::Exit;
use crate::leader::changes::LeaderNeed;
use crate::maintenance::change_lines::{LineDetail, lines};
use crate::maintenance::changes::MaintenanceChange;
use crate::maintenance::roll::{Halt, Pause, RollRunners, abandoned_line, halted_line, paused_line};
use crate::maintenance::{State, drain_result, headline, node, status, uid};
use crate::terminal::output::Output;
use crate::terminal::text::{Line, Style, counted};
use crate::watch::deleted_nodes::DeletedNodes;
use crate::watch::event_loop::LoopEvent;
use crate::watch::exit_summary::{explain_hint, resume_hints, states, tally, whole_seconds};
use crate::watch::goal_tracker::{ExitCondition, Goal, GoalTracker, TargetOutcome, WaitTarget};
use crate::watch::stall::{slow_surge, stall_reason};

/// With more nodes than this, a sign of life counts them.
const MAX_SINGLE_NODES: usize = 3;

/// Which lines are printed, and where.
#[derive(Clone, Copy)]
pub enum ReportMode<'a> {
    /// As a log on stdout: lines with the time of this clock.
    Log(&'a dyn Fn() -> Timestamp),
    /// As progress on stderr; only reached goals go to stdout.
    Progress,
}

/// Prints lines about what a [`GoalTracker`] watches, until the watch is over.
pub struct WaitReporter<'a> {
    out: &'a mut Output,
    mode: ReportMode<'a>,
    tracker: GoalTracker,
    /// The connection flags for the commands in hints, each with a space before it.
    flags: &'a str,
    /// Since when the connection is lost, if it is.
    lost: Option<Timestamp>,
    /// Whether a line was printed since the last heartbeat.
    is_active: bool,
    /// What becomes of nodes whose maintenance ends, as far as that is known.
    endings: BTreeMap<String, String>,
    /// The rolls of the watched nodes that have halted, as they were reported.
    halts: BTreeMap<String, Halt>,
    /// The rolls of the watched nodes that are paused, as they were reported.
    pauses: BTreeMap<String, Option<Pause>>,
    /// The rolls of the watched nodes that wait for a window, and why, as they were reported.
    closed_windows: BTreeMap<String, String>,
    /// The rolls of the watched nodes that nobody runs, as they were reported.
    abandoned: BTreeSet<String>,
    /// Of the rolls that seemed to be so when that was last looked at, the last sign of the program.
    silent: BTreeMap<String, Timestamp>,
    /// The maintenances whose nodes were deleted, where that is known.
    deleted_nodes: Option<&'a DeletedNodes>,
    /// Whether the command that explains blocked nodes was named.
    has_hinted: bool,
}

impl<'a> WaitReporter<'a> {
    /// Prints to `out`. `flags` are the connection flags for hints, each with a leading blank.
    pub fn new(out: &'a mut Output, mode: ReportMode<'a>, tracker: GoalTracker, flags: &'a str) -> Self {
        Self {
            out,
            mode,
            tracker,
            flags,
            lost: None,
            is_active: false,
            endings: BTreeMap::new(),
            halts: BTreeMap::new(),
            pauses: BTreeMap::new(),
            closed_windows: BTreeMap::new(),
            abandoned: BTreeSet::new(),
            silent: BTreeMap::new(),
            deleted_nodes: None,
            has_hinted: false,
        }
    }

    /// Reports this of the nodes whose maintenance has ended.
    #[must_use]
    pub fn with_endings(self, endings: BTreeMap<String, String>) -> Self {
        Self { endings, ..self }
    }

    /// Reports of maintenances that their nodes were deleted.
    #[must_use]
    pub fn with_deleted_nodes(self, deleted_nodes: &'a DeletedNodes) -> Self {
        Self { deleted_nodes: Some(deleted_nodes), ..self }
    }

    /// What is watched.
    pub fn tracker(&self) -> &GoalTracker {
        &self.tracker
    }

    /// What has been watched.
    pub fn into_tracker(self) -> GoalTracker {
        self.tracker
    }

    fn has_lost_node(&self, uid: &str) -> bool {
        self.deleted_nodes.is_some_and(|deleted| deleted.has_uid(uid))
    }

    /// What the maintenances need a leader for.
    pub fn leader_need(&self) -> LeaderNeed {
        self.tracker.leader_need()
    }

    /// Reports an event. Breaks with the exit code when the watch is over.
    ///
    /// # Errors
    ///
    /// If stdout cannot be written, or if [`GoalTracker::apply`] fails.
    pub fn react(&mut self, event: LoopEvent) -> Result<ControlFlow<Exit>, Error> {
        match event {
            LoopEvent::Watch(WatchUpdate::Change(change)) => return self.report_update(&change),
            LoopEvent::Watch(WatchUpdate::Lost { since, error }) if self.lost.is_none() => {
                self.lost = Some(since);
                let lost = Line::default().with(Style::Bad, "connection lost");
                self.message(lost.and(format!(": {error}; retrying")));
            }
            LoopEvent::Watch(WatchUpdate::Live) if self.lost.is_some() => {
                self.lost = None;
                self.message(Line::default().with(Style::Good, "reconnected"));
            }
            LoopEvent::Heartbeat => self.report_heartbeat()?,
            LoopEvent::Leader(change) => self.message(change.line()),
            LoopEvent::Outage(change) => {
                self.is_active = true;
                self.line_of(&change.node, change.line())?;
            }
            LoopEvent::Warning(text) => self.message(Line::new(format!("warning: {text}"))),
            LoopEvent::Watch(WatchUpdate::Live | WatchUpdate::Lost { .. }) => {}
            LoopEvent::TimedOut(after) => {
                let exit = Exit::TimedOut;
                self.report_end(&format!("timed out after {}", duration::show(after)), exit);
                return Ok(ControlFlow::Break(exit));
            }
            LoopEvent::Interrupted => {
                if self.tracker.exit_condition() != ExitCondition::Never {
                    self.report_end("interrupted", Exit::Interrupted);
                }
                return Ok(ControlFlow::Break(Exit::Interrupted));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Prints a line on stderr, in a log with the time.
    fn message(&mut self, line: Line) {
        let line = match self.mode {
            ReportMode::Log(now) => timestamp(now()).and(" ").join(line),
            ReportMode::Progress => line,
        };
        self.out.message(&line);
    }

    /// Prints a line of the log, or of the progress.
    fn line(&mut self, line: Line) -> Result<(), Error> {
        match self.mode {
            ReportMode::Log(now) => self.out.data_with_commands(&timestamp(now()).and(" ").join(line))?,
            ReportMode::Progress => self.out.message(&line),
        }
        Ok(())
    }

    /// Prints a line about a node.
    fn line_of(&mut self, node: &str, line: Line) -> Result<(), Error> {
        self.line(match self.mode {
            ReportMode::Log(_) => Line::new(format!("{node} ")).join(line),
            ReportMode::Progress => Line::new(format!("node/{node}: ")).join(line),
        })
    }

    fn report_update(&mut self, change: &WatchChange<NodeMaintenance>) -> Result<ControlFlow<Exit>, Error> {
        let update = self.tracker.apply(change)?;
        // When a maintenance is stopped, the state of its drain no longer matters.
        let is_irrelevant = update.is_first_list && self.ends_maintenances();
        // The line about a reached goal has everything.
        let is_reached = |change: &&MaintenanceChange| {
            let uid = uid(change.object());
            let is_target = |(target, outcome): &(WaitTarget, TargetOutcome)| {
                target.uid == uid && *outcome == TargetOutcome::Reached
            };
            matches!(self.mode, ReportMode::Progress) && update.settled.iter().any(is_target)
        };
        let shown: Vec<_> =
            update.changes.iter().filter(|change| !is_irrelevant && !is_reached(change)).collect();
        for change in shown {
            self.report_change(change)?;
        }
        self.report_rolls()?;
        if update.is_first_list {
            self.report_missing();
        }
        match update.exit {
            Some(exit) => {
                self.report_settled(&update.settled, true)?;
                self.hint_at_end(exit);
                Ok(ControlFlow::Break(exit))
            }
            None => self.report_settled(&update.settled, true).map(ControlFlow::Continue),
        }
    }

    /// Reports the outcomes of targets at the end of a watch that has shown the results of their drains, and after a failure
    /// which maintenances continue. Returns the exit code.
    ///
    /// # Errors
    ///
    /// If stdout cannot be written.
    pub fn conclude(&mut self, settled: &[(WaitTarget, TargetOutcome)], exit: Exit) -> Result<Exit, Error> {
        self.report_settled(settled, false)?;
        self.hint_at_end(exit);
        Ok(exit)
    }

    fn hint_at_end(&mut self, exit: Exit) {
        if matches!(exit, Exit::Failed | Exit::Lost | Exit::TimedOut) {
            self.print_resume_hints(exit);
        }
    }

    fn report_change(&mut self, change: &MaintenanceChange) -> Result<(), Error> {
        // The command itself has just created it. If it stays so, the heartbeat says why.
        let is_own = |now: &NodeMaintenance| {
            matches!(self.mode, ReportMode::Progress) && State::of(now) == State::Requested
        };
        if let MaintenanceChange::Updated { before: None, now } = change
            && is_own(now)
        {
            return Ok(());
        }
        let detail = if self.out.is_verbose() { LineDetail::Pods } else { LineDetail::Nodes };
        for line in lines(change, detail, self.has_lost_node(&uid(change.object()))) {
            self.is_active = true;
            self.line_of(change.node(), line)?;
        }
        Ok(())
    }

    /// Reports each roll of the watched nodes that has halted, or was paused, since the last change. Whoever stops a maintenance
    /// does not wait for its roll.
    fn report_rolls(&mut self) -> Result<(), Error> {
        let cache = self.tracker.cache();
        if self.ends_maintenances() || !cache.is_complete() {
            return Ok(());
        }
        let rolls = RollRunners::of(cache.all().map(AsRef::as_ref));
        let (halts, pauses) = (rolls.halts_of(cache.objects()), rolls.pauses_of(cache.objects()));
        let new_halts = halts.iter().filter(|(roll, halt)| self.halts.get(**roll) != Some(*halt));
        let mut lines: Vec<Line> =
            new_halts.map(|(roll, halt)| halted_line(roll, halt, self.flags)).collect();
        let is_known = |roll: &str, pause: Option<&Pause>| {
            self.pauses.get(roll).is_some_and(|known| known.as_ref() == pause)
        };
        let new_pauses = pauses.iter().filter(|(roll, pause)| !is_known(roll, **pause));
        lines.extend(new_pauses.map(|(roll, pause)| paused_line(roll, *pause, self.flags)));
        self.is_active |= !lines.is_empty();
        for line in lines {
            self.line(line)?;
        }
        self.halts = halts.into_iter().map(|(roll, halt)| (roll.to_owned(), halt.clone())).collect();
        self.pauses = pauses.into_iter().map(|(roll, pause)| (roll.to_owned(), pause.cloned())).collect();
        self.report_windows(&rolls)
    }

    /// Reports each roll that starts no watched node until a window opens. Nothing changes in the cluster when one closes. The
    /// program that runs a roll may seem to be silent in between: the clock of its computer may differ.
    fn report_windows(&mut self, rolls: &RollRunners) -> Result<(), Error> {
        let now = match self.mode {
            ReportMode::Log(now) => now(),
            ReportMode::Progress => Timestamp::now(),
        };
        let objects = self.tracker.cache().objects();
        let planned = objects.filter(|object| State::of(object) == State::Planned);
        let closed = rolls.closed_windows_of(planned, now);
        let new = closed.iter().filter(|(roll, why)| self.closed_windows.get(*roll) != Some(*why));
        let line = |(roll, why)| Line::new(format!("roll {roll} starts no node now: {why}"));
        let lines: Vec<Line> = new.map(line).collect();
        self.closed_windows.retain(|roll, _| rolls.shut_window(roll, now).is_some());
        self.closed_windows.extend(closed);
        lines.into_iter().try_for_each(|line| self.line(line))
    }

    /// Whether the command has stopped what it waits for. Nobody then waits for rolls.
    fn ends_maintenances(&self) -> bool {
        matches!(self.mode, ReportMode::Progress) && self.tracker.goal() == Some(Goal::Stopped)
    }

    /// Reports each roll of the watched nodes that nobody runs any more, or that somebody runs again. Nothing changes in the
    /// cluster when a program stops. The clock of its computer may differ, and what is cached may be old after this one has slept: a
    /// program is silent if it gives no other sign until the next time.
    fn report_abandoned(&mut self, rolls: &RollRunners, now: Timestamp) -> Result<(), Error> {
        if self.ends_maintenances() {
            return Ok(());
        }
        let seemingly = rolls.abandoned_of(self.tracker.cache().objects(), now);
        let sign = |roll: &str| rolls.last_runner(roll).map(|runner| runner.at);
        let is_certain = |roll: &&str| sign(roll).is_none_or(|at| self.silent.get(*roll) == Some(&at));
        let abandoned: BTreeSet<String> =
            seemingly.iter().copied().filter(is_certain).map(str::to_owned).collect();
        let silent = seemingly.iter().filter_map(|roll| Some(((*roll).to_owned(), sign(roll)?))).collect();
        let mut lines: Vec<Line> =
            abandoned.difference(&self.abandoned).map(|roll| abandoned_line(roll, self.flags)).collect();
        let resumed = self.abandoned.difference(&abandoned).filter_map(|roll| {
            let runner = rolls.last_runner(roll).filter(|_| rolls.is_run(roll, now))?;
            Some(Line::new(format!("{} runs roll {roll}", runner.who)))
        });
        lines.extend(resumed);
        (self.abandoned, self.silent) = (abandoned, silent);
        lines.into_iter().try_for_each(|line| self.line(line))
    }

    fn report_missing(&mut self) {
        if matches!(self.mode, ReportMode::Progress) {
            return;
        }
        for name in self.tracker.nodes_without_maintenance() {
            self.out.message(&Line::new(format!("node/{name} is not in maintenance")));
        }
        if self.tracker.nodes().is_empty() && self.tracker.cache().objects().next().is_none() {
            self.out.message(&Line::new("No maintenances found."));
        }
    }

    /// Reports the outcomes of targets, those that have reached the goal with the result of their drain, or with what becomes
    /// of their node.
    fn report_settled(
        &mut self,
        settled: &[(WaitTarget, TargetOutcome)],
        with_result: bool,
    ) -> Result<(), Error> {
        let reached = match self.tracker.goal() {
            Some(Goal::Stopped) => "maintenance stopped",
            Some(Goal::Drained) | None => "drained",
        };
        for (WaitTarget { node, uid, .. }, outcome) in settled {
            let problem = match outcome {
                TargetOutcome::Reached => {
                    let result = match self.tracker.goal() {
                        Some(Goal::Stopped) if self.has_lost_node(uid) => {
                            Some(String::from("the node was deleted"))
                        }
                        Some(Goal::Stopped) => self.endings.get(node).cloned(),
                        _ => self.tracker.cache().get(uid).and_then(|object| drain_result(object)),
                    };
                    let result = result.filter(|_| with_result).map(|result| format!(": {result}"));
                    if matches!(self.mode, ReportMode::Progress) {
                        let line = Line::new(format!("node/{node} ")).with(Style::Good, reached);
                        self.out.data(&line.and(result.unwrap_or_default()))?;
                        self.is_active = true;
                    }
                    continue;
                }
                TargetOutcome::Failed(error) if error.is_empty() => String::from("the maintenance failed"),
                TargetOutcome::Failed(error) => format!("the maintenance failed: {error}"),
                TargetOutcome::Deleted if self.has_lost_node(uid) => {
                    String::from("the node was deleted before it was drained, and its maintenance with it")
                }
                // Who deletes an object is in no object.
                TargetOutcome::Deleted => {
                    let object = self.tracker.cache().get(uid);
                    let at = object.and_then(|object| object.metadata.deletion_timestamp.as_ref());
                    let at = at.map(|at| format!(" at {},", at.0)).unwrap_or_default();
                    // Of one that was being stopped when the watch began.
                    let was_drained = object.is_some_and(|object| {
                        let status = status(object);
                        status.phase == Some(Phase::Succeeded) || status.first_drained_at().is_some()
                    });
                    let when = if was_drained { "after" } else { "before" };
                    format!("the maintenance was stopped{at} {when} the node was drained")
                }
                TargetOutcome::Replaced => {
                    String::from("the maintenance was stopped, and another one was started")
                }
            };
            self.out.message(&Line::new(format!("node/{node}: ")).with(Style::Bad, problem));
        }
        Ok(())
    }

    /// Reports the progress if no line was printed for a while, and the targets that nothing seems to work on.
    fn report_heartbeat(&mut self) -> Result<(), Error> {
        let was_active = std::mem::take(&mut self.is_active);
        match self.mode {
            _ if was_active => {}
            ReportMode::Log(now) => {
                let summary = if self.lost.is_some() {
                    Line::new("no connection")
                } else {
                    tally(self.tracker.cache().objects())
                };
                self.out.data(&timestamp(now()).and(" - ").join(summary))?;
            }
            ReportMode::Progress => self.report_progress(),
        }
        if self.lost.is_some() || !self.tracker.cache().is_complete() {
            return Ok(());
        }
        let now = Timestamp::now();
        let rolls = RollRunners::of(self.tracker.cache().all().map(AsRef::as_ref));
        self.report_abandoned(&rolls, now)?;
        self.report_windows(&rolls)?;
        let goal = self.tracker.goal();
        let reason = |object: &NodeMaintenance| {
            let reason = match goal {
                Some(goal) => stall_reason(object, goal, &rolls, self.flags, now),
                None => slow_surge(object, self.flags, now),
            };
            Some(Line::new(format!("node/{}: {}", node(object), reason?)))
        };
        let mut lines: Vec<Line> = match goal {
            Some(_) => self.tracker.awaited().into_iter().filter_map(reason).collect(),
            None => self.tracker.cache().objects().filter_map(reason).collect(),
        };
        if goal.is_none() && lines.len() > MAX_SINGLE_NODES {
            let nodes = counted(lines.len(), "node");
            let explain = format!("`kubectl nm explain{}`", self.flags);
            lines = vec![Line::new(format!("the surges of {nodes} take long; {explain} shows why"))];
        }
        lines.into_iter().try_for_each(|line| self.line(line))
    }

    /// Reports how far the drains are that are waited for.
    fn report_progress(&mut self) {
        if self.lost.is_some() || self.tracker.goal() != Some(Goal::Drained) {
            return;
        }
        // What does not advance at all is reported with the reason.
        let works = |object: &&NodeMaintenance| matches!(State::of(object), State::Draining | State::Blocked);
        let working: Vec<&NodeMaintenance> = self.tracker.awaited().into_iter().filter(works).collect();
        let lines: Vec<Line> = if working.len() > MAX_SINGLE_NODES {
            vec![tally(self.tracker.cache().objects())]
        } else {
            let line = |object: &&NodeMaintenance| {
                Line::new(format!("node/{}: ", node(object))).join(headline(object))
            };
            working.iter().map(line).collect()
        };
        let blocked = working.iter().filter(|object| State::of(object) == State::Blocked);
        let hint = explain_hint(blocked.map(|object| node(object)).collect(), self.flags);
        let hint = hint.filter(|_| !self.has_hinted);
        self.has_hinted |= hint.is_some();
        for line in lines.iter().chain(&hint) {
            self.out.message(line);
        }
    }

    fn report_end(&mut self, reason: &str, exit: Exit) {
        self.out.message(&Line::default().with(Style::Bad, reason));
        // Without a goal, the dashboard has printed the states of all nodes.
        let is_summed_up = matches!(self.mode, ReportMode::Progress) && self.tracker.goal().is_none();
        let mut open = if is_summed_up { Vec::new() } else { self.tracker.awaited() };
        open.sort_by_key(|object| node(object));
        for line in states(&open) {
            self.out.message(&line);
        }
        self.print_resume_hints(exit);
    }

    fn print_resume_hints(&mut self, exit: Exit) {
        for line in resume_hints(&self.tracker, exit == Exit::TimedOut, self.flags) {
            self.out.message(&line);
        }
    }
}

/// The time in whole seconds, dimmed.
pub fn timestamp(now: Timestamp) -> Line {
    Line::default().with(Style::Dim, whole_seconds(now).to_string())
}

#[cfg(test)]
#[path = "wait_reporter_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "wait_reporter_log_tests.rs"]
mod log_tests;
