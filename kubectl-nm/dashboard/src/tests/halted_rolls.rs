//! Rolls that have halted because a node did not come back: what has become of it, and what to do.

use std::sync::Arc;

use crossterm::event::KeyCode;
use jiff::SignedDuration;
use nm_core::client::watch_stream::WatchChange;
use nm_core::maintenance::ROLL_LABEL;
use nm_core::maintenance::roll::{NODE, STATE};
use nm_roll::record::SETTINGS;
use nm_shared::NodeMaintenance;
use serde_json::json;

use crate::message::{Effect, Message};
use crate::model::{Model, Options};
use crate::objects::node_metadata::{NodeDetails, NodeMetadata, NodeReadiness};
use crate::objects::watch_state::{WatchKind, WatchState};
use crate::tests::painted::text;
use crate::tests::scenes::{ago, empty, maintenance, options, press, send, set_watch, type_in};

const HALTED: &str = "node w1 is not back after 8s: it has not rebooted, and is not Ready";

/// A node of roll kernel, which w1 has halted.
fn of_roll(node: &str, position: i64) -> NodeMaintenance {
    let drained = json!({"type": "Drained", "status": "True", "reason": "Drained", "message": "",
        "lastTransitionTime": ago(300)});
    let status =
        json!({"phase": "Succeeded", "evictionPods": 3, "podCounts": {"gone": 3}, "conditions": [drained]});
    let mut object = maintenance(node, 360, status);
    let settings = json!({"waves": [2], "maxUnavailable": 2, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
        "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1, "expectReboot": true});
    let record = json!({"wave": 0, "position": position, "since": ago(250), "step": "Rejoining", "bootId": "boot-0",
        "action": {"attempt": 1, "state": "succeeded"}});
    let halt = json!({"node": "w1", "message": HALTED, "cause": "notBack", "at": ago(240)});
    let state = json!({"revision": 3, "halt": halt});
    object.metadata.labels = Some([(ROLL_LABEL.to_owned(), "kernel".to_owned())].into());
    let annotations = [(SETTINGS, settings), (NODE, record), (STATE, state)];
    object.metadata.annotations =
        Some(annotations.map(|(name, value)| (name.to_owned(), value.to_string())).into());
    object
}

fn node(name: &str, readiness: NodeReadiness, boot_id: &str) -> Arc<NodeMetadata> {
    let details = NodeDetails { readiness, boot_id: boot_id.to_owned(), ..NodeDetails::default() };
    Arc::new(NodeMetadata { name: name.into(), details: Some(details), ..NodeMetadata::default() })
}

fn tick(model: &mut Model) -> Vec<Effect> {
    let at = model.now + SignedDuration::from_secs(1);
    send(model, Message::Tick(at))
}

fn halted() -> Model {
    let mut model = empty(Options { size: (200, 40), ..options() });
    set_watch(&mut model, WatchKind::Maintenances, WatchState::Live);
    set_watch(&mut model, WatchKind::Nodes, WatchState::Live);
    let ready = node("w2", NodeReadiness::Ready, "boot-1");
    let nodes = vec![node("w1", NodeReadiness::NotReady, "boot-0"), ready];
    send(&mut model, Message::Nodes(WatchChange::Listed(nodes)));
    let objects = [("w1", 0), ("w2", 1)].map(|(node, position)| Arc::new(of_roll(node, position)));
    send(&mut model, Message::Maintenances(WatchChange::Listed(objects.into())));
    tick(&mut model);
    model
}

#[test]
fn the_node_that_halted_a_roll_says_what_explain_says() {
    let mut model = halted();
    for is_open in [false, true] {
        let (why, remedy) = model.remedy().unwrap();
        assert!(why.starts_with("w1: Roll kernel halted at ") && why.contains(HALTED), "{why}");
        assert_eq!(
            remedy.advice,
            "Unless node w1 is still at work, reboot it or power it on; then continue the roll; or continue without the node, \
             which returns it to service as it is, or abort the roll"
        );
        assert_eq!(model.copy_text().as_deref(), Some("kubectl nm roll resume kernel"));
        type_in(&mut model, "v");
        let details = text(&model);
        for command in ["resume kernel --skip w1", "roll abort kernel"] {
            assert!(details.contains(command), "{command}: {details}");
        }
        press(&mut model, KeyCode::Esc);
        if !is_open {
            press(&mut model, KeyCode::Enter);
        }
    }
}

#[test]
fn a_node_that_has_rebooted_since_its_roll_halted_is_reported() {
    let mut model = halted();
    let banner = |model: &Model| {
        let shown = text(model);
        shown.lines().find(|line| line.contains("(kubectl nm roll resume kernel")).unwrap().trim().to_owned()
    };
    assert!(banner(&model).ends_with(HALTED), "{}", banner(&model));
    for (readiness, expected) in [
        (NodeReadiness::Unknown, "; by now, node w1 has rebooted, but is not Ready"),
        (NodeReadiness::Ready, "; by now, node w1 has rebooted and is Ready"),
    ] {
        send(&mut model, Message::Nodes(WatchChange::Applied(node("w1", readiness, "boot-1"))));
        tick(&mut model);
        assert!(banner(&model).ends_with(&format!("{HALTED}{expected}")), "{}", banner(&model));
    }
    assert!(model.remedy().unwrap().1.advice.starts_with("Continue the roll; or"), "{:?}", model.remedy());
}

#[test]
fn a_drained_node_that_is_not_ready_is_shown_as_such() {
    let mut model = halted();
    let cell = |model: &Model, node: &str| {
        let row = model.fleet.rows.all().find(|row| row.node == node).unwrap();
        model.fleet.why(row, model.now).into_owned()
    };
    assert_eq!(cell(&model, "w1"), "the node is not Ready; roll kernel has not seen the node return");
    assert_eq!(cell(&model, "w2"), "roll kernel has not seen the node return");
    // Its pods are gone, so nothing is said of them.
    assert!(!text(&model).contains("pods may not terminate"), "{}", text(&model));
    send(&mut model, Message::Nodes(WatchChange::Applied(node("w1", NodeReadiness::Ready, "boot-1"))));
    assert_eq!(cell(&model, "w1"), "roll kernel has not seen the node return");
}
