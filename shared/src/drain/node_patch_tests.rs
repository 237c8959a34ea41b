//! Cordoning and uncordoning, with the patches applied.

use super::*;
use crate::api::names::{DRAIN_TAINT, KUBEVIRT_DRAIN_TAINT};

#[path = "node_plan_tests.rs"]
mod plans;
#[path = "node_undo_tests.rs"]
mod undo;

/// A maintenance of this group and uid, alongside other existing ones.
struct Maintenance {
    uid: &'static str,
    group: Group,
    others: HashSet<String>,
}

impl Maintenance {
    fn alone(uid: &'static str) -> Self {
        Self { uid, group: Group::Medik8s, others: HashSet::new() }
    }

    fn of(group: Group) -> Self {
        Self { group, ..Self::alone("m") }
    }

    fn beside(uid: &'static str, other: &str) -> Self {
        Self { others: HashSet::from([other.to_owned()]), ..Self::alone(uid) }
    }

    fn requester(&self, cordoned_by: CordonedBy) -> Requester<'_> {
        Requester {
            uid: self.uid,
            group: self.group,
            cordoned_by,
            planned: false,
            keeps_cordon: false,
            neighbours: Neighbours::default(),
            others: &self.others,
            now: Timestamp::UNIX_EPOCH,
        }
    }

    fn cordon(&self, node: &Value, past: CordonedBy) -> Value {
        apply(node, super::cordon(&parse(node), &self.requester(past)))
    }

    fn uncordon(&self, node: &Value, past: CordonedBy) -> Value {
        apply(node, super::uncordon(&parse(node), &self.requester(past)))
    }

    fn remove_record(&self, node: &Value) -> Value {
        apply(node, remove_record(&parse(node), self.uid))
    }
}

fn cordon(node: &Node, past: CordonedBy) -> Option<NodePatch> {
    super::cordon(node, &Maintenance::alone("m").requester(past))
}

fn uncordon(node: &Node, past: CordonedBy) -> Option<NodePatch> {
    super::uncordon(node, &Maintenance::alone("m").requester(past))
}

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
fn metadata_shows_the_previous_state_while_the_node_has_the_marks() {
    for (spec, was) in [(json!({}), true), (json!({"unschedulable": true}), false)] {
        let node = json!({"metadata": {"name": "n1"}, "spec": spec});
        let there = parse(&apply(&node, cordon(&parse(&node), CordonedBy::Nobody)));
        assert_eq!(was_schedulable(&parse(&node).metadata), None);
        assert_eq!(was_schedulable(&there.metadata), Some(was));
    }
    let leftover = parse(&json!({"metadata": {"annotations": {UNDO_ANNOTATION: "{}"}}}));
    assert_eq!(was_schedulable(&leftover.metadata), None);
}

fn cordon_and_uncordon(node: &Value, group: Group) -> Value {
    let maintenance = Maintenance::of(group);
    let there = maintenance.cordon(node, CordonedBy::Nobody);
    assert!(is_cordoned(&parse(&there), group), "{there}");
    maintenance.remove_record(&maintenance.uncordon(&there, CordonedBy::Nobody))
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
    let patch = cordon(&parse(&node), CordonedBy::Nobody).unwrap();
    assert_eq!(patch.0["metadata"]["resourceVersion"], "7");
    let cordoned = apply(&node, Some(patch));
    assert_eq!(cordoned["spec"]["unschedulable"], true);
    assert_eq!(cordoned["spec"]["taints"][0], json!({"key": DRAIN_TAINT, "effect": "NoSchedule"}));
    assert_eq!(cordoned["spec"]["taints"][1], json!({"key": UNSCHEDULABLE_TAINT, "effect": "NoSchedule"}));
    assert_eq!(cordoned["metadata"]["labels"][EXCLUDE_LABEL], "true");
    assert_eq!(cordon(&parse(&cordoned), CordonedBy::Nobody), None);
}

#[test]
fn a_node_that_was_cordoned_before_stays_cordoned() {
    let taint =
        json!({"key": UNSCHEDULABLE_TAINT, "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"});
    let node = json!({"metadata": {"name": "n"}, "spec": {"unschedulable": true, "taints": [taint]}});
    assert_eq!(tidy(cordon_and_uncordon(&node, Group::Medik8s)), node);
}

