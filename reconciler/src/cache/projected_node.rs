//! A node as far as anything here reads it.
//!
//! A node of a real cluster is 10 to 20 KiB of JSON, mostly names of images. [`ProjectedNode`] is decoded from it and skips
//! what nothing reads, so that thousands of nodes take little memory, also while they are listed.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::ClusterResourceScope;
use kube::{Resource, ResourceExt};
use nm_shared::api::names::{EXCLUDE_LABEL, LOAD_BALANCER_LABEL, UNDO_ANNOTATION};
use nm_shared::cluster::metadata::ProjectedMetadata;
use nm_shared::cluster::node::ETCD_ROLES;
use nm_shared::drain::node_conditions::{
    DRAIN_IN_PROGRESS, DRAINED, MAINTENANCE_IN_PROGRESS, MAINTENANCE_PLANNED,
};
use serde::{Deserialize, Deserializer};

/// The conditions that anything here reads.
const READ_CONDITIONS: [&str; 5] =
    ["Ready", DRAIN_IN_PROGRESS, DRAINED, MAINTENANCE_PLANNED, MAINTENANCE_IN_PROGRESS];

/// A node without the parts that nothing reads.
#[derive(Debug, Clone)]
pub(crate) struct ProjectedNode(pub(crate) Node);

#[derive(Deserialize, Default)]
#[serde(default)]
struct NodeJson {
    metadata: ProjectedMetadata,
    spec: Option<SpecJson>,
    status: Option<StatusJson>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SpecJson {
    unschedulable: Option<bool>,
    taints: Option<Vec<Taint>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct StatusJson {
    conditions: Option<Vec<NodeCondition>>,
}

impl<'de> Deserialize<'de> for ProjectedNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let NodeJson { metadata, spec, status } = NodeJson::deserialize(deserializer)?;
        let spec = spec.unwrap_or_default();
        let conditions = status.unwrap_or_default().conditions;
        Ok(Self(from_parts(metadata.into(), spec.unschedulable, spec.taints, conditions)))
    }
}

fn from_parts(
    mut metadata: ObjectMeta,
    unschedulable: Option<bool>,
    taints: Option<Vec<Taint>>,
    conditions: Option<Vec<NodeCondition>>,
) -> Node {
    let is_read =
        |label: &str| [EXCLUDE_LABEL, LOAD_BALANCER_LABEL].contains(&label) || ETCD_ROLES.contains(&label);
    let labels = metadata.labels.take().unwrap_or_default();
    let labels = labels.into_iter().filter(|(label, _)| is_read(label)).collect();
    metadata.labels = Some(labels).filter(|labels: &std::collections::BTreeMap<_, _>| !labels.is_empty());
    let mut conditions = conditions.unwrap_or_default();
    conditions.retain(|condition| READ_CONDITIONS.contains(&condition.type_.as_str()));
    for condition in &mut conditions {
        condition.last_heartbeat_time = None;
    }
    conditions.shrink_to_fit();
    Node {
        metadata,
        spec: Some(NodeSpec { unschedulable, taints, ..NodeSpec::default() }),
        status: Some(NodeStatus { conditions: Some(conditions), ..NodeStatus::default() }),
    }
}

/// Whether a maintenance has left two versions of a node alike: cordoned or not, and with the same undo record. The rest changes
/// without it: a controller removes the taint of a cordon once the node is uncordoned.
pub(crate) fn has_same_cordon(one: &Node, other: &Node) -> bool {
    let is_cordoned =
        |node: &Node| node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default();
    let record = |node: &Node| node.annotations().get(UNDO_ANNOTATION).cloned();
    is_cordoned(one) == is_cordoned(other) && record(one) == record(other)
}

impl Resource for ProjectedNode {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Node::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Node::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Node::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Node::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}

#[cfg(test)]
mod tests {
    use nm_shared::cluster::node::may_run_etcd;
    use serde_json::{Value, json};

    use super::*;
    use crate::cache::compact_node::is_alike;

    fn node(heartbeat: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": "n", "uid": "u", "resourceVersion": heartbeat,
                "labels": {"kubernetes.io/os": "linux", "node-role.kubernetes.io/control-plane": "", EXCLUDE_LABEL: "true"},
                "annotations": {"csi.volume.kubernetes.io/nodeid": "{}", "kubectl-nm.dev/other": "x"},
                "managedFields": [{"manager": "kubelet"}],
            },
            "spec": {"podCIDR": "10.0.0.0/24", "unschedulable": true,
                "taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {
                "images": [{"names": ["a", "b"], "sizeBytes": 5}],
                "conditions": [
                    {"type": "MemoryPressure", "status": "False"},
                    {"type": "Ready", "status": "True", "lastHeartbeatTime": format!("2026-01-01T00:00:0{heartbeat}Z")},
                    {"type": "Drained", "status": "True", "message": "NodeMaintenance m"},
                ],
            },
        })
    }

    /// What is left of such a node.
    fn what_is_read() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n", "uid": "u", "resourceVersion": "1",
                "labels": {"node-role.kubernetes.io/control-plane": "", EXCLUDE_LABEL: "true"}},
            "spec": {"unschedulable": true, "taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {"conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "Drained", "status": "True", "message": "NodeMaintenance m"},
            ]},
        })
    }

    #[test]
    fn a_node_is_decoded_without_what_nothing_reads_and_heartbeats_change_nothing() {
        let decoded = |heartbeat: &str| serde_json::from_value::<ProjectedNode>(node(heartbeat)).unwrap().0;
        assert_eq!(serde_json::to_value(decoded("1")).unwrap(), what_is_read());
        assert!(is_alike(&decoded("1"), &decoded("2")));
    }

    #[test]
    fn all_roles_by_which_a_node_may_run_etcd_are_kept() {
        for role in ETCD_ROLES {
            let node = json!({"metadata": {"name": "n", "labels": {role: "true"}}});
            let ProjectedNode(node) = serde_json::from_value(node).unwrap();
            assert!(may_run_etcd(&node), "{role}");
        }
    }

    #[test]
    fn the_cordon_of_a_node_is_its_schedulability_and_its_undo_record() {
        let decoded: Node = serde_json::from_value::<ProjectedNode>(node("1")).unwrap().0;
        let mut other = decoded.clone();
        other.spec.as_mut().unwrap().taints = None;
        assert!(has_same_cordon(&decoded, &other), "taints are removed by others, too");
        other.metadata.annotations = Some([(UNDO_ANNOTATION.to_owned(), "{}".to_owned())].into());
        assert!(!has_same_cordon(&decoded, &other));
        let mut uncordoned = decoded.clone();
        uncordoned.spec.as_mut().unwrap().unschedulable = None;
        assert!(!has_same_cordon(&decoded, &uncordoned));
    }

    #[test]
    fn what_a_decision_reads_is_kept() {
        let found =
            serde_json::to_value(serde_json::from_value::<ProjectedNode>(node("1")).unwrap().0).unwrap();
        assert_eq!(found, what_is_read());
    }
}
