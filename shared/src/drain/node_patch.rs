//! Cordoning a node, and uncordoning it to exactly its previous state.
//!
//! The patch that cordons also writes the undo record, an annotation with what it changed. The patch that uncordons
//! reverts that and nothing else, so a node that was cordoned before stays cordoned, and labels and taints of others
//! are kept. A planned maintenance taints its node without cordoning it; a record of its own kind shows whether it added the
//! taint. All are merge patches with the node's resourceVersion, because `spec.taints` can only be replaced as a
//! whole: if another program has changed the node, the API server answers 409 and the decision is made again.

use std::collections::{BTreeMap, HashSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use crate::api::group::Group;
use crate::api::names::{EXCLUDE_LABEL, EXCLUDE_VALUE, UNDO_ANNOTATION, UNSCHEDULABLE_TAINT};
use crate::cluster::node;
use crate::cluster::node_fit::taint;
use crate::drain::node_marks::{id, label, marks, planned_taint, same, taints};
pub use crate::drain::undo_record::Neighbours;
use crate::drain::undo_record::{UndoRecord, cordon_record, everything, planned_record, recorded};

/// A merge patch for a node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodePatch(pub Value);

/// The maintenance for which a node is cordoned or uncordoned.
#[derive(Debug, Clone, Copy)]
pub struct Requester<'a> {
    /// The uid of the maintenance.
    pub uid: &'a str,
    /// The group of the maintenance.
    pub group: Group,
    /// Who has cordoned the node, by its status.
    pub cordoned_by: CordonedBy,
    /// Whether it or another maintenance of the node was planned and has not begun, by its status, which is written after the
    /// taint of the plan. If the record is missing, a user removed it, and the taint is ours.
    pub planned: bool,
    /// Whether the node stays cordoned when the maintenance ends.
    pub keeps_cordon: bool,
    /// What it asks others to do with the node.
    pub neighbours: Neighbours,
    /// The uids of the other maintenances of the node, those being deleted included.
    pub others: &'a HashSet<String>,
    /// The current time, for the record.
    pub now: Timestamp,
}

/// Who has cordoned the node, by the status of the maintenance. An undo record takes precedence, because the status is
/// written after the node, or never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CordonedBy {
    /// Nobody for this maintenance: marks without a record belong to others and stay.
    Nobody,
    /// The reconciler. If the record is missing, a user removed it, and the marks are ours.
    NmReconciler,
    /// The medik8s operator or its predecessor, which write no record: the marks are removed.
    Medik8s,
}

/// Whether the node has all marks of a maintenance of this group, and an undo record.
pub fn is_cordoned(node: &Node, group: Group) -> bool {
    has_all_marks(node, group) && has_record(node)
}

/// Whether the node has all marks of a maintenance of this group, with or without an undo record.
pub fn has_all_marks(node: &Node, group: Group) -> bool {
    node::is_unschedulable(node)
        && (!group.has_exclude_label() || label(node, EXCLUDE_LABEL) == Some(EXCLUDE_VALUE))
        && marks(group).iter().all(|mark| taints(node).iter().any(|taint| same(taint, mark)))
}

/// Whether the node has an undo record of any maintenance that has started.
pub fn has_record(node: &Node) -> bool {
    cordon_record(&node.metadata).is_some()
}

/// Whether the undo record belongs to the maintenance with this uid, which then has started, whatever its status shows. A
/// record without a maintenance is from an older version and belongs to the maintenance that has the node.
pub fn record_belongs_to(node: &Node, uid: &str) -> bool {
    let record = cordon_record(&node.metadata).filter(|undo| !undo.restored);
    record.is_some_and(|undo| undo.maintenance.is_none_or(|owner| owner == uid))
}

/// Whether the undo record names the maintenance with this uid.
pub fn record_names(node: &Node, uid: &str) -> bool {
    record_owner(node).as_deref() == Some(uid)
}

/// The uid of the maintenance that the undo record names.
pub fn record_owner(node: &Node) -> Option<String> {
    cordon_record(&node.metadata).filter(|undo| !undo.restored)?.maintenance
}

/// Since when load balancers leave the node out, by its undo record: none if they have not been asked, and the time is none
/// if it is not known.
pub fn excluded_since(node: &Node) -> Option<Option<Timestamp>> {
    cordon_record(&node.metadata).filter(UndoRecord::excludes).map(|undo| undo.excluded_since)
}

