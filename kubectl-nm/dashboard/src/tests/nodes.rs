//! The view of all nodes.

use std::sync::Arc;

use crossterm::event::KeyCode;
use insta::assert_snapshot;
use jiff::SignedDuration;
use kube::ResourceExt;
use nm_core::client::watch_stream::WatchChange;
use nm_shared::NodeMaintenance;
use nm_shared::drain::cordon_owner::CordonOwner;
use serde_json::{Value, json};

use crate::config::appearance::{Appearance, ThemeName};
use crate::message::{ClusterRequest, Effect, Message};
use crate::model::fleet::node_row::NodeRow;
use crate::model::lists::listing::Sort;
use crate::model::{Model, Options};
use crate::objects::node_metadata::{NodeDetails, NodeMetadata, NodeReadiness};
use crate::objects::watch_state::{PodCountError, WatchKind, WatchState};
use crate::tests::painted::{painted, text};
use crate::tests::scenes::{
    ago, all_nodes, confirm, empty, fleet, maintenance, node, now, options, press, send, set_watch, type_in,
    whole_nodes, worker_07,
};

fn sized(width: u16, height: u16) -> Options {
    Options { size: (width, height), ..options() }
}

fn selected(model: &Model) -> &str {
    model.selected_node().unwrap_or_default()
}

fn line<'a>(shown: &'a str, node: &str) -> &'a str {
    shown.lines().find(|line| line.contains(node)).unwrap_or_default()
}

#[test]
fn all_nodes_in_every_width() {
    for (width, height) in [(200, 50), (120, 30), (80, 24), (45, 20)] {
        assert_snapshot!(format!("nodes_{width}x{height}"), painted(&all_nodes(sized(width, height))));
    }
}

#[test]
fn themes_and_ascii_show_the_same_nodes() {
    for (name, theme, ascii) in [
        ("light", ThemeName::Light, false),
        ("colour_blind", ThemeName::ColourBlind, false),
        ("mono", ThemeName::Mono, false),
        ("ascii", ThemeName::Dark, true),
    ] {
        let options = Options { appearance: Appearance { theme, ascii }, ..sized(80, 24) };
        let model = all_nodes(options);
        assert!(!ascii || text(&model).is_ascii());
        assert_snapshot!(format!("nodes_{name}"), painted(&model));
    }
}

#[test]
fn tab_shows_all_nodes_and_then_the_maintenances_again() {
    let mut model = fleet(options());
    assert!(!model.nodes.is_watched, "the fleet needs only metadata");
    assert_eq!(press(&mut model, KeyCode::Tab), [Effect::WatchWholeNodes]);
    assert_eq!(*model.freshness(), WatchState::Connecting);
    let mut model = all_nodes(options());
    assert_eq!((model.rows().total(), model.freshness()), (51, &WatchState::Live));
    assert_eq!(press(&mut model, KeyCode::Tab), []);
    assert_eq!(model.rows().total(), 11);
    assert_eq!(press(&mut model, KeyCode::Tab), [], "whole nodes are still watched");
    assert_eq!(model.rows().total(), 51);

    let mut open = node(options());
    assert_eq!(press(&mut open, KeyCode::Tab), []);
    assert_eq!(open.opened(), Some("worker-07"));
    let mut model = all_nodes(options());
    type_in(&mut model, "y");
    press(&mut model, KeyCode::Tab);
    assert!(model.side.unwrap().has_focus && model.shows_nodes(), "with a pane, the focus moves");
}

#[test]
fn the_dashboard_begins_with_all_nodes_on_request() {
    let model = empty(Options { all_nodes: true, ..sized(80, 12) });
    assert!(model.shows_nodes() && model.nodes.is_watched);
}

#[test]
fn what_needs_attention_comes_first() {
    let mut model = all_nodes(options());
    let order = |model: &Model| -> Vec<String> {
        let rows = (0..6).filter_map(|at| model.nodes.rows.nth(at));
        rows.map(|row| row.name().to_owned()).collect()
    };
    assert_eq!(
        order(&model),
        ["worker-33", "worker-34", "worker-35", "worker-13", "worker-14", "worker-15"],
        "not Ready, then cordoned by others"
    );
    let sorts = ["s", "s", "s", "s"].map(|key| {
        type_in(&mut model, key);
        model.arrangement().sort
    });
    assert_eq!(sorts, [Sort::Name, Sort::Pool, Sort::Age, Sort::Risk]);
    type_in(&mut model, "ss");
    assert!(line(&text(&model), "worker-01").contains("batch"), "{}", text(&model));
    assert_eq!(order(&model)[0], "worker-03", "pool batch, zone eu-1a");
}

