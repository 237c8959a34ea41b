//! What the cluster says, and how fresh that is.

use std::sync::Arc;

use crossterm::event::KeyCode;
use jiff::SignedDuration;
use nm_shared::{BlockReason, DrainSpec};

use crate::dashboard::effect::Effect;
use crate::dashboard::message::{Change, Feed, Link, Message};
use crate::dashboard::model::Model;
use crate::dashboard::model::fleet_row::NodeState;
use crate::dashboard::model::watch_health::Freshness;
use crate::dashboard::options::Options;
use crate::dashboard::tests::painted::text;
use crate::dashboard::tests::scenes::{
    deaf, fleet, maintenances, node, now, options, pods, press, tell, tell_link, type_in, worker_07,
};
use crate::maintenance::fixture::stopping;

fn state(model: &Model, node: &str) -> Option<NodeState> {
    model.fleet.rows.all().find(|row| row.node == node).map(|row| row.state)
}

#[test]
fn rows_come_change_and_go_with_their_maintenances() {
    let mut model = fleet(options());
    let mut object = worker_07();
    object.status.as_mut().unwrap().pod_counts.blocked = 0;
    tell(&mut model, Message::Maintenances(Change::Applied(Arc::new(object.clone()))));
    assert_eq!(state(&model, "worker-07"), Some(NodeState::Draining));
    tell(&mut model, Message::Maintenances(Change::Gone(Arc::new(object))));
    assert_eq!(state(&model, "worker-07"), None);
    tell(&mut model, Message::Maintenances(Change::All(vec![])));
    assert_eq!(model.fleet.rows.total(), 0);
}

#[test]
fn a_fleet_of_named_nodes_shows_those_alone_and_also_while_they_are_idle() {
    let nodes = ["worker-05", "worker-07"].map(String::from).to_vec();
    let mut model = fleet(Options { nodes, ..options() });
    let states =
        |model: &Model| (state(model, "worker-05"), state(model, "worker-07"), model.fleet.rows.total());
    assert_eq!(states(&model), (Some(NodeState::Idle), Some(NodeState::Blocked), 2));
    tell(&mut model, Message::Maintenances(Change::Gone(Arc::new(worker_07()))));
    assert_eq!(states(&model), (Some(NodeState::Idle), Some(NodeState::Idle), 2));
    tell(&mut model, Message::Maintenances(Change::Applied(Arc::new(worker_07()))));
    assert_eq!(states(&model), (Some(NodeState::Idle), Some(NodeState::Blocked), 2));
}

#[test]
fn the_selection_stays_with_its_node_when_all_is_told_anew() {
    let nodes = ["worker-05", "worker-07"].map(String::from).to_vec();
    let mut model = fleet(Options { nodes, ..options() });
    let selected = |model: &Model| model.fleet.rows.selected().unwrap().node.clone();
    model.fleet.rows.select(0);
    assert_eq!(selected(&model), "worker-07");
    tell(&mut model, Message::Maintenances(Change::All(vec![])));
    assert_eq!(selected(&model), "worker-07", "whose maintenance has ended meanwhile");
    tell(&mut model, Message::Maintenances(Change::All(vec![Arc::new(worker_07())])));
    assert_eq!(selected(&model), "worker-07", "which has begun one meanwhile");
}

#[test]
fn what_keeps_a_node_that_is_given_back_comes_before_its_pods_of_old() {
    let mut model = deaf(options());
    let mut object = stopping(worker_07());
    object.metadata.finalizers = Some(vec!["example.com/audit".to_owned()]);
    assert!(!object.status.as_ref().unwrap().blocked_pods.is_empty());
    tell(&mut model, Message::Maintenances(Change::All(vec![Arc::new(object)])));
    let (why, remedy) = model.remedy().unwrap();
    assert!(why.ends_with("finalizers keep the object: example.com/audit"), "{why}");
    assert!(remedy.command.contains("finalizers"), "{remedy:?}");
}

#[test]
fn a_watch_on_a_node_that_was_closed_has_no_say() {
    let mut model = node(options());
    tell(&mut model, Message::Pods { node: "worker-12".into(), change: Change::All(vec![]) });
    tell(&mut model, Message::Events { node: "worker-12".into(), change: Change::All(vec![]) });
    let open = model.open.as_ref().unwrap();
    assert!(open.pods.rows.total() > 5 && open.happenings.latest().len() == 3);
    press(&mut model, KeyCode::Esc);
    tell(&mut model, Message::Pods { node: "worker-07".into(), change: Change::All(pods()) });
    assert!(model.open.is_none());
}

