//! What the watches of the dashboard send.

use serde_json::{Value, json};

use super::*;

fn parse<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

#[test]
fn metadata_has_the_control_plane_label_and_the_state_before_the_cordon() {
    let of = |value: Value| metadata(&parse(json!({"metadata": value})));
    let cordoned = of(json!({
        "name": "n1",
        "labels": {"node-role.kubernetes.io/control-plane": "", "remediation.medik8s.io/exclude-from-remediation": "true"},
        "annotations": {"kubectl-nm.dev/undo": "{\"madeUnschedulable\":true}"},
    }));
    let expected = NodeMetadata { name: "n1".into(), was_schedulable: Some(true), control_plane: true };
    assert_eq!(cordoned, expected);
    assert_eq!(of(json!({"name": "n2"})), NodeMetadata { name: "n2".into(), ..NodeMetadata::default() });
}
