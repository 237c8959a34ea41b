//! Changes in the cluster, and how fresh the view is.

use std::sync::Arc;

use crossterm::event::KeyCode;
use jiff::SignedDuration;
use nm_core::client::watch_stream::WatchChange;
use nm_core::error::exit::Exit;
use nm_core::testing::objects::{requested, stopping, with_status};
use nm_core::watch::goal_tracker::{ExitCondition, Goal, GoalTracker};
use nm_shared::{BlockReason, DrainSpec};

use crate::message::Effect;
use crate::message::{CommandError, Message};
use crate::model::Model;
use crate::model::Options;
use crate::model::fleet::fleet_row::FleetRow;
use crate::model::lists::listing::Rows;
use crate::objects::watch_state::{WatchKind, WatchState};
use crate::tests::painted::text;
use crate::tests::scenes::{
    empty, fleet, maintenances, node, now, options, pods, press, send, set_watch, type_in, worker_07,
};

/// The word for the state of a node's row, if there is one.
fn state(model: &Model, node: &str) -> Option<&'static str> {
    model.fleet.rows.all().find(|row| row.node == node).map(FleetRow::state_word)
}

#[test]
fn rows_follow_their_maintenances() {
    let mut model = fleet(options());
    let mut object = worker_07();
    object.status.as_mut().unwrap().pod_counts.blocked = 0;
    send(&mut model, Message::Maintenances(WatchChange::Applied(Arc::new(object.clone()))));
    assert_eq!(state(&model, "worker-07"), Some("Draining"));
    send(&mut model, Message::Maintenances(WatchChange::Deleted(Arc::new(object))));
    assert_eq!(state(&model, "worker-07"), None);
    send(&mut model, Message::Maintenances(WatchChange::Listed(vec![])));
    assert_eq!(model.fleet.rows.total(), 0);
}

#[test]
fn a_fleet_of_named_nodes_shows_only_those_also_while_idle() {
    let nodes = ["worker-05", "worker-07"].map(String::from).to_vec();
    let mut model = fleet(Options { nodes, ..options() });
    let states =
        |model: &Model| (state(model, "worker-05"), state(model, "worker-07"), model.fleet.rows.total());
    assert_eq!(states(&model), (Some("Idle"), Some("Blocked"), 2));
    send(&mut model, Message::Maintenances(WatchChange::Deleted(Arc::new(worker_07()))));
    assert_eq!(states(&model), (Some("Idle"), Some("Idle"), 2));
    send(&mut model, Message::Maintenances(WatchChange::Applied(Arc::new(worker_07()))));
    assert_eq!(states(&model), (Some("Idle"), Some("Blocked"), 2));
}

#[test]
fn events_about_a_maintenance_with_another_name_are_watched_once_it_is_known() {
    let mut model = empty(Options { nodes: vec!["worker-07".into()], ..options() });
    let named = |name: &str| {
        let mut object = worker_07();
        object.metadata.name = Some(name.to_owned());
        Message::Maintenances(WatchChange::Applied(Arc::new(object)))
    };
    assert_eq!(send(&mut model, named("worker-07")), []);
    assert_eq!(send(&mut model, named("kernel-update")), [Effect::Open("worker-07".into())]);
    assert_eq!(model.open.as_ref().unwrap().subject, "kernel-update");
    assert_eq!(send(&mut model, named("kernel-update")), []);
}

#[test]
fn the_selection_stays_on_its_node_after_a_relist() {
    let nodes = ["worker-05", "worker-07"].map(String::from).to_vec();
    let mut model = fleet(Options { nodes, ..options() });
    let selected = |model: &Model| model.fleet.rows.selected().unwrap().node.clone();
    model.fleet.rows.select(0);
    assert_eq!(selected(&model), "worker-07");
    send(&mut model, Message::Maintenances(WatchChange::Listed(vec![])));
    assert_eq!(selected(&model), "worker-07", "its maintenance has ended");
    send(&mut model, Message::Maintenances(WatchChange::Listed(vec![Arc::new(worker_07())])));
    assert_eq!(selected(&model), "worker-07", "a maintenance has started");
}

#[test]
fn a_finalizer_that_blocks_the_return_to_service_comes_before_pods_blocked_earlier() {
    let mut model = empty(options());
    let mut object = stopping(worker_07());
    object.metadata.finalizers = Some(vec!["example.com/audit".to_owned()]);
    assert!(!object.status.as_ref().unwrap().blocked_pods.is_empty());
    send(&mut model, Message::Maintenances(WatchChange::Listed(vec![Arc::new(object)])));
    let (why, remedy) = model.remedy().unwrap();
    assert!(why.ends_with("a finalizer keeps the object: example.com/audit"), "{why}");
    assert!(remedy.command.contains("edit nm "), "{remedy:?}");
}

