//! What the dialogs about a pod say of its replacement.

use std::sync::Arc;

use nm_core::client::watch_stream::WatchChange;
use nm_core::testing::objects::{running, with_status};
use serde_json::{Value, json};

use crate::message::Message;
use crate::model::Model;
use crate::model::dialogs::pod_dialog::PodFacts;
use crate::tests::acting::{asked, facts};
use crate::tests::first_causes::never_allowing;
use crate::tests::painted::text;
use crate::tests::scenes::{node, options, send, type_in};

fn parse<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// The words of the dialog in one line.
fn shown(model: &Model) -> String {
    let text = text(model);
    let lines = text.lines().filter_map(|line| line.split('│').nth(1));
    lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

/// The open node, of which `shop/cart-0` keeps returning.
fn returning() -> Model {
    let mut model = node(options());
    let mut status = running(40, &[("cart-0", "m")]);
    let blocked = status["blockedPods"][0].as_object_mut().unwrap();
    blocked.extend(json!({"reason": "KeepsReturning", "budget": null}).as_object().unwrap().clone());
    let object = Arc::new(with_status("worker-07", status));
    send(&mut model, Message::Maintenances(WatchChange::Applied(object)));
    model
}

#[test]
fn a_pod_that_keeps_returning_is_not_evicted_by_hand_and_its_deletion_says_that_it_returns() {
    let mut model = returning();
    assert_eq!(type_in(&mut model, "R"), []);
    let notice = model.notice.as_ref().unwrap().text.clone();
    assert_eq!(notice, "shop/cart-0 is not evicted: its replacement would start on this node again");
    asked(&mut model, "D", Ok(facts()));
    let said = "sts/cart recreates it, and its pods keep returning to this node.";
    assert!(shown(&model).contains(said), "{}", text(&model));
}

#[test]
fn a_deletion_says_that_no_node_is_left_for_the_replacement() {
    let mut model = node(options());
    let mut read = never_allowing("worker-07");
    let cordoned = json!({"metadata": {"name": "worker-07"}, "spec": {"unschedulable": true},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    read.nodes = Some(Ok(vec![parse(cordoned)]));
    read.in_maintenance = [String::from("worker-07")].into();
    send(&mut model, Message::CauseFacts { node: "worker-07".into(), facts: read });
    asked(&mut model, "D", Ok(facts()));
    let said = "sts/cart recreates it, but no node is left: its replacement will be Pending.";
    assert!(shown(&model).contains(said), "{}", text(&model));
}

#[test]
fn a_deletion_names_the_template_that_assigns_the_replacement_and_the_finalizers_that_keep_the_pod() {
    let mut model = node(options());
    let finalizers = vec![String::from("example.com/hold")];
    asked(&mut model, "D", Ok(PodFacts { is_assigned: true, finalizers, ..facts() }));
    for said in [
        "sts/cart recreates it on the same node: its pod template assigns it to that node (nodeName).",
        "Until its finalizer example.com/hold is removed, the pod stays Terminating.",
    ] {
        assert!(shown(&model).contains(said), "{}", text(&model));
    }
}

#[test]
fn a_pod_that_is_being_deleted_is_not_said_to_be_recreated() {
    let mut model = node(options());
    let finalizers = vec![String::from("example.com/hold")];
    asked(&mut model, "D", Ok(PodFacts { is_terminating: true, finalizers, ..facts() }));
    for said in ["It is already being deleted", "Until its finalizer example.com/hold is removed"] {
        assert!(shown(&model).contains(said), "{}", text(&model));
    }
    assert!(!shown(&model).contains("recreates it"), "{}", text(&model));
}