#[test]
fn the_first_record_survives_a_second_cordon() {
    let node = json!({"metadata": {"name": "n"}, "spec": {"unschedulable": true}});
    let mut there = apply(&node, cordon(&parse(&node), CordonedBy::Nobody));
    there["spec"]["unschedulable"] = json!(false);
    let again = apply(&there, cordon(&parse(&there), CordonedBy::Nobody));
    let back = apply(&again, uncordon(&parse(&again), CordonedBy::Nobody));
    assert_eq!(back["spec"]["unschedulable"], true, "it was cordoned before us");
}

#[test]
fn changes_by_others_are_kept() {
    let node = json!({"metadata": {"name": "n", "labels": {"a": "1"}}, "spec": {}});
    let mut there = apply(&node, cordon(&parse(&node), CordonedBy::Nobody));
    there["metadata"]["labels"]["b"] = json!("2");
    let late = json!({"key": "late", "effect": "NoExecute"});
    there["spec"]["taints"].as_array_mut().unwrap().push(late.clone());
    let back = apply(&there, uncordon(&parse(&there), CordonedBy::Nobody));
    assert_eq!(back["metadata"]["labels"], json!({"a": "1", "b": "2"}));
    assert_eq!(back["spec"], json!({"taints": [late]}));
}

#[test]
fn a_maintenance_that_the_medik8s_operator_began_ends_as_it_would_end_it() {
    let taints: Vec<Taint> = marks(Group::Medik8s).to_vec();
    let node = json!({
        "metadata": {"name": "n", "labels": {EXCLUDE_LABEL: "true"}},
        "spec": {"unschedulable": true, "taints": taints},
    });
    let bare = json!({"metadata": {"name": "n"}, "spec": {}});
    let direct = apply(&node, uncordon(&parse(&node), CordonedBy::Medik8s));
    assert_eq!(tidy(direct), bare);
    let adopted = apply(&node, cordon(&parse(&node), CordonedBy::Medik8s));
    assert_eq!(tidy(apply(&adopted, uncordon(&parse(&adopted), CordonedBy::Nobody))), bare);
}

#[test]
fn a_node_with_only_the_label_of_the_medik8s_operator_loses_everything_it_set() {
    let bare = json!({"metadata": {"name": "n"}, "spec": {}});
    // It had begun with the label, or had taken off its taints first; the cluster itself keeps one of them there.
    let taint = json!({"key": UNSCHEDULABLE_TAINT, "effect": "NoSchedule"});
    for spec in [json!({}), json!({"unschedulable": true, "taints": [taint]})] {
        let node = json!({"metadata": {"name": "n", "labels": {EXCLUDE_LABEL: "true"}}, "spec": spec});
        assert_eq!(tidy(apply(&node, uncordon(&parse(&node), CordonedBy::Medik8s))), bare);
        let adopted = apply(&node, cordon(&parse(&node), CordonedBy::Medik8s));
        assert_eq!(tidy(apply(&adopted, uncordon(&parse(&adopted), CordonedBy::NmReconciler))), bare);
        assert_eq!(uncordon(&parse(&node), CordonedBy::Nobody), None, "the mark of another");
        // The operator's predecessors have no label.
        assert_eq!(Maintenance::of(Group::Kubevirt).uncordon(&node, CordonedBy::Medik8s), node);
    }
}

#[test]
fn a_node_that_the_medik8s_operator_has_not_cordoned_is_recorded_as_it_is() {
    let node = json!({"metadata": {"name": "n"}, "spec": {"unschedulable": true}});
    let maintenance = Maintenance::alone("m");
    let there = maintenance.cordon(&node, CordonedBy::Medik8s);
    assert_eq!(tidy(maintenance.remove_record(&maintenance.uncordon(&there, CordonedBy::Medik8s))), node);
}

#[test]
fn the_record_of_a_maintenance_that_another_operator_ended_is_ignored() {
    let schedulable = json!({"metadata": {"name": "n"}, "spec": {}});
    let mut ended = Maintenance::alone("gone").cordon(&schedulable, CordonedBy::Nobody);
    // The operator takes off its label, too. Then somebody cordons the node.
    ended["metadata"]["labels"] = json!({});
    ended["spec"] = json!({"unschedulable": true});
    for past in [CordonedBy::Nobody, CordonedBy::Medik8s] {
        assert_eq!(uncordon(&parse(&ended), past), None);
        let there = apply(&ended, cordon(&parse(&ended), past));
        let back = apply(&there, uncordon(&parse(&there), CordonedBy::NmReconciler));
        assert_eq!(back["spec"]["unschedulable"], true, "it was cordoned when this maintenance began");
    }
}

