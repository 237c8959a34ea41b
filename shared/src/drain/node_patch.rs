//! How a node is marked for maintenance and given back exactly as it was.
//!
//! The patch that cordons also writes down, in an annotation, what it changed: whoever gives the node back restores
//! that and nothing else, so a node that was cordoned before stays cordoned, and labels and taints of others survive.
//! Both patches are merge patches that carry the node's resourceVersion, because `spec.taints` can only be replaced
//! whole: if someone was faster the API server answers 409, and the decision is made anew.

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::api::group::Group;
use crate::api::names::{EXCLUDE_LABEL, EXCLUDE_VALUE, NO_SCHEDULE, UNDO_ANNOTATION, UNSCHEDULABLE_TAINT};

/// A merge patch for a node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodePatch(pub Value);

/// What the cordon changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct UndoRecord {
    /// The uid of the maintenance that the record belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    maintenance: Option<String>,
    /// The uid of the maintenance that inherits the node, until it has made the record its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    heir: Option<String>,
    /// All of it is undone. Such a record stays, until its maintenance is gone, on a node that had our label or taint
    /// before: without it they would be taken for ours.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    restored: bool,
    /// The node was schedulable.
    made_unschedulable: bool,
    /// Taints that were not there, as `key:effect`.
    added_taints: Vec<String>,
    /// What our labels said before; null where they were not there.
    labels_before: BTreeMap<String, Option<String>>,
}

/// The maintenance for which a node is cordoned or uncordoned.
#[derive(Debug, Clone, Copy)]
pub struct Requester<'a> {
    /// Its uid, which the record names.
    pub uid: &'a str,
    /// Its group.
    pub group: Group,
    /// What its status says it has done to the node.
    pub cordoned_by: CordonedBy,
    /// The uids of the other maintenances of the node, those being deleted included.
    pub others: &'a HashSet<String>,
}

/// What the status of a maintenance says it has done to its node. A record that names the maintenance says more: a status
/// is written after the node, and may never have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CordonedBy {
    /// Nothing: marks without a record were put there by others, for reasons of their own, and stay.
    Nobody,
    /// We cordoned it. If the record is missing, someone removed it, and the marks are ours.
    NmReconciler,
    /// The medik8s operator cordoned it, or its predecessor, which leave no record: the marks go.
    Medik8s,
}

/// Whether the node has every mark of a maintenance of this group, and the record of what it was before.
pub fn is_cordoned(node: &Node, group: Group) -> bool {
    has_all_marks(node, group) && has_record(node)
}

/// Whether the node has every mark of a maintenance of this group, with or without a record.
pub fn has_all_marks(node: &Node, group: Group) -> bool {
    unschedulable(node)
        && (!group.has_exclude_label() || label(node, EXCLUDE_LABEL) == Some(EXCLUDE_VALUE))
        && marks(group).iter().all(|mark| taints(node).iter().any(|taint| same(taint, mark)))
}

/// Whether there is a record on the node, whosever it is.
pub fn has_record(node: &Node) -> bool {
    recorded(&node.metadata).is_some()
}

/// Whether the record on the node is that of the maintenance with this uid: then the maintenance has begun, whatever its
/// status says. A record that names no maintenance is from before records did, and belongs to whoever has the node.
pub fn record_belongs_to(node: &Node, uid: &str) -> bool {
    let record = recorded(&node.metadata).filter(|undo| !undo.restored);
    record.is_some_and(|undo| undo.maintenance.is_none_or(|owner| owner == uid))
}

/// Whether the record on the node names the maintenance with this uid.
pub fn record_names(node: &Node, uid: &str) -> bool {
    let record = recorded(&node.metadata).filter(|undo| !undo.restored);
    record.is_some_and(|undo| undo.maintenance.as_deref() == Some(uid))
}

/// Whether the node was schedulable before the maintenance that its metadata shows the marks of; none where they do not
/// show one. For those who watch metadata alone: a taint would tell for certain.
pub fn was_schedulable(metadata: &ObjectMeta) -> Option<bool> {
    let labelled = metadata.labels.as_ref()?.get(EXCLUDE_LABEL)? == EXCLUDE_VALUE;
    let undo = recorded(metadata).filter(|_| labelled)?;
    Some(undo.made_unschedulable)
}

