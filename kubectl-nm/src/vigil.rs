//! What a command says and decides while it watches maintenances.
//!
//! `start --wait`, `stop --wait` and `watch` differ in how they speak and in what ends them; all else is the same, and
//! is here. Nothing here does I/O but for printing, so that whole stories can be told in tests.

use std::ops::ControlFlow;

use jiff::{Timestamp, Unit};
use kube::runtime::watcher::Event;
use nm_shared::NodeMaintenance;

use crate::changes::Change;
use crate::error::Error;
use crate::exit::Exit;
use crate::follow::Moment;
use crate::maintenance::{Standing, headline, node};
use crate::news::News;
use crate::output::Output;
use crate::picture::Picture;
use crate::text::{Line, Style};
use crate::wait::{Goal, Target, Verdict, verdict};

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
    /// The nodes it is about; all if none is named.
    nodes: Vec<String>,
    picture: Picture,
    goal: Option<Goal>,
    /// What is still waited for. `None` until the picture is complete, if it is not known before.
    open: Option<Vec<Target>>,
    lost: bool,
}

impl<'a> Vigil<'a> {
    /// Waits until these targets have reached the goal.
    pub(crate) fn for_targets(out: &'a mut Output, goal: Goal, targets: Vec<Target>) -> Self {
        let nodes: Vec<String> = targets.iter().map(|target| target.node.clone()).collect();
        Self { open: Some(targets), ..Self::over(out, Voice::Progress, nodes, Some(goal)) }
    }

    /// Watches these nodes, or all; with a goal until it is reached by all maintenances that there are at first.
    pub(crate) fn over(out: &'a mut Output, voice: Voice, nodes: Vec<String>, goal: Option<Goal>) -> Self {
        let picture = Picture::of(nodes.clone());
        Self { out, voice, nodes, picture, goal, open: None, lost: false }
    }

    /// Takes in a moment, says what is to be said, and breaks off when it is over.
    ///
    /// # Errors
    ///
    /// When stdout is closed, or there is nothing to wait for where there should be.
    pub(crate) fn react(&mut self, moment: Moment) -> Result<ControlFlow<Exit>, Error> {
        match moment {
            Moment::News(News::Event(event)) => self.see(*event),
            Moment::News(News::Lost(error)) => {
                self.lost = true;
                self.out.talk(
                    &Line::default()
                        .with(Style::Bad, "connection lost")
                        .and(format!(": {error}; trying again")),
                );
                Ok(ControlFlow::Continue(()))
            }
            Moment::News(News::Restored) => {
                self.lost = false;
                self.out.talk(&Line::default().with(Style::Good, "connected again"));
                Ok(ControlFlow::Continue(()))
            }
            Moment::Reminder => {
                self.remind();
                Ok(ControlFlow::Continue(()))
            }
            Moment::TimedOut(after) => {
                self.part(&format!("timed out after {}", crate::duration::show(after)));
                Ok(ControlFlow::Break(Exit::TimedOut))
            }
            Moment::Interrupted => {
                self.part("interrupted");
                Ok(ControlFlow::Break(Exit::Interrupted))
            }
        }
    }

    fn see(&mut self, event: Event<NodeMaintenance>) -> Result<ControlFlow<Exit>, Error> {
        let was_complete = self.picture.is_complete();
        for change in self.picture.apply(event) {
            self.tell(&change)?;
        }
        if !self.picture.is_complete() {
            return Ok(ControlFlow::Continue(()));
        }
        if !was_complete {
            self.begin()?;
        }
        self.settle()
    }

    fn tell(&mut self, change: &Change) -> Result<(), Error> {
        for line in change.lines() {
            match self.voice {
                Voice::Journal(now) => {
                    // Whole seconds; the rounding cannot fail for a time of this age of the world.
                    let now = now().round(Unit::Second).unwrap_or_default();
                    let stamp = Line::default().with(Style::Dim, now.to_string());
                    self.out.data(&stamp.and(format!(" {} ", change.node())).join(line))?;
                }
                Voice::Progress => self.out.talk(&Line::new(format!("node/{}: ", change.node())).join(line)),
            }
        }
        Ok(())
    }

    /// Finds out what is waited for, and says what there is not.
    fn begin(&mut self) -> Result<(), Error> {
        if self.open.is_some() {
            return Ok(());
        }
        let without: Vec<String> = self
            .nodes
            .iter()
            .filter(|name| !self.picture.objects().any(|object| node(object) == *name))
            .cloned()
            .collect();
        if self.goal == Some(Goal::Drained) && !without.is_empty() {
            return Err(Error::NotInMaintenance(without));
        }
        for name in without {
            self.out.talk(&Line::new(format!("node/{name} is not in maintenance")));
        }
        if self.nodes.is_empty() && self.picture.objects().next().is_none() {
            self.out.talk(&Line::new("No maintenances found."));
        }
        self.open = self.goal.map(|_| self.picture.objects().map(Target::from).collect());
        Ok(())
    }

