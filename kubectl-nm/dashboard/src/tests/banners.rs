//! The notices above the rows: that no reconciler leads, rolls that have halted, and nodes that are not Ready.

use std::sync::Arc;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use nm_core::client::watch_stream::WatchChange;
use nm_core::leader::gap::LeaderGap;
use nm_core::terminal::text::Line;
use nm_roll::record::{NODE, SETTINGS, STATE};
use nm_shared::NodeMaintenance;
use serde_json::json;

use crate::message::{Effect, Message};
use crate::model::dialogs::start_preview::{DrainPlan, PlanRequest};
use crate::model::{Model, Options};
use crate::objects::node_metadata::{NodeDetails, NodeMetadata, NodeReadiness};
use crate::objects::watch_state::{WatchKind, WatchState};
use crate::tests::painted::text;
use crate::tests::scenes::{
    ago, empty, fleet, maintenance, node, now, options, press, send, set_watch, type_in,
};

/// How often a text is on the screen, whose lines may be broken.
fn count(model: &Model, what: &str) -> usize {
    let screen = text(model);
    screen.split_whitespace().collect::<Vec<_>>().join(" ").matches(what).count()
}

#[test]
fn where_no_reconciler_leads_the_fleet_and_a_node_report_it_once() {
    for size in [(80, 24), (120, 40)] {
        for mut model in [fleet(Options { size, ..options() }), node(Options { size, ..options() })] {
            assert_eq!(count(&model, "No nm-reconciler leads"), 0);
            send(&mut model, Message::Leader(Some(LeaderGap::Released { at: now() })));
            assert_eq!(count(&model, "No nm-reconciler leads"), 1, "{}", text(&model));
            assert_eq!(count(&model, "kubectl nm doctor"), 1, "{}", text(&model));
            send(&mut model, Message::Leader(None));
            assert_eq!(count(&model, "No nm-reconciler leads"), 0);
        }
    }
}

#[test]
fn where_nothing_is_installed_that_is_reported_while_a_node_waits_for_its_maintenance() {
    let mut model = empty(options());
    set_watch(&mut model, WatchKind::Maintenances, WatchState::Live);
    send(&mut model, Message::Leader(Some(LeaderGap::NotInstalled)));
    let named = |name: &str, seconds, status| {
        let mut object = maintenance("w1", seconds, status);
        (object.metadata.name, object.metadata.uid) = (Some(name.to_owned()), Some(name.to_owned()));
        Arc::new(object)
    };
    let requested = |seconds| named("a", seconds, json!(null));
    let begun = || named("b", 90, json!({"phase": "Running"}));
    for (objects, expected) in [
        (vec![], 0),
        (vec![begun()], 0),
        (vec![requested(9)], 1),
        // The oldest maintenance of a node counts, as in nm-reconciler.
        (vec![begun(), requested(9)], 0),
        (vec![begun(), requested(900)], 1),
    ] {
        send(&mut model, Message::Maintenances(WatchChange::Listed(objects)));
        assert_eq!(count(&model, "No nm-reconciler was found"), expected, "{}", text(&model));
    }
}

#[test]
fn where_the_data_is_old_only_that_is_reported() {
    let mut model = fleet(options());
    send(&mut model, Message::Leader(Some(LeaderGap::Released { at: now() })));
    let lost = WatchState::Lost { since: now(), error: String::from("no route") };
    set_watch(&mut model, WatchKind::Maintenances, lost);
    assert_eq!((count(&model, "no route"), count(&model, "leads")), (1, 0), "{}", text(&model));
}

/// A maintenance of a roll; `anchors` has the record of the roll, which has halted.
fn of_roll(node: &str, roll: &str, anchors: bool) -> NodeMaintenance {
    let suspended = json!({"type": "Suspended", "status": "True", "reason": "Planned", "message": "",
        "lastTransitionTime": ago(290)});
    let mut object = maintenance(node, 300, json!({"phase": "Pending", "conditions": [suspended]}));
    object.spec.suspend = true;
    object.metadata.labels = Some([("kubectl-nm.dev/roll".to_owned(), roll.to_owned())].into());
    let record = json!({"revision": 3, "halt": {"node": "w1", "message": "node w1 is not back after 10m", "at": ago(240)}});
    let state = anchors.then(|| ("kubectl-nm.dev/roll-state".to_owned(), record.to_string()));
    object.metadata.annotations = Some(state.into_iter().collect());
    object
}

