//! Waits, played event by event.

use std::sync::Arc;
use std::time::Duration;

use nm_shared::NodeMaintenanceStatus;
use serde_json::json;

use super::*;
use crate::terminal::output::captured::{Captured, output};
use crate::testing::objects::{listed, named, requested, running, stopping, with_status};
use crate::watch::goal_tracker::ExitCondition;

fn noon() -> Timestamp {
    "2026-01-02T12:00:00.4Z".parse().unwrap()
}

pub(super) fn versioned(version: u32, mut object: NodeMaintenance) -> NodeMaintenance {
    object.metadata.resource_version = Some(version.to_string());
    object
}

fn change(change: WatchChange<NodeMaintenance>) -> LoopEvent {
    LoopEvent::Watch(WatchUpdate::Change(change))
}

/// A list of these objects, as a watch begins with.
pub(super) fn list(objects: Vec<NodeMaintenance>) -> Vec<LoopEvent> {
    vec![change(listed(objects))]
}

pub(super) fn applied(version: u32, object: NodeMaintenance) -> LoopEvent {
    change(WatchChange::Applied(Arc::new(versioned(version, object))))
}

/// Plays the events; returns the exit code if they led to one.
fn play(mut reporter: WaitReporter<'_>, events: Vec<LoopEvent>) -> Result<Option<Exit>, Error> {
    for event in events {
        if let ControlFlow::Break(exit) = reporter.react(event)? {
            return Ok(Some(exit));
        }
    }
    Ok(None)
}

fn wait(goal: Goal, nodes: &[&str], events: Vec<LoopEvent>) -> (Option<Exit>, Captured) {
    let (mut out, captured) = output();
    let targets = nodes.iter().map(|node| WaitTarget::from(&requested(node))).collect();
    let exit = play(
        WaitReporter::new(&mut out, ReportMode::Progress, GoalTracker::for_targets(goal, targets), ""),
        events,
    )
    .unwrap();
    (exit, captured)
}

pub(super) fn watch(
    goal: Option<Goal>,
    nodes: &[&str],
    events: Vec<LoopEvent>,
) -> (Result<Option<Exit>, Error>, Captured) {
    let (mut out, captured) = output();
    let nodes = nodes.iter().map(ToString::to_string).collect();
    let exit = play(
        WaitReporter::new(
            &mut out,
            ReportMode::Log(&noon),
            GoalTracker::new(nodes, goal.map_or(ExitCondition::Never, ExitCondition::Goal)),
            "",
        ),
        events,
    );
    (exit, captured)
}

#[test]
fn a_drain_is_over_when_every_node_is_drained() {
    let done = |node| with_status(node, json!({"phase": "Succeeded", "evictionPods": 2}));
    let mut events = list(vec![requested("n1"), requested("n2"), requested("other")]);
    events.push(applied(2, done("n1")));
    let (exit, captured) = wait(Goal::Drained, &["n1", "n2"], events);
    assert_eq!(exit, None);
    assert_eq!(captured.data(), "node/n1 drained: 2 pods gone\n");

    let mut events = list(vec![requested("n1"), requested("n2")]);
    events.extend([applied(2, done("n1")), applied(3, running_n2()), applied(4, done("n2"))]);
    let (exit, captured) = wait(Goal::Drained, &["n1", "n2"], events);
    assert_eq!(exit, Some(Exit::Done));
    assert_eq!(captured.data(), "node/n1 drained: 2 pods gone\nnode/n2 drained: 2 pods gone\n");
    assert_eq!(
        captured.messages(),
        "node/n2: Blocked 40%: 4 pods remaining (1 blocked, 1 terminating, 2 evicting), 4 gone\n\
         node/n2: blocked shop/cart-0: DisruptionBudget: budget cart has 1\n"
    );
}

fn running_n2() -> NodeMaintenance {
    with_status("n2", running(40, &[("cart-0", "budget cart has 1")]))
}

#[test]
fn a_drained_node_counts_as_drained_while_the_wait_goes_on() {
    let mut events = list(vec![with_status("n1", json!({"phase": "Succeeded"})), requested("n2")]);
    events.push(change(WatchChange::Deleted(Arc::new(requested("n1")))));
    events.push(applied(2, with_status("n2", json!({"phase": "Succeeded"}))));
    assert_eq!(wait(Goal::Drained, &["n1", "n2"], events).0, Some(Exit::Done));
}

