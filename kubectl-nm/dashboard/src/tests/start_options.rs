//! The options of the start dialog, and its plan.

use std::sync::Arc;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use insta::assert_snapshot;
use nm_core::client::watch_stream::WatchChange;
use nm_core::terminal::text::{Line, Style};

use crate::config::appearance::{Appearance, ThemeName};
use crate::message::{ClusterRequest, Effect, Message};
use crate::model::dialogs::start_preview::{DrainPlan, PlanRequest};
use crate::model::{Model, Options};
use crate::objects::node_metadata::NodeMetadata;
use crate::objects::watch_state::{WatchKind, WatchState};
use crate::tests::painted::{painted, text};
use crate::tests::scenes::{empty, fleet, options, press, send, set_watch, type_in};

fn sized(width: u16, height: u16) -> Options {
    Options { size: (width, height), ..options() }
}

/// The plans that were requested, and `cancel` for the end of one.
fn plans(effects: &[Effect]) -> Vec<String> {
    let plan = |effect: &Effect| match effect {
        Effect::Plan(PlanRequest { nodes, drain }) => {
            let timeout = drain.as_ref().map_or(0, |drain| drain.timeout_seconds);
            Some(format!("{} {timeout}", nodes.join(" ")))
        }
        Effect::CancelPlan => Some(String::from("cancel")),
        _ => None,
    };
    effects.iter().filter_map(plan).collect()
}

fn request(effects: &[Effect]) -> PlanRequest {
    let last = effects.iter().rev().find_map(|effect| match effect {
        Effect::Plan(request) => Some(request.clone()),
        _ => None,
    });
    last.unwrap_or_else(|| panic!("{effects:?}"))
}

fn made() -> DrainPlan {
    let lines = vec![
        Line::default().with(Style::Bad, "The drain would be blocked."),
        Line::new("1 node, 26 pods: 1 blocked, 23 evicted, 2 staying"),
        Line::default().with(Style::Bad, "blocked ").and("shop/cart-0: budget shop/cart allows no evictions"),
        Line::new("2 pods lose their emptyDir data: web/cache-0, web/cache-1"),
        Line::new(
            "capacity for 23 of 24 pods on 49 other nodes, estimated from requests, taints, selectors and volumes",
        ),
        Line::default().with(Style::Bad, "no capacity").and(" for db/pg-1 (49 other nodes: 49 cpu)"),
    ];
    DrainPlan { lines, is_harmless: false }
}

/// The dialog with options and a plan.
fn planned(options: Options) -> Model {
    let mut model = fleet(options);
    type_in(&mut model, "n");
    press(&mut model, KeyCode::Backspace);
    type_in(&mut model, "worker-05 worker-06 worker-10");
    press(&mut model, KeyCode::Tab);
    type_in(&mut model, "new kernel");
    press(&mut model, KeyCode::Tab);
    let effects = type_in(&mut model, "--timeout 10m --surge");
    send(&mut model, Message::Planned { request: request(&effects), plan: made() });
    press(&mut model, KeyCode::Up);
    model
}

#[test]
fn the_dialog_with_options_and_a_plan() {
    for (width, height) in [(200, 50), (120, 30), (80, 24), (45, 20)] {
        assert_snapshot!(format!("start_options_{width}x{height}"), painted(&planned(sized(width, height))));
    }
    for (name, theme, ascii) in [
        ("light", ThemeName::Light, false),
        ("colour_blind", ThemeName::ColourBlind, false),
        ("mono", ThemeName::Mono, false),
        ("ascii", ThemeName::Dark, true),
    ] {
        let model = planned(Options { appearance: Appearance { theme, ascii }, ..sized(80, 24) });
        assert!(!ascii || text(&model).is_ascii());
        assert_snapshot!(format!("start_options_{name}"), painted(&model));
    }
}