    /// Looks whose goal is reached or out of reach.
    fn settle(&mut self) -> Result<ControlFlow<Exit>, Error> {
        let (Some(goal), Some(open)) = (self.goal, self.open.take()) else {
            return Ok(ControlFlow::Continue(()));
        };
        let mut still_open = Vec::new();
        let mut bad = None;
        for target in open {
            match verdict(goal, &target, &self.picture) {
                Verdict::Open => still_open.push(target),
                Verdict::Reached => self.reached(goal, &target)?,
                Verdict::Failed(why) => {
                    let why = if why.is_empty() { why } else { format!(": {why}") };
                    self.complain(&target, &format!("the maintenance failed{why}"));
                    bad = bad.or(Some(Exit::Failed));
                }
                Verdict::Deleted => {
                    self.complain(&target, "the maintenance was stopped before the node was drained");
                    bad = bad.or(Some(Exit::Lost));
                }
                Verdict::Replaced => {
                    self.complain(&target, "the maintenance was stopped, and another one has begun");
                    bad = bad.or(Some(Exit::Lost));
                }
            }
        }
        let over = still_open.is_empty();
        self.open = Some(still_open);
        Ok(match bad {
            Some(exit) => {
                self.say_what_goes_on();
                ControlFlow::Break(exit)
            }
            None if over => ControlFlow::Break(Exit::Done),
            None => ControlFlow::Continue(()),
        })
    }

    fn reached(&mut self, goal: Goal, target: &Target) -> Result<(), Error> {
        if matches!(self.voice, Voice::Progress) {
            let what = match goal {
                Goal::Drained => "drained",
                Goal::Stopped => "maintenance stopped",
            };
            self.out.data(&Line::new(format!("node/{} ", target.node)).with(Style::Good, what))?;
        }
        Ok(())
    }

    fn complain(&mut self, target: &Target, what: &str) {
        self.out.talk(&Line::new(format!("node/{}: ", target.node)).with(Style::Bad, what));
    }

    /// After a while, says what the wait hangs on, if nothing seems to work on it.
    fn remind(&mut self) {
        if self.lost || !self.picture.is_complete() {
            return;
        }
        for target in self.open.iter().flatten() {
            let Some(object) = self.picture.get(&target.uid) else { continue };
            if let Some(hitch) = hitch(object, self.goal) {
                self.out.talk(&Line::new(format!("node/{}: ", target.node)).and(hitch));
            }
        }
    }

    /// Says why it ends before the goal, how things stand and how to go on.
    fn part(&mut self, why: &str) {
        if self.goal.is_none() {
            return;
        }
        self.out.talk(&Line::default().with(Style::Bad, why));
        for target in self.open.iter().flatten() {
            if let Some(object) = self.picture.get(&target.uid) {
                self.out.talk(&Line::new(format!("node/{}: ", target.node)).join(headline(object)));
            }
        }
        self.say_what_goes_on();
    }

    fn say_what_goes_on(&mut self) {
        let open = match &self.open {
            Some(open) => open.iter().map(|target| target.node.clone()).collect(),
            None => self.nodes.clone(),
        };
        let nodes = open.join(" ");
        let (what, until) = match self.goal {
            Some(Goal::Drained) => ("maintenance goes on", "drained"),
            Some(Goal::Stopped) => ("nodes are given back all the same", "stopped"),
            None => return,
        };
        if nodes.is_empty() {
            return;
        }
        self.out.talk(&Line::new(format!("{what}: {}", open.join(", "))));
        let hint = Line::new(format!("hint: `kubectl nm watch {nodes} --until {until}` waits again"));
        self.out.talk(&match self.goal {
            Some(Goal::Drained) => hint.and(format!(", `kubectl nm stop {nodes}` gives up")),
            _ => hint,
        });
    }
}

/// What a maintenance hangs on that nobody seems to work on.
fn hitch(object: &NodeMaintenance, goal: Option<Goal>) -> Option<String> {
    let finalizers = object.metadata.finalizers.as_deref().unwrap_or_default();
    match (goal?, Standing::of(object)) {
        (Goal::Drained, Standing::Requested) => {
            Some(String::from("nothing has taken it up yet; is nm-reconciler running in this cluster?"))
        }
        (Goal::Stopped, Standing::Stopping) if !finalizers.is_empty() => Some(format!(
            "still there, held by the finalizer {}; what set it removes it when its work is done, \
             for maintenances that is nm-reconciler: is it running?",
            finalizers.join(", ")
        )),
        (Goal::Stopped, Standing::Stopping) => Some(String::from("still there, although nothing holds it")),
        _ => None,
    }
}

#[cfg(test)]
#[path = "vigil_tests.rs"]
mod tests;