#[test]
fn failure_and_deletion_end_a_wait_while_the_others_continue() {
    for (event, exit, expected) in [
        (
            applied(2, with_status("n1", json!({"phase": "Failed", "lastError": "no such node"}))),
            Exit::Failed,
            "node/n1: the maintenance failed: no such node\n",
        ),
        (
            applied(2, stopping(requested("n1"))),
            Exit::Lost,
            "node/n1: the maintenance was stopped at 2026-01-02T03:04:05Z, before the node was drained\n",
        ),
        (
            applied(2, stopping(with_status("n1", json!({"phase": "Succeeded"})))),
            Exit::Lost,
            "node/n1: the maintenance was stopped at 2026-01-02T03:04:05Z, after the node was drained\n",
        ),
        (
            change(WatchChange::Deleted(Arc::new(requested("n1")))),
            Exit::Lost,
            "node/n1: the maintenance was stopped before the node was drained\n",
        ),
    ] {
        let mut events = list(vec![requested("n1"), requested("n2")]);
        events.push(event);
        let (ended, captured) = wait(Goal::Drained, &["n1", "n2"], events);
        assert_eq!(ended, Some(exit));
        let messages = captured.messages();
        assert!(messages.contains(expected), "{messages}");
        assert!(
            messages.contains("maintenance continues: n2\nhint: `kubectl nm watch n2 --until drained`"),
            "{messages}"
        );
    }
    let (ended, captured) = wait(Goal::Drained, &["n1"], list(vec![named("n1", "n1", "later")]));
    assert_eq!(ended, Some(Exit::Lost));
    assert!(captured.messages().contains("another one was started"), "{}", captured.messages());
}

#[test]
fn a_stop_is_over_when_the_objects_are_gone() {
    let mut events = list(vec![stopping(requested("n1"))]);
    events.push(change(WatchChange::Deleted(Arc::new(stopping(requested("n1"))))));
    let (exit, captured) = wait(Goal::Stopped, &["n1"], events);
    assert_eq!((exit, captured.data().as_str()), (Some(Exit::Done), "node/n1 maintenance stopped\n"));
    let (exit, _) = wait(Goal::Stopped, &["n1"], list(vec![named("n1", "n1", "later")]));
    assert_eq!(exit, Some(Exit::Done));
}

#[test]
fn a_wait_without_progress_reports_why() {
    let mut events = list(vec![stopping(requested("n1"))]);
    events.push(LoopEvent::Heartbeat);
    let (exit, captured) = wait(Goal::Stopped, &["n1"], events);
    assert_eq!(exit, None);
    assert!(
        captured
            .messages()
            .contains("waiting for finalizers: foregroundDeleteNodeMaintenance; nm-reconciler removes")
    );

    let mut foreign = stopping(requested("n1"));
    foreign.metadata.finalizers = Some(vec!["example.com/audit".to_owned()]);
    let mut events = list(vec![foreign]);
    events.push(LoopEvent::Heartbeat);
    let messages = wait(Goal::Stopped, &["n1"], events).1.messages();
    assert!(messages.contains("node/n1: back in service; finalizers: example.com/audit\n"), "{messages}");
    assert!(!messages.contains("nm-reconciler"), "{messages}");

    let mut events = list(vec![requested("n1")]);
    events.push(LoopEvent::Heartbeat);
    let messages = wait(Goal::Drained, &["n1"], events).1.messages();
    assert!(messages.contains("nm-reconciler has not started the maintenance after "), "{messages}");
    assert!(messages.contains("; `kubectl nm explain n1` shows why"), "{messages}");

    let mut events = list(vec![with_status("n1", running(40, &[]))]);
    events.push(LoopEvent::Heartbeat);
    assert_eq!(wait(Goal::Drained, &["n1"], events).1.messages().lines().count(), 1);
}

