//! What is kept of an object: what the dashboard shows and decides by, and nothing else. Of pods that is their facts.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::PartialObjectMeta;
use nm_shared::NodeMaintenance;
use nm_shared::drain::node_patch;

use crate::dashboard::message::NodeMarks;

/// Labels of nodes of the control plane, the second that of older clusters.
const CONTROL_PLANE: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// A maintenance without the record of who wrote which field.
pub(super) fn maintenance(mut maintenance: NodeMaintenance) -> NodeMaintenance {
    maintenance.metadata.managed_fields = None;
    maintenance
}

/// What a node's metadata says of its maintenance.
pub(super) fn node(node: &PartialObjectMeta<Node>) -> NodeMarks {
    NodeMarks {
        name: node.name_any(),
        was_schedulable: node_patch::was_schedulable(&node.metadata),
        control_plane: CONTROL_PLANE.iter().any(|label| node.labels().contains_key(*label)),
    }
}

/// An event about a node or a maintenance. The selector chooses by name alone, and others may have it too.
pub(super) fn event(mut event: Event) -> Option<Event> {
    event.metadata.managed_fields = None;
    let kind = event.regarding.as_ref().and_then(|regarding| regarding.kind.as_deref());
    matches!(kind, Some("Node" | "NodeMaintenance")).then_some(event)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse<K: serde::de::DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn marks_tell_the_control_plane_and_what_a_node_was() {
        let of = |metadata: Value| node(&parse(json!({"metadata": metadata})));
        let marked = of(json!({
            "name": "n1",
            "labels": {"node-role.kubernetes.io/control-plane": "", "remediation.medik8s.io/exclude-from-remediation": "true"},
            "annotations": {"kubectl-nm.dev/undo": "{\"madeUnschedulable\":true}"},
        }));
        assert_eq!(marked, NodeMarks { name: "n1".into(), was_schedulable: Some(true), control_plane: true });
        assert_eq!(of(json!({"name": "n2"})), NodeMarks { name: "n2".into(), ..NodeMarks::default() });
    }

    #[test]
    fn events_about_something_else_of_the_same_name_are_left_out() {
        for (kind, kept) in [("Node", true), ("NodeMaintenance", true), ("Pod", false)] {
            let about: Event =
                parse(json!({"metadata": {}, "regarding": {"kind": kind, "name": "n1"}, "eventTime": null}));
            assert_eq!(event(about).is_some(), kept, "{kind}");
        }
    }
}