fn with_rolls(size: (u16, u16), rolls: &[&str]) -> Model {
    let mut model = empty(Options { size, ..options() });
    set_watch(&mut model, WatchKind::Maintenances, WatchState::Live);
    let objects = rolls.iter().flat_map(|roll| {
        ["w1", "w2"].map(|node| Arc::new(of_roll(&format!("{node}-{roll}"), roll, node == "w1")))
    });
    let change =
        WatchChange::Listed(objects.chain([Arc::new(maintenance("other", 9, json!(null)))]).collect());
    send(&mut model, Message::Maintenances(change));
    model
}

#[test]
fn a_halted_roll_is_above_the_maintenances_with_its_cause_and_what_continues_it() {
    let halted = "Roll kernel halted 4m ago (kubectl nm roll resume kernel continues it): node w1 is not back after 10m";
    for size in [(80, 24), (120, 40)] {
        let mut model = with_rolls(size, &["kernel"]);
        assert_eq!(count(&model, halted), 1, "{}", text(&model));
        assert_eq!(count(&model, "begins when its turn"), 0, "{}", text(&model));
        assert_eq!(count(&model, "roll kernel has halted"), 2, "{}", text(&model));
        press(&mut model, KeyCode::Enter);
        let open = model.opened().unwrap().to_owned();
        assert_eq!(
            count(&model, "Roll kernel halted 4m ago"),
            usize::from(open != "other"),
            "{}",
            text(&model)
        );
        send(&mut model, Message::Maintenances(WatchChange::Listed(Vec::new())));
        press(&mut model, KeyCode::Esc);
        assert_eq!(count(&model, "halted"), 0);
    }
}

#[test]
fn the_stop_dialog_reports_the_roll_that_a_node_leaves() {
    for (row, expected) in [("w1-kernel", 1), ("other", 0)] {
        let mut model = with_rolls((120, 30), &["kernel"]);
        type_in(&mut model, "/");
        type_in(&mut model, row);
        press(&mut model, KeyCode::Enter);
        press(&mut model, KeyCode::Char('x'));
        assert_eq!(
            count(&model, "node/w1-kernel leaves roll kernel before the node is done"),
            expected,
            "{}",
            text(&model)
        );
    }
}

