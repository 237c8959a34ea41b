//! When a wait is over, and how: a pure function of what is waited for and the picture of the cluster.

use kube::ResourceExt;
use nm_shared::NodeMaintenance;

use crate::maintenance::cache::Picture;
use crate::maintenance::{State, node, status, uid};

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Goal {
    /// Every pod that was to go is gone.
    Drained,
    /// The object is gone, and with it the maintenance.
    Stopped,
}

/// One object that is waited for. Its uid tells it from a later one of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The node.
    pub(crate) node: String,
    /// The object's name.
    pub(crate) name: String,
    /// The object's uid.
    pub(crate) uid: String,
}

impl From<&NodeMaintenance> for Target {
    fn from(object: &NodeMaintenance) -> Self {
        Self { node: node(object).to_owned(), name: object.name_any(), uid: uid(object) }
    }
}

/// How far a target is from its goal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not there yet.
    Open,
    /// There.
    Reached,
    /// The maintenance failed, and why; a blocked pod is no failure.
    Failed(String),
    /// The object is gone or going, so that it will never be drained.
    Deleted,
    /// It is gone, and another has its name.
    Replaced,
}

/// How far a target is from the goal, in a complete picture.
pub(crate) fn verdict(goal: Goal, target: &Target, picture: &Picture) -> Verdict {
    let object = picture.get(&target.uid);
    let state = object.map(State::of);
    match goal {
        Goal::Stopped => state.map_or(Verdict::Reached, |_| Verdict::Open),
        Goal::Drained => match state {
            None if picture.objects().any(|other| other.name_any() == target.name) => Verdict::Replaced,
            None | Some(State::Stopping) => Verdict::Deleted,
            Some(State::Drained) => Verdict::Reached,
            Some(State::Failed) => {
                Verdict::Failed(object.map(|object| status(object).last_error.clone()).unwrap_or_default())
            }
            Some(State::Requested | State::Queued | State::Draining | State::Blocked) => Verdict::Open,
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::maintenance::cache::fixture::picture;
    use crate::maintenance::fixture::{named, requested, running, stopping, with_status};

    #[track_caller]
    fn check(object: Option<NodeMaintenance>, drained: &Verdict, stopped: &Verdict) {
        let picture = picture(object);
        let target = Target::from(&requested("n1"));
        assert_eq!(verdict(Goal::Drained, &target, &picture), *drained);
        assert_eq!(verdict(Goal::Stopped, &target, &picture), *stopped);
    }

    #[test]
    fn waits_end_with_what_was_waited_for_or_what_rules_it_out() {
        use Verdict::{Deleted, Failed, Open, Reached, Replaced};

        check(Some(requested("n1")), &Open, &Open);
        check(Some(with_status("n1", json!({"phase": "Pending"}))), &Open, &Open);
        check(Some(with_status("n1", running(40, &[("a", "blocked")]))), &Open, &Open);
        check(Some(with_status("n1", json!({"phase": "Succeeded"}))), &Reached, &Open);
        let failed = with_status("n1", json!({"phase": "Failed", "lastError": "no such node"}));
        check(Some(failed), &Failed("no such node".into()), &Open);
        check(Some(stopping(requested("n1"))), &Deleted, &Open);
        check(None, &Deleted, &Reached);
        check(Some(named("n1", "n1", "another")), &Replaced, &Reached);
        check(Some(requested("n2")), &Deleted, &Reached);
    }
}
