//! The causes of a roll that nobody runs.

use serde_json::{Value, json};

use super::*;
use crate::maintenance::ROLL_LABEL;
use crate::maintenance::roll::STATE;
use crate::testing::objects::{running, with_status};

const STUCK: &str = "Job a/b is starting: pod p: ImagePullBackOff: no such image";

/// The cause of a node of roll k2, which nobody runs and whose Job shows this.
fn cause(phase: &str, suspended: bool, job: Option<RollJob>) -> Cause {
    let mut status = running(40, &[]);
    status["phase"] = Value::from(phase);
    if suspended {
        status = json!({"phase": "Pending", "conditions": [{"type": "Suspended", "status": "True",
            "reason": "Planned", "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z"}]});
    }
    let mut object = with_status("n1", status);
    object.metadata.labels = Some([(ROLL_LABEL.to_owned(), "k2".to_owned())].into());
    object.metadata.annotations = Some([(STATE.to_owned(), json!({"revision": 2}).to_string())].into());
    let mut facts = ClusterFacts::of_maintenances([&object]);
    facts.roll_jobs.extend(job.map(|job| ("k2".to_owned(), job)));
    let now = Timestamp::from_second(900).unwrap();
    if suspended {
        super::suspended(&object, &facts, "kubectl", now)
    } else {
        left_by_roll(&object, &facts, "kubectl", now).unwrap()
    }
}

#[test]
fn a_roll_that_nobody_runs_is_a_cause_of_each_of_its_nodes_whatever_their_state() {
    let stays = "Nobody runs roll k2, so the node stays in maintenance.";
    let (status, resume) = ("kubectl nm roll status k2", "kubectl nm roll resume k2");
    for phase in ["Running", "Succeeded"] {
        let cause = cause(phase, false, None);
        assert!(!cause.passes(), "{phase}");
        assert_eq!(
            (cause.what, cause.commands),
            (vec![stays.into()], vec![status.into(), resume.into(), "kubectl nm stop n1".into()])
        );
    }
    let planned = cause("", true, None);
    assert_eq!(planned.what, ["Nobody runs roll k2, so the maintenance does not start."]);
    assert_eq!((planned.passes(), planned.commands), (false, vec![status.into(), resume.into()]));
}

#[test]
fn a_planned_node_of_a_roll_that_somebody_has_aborted_does_not_start() {
    let state = |more: Value| {
        let mut object = with_status(
            "n1",
            json!({"phase": "Pending", "conditions": [{"type": "Suspended",
            "status": "True", "reason": "Planned", "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z"}]}),
        );
        object.metadata.labels = Some([(ROLL_LABEL.to_owned(), "k2".to_owned())].into());
        object.metadata.annotations = Some([(STATE.to_owned(), more.to_string())].into());
        let mut facts = ClusterFacts::of_maintenances([&object]);
        let stuck = RollJob::Stuck { words: STUCK.into(), is_image: true };
        facts.roll_jobs.insert("k2".to_owned(), stuck);
        suspended(&object, &facts, "kubectl", Timestamp::from_second(900).unwrap())
    };
    let aborted = state(json!({"revision": 2, "paused": true, "aborted": "ada@vm",
        "runner": {"id": "x", "who": "ada@vm", "at": "1970-01-01T00:15:00Z"}}));
    assert_eq!(aborted.what, ["ada@vm aborted roll k2: the maintenance does not start."]);
    assert_eq!(aborted.commands, ["kubectl nm roll abort k2"]);
    // What repairs the Job of a paused roll ends the pause.
    let paused = state(json!({"revision": 2, "paused": true,
        "pause": {"by": "bob@desk", "at": "1970-01-01T00:10:00Z"}}));
    assert_eq!(paused.what.last().unwrap(), "bob@desk paused roll k2 at 1970-01-01 00:10:00 UTC.");
    assert!(paused.advice.ends_with(", which also ends the pause"), "{paused:?}");
}

