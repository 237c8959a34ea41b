//! A node, decoded without what the dashboard does not show.
//!
//! A node of a real cluster is 10 to 20 KiB of JSON, mostly names of images. The rest is skipped while it is decoded, so
//! that thousands of nodes take little memory also while they are listed.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use nm_shared::api::names::UNDO_ANNOTATION;
use nm_shared::cluster::node::has_control_plane_label;
use nm_shared::cluster::node_pool;
use nm_shared::drain::cordon_owner::{Marks, cordon_owner};
use nm_shared::drain::node_patch;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use crate::objects::node_metadata::{NodeDetails, NodeMetadata, NodeReadiness};

/// The pool of a control-plane node without such a label.
const CONTROL_PLANE_POOL: &str = "control-plane";

/// A node as the API server sends it, reduced. The metadata has what a watch reads.
#[derive(Debug, Clone, Resource)]
#[resource(inherit = Node)]
pub(crate) struct ListedNode {
    metadata: ObjectMeta,
    shown: NodeMetadata,
}

impl ListedNode {
    pub(crate) fn shown(self) -> NodeMetadata {
        self.shown
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NodeJson {
    metadata: NodeMetadataJson,
    spec: Option<NodeSpecJson>,
    status: Option<NodeStatusJson>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct NodeMetadataJson {
    name: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<AnnotationsJson>,
    managed_fields: Option<Vec<ManagedFieldsJson>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct AnnotationsJson {
    #[serde(rename = "kubectl-nm.dev/undo")]
    undo: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ManagedFieldsJson {
    manager: Option<String>,
    fields_v1: Option<OwnedFieldsJson>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct OwnedFieldsJson {
    #[serde(rename = "f:spec")]
    spec: Option<OwnedSpecJson>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct OwnedSpecJson {
    #[serde(rename = "f:unschedulable")]
    unschedulable: Option<IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NodeSpecJson {
    unschedulable: Option<bool>,
    taints: Option<Vec<Taint>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct NodeStatusJson {
    conditions: Option<Vec<NodeConditionJson>>,
    node_info: Option<NodeInfoJson>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NodeConditionJson {
    #[serde(rename = "type")]
    type_: Option<String>,
    status: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct NodeInfoJson {
    kubelet_version: Option<String>,
}

impl<'de> Deserialize<'de> for ListedNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        NodeJson::deserialize(deserializer).map(Self::from)
    }
}

impl From<NodeJson> for ListedNode {
    fn from(node: NodeJson) -> Self {
        let (spec, status) = (node.spec.unwrap_or_default(), node.status.unwrap_or_default());
        let undo = node.metadata.annotations.and_then(|annotations| annotations.undo);
        let metadata = ObjectMeta {
            name: node.metadata.name,
            resource_version: node.metadata.resource_version,
            labels: node.metadata.labels,
            annotations: undo.map(|undo| BTreeMap::from([(UNDO_ANNOTATION.to_owned(), undo)])),
            ..ObjectMeta::default()
        };
        let labels = metadata.labels.as_ref();
        let (pool, zone) = (node_pool::pool(labels), node_pool::zone(labels));
        let set_by = node.metadata.managed_fields.unwrap_or_default().into_iter().find_map(set_cordon);
        let marks = Marks {
            metadata: &metadata,
            unschedulable: spec.unschedulable.unwrap_or_default(),
            taints: spec.taints.as_deref().unwrap_or_default(),
            set_by: set_by.as_deref(),
        };
        let control_plane = has_control_plane_label(&metadata);
        let details = NodeDetails {
            readiness: readiness(&status.conditions.unwrap_or_default()),
            cordon: cordon_owner(&marks),
            pool: pool.or(control_plane.then_some(CONTROL_PLANE_POOL)).map(str::to_owned),
            zone: zone.map(str::to_owned),
            version: status.node_info.and_then(|info| info.kubelet_version).unwrap_or_default(),
            created: node.metadata.creation_timestamp.map(|time| time.0),
        };
        let shown = NodeMetadata {
            name: metadata.name.clone().unwrap_or_default(),
            was_schedulable: node_patch::was_schedulable(&metadata),
            control_plane,
            details: Some(details),
        };
        let metadata = ObjectMeta { labels: None, annotations: None, ..metadata };
        Self { metadata, shown }
    }
}

/// The program of these managed fields, if it set `spec.unschedulable`.
fn set_cordon(fields: ManagedFieldsJson) -> Option<String> {
    fields.fields_v1?.spec?.unschedulable?;
    fields.manager
}

fn readiness(conditions: &[NodeConditionJson]) -> NodeReadiness {
    let ready = conditions.iter().find(|condition| condition.type_.as_deref() == Some("Ready"));
    match ready.and_then(|ready| ready.status.as_deref()) {
        Some("True") => NodeReadiness::Ready,
        Some("False") => NodeReadiness::NotReady,
        _ => NodeReadiness::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use nm_shared::drain::cordon_owner::CordonOwner;
    use serde_json::{Value, json};

    use super::*;

    fn shown(node: Value) -> NodeMetadata {
        serde_json::from_value::<ListedNode>(node).unwrap().shown()
    }

    fn details(node: Value) -> NodeDetails {
        shown(node).details.unwrap()
    }

    #[test]
    fn what_is_shown_is_decoded_and_the_rest_is_skipped() {
        let node = json!({
            "metadata": {
                "name": "n1", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"topology.kubernetes.io/zone": "eu-1a", "kubernetes.io/os": "linux", "pool": "blue",
                    "remediation.medik8s.io/exclude-from-remediation": "true"},
                "annotations": {UNDO_ANNOTATION: "{\"madeUnschedulable\":true}", "other": "x"},
                "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {}}}],
            },
            "spec": {"podCIDR": "10.0.0.0/24", "unschedulable": true, "taints": [{"key": "medik8s.io/drain", "effect": "NoSchedule"}]},
            "status": {
                "images": [{"names": ["a"], "sizeBytes": 5}],
                "conditions": [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
                "nodeInfo": {"kubeletVersion": "v1.36.2", "machineID": "m"},
            },
        });
        let decoded: ListedNode = serde_json::from_value(node).unwrap();
        assert_eq!(decoded.meta().resource_version.as_deref(), Some("7"));
        let expected = NodeMetadata {
            name: "n1".into(),
            was_schedulable: Some(true),
            control_plane: false,
            details: Some(NodeDetails {
                readiness: NodeReadiness::Ready,
                cordon: Some(CordonOwner::Maintenance),
                pool: Some("blue".into()),
                zone: Some("eu-1a".into()),
                version: "v1.36.2".into(),
                created: Some("2026-01-01T00:00:00Z".parse().unwrap()),
            }),
        };
        assert_eq!(decoded.shown(), expected);
        let empty = shown(
            json!({"metadata": {"name": "n2", "labels": null}, "spec": null, "status": {"conditions": null}}),
        );
        assert_eq!(empty.details, Some(NodeDetails::default()));
    }

    #[test]
    fn the_program_that_cordoned_a_node_is_in_its_managed_fields() {
        let cordoned_by = |manager: &str| {
            let fields = json!({"f:spec": {"f:unschedulable": {}}});
            let managed = json!([{"manager": "kubelet", "fieldsV1": {"f:metadata": {}}},
                {"manager": manager, "fieldsV1": fields}]);
            details(json!({"metadata": {"managedFields": managed}, "spec": {"unschedulable": true}})).cordon
        };
        assert_eq!(cordoned_by("kured"), Some(CordonOwner::Program("kured".into())));
        assert_eq!(cordoned_by("kubectl"), Some(CordonOwner::Person));
    }

    #[test]
    fn the_pool_is_the_label_of_the_provider_and_else_the_role() {
        let pool = |labels: Value| details(json!({"metadata": {"labels": labels}})).pool;
        assert_eq!(
            pool(json!({"cloud.google.com/gke-nodepool": "web", "pool": "x"})).as_deref(),
            Some("web")
        );
        assert_eq!(pool(json!({"karpenter.sh/nodepool": "spot"})).as_deref(), Some("spot"));
        let control_plane = json!({"node-role.kubernetes.io/control-plane": ""});
        assert_eq!(pool(control_plane).as_deref(), Some("control-plane"));
        assert_eq!(pool(json!({"pool": ""})), None);
    }

    #[test]
    fn a_node_is_ready_only_if_it_says_so() {
        for (status, readiness) in [
            ("True", NodeReadiness::Ready),
            ("False", NodeReadiness::NotReady),
            ("Unknown", NodeReadiness::Unknown),
        ] {
            let conditions = json!([{"type": "Ready", "status": status}]);
            assert_eq!(details(json!({"status": {"conditions": conditions}})).readiness, readiness);
        }
        assert_eq!(details(json!({})).readiness, NodeReadiness::Unknown);
    }
}
