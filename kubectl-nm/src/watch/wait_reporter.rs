//! What a command says and decides while it watches maintenances.
//!
//! `start --wait`, `stop --wait` and `watch` differ in how they speak and in what ends them; all else is the same, and
//! is here. Nothing here does I/O but for printing, so that whole stories can be told in tests.

use std::io;
use std::ops::ControlFlow;

use jiff::{Timestamp, Unit};
use kube::runtime::watcher::Event;
use nm_shared::NodeMaintenance;
use nm_shared::api::names::FINALIZER;

use crate::client::watch_stream::News;
use crate::error::Error;
use crate::error::exit::Exit;
use crate::maintenance::changes::Change;
use crate::maintenance::{State, headline, stop_progress};
use crate::terminal::output::Output;
use crate::terminal::text::{Line, Style};
use crate::watch::exit_summary::{self, tally};
use crate::watch::follow::Moment;
use crate::watch::goal_tracker::Outlook;
use crate::watch::live_lines::Live;
use crate::watch::wait::{Goal, Target, Verdict};

/// How changes are told.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Voice {
    /// They are what was asked for: lines with the time, on stdout.
    Journal(fn() -> Timestamp),
    /// They are news on the way to the goal: lines on stderr, and what is reached on stdout.
    Progress,
}

/// A watch over maintenances with an end in view.
pub(crate) struct Vigil<'a> {
    out: &'a mut Output,
    voice: Voice,
    outlook: Outlook,
    /// The flags that lead to the same cluster, each with a blank before it, for commands to paste.
    flags: &'a str,
    live: Option<Live>,
    /// Since when the connection is lost, if it is.
    lost: Option<Timestamp>,
    /// Whether something was said since the last reminder.
    spoke: bool,
}

impl<'a> Vigil<'a> {
    /// Waits until these targets have reached the goal. `flags` lead to the same cluster, each with a blank before it.
    pub(crate) fn for_targets(out: &'a mut Output, goal: Goal, targets: Vec<Target>, flags: &'a str) -> Self {
        Self::of(out, Voice::Progress, Outlook::for_targets(goal, targets), flags)
    }

    /// Says what happens to what the outlook is on, until its end. `flags` lead to the same cluster, each with a blank
    /// before it.
    pub(crate) fn of(out: &'a mut Output, voice: Voice, outlook: Outlook, flags: &'a str) -> Self {
        Self { out, voice, outlook, flags, live: None, lost: None, spoke: false }
    }

    /// Shows below what it says how things stand, where that can be: on a terminal that can be drawn on.
    pub(crate) fn with_live_lines(mut self) -> Self {
        if self.out.is_on_terminal() {
            let nodes = self.outlook.nodes().len();
            self.live = Some(Live::below(nodes, self.out.is_coloured()));
            self.out.hold();
        }
        self
    }

    /// Takes in a moment, says what is to be said, and breaks off when it is over.
    ///
    /// # Errors
    ///
    /// When stdout is closed, or there is nothing to wait for where there should be.
    pub(crate) fn react(&mut self, moment: Moment) -> Result<ControlFlow<Exit>, Error> {
        let reaction = self.react_in_lines(moment);
        let over = !matches!(reaction, Ok(ControlFlow::Continue(())));
        if let Err(error) = self.show(over) {
            return reaction.and(Err(Error::Screen(error)));
        }
        reaction
    }

    /// Prints what was said above the live lines and draws these, or removes them when it is over.
    fn show(&mut self, over: bool) -> io::Result<()> {
        let Some(mut live) = self.live.take() else { return Ok(()) };
        let happened = self.out.held();
        if over {
            self.out.release();
            return live.remove(&happened);
        }
        live.show(&happened, self.outlook.picture(), Timestamp::now(), self.lost)?;
        self.live = Some(live);
        Ok(())
    }

