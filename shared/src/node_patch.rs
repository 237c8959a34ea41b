//! How a node is marked for maintenance and given back exactly as it was.
//!
//! The patch that cordons also writes down, in an annotation, what it changed: whoever gives the node back restores
//! that and nothing else, so a node that was cordoned before stays cordoned, and labels and taints of others survive.
//! Both patches are merge patches that carry the node's resourceVersion, because `spec.taints` can only be replaced
//! whole: if someone was faster the API server answers 409, and the decision is made anew.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::group::Group;
use crate::names::{EXCLUDE_LABEL, EXCLUDE_VALUE, NO_SCHEDULE, UNDO_ANNOTATION, UNSCHEDULABLE_TAINT};

/// A merge patch for a node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodePatch(pub Value);

/// What the cordon changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Undo {
    /// The node was schedulable.
    made_unschedulable: bool,
    /// Taints that were not there, as `key:effect`.
    added_taints: Vec<String>,
    /// What our labels said before; null where they were not there.
    labels_before: BTreeMap<String, Option<String>>,
}

/// What a maintenance has done to its node before, which tells whose the marks are that the node carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Past {
    /// Nothing: marks without a record were put there by others, for reasons of their own, and stay. A record without
    /// a taint of ours was left by a maintenance that someone else ended, and says nothing.
    Fresh,
    /// We cordoned it, and the record stands.
    Ours,
    /// The medik8s operator cordoned it, or its predecessor, which leave no record: the marks go.
    Medik8s,
}

/// Whether the node has every mark of a maintenance of this group, and the record of what it was before.
pub fn is_cordoned(node: &Node, group: Group) -> bool {
    unschedulable(node)
        && (!group.has_exclude_label() || label(node, EXCLUDE_LABEL) == Some(EXCLUDE_VALUE))
        && marks(group).iter().all(|mark| taints(node).iter().any(|taint| same(taint, mark)))
        && recorded(&node.metadata).is_some()
}

/// Whether a maintenance of this group, if it has begun, did so by our hands: its taint stands beside our record.
pub fn is_on_record(node: &Node, group: Group) -> bool {
    recorded(&node.metadata).is_some() && bears_drain_taint(node, group)
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
/// A record that exists is kept: a node cordoned anew, after someone uncordoned it, is still given back as it was at the
/// very beginning. Who inherits a node from a maintenance of another group adds its own marks.
pub fn cordon(node: &Node, past: Past, group: Group) -> Option<NodePatch> {
    if is_cordoned(node, group) {
        return None;
    }
    let current = taints(node);
    let missing: Vec<Taint> =
        marks(group).into_iter().filter(|mark| !current.iter().any(|taint| same(taint, mark))).collect();
    let mut undo = standing_record(node, past).unwrap_or_else(|| match past {
        Past::Medik8s if bears_mark(node, group) => everything(group),
        _ => Undo {
            made_unschedulable: !unschedulable(node),
            added_taints: missing.iter().map(id).collect(),
            labels_before: BTreeMap::new(),
        },
    });
    if past != Past::Ours {
        undo.add_marks(node, &missing, group);
    }
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

/// What gives `node` back as it was; none if there is nothing to undo.
pub fn uncordon(node: &Node, past: Past, group: Group) -> Option<NodePatch> {
    let undo = match (standing_record(node, past), past) {
        (Some(undo), _) => undo,
        (None, Past::Medik8s) if bears_mark(node, group) => everything(group),
        (None, _) => return None,
    };
    let mut labels = Map::new();
    for (key, before) in &undo.labels_before {
        // Only where it still says what we wrote.
        if label(node, key) == Some(EXCLUDE_VALUE) {
            labels.insert(key.clone(), json!(before));
        }
    }
    let current = taints(node);
    let remaining: Vec<&Taint> =
        current.iter().filter(|taint| !undo.added_taints.contains(&id(taint))).collect();
    let mut spec = Map::new();
    if undo.made_unschedulable {
        spec.insert("unschedulable".to_owned(), Value::Null);
    }
    if remaining.len() < current.len() {
        let taints = if remaining.is_empty() { Value::Null } else { json!(remaining) };
        spec.insert("taints".to_owned(), taints);
    }
    Some(NodePatch(json!({
        "metadata": {
            "resourceVersion": node.metadata.resource_version,
            "labels": labels,
            "annotations": {UNDO_ANNOTATION: null},
        },
        "spec": spec,
    })))
}

impl Undo {
    /// Notes the marks that only this group has, as far as no maintenance of it has put them there before.
    fn add_marks(&mut self, node: &Node, missing: &[Taint], group: Group) {
        let added = missing.iter().filter(|taint| taint.key == group.drain_taint()).map(id);
        let added: Vec<String> = added.filter(|id| !self.added_taints.contains(id)).collect();
        self.added_taints.extend(added);
        if group.has_exclude_label() {
            let before = || label(node, EXCLUDE_LABEL).map(str::to_owned);
            self.labels_before.entry(EXCLUDE_LABEL.to_owned()).or_insert_with(before);
        }
    }
}

/// The record of a maintenance that changed all that can be changed.
fn everything(group: Group) -> Undo {
    let labels = group.has_exclude_label().then(|| (EXCLUDE_LABEL.to_owned(), None));
    Undo {
        made_unschedulable: true,
        added_taints: marks(group).iter().map(id).collect(),
        labels_before: labels.into_iter().collect(),
    }
}

/// A record that cannot be read counts as one that undoes everything: the node must not stay cordoned for ever.
fn recorded(metadata: &ObjectMeta) -> Option<Undo> {
    let text = metadata.annotations.as_ref()?.get(UNDO_ANNOTATION)?;
    Some(serde_json::from_str(text).unwrap_or_else(|_| Undo {
        added_taints: Group::ALL.iter().flat_map(|group| marks(*group)).map(|taint| id(&taint)).collect(),
        ..everything(Group::Medik8s)
    }))
}

/// The record, unless it is a leftover.
fn standing_record(node: &Node, past: Past) -> Option<Undo> {
    let is_marked = || Group::ALL.iter().any(|group| bears_drain_taint(node, *group));
    recorded(&node.metadata).filter(|_| past != Past::Fresh || is_marked())
}

fn marks(group: Group) -> [Taint; 2] {
    [group.drain_taint(), UNSCHEDULABLE_TAINT].map(|key| Taint {
        key: key.to_owned(),
        effect: NO_SCHEDULE.to_owned(),
        ..Taint::default()
    })
}

/// Whether the medik8s operator has begun to change the node and has not given it back: it puts its label on before the
/// taints and takes it off last, after the node is schedulable again.
fn bears_mark(node: &Node, group: Group) -> bool {
    let labelled = || group.has_exclude_label() && label(node, EXCLUDE_LABEL) == Some(EXCLUDE_VALUE);
    bears_drain_taint(node, group) || labelled()
}

fn bears_drain_taint(node: &Node, group: Group) -> bool {
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
