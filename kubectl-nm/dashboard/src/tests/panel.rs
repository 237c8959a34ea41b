//! The panel about the selected node, and the nodes that are followed for it and because their drains are under way.

use std::collections::BTreeSet;
use std::sync::Arc;

use crossterm::event::KeyCode;
use jiff::SignedDuration;
use nm_core::client::watch_stream::WatchChange;
use nm_shared::{NodeMaintenance, PodState};
use serde_json::json;

use crate::layout::ScreenLayout;
use crate::message::{Effect, Message};
use crate::model::lists::listing::Rows;
use crate::model::{Model, Options, RecordingMode};
use crate::objects::watch_state::{WatchKind, WatchState};
use crate::tests::first_causes::never_allowing;
use crate::tests::painted::text;
use crate::tests::scenes::{
    ago, empty, events, fleet, options, pods, press, send, set_watch, type_in, worker_07,
};

fn tick(model: &mut Model) -> Vec<Effect> {
    let at = model.now + SignedDuration::from_secs(1);
    let mut effects = send(model, Message::Tick(at));
    effects.retain(|effect| !matches!(effect, Effect::ReadOutages(_) | Effect::ReadCauses { .. }));
    effects
}

fn following(nodes: &[&str]) -> Effect {
    Effect::Follow(nodes.iter().map(|node| (*node).to_owned()).collect::<BTreeSet<String>>())
}

const UNDER_WAY: [&str; 4] = ["worker-07", "worker-08", "worker-09", "worker-12"];

/// Delivers the pods of worker-07 and the events about it, and then that one of the pods has left.
fn deliver(model: &mut Model) {
    let node = || String::from("worker-07");
    let live = Message::Watch { kind: WatchKind::Pods, node: Some(node()), state: WatchState::Live };
    send(model, live);
    send(model, Message::Pods { node: node(), change: WatchChange::Listed(pods()) });
    send(model, Message::Events { node: node(), change: WatchChange::Listed(events()) });
    let left = pods().into_iter().find(|pod| pod.id.name == "front-6c4f9-aa1").unwrap();
    send(model, Message::Pods { node: node(), change: WatchChange::Deleted(left) });
}

#[test]
fn drains_under_way_are_followed_and_the_selected_node_once_the_cursor_rests() {
    let mut model = fleet(options());
    assert_eq!(tick(&mut model), [following(&UNDER_WAY)]);
    assert_eq!(tick(&mut model), []);
    type_in(&mut model, "G");
    assert_eq!(tick(&mut model), [], "the cursor may be on its way");
    let with_selected = [&["worker-03"], &UNDER_WAY[..]].concat();
    assert_eq!(tick(&mut model), [following(&with_selected)]);
    // Where the screen has no space for the panel, only drains are followed.
    let mut model = fleet(Options { size: (80, 20), ..options() });
    type_in(&mut model, "G");
    assert_eq!(tick(&mut model), [following(&UNDER_WAY)]);
    assert_eq!(tick(&mut model), []);
}

#[test]
fn recordings_and_replays_follow_nodes_by_themselves() {
    for recording in [RecordingMode::Recording, RecordingMode::Replay] {
        let mut model = fleet(Options { recording, ..options() });
        assert_eq!((tick(&mut model), tick(&mut model)), (vec![], vec![]), "{recording:?}");
    }
}

#[test]
fn the_panel_shows_what_the_status_names_and_then_the_pods_and_the_events() {
    for size in [(120, 40), (200, 60)] {
        let mut model = fleet(Options { size, ..options() });
        let shown = text(&model);
        assert!(
            shown.contains("blocked by PDB shop/cart (2 pods)") && shown.contains("shop/cart-0"),
            "{shown}"
        );
        assert!(!shown.contains("pay/ledger-1") && !shown.contains("EVENTS"), "{shown}");
        tick(&mut model);
        deliver(&mut model);
        let shown = text(&model);
        assert!(shown.contains("pay/ledger-1") && shown.contains("EVENTS"), "{shown}");
        assert!(shown.contains("EvictionBlocked"), "{shown}");
    }
}

