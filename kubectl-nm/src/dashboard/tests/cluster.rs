//! What the cluster says, and how fresh that is.

use std::sync::Arc;

use crossterm::event::KeyCode;
use jiff::SignedDuration;
use nm_shared::{BlockReason, DrainSpec};

use super::painted::text;
use super::scenes::{
    deaf, fleet, maintenances, node, now, options, pods, press, tell, tell_link, type_in, worker_07,
};
use crate::dashboard::effect::Effect;
use crate::dashboard::message::{Change, Feed, Link, Message};
use crate::dashboard::model::Model;
use crate::dashboard::model::fleet_row::NodeState;
use crate::dashboard::model::links::Freshness;
use crate::dashboard::options::Options;

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