#[test]
fn a_wait_without_other_lines_reports_its_progress() {
    let draining = |node: &str, progress| with_status(node, running(progress, &[]));
    let mut events = list(vec![draining("n1", 40)]);
    events.extend([LoopEvent::Heartbeat, applied(2, draining("n1", 60)), LoopEvent::Heartbeat]);
    let line = |progress: u8| {
        format!("node/n1: Draining {progress}%: 3 pods remaining (1 terminating, 2 evicting), 4 gone\n")
    };
    assert_eq!(wait(Goal::Drained, &["n1"], events).1.messages(), line(40) + &line(60));
    let mut events = list(vec![running_n2()]);
    events.extend([LoopEvent::Heartbeat, LoopEvent::Heartbeat, LoopEvent::Heartbeat]);
    let messages = wait(Goal::Drained, &["n2"], events).1.messages();
    let hint = "hint: `kubectl nm explain n2` shows what blocks pods, and what to do\n";
    assert_eq!(messages.matches(hint).count(), 1, "{messages}");

    let nodes = ["n1", "n2", "n3", "n4"];
    let mut events = list(nodes.map(|node| draining(node, 40)).into());
    events.extend([LoopEvent::Heartbeat, LoopEvent::Heartbeat]);
    let messages = wait(Goal::Drained, &nodes, events).1.messages();
    assert_eq!(messages.lines().last(), Some("4 Draining, 16 of 40 pods gone"), "{messages}");
}

/// The statuses of a drain of twenty pods without a blocked one.
fn healthy_drain() -> Vec<NodeMaintenanceStatus> {
    let turn = |pod: u32| {
        json!({"namespace": "shop", "name": format!("cart-{pod}"), "reason": "BudgetTurn",
            "since": "2026-01-02T03:04:05Z", "budget": {"name": "cart"}, "ahead": pod})
    };
    let pending = |left: u32| -> Vec<_> {
        (0..left).map(|pod| json!({"namespace": "shop", "name": format!("cart-{pod}")})).collect()
    };
    let queued = |position: u32| {
        json!({"phase": "Pending", "lastError": format!("position {position}"), "conditions": [
            {"type": "Drained", "status": "False", "reason": "MaxUnavailable", "message": "",
                "lastTransitionTime": "2026-01-02T03:04:05Z"}]})
    };
    let draining = |left: u32| {
        json!({"phase": "Running", "drainProgress": 100 - left * 5, "evictionPods": 20,
            "pendingPodsRefs": pending(left), "waitingPods": (0..left).map(turn).collect::<Vec<_>>(),
            "podCounts": {"waiting": left, "gone": 20 - left}})
    };
    let done = json!({"phase": "Succeeded", "evictionPods": 20, "podCounts": {"gone": 20}});
    let statuses = (1..6).rev().map(queued).chain((1..=20).rev().map(draining)).chain([done]);
    statuses.map(|status| serde_json::from_value(status).unwrap()).collect()
}

#[test]
fn a_healthy_drain_of_a_hundred_nodes_has_at_most_four_lines_for_each() {
    let nodes: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
    let names: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let statuses = healthy_drain();
    let events = || {
        let mut events = list(names.iter().map(|node| requested(node)).collect());
        for (version, status) in (2..).zip(&statuses) {
            let object = |node: &&str| NodeMaintenance { status: Some(status.clone()), ..requested(node) };
            events.extend(names.iter().map(|node| applied(version, object(node))));
        }
        events
    };
    // `start` itself has printed one line for each node.
    let (exit, captured) = wait(Goal::Drained, &names, events());
    assert_eq!(exit, Some(Exit::Done));
    let lines = captured.data().lines().count() + captured.messages().lines().count();
    assert_eq!(lines, 300, "queued, draining, drained");
    let (exit, captured) = watch(Some(Goal::Drained), &[], events());
    assert_eq!(exit.unwrap(), Some(Exit::Done));
    assert_eq!(captured.data().lines().count(), 400, "requested too");
    assert_eq!(captured.messages(), "");

    let (out, captured) = output();
    let tracker = GoalTracker::new(Vec::new(), ExitCondition::Goal(Goal::Drained));
    let mut out = out.verbose(true);
    play(WaitReporter::new(&mut out, ReportMode::Log(&noon), tracker, ""), events()).unwrap();
    assert!(captured.data().lines().count() > 100 * 20, "every pod on request");
}