    fn react_in_lines(&mut self, moment: Moment) -> Result<ControlFlow<Exit>, Error> {
        match moment {
            Moment::Second => Ok(ControlFlow::Continue(())),
            Moment::News(News::Event(event)) => self.see(*event),
            Moment::News(News::Lost(error)) => {
                self.lost.get_or_insert_with(Timestamp::now);
                let lost = Line::default().with(Style::Bad, "connection lost");
                self.remark(lost.and(format!(": {error}; trying again")));
                Ok(ControlFlow::Continue(()))
            }
            Moment::News(News::Restored) => {
                self.lost = None;
                self.remark(Line::default().with(Style::Good, "connected again"));
                Ok(ControlFlow::Continue(()))
            }
            Moment::Reminder => {
                self.remind()?;
                Ok(ControlFlow::Continue(()))
            }
            Moment::TimedOut(after) => {
                self.part(&format!("timed out after {}", crate::args::duration::show(after)));
                Ok(ControlFlow::Break(Exit::TimedOut))
            }
            Moment::Interrupted => {
                // Whoever waits for nothing has seen enough.
                if self.outlook.goal().is_some() {
                    self.part("interrupted");
                }
                Ok(ControlFlow::Break(Exit::Interrupted))
            }
        }
    }

    /// Says something beside what was asked for; with the time, where everything has it.
    fn remark(&mut self, line: Line) {
        let line = match self.voice {
            Voice::Journal(now) => stamped(now()).and(" ").join(line),
            Voice::Progress => line,
        };
        self.out.talk(&line);
    }

    fn see(&mut self, event: Event<NodeMaintenance>) -> Result<ControlFlow<Exit>, Error> {
        let seen = self.outlook.see(event)?;
        // How the drain went that is called off was told while it went.
        let is_old =
            seen.begun && matches!(self.voice, Voice::Progress) && self.outlook.goal() == Some(Goal::Stopped);
        for change in seen.changes.iter().filter(|_| !is_old) {
            self.tell(change)?;
        }
        if seen.begun {
            self.begin();
        }
        match seen.exit {
            Some(exit) => self.conclude(&seen.settled, exit).map(ControlFlow::Break),
            None => self.settle_all(&seen.settled).map(ControlFlow::Continue),
        }
    }

    /// Says how it is over.
    ///
    /// # Errors
    ///
    /// When stdout is closed.
    pub(crate) fn conclude(&mut self, settled: &[(Target, Verdict)], exit: Exit) -> Result<Exit, Error> {
        self.settle_all(settled)?;
        if matches!(exit, Exit::Failed | Exit::Lost | Exit::TimedOut) {
            self.say_what_goes_on();
        }
        Ok(exit)
    }

    fn settle_all(&mut self, settled: &[(Target, Verdict)]) -> Result<(), Error> {
        settled.iter().try_for_each(|(target, verdict)| self.settle(target, verdict))
    }

    fn tell(&mut self, change: &Change) -> Result<(), Error> {
        for line in change.lines() {
            self.spoke = true;
            match self.voice {
                Voice::Journal(now) => {
                    self.out.data(&stamped(now()).and(format!(" {} ", change.node())).join(line))?;
                }
                Voice::Progress => self.out.talk(&Line::new(format!("node/{}: ", change.node())).join(line)),
            }
        }
        Ok(())
    }

    /// Says what there is not.
    fn begin(&mut self) {
        if matches!(self.voice, Voice::Progress) {
            return;
        }
        for name in self.outlook.without() {
            self.out.talk(&Line::new(format!("node/{name} is not in maintenance")));
        }
        if self.outlook.nodes().is_empty() && self.outlook.picture().objects().next().is_none() {
            self.out.talk(&Line::new("No maintenances found."));
        }
    }

    /// Says that a target reached its goal, or why it never will.
    fn settle(&mut self, target: &Target, verdict: &Verdict) -> Result<(), Error> {
        match verdict {
            Verdict::Open => {}
            Verdict::Reached => self.reached(target)?,
            Verdict::Failed(why) => {
                let why = if why.is_empty() { String::new() } else { format!(": {why}") };
                self.complain(target, &format!("the maintenance failed{why}"));
            }
            Verdict::Deleted => {
                self.complain(target, "the maintenance was stopped before the node was drained");
            }
            Verdict::Replaced => {
                self.complain(target, "the maintenance was stopped, and another one has begun");
            }
        }
        Ok(())
    }

