//! What rows say of nodes and pods that wait, and for how long drains take.

use std::sync::Arc;

use crossterm::event::KeyCode;
use jiff::SignedDuration;
use nm_core::client::watch_stream::WatchChange;
use nm_core::leader::gap::LeaderGap;
use nm_shared::NodeMaintenance;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use serde_json::{Value, json};

use crate::config::appearance::Appearance;
use crate::message::Message;
use crate::model::Options;
use crate::model::fleet::fleet_row::FleetRow;
use crate::objects::watch_state::{WatchKind, WatchState};
use crate::tests::painted::text;
use crate::tests::scenes::{
    ago, empty, fleet, maintenance, node, nodes, now, options, press, send, set_watch, worker_07,
};
use crate::view::canvas::Canvas;

fn condition(type_: &str, status: &str, reason: &str, since: i64) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": "", "observedGeneration": 1,
        "lastTransitionTime": ago(since)})
}

/// A node of roll k2 whose record has this step, with an action that runs. One of them has the record of the roll.
fn of_roll(node: &str, status: Value, step: &str, state: Option<&Value>) -> NodeMaintenance {
    let mut object = maintenance(node, 600, status);
    object.metadata.labels = Some([("kubectl-nm.dev/roll".to_owned(), "k2".to_owned())].into());
    let record = json!({"step": step, "action": {"attempt": 1, "state": "running"}});
    let record = ("kubectl-nm.dev/roll-node".to_owned(), record.to_string());
    let state = state.map(|state| ("kubectl-nm.dev/roll-state".to_owned(), state.to_string()));
    object.metadata.annotations = Some([record].into_iter().chain(state).collect());
    object
}

/// What the fleet shows of maintenances.
fn shown(objects: Vec<NodeMaintenance>, width: u16, height: u16) -> String {
    let mut model = empty(Options { size: (width, height), ..options() });
    let objects = objects.into_iter().map(Arc::new).collect();
    send(&mut model, Message::Maintenances(WatchChange::Listed(objects)));
    text(&model)
}

fn planned() -> Value {
    json!({"phase": "Pending", "conditions": [condition("Suspended", "True", "Planned", 600)]})
}

#[test]
fn a_planned_node_of_a_roll_names_who_runs_it() {
    let run = json!({"revision": 3, "runner": {"id": "1", "who": "ada@vm", "at": ago(20)}});
    let left = json!({"revision": 4});
    for (state, is_run) in [(&run, true), (&left, false)] {
        let acting = of_roll("node-08", json!({"phase": "Succeeded"}), "Acting", Some(state));
        let shown = shown(vec![of_roll("node-09", planned(), "Planned", None), acting], 145, 24);
        let why =
            if is_run { "waits for its turn in roll k2; run by ada@vm" } else { "nobody runs roll k2 now" };
        let row = shown.lines().find(|line| line.contains("○ Planned  ")).unwrap();
        assert!(row.contains(why), "{row}\n{shown}");
        assert_eq!(shown.contains("run by ada@vm"), is_run, "{shown}");
        let alone = self::shown(vec![of_roll("node-09", planned(), "Planned", Some(state))], 145, 24);
        assert!(alone.contains("kubectl nm roll status k2"), "{alone}");
        // Its program has ended, and its command with it.
        let acting = if is_run { "roll k2 has started its action" } else { "nobody runs roll k2 now" };
        assert!(shown.contains(acting), "{shown}");
    }
}

#[test]
fn a_planned_node_whose_roll_waits_for_its_window_says_when_that_opens() {
    let state = json!({"revision": 3, "runner": {"id": "1", "who": "ada@vm", "at": ago(20)}});
    let mut object = of_roll("node-09", planned(), "Planned", Some(&state));
    let settings = json!({"windows": ["Sat 22:00-04:00 Europe/Berlin"]}).to_string();
    object.metadata.annotations.as_mut().unwrap().insert("kubectl-nm.dev/roll-settings".to_owned(), settings);
    let shown = shown(vec![object], 200, 24);
    let why = "roll k2: the window opens at Sat 03 Jan 22:00 CET; run by ada@vm";
    assert!(shown.contains(why), "{shown}");
}