#[test]
fn a_row_follows_its_node_and_its_maintenance() {
    let mut model = all_nodes(options());
    let row = |model: &Model, node: &str| model.nodes.rows.get(node).cloned().unwrap();
    assert_eq!(row(&model, "worker-07").state_word(), "Blocked");
    send(&mut model, Message::Maintenances(WatchChange::Deleted(Arc::new(worker_07()))));
    assert_eq!(row(&model, "worker-07").state, None);
    send(&mut model, Message::Maintenances(WatchChange::Applied(Arc::new(worker_07()))));
    assert_eq!(row(&model, "worker-07").state_word(), "Blocked");
    send(&mut model, Message::Maintenances(WatchChange::Listed(vec![])));
    assert_eq!(row(&model, "worker-07").state, None);
    let new = NodeMetadata { name: "worker-99".into(), ..NodeMetadata::default() };
    send(&mut model, Message::Nodes(WatchChange::Applied(Arc::new(new.clone()))));
    assert_eq!(model.rows().total(), 52);
    send(&mut model, Message::Nodes(WatchChange::Deleted(Arc::new(new))));
    assert_eq!(model.rows().total(), 51);
}

#[test]
fn rows_are_filtered_by_every_column() {
    for (filter, count) in [
        ("node:worker-1*", 10),
        ("batch", 25),
        ("eu-1a node:worker-0", 3),
        ("notready", 2),
        ("karpenter", 1),
        ("maintenance", 7),
        ("state:blocked", 2),
        ("state:idle node:worker-0", 3),
        ("v1.36", 51),
        ("nothing", 0),
    ] {
        let mut model = all_nodes(options());
        type_in(&mut model, &format!("/{filter}"));
        assert_eq!(model.rows().len(), count, "{filter}");
    }
    let mut model = all_nodes(options());
    type_in(&mut model, "f");
    let shown = text(&model);
    assert!(shown.contains("13 of 51 nodes: unavailable only"), "{shown}");
}

#[test]
fn marked_nodes_are_started_stopped_and_opened_from_there() {
    let mut model = all_nodes(options());
    type_in(&mut model, "/node:worker-05");
    press(&mut model, KeyCode::Enter);
    type_in(&mut model, " ");
    press(&mut model, KeyCode::Esc);
    type_in(&mut model, "/node:worker-07");
    press(&mut model, KeyCode::Enter);
    type_in(&mut model, " ");
    assert!(text(&model).contains("2 marked"), "{}", text(&model));
    type_in(&mut model, "n");
    let effects = confirm(&mut model);
    let [Effect::Send { request: ClusterRequest::Start(objects), .. }] = &effects[..] else {
        panic!("{effects:?}")
    };
    let names: Vec<String> = objects.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["worker-05"], "worker-07 is in maintenance");
    assert!(model.marked().is_empty());

    assert_eq!(selected(&model), "worker-07");
    type_in(&mut model, " x");
    let effects = press(&mut model, KeyCode::Enter);
    assert!(
        matches!(&effects[..], [Effect::Send { request: ClusterRequest::Stop(targets), .. }] if targets[0].name_any() == "worker-07"),
        "{effects:?}"
    );
    type_in(&mut model, "p");
    assert!(text(&model).contains("pause 1 maintenance"), "{}", text(&model));
    press(&mut model, KeyCode::Esc);
    assert_eq!(press(&mut model, KeyCode::Enter), [Effect::Open("worker-07".into())]);
    assert_eq!(press(&mut model, KeyCode::Esc), [Effect::Close]);
    assert!(model.shows_nodes(), "back to all nodes");
}

#[test]
fn an_opened_node_without_a_maintenance_is_cordoned_if_the_node_shows_that() {
    for (node, cordoned) in [("worker-13", "Cordoned: yes"), ("worker-20", "Cordoned: no")] {
        let mut model = all_nodes(options());
        type_in(&mut model, &format!("/node:{node}"));
        press(&mut model, KeyCode::Enter);
        press(&mut model, KeyCode::Enter);
        assert!(text(&model).contains(cordoned), "{}", text(&model));
    }
}

