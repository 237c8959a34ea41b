//! When a watch is over: its goal, the maintenances that have to reach it, and whether they have.
//!
//! Everything here is pure. Lines, NDJSON and the dashboard feed a [`GoalTracker`] with the events of the watch and show
//! what it returns.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use nm_shared::NodeMaintenance;

use crate::client::watch_stream::WatchChange;
use crate::error::Error;
use crate::error::exit::Exit;
use crate::leader::changes::LeaderNeed;
use crate::maintenance::cache::MaintenanceCache;
use crate::maintenance::changes::MaintenanceChange;
use crate::maintenance::{State, has_timed_out, node, status, uid};

/// What a maintenance has to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Goal {
    /// Every pod that has to go is gone
    Drained,
    /// The maintenance no longer exists
    Stopped,
}

/// When a watch ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExitCondition {
    /// Not until the user ends it, or its timeout does.
    #[default]
    Never,
    /// All targets have reached the goal, or one cannot reach it any more.
    Goal(Goal),
    /// Every watched maintenance is drained or failed.
    AllComplete,
}

/// A maintenance that has to reach the goal. The uid distinguishes it from a later one with the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitTarget {
    pub(crate) node: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl From<&NodeMaintenance> for WaitTarget {
    fn from(object: &NodeMaintenance) -> Self {
        Self { node: node(object).to_owned(), name: object.name_any(), uid: uid(object) }
    }
}

/// Why the watch no longer waits for a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetOutcome {
    /// The target has reached the goal.
    Reached,
    /// The maintenance failed, with `status.lastError`. A blocked pod is not a failure.
    Failed(String),
    /// It is or will be deleted before its node is drained.
    Deleted,
    /// It was deleted before its node was drained, and another object has its name.
    Replaced,
}

/// The maintenances that are watched, and how far they are from the goal.
#[derive(Clone, Debug)]
pub struct GoalTracker {
    /// The watched nodes; all if there are none.
    nodes: Vec<String>,
    cache: MaintenanceCache,
    exit_condition: ExitCondition,
    /// The targets that have not reached the goal. None until they are known.
    open: Option<Vec<WaitTarget>>,
    /// The uids of the maintenances whose drain has the same timeout as this watch.
    same_timeout: Vec<String>,
    /// The maintenances that have neither drained their nodes nor failed, by uid.
    unfinished: BTreeMap<String, WaitTarget>,
    /// Whether one of them was deleted.
    has_lost: bool,
}

/// What a change means for the watch.
#[derive(Debug, Default)]
pub struct TrackerUpdate {
    /// The changed maintenances, ordered by node.
    pub changes: Vec<MaintenanceChange>,
    /// Whether the first list is now complete.
    pub(crate) is_first_list: bool,
    /// The targets that the watch no longer waits for.
    pub settled: Vec<(WaitTarget, TargetOutcome)>,
    /// Exit code if the watch is over; `None` if it continues.
    pub exit: Option<Exit>,
}

impl GoalTracker {
    /// Watches the maintenances of these nodes; of all nodes if there are none.
    pub fn new(nodes: Vec<String>, exit_condition: ExitCondition) -> Self {
        Self {
            cache: MaintenanceCache::new(nodes.clone()),
            nodes,
            exit_condition,
            open: None,
            same_timeout: Vec::new(),
            unfinished: BTreeMap::new(),
            has_lost: false,
        }
    }

    /// Waits until these targets have reached the goal.
    pub fn for_targets(goal: Goal, targets: Vec<WaitTarget>) -> Self {
        let nodes = targets.iter().map(|target| target.node.clone()).collect();
        Self { open: Some(targets), ..Self::new(nodes, ExitCondition::Goal(goal)) }
    }

    /// The maintenances, by uid, whose drain has the same timeout as this watch. If one of them fails by its timeout,
    /// the watch has timed out too: which of the two notices first is chance.
    #[must_use]
    pub fn with_same_timeout(self, uids: Vec<String>) -> Self {
        Self { same_timeout: uids, ..self }
    }

    /// The maintenances that the watch has shown.
    pub fn cache(&self) -> &MaintenanceCache {
        &self.cache
    }

    /// What the watched maintenances need a leader for.
    pub(crate) fn leader_need(&self) -> LeaderNeed {
        self.cache.objects().map(LeaderNeed::of).max().unwrap_or_default()
    }

    /// The watched nodes; empty if all are watched.
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// When the watch ends.
    pub fn exit_condition(&self) -> ExitCondition {
        self.exit_condition
    }

