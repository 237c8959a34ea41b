//! The log of a watch.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::tests::{applied, list, versioned, watch};
use super::*;
use crate::maintenance::roll::STATE;
use crate::terminal::output::captured::output;
use crate::testing::objects::{listed, requested, with_status};
use crate::watch::goal_tracker::ExitCondition;

#[test]
fn a_log_names_surges_that_take_long_and_counts_those_of_many_nodes() {
    let surging = |node: &str| {
        let pod = json!({"namespace": "shop", "name": "web-x", "deployment": "web", "restarted": true,
            "since": "2026-01-02T03:04:05Z", "replacement": {"name": "web-y", "node": "n2", "ready": false}});
        with_status(node, json!({"phase": "Running", "surgingPods": [pod]}))
    };
    let logged = |nodes: &[&str]| {
        let (mut out, captured) = output();
        let tracker = GoalTracker::new(Vec::new(), ExitCondition::Never);
        let clock = || Timestamp::UNIX_EPOCH;
        let mut reporter = WaitReporter::new(&mut out, ReportMode::Log(&clock), tracker, "");
        let all = listed(nodes.iter().map(|node| surging(node)));
        for event in [LoopEvent::Watch(WatchUpdate::Change(all)), LoopEvent::Heartbeat] {
            assert!(reporter.react(event).unwrap().is_continue());
        }
        captured.data().lines().last().unwrap().to_owned()
    };
    assert_eq!(
        logged(&["n1"]),
        "1970-01-01T00:00:00Z node/n1: surge of Deployment shop/web: 1 of its new pods is not Ready; \
         `kubectl nm explain n1` shows why"
    );
    assert_eq!(
        logged(&["n1", "n2", "n3", "n4"]),
        "1970-01-01T00:00:00Z the surges of 4 nodes take long; `kubectl nm explain` shows why"
    );
}

#[test]
fn a_wait_until_all_is_complete_names_the_nodes_that_are_not_when_it_ends_early() {
    let ended = |drained: usize, all: usize, event: LoopEvent| {
        let (mut out, captured) = output();
        let tracker = GoalTracker::new(Vec::new(), ExitCondition::AllComplete);
        let clock = || Timestamp::UNIX_EPOCH;
        let mut reporter = WaitReporter::new(&mut out, ReportMode::Log(&clock), tracker, "");
        let node = |at: usize| {
            let name = format!("n{at:02}");
            if at < drained { with_status(&name, json!({"phase": "Succeeded"})) } else { requested(&name) }
        };
        assert!(reporter.react(list((0..all).map(node).collect()).remove(0)).unwrap().is_continue());
        assert!(reporter.react(event).unwrap().is_break());
        captured.messages()
    };
    let timed_out = || LoopEvent::TimedOut(Duration::from_secs(90));
    let requested = "Requested: nm-reconciler has not started the maintenance yet";
    assert_eq!(ended(1, 2, timed_out()), format!("timed out after 1m30s\nnode/n01: {requested}\n"));
    assert_eq!(ended(1, 2, LoopEvent::Interrupted), format!("interrupted\nnode/n01: {requested}\n"));
    let many = ended(1, 13, timed_out());
    assert_eq!(many.lines().count(), 12, "{many}");
    assert!(many.ends_with(&format!("node/n10: {requested}\nand 2 more: 2 Requested\n")), "{many}");
}