#[test]
fn a_wait_that_ends_early_reports_the_states_and_how_to_resume() {
    for (event, exit, first) in [
        (LoopEvent::TimedOut(Duration::from_secs(90)), Exit::TimedOut, "timed out after 1m30s"),
        (LoopEvent::Interrupted, Exit::Interrupted, "interrupted"),
    ] {
        let mut events = list(vec![requested("n1")]);
        events.push(event);
        let (ended, captured) = wait(Goal::Drained, &["n1"], events);
        assert_eq!(ended, Some(exit));
        let messages: Vec<String> = captured.messages().lines().map(str::to_owned).collect();
        assert_eq!(
            messages,
            [
                first,
                "node/n1: Requested: nm-reconciler has not started the maintenance yet",
                "maintenance continues: n1",
                "hint: `kubectl nm watch n1 --until drained` resumes waiting, `kubectl nm stop n1` stops the maintenance",
            ]
        );
    }
}

#[test]
fn no_time_in_a_log_is_in_the_future() {
    let now = "2026-01-02T12:00:00.999Z".parse().unwrap();
    assert_eq!(timestamp(now).to_string(), "2026-01-02T12:00:00Z");
}

#[test]
fn a_log_has_the_time_and_goes_to_stdout() {
    let mut events = list(vec![requested("n2"), requested("n1")]);
    events.extend([change(WatchChange::Deleted(Arc::new(requested("n2")))), LoopEvent::Interrupted]);
    let (exit, captured) = watch(None, &[], events);
    assert_eq!(exit.unwrap(), Some(Exit::Interrupted));
    assert_eq!(
        captured.data(),
        "2026-01-02T12:00:00Z n1 Requested: nm-reconciler has not started the maintenance yet\n\
         2026-01-02T12:00:00Z n2 Requested: nm-reconciler has not started the maintenance yet\n\
         2026-01-02T12:00:00Z n2 Stopped: the maintenance was deleted\n"
    );
    assert_eq!(captured.messages(), "");
    let (exit, captured) = watch(None, &[], vec![LoopEvent::TimedOut(Duration::from_secs(90))]);
    assert_eq!(exit.unwrap(), Some(Exit::TimedOut));
    assert_eq!(captured.messages(), "timed out after 1m30s\n", "also without a goal");
}

#[test]
fn a_lost_connection_is_reported_and_what_changed_meanwhile_too() {
    let lost = Error::Refused { server: "https://c".into() };
    let mut events = list(vec![requested("n1"), requested("n2")]);
    events.push(LoopEvent::Watch(WatchUpdate::Lost { since: Timestamp::UNIX_EPOCH, error: lost }));
    events.push(LoopEvent::Heartbeat);
    events.extend(list(vec![requested("n2")]));
    events.push(LoopEvent::Watch(WatchUpdate::Live));
    let (_, captured) = watch(Some(Goal::Stopped), &[], events);
    assert!(captured.data().ends_with("n1 Stopped: the maintenance was deleted\n"));
    assert_eq!(captured.messages().lines().count(), 2);
    assert!(captured.messages().ends_with("reconnected\n"));
}

#[test]
fn a_watch_without_maintenances_ends_as_its_goal_demands() {
    let (exit, _) = watch(Some(Goal::Drained), &["n1"], list(vec![requested("n2")]));
    assert!(matches!(exit, Err(Error::NotInMaintenance(nodes)) if nodes == ["n1"]));
    let (exit, captured) = watch(Some(Goal::Stopped), &["n1"], list(vec![]));
    assert_eq!(
        (exit.unwrap(), captured.messages().as_str()),
        (Some(Exit::Done), "node/n1 is not in maintenance\n")
    );
    let (exit, captured) = watch(Some(Goal::Drained), &[], list(vec![]));
    assert_eq!((exit.unwrap(), captured.messages().as_str()), (Some(Exit::Done), "No maintenances found.\n"));
    let (exit, _) = watch(None, &["n1"], list(vec![]));
    assert_eq!(exit.unwrap(), None);
}