#[test]
fn the_record_of_a_maintenance_that_is_gone_counts_while_the_node_has_one_of_its_marks() {
    let bare = json!({"metadata": {"name": "n"}, "spec": {}});
    let orphan = Maintenance::alone("gone").cordon(&bare, CordonedBy::Nobody);
    for removed in ["labels", "taints"] {
        let mut node = orphan.clone();
        node["metadata"].as_object_mut().unwrap().remove(removed);
        node["spec"].as_object_mut().unwrap().remove(removed);
        let there = Maintenance::alone("next").cordon(&node, CordonedBy::Nobody);
        assert_eq!(
            tidy(Maintenance::alone("next").uncordon(&there, CordonedBy::NmReconciler)),
            bare,
            "without {removed}"
        );
    }
}

#[test]
fn the_record_of_a_maintenance_that_exists_always_counts() {
    let bare = json!({"metadata": {"name": "n"}, "spec": {}});
    let mut node = Maintenance::alone("first").cordon(&bare, CordonedBy::Nobody);
    node["metadata"]["labels"] = json!({});
    node["spec"]["taints"] = json!([]);
    let second = Maintenance::beside("second", "first");
    let there = second.cordon(&node, CordonedBy::Nobody);
    assert!(record_names(&parse(&there), "second"));
    assert_eq!(tidy(second.uncordon(&there, CordonedBy::NmReconciler)), bare);
}

#[test]
fn a_missing_record_reverts_everything_and_is_written_again() {
    let bare = json!({"metadata": {"name": "n"}, "spec": {}});
    let there = Maintenance::alone("m").cordon(&bare, CordonedBy::Nobody);
    let maintenance = Maintenance::alone("m");
    let mut stripped = there.clone();
    stripped["metadata"]["annotations"] = json!({});
    assert_eq!(tidy(maintenance.uncordon(&stripped, CordonedBy::NmReconciler)), bare, "at the end");
    let again = maintenance.cordon(&stripped, CordonedBy::NmReconciler);
    assert_eq!(tidy(maintenance.uncordon(&again, CordonedBy::NmReconciler)), bare, "cordoned again");
    let again = maintenance.cordon(&bare, CordonedBy::NmReconciler);
    assert_eq!(tidy(maintenance.uncordon(&again, CordonedBy::NmReconciler)), bare, "replaced as a whole");
}

#[test]
fn a_forged_record_changes_no_labels_and_taints_of_others() {
    let dedicated = json!({"key": "example.com/dedicated", "value": "gpu", "effect": "NoSchedule"});
    let node = json!({
        "metadata": {"name": "n", "labels": {"example.com/team": "blue"}}, "spec": {"taints": [dedicated]},
    });
    let maintenance = Maintenance::alone("m");
    let there = maintenance.cordon(&node, CordonedBy::Nobody);
    for label in [json!("true\n"), json!("a".repeat(64)), json!("-"), json!(null)] {
        let mut forged = there.clone();
        forged["metadata"]["annotations"][UNDO_ANNOTATION] = json!(
            json!({
                "maintenance": "m", "madeUnschedulable": true,
                "addedTaints": [
                    "example.com/dedicated:NoSchedule",
                    "medik8s.io/drain:NoSchedule",
                    "node.kubernetes.io/unschedulable:NoSchedule",
                ],
                "labelsBefore": {
                    "node-restriction.kubernetes.io/tenant": "trusted", "example.com/team": null, EXCLUDE_LABEL: label,
                },
            })
            .to_string()
        );
        assert_eq!(tidy(maintenance.uncordon(&forged, CordonedBy::NmReconciler)), node, "{label}");
    }
}

#[test]
fn the_heir_of_a_node_has_its_record_whatever_marks_are_removed_by_hand() {
    let bare = json!({"metadata": {"name": "n"}, "spec": {}});
    let first = Maintenance::beside("first", "second");
    let there = first.cordon(&bare, CordonedBy::Nobody);
    let leave = |node: &Value| hand_over(&parse(node), &first.requester(CordonedBy::NmReconciler), "second");
    let mut left = apply(&there, leave(&there));
    assert_eq!(leave(&left), None, "once");
    assert_eq!(left["spec"], there["spec"]);
    left["metadata"]["labels"] = json!({});
    left["spec"]["taints"] = json!([]);
    let second = Maintenance { group: Group::Kubevirt, ..Maintenance::alone("second") };
    assert_eq!(tidy(second.uncordon(&left, CordonedBy::Nobody)), bare, "it ends before it begins");
    let inherited = second.cordon(&left, CordonedBy::Nobody);
    assert_eq!(tidy(second.uncordon(&inherited, CordonedBy::NmReconciler)), bare);
}

