//! What is kept of an object: what the dashboard shows and decides by, and nothing else.
//!
//! A node may carry ten thousand pods, and most of a pod is about its containers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Node, Pod, PodSpec, PodStatus, Volume};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::PartialObjectMeta;
use nm_shared::names::MIRROR_ANNOTATION;
use nm_shared::{NodeMaintenance, node_patch};

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

/// A pod as far as a drain goes: names, owners, labels, deletion and finalizers, whether it is a mirror pod, its priority,
/// volumes that are lost with it, phase and conditions.
pub(super) fn pod(pod: Pod) -> Pod {
    let mut metadata = pod.metadata;
    metadata.managed_fields = None;
    metadata.generate_name = None;
    metadata.annotations = metadata
        .annotations
        .and_then(|mut annotations| annotations.remove_entry(MIRROR_ANNOTATION))
        .map(|annotation| BTreeMap::from([annotation]));
    let spec = pod.spec.map(|spec| PodSpec {
        node_name: spec.node_name,
        priority: spec.priority,
        termination_grace_period_seconds: spec.termination_grace_period_seconds,
        volumes: losses(spec.volumes.unwrap_or_default()),
        ..PodSpec::default()
    });
    let status = pod.status.map(|status| PodStatus {
        phase: status.phase,
        reason: status.reason,
        conditions: status.conditions.map(|conditions| {
            conditions.into_iter().filter(|condition| condition.type_ == "Ready").collect()
        }),
        start_time: status.start_time,
        ..PodStatus::default()
    });
    Pod { metadata, spec, status }
}

fn losses(volumes: Vec<Volume>) -> Option<Vec<Volume>> {
    let losses = volumes.into_iter().filter(|volume| volume.empty_dir.is_some()).map(|volume| Volume {
        name: volume.name,
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    });
    Some(losses.collect()).filter(|losses: &Vec<Volume>| !losses.is_empty())
}

/// An event about a node or a maintenance. The selector chooses by name alone, and others may have it too.
pub(super) fn event(mut event: Event) -> Option<Event> {
    event.metadata.managed_fields = None;
    let kind = event.regarding.as_ref().and_then(|regarding| regarding.kind.as_deref());
    matches!(kind, Some("Node" | "NodeMaintenance")).then_some(event)
}

#[cfg(test)]
mod tests {
    use nm_shared::pod as of;
    use serde_json::{Value, json};

    use super::*;

    fn parse<K: serde::de::DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_a_drain_asks_of_a_pod_is_the_same_of_the_slim_one() {
        let whole: Pod = parse(json!({
            "metadata": {
                "name": "a", "namespace": "shop", "uid": "u", "resourceVersion": "7", "labels": {"app": "a"},
                "annotations": {MIRROR_ANNOTATION: "x", "other/long": "y"}, "finalizers": ["a/b"],
                "managedFields": [{"manager": "kubelet"}], "deletionTimestamp": "2026-01-02T03:04:05Z",
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "o", "controller": true}],
            },
            "spec": {
                "nodeName": "n1", "priority": 5, "containers": [{"name": "c", "image": "i"}],
                "volumes": [{"name": "t", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "k", "secret": {"secretName": "s"}}],
            },
            "status": {"phase": "Running", "podIP": "10.0.0.1",
                "conditions": [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"}]},
        }));
        let slim = pod(whole.clone());
        assert_eq!(of::names(&slim), of::names(&whole));
        assert_eq!(of::daemon_set(&slim), of::daemon_set(&whole));
        assert_eq!((of::priority(&slim), of::deadline(&slim)), (5, of::deadline(&whole)));
        assert!(of::is_mirror(&slim) && of::has_empty_dir(&slim) && of::is_ready(&slim));
        let said = json!(slim).to_string();
        for gone in ["kubelet", "other/long", "image", "secretName", "sizeLimit", "podIP", "Initialized"] {
            assert!(!said.contains(gone), "{gone} in {said}");
        }
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