#[test]
fn a_log_says_once_that_nobody_runs_a_roll_and_once_that_somebody_runs_it_again() {
    let of_roll = |version: u32, runner: &Value| {
        let planned = json!([{"type": "Suspended", "status": "True", "reason": "Planned", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
        let mut object =
            versioned(version, with_status("n1", json!({"phase": "Pending", "conditions": planned})));
        object.metadata.labels = Some([("kubectl-nm.dev/roll".to_owned(), "k2".to_owned())].into());
        let state = json!({"revision": version, "runner": runner}).to_string();
        object.metadata.annotations = Some([(STATE.to_owned(), state)].into());
        object
    };
    let runner = |at: Timestamp| json!({"id": "x", "who": "ada@vm", "at": at});
    let (silent, live) = (runner(Timestamp::UNIX_EPOCH), runner(Timestamp::now()));
    let (mut out, captured) = output();
    let clock = || Timestamp::UNIX_EPOCH;
    let tracker = GoalTracker::new(vec![String::from("n1")], ExitCondition::Never);
    let mut reporter = WaitReporter::new(&mut out, ReportMode::Log(&clock), tracker, " --context=c");
    for event in [
        LoopEvent::Watch(WatchUpdate::Change(listed([of_roll(
            1,
            &runner(Timestamp::from_second(-15).unwrap()),
        )]))),
        LoopEvent::Heartbeat,
        // The clock of its computer is slow.
        applied(2, of_roll(2, &silent)),
        LoopEvent::Heartbeat,
        LoopEvent::Heartbeat,
        LoopEvent::Heartbeat,
        applied(3, of_roll(3, &live)),
        LoopEvent::Heartbeat,
        LoopEvent::Heartbeat,
    ] {
        assert!(reporter.react(event).unwrap().is_continue());
    }
    let logged = captured.data();
    let of_rolls: Vec<&str> = logged.lines().filter(|line| line.contains(" roll k2")).collect();
    assert_eq!(
        of_rolls,
        [
            "1970-01-01T00:00:00Z n1 Planned: waits for its turn in roll k2",
            "1970-01-01T00:00:00Z nobody runs roll k2 now: `kubectl nm roll status k2 --context=c` shows whether it continues \
             by itself",
            "1970-01-01T00:00:00Z ada@vm runs roll k2",
        ],
        "{logged}"
    );
    let at = |what: &str| logged.lines().position(|line| line.contains(what)).unwrap();
    assert_eq!(at("nobody runs roll k2") - at("n1 Planned"), 3, "at the third heartbeat: {logged}");
}

#[test]
fn a_log_has_the_times_at_which_the_connection_was_lost_and_restored() {
    let lost = Error::Refused { server: "https://c".into() };
    let mut events = list(vec![requested("n1")]);
    events.extend([
        LoopEvent::Watch(WatchUpdate::Lost { since: Timestamp::UNIX_EPOCH, error: lost }),
        LoopEvent::Watch(WatchUpdate::Live),
    ]);
    let (_, captured) = watch(None, &[], events);
    let messages: Vec<String> = captured.messages().lines().map(str::to_owned).collect();
    assert!(messages[0].starts_with("2026-01-02T12:00:00Z connection lost: "), "{messages:?}");
    assert_eq!(messages[1], "2026-01-02T12:00:00Z reconnected");
}

/// A planned node of a roll whose runner was seen `seen`, and whose window opens on Saturdays.
fn waits_for_window(seen: &str, revision: i32) -> NodeMaintenance {
    let planned = json!([{"type": "Suspended", "status": "True", "reason": "Planned", "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
    let mut object = with_status("n1", json!({"phase": "Pending", "conditions": planned}));
    object.metadata.labels = Some([("kubectl-nm.dev/roll".to_owned(), "k2".to_owned())].into());
    let state = json!({"revision": revision, "runner": {"id": "x", "who": "ada@vm", "at": seen}});
    let annotations =
        [(STATE, state), ("kubectl-nm.dev/roll-settings", json!({"windows": ["Sat 12:00-13:00 UTC"]}))];
    object.metadata.annotations =
        Some(annotations.map(|(key, value)| (key.to_owned(), value.to_string())).into());
    object
}

#[test]
fn a_log_says_once_that_a_roll_waits_for_its_window_and_when_that_opens() {
    // The clock of the watch is ahead, so that its runner seems to be silent in between.
    let mut events = list(vec![waits_for_window("2026-01-02T12:00:00Z", 1)]);
    for (at, seen) in ["2026-01-02T11:50:00Z", "2026-01-02T12:00:00Z"].into_iter().enumerate() {
        let object = waits_for_window(seen, i32::try_from(at).unwrap() + 2);
        events.push(LoopEvent::Watch(WatchUpdate::Change(WatchChange::Applied(Arc::new(object)))));
        events.push(LoopEvent::Heartbeat);
    }
    let (_, captured) = watch(None, &[], events);
    let logged = captured.data();
    let of_windows: Vec<&str> = logged.lines().filter(|line| line.contains("window")).collect();
    assert_eq!(
        of_windows,
        ["2026-01-02T12:00:00Z roll k2 starts no node now: the window opens at Sat 03 Jan 12:00 UTC"],
        "{logged}"
    );
}