    /// The goal; `None` if the watch does not wait for one.
    pub fn goal(&self) -> Option<Goal> {
        match self.exit_condition {
            ExitCondition::Goal(goal) => Some(goal),
            ExitCondition::Never | ExitCondition::AllComplete => None,
        }
    }

    /// The known targets that have not reached the goal.
    pub(crate) fn open(&self) -> impl Iterator<Item = &WaitTarget> {
        self.open.iter().flatten()
    }

    /// The existing maintenances that the watch waits for.
    pub(crate) fn awaited(&self) -> Vec<&NodeMaintenance> {
        let is_complete = |object: &NodeMaintenance| match State::of(object) {
            State::Drained | State::Failed => true,
            State::Requested
            | State::Planned
            | State::Queued
            | State::Draining
            | State::Blocked
            | State::Paused
            | State::Stopping => false,
        };
        match self.exit_condition {
            ExitCondition::Never => Vec::new(),
            ExitCondition::Goal(_) => {
                let open = self.open().filter_map(|target| self.cache.get(&target.uid));
                open.map(AsRef::as_ref).collect()
            }
            ExitCondition::AllComplete => {
                self.cache.objects().filter(|object| !is_complete(object)).collect()
            }
        }
    }

    pub(crate) fn open_nodes(&self) -> Vec<String> {
        match &self.open {
            Some(open) => open.iter().map(|target| target.node.clone()).collect(),
            None => self.nodes.clone(),
        }
    }

    /// Whether the drain of a node has the same timeout as this watch and is under way: it ends when this watch times out,
    /// whether the watch has seen that or not.
    pub(crate) fn times_out_too(&self, node: &str) -> bool {
        let Some(target) = self.open().find(|target| target.node == node) else { return false };
        let object = self.cache.get(&target.uid);
        self.shares_timeout(target)
            && object.is_some_and(|object| !object.spec.suspend && status(object).has_begun())
    }

    fn shares_timeout(&self, target: &WaitTarget) -> bool {
        self.same_timeout.contains(&target.uid)
    }

    /// Whether the open target of a node is being stopped; none if that is unknown.
    pub(crate) fn is_stopping(&self, node: &str) -> Option<bool> {
        let target = self.open().find(|target| target.node == node)?;
        let object = self.cache.get(&target.uid);
        // A target that the watch has not shown yet is one that the command itself has just stopped.
        Some(object.is_none_or(|object| object.metadata.deletion_timestamp.is_some()))
    }

    pub(crate) fn nodes_without_maintenance(&self) -> impl Iterator<Item = &String> {
        let present: BTreeSet<&str> = self.cache.objects().map(node).collect();
        self.nodes.iter().filter(move |name| !present.contains(name.as_str()))
    }

    /// Applies what the watch reported. The changes are those of the watched nodes.
    ///
    /// # Errors
    ///
    /// When the watch waits for drains, and one of its nodes is not in maintenance.
    pub fn apply(&mut self, change: &WatchChange<NodeMaintenance>) -> Result<TrackerUpdate, Error> {
        let mut update = self.apply_to_all(change)?;
        update.changes.retain(|change| self.cache.has_in_view(change.node()));
        Ok(update)
    }

    /// The same with the changes of all nodes.
    ///
    /// # Errors
    ///
    /// If the watch waits for drains, and one of its nodes is not in maintenance.
    pub fn apply_to_all(&mut self, change: &WatchChange<NodeMaintenance>) -> Result<TrackerUpdate, Error> {
        let was_complete = self.cache.is_complete();
        let changes = self.cache.apply(change);
        if !self.cache.is_complete() {
            return Ok(TrackerUpdate { changes, ..TrackerUpdate::default() });
        }
        if !was_complete {
            self.choose_targets()?;
        }
        let lost = self.note_unfinished();
        let (mut settled, exit) = self.settle();
        if self.exit_condition == ExitCondition::AllComplete {
            settled.extend(lost.into_iter().map(|target| (target, TargetOutcome::Deleted)));
        }
        Ok(TrackerUpdate { changes, is_first_list: !was_complete, settled, exit })
    }

    /// Notes which maintenances are unfinished, and returns those that are gone. Of one that is being deleted, it was known before.
    fn note_unfinished(&mut self) -> Vec<WaitTarget> {
        let known = std::mem::take(&mut self.unfinished).into_iter();
        let (gone, there): (BTreeMap<_, _>, BTreeMap<_, _>) =
            known.partition(|(uid, _)| self.cache.get(uid).is_none());
        self.unfinished = there;
        self.has_lost |= !gone.is_empty();
        for object in self.cache.objects() {
            match State::of(object) {
                State::Drained | State::Failed => drop(self.unfinished.remove(&uid(object))),
                State::Stopping => {}
                State::Requested
                | State::Planned
                | State::Queued
                | State::Draining
                | State::Blocked
                | State::Paused => drop(self.unfinished.insert(uid(object), WaitTarget::from(object))),
            }
        }
        gone.into_values().collect()
    }