#[test]
fn an_opened_node_says_nothing_of_a_cordon_that_is_not_known() {
    let shown = |nodes: Vec<Arc<NodeMetadata>>, object: Option<NodeMaintenance>| {
        let mut model = empty(Options { nodes: vec!["worker-07".into()], ..options() });
        let objects = object.map(Arc::new).into_iter().collect();
        send(&mut model, Message::Maintenances(WatchChange::Listed(objects)));
        send(&mut model, Message::Nodes(WatchChange::Listed(nodes)));
        text(&model)
    };
    // Neither metadata nor a maintenance that has not begun shows whether somebody has cordoned the node.
    let metadata = || vec![Arc::new(NodeMetadata { name: "worker-07".into(), ..NodeMetadata::default() })];
    let idle = shown(metadata(), None);
    assert!(!idle.contains("Cordoned:") && !idle.contains("Lease:") && !idle.contains("Reason:"), "{idle}");
    let planned = || maintenance("worker-07", 90, json!({"phase": "Pending"}));
    let waits = shown(metadata(), Some(planned()));
    assert!(!waits.contains("Cordoned:") && waits.contains("Lease: -"), "{waits}");

    let by_hand = || {
        let mut node = NodeMetadata::clone(&metadata()[0]);
        node.details = Some(NodeDetails { cordon: Some(CordonOwner::Person), ..NodeDetails::default() });
        vec![Arc::new(node)]
    };
    assert!(shown(by_hand(), None).contains("Cordoned: yes"));
    let waits = shown(by_hand(), Some(planned()));
    assert!(waits.contains("Cordoned: yes") && waits.contains("Lease: -"), "{waits}");
}

#[test]
fn an_opened_node_says_when_its_drain_times_out() {
    let cordoned = json!({"type": "Cordoned", "status": "True", "reason": "Cordoned", "message": "",
        "lastTransitionTime": now() - SignedDuration::from_secs(10)});
    let mut object = maintenance(
        "worker-07",
        10,
        json!({"phase": "Running", "evictionPods": 2, "conditions": [cordoned]}),
    );
    object.spec.drain = serde_json::from_value(json!({"timeoutSeconds": 600})).unwrap();
    let mut model = empty(Options { nodes: vec!["worker-07".into()], ..options() });
    send(&mut model, Message::Maintenances(WatchChange::Listed(vec![Arc::new(object)])));
    assert!(text(&model).contains("Times out: in 9m50s"), "{}", text(&model));
}

#[test]
fn the_dialog_of_a_stop_says_that_a_node_is_not_ready() {
    let mut model = all_nodes(options());
    let is_said = |model: &mut Model| {
        type_in(model, "/node:worker-07");
        press(model, KeyCode::Enter);
        type_in(model, "x");
        let shown = text(model);
        press(model, KeyCode::Esc);
        press(model, KeyCode::Esc);
        assert!(shown.contains(", becomes schedulable"), "{shown}");
        shown.contains("but is not Ready")
    };
    assert!(!is_said(&mut model));
    let mut nodes = whole_nodes();
    let node = nodes.iter_mut().find(|node| node.name == "worker-07").unwrap();
    Arc::make_mut(node).details.as_mut().unwrap().readiness = NodeReadiness::Unknown;
    send(&mut model, Message::Nodes(WatchChange::Listed(nodes)));
    assert!(is_said(&mut model));
}