#[test]
fn a_planned_maintenance_names_the_hooks_that_it_will_wait_for_apart_from_that_of_its_roll() {
    let (evicts, returns) = ("pre-drain.hook.kubectl-nm.dev", "pre-return.hook.kubectl-nm.dev");
    let none: &[&str] = &[];
    let planned = json!({"type": "Suspended", "status": "True", "reason": "Planned", "message": "",
        "lastTransitionTime": "1970-01-01T00:00:00Z"});
    let paused = json!({"type": "Suspended", "status": "True", "reason": "Paused", "message": "",
        "lastTransitionTime": "1970-01-01T00:00:00Z"});
    let ceph = (format!("{evicts}/ceph"), "storage");
    let heal = (format!("{returns}/heal"), "");
    let own = (format!("{evicts}/roll"), "roll/k2");
    let waits_for_ceph = "No pod is evicted then until hook ceph (owner: storage) is removed.";
    for (condition, hooks, expected) in [
        (&planned, vec![], none),
        (&planned, vec![own.clone()], none),
        (
            &planned,
            vec![ceph.clone(), own, heal],
            &[waits_for_ceph, "The node does not return to service then until hook heal is removed."],
        ),
        (&paused, vec![ceph], none),
    ] {
        let mut object = with_status("n1", json!({"phase": "Pending", "conditions": [condition]}));
        object.metadata.labels = Some([(ROLL_LABEL.to_owned(), "k2".to_owned())].into());
        let state = json!({"revision": 2, "paused": true, "pause": {"by": "bob", "at": "1970-01-01T00:10:00Z"},
            "runner": {"id": "x", "who": "ada@vm", "at": "1970-01-01T00:15:00Z"}});
        let hooks = hooks.into_iter().map(|(name, owner)| (name, owner.to_owned()));
        object.metadata.annotations = Some(hooks.chain([(STATE.to_owned(), state.to_string())]).collect());
        let facts = ClusterFacts::of_maintenances([&object]);
        let cause = suspended(&object, &facts, "kubectl", Timestamp::from_second(900).unwrap());
        let named: Vec<&String> = cause.what.iter().filter(|text| text.contains("hook")).collect();
        assert_eq!(named, expected);
    }
}

#[test]
fn an_aborted_roll_that_still_drains_a_node_says_that_its_action_follows() {
    let mut object = with_status("n1", running(40, &[]));
    object.metadata.labels = Some([(ROLL_LABEL.to_owned(), "k2".to_owned())].into());
    let state = json!({"revision": 2, "paused": true, "aborted": "ada@vm",
        "runner": {"id": "x", "who": "bob@desk", "at": "1970-01-01T00:15:00Z"}});
    object.metadata.annotations = Some([(STATE.to_owned(), state.to_string())].into());
    let facts = ClusterFacts::of_maintenances([&object]);
    let cause = left_by_roll(&object, &facts, "kubectl", Timestamp::from_second(900).unwrap()).unwrap();
    let what =
        "Roll k2 was aborted: bob@desk still drains the node, runs its action, and returns it to service.";
    assert_eq!((cause.what[0].as_str(), cause.passes()), (what, true));
    assert_eq!(cause.commands, ["kubectl nm stop n1"]);
}

#[test]
fn a_job_that_cannot_start_is_repaired_by_what_changes_it_and_not_by_a_resume() {
    let stuck = |is_image| RollJob::Stuck { words: STUCK.into(), is_image };
    for planned in [false, true] {
        let cause = cause("Succeeded", planned, Some(stuck(true)));
        assert!(!cause.passes() && cause.what[0].ends_with(&format!("{STUCK}.")), "{:?}", cause.what);
        assert_eq!(cause.commands[0], "kubectl nm roll resume k2 --runner-image IMAGE");
    }
    let other = cause("Succeeded", true, Some(stuck(false)));
    assert_eq!(
        other.commands,
        ["kubectl describe pods -n node-maintenance-rolls -l kubectl-nm.dev/roll-runner=k2"]
    );
    let starting = cause("Succeeded", true, Some(RollJob::Starting("Job a/b is starting".into())));
    assert_eq!((starting.passes(), starting.commands), (true, other.commands));
    let unread = cause("Succeeded", true, Some(RollJob::Unread("jobs is forbidden".into())));
    assert!(!unread.passes() && unread.what[0].contains("unless its Job is starting"), "{:?}", unread.what);
}

#[test]
fn a_planned_node_names_the_window_of_its_roll_even_if_its_turn_is_not_known() {
    let planned = json!({"phase": "Pending", "conditions": [{"type": "Suspended", "status": "True",
        "reason": "Planned", "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z"}]});
    let mut object = with_status("n1", planned);
    object.metadata.labels = Some([(ROLL_LABEL.to_owned(), "k2".to_owned())].into());
    let state =
        json!({"revision": 2, "runner": {"id": "x", "who": "bob@desk", "at": "1970-01-01T00:15:00Z"}});
    let settings = json!({"windows": ["14:00-15:00 UTC"]});
    let annotations = [(STATE, state), ("kubectl-nm.dev/roll-settings", settings)];
    object.metadata.annotations =
        Some(annotations.map(|(key, value)| (key.to_owned(), value.to_string())).into());
    let facts = ClusterFacts::of_maintenances([&object]);
    let cause = suspended(&object, &facts, "kubectl", Timestamp::from_second(900).unwrap());
    assert_eq!(cause.what[1..], ["The window opens at Thu 01 Jan 14:00 UTC."]);
}
