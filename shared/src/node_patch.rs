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

use crate::names::{
    DRAIN_TAINT, EXCLUDE_LABEL, EXCLUDE_VALUE, NO_SCHEDULE, UNDO_ANNOTATION, UNSCHEDULABLE_TAINT,
};

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
    /// our taint was left by a maintenance that someone else ended, and says nothing.
    Fresh,
    /// We cordoned it, and the record stands.
    Ours,
    /// The medik8s operator cordoned it, which leaves no record: the marks go.
    Medik8s,
}

/// Whether the node has every mark of a maintenance, and the record of what it was before.
pub fn is_cordoned(node: &Node) -> bool {
    unschedulable(node)
        && label(node, EXCLUDE_LABEL) == Some(EXCLUDE_VALUE)
        && marks().iter().all(|mark| taints(node).iter().any(|taint| same(taint, mark)))
        && recorded(&node.metadata).is_some()
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
/// A record that exists is kept as it is: a node cordoned anew, after someone uncordoned it, is still given back as it
/// was at the very beginning.
pub fn cordon(node: &Node, past: Past) -> Option<NodePatch> {
    if is_cordoned(node) {
        return None;
    }
    let current = taints(node);
    let missing: Vec<Taint> =
        marks().into_iter().filter(|mark| !current.iter().any(|taint| same(taint, mark))).collect();
    let undo = standing_record(node, past).unwrap_or_else(|| match past {
        Past::Medik8s if bears_drain_taint(node) => everything(),
        _ => Undo {
            made_unschedulable: !unschedulable(node),
            added_taints: missing.iter().map(id).collect(),
            labels_before: BTreeMap::from([(
                EXCLUDE_LABEL.to_owned(),
                label(node, EXCLUDE_LABEL).map(str::to_owned),
            )]),
        },
    });
    let taints: Vec<&Taint> = current.iter().chain(&missing).collect();
    Some(NodePatch(json!({
        "metadata": {
            "resourceVersion": node.metadata.resource_version,
            "labels": {EXCLUDE_LABEL: EXCLUDE_VALUE},
            "annotations": {UNDO_ANNOTATION: json!(undo).to_string()},
        },
        "spec": {"unschedulable": true, "taints": taints},
    })))
}

/// What gives `node` back as it was; none if there is nothing to undo.
pub fn uncordon(node: &Node, past: Past) -> Option<NodePatch> {
    let undo = match (standing_record(node, past), past) {
        (Some(undo), _) => undo,
        (None, Past::Medik8s) if bears_drain_taint(node) => everything(),
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

/// The record of a maintenance that changed all that can be changed.
fn everything() -> Undo {
    Undo {
        made_unschedulable: true,
        added_taints: marks().iter().map(id).collect(),
        labels_before: BTreeMap::from([(EXCLUDE_LABEL.to_owned(), None)]),
    }
}

/// A record that cannot be read counts as one that undoes everything: the node must not stay cordoned for ever.
fn recorded(metadata: &ObjectMeta) -> Option<Undo> {
    let text = metadata.annotations.as_ref()?.get(UNDO_ANNOTATION)?;
    Some(serde_json::from_str(text).unwrap_or_else(|_| everything()))
}

/// The record, unless it is a leftover.
fn standing_record(node: &Node, past: Past) -> Option<Undo> {
    recorded(&node.metadata).filter(|_| past != Past::Fresh || bears_drain_taint(node))
}

fn marks() -> [Taint; 2] {
    [DRAIN_TAINT, UNSCHEDULABLE_TAINT].map(|key| Taint {
        key: key.to_owned(),
        effect: NO_SCHEDULE.to_owned(),
        ..Taint::default()
    })
}

fn bears_drain_taint(node: &Node) -> bool {
    taints(node).iter().any(|taint| taint.key == DRAIN_TAINT)
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn apply(node: &Value, patch: Option<NodePatch>) -> Value {
        let mut node = node.clone();
        if let Some(NodePatch(patch)) = patch {
            merge(&mut node, &patch);
        }
        node
    }

    /// RFC 7386, as the API server applies it.
    fn merge(target: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else {
            *target = patch.clone();
            return;
        };
        if !target.is_object() {
            *target = json!({});
        }
        let target = target.as_object_mut().unwrap();
        for (key, value) in patch {
            if value.is_null() {
                target.remove(key);
            } else {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
    }

    fn parse(node: &Value) -> Node {
        serde_json::from_value(node.clone()).unwrap()
    }

    #[test]
    fn metadata_tells_what_the_node_was_while_the_marks_are_on_it() {
        for (spec, was) in [(json!({}), true), (json!({"unschedulable": true}), false)] {
            let node = json!({"metadata": {"name": "n1"}, "spec": spec});
            let there = parse(&apply(&node, cordon(&parse(&node), Past::Fresh)));
            assert_eq!(was_schedulable(&parse(&node).metadata), None);
            assert_eq!(was_schedulable(&there.metadata), Some(was));
        }
        let leftover = parse(&json!({"metadata": {"annotations": {UNDO_ANNOTATION: "{}"}}}));
        assert_eq!(was_schedulable(&leftover.metadata), None);
    }

    fn there_and_back(node: &Value) -> Value {
        let there = apply(node, cordon(&parse(node), Past::Fresh));
        assert!(is_cordoned(&parse(&there)), "{there}");
        apply(&there, uncordon(&parse(&there), Past::Fresh))
    }

    /// A node without the empty maps and lists that a merge patch leaves behind and the API server drops.
    fn tidy(mut node: Value) -> Value {
        for (outer, inner) in [("metadata", "labels"), ("metadata", "annotations"), ("spec", "taints")] {
            let empty = match &node[outer][inner] {
                Value::Object(map) => map.is_empty(),
                Value::Array(list) => list.is_empty(),
                other => other.is_null(),
            };
            if let (true, Some(map)) = (empty, node[outer].as_object_mut()) {
                map.remove(inner);
            }
        }
        node
    }

    #[test]
    fn a_cordoned_node_has_all_marks_and_needs_no_second_patch() {
        let node = json!({"metadata": {"name": "n", "resourceVersion": "7"}, "spec": {}});
        let patch = cordon(&parse(&node), Past::Fresh).unwrap();
        assert_eq!(patch.0["metadata"]["resourceVersion"], "7");
        let cordoned = apply(&node, Some(patch));
        assert_eq!(cordoned["spec"]["unschedulable"], true);
        assert_eq!(cordoned["spec"]["taints"][0], json!({"key": DRAIN_TAINT, "effect": "NoSchedule"}));
        assert_eq!(
            cordoned["spec"]["taints"][1],
            json!({"key": UNSCHEDULABLE_TAINT, "effect": "NoSchedule"})
        );
        assert_eq!(cordoned["metadata"]["labels"][EXCLUDE_LABEL], "true");
        assert_eq!(cordon(&parse(&cordoned), Past::Fresh), None);
    }

    #[test]
    fn a_node_cordoned_before_stays_cordoned_after() {
        let taint =
            json!({"key": UNSCHEDULABLE_TAINT, "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"});
        let node = json!({"metadata": {"name": "n"}, "spec": {"unschedulable": true, "taints": [taint]}});
        assert_eq!(tidy(there_and_back(&node)), node);
    }

    #[test]
    fn the_first_record_outlives_a_second_cordon() {
        let node = json!({"metadata": {"name": "n"}, "spec": {"unschedulable": true}});
        let mut there = apply(&node, cordon(&parse(&node), Past::Fresh));
        there["spec"]["unschedulable"] = json!(false);
        let again = apply(&there, cordon(&parse(&there), Past::Fresh));
        let back = apply(&again, uncordon(&parse(&again), Past::Fresh));
        assert_eq!(back["spec"]["unschedulable"], true, "it was cordoned before us");
    }

    #[test]
    fn changes_that_others_make_meanwhile_survive() {
        let node = json!({"metadata": {"name": "n", "labels": {"a": "1"}}, "spec": {}});
        let mut there = apply(&node, cordon(&parse(&node), Past::Fresh));
        there["metadata"]["labels"]["b"] = json!("2");
        let late = json!({"key": "late", "effect": "NoExecute"});
        there["spec"]["taints"].as_array_mut().unwrap().push(late.clone());
        let back = apply(&there, uncordon(&parse(&there), Past::Fresh));
        assert_eq!(back["metadata"]["labels"], json!({"a": "1", "b": "2"}));
        assert_eq!(back["spec"], json!({"taints": [late]}));
    }

    #[test]
    fn a_maintenance_begun_by_the_medik8s_operator_is_ended_as_it_would_end_it() {
        let taints: Vec<Taint> = marks().to_vec();
        let node = json!({
            "metadata": {"name": "n", "labels": {EXCLUDE_LABEL: "true"}},
            "spec": {"unschedulable": true, "taints": taints},
        });
        let bare = json!({"metadata": {"name": "n"}, "spec": {}});
        let direct = apply(&node, uncordon(&parse(&node), Past::Medik8s));
        assert_eq!(tidy(direct), bare);
        let adopted = apply(&node, cordon(&parse(&node), Past::Medik8s));
        assert_eq!(tidy(apply(&adopted, uncordon(&parse(&adopted), Past::Fresh))), bare);
    }

    #[test]
    fn a_node_that_the_medik8s_operator_has_not_cordoned_yet_is_recorded_as_it_is() {
        let node = json!({"metadata": {"name": "n"}, "spec": {"unschedulable": true}});
        let there = apply(&node, cordon(&parse(&node), Past::Medik8s));
        assert_eq!(tidy(apply(&there, uncordon(&parse(&there), Past::Medik8s))), node);
    }

    #[test]
    fn a_record_left_by_a_maintenance_that_another_operator_ended_says_nothing() {
        let schedulable = json!({"metadata": {"name": "n"}, "spec": {}});
        let mut ended = apply(&schedulable, cordon(&parse(&schedulable), Past::Fresh));
        ended["spec"] = json!({"unschedulable": true});
        assert_eq!(uncordon(&parse(&ended), Past::Fresh), None);
        let there = apply(&ended, cordon(&parse(&ended), Past::Fresh));
        let back = apply(&there, uncordon(&parse(&there), Past::Ours));
        assert_eq!(back["spec"]["unschedulable"], true, "it was cordoned when this maintenance began");
    }

    #[test]
    fn a_node_without_our_marks_is_left_alone() {
        let node = json!({"metadata": {"name": "n"}, "spec": {"unschedulable": true}});
        assert_eq!(uncordon(&parse(&node), Past::Fresh), None);
        assert_eq!(uncordon(&parse(&node), Past::Medik8s), None);
    }

    proptest! {
        #[test]
        fn whatever_a_node_was_it_is_again(
            unschedulable in proptest::option::of(Just(true)),
            keys in proptest::collection::btree_set(
                prop_oneof![Just(DRAIN_TAINT), Just(UNSCHEDULABLE_TAINT), Just("other")], 0..3),
            effect in prop_oneof![Just("NoSchedule"), Just("NoExecute")],
            excluded in proptest::option::of(prop_oneof![Just("true"), Just("false")]),
        ) {
            let mut node = json!({"metadata": {"name": "n", "labels": {"zone": "a"}}, "spec": {}});
            if let Some(flag) = unschedulable {
                node["spec"]["unschedulable"] = json!(flag);
            }
            if !keys.is_empty() {
                node["spec"]["taints"] = keys.iter().map(|key| json!({"key": key, "effect": effect})).collect();
            }
            if let Some(value) = excluded {
                node["metadata"]["labels"][EXCLUDE_LABEL] = json!(value);
            }
            prop_assert_eq!(tidy(there_and_back(&node)), node);
        }
    }
}
