//! A node, reduced to what the dashboard shows.
//!
//! A node of a real cluster is 10 to 20 KiB of JSON, mostly names of images. Each is reduced as soon as it is decoded, so that
//! thousands of nodes take little memory also while they are listed.

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use kube::Resource;
use nm_shared::cluster::node::has_control_plane_label;
use nm_shared::cluster::node_pool;
use nm_shared::drain::cordon_owner::{Marks, cordon_owner};
use nm_shared::drain::node_patch;
use serde::Deserialize;

use crate::objects::node_metadata::{NodeDetails, NodeMetadata, NodeReadiness};

/// The pool of a control-plane node without such a label.
const CONTROL_PLANE_POOL: &str = "control-plane";

/// A node as the API server sends it, reduced. The metadata has what a watch reads.
#[derive(Debug, Clone, Deserialize, Resource)]
#[serde(from = "Node")]
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

impl From<Node> for ListedNode {
    fn from(Node { metadata, spec, status }: Node) -> Self {
        let (spec, status) = (spec.unwrap_or_default(), status.unwrap_or_default());
        let labels = metadata.labels.as_ref();
        let (pool, zone) = (node_pool::pool(labels), node_pool::zone(labels));
        let marks = Marks {
            metadata: &metadata,
            unschedulable: spec.unschedulable.unwrap_or_default(),
            taints: spec.taints.as_deref().unwrap_or_default(),
            set_by: metadata.managed_fields.iter().flatten().find_map(set_cordon),
        };
        let control_plane = has_control_plane_label(&metadata);
        let conditions = status.conditions.unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
        let since = |ready: &NodeCondition| Some(ready.last_transition_time.as_ref()?.0);
        let info = status.node_info.unwrap_or_default();
        let details = NodeDetails {
            readiness: readiness(ready),
            ready_since: ready.filter(|ready| ready.status == "True").and_then(since),
            cordon: cordon_owner(&marks),
            pool: pool.or(control_plane.then_some(CONTROL_PLANE_POOL)).map(str::to_owned),
            zone: zone.map(str::to_owned),
            version: info.kubelet_version,
            boot_id: info.boot_id,
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
        };
        let shown = NodeMetadata {
            name: metadata.name.clone().unwrap_or_default(),
            was_schedulable: node_patch::was_schedulable(&metadata),
            control_plane,
            details: Some(details),
        };
        let ObjectMeta { name, resource_version, .. } = metadata;
        Self { metadata: ObjectMeta { name, resource_version, ..ObjectMeta::default() }, shown }
    }
}

/// The program of these managed fields, if it set `spec.unschedulable`.
fn set_cordon(fields: &ManagedFieldsEntry) -> Option<&str> {
    fields.fields_v1.as_ref()?.0.get("f:spec")?.get("f:unschedulable")?;
    fields.manager.as_deref()
}

fn readiness(ready: Option<&NodeCondition>) -> NodeReadiness {
    match ready.map(|ready| ready.status.as_str()) {
        Some("True") => NodeReadiness::Ready,
        Some("False") => NodeReadiness::NotReady,
        _ => NodeReadiness::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use nm_shared::api::names::UNDO_ANNOTATION;
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
    fn what_is_shown_is_kept_and_nothing_else() {
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
                "conditions": [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": "True",
                    "lastTransitionTime": "2026-01-01T00:01:00Z"}],
                "nodeInfo": {"kubeletVersion": "v1.36.2", "machineID": "m", "bootID": "b"},
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
                ready_since: Some("2026-01-01T00:01:00Z".parse().unwrap()),
                cordon: Some(CordonOwner::Maintenance),
                pool: Some("blue".into()),
                zone: Some("eu-1a".into()),
                version: "v1.36.2".into(),
                boot_id: "b".into(),
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