#[test]
fn marks_of_others_survive_a_repeated_uncordon() {
    let node = json!({
        "metadata": {"name": "n", "labels": {EXCLUDE_LABEL: "true"}}, "spec": {"unschedulable": true},
    });
    let maintenance = Maintenance::alone("m");
    let there = maintenance.cordon(&node, CordonedBy::Nobody);
    let back = maintenance.uncordon(&there, CordonedBy::NmReconciler);
    assert_eq!(
        maintenance.uncordon(&back, CordonedBy::NmReconciler),
        back,
        "the reconciler was killed after the first"
    );
    assert_eq!(tidy(maintenance.remove_record(&back)), node);
    // Somebody cordons the node after it has returned to service, and before its maintenance is gone.
    let bare = json!({"metadata": {"name": "n"}, "spec": {}});
    let mut back =
        maintenance.uncordon(&maintenance.cordon(&bare, CordonedBy::Nobody), CordonedBy::NmReconciler);
    back["spec"]["unschedulable"] = json!(true);
    assert_eq!(maintenance.uncordon(&back, CordonedBy::NmReconciler), back, "the cordon of someone else");
    // Killed before the record was removed: to the next maintenance it says nothing.
    let next = Maintenance::alone("next");
    let back = maintenance.uncordon(&there, CordonedBy::NmReconciler);
    let there = next.cordon(&back, CordonedBy::Nobody);
    assert_eq!(tidy(next.remove_record(&next.uncordon(&there, CordonedBy::NmReconciler))), node);
}

#[test]
fn each_group_has_its_own_taint_and_only_medik8s_the_label() {
    let node = json!({"metadata": {"name": "n"}, "spec": {}});
    for group in Group::ALL {
        let there = parse(&Maintenance::of(group).cordon(&node, CordonedBy::Nobody));
        let keys: Vec<&str> = taints(&there).iter().map(|taint| taint.key.as_str()).collect();
        assert_eq!(keys, [group.drain_taint(), UNSCHEDULABLE_TAINT]);
        assert_eq!(label(&there, EXCLUDE_LABEL).is_some(), group == Group::Medik8s);
        assert!(is_cordoned(&there, group) && record_belongs_to(&there, "m"));
    }
}

#[test]
fn the_heir_of_a_node_from_another_group_restores_its_original_state() {
    for (first, second) in [(Group::Medik8s, Group::Kubevirt), (Group::Kubevirt, Group::Medik8s)] {
        for spec in [json!({}), json!({"unschedulable": true})] {
            let node = json!({"metadata": {"name": "n"}, "spec": spec});
            let there = Maintenance::of(first).cordon(&node, CordonedBy::Nobody);
            assert!(!is_cordoned(&parse(&there), second));
            let heir = Maintenance { group: second, ..Maintenance::beside("heir", "m") };
            let inherited = heir.cordon(&there, CordonedBy::Nobody);
            assert!(is_cordoned(&parse(&inherited), second));
            let back = heir.remove_record(&heir.uncordon(&inherited, CordonedBy::NmReconciler));
            assert_eq!(tidy(back), node, "{first:?}, then {second:?}");
        }
    }
}

#[test]
fn a_node_without_our_marks_is_not_changed() {
    let node = json!({"metadata": {"name": "n"}, "spec": {"unschedulable": true}});
    for by in [CordonedBy::Nobody, CordonedBy::Medik8s, CordonedBy::NmReconciler] {
        assert_eq!(uncordon(&parse(&node), by), None, "{by:?}");
    }
}

/// What a person may remove from a node during its maintenance.
fn remove_by_hand(node: &mut Value, removed: [bool; 4]) {
    let [cordon, drain_taint, cordon_taint, label] = removed;
    if cordon {
        node["spec"].as_object_mut().unwrap().remove("unschedulable");
    }
    if label {
        node["metadata"]["labels"].as_object_mut().unwrap().remove(EXCLUDE_LABEL);
    }
    node["spec"]["taints"].as_array_mut().unwrap().retain(|taint| {
        !(drain_taint && taint["key"] == DRAIN_TAINT || cordon_taint && taint["key"] == UNSCHEDULABLE_TAINT)
    });
}