/// What puts `node` into maintenance; none if it is there already.
///
/// A record that stands is kept: a node cordoned anew, after someone uncordoned it, is still given back as it was at the
/// very beginning. Who inherits a node from a maintenance of another group adds its own marks.
pub fn cordon(node: &Node, requester: &Requester) -> Option<NodePatch> {
    let group = requester.group;
    if is_cordoned(node, group) && record_names(node, requester.uid) {
        return None;
    }
    let current = taints(node);
    let missing: Vec<Taint> =
        marks(group).into_iter().filter(|mark| !current.iter().any(|taint| same(taint, mark))).collect();
    let undo = match standing_record(node, requester) {
        Some(undo) if undo.maintenance.as_deref() == Some(requester.uid) => undo,
        Some(inherited) => inherited.with_marks(node, &missing, group),
        None if must_be_ours(node, requester) => everything(node, group),
        None => {
            let made_unschedulable = !unschedulable(node);
            let added_taints = missing.iter().map(id).collect();
            UndoRecord { made_unschedulable, added_taints, ..UndoRecord::default() }
                .with_marks(node, &missing, group)
        }
    };
    let undo = UndoRecord { maintenance: Some(requester.uid.to_owned()), heir: None, ..undo };
    let taints: Vec<&Taint> = current.iter().chain(&missing).collect();
    let mut metadata = json!({
        "resourceVersion": node.metadata.resource_version,
        "annotations": {UNDO_ANNOTATION: json!(undo).to_string()},
    });
    if group.has_exclude_label() {
        metadata["labels"] = json!({EXCLUDE_LABEL: EXCLUDE_VALUE});
    }
    Some(NodePatch(json!({"metadata": metadata, "spec": {"unschedulable": true, "taints": taints}})))
}

/// What gives `node` back as it was when the first of its maintenances cordoned it, whatever was changed by hand
/// meanwhile; none if there is nothing to undo.
pub fn uncordon(node: &Node, requester: &Requester) -> Option<NodePatch> {
    let group = requester.group;
    let undo = match standing_record(node, requester) {
        Some(undo) => undo,
        None if recorded(&node.metadata).is_some_and(|undo| undo.restored) => return None,
        // Somebody may have cordoned the node since it was given back: only our own marks tell that it was not.
        None if requester.cordoned_by != CordonedBy::Nobody && has_own_mark(node, group) => {
            everything(node, group)
        }
        None => return None,
    };
    let was_there = |mark: &Taint| !undo.added_taints.contains(&id(mark));
    let current = taints(node);
    let mut restored: Vec<Taint> = current.iter().filter(|taint| was_there(taint)).cloned().collect();
    let cordon = mark(UNSCHEDULABLE_TAINT);
    if was_there(&cordon) && !current.iter().any(|taint| same(taint, &cordon)) {
        restored.push(cordon);
    }
    let labels: Map<String, Value> =
        undo.labels_before.iter().map(|(key, before)| (key.clone(), json!(before))).collect();

    let looks_ours = undo.labels_before.values().any(|before| before.as_deref() == Some(EXCLUDE_VALUE))
        || restored.iter().any(|taint| taint.key == group.drain_taint());
    let record = looks_ours.then(|| {
        let owner = undo.maintenance.clone().filter(|uid| requester.others.contains(uid));
        let maintenance = Some(owner.unwrap_or_else(|| requester.uid.to_owned()));
        json!(UndoRecord { maintenance, restored: true, ..UndoRecord::default() }).to_string()
    });
    let mut spec = Map::new();
    if undo.made_unschedulable {
        spec.insert("unschedulable".to_owned(), Value::Null);
    } else if !unschedulable(node) {
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
            "annotations": {UNDO_ANNOTATION: record},
        },
        "spec": spec,
    })))
}

/// What leaves the node, as it is, to another of its maintenances; none if there is no record to leave.
pub fn hand_over(node: &Node, requester: &Requester, heir: &str) -> Option<NodePatch> {
    let undo = standing_record(node, requester)?;
    if [&undo.maintenance, &undo.heir].into_iter().any(|uid| uid.as_deref() == Some(heir)) {
        return None;
    }
    let undo = UndoRecord { heir: Some(heir.to_owned()), ..undo };
    Some(NodePatch(json!({"metadata": {
        "resourceVersion": node.metadata.resource_version,
        "annotations": {UNDO_ANNOTATION: json!(undo).to_string()},
    }})))
}

/// What removes the record of a maintenance that is over; none if it is gone already. Should it stay, it is a leftover.
pub fn remove_record(node: &Node, uid: &str) -> Option<NodePatch> {
    recorded(&node.metadata).filter(|undo| undo.restored && undo.maintenance.as_deref() == Some(uid))?;
    Some(NodePatch(json!({"metadata": {
        "resourceVersion": node.metadata.resource_version,
        "annotations": {UNDO_ANNOTATION: null},
    }})))
}