#[test]
fn the_panel_shows_the_first_cause_and_what_to_do_where_blocked_pods_leave_space() {
    let patch = "kubectl -n shop patch pdb cart --type=merge";
    for (size, is_shown) in [((120, 50), true), ((200, 60), true), ((120, 30), false)] {
        let mut model = fleet(Options { size, ..options() });
        let node = String::from("worker-07");
        tick(&mut model);
        send(&mut model, Message::CauseFacts { node: node.clone(), facts: never_allowing(&node) });
        deliver(&mut model);
        let screen = ScreenLayout::whole(&model);
        let shown: Vec<String> = text(&model).lines().map(str::to_owned).collect();
        let beside = if screen.has_panel_beside() { usize::from(screen.panel.x) } else { 0 };
        let panel = shown[usize::from(screen.panel.y)..][..usize::from(screen.panel.height)].iter();
        let panel: Vec<String> = panel.map(|line| line.chars().skip(beside).collect()).collect();
        let shown = panel.join("\n");
        assert_eq!(shown.contains(patch), is_shown, "{size:?} {shown}");
        for pod in ["shop/cart-0", "shop/cart-2", "web/import-9x", "EvictionBlocked"] {
            assert!(shown.contains(pod), "{size:?} {pod}: {shown}");
        }
    }
}

#[test]
fn what_left_a_node_before_it_was_opened_is_shown() {
    let mut model = fleet(Options { size: (120, 60), ..options() });
    tick(&mut model);
    deliver(&mut model);
    assert_eq!(press(&mut model, KeyCode::Enter), [Effect::Open(String::from("worker-07"))]);
    let open = model.open.as_ref().unwrap();
    let left = open.pods.rows.all().find(|row| row.id.name == "front-6c4f9-aa1");
    assert_eq!(left.and_then(|row| row.progress.state), Some(PodState::Gone));
    assert_eq!(*model.health.of(WatchKind::Pods), WatchState::Live);
    type_in(&mut model, "w");
    assert!(text(&model).contains("front-6c4f9-aa1"), "{}", text(&model));
    assert!(text(&model).contains("13 pods left before"), "those of before: {}", text(&model));
}

#[test]
fn what_left_a_node_is_shown_when_it_is_opened_after_its_drain_and_again() {
    let mut model = fleet(Options { size: (120, 60), ..options() });
    tick(&mut model);
    deliver(&mut model);
    let apply = |model: &mut Model, object: NodeMaintenance| {
        send(model, Message::Maintenances(WatchChange::Applied(Arc::new(object))));
    };
    let drained = json!({"type": "Drained", "status": "True", "reason": "Drained", "message": "",
        "lastTransitionTime": ago(0)});
    let mut object = worker_07();
    let status = object.status.as_mut().unwrap();
    status.conditions.retain(|condition| condition.type_ != "Drained");
    status.conditions.push(serde_json::from_value(drained).unwrap());
    apply(&mut model, object.clone());
    let open_after_others = |model: &mut Model| {
        type_in(model, "G");
        assert!(tick(model).iter().all(|effect| *effect != following(&UNDER_WAY)));
        tick(model);
        assert!(!model.followed.contains("worker-07"), "{:?}", model.followed);
        type_in(model, "/node:worker-07");
        press(model, KeyCode::Enter);
        assert_eq!(press(model, KeyCode::Enter), [Effect::Open(String::from("worker-07"))]);
    };
    let shown = |model: &Model| -> Vec<String> {
        let rows = model.open.as_ref().unwrap().pods.rows.all();
        let rows = rows.filter(|row| row.progress.state == Some(PodState::Gone));
        rows.map(|row| row.id.name.clone()).collect()
    };
    let list = |model: &mut Model| {
        let left = pods().into_iter().filter(|pod| pod.id.name != "front-6c4f9-aa1").collect();
        send(model, Message::Pods { node: "worker-07".into(), change: WatchChange::Listed(left) });
    };
    for _ in 0..2 {
        open_after_others(&mut model);
        let open = model.open.as_ref().unwrap();
        assert!(!open.pods.complete && !open.pods.hidden, "what is there now is read anew");
        assert_eq!((shown(&model), open.pods.rows.total()), (vec![String::from("front-6c4f9-aa1")], 1));
        list(&mut model);
        assert_eq!(shown(&model), ["front-6c4f9-aa1"]);
        assert!(model.open.as_ref().unwrap().pods.are_known());
        press(&mut model, KeyCode::Esc);
        press(&mut model, KeyCode::Esc);
    }
    tick(&mut model);
    tick(&mut model);
    object.metadata.uid = Some(String::from("another"));
    apply(&mut model, object);
    open_after_others(&mut model);
    assert!(shown(&model).is_empty(), "they left in an earlier maintenance");
}

#[test]
fn what_only_a_status_named_is_not_taken_for_the_pods_of_an_opened_node() {
    let mut model = fleet(options());
    press(&mut model, KeyCode::Enter);
    let open = model.open.as_ref().unwrap();
    assert!(!open.pods.hidden && !open.pods.complete);
    // Without maintenances, there is nothing to show or to follow.
    let mut model = empty(options());
    set_watch(&mut model, WatchKind::Maintenances, WatchState::Live);
    send(&mut model, Message::Maintenances(WatchChange::Listed(vec![])));
    assert_eq!(tick(&mut model), []);
}
