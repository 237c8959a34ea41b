//! The order of the rows while a roll is under way.

use std::sync::Arc;

use nm_core::client::watch_stream::WatchChange;
use nm_shared::NodeMaintenance;
use serde_json::{Value, json};

use crate::message::Message;
use crate::model::Model;
use crate::model::lists::listing::Rows;
use crate::objects::watch_state::{WatchKind, WatchState};
use crate::tests::scenes::{ago, empty, maintenance, options, send, set_watch};

/// A maintenance of roll `kernel` with this status and the record of its node.
fn of_roll(node: &str, status: Value, step: &str) -> NodeMaintenance {
    let mut object = maintenance(node, 300, status);
    object.metadata.labels = Some([("kubectl-nm.dev/roll".to_owned(), "kernel".to_owned())].into());
    let record = json!({"step": step}).to_string();
    object.metadata.annotations = Some([("kubectl-nm.dev/roll-node".to_owned(), record)].into());
    object
}

fn planned(node: &str) -> NodeMaintenance {
    let suspended = json!({"type": "Suspended", "status": "True", "reason": "Planned", "message": "",
        "lastTransitionTime": ago(290)});
    of_roll(node, json!({"phase": "Pending", "conditions": [suspended]}), "Planned")
}

fn drained(node: &str, step: &str) -> NodeMaintenance {
    of_roll(node, json!({"phase": "Succeeded", "evictionPods": 1}), step)
}

/// The anchor of the roll shows that it has halted, or that it runs.
fn anchored(mut object: NodeMaintenance, halt: &Value) -> NodeMaintenance {
    let annotations = object.metadata.annotations.get_or_insert_default();
    let state = json!({"revision": if halt.is_null() { 3 } else { 4 }, "halt": halt});
    annotations.insert("kubectl-nm.dev/roll-state".to_owned(), state.to_string());
    object
}

fn order(model: &mut Model) -> Vec<String> {
    model.fleet.rows.go_to_top();
    let rows = model.fleet.rows.window(9);
    rows.map(|at| model.fleet.rows.nth(at).unwrap().node.clone()).collect()
}

#[test]
fn the_node_at_work_is_above_planned_ones_and_one_that_halted_the_roll_at_the_top() {
    let mut model = empty(options());
    set_watch(&mut model, WatchKind::Maintenances, WatchState::Live);
    let blocked = json!({"phase": "Running", "evictionPods": 1, "podCounts": {"blocked": 1}});
    let objects = [
        anchored(planned("n1"), &Value::Null),
        planned("n2"),
        drained("n3", "Rejoining"),
        maintenance("n4", 300, json!({"phase": "Succeeded", "evictionPods": 1})),
        maintenance("n5", 300, json!({"phase": "Running", "evictionPods": 1})),
        maintenance("n6", 300, blocked),
    ];
    let listed = objects.map(Arc::new).to_vec();
    send(&mut model, Message::Maintenances(WatchChange::Listed(listed.clone())));
    assert_eq!(order(&mut model), ["n6", "n5", "n3", "n1", "n2", "n4"]);
    let halt = json!({"node": "n3", "message": "node n3 is not back after 10m", "at": ago(5)});
    let halted = Arc::new(anchored(planned("n1"), &halt));
    send(&mut model, Message::Maintenances(WatchChange::Applied(halted.clone())));
    assert_eq!(order(&mut model), ["n3", "n6", "n5", "n1", "n2", "n4"]);
    let mut listed = listed;
    listed[0] = halted;
    send(&mut model, Message::Maintenances(WatchChange::Listed(listed)));
    assert_eq!(order(&mut model), ["n3", "n6", "n5", "n1", "n2", "n4"]);
}
