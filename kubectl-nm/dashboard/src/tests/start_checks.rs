//! Enter in a dialog that begins drains, before what they harm is on the screen.

use std::sync::Arc;

use crossterm::event::{Event, KeyCode};
use nm_core::client::watch_stream::WatchChange;
use nm_core::terminal::text::Line;
use serde_json::json;

use crate::message::{ClusterRequest, Effect, Message};
use crate::model::Model;
use crate::model::dialogs::start_preview::{DrainPlan, PlanRequest};
use crate::objects::node_metadata::NodeMetadata;
use crate::objects::watch_state::{WatchKind, WatchState};
use crate::tests::painted::text;
use crate::tests::scenes::{
    empty, fleet, maintenance, options, press, send, set_watch, type_in, with_planned,
};

const CHECKING: &str = "checking what it would harm ...  ";
const HARM: &str = "never leaves: shop/solo-0";

fn request(nodes: &[&str]) -> PlanRequest {
    PlanRequest { nodes: nodes.iter().map(ToString::to_string).collect(), drain: None }
}

/// Answers with a plan.
fn answer(model: &mut Model, nodes: &[&str], is_harmless: bool) -> Vec<Effect> {
    let line = if is_harmless { "The drain would harm nothing." } else { HARM };
    let plan = DrainPlan { lines: vec![Line::new(line)], is_harmless };
    send(model, Message::Planned { request: request(nodes), plan })
}