    fn reached(&mut self, target: &Target) -> Result<(), Error> {
        let what = match self.outlook.goal() {
            Some(Goal::Drained) => "drained",
            Some(Goal::Stopped) => "maintenance stopped",
            None => return Ok(()),
        };
        if matches!(self.voice, Voice::Progress) {
            self.out.data(&Line::new(format!("node/{} ", target.node)).with(Style::Good, what))?;
        }
        Ok(())
    }

    fn complain(&mut self, target: &Target, what: &str) {
        self.out.talk(&Line::new(format!("node/{}: ", target.node)).with(Style::Bad, what));
    }

    /// After a while, says what the wait hangs on, if nothing seems to work on it; and that it is still there, where
    /// lines are read later and elsewhere.
    fn remind(&mut self) -> Result<(), Error> {
        let spoke = std::mem::take(&mut self.spoke);
        if let Voice::Journal(now) = self.voice
            && !spoke
        {
            let standing =
                if self.lost.is_some() { Line::new("no connection") } else { tally(self.outlook.picture()) };
            self.out.data(&stamped(now()).and(" - ").join(standing))?;
        }
        if self.lost.is_some() || !self.outlook.picture().is_complete() {
            return Ok(());
        }
        for target in self.outlook.open() {
            let Some(object) = self.outlook.picture().get(&target.uid) else { continue };
            if let Some(hitch) = hitch(object, self.outlook.goal()) {
                self.out.talk(&Line::new(format!("node/{}: ", target.node)).and(hitch));
            }
        }
        Ok(())
    }

    /// Says why it ends, and, if that is before the goal, how things stand and how to go on.
    fn part(&mut self, why: &str) {
        self.out.talk(&Line::default().with(Style::Bad, why));
        for target in self.outlook.open() {
            if let Some(object) = self.outlook.picture().get(&target.uid) {
                self.out.talk(&Line::new(format!("node/{}: ", target.node)).join(headline(object)));
            }
        }
        self.say_what_goes_on();
    }

    fn say_what_goes_on(&mut self) {
        let is_stopping = |node: &str| self.outlook.is_stopping(node);
        let open = self.outlook.open_nodes();
        for line in exit_summary::what_goes_on(self.outlook.goal(), &open, is_stopping, self.flags) {
            self.out.talk(&line);
        }
    }
}

/// However the wait ends: what was said is printed, and the terminal is left to whoever says why it ended.
impl Drop for Vigil<'_> {
    fn drop(&mut self) {
        // What a terminal that is gone would have shown is lost, and there is nobody to tell.
        let _ = self.show(true);
        self.out.release();
    }
}

/// The time, in whole seconds.
fn stamped(now: Timestamp) -> Line {
    // The rounding cannot fail for a time of this age of the world.
    Line::default().with(Style::Dim, now.round(Unit::Second).unwrap_or_default().to_string())
}

/// What a maintenance hangs on that nobody seems to work on.
fn hitch(object: &NodeMaintenance, goal: Option<Goal>) -> Option<String> {
    let finalizers = object.metadata.finalizers.as_deref().unwrap_or_default();
    match (goal?, State::of(object)) {
        (Goal::Drained, State::Requested) => Some(String::from(
            "no reconciler has picked it up yet; is nm-reconciler running in this cluster?",
        )),
        (Goal::Stopped, State::Stopping) if finalizers.iter().any(|held| held == FINALIZER) => Some(format!(
            "still there, held by the finalizer {}; what set it removes it when its work is done, \
             for maintenances that is nm-reconciler: is it running?",
            finalizers.join(", ")
        )),
        (Goal::Stopped, State::Stopping) if !finalizers.is_empty() => Some(stop_progress(object)),
        (Goal::Stopped, State::Stopping) => Some(String::from("still there, although nothing holds it")),
        _ => None,
    }
}

#[cfg(test)]
#[path = "wait_reporter_tests.rs"]
mod tests;