/// Whether the node was schedulable before its maintenance; none if its metadata shows no maintenance. For programs that
/// watch metadata only, which does not have the taints.
pub fn was_schedulable(metadata: &ObjectMeta) -> Option<bool> {
    let labelled = metadata.labels.as_ref()?.get(EXCLUDE_LABEL)? == EXCLUDE_VALUE;
    let undo = cordon_record(metadata).filter(|_| labelled)?;
    Some(undo.made_unschedulable)
}

/// The patch that taints a node for which a maintenance is planned; none if that is done, or if another maintenance has
/// yet to uncordon the node, whether or not someone has removed its record. A taint that was there before, or that someone removes, is left as it is.
pub fn mark_planned(node: &Node, requester: &Requester) -> Option<NodePatch> {
    let taint = planned_taint();
    let is_tainted = taints(node).iter().any(|other| same(other, &taint));
    let added = match planned_record(&node.metadata) {
        Some(undo) if undo.maintenance.as_deref() == Some(requester.uid) => return None,
        // The taint of a plan that is over.
        Some(undo) => undo.added_taints.contains(&id(&taint)) || !is_tainted,
        None if valid_record(node, requester).is_some() || has_drain_taint(node, requester.group) => {
            return None;
        }
        None => !is_tainted || has_lost_plan(node, requester),
    };
    let undo = UndoRecord {
        maintenance: Some(requester.uid.to_owned()),
        planned: true,
        added_taints: added.then(|| id(&taint)).into_iter().collect(),
        ..UndoRecord::default()
    };
    let mut patch = record_patch(node, Some(&undo));
    if !is_tainted {
        let all: Vec<&Taint> = taints(node).iter().chain([&taint]).collect();
        patch.0["spec"] = json!({"taints": all});
    }
    Some(patch)
}

/// The patch that removes the taint of a planned maintenance, unless it was there before; none if nothing is planned for it.
pub fn end_plan(node: &Node, requester: &Requester) -> Option<NodePatch> {
    let record = planned_record(&node.metadata);
    let is_recorded = record.is_some_and(|undo| undo.maintenance.as_deref() == Some(requester.uid));
    let left = taints_without_plan(node, requester);
    let is_over = left == taints(node);
    if !is_recorded && (is_over || !has_lost_plan(node, requester)) {
        return None;
    }
    let mut patch = record_patch(node, None);
    if !is_over {
        let taints = if left.is_empty() { Value::Null } else { json!(left) };
        patch.0["spec"] = json!({"taints": taints});
    }
    Some(patch)
}

/// The patch that cordons `node`; none if it is cordoned already. What was only planned is no longer recorded.
///
/// A valid undo record is kept, so that a node that is cordoned again, after a user uncordoned it, is still returned to
/// its original state. A maintenance that inherits a node from another group adds its own marks.
pub fn cordon(node: &Node, requester: &Requester) -> Option<NodePatch> {
    let group = requester.group;
    let is_marked = is_cordoned(node, group) && record_names(node, requester.uid);
    if is_marked && recorded(&node.metadata).is_some_and(|undo| undo.has_asked(requester.neighbours)) {
        return None;
    }
    let current = taints_without_plan(node, requester);
    let missing: Vec<Taint> =
        marks(group).into_iter().filter(|mark| !current.iter().any(|taint| same(taint, mark))).collect();
    let undo = match valid_record(node, requester) {
        Some(undo) if undo.maintenance.as_deref() == Some(requester.uid) => undo,
        Some(inherited) => inherited.with_marks(node, &missing, group),
        None if must_be_ours(node, requester) => assumed_record(node, requester),
        None => {
            let made_unschedulable = !node::is_unschedulable(node);
            let added_taints = missing.iter().map(id).collect();
            UndoRecord { made_unschedulable, added_taints, ..UndoRecord::default() }
                .with_marks(node, &missing, group)
        }
    };
    let mut undo = UndoRecord { maintenance: Some(requester.uid.to_owned()), heir: None, ..undo };
    let taints: Vec<&Taint> = current.iter().chain(&missing).collect();
    let was_excluded = undo.excludes();
    let (mut labels, mut annotations) = undo.ask(&node.metadata, requester.neighbours);
    let since = if was_excluded { undo.excluded_since } else { Some(requester.now) };
    undo.excluded_since = since.filter(|_| undo.excludes());
    annotations.insert(UNDO_ANNOTATION.to_owned(), json!(json!(undo).to_string()));
    if group.has_exclude_label() {
        labels.insert(EXCLUDE_LABEL.to_owned(), json!(EXCLUDE_VALUE));
    }
    let mut metadata = json!({"resourceVersion": node.metadata.resource_version, "annotations": annotations});
    if !labels.is_empty() {
        metadata["labels"] = json!(labels);
    }
    Some(NodePatch(json!({"metadata": metadata, "spec": {"unschedulable": true, "taints": taints}})))
}

