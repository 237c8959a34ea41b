//! A watch over maintenances with an end in view: what each event changes, and whether that is the end.
//!
//! The journal, the NDJSON report, the waits and the dashboard say it each in its own way; what there is to say is
//! found here, and nothing here prints.

use kube::runtime::watcher::Event;
use nm_shared::NodeMaintenance;
use nm_shared::api::condition::ConditionReason;

use crate::error::Error;
use crate::error::exit::Exit;
use crate::maintenance::cache::Picture;
use crate::maintenance::changes::Change;
use crate::maintenance::{State, condition, node};
use crate::watch::wait::{Goal, Target, Verdict, verdict};

/// What ends a watch by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum End {
    /// Nothing.
    #[default]
    Never,
    /// A goal, reached by everything that it is set for, or out of reach for something.
    Goal(Goal),
    /// Nothing that is watched is on its way any more.
    Rest,
}

/// What is watched, and what for.
#[derive(Debug)]
pub(crate) struct Outlook {
    /// The nodes it is about; all if none is named.
    nodes: Vec<String>,
    picture: Picture,
    end: End,
    /// What the goal is still to be reached by. `None` until the picture is complete, if it is not known before.
    open: Option<Vec<Target>>,
    /// The objects, by uid, whose drain has the time limit of this watch.
    limited: Vec<String>,
}

/// What an event brought.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// What changed, ordered by node.
    pub(crate) changes: Vec<Change>,
    /// Whether everything has now been seen for the first time.
    pub(crate) begun: bool,
    /// What reached its goal by it, or never will.
    pub(crate) settled: Vec<(Target, Verdict)>,
    /// How it is over, if it is.
    pub(crate) exit: Option<Exit>,
}

impl Outlook {
    /// On these nodes' maintenances, or all.
    pub(crate) fn over(nodes: Vec<String>, end: End) -> Self {
        Self { picture: Picture::of(nodes.clone()), nodes, end, open: None, limited: Vec::new() }
    }

    /// On these targets, until they have reached the goal.
    pub(crate) fn for_targets(goal: Goal, targets: Vec<Target>) -> Self {
        let nodes = targets.iter().map(|target| target.node.clone()).collect();
        Self { open: Some(targets), ..Self::over(nodes, End::Goal(goal)) }
    }

    /// The same where the drains of these objects, given by uid, have the time limit of the watch: which of the two
    /// notices first that it has run out says nothing.
    pub(crate) fn limiting(self, uids: Vec<String>) -> Self {
        Self { limited: uids, ..self }
    }

    /// What is known.
    pub(crate) fn picture(&self) -> &Picture {
        &self.picture
    }

    /// The nodes that were named.
    pub(crate) fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// What ends it by itself.
    pub(crate) fn end(&self) -> End {
        self.end
    }

    /// The goal, if there is one.
    pub(crate) fn goal(&self) -> Option<Goal> {
        match self.end {
            End::Goal(goal) => Some(goal),
            End::Never | End::Rest => None,
        }
    }

    /// What the goal is still to be reached by, as far as that is known.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Target> {
        self.open.iter().flatten()
    }

    /// The nodes whose maintenance is still waited for.
    pub(crate) fn open_nodes(&self) -> Vec<String> {
        match &self.open {
            Some(open) => open.iter().map(|target| target.node.clone()).collect(),
            None => self.nodes.clone(),
        }
    }

    /// Whether the maintenance of a node that is waited for is being stopped; nothing where nobody knows.
    pub(crate) fn is_stopping(&self, node: &str) -> Option<bool> {
        let target = self.open().find(|target| target.node == node)?;
        let object = self.picture.get(&target.uid);
        // Who named targets has asked for that, and mostly hears of it before it is seen.
        Some(object.is_none_or(|object| object.metadata.deletion_timestamp.is_some()))
    }

    /// The named nodes that are in no maintenance.
    pub(crate) fn without(&self) -> impl Iterator<Item = &String> {
        self.nodes.iter().filter(|name| !self.picture.objects().any(|object| node(object) == *name))
    }

    /// Takes in an event.
    ///
    /// # Errors
    ///
    /// When there is nothing to wait for where there should be.
    pub(crate) fn see(&mut self, event: Event<NodeMaintenance>) -> Result<Seen, Error> {
        let was_complete = self.picture.is_complete();
        let changes = self.picture.apply(event);
        if !self.picture.is_complete() {
            return Ok(Seen { changes, ..Seen::default() });
        }
        if !was_complete {
            self.begin()?;
        }
        let (settled, exit) = self.settle();
        Ok(Seen { changes, begun: !was_complete, settled, exit })
    }

    /// Finds out what is waited for. Where drained nodes are waited for, one that is in no maintenance is not one.
    fn begin(&mut self) -> Result<(), Error> {
        let without: Vec<String> = self.without().cloned().collect();
        let is_about_drains = matches!(self.end, End::Goal(Goal::Drained) | End::Rest);
        if is_about_drains && self.open.is_none() && !without.is_empty() {
            return Err(Error::NotInMaintenance(without));
        }
        if self.goal().is_none() || self.open.is_some() {
            return Ok(());
        }
        self.open = Some(self.picture.objects().map(Target::from).collect());
        Ok(())
    }

    /// Looks whose goal is reached or out of reach, and whether that is the end.
    fn settle(&mut self) -> (Vec<(Target, Verdict)>, Option<Exit>) {
        let goal = match self.end {
            End::Never => return (Vec::new(), None),
            // A named node whose maintenance was stopped was not drained, whatever the others are.
            End::Rest if self.without().next().is_some() => return (Vec::new(), Some(Exit::Lost)),
            End::Rest => return (Vec::new(), at_rest(&self.picture)),
            End::Goal(goal) => goal,
        };
        let (mut settled, mut still_open, mut bad) = (Vec::new(), Vec::new(), None);
        for target in self.open.take().unwrap_or_default() {
            let verdict = verdict(goal, &target, &self.picture);
            match &verdict {
                Verdict::Open => {
                    still_open.push(target);
                    continue;
                }
                Verdict::Reached => {}
                Verdict::Failed(_) if self.ran_out_of_time(&target) => bad = bad.or(Some(Exit::TimedOut)),
                Verdict::Failed(_) => bad = bad.or(Some(Exit::Failed)),
                Verdict::Deleted | Verdict::Replaced => bad = bad.or(Some(Exit::Lost)),
            }
            settled.push((target, verdict));
        }
        let over = still_open.is_empty();
        self.open = Some(still_open);
        (settled, bad.or(over.then_some(Exit::Done)))
    }

    /// Whether a drain was given up because the time of this watch had run out.
    fn ran_out_of_time(&self, target: &Target) -> bool {
        let drained = self.picture.get(&target.uid).and_then(|object| condition(object, "Drained"));
        self.limited.contains(&target.uid)
            && drained.is_some_and(|drained| drained.reason == ConditionReason::TimedOut.as_str())
    }
}

