//! Ownership: our finalizer and the owner reference on a maintenance, and which of several maintenances has the node.

use std::borrow::Borrow;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use crate::api::condition::{self, ConditionReason, ConditionType, ConditionUpdate};
use crate::api::maintenance::NodeMaintenance;
use crate::api::names::{FINALIZER, KEEP_CORDON_ANNOTATION, NODE_UID_ANNOTATION};
use crate::api::status::{NodeMaintenanceStatus, Phase};
use crate::drain::node_patch::{self, CordonedBy};

/// The write that adopts a maintenance, as merge patches.
#[derive(Debug, Clone, PartialEq)]
pub struct Adoption {
    /// Adds our finalizer and an owner reference to the node.
    pub patch: Value,
    /// The same without an owner reference, if the other one adds one. The admission plugin
    /// `OwnerReferencesPermissionEnforcement`, which OpenShift enables, lets only users who may delete an object set its owner.
    pub without_owner: Option<Value>,
}

/// The write that adds our finalizer and an owner reference to the node to the object; none if it has both. Instead of the
/// owner reference, the object may have an annotation with the uid of the node.
///
/// The object is deleted with its owner, the node.
pub fn adopt(maintenance: &NodeMaintenance, node: Option<&Node>) -> Option<Adoption> {
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
    // An annotation on an object that is not adopted yet is a copy of another object's.
    let goes_without = !needs_finalizer && node_uid(maintenance).is_some();
    let needs_owner = !goes_without && uid.is_some_and(|uid| !owners.iter().any(|owner| owner.uid == uid));
    let mut without_owner = None;
    if needs_owner {
        let mut annotated = patch.clone();
        annotated["metadata"]["annotations"] = json!({NODE_UID_ANNOTATION: uid});
        without_owner = Some(annotated);
        let mut owners: Vec<Value> = owners.iter().map(|owner| json!(owner)).collect();
        owners.push(json!({
            "apiVersion": "v1", "kind": "Node", "name": maintenance.spec.node_name, "uid": uid,
            "controller": false, "blockOwnerDeletion": false,
        }));
        patch["metadata"]["ownerReferences"] = json!(owners);
    }
    (needs_finalizer || needs_owner).then_some(Adoption { patch, without_owner })
}

/// The uid of the node on which a maintenance without an owner reference began.
pub fn node_uid(maintenance: &NodeMaintenance) -> Option<&str> {
    maintenance.metadata.annotations.as_ref()?.get(NODE_UID_ANNOTATION).map(String::as_str)
}

/// Whether the node stays cordoned when the maintenance ends, by its annotation. It is written before the object is deleted, so
/// whoever sees the deletion sees it.
pub fn keeps_cordon(maintenance: &NodeMaintenance) -> bool {
    let annotations = maintenance.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(KEEP_CORDON_ANNOTATION)).is_some_and(|value| value == "true")
}

/// Whether the maintenance started on a node of the same name that no longer exists. It has not changed `node` then, unless
/// an undo record shows that it has.
pub fn is_of_another_node(maintenance: &NodeMaintenance, node: &Node) -> bool {
    let owners = maintenance.metadata.owner_references.iter().flatten();
    let nodes = owners.filter(|owner| owner.kind == "Node" && owner.api_version == "v1");
    let mut uids: Vec<&str> = nodes.map(|owner| owner.uid.as_str()).collect();
    if uids.is_empty() {
        uids.extend(node_uid(maintenance));
    }
    uids.into_iter().any(|uid| Some(uid) != node.metadata.uid.as_deref())
}

/// The merge patch that removes our finalizer from the object and keeps the finalizers of others.
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

/// Whether the node of the maintenance is back in service. The finalizers of others may keep the object.
pub fn is_released(maintenance: &NodeMaintenance) -> bool {
    maintenance.metadata.deletion_timestamp.is_some() && !is_adopted(maintenance)
}

/// The uid of the maintenance that inherits the node when another one of it ends: the oldest of those that have our
/// finalizer. Only that guarantees that the node is uncordoned in the end. The node of a planned one is in service.
pub fn heir(competing: &[Arc<NodeMaintenance>]) -> Option<&str> {
    let adopted = competing.iter().filter(|other| is_adopted(other) && !is_planned(other));
    oldest(adopted)?.metadata.uid.as_deref()
}

/// The oldest of these maintenances. Of all maintenances of a node, the oldest one has the node.
pub fn oldest<'a, M: Borrow<NodeMaintenance>>(
    maintenances: impl IntoIterator<Item = &'a M>,
) -> Option<&'a M> {
    maintenances.into_iter().min_by_key(|&maintenance| age_rank(maintenance.borrow()))
}