#[test]
fn a_node_that_somebody_has_to_confirm_names_who_is_asked_unless_the_roll_has_halted() {
    let run = json!({"revision": 3, "runner": {"id": "1", "who": "ada@vm", "at": ago(20)}});
    let halted = json!({"revision": 3, "halt": {"node": "node-08", "message": "m", "at": ago(20)}});
    for (state, why) in [(run, "roll k2 needs a confirmation; run by ada@vm"), (halted, "roll k2 has halted")]
    {
        let drained = json!({"phase": "Succeeded"});
        let shown = shown(vec![of_roll("node-08", drained, "Confirming", Some(&state))], 145, 24);
        let is_shown = shown.lines().any(|line| line.contains("10m00s") && line.contains(why));
        assert!(is_shown && !shown.contains("waits for a confirmation"), "{shown}");
    }
}

#[test]
fn a_drained_node_to_which_a_pod_comes_says_why_it_drains_again() {
    let status = json!({"phase": "Succeeded", "firstDrained": ago(500), "evictionPods": 3, "pendingPods": ["late"],
        "podCounts": {"gone": 3, "terminating": 1}, "conditions": [
        condition("Cordoned", "True", "Cordoned", 508), condition("Drained", "False", "Evicting", 15)]});
    let shown = shown(vec![maintenance("node-08", 600, status)], 145, 24);
    assert!(shown.contains("1 pod came after the node was drained"), "{shown}");
}

#[test]
fn a_node_that_waits_for_a_paused_roll_names_who_paused_it() {
    let state = json!({"revision": 3, "runner": {"id": "1", "who": "ada@vm", "at": ago(20)},
        "paused": true, "pause": {"by": "bob@desk", "at": ago(720)}});
    let suspended =
        json!({"phase": "Running", "conditions": [condition("Suspended", "True", "Paused", 600)]});
    let objects = vec![
        of_roll("node-07", suspended, "Draining", Some(&state)),
        of_roll("node-08", json!({"phase": "Succeeded"}), "Draining", None),
        of_roll("node-09", planned(), "Planned", None),
        of_roll("node-10", json!({"phase": "Succeeded"}), "Acting", None),
    ];
    let shown = shown(objects, 240, 24);
    let is_row = |line: &&str| line.contains("10m00s");
    let why = |node: &str| shown.lines().filter(is_row).find(|line| line.contains(node)).unwrap();
    for node in ["node-07", "node-08", "node-09"] {
        assert!(why(node).contains("roll k2 is paused by bob@desk 12m ago"), "{shown}");
    }
    assert!(why("node-10").contains("roll k2 has started its action"), "an action continues: {shown}");
    assert!(shown.contains("kubectl nm roll resume k2"), "{shown}");
}

#[test]
fn the_elapsed_time_is_that_of_the_drain_and_does_not_grow_with_later_statuses() {
    let drained = json!({"phase": "Succeeded", "lastUpdate": ago(10), "conditions": [
        condition("Cordoned", "True", "Cordoned", 508), condition("Drained", "True", "Drained", 500)]});
    let failed = json!({"phase": "Failed", "lastUpdate": ago(10), "conditions": [
        condition("Cordoned", "True", "Cordoned", 133), condition("Drained", "False", "TimedOut", 133)]});
    let running = json!({"phase": "Running", "conditions": [
        condition("Cordoned", "True", "Cordoned", 30), condition("Drained", "False", "Evicting", 30)]});
    let mut again = drained.clone();
    again["firstDrained"] = json!(ago(500));
    again["conditions"][1] = condition("Drained", "True", "Drained", 20);
    let mut returned = again.clone();
    returned["conditions"][1] = condition("Drained", "False", "Evicting", 15);
    for (status, timeout, expected) in
        [(drained, 0, 8), (failed, 60, 60), (running, 0, 30), (again, 0, 8), (returned, 0, 15)]
    {
        let mut object = maintenance("node-08", 600, status);
        object.spec.drain = serde_json::from_value(json!({"timeoutSeconds": timeout})).unwrap();
        assert_eq!(FleetRow::of(&object).seconds(now()), Some(expected));
    }
}