#[test]
fn messages_of_a_closed_nodes_watches_are_dropped() {
    let mut model = node(options());
    send(&mut model, Message::Pods { node: "worker-12".into(), change: WatchChange::Listed(vec![]) });
    send(&mut model, Message::Events { node: "worker-12".into(), change: WatchChange::Listed(vec![]) });
    let open = model.open.as_ref().unwrap();
    assert!(open.pods.rows.total() > 5 && open.events.latest().len() == 3);
    press(&mut model, KeyCode::Esc);
    send(&mut model, Message::Pods { node: "worker-07".into(), change: WatchChange::Listed(pods()) });
    assert!(model.open.is_none());
}

#[test]
fn blockers_of_most_nodes_come_first() {
    let mut all = maintenances();
    all[0].metadata.uid = Some("another".into());
    let model = fleet(options());
    let first = &model.fleet.blockers[0];
    assert_eq!((first.cause.as_str(), first.nodes, first.pods), ("PDB shop/cart", 1, 2));
    let mut model = model;
    send(&mut model, Message::Maintenances(WatchChange::Applied(Arc::new(all[0].clone()))));
    assert_eq!((model.fleet.blockers[0].nodes, model.fleet.blockers[0].pods), (2, 4));
}

#[test]
fn a_closed_nodes_watches_do_not_affect_the_health_of_the_open_node() {
    let mut model = node(options());
    let lost = || WatchState::Lost { since: now(), error: "e".into() };
    for kind in [WatchKind::Pods, WatchKind::Events] {
        send(&mut model, Message::Watch { kind, node: Some("worker-12".into()), state: lost() });
        assert_eq!(*model.health.of(kind), WatchState::Live);
    }
    let denied = WatchState::Forbidden("no".into());
    send(&mut model, Message::Watch { kind: WatchKind::Pods, node: Some("worker-12".into()), state: denied });
    assert!(!model.open.as_ref().unwrap().pods.hidden);
    press(&mut model, KeyCode::Esc);
    send(&mut model, Message::Watch { kind: WatchKind::Pods, node: Some("worker-07".into()), state: lost() });
    press(&mut model, KeyCode::Enter);
    assert_eq!(*model.health.of(WatchKind::Pods), WatchState::Connecting);
}

#[test]
fn a_node_is_live_once_its_pods_are_listed_and_watched() {
    let seen = || Message::Pods { node: "worker-07".into(), change: WatchChange::Listed(pods()) };
    let mut model = fleet(options());
    assert_eq!(*model.freshness(), WatchState::Live);
    press(&mut model, KeyCode::Enter);
    assert_eq!(*model.freshness(), WatchState::Connecting);
    set_watch(&mut model, WatchKind::Pods, WatchState::Live);
    assert_eq!(
        *model.freshness(),
        WatchState::Connecting,
        "a watch may be live before its first list arrives"
    );
    send(&mut model, seen());
    assert_eq!(*model.freshness(), WatchState::Live);

    let mut model = fleet(options());
    press(&mut model, KeyCode::Enter);
    send(&mut model, seen());
    assert_eq!(*model.freshness(), WatchState::Connecting, "the pods are not watched yet");
    set_watch(&mut model, WatchKind::Pods, WatchState::Forbidden("no".into()));
    assert_eq!(
        *model.freshness(),
        WatchState::Live,
        "the pods of the status are shown, and those are current"
    );
}

#[test]
fn a_changed_drain_spec_judges_the_pods_again_without_requests() {
    let mut model = node(options());
    let mut object = worker_07();
    object.spec.drain = Some(DrainSpec { force: false, ..DrainSpec::default() });
    let effects = send(&mut model, Message::Maintenances(WatchChange::Applied(Arc::new(object))));
    assert_eq!(effects, []);
    let bare = model.open.as_ref().unwrap().pods.rows.get("bare").unwrap();
    assert_eq!(bare.progress.reason, Some(BlockReason::Unmanaged));
}

