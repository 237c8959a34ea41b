//! The lines that a command prints while it watches maintenances.
//!
//! `start --wait` and `stop --wait` report the progress towards a goal; `watch` prints a log. Nothing here does I/O other
//! than printing, so that tests play whole waits.

use std::ops::ControlFlow;

use jiff::Timestamp;
use nm_shared::NodeMaintenance;
use nm_shared::api::names::FINALIZER;

use crate::args::duration;
use crate::client::watch_stream::{WatchChange, WatchUpdate};
use crate::error::Error;
use crate::error::exit::Exit;
use crate::maintenance::changes::MaintenanceChange;
use crate::maintenance::{Reconcilers, State, headline, node, stop_progress};
use crate::terminal::output::Output;
use crate::terminal::text::{Line, Style};
use crate::watch::event_loop::LoopEvent;
use crate::watch::exit_summary::{resume_hints, tally, whole_seconds};
use crate::watch::goal_tracker::{Goal, GoalTracker, TargetOutcome, WaitTarget};

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
    reconcilers: Reconcilers,
}

impl<'a> WaitReporter<'a> {
    /// Prints to `out`. `flags` are the connection flags for hints, each with a leading blank.
    pub fn new(out: &'a mut Output, mode: ReportMode<'a>, tracker: GoalTracker, flags: &'a str) -> Self {
        Self { out, mode, tracker, flags, lost: None, is_active: false, reconcilers: Reconcilers::default() }
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
            LoopEvent::Reconcilers(found) => self.reconcilers = found,
            LoopEvent::Warning(text) => self.message(Line::new(format!("warning: {text}"))),
            LoopEvent::Watch(WatchUpdate::Live | WatchUpdate::Lost { .. }) => {}
            LoopEvent::TimedOut(after) => {
                let exit = Exit::TimedOut;
                self.report_end(&format!("timed out after {}", duration::show(after)), exit);
                return Ok(ControlFlow::Break(exit));
            }
            LoopEvent::Interrupted => {
                if self.tracker.goal().is_some() {
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

    fn report_update(&mut self, change: &WatchChange<NodeMaintenance>) -> Result<ControlFlow<Exit>, Error> {
        let update = self.tracker.apply(change)?;
        // When a maintenance is stopped, the state of its drain no longer matters.
        let is_irrelevant = update.is_first_list
            && matches!(self.mode, ReportMode::Progress)
            && self.tracker.goal() == Some(Goal::Stopped);
        for change in update.changes.iter().filter(|_| !is_irrelevant) {
            self.report_change(change)?;
        }
        if update.is_first_list {
            self.report_missing();
        }
        match update.exit {
            Some(exit) => self.conclude(&update.settled, exit).map(ControlFlow::Break),
            None => self.report_settled(&update.settled).map(ControlFlow::Continue),
        }
    }

    /// Reports the outcomes of targets at the end of the watch, and after a failure which maintenances continue.
    /// Returns the exit code.
    ///
    /// # Errors
    ///
    /// If stdout cannot be written.
    pub fn conclude(&mut self, settled: &[(WaitTarget, TargetOutcome)], exit: Exit) -> Result<Exit, Error> {
        self.report_settled(settled)?;
        if matches!(exit, Exit::Failed | Exit::Lost | Exit::TimedOut) {
            self.print_resume_hints(exit);
        }
        Ok(exit)
    }

    fn report_change(&mut self, change: &MaintenanceChange) -> Result<(), Error> {
        // Every maintenance is in this state for a moment. The heartbeat reports one that stays in it.
        let is_brief = matches!(self.mode, ReportMode::Progress) && change.is_requested();
        for line in change.lines().into_iter().skip(usize::from(is_brief)) {
            self.is_active = true;
            match self.mode {
                ReportMode::Log(now) => {
                    self.out.data(&timestamp(now()).and(format!(" {} ", change.node())).join(line))?;
                }
                ReportMode::Progress => {
                    self.out.message(&Line::new(format!("node/{}: ", change.node())).join(line));
                }
            }
        }
        Ok(())
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

    fn report_settled(&mut self, settled: &[(WaitTarget, TargetOutcome)]) -> Result<(), Error> {
        let reached = match self.tracker.goal() {
            Some(Goal::Stopped) => "maintenance stopped",
            Some(Goal::Drained) | None => "drained",
        };
        for (WaitTarget { node, .. }, outcome) in settled {
            let problem = match outcome {
                TargetOutcome::Reached => {
                    if matches!(self.mode, ReportMode::Progress) {
                        self.out.data(&Line::new(format!("node/{node} ")).with(Style::Good, reached))?;
                    }
                    continue;
                }
                TargetOutcome::Failed(error) if error.is_empty() => String::from("the maintenance failed"),
                TargetOutcome::Failed(error) => format!("the maintenance failed: {error}"),
                TargetOutcome::Deleted => {
                    String::from("the maintenance was stopped before the node was drained")
                }
                TargetOutcome::Replaced => {
                    String::from("the maintenance was stopped, and another one was started")
                }
            };
            self.out.message(&Line::new(format!("node/{node}: ")).with(Style::Bad, problem));
        }
        Ok(())
    }

    /// Adds a line to a log that was silent, and reports the targets that nothing seems to work on.
    fn report_heartbeat(&mut self) -> Result<(), Error> {
        let was_active = std::mem::take(&mut self.is_active);
        if let ReportMode::Log(now) = self.mode
            && !was_active
        {
            let summary = if self.lost.is_some() {
                Line::new("no connection")
            } else {
                tally(self.tracker.cache().objects())
            };
            self.out.data(&timestamp(now()).and(" - ").join(summary))?;
        }
        if self.lost.is_some() || !self.tracker.cache().is_complete() {
            return Ok(());
        }
        let now = Timestamp::now();
        for target in self.tracker.open() {
            let object = self.tracker.cache().get(&target.uid);
            if let Some(reason) = object.and_then(|object| {
                stall_reason(object, self.tracker.goal(), &self.reconcilers, self.flags, now)
            }) {
                self.out.message(&Line::new(format!("node/{}: ", target.node)).and(reason));
            }
        }
        Ok(())
    }

    fn report_end(&mut self, reason: &str, exit: Exit) {
        self.out.message(&Line::default().with(Style::Bad, reason));
        for target in self.tracker.open() {
            if let Some(object) = self.tracker.cache().get(&target.uid) {
                self.out.message(&Line::new(format!("node/{}: ", target.node)).join(headline(object)));
            }
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

/// Why a maintenance makes no progress towards the goal, as far as its object and `reconcilers` show that.
fn stall_reason(
    object: &NodeMaintenance,
    goal: Option<Goal>,
    reconcilers: &Reconcilers,
    flags: &str,
    now: Timestamp,
) -> Option<String> {
    let finalizers = object.metadata.finalizers.as_deref().unwrap_or_default();
    match (goal?, State::of(object)) {
        (Goal::Drained, State::Requested) => {
            let command = reconcilers.command(&format!("kubectl{flags}"));
            let created = object.metadata.creation_timestamp.as_ref().map(|time| time.0);
            Some(format!("{}: `{command}`", reconcilers.not_begun(created, now)))
        }
        (Goal::Drained, state @ (State::Planned | State::Paused)) => Some(format!(
            "the maintenance is {}; `kubectl nm resume {}{flags}` continues it",
            state.word().to_lowercase(),
            node(object)
        )),
        (Goal::Stopped, State::Stopping) if finalizers.is_empty() => {
            Some(String::from("the object still exists, although it has no finalizers"))
        }
        (Goal::Stopped, State::Stopping) if finalizers.iter().any(|finalizer| finalizer == FINALIZER) => {
            Some(format!(
                "waiting for finalizers: {}; nm-reconciler removes {FINALIZER}: is it running?",
                finalizers.join(", ")
            ))
        }
        (Goal::Stopped, State::Stopping) => Some(stop_progress(object)),
        _ => None,
    }
}

#[cfg(test)]
#[path = "wait_reporter_tests.rs"]
mod tests;