#[test]
fn the_stop_dialog_says_that_a_command_of_a_roll_runs_and_that_a_planned_node_stays_as_it_is() {
    for (action, runs) in [(json!({"attempt": 1, "state": "running"}), 1), (json!(null), 0)] {
        let mut model = empty(Options { size: (120, 30), ..options() });
        set_watch(&mut model, WatchKind::Maintenances, WatchState::Live);
        let mut acting = of_roll("w1", "kernel", true);
        let settings = json!({"waves": [1], "maxUnavailable": 1, "action": {"run": "reboot"}, "minReadySeconds": 30,
            "actionTimeoutSeconds": 1, "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
        let node = json!({"wave": 0, "position": 0, "step": "Acting", "since": ago(9), "action": action});
        let state = json!({"revision": 1, "runner": {"id": "x", "who": "ada@laptop", "at": ago(0)}});
        let annotations = acting.metadata.annotations.as_mut().unwrap();
        for (key, value) in [(SETTINGS, settings), (NODE, node), (STATE, state)] {
            annotations.insert(key.to_owned(), value.to_string());
        }
        send(&mut model, Message::Maintenances(WatchChange::Listed(vec![Arc::new(acting)])));
        press(&mut model, KeyCode::Char('x'));
        let warning = "The command of roll kernel runs for node/w1 now: the roll terminates it";
        assert_eq!(count(&model, warning), runs, "{}", text(&model));
        let ends = "node/w1 leaves roll kernel before the node is done. No other node is";
        assert_eq!(count(&model, ends), 1, "{}", text(&model));
        assert_eq!(count(&model, "the node stays as it is"), 1, "{}", text(&model));
        assert_eq!(count(&model, "returns to service"), 0, "{}", text(&model));
    }
}

#[test]
fn the_resume_dialog_reports_the_roll_whose_limits_do_not_apply_then() {
    let mut model = with_rolls((120, 30), &["kernel"]);
    type_in(&mut model, "/");
    type_in(&mut model, "w1-kernel");
    press(&mut model, KeyCode::Enter);
    press(&mut model, KeyCode::Char('p'));
    let bypassed = "Nodes are part of roll kernel, whose windows, gates and limit do not apply to";
    assert_eq!(count(&model, bypassed), 1, "{}", text(&model));
}

#[test]
fn the_pause_dialog_says_that_the_roll_of_the_node_goes_on() {
    let mut model = empty(Options { size: (120, 30), ..options() });
    set_watch(&mut model, WatchKind::Maintenances, WatchState::Live);
    let mut node = of_roll("w1", "kernel", false);
    node.spec.suspend = false;
    send(&mut model, Message::Maintenances(WatchChange::Listed(vec![Arc::new(node)])));
    press(&mut model, KeyCode::Char('p'));
    let unpaused = "This pauses only maintenances, and not roll kernel.";
    assert_eq!(count(&model, unpaused), 1, "{}", text(&model));
}

#[test]
fn the_resume_dialog_of_a_planned_node_shows_what_its_drain_harms() {
    let mut model = with_rolls((120, 30), &["kernel"]);
    let nodes = vec![Arc::new(NodeMetadata { name: String::from("w1-kernel"), ..NodeMetadata::default() })];
    set_watch(&mut model, WatchKind::Nodes, WatchState::Live);
    send(&mut model, Message::Nodes(WatchChange::Listed(nodes)));
    type_in(&mut model, "/w1-kernel");
    press(&mut model, KeyCode::Enter);
    let request = PlanRequest { nodes: vec![String::from("w1-kernel")], drain: None };
    assert_eq!(press(&mut model, KeyCode::Char('p')), [Effect::Plan(request.clone())]);
    assert_eq!(count(&model, "Plan: reading the cluster"), 1, "{}", text(&model));
    assert_eq!(press(&mut model, KeyCode::Esc), [Effect::CancelPlan]);
    press(&mut model, KeyCode::Char('p'));
    let again = KeyEvent::new(KeyCode::Char('p'), KeyModifiers::CONTROL);
    assert_eq!(send(&mut model, Message::Input(Event::Key(again))), [Effect::Plan(request.clone())]);
    let lines = vec![Line::new("The drain would do harm."), Line::new("never leaves: shop/solo-0")];
    let plan = DrainPlan { lines, is_harmless: false };
    send(&mut model, Message::Planned { request, plan });
    assert_eq!(count(&model, "never leaves: shop/solo-0"), 1, "{}", text(&model));
    assert_eq!(press(&mut model, KeyCode::Esc), []);
}

#[test]
fn many_halted_rolls_leave_space_for_the_rows() {
    let model = with_rolls((120, 24), &["a", "b", "c", "d"]);
    assert_eq!(count(&model, "halted 4m ago"), 2, "{}", text(&model));
    assert_eq!(count(&model, "2 more rolls halted; see kubectl nm roll status"), 1, "{}", text(&model));
    assert!(count(&model, "w1-a") > 0, "{}", text(&model));
}

#[test]
fn a_node_that_is_not_ready_while_it_is_drained_is_reported_in_the_fleet_and_in_its_view() {
    for size in [(80, 24), (120, 40)] {
        let mut model = empty(Options { size, ..options() });
        let objects = [("w1", "Running"), ("w2", "Succeeded")].map(|(node, phase)| {
            Arc::new(maintenance(node, 900, json!({"phase": phase, "evictionPods": 3})))
        });
        send(&mut model, Message::Maintenances(WatchChange::Listed(objects.into())));
        set_watch(&mut model, WatchKind::Maintenances, WatchState::Live);
        let nodes = |readiness| {
            let node = |name: &str| {
                let details = Some(NodeDetails { readiness, ..NodeDetails::default() });
                Arc::new(NodeMetadata { name: name.into(), details, ..NodeMetadata::default() })
            };
            Message::Nodes(WatchChange::Listed(vec![node("w1"), node("w2")]))
        };
        send(&mut model, nodes(NodeReadiness::Ready));
        assert_eq!(count(&model, "not Ready"), 0, "{}", text(&model));
        send(&mut model, nodes(NodeReadiness::Unknown));
        let notice = "Node w1 is not Ready, so pods may not terminate; see kubectl nm explain w1";
        assert_eq!(count(&model, notice), 1, "{}", text(&model));
        assert!(text(&model).lines().any(|line| line.contains("Draining") && line.contains("the node is")));
        press(&mut model, KeyCode::Enter);
        assert_eq!(count(&model, notice), 1, "{}", text(&model));
    }
}