#[test]
fn options_are_offered_while_they_are_typed_and_completed_by_tab() {
    let mut model = fleet(sized(80, 24));
    type_in(&mut model, "nworker-05");
    press(&mut model, KeyCode::Tab);
    press(&mut model, KeyCode::Tab);
    assert_snapshot!("start_offered", text(&model));
    type_in(&mut model, "--tim");
    assert!(text(&model).contains("--timeout DURATION"), "{}", text(&model));
    assert!(!text(&model).contains("--surge"), "{}", text(&model));
    press(&mut model, KeyCode::Tab);
    type_in(&mut model, "10m --sus");
    assert!(!text(&model).contains("[p] begins"), "keys can be configured: {}", text(&model));
    press(&mut model, KeyCode::Tab);
    let effects = press(&mut model, KeyCode::Enter);
    let [Effect::Send { request: ClusterRequest::Start(objects), .. }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert!(objects[0].spec.suspend);
    assert_eq!(objects[0].spec.drain.as_ref().unwrap().timeout_seconds, 600);
    assert!(text(&model).contains("planning worker-05 ..."), "{}", text(&model));
}

#[test]
fn the_flags_that_are_offered_leave_the_plan_in_sight() {
    for (width, height) in [(80, 24), (120, 24)] {
        let mut model = fleet(sized(width, height));
        let effects = type_in(&mut model, "nworker-05");
        send(&mut model, Message::Planned { request: request(&effects), plan: made() });
        press(&mut model, KeyCode::Tab);
        press(&mut model, KeyCode::Tab);
        let shown = text(&model);
        let seen =
            ["  worker-05", "blocked shop/cart-0", "emptyDir data: web/cache-0", "no capacity for db/pg-1"];
        assert!(seen.iter().all(|part| shown.contains(part)), "{shown}");
        assert!(shown.contains("--suspend") && shown.contains("[PgDn] 1-"), "{shown}");
    }
}

#[test]
fn wrong_options_start_nothing_and_enter_leads_to_them() {
    let mut model = fleet(options());
    type_in(&mut model, "nworker-05");
    press(&mut model, KeyCode::Tab);
    press(&mut model, KeyCode::Tab);
    type_in(&mut model, "--timeout soon");
    press(&mut model, KeyCode::Up);
    assert_eq!(press(&mut model, KeyCode::Enter), []);
    let shown = text(&model);
    assert!(shown.contains("invalid value 'soon' for '--timeout <DURATION>'"), "{shown}");
    assert!(shown.lines().any(|line| line.contains("Options:") && line.contains('▏')), "{shown}");
}

#[test]
fn nodes_are_planned_with_suspend() {
    let mut model = planned(options());
    press(&mut model, KeyCode::Down);
    type_in(&mut model, " --suspend");
    assert!(text(&model).contains("The nodes are only planned"), "{}", text(&model));
    press(&mut model, KeyCode::Down);
    let effects = [type_in(&mut model, "3"), press(&mut model, KeyCode::Enter)].concat();
    let [Effect::Send { request: ClusterRequest::Start(objects), .. }] = &effects[..] else {
        panic!("{effects:?}")
    };
    let suspended: Vec<bool> = objects.iter().map(|object| object.spec.suspend).collect();
    assert_eq!(suspended, [true, true, true]);
}

#[test]
fn the_plan_follows_what_is_typed() {
    let mut model = fleet(options());
    let effects = type_in(&mut model, "nworker-0");
    assert_eq!(plans(&effects), Vec::<String>::new(), "no such node");
    let effects = type_in(&mut model, "5");
    assert_eq!(plans(&effects), ["worker-05 0"]);
    assert!(text(&model).contains("Plan: reading the cluster"), "{}", text(&model));
    let outdated = request(&effects);
    press(&mut model, KeyCode::Tab);
    assert_eq!(plans(&type_in(&mut model, "why")), Vec::<String>::new(), "a reason changes nothing");
    press(&mut model, KeyCode::Tab);
    let effects = type_in(&mut model, "--timeout 5m");
    assert_eq!(plans(&effects).last().map(String::as_str), Some("worker-05 300"));
    send(&mut model, Message::Planned { request: outdated, plan: made() });
    assert!(text(&model).contains("Plan: reading the cluster"), "{}", text(&model));
    send(&mut model, Message::Planned { request: request(&effects), plan: made() });
    assert!(!text(&model).contains("Plan: reading the cluster"), "{}", text(&model));
    assert_eq!(press(&mut model, KeyCode::Esc), [], "no plan is being made");

    type_in(&mut model, "nworker-05");
    assert_eq!(press(&mut model, KeyCode::Esc), [Effect::CancelPlan]);
    let pasted = Message::Input(Event::Paste("worker-06".into()));
    type_in(&mut model, "n");
    assert_eq!(plans(&send(&mut model, pasted)), ["worker-06 0"]);
}

#[test]
fn the_nodes_that_a_dialog_begins_with_are_planned() {
    let mut model = fleet(Options { nodes: vec!["worker-05".into()], ..options() });
    assert_eq!(plans(&type_in(&mut model, "n")), ["worker-05 0"]);
}

#[test]
fn a_large_cluster_is_planned_on_request() {
    let mut model = fleet(options());
    let node = |number: usize| NodeMetadata { name: format!("n{number}"), ..NodeMetadata::default() };
    let nodes = (0..600).map(|number| Arc::new(node(number)));
    send(&mut model, Message::Nodes(WatchChange::Listed(nodes.collect())));
    assert_eq!(plans(&type_in(&mut model, "nn599")), Vec::<String>::new());
    assert!(text(&model).contains("[Ctrl-P] previews"), "{}", text(&model));
    let key = KeyEvent::new(KeyCode::Char('p'), KeyModifiers::CONTROL);
    assert_eq!(plans(&send(&mut model, Message::Input(Event::Key(key)))), ["n599 0"]);
}

#[test]
fn a_preview_on_request_says_why_it_is_not_made_at_once() {
    for (state, why) in [
        (WatchState::Forbidden("no".into()), "you have no permission to list nodes"),
        (WatchState::Connecting, "the nodes of this cluster are not known yet"),
    ] {
        let mut model = empty(options());
        set_watch(&mut model, WatchKind::Nodes, state);
        type_in(&mut model, "nworker-01");
        let shown = text(&model);
        assert!(shown.contains(why) && !shown.contains("large cluster."), "{shown}");
    }
    let mut model = empty(options());
    set_watch(&mut model, WatchKind::Nodes, WatchState::Live);
    let node =
        |number: u32| Arc::new(NodeMetadata { name: format!("worker-{number}"), ..NodeMetadata::default() });
    send(&mut model, Message::Nodes(WatchChange::Listed((1..=501).map(node).collect())));
    type_in(&mut model, "nworker-1");
    assert!(text(&model).contains("which takes longer in this large cluster"), "{}", text(&model));
}