#[test]
fn rows_are_old_after_reconnecting_until_they_are_listed_again() {
    for (scene, watches) in [
        (fleet as fn(Options) -> Model, &[WatchKind::Maintenances][..]),
        (node, &[WatchKind::Maintenances, WatchKind::Pods]),
    ] {
        let mut model = scene(options());
        assert!(!model.is_stale());
        assert_eq!(type_in(&mut model, "r"), [Effect::Reconnect]);
        for kind in watches {
            assert_eq!((model.freshness(), model.is_stale()), (&WatchState::Connecting, true), "{kind:?}");
            set_watch(&mut model, *kind, WatchState::Live);
        }
        assert_eq!((model.freshness(), model.is_stale()), (&WatchState::Live, false));
    }
    let mut model = fleet(Options { size: (30, 6), ..options() });
    type_in(&mut model, "r");
    assert!(text(&model).contains("connecting"), "{}", text(&model));
}

#[test]
fn events_and_node_metadata_show_how_old_they_are() {
    let mut model = node(options());
    type_in(&mut model, "e");
    let line = |model: &Model, word: &str| {
        text(model).lines().find(|line| line.contains(word)).unwrap_or_default().to_owned()
    };
    assert!(!line(&model, "EVENTS").contains(" old") && !line(&model, "Cordoned:").contains(" old"));
    let lost = || WatchState::Lost { since: now() - SignedDuration::from_secs(12), error: "e".into() };
    set_watch(&mut model, WatchKind::Events, lost());
    set_watch(&mut model, WatchKind::Nodes, lost());
    assert!(line(&model, "EVENTS").contains("data 12s old"), "{}", text(&model));
    assert!(line(&model, "Cordoned:").contains("Node: data 12s old"), "{}", text(&model));
    set_watch(&mut model, WatchKind::Events, WatchState::Forbidden("no".into()));
    assert!(line(&model, "EVENTS").contains("FORBIDDEN"), "{}", text(&model));
}

#[test]
fn listed_pods_replace_those_of_the_status() {
    let mut model = node(options());
    set_watch(&mut model, WatchKind::Pods, WatchState::Forbidden("no".into()));
    assert!(text(&model).contains("No permission to list pods"));
    set_watch(&mut model, WatchKind::Pods, WatchState::Live);
    send(&mut model, Message::Pods { node: "worker-07".into(), change: WatchChange::Listed(pods()) });
    assert!(!text(&model).contains("No permission to list pods"));
}

#[test]
fn notices_disappear_and_errors_stay_until_a_key() {
    let after = |seconds| Message::Tick(now() + SignedDuration::from_secs(seconds));
    let mut model = empty(options());
    send(&mut model, Message::Answered { id: 1, outcome: Ok("worker-05 started".into()) });
    send(&mut model, after(7));
    assert!(text(&model).contains("worker-05 started"));
    send(&mut model, after(8));
    assert!(!text(&model).contains("worker-05 started"));
    send(&mut model, Message::Answered { id: 1, outcome: Err(CommandError::refused("worker-12")) });
    send(&mut model, after(1000));
    assert!(text(&model).contains("worker-12: "));
    press(&mut model, KeyCode::Down);
    assert!(!text(&model).contains("worker-12: "));
}

#[test]
fn a_maintenance_that_no_reconciler_picks_up_is_reported() {
    let mut model = empty(options());
    let object = super::scenes::maintenance("worker-40", 5, serde_json::json!({}));
    send(&mut model, Message::Maintenances(WatchChange::Listed(vec![Arc::new(object)])));
    assert!(!text(&model).contains("waits for nm-reconciler"));
    send(&mut model, Message::Tick(now() + SignedDuration::from_secs(10)));
    assert!(text(&model).contains("waits for nm-reconciler"));
}

#[test]
fn a_goal_that_is_reached_ends_the_dashboard() {
    let drained = |node: &str| Arc::new(with_status(node, serde_json::json!({"phase": "Succeeded"})));
    let tracker = GoalTracker::new(vec![], ExitCondition::Goal(Goal::Drained));
    let mut model = Model::new(options(), tracker);
    let list = [requested("n1"), requested("n2")].map(Arc::new).to_vec();
    assert_eq!(send(&mut model, Message::Maintenances(WatchChange::Listed(list))), []);
    assert_eq!(send(&mut model, Message::Maintenances(WatchChange::Applied(drained("n1")))), []);
    let effects = send(&mut model, Message::Maintenances(WatchChange::Applied(drained("n2"))));
    assert_eq!(effects, [Effect::End(Exit::Done)]);
    assert_eq!(model.settled.len(), 2);
    assert_eq!(state(&model, "n1"), Some("Drained"));
}