    /// Where the targets were not given, they are all maintenances of the first list.
    fn choose_targets(&mut self) -> Result<(), Error> {
        if self.open.is_some() {
            return Ok(());
        }
        let without: Vec<String> = self.nodes_without_maintenance().cloned().collect();
        match self.exit_condition {
            ExitCondition::Goal(Goal::Drained) | ExitCondition::AllComplete if !without.is_empty() => {
                return Err(Error::NotInMaintenance(without));
            }
            ExitCondition::Goal(_) => self.open = Some(self.cache.objects().map(WaitTarget::from).collect()),
            ExitCondition::Never | ExitCondition::AllComplete => {}
        }
        Ok(())
    }

    /// The targets that the watch no longer waits for, and the exit code if it is over.
    fn settle(&mut self) -> (Vec<(WaitTarget, TargetOutcome)>, Option<Exit>) {
        match self.exit_condition {
            ExitCondition::Never => (Vec::new(), None),
            ExitCondition::AllComplete => (Vec::new(), self.completion()),
            ExitCondition::Goal(goal) => self.settle_targets(goal),
        }
    }

    fn settle_targets(&mut self, goal: Goal) -> (Vec<(WaitTarget, TargetOutcome)>, Option<Exit>) {
        let (mut settled, mut open, mut failure) = (Vec::new(), Vec::new(), None);
        for target in self.open.take().unwrap_or_default() {
            let Some(outcome) = outcome(goal, &target, &self.cache) else {
                open.push(target);
                continue;
            };
            failure = failure.or(match &outcome {
                TargetOutcome::Reached => None,
                TargetOutcome::Failed(_) if self.has_timed_out(&target) => Some(Exit::TimedOut),
                TargetOutcome::Failed(_) => Some(Exit::Failed),
                TargetOutcome::Deleted | TargetOutcome::Replaced => Some(Exit::Lost),
            });
            settled.push((target, outcome));
        }
        let exit = failure.or(open.is_empty().then_some(Exit::Done));
        self.open = Some(open);
        (settled, exit)
    }

    /// Whether the drain failed by the timeout that it shares with this watch.
    fn has_timed_out(&self, target: &WaitTarget) -> bool {
        let maintenance = self.cache.get(&target.uid);
        self.shares_timeout(target) && maintenance.is_some_and(|object| has_timed_out(object))
    }

    /// The exit code if every maintenance is drained or failed.
    fn completion(&self) -> Option<Exit> {
        // The maintenance of a named node was stopped before it was drained.
        if self.nodes_without_maintenance().next().is_some() {
            return Some(Exit::Lost);
        }
        if !self.awaited().is_empty() {
            return None;
        }
        Some(if self.cache.objects().any(|object| State::of(object) == State::Failed) {
            Exit::Failed
        } else if self.has_lost {
            Exit::Lost
        } else {
            Exit::Done
        })
    }
}