#[test]
fn the_blockers_that_hold_up_most_come_first() {
    let mut all = maintenances();
    all[0].metadata.uid = Some("another".into());
    let model = fleet(options());
    let first = &model.fleet.blockers()[0];
    assert_eq!((first.obstacle.as_str(), first.nodes, first.pods), ("PDB shop/cart", 1, 2));
    let mut model = model;
    tell(&mut model, Message::Maintenances(Change::Applied(Arc::new(all[0].clone()))));
    assert_eq!((model.fleet.blockers()[0].nodes, model.fleet.blockers()[0].pods), (2, 4));
}

#[test]
fn a_late_word_of_a_closed_nodes_watches_says_nothing_of_the_node_that_is_open() {
    let mut model = node(options());
    let lost = || Link::Lost { since: now(), error: "e".into() };
    for feed in [Feed::Pods, Feed::Events] {
        tell(&mut model, Message::Link { feed, node: Some("worker-12".into()), link: lost() });
        assert_eq!(model.links.of(feed), Freshness::Live);
    }
    let denied = Link::Forbidden("no".into());
    tell(&mut model, Message::Link { feed: Feed::Pods, node: Some("worker-12".into()), link: denied });
    assert!(!model.open.as_ref().unwrap().pods.hidden);
    press(&mut model, KeyCode::Esc);
    tell(&mut model, Message::Link { feed: Feed::Pods, node: Some("worker-07".into()), link: lost() });
    press(&mut model, KeyCode::Enter);
    assert_eq!(model.links.of(Feed::Pods), Freshness::Connecting);
}

#[test]
fn a_node_is_live_once_its_pods_are_there_and_watched() {
    let seen = || Message::Pods { node: "worker-07".into(), change: Change::All(pods()) };
    let mut model = fleet(options());
    assert_eq!(model.freshness(), Freshness::Live);
    press(&mut model, KeyCode::Enter);
    assert_eq!(model.freshness(), Freshness::Connecting);
    tell_link(&mut model, Feed::Pods, Link::Live);
    assert_eq!(model.freshness(), Freshness::Connecting, "a watch may be up before its first list is here");
    tell(&mut model, seen());
    assert_eq!(model.freshness(), Freshness::Live);

    let mut model = fleet(options());
    press(&mut model, KeyCode::Enter);
    tell(&mut model, seen());
    assert_eq!(model.freshness(), Freshness::Connecting, "nobody would hear of a change yet");
    tell_link(&mut model, Feed::Pods, Link::Forbidden("no".into()));
    assert_eq!(model.freshness(), Freshness::Live, "what the status says is shown, and that is so now");
}

#[test]
fn another_drain_spec_judges_the_pods_anew_and_asks_nobody() {
    let mut model = node(options());
    let mut object = worker_07();
    object.spec.drain = Some(DrainSpec { force: false, ..DrainSpec::default() });
    let effects = tell(&mut model, Message::Maintenances(Change::Applied(Arc::new(object))));
    assert_eq!(effects, []);
    let bare = model.open.as_ref().unwrap().pods.rows.get("bare").unwrap();
    assert_eq!(bare.stand.reason, Some(BlockReason::Unmanaged));
}

#[test]
fn while_paused_nothing_changes_and_going_on_tells_everything_anew() {
    let mut model = fleet(options());
    type_in(&mut model, "p");
    tell(&mut model, Message::Maintenances(Change::All(vec![])));
    assert_eq!(model.fleet.rows.total(), 11);
    tell_link(&mut model, Feed::Maintenances, Link::Forbidden("no".into()));
    assert!(matches!(model.freshness(), Freshness::Forbidden("no")), "how the watches are is always told");
    assert_eq!(type_in(&mut model, "p"), [Effect::Reconnect]);
    tell(&mut model, Message::Maintenances(Change::All(vec![])));
    assert_eq!(model.fleet.rows.total(), 0);
}

#[test]
fn what_is_shown_after_a_pause_is_as_old_as_the_pause_until_it_is_told_anew() {
    let later = |seconds| Message::Tick(now() + SignedDuration::from_secs(seconds));
    for scene in [fleet as fn(Options) -> Model, node] {
        let mut model = scene(options());
        type_in(&mut model, "p");
        tell(&mut model, later(3600));
        type_in(&mut model, "p");
        assert_eq!((model.freshness(), model.is_old()), (Freshness::Connecting, true));
        assert!(text(&model).lines().next().unwrap().ends_with("connecting"), "{}", text(&model));
        let lost = Link::Lost { since: now() + SignedDuration::from_secs(3600), error: "e".into() };
        tell_link(&mut model, Feed::Maintenances, lost);
        assert_eq!(model.freshness(), Freshness::Stale { since: now(), error: "e" });
    }
}

