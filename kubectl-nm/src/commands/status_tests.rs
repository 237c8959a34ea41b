//! What status shows.

use super::*;
use crate::maintenance::fixture::{named, requested, running, with_status};
use crate::output::captured::output;

fn now() -> Timestamp {
    "2026-01-02T03:07:25Z".parse().unwrap()
}

fn raw(object: &NodeMaintenance) -> DynamicObject {
    serde_json::from_value(serde_json::to_value(object).unwrap()).unwrap()
}

#[test]
fn tables_look_as_in_kubectl() {
    let mut wide = with_status("n2", running(40, &[("cart-0", "m")]));
    wide.spec.reason = Some("new \x1b[31mkernel".into());
    wide.status.as_mut().unwrap().pending_pods = vec!["cart-0".into(), "web".into()];
    let objects = [requested("n1"), wide];
    let text = |wide| table(&objects, wide, now()).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        text(false),
        [
            "NODE   PHASE       PROGRESS   BLOCKED   AGE",
            "n1     Requested   <none>     0         3m20s",
            "n2     Running     40%        1         3m20s",
        ]
    );
    assert_eq!(
        text(true),
        [
            "NODE   PHASE       PROGRESS   BLOCKED   AGE     NAME   PENDING      REASON",
            "n1     Requested   <none>     0         3m20s   n1     <none>       <none>",
            "n2     Running     40%        1         3m20s   n2     cart-0,web   new ^[[31mkernel",
        ]
    );
}

#[test]
fn blocked_pods_stand_beside_the_table_and_not_in_it() {
    let (mut out, captured) = output();
    show(&[with_status("n1", running(40, &[("cart-0", "m")]))], true, Format::Table, &mut out).unwrap();
    assert_eq!(captured.data().lines().count(), 2);
    assert_eq!(captured.talk(), "node/n1: blocked shop/cart-0: DisruptionBudget: m\n");
}

#[test]
fn nothing_is_an_answer_only_if_nothing_was_named() {
    let (mut out, captured) = output();
    show(&[], true, Format::Table, &mut out).unwrap();
    assert_eq!((captured.data(), captured.talk()), (String::new(), "No maintenances found.\n".into()));
    let nodes = ["n1".to_owned(), "n2".to_owned()];
    assert_eq!(without(&nodes, &[requested("n2")], node), ["n1"]);
}

#[test]
fn names_are_those_that_kubectl_takes() {
    let (mut out, captured) = output();
    show(&[named("a", "n1", "u")], true, Format::Name, &mut out).unwrap();
    assert_eq!(captured.data(), "nodemaintenance.nodemaintenance.medik8s.io/a\n");
}

#[test]
fn one_node_gives_one_object_and_everything_else_a_list() {
    let objects = |count| (0..count).map(|i| raw(&named(&format!("a{i}"), "n1", "u"))).collect::<Vec<_>>();
    for (count, alone, kind) in
        [(1, true, "NodeMaintenance"), (1, false, "List"), (2, true, "List"), (0, false, "List")]
    {
        let json = document(objects(count), alone, Format::Json).unwrap();
        let value: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["kind"], kind, "{count} {alone}");
        let yaml = document(objects(count), alone, Format::Yaml).unwrap();
        assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), value);
    }
}

#[test]
fn documents_keep_what_this_program_does_not_know_and_are_harmless() {
    let mut object = raw(&requested("n1"));
    object.data["spec"]["reason"] = json!("a\u{1b}[31mb\u{9b}c\nd\te: #\u{202e}\u{7f}\r\n");
    object.data["spec"]["fromTheFuture"] = json!({"x": [1, "no", "~", " y "]});
    object.metadata.managed_fields = Some(vec![]);
    for format in [Format::Json, Format::Yaml] {
        let (mut out, captured) = output();
        out.document(&document(vec![object.clone()], true, format).unwrap()).unwrap();
        let text = captured.data();
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
        assert!(!text.contains("managedFields"));
        let value: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(value["spec"], object.data["spec"], "{text}");
    }
}