#[test]
fn a_wait_for_a_stop_reports_maintenances_that_nobody_stopped() {
    let mut events = list(vec![requested("n1"), stopping(requested("n2"))]);
    events.push(LoopEvent::Interrupted);
    let (exit, captured) = watch(Some(Goal::Stopped), &[], events);
    assert_eq!(exit.unwrap(), Some(Exit::Interrupted));
    let messages: Vec<String> = captured.messages().lines().map(str::to_owned).collect();
    assert_eq!(
        messages[3..],
        [
            "maintenance has not been stopped: n1",
            "hint: `kubectl nm stop n1` stops the maintenance, `kubectl nm watch n1 --until stopped` resumes waiting",
            "maintenance still stopping: n2",
            "hint: `kubectl nm watch n2 --until stopped` resumes waiting",
        ]
    );
    let (_, captured) = watch(Some(Goal::Stopped), &["n1"], vec![LoopEvent::Interrupted]);
    assert!(captured.messages().contains("in unknown state: n1"), "{}", captured.messages());
}

#[test]
fn a_wait_for_a_stop_does_not_report_blocked_pods() {
    let was = || stopping(with_status("n1", running(40, &[("cart-0", "budget cart has 1")])));
    let mut events = list(vec![was()]);
    events.push(change(WatchChange::Deleted(Arc::new(was()))));
    let (exit, captured) = wait(Goal::Stopped, &["n1"], events);
    assert_eq!(exit, Some(Exit::Done));
    assert_eq!(captured.data(), "node/n1 maintenance stopped\n");
    assert_eq!(captured.messages(), "");
}