#[test]
fn only_rows_on_the_screen_are_counted_and_what_is_not_known_is_visible() {
    let mut model = fleet(sized(100, 12));
    press(&mut model, KeyCode::Tab);
    let effects = send(&mut model, Message::Nodes(WatchChange::Listed(whole_nodes())));
    let [Effect::CountPods(first)] = &effects[..] else { panic!("{effects:?}") };
    assert!(first.len() < 10 && first.contains(&"worker-33".to_owned()), "{first:?}");
    assert_eq!(press(&mut model, KeyCode::End), [], "one count at a time");
    let counts = first.iter().map(|node| (node.clone(), 42)).collect();
    let effects = send(&mut model, Message::PodCounts { counts, error: None });
    let [Effect::CountPods(second)] = &effects[..] else { panic!("{effects:?}") };
    assert!(second.iter().all(|node| !first.contains(node)), "the screen as it is by now");
    send(&mut model, Message::PodCounts { counts: vec![], error: Some(PodCountError::Failed) });
    press(&mut model, KeyCode::Home);
    assert!(line(&text(&model), "worker-33").contains(" 42 "), "{}", text(&model));
    let later = Message::Tick(now() + SignedDuration::from_secs(30));
    assert!(matches!(&send(&mut model, later)[..], [Effect::CountPods(again)] if again == first));

    send(&mut model, Message::PodCounts { counts: vec![], error: Some(PodCountError::Forbidden) });
    assert!(text(&model).contains("No permission to list pods"), "{}", text(&model));
    press(&mut model, KeyCode::End);
    assert!(text(&model).contains("  ? "), "{}", text(&model));
    assert_eq!(type_in(&mut model, "r"), [Effect::Reconnect]);
    assert!(!text(&model).contains("No permission to list pods"));
    press(&mut model, KeyCode::Tab);
    let effects = send(&mut model, Message::Tick(now()));
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::CountPods(_))), "{effects:?}");
}

/// All nodes without permission to list them.
pub(super) fn forbidden(options: Options) -> Model {
    let mut model = fleet(options);
    press(&mut model, KeyCode::Tab);
    send(&mut model, Message::Nodes(WatchChange::Listed(vec![])));
    let words = "nodes is forbidden: User \"ann\" cannot list resource \"nodes\"";
    set_watch(&mut model, WatchKind::Nodes, WatchState::Forbidden(words.into()));
    model
}

#[test]
fn nodes_that_are_out_of_date_never_look_live() {
    let mut model = all_nodes(options());
    let lost = WatchState::Lost { since: now() - SignedDuration::from_secs(12), error: "e".into() };
    set_watch(&mut model, WatchKind::Nodes, lost);
    assert!(model.is_stale() && text(&model).contains("data 12s old"), "{}", text(&model));
    press(&mut model, KeyCode::Tab);
    assert!(!model.is_stale(), "the maintenances are current");
}

#[test]
fn nodes_in_maintenance_have_the_order_of_the_list_of_maintenances() {
    let mut model = all_nodes(options());
    let of_roll = |node: &str, step: &str, status: Value| {
        let mut object = maintenance(node, 600, status);
        object.metadata.labels = Some([("kubectl-nm.dev/roll".to_owned(), "k2".to_owned())].into());
        let record = ("kubectl-nm.dev/roll-node".to_owned(), json!({"step": step}).to_string());
        object.metadata.annotations = Some([record].into());
        Arc::new(object)
    };
    let planned = json!({"type": "Suspended", "status": "True", "reason": "Planned", "message": "",
        "observedGeneration": 1, "lastTransitionTime": ago(600)});
    let planned = json!({"phase": "Pending", "conditions": [planned]});
    let objects = vec![
        of_roll("worker-02", "Planned", planned),
        of_roll("worker-03", "Acting", json!({"phase": "Succeeded"})),
        Arc::new(worker_07()),
    ];
    let mut anchor = (*objects[0]).clone();
    send(&mut model, Message::Maintenances(WatchChange::Listed(objects)));
    let place = |model: &Model, node: &str| {
        let mut rows = (0..51).filter_map(|at| model.nodes.rows.nth(at));
        rows.position(|row| NodeRow::name(row) == node).unwrap()
    };
    assert!(place(&model, "worker-07") < place(&model, "worker-03"));
    assert!(
        place(&model, "worker-03") < place(&model, "worker-02"),
        "a node at work is before a planned one"
    );
    // The maintenance of one node of the roll shows that it has halted at another.
    let halt = json!({"node": "worker-03", "message": "worker-03 is not back after 10m", "at": ago(5)});
    let state = json!({"revision": 4, "halt": halt}).to_string();
    let annotations = anchor.metadata.annotations.get_or_insert_default();
    annotations.insert("kubectl-nm.dev/roll-state".to_owned(), state);
    send(&mut model, Message::Maintenances(WatchChange::Applied(Arc::new(anchor))));
    assert!(
        place(&model, "worker-03") < place(&model, "worker-07"),
        "the node that halted its roll is first"
    );
}
