//! Workloads that drains have left without a ready pod: in the list, and on the screen of a node.

use std::collections::BTreeMap;
use std::sync::Arc;

use crossterm::event::KeyCode;
use insta::assert_snapshot;
use jiff::SignedDuration;
use nm_core::client::watch_stream::WatchChange;
use nm_core::explain::lasting_outages::SeenOutages;
use nm_shared::NodeMaintenance;
use serde_json::{Value, json};

use crate::config::appearance::Appearance;
use crate::message::{Effect, Message};
use crate::model::{Model, Options, RecordingMode};
use crate::objects::watch_state::{WatchKind, WatchState};
use crate::tests::painted::{painted, text};
use crate::tests::scenes::{
    ago, empty, fleet, maintenance, node, nodes, now, options, press, send, set_watch, type_in,
};

fn drained(node: &str, gone: i32) -> NodeMaintenance {
    let condition = |type_: &str| {
        json!({"type": type_, "status": "True", "reason": type_, "message": "", "observedGeneration": 1,
            "lastTransitionTime": ago(400)})
    };
    let status: Value = json!({"phase": "Succeeded", "drainProgress": 100, "evictionPods": gone,
        "podCounts": {"gone": gone}, "conditions": [condition("Cordoned"), condition("Drained")]});
    let mut object = maintenance(node, 420, status);
    object.metadata.uid = Some(format!("uid-{node}"));
    object
}

fn down(workloads: &[(&str, &[&str])]) -> Message {
    let owned = |(node, down): &(&str, &[&str])| {
        let down = down.iter().map(|name| (*name).to_owned()).collect();
        (format!("uid-{node}"), SeenOutages { down, ..SeenOutages::default() })
    };
    Message::Outages(workloads.iter().map(owned).collect::<BTreeMap<String, SeenOutages>>())
}

/// Three drained nodes, whose pods left workloads without a ready pod.
fn with_outages(options: Options) -> Model {
    let mut model = empty(options);
    set_watch(&mut model, WatchKind::Maintenances, WatchState::Live);
    set_watch(&mut model, WatchKind::Nodes, WatchState::Live);
    send(&mut model, Message::Nodes(WatchChange::Listed(nodes())));
    let objects = [("worker-01", 4), ("worker-02", 7), ("worker-03", 2)];
    let objects = objects.map(|(node, gone)| Arc::new(drained(node, gone)));
    send(&mut model, Message::Maintenances(WatchChange::Listed(objects.into())));
    ask(&mut model, 1);
    send(
        &mut model,
        down(&[
            ("worker-01", &["db/sts/pg", "shop/deploy/web", "shop/deploy/cart"]),
            ("worker-02", &["shop/deploy/web", "pay/deploy/ledger"]),
            ("worker-03", &[]),
        ]),
    );
    model
}

/// The nodes whose outages are read within these seconds.
fn ask(model: &mut Model, seconds: i64) -> Vec<Vec<String>> {
    let mut reads = Vec::new();
    for _ in 0..seconds {
        let at = model.now + SignedDuration::from_secs(1);
        for effect in send(model, Message::Tick(at)) {
            if let Effect::ReadOutages(of) = effect {
                let mut nodes: Vec<String> =
                    of.iter().map(|known| known.maintenance.spec.node_name.clone()).collect();
                nodes.sort();
                reads.push(nodes);
            }
        }
    }
    reads
}

#[test]
fn the_list_names_workloads_that_are_down_since_pods_left_drained_nodes() {
    for (width, height) in [(200, 60), (120, 40), (80, 24), (45, 20)] {
        let model = with_outages(Options { size: (width, height), ..options() });
        assert_snapshot!(format!("outages_{width}x{height}"), painted(&model));
    }
    let ascii = Appearance { ascii: true, ..Appearance::default() };
    let shown = text(&with_outages(Options { appearance: ascii, ..options() }));
    assert!(shown.is_ascii(), "{shown}");
}

#[test]
fn the_selected_node_names_its_own_and_the_command_that_explains_them() {
    let mut model = with_outages(options());
    let shown = text(&model);
    assert!(shown.contains("4 workloads whose pods left worker-01, worker-02 are down"), "{shown}");
    type_in(&mut model, "j");
    let (why, remedy) = model.remedy().unwrap();
    assert_eq!(why, "worker-02: 2 workloads down: shop/deploy/web, pay/deploy/ledger");
    assert_eq!(remedy.command, "kubectl nm explain worker-02");
    send(&mut model, down(&[("worker-01", &[]), ("worker-02", &["shop/deploy/web"])]));
    let shown = text(&model);
    let banner =
        "1 workload whose pods left worker-02 is down; see kubectl nm explain worker-02: shop/deploy/web";
    assert!(shown.contains(banner), "{shown}");
    send(&mut model, down(&[("worker-02", &[])]));
    assert!(!text(&model).contains(" down"), "{}", text(&model));
}

#[test]
fn the_open_node_names_its_own() {
    let mut model = with_outages(options());
    press(&mut model, KeyCode::Enter);
    let shown = text(&model);
    for expected in
        ["3 workloads whose pods left this node are down", "kubectl nm explain worker-01", "db/sts/pg"]
    {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    assert!(!shown.contains("ledger"), "{shown}");
    assert!(!shown.contains("\n down: "), "the notice above names them: {shown}");
}

#[test]
fn a_user_who_may_not_read_what_is_down_is_told_that_this_is_not_known() {
    let mut model = with_outages(options());
    let unknown = "No permission to list events: it is not known whether workloads are down";
    assert!(!text(&model).contains(unknown), "{}", text(&model));
    let denied = SeenOutages { denied: [String::from("list events")].into(), ..SeenOutages::default() };
    let seen = ["worker-01", "worker-02"].map(|node| (format!("uid-{node}"), denied.clone()));
    send(&mut model, Message::Outages(seen.into()));
    assert_eq!(text(&model).matches(unknown).count(), 1, "{}", text(&model));
    press(&mut model, KeyCode::Enter);
    assert!(text(&model).contains(unknown), "{}", text(&model));
}

#[test]
fn outages_of_all_rows_are_read_together_and_rarely() {
    let mut model = fleet(options());
    let drained = ["worker-02", "worker-03", "worker-07", "worker-08", "worker-09", "worker-12", "worker-33"];
    assert_eq!(ask(&mut model, 50), [drained]);
    // A pod leaves, whose replacement may not become Ready.
    let mut moved = crate::tests::scenes::worker_07();
    moved.status.as_mut().unwrap().pod_counts.gone += 1;
    send(&mut model, Message::Maintenances(WatchChange::Applied(Arc::new(moved))));
    assert_eq!(ask(&mut model, 60), [drained]);
    let mut quiet = fleet(options());
    assert_eq!(ask(&mut quiet, 900).len(), 7, "once a minute for five minutes, and then every five");
}

#[test]
fn outages_are_read_neither_for_other_views_nor_for_a_recording() {
    let mut opened = node(options());
    assert_eq!(ask(&mut opened, 3), [["worker-07"]]);
    let mut all_nodes = fleet(options());
    press(&mut all_nodes, KeyCode::Tab);
    assert_eq!(ask(&mut all_nodes, 3), [] as [Vec<String>; 0]);
    let mut replay = fleet(Options { recording: RecordingMode::Replay, ..options() });
    assert_eq!(ask(&mut replay, 3), [] as [Vec<String>; 0]);
    assert_eq!(replay.now, now() + SignedDuration::from_secs(3));
}