#[test]
fn a_drain_that_times_out_together_with_its_wait_does_not_continue() {
    let cordoned = json!([{"type": "Cordoned", "status": "True", "reason": "Cordoned", "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
    let draining = |node| with_status(node, json!({"phase": "Running", "conditions": cordoned}));
    let both = || ["n1", "n2"].map(draining);
    let failed = with_status(
        "n1",
        json!({"phase": "Failed", "lastError": "the drain timed out after 60 s, 1 pod is left",
            "conditions": [{"type": "Drained", "status": "False", "reason": "TimedOut", "message": "",
                "lastTransitionTime": "2026-01-02T03:04:05Z"}]}),
    );
    let timed_out = || LoopEvent::TimedOut(Duration::from_secs(60));
    let queued = || applied(9, requested("n2"));
    for (last, left, others, exit) in [
        (vec![timed_out()], "n1, n2", "", Exit::TimedOut),
        (vec![applied(9, failed), timed_out()], "n2", "", Exit::TimedOut),
        (vec![queued(), timed_out()], "n1", "n2", Exit::TimedOut),
        (vec![LoopEvent::Interrupted], "", "n1, n2", Exit::Interrupted),
    ] {
        let (mut out, captured) = output();
        let targets: Vec<WaitTarget> = both().iter().map(WaitTarget::from).collect();
        let uids = targets.iter().map(|target| target.uid.clone()).collect();
        let tracker = GoalTracker::for_targets(Goal::Drained, targets).with_same_timeout(uids);
        let reporter = WaitReporter::new(&mut out, ReportMode::Progress, tracker, "");
        let events = list(both().into()).into_iter().chain(last).collect();
        assert_eq!(play(reporter, events).unwrap(), Some(exit));
        let said = captured.messages();
        let named = |what: &str| said.lines().find_map(|line| line.strip_prefix(what)).unwrap_or_default();
        assert_eq!(named("the drain has timed out too: "), left, "{said}");
        assert_eq!(named("maintenance continues: "), others, "{said}");
    }
}

#[test]
fn a_roll_that_halts_is_reported_once_to_those_who_watch_a_node_of_it() {
    let of_roll = |node: &str, halt: Option<u32>| {
        let mut object = requested(node);
        object.metadata.labels = Some([(String::from("kubectl-nm.dev/roll"), String::from("k2"))].into());
        let at = |minute| json!({"node": "n2", "message": "its command failed", "at": format!("2026-01-02T03:0{minute}:00Z")});
        let state = json!({"revision": 1, "halt": halt.map(at)}).to_string();
        let state = (node == "n2").then(|| (String::from("kubectl-nm.dev/roll-state"), state));
        object.metadata.annotations = state.map(|state| [state].into());
        object
    };
    let events = || {
        let mut events = list(vec![of_roll("n1", None), of_roll("n2", None), requested("n3")]);
        events.extend([
            applied(2, of_roll("n2", Some(1))),
            applied(3, of_roll("n2", Some(1))),
            applied(4, of_roll("n2", None)),
            applied(5, of_roll("n2", Some(2))),
        ]);
        events
    };
    let halted = "roll k2 halted: its command failed; `kubectl nm roll status k2` shows more\n";
    let (_, captured) = watch(None, &["n1"], events());
    assert_eq!(captured.data().matches(&format!("2026-01-02T12:00:00Z {halted}")).count(), 2);
    assert_eq!(watch(None, &["n3"], events()).1.data().matches("roll k2").count(), 0);
    let (_, captured) = wait(Goal::Drained, &["n1"], events());
    assert_eq!(captured.messages(), halted.repeat(2));
    assert_eq!(wait(Goal::Stopped, &["n1"], events()).1.messages(), "");
}

#[test]
fn a_node_that_was_deleted_is_reported_with_the_end_of_its_maintenance() {
    let deleted = DeletedNodes::known(&[&uid(&requested("n1"))]);
    let play_with = |goal: Goal, first: NodeMaintenance, events: Vec<LoopEvent>| {
        let (mut out, captured) = output();
        let tracker = GoalTracker::for_targets(goal, vec![WaitTarget::from(&requested("n1"))]);
        let reporter = WaitReporter::new(&mut out, ReportMode::Progress, tracker, "");
        let events = list(vec![first]).into_iter().chain(events).collect();
        let exit = play(reporter.with_deleted_nodes(&deleted), events).unwrap();
        (exit, captured)
    };
    let ends = vec![applied(2, stopping(requested("n1")))];
    let (exit, captured) = play_with(Goal::Drained, with_status("n1", running(40, &[])), ends);
    assert_eq!(exit, Some(Exit::Lost));
    let ends = "node/n1: Stopping: the node was deleted, and its maintenance ends\n\
                node/n1: the node was deleted before it was drained, and its maintenance with it\n";
    assert!(captured.messages().contains(ends), "{}", captured.messages());
    let gone = vec![change(WatchChange::Deleted(Arc::new(stopping(requested("n1")))))];
    let (exit, captured) = play_with(Goal::Stopped, stopping(requested("n1")), gone);
    assert_eq!(exit, Some(Exit::Done));
    assert_eq!(captured.data(), "node/n1 maintenance stopped: the node was deleted\n");
}

#[test]
fn a_wait_for_a_node_of_a_paused_roll_says_who_paused_it_and_how_it_continues() {
    let planned = |version: u32, paused: bool| {
        let mut object = with_status(
            "n1",
            json!({"phase": "Pending", "conditions": [{"type": "Suspended", "status": "True",
            "reason": "Planned", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}]}),
        );
        object.metadata.labels = Some([(String::from("kubectl-nm.dev/roll"), String::from("kernel"))].into());
        let pause = json!({"by": "ada@laptop", "at": "2026-01-02T03:04:05Z"});
        let state =
            json!({"revision": version, "paused": paused, "pause": paused.then_some(pause)}).to_string();
        object.metadata.annotations = Some([(String::from("kubectl-nm.dev/roll-state"), state)].into());
        versioned(version, object)
    };
    let mut events = list(vec![planned(1, false)]);
    events.extend([
        applied(2, planned(2, true)),
        LoopEvent::Heartbeat,
        applied(4, planned(4, false)),
        LoopEvent::Heartbeat,
    ]);
    let messages = wait(Goal::Drained, &["n1"], events).1.messages();
    let paused = "roll kernel is paused by ada@laptop since 2026-01-02T03:04:05Z: no further node, command or Job is started; \
                  `kubectl nm roll resume kernel` continues it\n";
    assert_eq!(messages.matches(paused).count(), 1, "{messages}");
    let stalled =
        "node/n1: the maintenance waits for its turn in roll kernel, which is paused by ada@laptop ";
    assert_eq!(messages.matches(stalled).count(), 1, "{messages}");
    assert!(
        messages.ends_with("kernel; `kubectl nm roll status kernel` shows how far it is\n"),
        "{messages}"
    );
}