/// The patch that returns `node` to the state before its first maintenance, whatever was changed by hand since; none if
/// there is nothing to revert. If the cordon is kept, the node is left as if it had been cordoned before. One patch does both, so
/// the node is never schedulable in between.
pub fn uncordon(node: &Node, requester: &Requester) -> Option<NodePatch> {
    let group = requester.group;
    let undo = match valid_record(node, requester) {
        Some(undo) => undo,
        None if recorded(&node.metadata).is_some_and(|undo| undo.restored || undo.planned) => return None,
        // Someone may have cordoned the node after it was uncordoned: only our own marks show that it was not.
        None if requester.cordoned_by != CordonedBy::Nobody && has_own_mark(node, group) => {
            assumed_record(node, requester)
        }
        None => return None,
    };
    let undo = if requester.keeps_cordon { undo.with_cordon_before() } else { undo };
    let was_there = |mark: &Taint| !undo.added_taints.contains(&id(mark));
    let current = taints(node);
    let mut restored: Vec<Taint> = current.iter().filter(|taint| was_there(taint)).cloned().collect();
    let cordon = taint(UNSCHEDULABLE_TAINT);
    if was_there(&cordon) && !current.iter().any(|taint| same(taint, &cordon)) {
        restored.push(cordon);
    }
    let values_before = |all: &BTreeMap<String, Option<String>>| -> Map<String, Value> {
        all.iter().map(|(key, before)| (key.clone(), json!(before))).collect()
    };
    let labels = values_before(&undo.labels_before);
    let mut annotations = values_before(&undo.annotations_before);

    let excluded_before = undo.labels_before.get(EXCLUDE_LABEL).and_then(Option::as_deref);
    let looks_ours = excluded_before == Some(EXCLUDE_VALUE)
        || restored.iter().any(|taint| taint.key == group.drain_taint());
    let record = looks_ours.then(|| {
        let owner = undo.maintenance.clone().filter(|uid| requester.others.contains(uid));
        let maintenance = Some(owner.unwrap_or_else(|| requester.uid.to_owned()));
        json!(UndoRecord { maintenance, restored: true, ..UndoRecord::default() }).to_string()
    });
    annotations.insert(UNDO_ANNOTATION.to_owned(), json!(record));
    let mut spec = Map::new();
    if undo.made_unschedulable {
        spec.insert("unschedulable".to_owned(), Value::Null);
    } else if !node::is_unschedulable(node) {
        spec.insert("unschedulable".to_owned(), json!(true));
    }
    if restored != current {
        let taints = if restored.is_empty() { Value::Null } else { json!(restored) };
        spec.insert("taints".to_owned(), taints);
    }
    Some(NodePatch(json!({
        "metadata": {
            "resourceVersion": node.metadata.resource_version,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": spec,
    })))
}

/// Whether the node is still cordoned once a patch of [`uncordon`] is applied to it.
pub fn leaves_cordoned(node: &Node, NodePatch(patch): &NodePatch) -> bool {
    match patch["spec"].get("unschedulable") {
        Some(unschedulable) => *unschedulable == Value::Bool(true),
        None => node::is_unschedulable(node),
    }
}

/// The patch that makes the API server refuse a cordon that was sent for this maintenance and has not arrived: it only
/// changes the resourceVersion, by a record that [`remove_record`] removes. None if the node has that record, or that of a
/// plan.
pub fn refuse_late_cordon(node: &Node, requester: &Requester) -> Option<NodePatch> {
    let uid = Some(requester.uid.to_owned());
    let mut record = UndoRecord { maintenance: uid.clone(), restored: true, ..UndoRecord::default() };
    if let Some(found) = recorded(&node.metadata) {
        // Whoever planned a maintenance has changed the resourceVersion, too.
        if found.planned {
            return None;
        }
        // Without its record, a maintenance that has restored the node and is still there would do it again, and take marks that
        // were there before for its own.
        let owner = found.maintenance.as_ref().filter(|_| found.restored);
        if owner.is_some_and(|owner| requester.others.contains(owner)) {
            record = UndoRecord { heir: uid, ..found.clone() };
        }
        if found == record {
            return None;
        }
    }
    Some(record_patch(node, Some(&record)))
}

/// The patch that hands the node over, as it is, to another of its maintenances; none if there is no undo record.
pub fn hand_over(node: &Node, requester: &Requester, heir: &str) -> Option<NodePatch> {
    let undo = valid_record(node, requester)?;
    if [&undo.maintenance, &undo.heir].into_iter().any(|uid| uid.as_deref() == Some(heir)) {
        return None;
    }
    let undo = UndoRecord { heir: Some(heir.to_owned()), ..undo };
    Some(record_patch(node, Some(&undo)))
}

/// The patch that removes the undo record of a maintenance that has ended; none if there is none.
pub fn remove_record(node: &Node, uid: &str) -> Option<NodePatch> {
    recorded(&node.metadata).filter(|undo| undo.restored && undo.maintenance.as_deref() == Some(uid))?;
    Some(record_patch(node, None))
}

/// The patch that replaces the undo record, or removes it, and changes nothing else.
fn record_patch(node: &Node, record: Option<&UndoRecord>) -> NodePatch {
    NodePatch(json!({"metadata": {
        "resourceVersion": node.metadata.resource_version,
        "annotations": {UNDO_ANNOTATION: record.map(|record| json!(record).to_string())},
    }}))
}

/// The record, unless it is stale: then its maintenance is gone, for example because the medik8s operator ended it, which
/// ignores records, and so are the marks in the record.
fn valid_record(node: &Node, requester: &Requester) -> Option<UndoRecord> {
    let mut undo = cordon_record(&node.metadata).filter(|undo| !undo.restored)?;
    if undo.unreadable {
        undo.assume_asked(requester.neighbours);
    }
    let exists = |uid: &String| uid == requester.uid || requester.others.contains(uid);
    let is_valid = undo.maintenance.as_ref().is_none_or(exists)
        || undo.heir.as_ref().is_some_and(exists)
        || requester.cordoned_by == CordonedBy::NmReconciler
        || undo.is_visible_on(node);
    is_valid.then_some(undo)
}

/// The record of a node without one, which a user has removed or the medik8s operator does not write: all marks are ours. Only
/// nm-reconciler asks neighbours for something.
fn assumed_record(node: &Node, requester: &Requester) -> UndoRecord {
    let mut undo = everything(node, requester.group);
    if requester.cordoned_by == CordonedBy::NmReconciler {
        undo.assume_asked(requester.neighbours);
    }
    undo
}

/// Whether the marks of a node without a record can only be set by us or by the medik8s operator.
fn must_be_ours(node: &Node, requester: &Requester) -> bool {
    match requester.cordoned_by {
        CordonedBy::Nobody => false,
        CordonedBy::NmReconciler => {
            let is_tainted = taints(node).iter().any(|taint| taint.key == UNSCHEDULABLE_TAINT);
            node::is_unschedulable(node) || is_tainted || has_own_mark(node, requester.group)
        }
        CordonedBy::Medik8s => has_own_mark(node, requester.group),
    }
}

/// The taints of the node without the one that a planned maintenance added.
fn taints_without_plan(node: &Node, requester: &Requester) -> Vec<Taint> {
    let planned = planned_taint();
    let record = planned_record(&node.metadata);
    let is_ours = record
        .map_or_else(|| has_lost_plan(node, requester), |undo| undo.added_taints.contains(&id(&planned)));
    taints(node).iter().filter(|taint| !(is_ours && same(taint, &planned))).cloned().collect()
}

/// Whether a user removed the record of a planned maintenance, so that nothing shows any more whether the taint was there before.
fn has_lost_plan(node: &Node, requester: &Requester) -> bool {
    requester.planned && recorded(&node.metadata).is_none()
}

/// Whether the medik8s operator has begun to cordon the node and has not uncordoned it: it sets its label before the taints
/// and removes it last, after the node is schedulable again.
fn has_own_mark(node: &Node, group: Group) -> bool {
    let labelled = || group.has_exclude_label() && label(node, EXCLUDE_LABEL) == Some(EXCLUDE_VALUE);
    has_drain_taint(node, group) || labelled()
}

/// Whether the node has the taint that only maintenances of this group set.
pub fn has_drain_taint(node: &Node, group: Group) -> bool {
    taints(node).iter().any(|taint| taint.key == group.drain_taint())
}

#[cfg(test)]
#[path = "node_patch_tests.rs"]
mod tests;