/// The name of the maintenance that has the node, if it is not `maintenance`.
pub fn holder<'a>(maintenance: &NodeMaintenance, competing: &'a [Arc<NodeMaintenance>]) -> Option<&'a str> {
    let oldest = oldest(competing)?;
    (age_rank(oldest) < age_rank(maintenance)).then(|| oldest.metadata.name.as_deref().unwrap_or_default())
}

/// The uid of a maintenance; empty for an object that was never stored.
pub fn uid(maintenance: &NodeMaintenance) -> &str {
    maintenance.metadata.uid.as_deref().unwrap_or_default()
}

/// The order by age, which decides which maintenance has a node and which is first in the queue. The name breaks a tie,
/// and the uid breaks one between two groups.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgeRank {
    created: Option<Timestamp>,
    name: Option<String>,
    /// The uid of the maintenance.
    pub uid: Option<String>,
}

/// The rank of a maintenance by age.
pub fn age_rank(maintenance: &NodeMaintenance) -> AgeRank {
    let metadata = &maintenance.metadata;
    AgeRank {
        created: metadata.creation_timestamp.as_ref().map(|at| at.0),
        name: metadata.name.clone(),
        uid: metadata.uid.clone(),
    }
}

/// Whether the maintenance has started, according to its status: its node was cordoned, and it has the node until the object is gone.
///
/// A status may be outdated. So [`crate::gate::max_unavailable_queue`] also counts maintenances that were let through since
/// and nodes that are cordoned already, and [`crate::gate`] counts progress that the medik8s operator has reported. The
/// queue does not: a node that was uncordoned by hand despite that progress is in service for all others.
pub fn has_begun(maintenance: &NodeMaintenance) -> bool {
    maintenance.status.as_ref().is_some_and(NodeMaintenanceStatus::has_begun)
}

/// Who has cordoned the node, by the status: a maintenance that the medik8s operator began has a phase but no conditions,
/// which that operator never writes.
pub fn cordoned_by(maintenance: &NodeMaintenance) -> CordonedBy {
    let Some(status) = maintenance.status.as_ref().filter(|status| status.phase.is_some()) else {
        return CordonedBy::Nobody;
    };
    match condition::find(&status.conditions, ConditionType::Cordoned) {
        Some(_) if status.has_begun() => CordonedBy::NmReconciler,
        Some(_) => CordonedBy::Nobody,
        None => CordonedBy::Medik8s,
    }
}

/// Whether the maintenance is suspended and has not begun, by its status ([`crate::gate::is_planned`] also looks at its
/// node).
pub fn is_planned(maintenance: &NodeMaintenance) -> bool {
    maintenance.spec.suspend && cordoned_by(maintenance) == CordonedBy::Nobody
}

/// Whether the maintenance was planned and has not begun since, by its status: it waits, and has been suspended. One that
/// failed because of another maintenance has planned nothing.
pub fn was_planned(maintenance: &NodeMaintenance) -> bool {
    let waiting = maintenance.status.as_ref().filter(|status| status.phase == Some(Phase::Pending));
    let suspended = |status: &NodeMaintenanceStatus| {
        condition::find(&status.conditions, ConditionType::Suspended).is_some()
    };
    waiting.is_some_and(suspended) && cordoned_by(maintenance) == CordonedBy::Nobody
}

/// The status with the condition `Cordoned` restored, for a maintenance that has started on `node` and whose definition prunes
/// conditions: the undo record on the node shows it. The time is no longer known; the creation of the maintenance is used.
pub fn recovered(maintenance: &NodeMaintenance, node: &Node) -> Option<NodeMaintenanceStatus> {
    if !may_be_recovered(maintenance) || !node_patch::record_belongs_to(node, uid(maintenance)) {
        return None;
    }
    let mut status = maintenance.status.clone()?;
    let cordoned = ConditionUpdate {
        type_: ConditionType::Cordoned,
        is_true: true,
        reason: ConditionReason::Cordoned,
        message: String::new(),
    };
    let metadata = &maintenance.metadata;
    let created = metadata.creation_timestamp.as_ref()?.0;
    condition::record(&mut status.conditions, cordoned, metadata.generation, created);
    Some(status)
}