impl UndoRecord {
    /// Notes the marks that only this group has, as far as no maintenance of it has put them there before.
    fn with_marks(mut self, node: &Node, missing: &[Taint], group: Group) -> Self {
        let added = missing.iter().filter(|taint| taint.key == group.drain_taint()).map(id);
        let added: Vec<String> = added.filter(|id| !self.added_taints.contains(id)).collect();
        self.added_taints.extend(added);
        if group.has_exclude_label() {
            let before = || label(node, EXCLUDE_LABEL).map(str::to_owned);
            self.labels_before.entry(EXCLUDE_LABEL.to_owned()).or_insert_with(before);
        }
        self
    }

    /// Whether the node bears a mark that only a maintenance puts there, and that was not there before.
    fn is_visible_on(&self, node: &Node) -> bool {
        let is_drain_taint = |taint: &Taint| Group::ALL.iter().any(|group| taint.key == group.drain_taint());
        let added = |taint: &Taint| self.added_taints.contains(&id(taint));
        let labelled = self.labels_before.get(EXCLUDE_LABEL).is_some_and(|before| {
            before.as_deref() != Some(EXCLUDE_VALUE) && label(node, EXCLUDE_LABEL) == Some(EXCLUDE_VALUE)
        });
        labelled || taints(node).iter().any(|taint| is_drain_taint(taint) && added(taint))
    }
}

/// The record of a maintenance of which nothing is known but that it put every mark there.
fn everything(node: &Node, group: Group) -> UndoRecord {
    let before = label(node, EXCLUDE_LABEL).filter(|value| *value != EXCLUDE_VALUE).map(str::to_owned);
    let labels = group.has_exclude_label().then(|| (EXCLUDE_LABEL.to_owned(), before));
    UndoRecord {
        made_unschedulable: true,
        added_taints: marks(group).iter().map(id).collect(),
        labels_before: labels.into_iter().collect(),
        ..UndoRecord::default()
    }
}

/// A record that cannot be read counts as one that undoes everything: the node must not stay cordoned for ever.
fn recorded(metadata: &ObjectMeta) -> Option<UndoRecord> {
    let text = metadata.annotations.as_ref()?.get(UNDO_ANNOTATION)?;
    Some(serde_json::from_str(text).unwrap_or_else(|_| UndoRecord {
        made_unschedulable: true,
        added_taints: Group::ALL.iter().flat_map(|group| marks(*group)).map(|taint| id(&taint)).collect(),
        labels_before: BTreeMap::from([(EXCLUDE_LABEL.to_owned(), None)]),
        ..UndoRecord::default()
    }))
}

/// The record, unless it is a leftover: then its maintenance is gone, as when the medik8s operator ended it, which knows
/// no records, and so are the marks that the record tells of.
fn standing_record(node: &Node, requester: &Requester) -> Option<UndoRecord> {
    let undo = recorded(&node.metadata).filter(|undo| !undo.restored)?;
    let exists = |uid: &String| uid == requester.uid || requester.others.contains(uid);
    let stands = undo.maintenance.as_ref().is_none_or(exists)
        || undo.heir.as_ref().is_some_and(exists)
        || requester.cordoned_by == CordonedBy::NmReconciler
        || undo.is_visible_on(node);
    stands.then_some(undo)
}

/// Whether the marks of a node that is in maintenance, without a record, can only be ours, or those of the medik8s
/// operator.
fn must_be_ours(node: &Node, requester: &Requester) -> bool {
    match requester.cordoned_by {
        CordonedBy::Nobody => false,
        CordonedBy::NmReconciler => {
            let is_tainted = taints(node).iter().any(|taint| taint.key == UNSCHEDULABLE_TAINT);
            unschedulable(node) || is_tainted || has_own_mark(node, requester.group)
        }
        CordonedBy::Medik8s => has_own_mark(node, requester.group),
    }
}

fn marks(group: Group) -> [Taint; 2] {
    [group.drain_taint(), UNSCHEDULABLE_TAINT].map(mark)
}

fn mark(key: &str) -> Taint {
    Taint { key: key.to_owned(), effect: NO_SCHEDULE.to_owned(), ..Taint::default() }
}

/// Whether the medik8s operator has begun to change the node and has not given it back: it puts its label on before the
/// taints and takes it off last, after the node is schedulable again.
fn has_own_mark(node: &Node, group: Group) -> bool {
    let labelled = || group.has_exclude_label() && label(node, EXCLUDE_LABEL) == Some(EXCLUDE_VALUE);
    has_drain_taint(node, group) || labelled()
}

fn has_drain_taint(node: &Node, group: Group) -> bool {
    taints(node).iter().any(|taint| taint.key == group.drain_taint())
}

fn same(a: &Taint, b: &Taint) -> bool {
    a.key == b.key && a.effect == b.effect
}

fn id(taint: &Taint) -> String {
    format!("{}:{}", taint.key, taint.effect)
}

fn unschedulable(node: &Node) -> bool {
    node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true))
}

fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
#[path = "node_patch_tests.rs"]
mod tests;