/// How it ended, if nothing is on its way any more.
fn at_rest(picture: &Picture) -> Option<Exit> {
    let mut exit = Exit::Done;
    for object in picture.objects() {
        match State::of(object) {
            State::Drained => {}
            State::Failed => exit = Exit::Failed,
            State::Requested | State::Queued | State::Draining | State::Blocked | State::Stopping => {
                return None;
            }
        }
    }
    Some(exit)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::maintenance::fixture::{requested, stopping, with_status};
    use crate::maintenance::uid;

    #[test]
    fn a_watch_rests_when_nothing_is_on_its_way() {
        let drained = || with_status("n1", json!({"phase": "Succeeded"}));
        let failed = || with_status("n2", json!({"phase": "Failed"}));
        for (objects, exit) in [
            (vec![], Some(Exit::Done)),
            (vec![drained()], Some(Exit::Done)),
            (vec![drained(), failed()], Some(Exit::Failed)),
            (vec![drained(), requested("n2")], None),
            (vec![failed(), stopping(requested("n1"))], None),
        ] {
            let mut outlook = Outlook::over(vec![], End::Rest);
            outlook.see(Event::Init).unwrap();
            for object in objects {
                assert_eq!(outlook.see(Event::InitApply(object)).unwrap().exit, None);
            }
            let seen = outlook.see(Event::InitDone).unwrap();
            assert!(seen.begun);
            assert_eq!(seen.exit, exit);
        }
    }

    #[test]
    fn a_drain_times_out_only_by_the_limit_of_the_watch() {
        let condition = json!({"type": "Drained", "status": "False", "reason": "TimedOut", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let failed = || with_status("n1", json!({"phase": "Failed", "conditions": [condition]}));
        for (limited, exit) in [(vec![], Exit::Failed), (vec![uid(&failed())], Exit::TimedOut)] {
            let mut outlook =
                Outlook::for_targets(Goal::Drained, vec![Target::from(&failed())]).limiting(limited);
            outlook.see(Event::Init).unwrap();
            outlook.see(Event::InitApply(failed())).unwrap();
            assert_eq!(outlook.see(Event::InitDone).unwrap().exit, Some(exit));
        }
    }

    #[test]
    fn a_named_node_that_is_in_no_maintenance_is_not_at_rest() {
        let over = |objects: Vec<NodeMaintenance>| {
            let mut outlook = Outlook::over(vec!["n1".into()], End::Rest);
            outlook.see(Event::Init).unwrap();
            for object in objects {
                outlook.see(Event::InitApply(object)).unwrap();
            }
            let begun = outlook.see(Event::InitDone);
            (outlook, begun)
        };
        let (_, begun) = over(vec![requested("n2")]);
        assert!(matches!(begun, Err(Error::NotInMaintenance(nodes)) if nodes == ["n1"]));
        let (mut outlook, begun) = over(vec![requested("n1")]);
        assert_eq!(begun.unwrap().exit, None);
        assert_eq!(outlook.see(Event::Delete(requested("n1"))).unwrap().exit, Some(Exit::Lost));
    }
}