/// Whether the undo record on the node shows whether the maintenance has started, because its conditions were pruned.
pub fn may_be_recovered(maintenance: &NodeMaintenance) -> bool {
    maintenance.status.as_ref().is_some_and(|status| {
        matches!(status.phase, Some(Phase::Running | Phase::Succeeded))
            && condition::find(&status.conditions, ConditionType::Cordoned).is_none()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::api::group::Group;
    use crate::drain::node_patch::Requester;

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
    fn an_object_is_adopted_once_and_keeps_the_finalizers_of_others() {
        let fresh = maintenance(&json!({"name": "m", "resourceVersion": "5", "finalizers": ["a/b"]}));
        let patch = adopt(&fresh, Some(&node())).unwrap().patch;
        assert_eq!(patch["metadata"]["resourceVersion"], "5");
        assert_eq!(patch["metadata"]["finalizers"], json!(["a/b", FINALIZER]));
        assert_eq!(patch["metadata"]["ownerReferences"][0]["uid"], "node-uid");
        let adopted = maintenance(&patch["metadata"]);
        assert_eq!(adopt(&adopted, Some(&node())), None);
        assert_eq!(release(&adopted)["metadata"]["finalizers"], json!(["a/b"]));
    }

    #[test]
    fn without_a_node_an_object_is_adopted_without_an_owner() {
        let adoption = adopt(&maintenance(&json!({"name": "m"})), None).unwrap();
        assert!(adoption.patch["metadata"]["ownerReferences"].is_null());
        assert_eq!(adoption.without_owner, None);
    }

    #[test]
    fn an_object_that_may_have_no_owner_knows_its_node_by_an_annotation() {
        let copied =
            json!({"name": "m", "resourceVersion": "5", "annotations": {NODE_UID_ANNOTATION: "copied"}});
        let patch = adopt(&maintenance(&copied), Some(&node())).unwrap().without_owner.unwrap();
        assert_eq!(patch["metadata"]["finalizers"], json!([FINALIZER]));
        assert!(patch["metadata"]["ownerReferences"].is_null());
        let adopted = maintenance(&patch["metadata"]);
        assert_eq!(node_uid(&adopted), Some("node-uid"));
        assert_eq!(adopt(&adopted, Some(&node())), None);
        assert!(!is_of_another_node(&adopted, &node()));
        let recreated: Node =
            serde_json::from_value(json!({"metadata": {"name": "n1", "uid": "new"}})).unwrap();
        assert_eq!(adopt(&adopted, Some(&recreated)), None);
        assert!(is_of_another_node(&adopted, &recreated));
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

    #[test]
    fn of_two_maintenances_of_one_name_and_age_in_two_groups_one_has_the_node() {
        let of = |uid: &str| {
            let metadata = json!({"name": "m", "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"});
            Arc::new(maintenance(&metadata))
        };
        assert_eq!(holder(&of("a"), &[of("b")]), None);
        assert_eq!(holder(&of("b"), &[of("a")]), Some("m"));
    }

    #[test]
    fn a_maintenance_with_a_pruned_status_is_recovered_by_the_undo_record() {
        let (bare, others) = (node(), HashSet::new());
        let requester = Requester {
            uid: "m-uid",
            group: Group::Kubevirt,
            cordoned_by: CordonedBy::Nobody,
            planned: false,
            keeps_cordon: false,
            neighbours: node_patch::Neighbours::default(),
            others: &others,
            now: Timestamp::UNIX_EPOCH,
        };
        let patch = node_patch::cordon(&bare, &requester).unwrap().0;
        let cordoned: Node = serde_json::from_value(json!({
            "metadata": {"annotations": patch["metadata"]["annotations"]}, "spec": patch["spec"],
        }))
        .unwrap();
        let of = |uid: &str, phase: &str| {
            let metadata = json!({"name": "m", "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"});
            let mut pruned = maintenance(&metadata);
            pruned.status = Some(serde_json::from_value(json!({"phase": phase})).unwrap());
            pruned
        };
        let pruned = |phase: &str| of("m-uid", phase);
        for (phase, expected) in
            [("Running", true), ("Succeeded", true), ("Pending", false), ("Failed", false)]
        {
            let found = recovered(&pruned(phase), &cordoned);
            assert_eq!(found.is_some(), expected, "{phase}");
        }
        let mut known = pruned("Running");
        known.status = recovered(&known, &cordoned);
        assert_eq!(cordoned_by(&known), CordonedBy::NmReconciler);
        assert_eq!(recovered(&known, &cordoned), None, "it is known");
        assert_eq!(recovered(&pruned("Running"), &bare), None, "it has not begun");
        assert_eq!(recovered(&of("another", "Running"), &cordoned), None, "another has the node");
    }
}
