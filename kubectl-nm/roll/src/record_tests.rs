//! Records that are stored in maintenances, and what is refused of them.

use super::*;

#[test]
fn a_roll_is_refused_if_it_has_a_node_name_that_no_node_can_have() {
    for name in ["n1; reboot", "$(reboot)", "`reboot`", "../n1", "-oProxyCommand=x", "n1\nn2", ""] {
        let object: NodeMaintenance = serde_json::from_value(json!({
            "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
            "metadata": {"name": "n1", "labels": {LABEL: "r"}},
            "spec": {"nodeName": name},
        }))
        .unwrap();
        let refused = Roll::find("r", &[Arc::new(object)]);
        assert!(matches!(refused, Err(RollError::InvalidNode { .. })), "{name:?}: {refused:?}");
    }
}