#[test]
fn the_time_of_an_open_node_that_is_paused_or_stops_is_since_then() {
    let mut status = json!({"phase": "Running", "evictionPods": 2, "podCounts": {"waiting": 2},
        "conditions": [condition("Cordoned", "True", "Cordoned", 81), condition("Suspended", "True", "Paused", 4)]});
    let first_line = |object: NodeMaintenance| {
        let mut model = empty(Options { nodes: vec!["worker-07".into()], size: (120, 24), ..options() });
        send(&mut model, Message::Maintenances(WatchChange::Listed(vec![Arc::new(object)])));
        text(&model).lines().next().unwrap().to_owned()
    };
    let paused = maintenance("worker-07", 90, status.clone());
    assert!(first_line(paused.clone()).contains("Paused 4s"), "{}", first_line(paused));
    status["conditions"][1] = condition("Suspended", "False", "Resumed", 4);
    let mut object = maintenance("worker-07", 90, status);
    assert!(first_line(object.clone()).contains("Draining 1m21s"), "{}", first_line(object));
    object.metadata.deletion_timestamp = serde_json::from_value(json!(ago(7))).unwrap();
    assert!(first_line(object.clone()).contains("Stopping 7s"), "{}", first_line(object));
}

fn waiting(counts: &Value) -> Value {
    let pod = |name: &str| {
        json!({"namespace": "hard2", "name": name, "reason": "BudgetTurn", "since": ago(8),
            "budget": {"name": "pinned", "desiredHealthy": 2, "currentHealthy": 2}})
    };
    json!({"phase": "Running", "drainProgress": 93, "evictionPods": 32, "podCounts": counts,
        "waitingPods": [pod("pinned-6nfnpnn9bv-jh4xz"), pod("pinned-6nfnpnn9bv-zz7k2")],
        "pendingPodsRefs": [{"namespace": "hard2", "name": "pinned-6nfnpnn9bv-jh4xz"},
            {"namespace": "hard2", "name": "pinned-6nfnpnn9bv-zz7k2"}],
        "conditions": [condition("Cordoned", "True", "Cordoned", 37), condition("Drained", "False", "Evicting", 37)]})
}

#[test]
fn a_node_whose_pods_all_wait_says_for_what() {
    let why = |counts: Value| shown(vec![maintenance("node-03", 60, waiting(&counts))], 160, 24);
    let idle = why(json!({"gone": 30, "waiting": 2}));
    assert!(idle.contains("2 wait for budget hard2/pinned"), "{idle}");
    let moving = why(json!({"gone": 29, "waiting": 2, "terminating": 1}));
    assert!(!moving.contains("wait for budget"), "{moving}");
}

#[test]
fn an_open_node_shows_what_waits_in_80_columns_and_no_estimate_while_nothing_moves() {
    let mut model = empty(Options { size: (80, 24), ..options() });
    let object = maintenance("node-03", 60, waiting(&json!({"gone": 30, "waiting": 2})));
    send(&mut model, Message::Maintenances(WatchChange::Listed(vec![Arc::new(object)])));
    press(&mut model, KeyCode::Enter);
    // Without permission to list pods, the status names them.
    set_watch(&mut model, WatchKind::Pods, WatchState::Forbidden(String::from("pods")));
    let shown = text(&model);
    assert!(shown.contains("no ETA while waiting"), "{shown}");
    assert!(shown.contains("-jh4xz") && shown.contains("-zz7k2"), "{shown}");
    assert!(shown.contains("budget pinned: 1 more"), "{shown}");
}