/// How the wait for a target ended, by a complete cache; none if it continues.
fn outcome(goal: Goal, target: &WaitTarget, cache: &MaintenanceCache) -> Option<TargetOutcome> {
    let object = cache.get(&target.uid);
    match (goal, object.map(|object| State::of(object))) {
        (Goal::Stopped, None) | (Goal::Drained, Some(State::Drained)) => Some(TargetOutcome::Reached),
        (Goal::Drained, None) if cache.objects().any(|other| other.name_any() == target.name) => {
            Some(TargetOutcome::Replaced)
        }
        (Goal::Drained, None | Some(State::Stopping)) => Some(TargetOutcome::Deleted),
        (Goal::Drained, Some(State::Failed)) => Some(TargetOutcome::Failed(
            object.map(|object| status(object).last_error.clone()).unwrap_or_default(),
        )),
        (
            Goal::Drained,
            Some(
                State::Requested
                | State::Planned
                | State::Queued
                | State::Draining
                | State::Blocked
                | State::Paused,
            ),
        )
        | (Goal::Stopped, Some(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::testing::objects::{cache, listed};
    use crate::testing::objects::{named, requested, running, stopping, with_status};

    #[track_caller]
    fn check(
        object: Option<NodeMaintenance>,
        drained: impl Into<Option<TargetOutcome>>,
        stopped: impl Into<Option<TargetOutcome>>,
    ) {
        let cache = cache(object);
        let target = WaitTarget::from(&requested("n1"));
        assert_eq!(outcome(Goal::Drained, &target, &cache), drained.into());
        assert_eq!(outcome(Goal::Stopped, &target, &cache), stopped.into());
    }

    #[test]
    fn waits_end_when_the_goal_is_reached_or_out_of_reach() {
        use TargetOutcome::{Deleted, Failed, Reached, Replaced};

        check(Some(requested("n1")), None, None);
        check(Some(with_status("n1", json!({"phase": "Pending"}))), None, None);
        check(Some(with_status("n1", running(40, &[("a", "blocked")]))), None, None);
        check(Some(with_status("n1", json!({"phase": "Succeeded"}))), Some(Reached), None);
        let failed = with_status("n1", json!({"phase": "Failed", "lastError": "no such node"}));
        check(Some(failed), Some(Failed("no such node".into())), None);
        check(Some(stopping(requested("n1"))), Some(Deleted), None);
        check(None, Some(Deleted), Some(Reached));
        check(Some(named("n1", "n1", "another")), Some(Replaced), Some(Reached));
        check(Some(requested("n2")), Some(Deleted), Some(Reached));
    }

    #[test]
    fn a_watch_is_complete_when_all_maintenances_are_drained_or_failed() {
        let drained = || with_status("n1", json!({"phase": "Succeeded"}));
        let failed = || with_status("n2", json!({"phase": "Failed"}));
        for (objects, exit) in [
            (vec![], Some(Exit::Done)),
            (vec![drained()], Some(Exit::Done)),
            (vec![drained(), failed()], Some(Exit::Failed)),
            (vec![drained(), requested("n2")], None),
            (vec![failed(), stopping(requested("n1"))], None),
        ] {
            let mut tracker = GoalTracker::new(vec![], ExitCondition::AllComplete);
            let update = tracker.apply(&listed(objects)).unwrap();
            assert!(update.is_first_list);
            assert_eq!(update.exit, exit);
        }
    }

    #[test]
    fn a_drain_times_out_only_by_the_timeout_of_the_watch() {
        let condition = json!({"type": "Drained", "status": "False", "reason": "TimedOut", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let failed = || with_status("n1", json!({"phase": "Failed", "conditions": [condition]}));
        for (limited, exit) in [(vec![], Exit::Failed), (vec![uid(&failed())], Exit::TimedOut)] {
            let mut tracker = GoalTracker::for_targets(Goal::Drained, vec![WaitTarget::from(&failed())])
                .with_same_timeout(limited);
            assert_eq!(tracker.apply(&listed([failed()])).unwrap().exit, Some(exit));
        }
    }

    #[test]
    fn a_named_node_without_maintenance_is_not_complete() {
        let over = |objects: Vec<NodeMaintenance>| {
            let mut tracker = GoalTracker::new(vec!["n1".into()], ExitCondition::AllComplete);
            let first = tracker.apply(&listed(objects));
            (tracker, first)
        };
        let (_, first) = over(vec![requested("n2")]);
        assert!(matches!(first, Err(Error::NotInMaintenance(nodes)) if nodes == ["n1"]));
        let (mut tracker, first) = over(vec![requested("n1")]);
        assert_eq!(first.unwrap().exit, None);
        assert_eq!(
            tracker.apply(&WatchChange::Deleted(Arc::new(requested("n1")))).unwrap().exit,
            Some(Exit::Lost)
        );
    }

    #[test]
    fn a_maintenance_that_is_deleted_before_its_node_is_drained_is_lost_wherever_it_was_named() {
        let drained = || with_status("n2", json!({"phase": "Succeeded"}));
        let first = |objects: Vec<NodeMaintenance>| {
            let mut tracker = GoalTracker::new(vec![], ExitCondition::AllComplete);
            assert_eq!(tracker.apply(&listed(objects)).unwrap().exit, None);
            tracker
        };
        let exit = |tracker: &mut GoalTracker, change| tracker.apply(&change).unwrap().exit;
        let mut tracker = first(vec![requested("n1"), drained()]);
        assert_eq!(exit(&mut tracker, WatchChange::Applied(Arc::new(stopping(requested("n1"))))), None);
        assert_eq!(exit(&mut tracker, WatchChange::Deleted(Arc::new(requested("n1")))), Some(Exit::Lost));
        // Its node was drained.
        let mut tracker = first(vec![requested("n1"), drained()]);
        assert_eq!(exit(&mut tracker, WatchChange::Deleted(Arc::new(drained()))), None);
        let done = with_status("n1", json!({"phase": "Succeeded"}));
        assert_eq!(exit(&mut tracker, WatchChange::Applied(Arc::new(done))), Some(Exit::Done));
    }
}
