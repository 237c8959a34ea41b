//! Which row is selected: the first one until the user chooses another, and again after a while.

use std::sync::Arc;

use crossterm::event::KeyCode;
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nm_core::client::watch_stream::WatchChange;
use serde_json::json;

use crate::message::Message;
use crate::model::{Model, Options, RecordingMode};
use crate::tests::painted::text;
use crate::tests::scenes::{fleet, node, options, pod, press, send, type_in};

/// The name of the selected node or pod.
fn selected(model: &Model) -> &str {
    match &model.open {
        Some(open) => open.pods.rows.selected().map_or("", |row| &row.id.name),
        None => model.fleet.rows.selected().map_or("", |row| &row.node),
    }
}

/// Makes worker-12 the worst row, by the number of its blocked pods.
fn worsen(model: &mut Model) {
    let mut worse = model.fleet.maintenance_of("worker-12").unwrap().as_ref().clone();
    worse.status.as_mut().unwrap().pod_counts.blocked = 99;
    send(model, Message::Maintenances(WatchChange::Applied(Arc::new(worse))));
    assert_eq!(model.fleet.rows.nth(0).unwrap().node, "worker-12");
}

#[test]
fn the_worst_row_is_selected_until_another_one_is_chosen() {
    let mut model = fleet(options());
    assert_eq!(selected(&model), "worker-07");
    worsen(&mut model);
    assert_eq!(selected(&model), "worker-12", "nobody chose worker-07");

    // Moving to a row, and acting on it, chooses it.
    for keys in ["jk", "x\x1b", "v", "y"] {
        let mut model = fleet(options());
        keys.chars().for_each(|key| match key {
            '\x1b' => drop(press(&mut model, KeyCode::Esc)),
            key => drop(press(&mut model, KeyCode::Char(key))),
        });
        worsen(&mut model);
        assert_eq!(selected(&model), "worker-07", "{keys:?}");
    }
    // What is not about a row does not.
    let mut model = fleet(options());
    type_in(&mut model, "?q");
    worsen(&mut model);
    assert_eq!(selected(&model), "worker-12");
    type_in(&mut model, "ss");
    assert_eq!(selected(&model), "worker-21", "a new sort order selects its first row");
}

#[test]
fn a_dialog_is_about_the_row_that_was_selected_when_it_opened() {
    let mut model = fleet(options());
    type_in(&mut model, "x");
    worsen(&mut model);
    assert!(text(&model).contains("  worker-07  Blocked"), "{}", text(&model));
    press(&mut model, KeyCode::Esc);
    assert_eq!(selected(&model), "worker-07");
    type_in(&mut model, "g");
    assert_eq!(selected(&model), "worker-12");
}

#[test]
fn blocked_pods_stay_in_sight_while_pods_of_an_open_node_change() {
    let mut model = node(Options { size: (80, 24), ..options() });
    assert_eq!(selected(&model), "cart-0");
    let name = String::from("worker-07");
    let earlier = pod("shop", "cart--", "StatefulSet/cart", &json!({}));
    let mut object = model.fleet.maintenance_of(&name).unwrap().as_ref().clone();
    let blocked = &mut object.status.as_mut().unwrap().blocked_pods;
    let mut first = blocked[0].clone();
    first.name = earlier.id.name.clone();
    blocked.insert(0, first);
    send(&mut model, Message::Pods { node: name.clone(), change: WatchChange::Applied(earlier) });
    send(&mut model, Message::Maintenances(WatchChange::Applied(Arc::new(object))));
    assert_eq!(selected(&model), "cart--");
    // The first pod goes, and more come than fit the screen: the cursor does not go with it to the last rows.
    let goes = pod("shop", "cart--", "StatefulSet/cart", &json!({}));
    send(&mut model, Message::Pods { node: name.clone(), change: WatchChange::Deleted(goes) });
    for number in 0..50 {
        let more = pod("a", &format!("more-{number}"), "StatefulSet/more", &json!({}));
        send(&mut model, Message::Pods { node: name.clone(), change: WatchChange::Applied(more) });
    }
    assert_eq!(selected(&model), "cart-0");
    assert!(text(&model).contains("shop/cart-0"), "{}", text(&model));
}

#[test]
fn the_selection_returns_to_the_first_row_a_minute_after_the_last_key() {
    let after = |model: &mut Model, seconds: i64| {
        let at = model.now + SignedDuration::from_secs(seconds);
        send(model, Message::Tick(at));
        selected(model).to_owned()
    };
    let mut model = fleet(options());
    type_in(&mut model, "jj");
    assert_eq!(after(&mut model, 59), "worker-33");
    type_in(&mut model, "j");
    assert_eq!(after(&mut model, 59), "worker-40", "since the last key");
    assert_eq!(after(&mut model, 1), "worker-07");
    worsen(&mut model);
    assert_eq!(selected(&model), "worker-12", "it is not chosen then");
    // Whoever has opened a pane or a dialog, or marked rows, is busy with them.
    for keys in ["jv", "jx", "j/", " "] {
        let mut model = fleet(options());
        type_in(&mut model, keys);
        assert_eq!(after(&mut model, 3600), "worker-12", "{keys:?}");
    }
    let mut model = fleet(Options { recording: RecordingMode::Replay, ..options() });
    type_in(&mut model, "j");
    assert_eq!(after(&mut model, 3600), "worker-12", "recorded time may pass faster");
}

#[test]
fn when_the_selected_node_is_gone_the_first_row_is_selected_as_if_nobody_had_chosen_one() {
    for keys in ["jjx\n", "jj", "/!state:stopping\njjx\n"] {
        let mut model = fleet(options());
        keys.chars().for_each(|key| match key {
            '\n' => drop(press(&mut model, KeyCode::Enter)),
            key => drop(press(&mut model, KeyCode::Char(key))),
        });
        assert_eq!(selected(&model), "worker-33");
        let mut stopping = model.fleet.maintenance_of("worker-33").unwrap().as_ref().clone();
        stopping.metadata.deletion_timestamp = Some(Time(model.now));
        let stopping = Arc::new(stopping);
        send(&mut model, Message::Maintenances(WatchChange::Applied(Arc::clone(&stopping))));
        if !keys.starts_with('/') {
            assert_eq!(selected(&model), "worker-33", "while it has a row");
        }
        send(&mut model, Message::Maintenances(WatchChange::Deleted(stopping)));
        assert_eq!(selected(&model), "worker-07", "{keys}");
        worsen(&mut model);
        assert_eq!(selected(&model), "worker-12", "nobody chose worker-07");
    }
}