#[test]
fn whoever_connects_anew_sees_old_rows_until_they_are_told_anew() {
    for (scene, feeds) in [
        (fleet as fn(Options) -> Model, &[Feed::Maintenances][..]),
        (node, &[Feed::Maintenances, Feed::Pods]),
    ] {
        let mut model = scene(options());
        assert!(!model.is_old());
        assert_eq!(type_in(&mut model, "r"), [Effect::Reconnect]);
        for feed in feeds {
            assert_eq!((model.freshness(), model.is_old()), (Freshness::Connecting, true), "{feed:?}");
            tell_link(&mut model, *feed, Link::Live);
        }
        assert_eq!((model.freshness(), model.is_old()), (Freshness::Live, false));
    }
    let mut model = fleet(Options { size: (30, 6), ..options() });
    type_in(&mut model, "r");
    assert!(text(&model).starts_with("connecting "), "{}", text(&model));
}

#[test]
fn a_node_that_is_opened_while_paused_shows_its_pods_and_then_stands_still() {
    let mut model = fleet(options());
    type_in(&mut model, "p");
    press(&mut model, KeyCode::Enter);
    let told = |pods| Message::Pods { node: "worker-07".into(), change: Change::All(pods) };
    tell(&mut model, told(pods()));
    assert_eq!(model.open.as_ref().unwrap().pods.rows.total(), pods().len());
    tell(&mut model, told(vec![]));
    assert_eq!(model.open.as_ref().unwrap().pods.rows.total(), pods().len());
    let happened = |events| Message::Events { node: "worker-07".into(), change: Change::All(events) };
    tell(&mut model, happened(super::scenes::events()));
    tell(&mut model, happened(vec![]));
    assert_eq!(model.open.as_ref().unwrap().happenings.latest().len(), 3);
}

#[test]
fn events_and_what_is_known_of_nodes_say_how_old_they_are() {
    let mut model = node(options());
    type_in(&mut model, "e");
    let line = |model: &Model, word: &str| {
        text(model).lines().find(|line| line.contains(word)).unwrap_or_default().to_owned()
    };
    assert!(!line(&model, "EVENTS").contains("STALE") && !line(&model, "Cordoned:").contains("STALE"));
    let lost = || Link::Lost { since: now() - SignedDuration::from_secs(12), error: "e".into() };
    tell_link(&mut model, Feed::Events, lost());
    tell_link(&mut model, Feed::Nodes, lost());
    assert!(line(&model, "EVENTS").contains("STALE 12s"), "{}", text(&model));
    assert!(line(&model, "Cordoned:").contains("Node: STALE 12s"), "{}", text(&model));
    tell_link(&mut model, Feed::Events, Link::Forbidden("no".into()));
    assert!(line(&model, "EVENTS").contains("FORBIDDEN"), "{}", text(&model));
}

#[test]
fn pods_that_may_be_listed_again_replace_what_the_status_said() {
    let mut model = node(options());
    tell_link(&mut model, Feed::Pods, Link::Forbidden("no".into()));
    assert!(text(&model).contains("You may not list pods"));
    tell_link(&mut model, Feed::Pods, Link::Live);
    tell(&mut model, Message::Pods { node: "worker-07".into(), change: Change::All(pods()) });
    assert!(!text(&model).contains("You may not list pods"));
}

#[test]
fn good_words_pass_and_bad_ones_stay_until_a_key() {
    let after = |seconds| Message::Tick(now() + SignedDuration::from_secs(seconds));
    let mut model = deaf(options());
    tell(&mut model, Message::Done(Ok("worker-05 started".into())));
    tell(&mut model, after(7));
    assert!(text(&model).contains("worker-05 started"));
    tell(&mut model, after(8));
    assert!(!text(&model).contains("worker-05 started"));
    tell(&mut model, Message::Done(Err("nodes is forbidden".into())));
    tell(&mut model, after(1000));
    assert!(text(&model).contains("nodes is forbidden"));
    press(&mut model, KeyCode::Down);
    assert!(!text(&model).contains("nodes is forbidden"));
}

#[test]
fn a_maintenance_that_nobody_takes_up_is_said_to_be_so() {
    let mut model = deaf(options());
    let object = super::scenes::maintenance("worker-40", 5, serde_json::json!({}));
    tell(&mut model, Message::Maintenances(Change::All(vec![Arc::new(object)])));
    assert!(!text(&model).contains("is nm-reconciler running?"));
    tell(&mut model, Message::Tick(now() + SignedDuration::from_secs(10)));
    assert!(text(&model).contains("is nm-reconciler running?"));
}