#[test]
fn a_user_who_may_not_list_pods_is_given_no_estimate_that_their_grace_periods_may_exceed() {
    let mut model = node(options());
    assert!(text(&model).contains("ETA ~"), "{}", text(&model));
    set_watch(&mut model, WatchKind::Pods, WatchState::Forbidden(String::from("pods")));
    let shown = text(&model);
    assert!(shown.contains("ETA -") && !shown.contains("ETA ~"), "{shown}");
}

#[test]
fn a_drained_node_that_something_keeps_uncordoning_says_so() {
    let conditions = json!([condition("Cordoned", "True", "Cordoned", 37), condition("Drained", "True", "Drained", 37),
        {"type": "Degraded", "status": "True", "reason": "CordonContested", "lastTransitionTime": "2026-01-01T00:00:00Z",
            "message": "something keeps uncordoning node node-03"}]);
    let drained = json!({"phase": "Succeeded", "evictionPods": 3, "conditions": conditions});
    let shown = shown(vec![maintenance("node-03", 60, drained)], 160, 24);
    assert!(shown.contains("Something keeps uncordoning node node-03"), "in full: {shown}");
}

#[test]
fn a_long_name_is_cut_in_its_middle() {
    let mut buffer = Buffer::empty(Rect::new(0, 0, 1, 1));
    let canvas = Canvas::new(&mut buffer, Appearance::default());
    for (width, expected) in [
        (29, "hard2/pinned-6nfnpnn9bv-jh4xz"),
        (28, "hard2/pinned-6nfnpn…bv-jh4xz"),
        (12, "hard2/…jh4xz"),
        (1, "…"),
    ] {
        assert_eq!(canvas.cut_in_middle("hard2/pinned-6nfnpnn9bv-jh4xz", width), expected);
    }
}

#[test]
fn details_take_the_rows_that_a_short_list_leaves_and_begin_with_what_to_do() {
    let mut model = node(Options { size: (80, 24), ..options() });
    press(&mut model, KeyCode::Esc);
    let objects = vec![Arc::new(worker_07())];
    send(&mut model, Message::Maintenances(WatchChange::Listed(objects)));
    press(&mut model, KeyCode::Char('v'));
    let shown = text(&model);
    let lines: Vec<&str> = shown.lines().collect();
    let title = lines.iter().position(|line| line.contains("DETAILS")).unwrap();
    assert!(title <= 6, "the list has one row: {shown}");
    let remedy = lines.iter().position(|line| line.contains("kubectl nm explain worker-07")).unwrap();
    assert!(remedy > title && remedy <= title + 8, "{shown}");
}

#[test]
fn without_a_leader_nobody_returns_a_node_to_service() {
    let mut model = fleet(options());
    send(&mut model, Message::Leader(Some(LeaderGap::NotInstalled)));
    let shown = text(&model);
    assert!(shown.contains("nobody returns the node") && !shown.contains("is returning"), "{shown}");
    send(&mut model, Message::Leader(None));
    assert!(text(&model).contains("the node is returning to service"), "{}", text(&model));
}

#[test]
fn a_node_that_was_deleted_does_not_return_to_service() {
    let mut model = fleet(options());
    assert!(text(&model).contains("the node is returning to service"), "{}", text(&model));
    send(&mut model, Message::Tick(now() + SignedDuration::from_secs(60)));
    assert!(text(&model).contains("not back in service after 1m5s"), "{}", text(&model));
    let left = nodes().into_iter().filter(|node| node.name != "worker-01").collect();
    send(&mut model, Message::Nodes(WatchChange::Listed(left)));
    let shown = text(&model);
    assert!(shown.contains("the node was deleted") && !shown.contains("returning to service"), "{shown}");
}