/// The nodes that start, or of which the maintenance is resumed.
fn begun(effects: &[Effect]) -> Vec<String> {
    match effects {
        [] => Vec::new(),
        [Effect::Send { request: ClusterRequest::Start(objects), .. }] => {
            objects.iter().map(|object| object.spec.node_name.clone()).collect()
        }
        [Effect::Send { request: ClusterRequest::Pause { targets, pause: false }, .. }] => {
            targets.iter().map(|object| object.spec.node_name.clone()).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// The start dialog of a node after Enter was pressed, before its plan is made.
fn checking() -> Model {
    let mut model = fleet(options());
    type_in(&mut model, "nworker-05");
    assert_eq!(press(&mut model, KeyCode::Enter), [Effect::CheckPlan(request(&["worker-05"]))]);
    let shown = text(&model);
    assert!(shown.contains(CHECKING) && !shown.contains("[Enter] start"), "{shown}");
    model
}

#[test]
fn enter_before_the_plan_is_made_starts_nothing_that_is_harmed() {
    let mut model = checking();
    assert_eq!(press(&mut model, KeyCode::Enter), [], "once is enough");
    assert_eq!(begun(&answer(&mut model, &["worker-05"], false)), Vec::<String>::new());
    let shown = text(&model);
    assert!(shown.contains(HARM) && shown.contains("[Enter] start anyway"), "{shown}");
    assert_eq!(begun(&press(&mut model, KeyCode::Enter)), ["worker-05"]);
    assert!(model.dialog.is_none());
    assert_eq!(answer(&mut model, &["worker-05"], true), [], "the dialog is closed");
}

#[test]
fn enter_before_the_plan_is_made_starts_what_harms_nothing_once_that_is_known() {
    let mut model = checking();
    assert_eq!(begun(&answer(&mut model, &["worker-05"], true)), ["worker-05"]);
    assert!(model.dialog.is_none() && text(&model).contains("starting worker-05 ..."), "{}", text(&model));
    assert_eq!(answer(&mut model, &["worker-05"], true), []);
}

#[test]
fn harm_that_is_on_the_screen_is_not_checked_again() {
    for is_harmless in [true, false] {
        let mut model = fleet(options());
        type_in(&mut model, "nworker-05");
        assert_eq!(answer(&mut model, &["worker-05"], is_harmless), []);
        assert_eq!(text(&model).contains("[Enter] start anyway"), !is_harmless, "{}", text(&model));
        assert_eq!(begun(&press(&mut model, KeyCode::Enter)), ["worker-05"]);
    }
}

#[test]
fn escape_and_typing_cancel_a_start_that_waits_for_its_plan() {
    let mut model = checking();
    assert_eq!(press(&mut model, KeyCode::Esc), [Effect::CancelPlan]);
    assert_eq!((answer(&mut model, &["worker-05"], true), model.dialog), (vec![], None));

    let mut model = checking();
    let effects = [press(&mut model, KeyCode::Backspace), press(&mut model, KeyCode::Char('6'))].concat();
    assert_eq!(effects, [Effect::CancelPlan, Effect::Plan(request(&["worker-06"]))]);
    assert_eq!(answer(&mut model, &["worker-05"], true), []);
    assert_eq!(answer(&mut model, &["worker-06"], true), [], "it has not been confirmed");
    assert!(text(&model).contains("[Enter] start  "), "{}", text(&model));

    let reason = |model: &mut Model, paste: bool| {
        if paste { send(model, Message::Input(Event::Paste("why".into()))) } else { type_in(model, "why") }
    };
    for paste in [true, false] {
        let mut model = checking();
        // The plan is the same, and goes on.
        assert_eq!(press(&mut model, KeyCode::Tab), []);
        press(&mut model, KeyCode::Enter);
        assert_eq!(reason(&mut model, paste), []);
        assert_eq!(answer(&mut model, &["worker-05"], true), [], "{paste}");
        assert_eq!(begun(&press(&mut model, KeyCode::Enter)), ["worker-05"]);
    }
}

#[test]
fn several_nodes_are_checked_after_their_number_is_typed() {
    let both = ["worker-05", "worker-06"];
    let mut model = fleet(options());
    type_in(&mut model, "n");
    send(&mut model, Message::Input(Event::Paste(both.join(" "))));
    assert_eq!(press(&mut model, KeyCode::Enter), []);
    type_in(&mut model, "2");
    assert_eq!(press(&mut model, KeyCode::Enter), [Effect::CheckPlan(request(&both))]);
    assert_eq!(begun(&answer(&mut model, &both, true)), both);
}

#[test]
fn a_node_that_is_in_maintenance_by_the_time_of_the_answer_is_not_started() {
    let mut model = checking();
    let other = maintenance("worker-05", 1, json!({"phase": "Running"}));
    send(&mut model, Message::Maintenances(WatchChange::Applied(Arc::new(other))));
    assert_eq!(answer(&mut model, &["worker-05"], true), []);
    assert!(text(&model).contains("already in maintenance"), "{}", text(&model));
}

#[test]
fn what_is_only_planned_harms_nothing_and_starts_at_once() {
    let mut model = fleet(options());
    type_in(&mut model, "nworker-05");
    press(&mut model, KeyCode::Tab);
    press(&mut model, KeyCode::Tab);
    type_in(&mut model, "--suspend");
    assert_eq!(begun(&press(&mut model, KeyCode::Enter)), ["worker-05"]);
}

#[test]
fn a_start_in_a_large_or_unknown_cluster_is_checked_too() {
    let node =
        |number: usize| Arc::new(NodeMetadata { name: format!("n{number}"), ..NodeMetadata::default() });
    for is_known in [true, false] {
        let mut model = empty(options());
        if is_known {
            set_watch(&mut model, WatchKind::Nodes, WatchState::Live);
            send(&mut model, Message::Nodes(WatchChange::Listed((0..600).map(node).collect())));
        } else {
            set_watch(&mut model, WatchKind::Nodes, WatchState::Forbidden("no".into()));
        }
        assert_eq!(type_in(&mut model, "nn599"), []);
        assert_eq!(press(&mut model, KeyCode::Enter), [Effect::CheckPlan(request(&["n599"]))]);
        assert_eq!(answer(&mut model, &["n599"], false), []);
        assert_eq!(begun(&press(&mut model, KeyCode::Enter)), ["n599"], "{is_known}");
    }
}

#[test]
fn the_dialog_that_resumes_a_planned_maintenance_checks_it_too() {
    let open = || {
        let mut model = with_planned();
        type_in(&mut model, "p");
        assert_eq!(press(&mut model, KeyCode::Enter), [Effect::CheckPlan(request(&["worker-12"]))]);
        assert!(text(&model).contains(CHECKING), "{}", text(&model));
        assert_eq!(press(&mut model, KeyCode::Enter), []);
        model
    };
    let mut model = open();
    assert_eq!(begun(&answer(&mut model, &["worker-12"], true)), ["worker-12"]);
    let mut model = open();
    assert_eq!(answer(&mut model, &["worker-12"], false), []);
    let shown = text(&model);
    assert!(shown.contains(HARM) && shown.contains("[Enter] resume anyway"), "{shown}");
    assert_eq!(begun(&press(&mut model, KeyCode::Enter)), ["worker-12"]);
    let mut model = open();
    assert_eq!(press(&mut model, KeyCode::Esc), [Effect::CancelPlan]);
}
