//! Whose a maintenance is: our finalizer and the owner reference on it, and which of several has the node.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use crate::condition::{self, ConditionType};
use crate::maintenance::NodeMaintenance;
use crate::names::FINALIZER;
use crate::node_patch::Past;

/// A merge patch that puts our finalizer and an owner reference to the node on the object, where they are missing.
///
/// With the owner reference the object goes when its node is deleted.
pub fn adopt(maintenance: &NodeMaintenance, node: Option<&Node>) -> Option<Value> {
    let metadata = &maintenance.metadata;
    let mut patch = json!({"metadata": {"resourceVersion": metadata.resource_version}});
    let mut finalizers = metadata.finalizers.clone().unwrap_or_default();
    let needs_finalizer = !is_adopted(maintenance);
    if needs_finalizer {
        finalizers.push(FINALIZER.to_owned());
        patch["metadata"]["finalizers"] = json!(finalizers);
    }
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    let uid = node.and_then(|node| node.metadata.uid.as_deref());
    let needs_owner = uid.is_some_and(|uid| !owners.iter().any(|owner| owner.uid == uid));
    if needs_owner {
        let mut owners: Vec<Value> = owners.iter().map(|owner| json!(owner)).collect();
        owners.push(json!({
            "apiVersion": "v1", "kind": "Node", "name": maintenance.spec.node_name, "uid": uid,
            "controller": false, "blockOwnerDeletion": false,
        }));
        patch["metadata"]["ownerReferences"] = json!(owners);
    }
    (needs_finalizer || needs_owner).then_some(patch)
}

/// A merge patch that takes our finalizer off the object, and leaves those of others.
pub fn release(maintenance: &NodeMaintenance) -> Value {
    let finalizers = maintenance.metadata.finalizers.as_deref().unwrap_or_default();
    let others: Vec<&String> = finalizers.iter().filter(|finalizer| *finalizer != FINALIZER).collect();
    json!({"metadata": {"resourceVersion": maintenance.metadata.resource_version, "finalizers": others}})
}

/// Whether the object carries our finalizer.
pub fn is_adopted(maintenance: &NodeMaintenance) -> bool {
    let finalizers = maintenance.metadata.finalizers.as_deref().unwrap_or_default();
    finalizers.iter().any(|finalizer| finalizer == FINALIZER)
}

/// The name of the maintenance that has the node, if it is not `maintenance`: the oldest has it.
pub fn holder<'a>(maintenance: &NodeMaintenance, rivals: &'a [Arc<NodeMaintenance>]) -> Option<&'a str> {
    let oldest = rivals.iter().min_by_key(|rival| rank(rival))?;
    (rank(oldest) < rank(maintenance)).then(|| oldest.metadata.name.as_deref().unwrap_or_default())
}

/// Where it stands among others by age; the name breaks a tie.
pub fn rank(maintenance: &NodeMaintenance) -> (Option<Timestamp>, Option<&str>) {
    let metadata = &maintenance.metadata;
    (metadata.creation_timestamp.as_ref().map(|at| at.0), metadata.name.as_deref())
}

/// What the maintenance has done to its node before, by its status: one that the medik8s operator began has a phase,
/// but none of our conditions, which that operator never writes.
pub fn past(maintenance: &NodeMaintenance) -> Past {
    let Some(status) = maintenance.status.as_ref().filter(|status| status.phase.is_some()) else {
        return Past::Fresh;
    };
    match condition::find(&status.conditions, ConditionType::Cordoned) {
        Some(cordoned) if cordoned.status == "True" => Past::Ours,
        Some(_) => Past::Fresh,
        None => Past::Medik8s,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maintenance(metadata: &Value) -> NodeMaintenance {
        serde_json::from_value(json!({
            "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
            "metadata": metadata, "spec": {"nodeName": "n1"},
        }))
        .unwrap()
    }

    fn node() -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n1", "uid": "node-uid"}})).unwrap()
    }

    #[test]
    fn an_object_is_adopted_once_and_keeps_what_others_put_on_it() {
        let fresh = maintenance(&json!({"name": "m", "resourceVersion": "5", "finalizers": ["a/b"]}));
        let patch = adopt(&fresh, Some(&node())).unwrap();
        assert_eq!(patch["metadata"]["resourceVersion"], "5");
        assert_eq!(patch["metadata"]["finalizers"], json!(["a/b", FINALIZER]));
        assert_eq!(patch["metadata"]["ownerReferences"][0]["uid"], "node-uid");
        let adopted = maintenance(&patch["metadata"]);
        assert_eq!(adopt(&adopted, Some(&node())), None);
        assert_eq!(release(&adopted)["metadata"]["finalizers"], json!(["a/b"]));
    }

    #[test]
    fn without_its_node_an_object_is_adopted_without_an_owner() {
        let patch = adopt(&maintenance(&json!({"name": "m"})), None).unwrap();
        assert!(patch["metadata"]["ownerReferences"].is_null());
    }

    #[test]
    fn the_oldest_maintenance_has_the_node_and_the_name_breaks_a_tie() {
        let at = |name: &str, second: u32| {
            let created = format!("2026-01-01T00:00:{second:02}Z");
            Arc::new(maintenance(&json!({"name": name, "creationTimestamp": created})))
        };
        assert_eq!(holder(&at("b", 2), &[at("a", 3)]), None);
        assert_eq!(holder(&at("b", 2), &[at("c", 1)]), Some("c"));
        assert_eq!(holder(&at("b", 2), &[at("a", 2)]), Some("a"));
        assert_eq!(holder(&at("b", 2), &[]), None);
    }
}
