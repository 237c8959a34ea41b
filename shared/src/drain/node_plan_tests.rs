//! The taint of a planned maintenance, with the patches applied.

use super::*;
use crate::api::names::{PLANNED_TAINT, PREFER_NO_SCHEDULE};

impl Maintenance {
    fn mark_planned(&self, node: &Value) -> Value {
        apply(node, mark_planned(&parse(node), &self.requester(CordonedBy::Nobody)))
    }

    fn end_plan(&self, node: &Value) -> Value {
        apply(node, end_plan(&parse(node), &self.requester(CordonedBy::Nobody)))
    }
}

fn taint_keys(node: &Value) -> Vec<&str> {
    let taints = node["spec"]["taints"].as_array();
    taints.into_iter().flatten().map(|taint| taint["key"].as_str().unwrap()).collect()
}

#[test]
fn a_plan_adds_one_taint_that_its_end_removes() {
    let maintenance = Maintenance::alone("m");
    for taints in [json!([]), json!([{"key": "dedicated", "effect": "NoExecute", "value": "x"}])] {
        let node = json!({"metadata": {"name": "n"}, "spec": {"taints": taints}});
        let planned = maintenance.mark_planned(&node);
        assert_eq!(taint_keys(&planned).last(), Some(&PLANNED_TAINT));
        assert!(planned["spec"]["unschedulable"].is_null());
        let parsed = parse(&planned);
        assert!(!has_record(&parsed) && !record_names(&parsed, "m") && !record_belongs_to(&parsed, "m"));
        assert_eq!(maintenance.mark_planned(&planned), planned, "once");
        assert_eq!(maintenance.uncordon(&planned, CordonedBy::NmReconciler), planned, "it is not cordoned");
        assert_eq!(Maintenance::alone("another").end_plan(&planned), planned);
        assert_eq!(tidy(maintenance.end_plan(&planned)), tidy(node));
    }
}

#[test]
fn a_foreign_taint_of_the_same_key_stays() {
    let node = json!({"metadata": {"name": "n"}, "spec": {"taints": [
        {"key": PLANNED_TAINT, "effect": PREFER_NO_SCHEDULE, "value": "theirs"}]}});
    let maintenance = Maintenance::alone("m");
    let planned = maintenance.mark_planned(&node);
    assert_eq!(tidy(maintenance.end_plan(&planned)), node);
    let cordoned = maintenance.cordon(&planned, CordonedBy::Nobody);
    assert_eq!(tidy(maintenance.uncordon(&cordoned, CordonedBy::NmReconciler)), node);
    let other_effect = json!({"metadata": {"name": "n"}, "spec": {"taints": [
        {"key": PLANNED_TAINT, "effect": "NoSchedule"}]}});
    let planned = maintenance.mark_planned(&other_effect);
    assert_eq!(taint_keys(&planned).len(), 2);
    assert_eq!(tidy(maintenance.end_plan(&planned)), other_effect);
}

#[test]
fn the_cordon_replaces_the_planned_taint_in_one_patch() {
    let node = json!({"metadata": {"name": "n"}, "spec": {}});
    let maintenance = Maintenance::alone("m");
    let cordoned = maintenance.cordon(&maintenance.mark_planned(&node), CordonedBy::Nobody);
    assert!(is_cordoned(&parse(&cordoned), Group::Medik8s) && record_names(&parse(&cordoned), "m"));
    assert!(!taint_keys(&cordoned).contains(&PLANNED_TAINT));
    assert_eq!(cordoned, maintenance.cordon(&node, CordonedBy::Nobody));
    assert_eq!(tidy(maintenance.uncordon(&cordoned, CordonedBy::NmReconciler)), node);
}

#[test]
fn a_plan_waits_for_a_maintenance_that_is_not_over_and_takes_over_the_plan_of_another() {
    let node = json!({"metadata": {"name": "n"}, "spec": {}});
    let (first, second) = (Maintenance::alone("first"), Maintenance::beside("second", "first"));
    let cordoned = first.cordon(&node, CordonedBy::Nobody);
    assert_eq!(second.mark_planned(&cordoned), cordoned);
    let over = first.uncordon(&cordoned, CordonedBy::NmReconciler);
    assert_eq!(taint_keys(&second.mark_planned(&over)), [PLANNED_TAINT]);
    let taken = second.mark_planned(&first.mark_planned(&node));
    assert_eq!(first.end_plan(&taken), taken, "it is the plan of the second by now");
    assert_eq!(tidy(second.end_plan(&taken)), node);
}

#[test]
fn a_node_that_came_with_our_marks_keeps_them_when_a_plan_replaces_the_record() {
    let node = json!({"metadata": {"name": "n", "labels": {EXCLUDE_LABEL: "true"}}, "spec": {}});
    let (first, second) = (Maintenance::alone("first"), Maintenance::beside("second", "first"));
    let over = first.uncordon(&first.cordon(&node, CordonedBy::Nobody), CordonedBy::NmReconciler);
    let planned = second.mark_planned(&over);
    assert_eq!(first.uncordon(&planned, CordonedBy::NmReconciler), planned, "it is restored already");
    let late = refuse_late_cordon(&parse(&planned), &first.requester(CordonedBy::Nobody));
    assert_eq!(late, None, "the record of the plan stays");
    assert_eq!(tidy(second.end_plan(&planned)), node);
}

#[test]
fn the_record_of_a_maintenance_that_has_restored_its_node_stays_until_it_is_gone_itself() {
    let node = json!({"metadata": {"name": "n", "labels": {EXCLUDE_LABEL: "true"}}, "spec": {}});
    let (first, second) = (Maintenance::beside("first", "second"), Maintenance::beside("second", "first"));
    let over = first.uncordon(&first.cordon(&node, CordonedBy::Nobody), CordonedBy::NmReconciler);
    let refuse =
        |node: &Value| apply(node, refuse_late_cordon(&parse(node), &second.requester(CordonedBy::Nobody)));
    let refused = refuse(&over);
    assert_ne!(refused, over, "a late cordon of the second is refused");
    assert_eq!(refuse(&refused), refused, "once");
    assert_eq!(remove_record(&parse(&refused), "second"), None);
    let again = first.uncordon(&refused, CordonedBy::NmReconciler);
    assert_eq!(again, refused, "the label was there before");
    assert_eq!(tidy(apply(&refused, remove_record(&parse(&refused), "first"))), node);
}

#[test]
fn the_taint_of_a_plan_is_removed_also_after_someone_removed_its_record() {
    let node = json!({"metadata": {"name": "n"}, "spec": {}});
    let maintenance = Maintenance::alone("m");
    let mut stripped = maintenance.mark_planned(&node);
    stripped["metadata"]["annotations"] = Value::Null;
    let reported = Requester { planned: true, ..maintenance.requester(CordonedBy::Nobody) };
    let parsed = parse(&stripped);
    assert_eq!(tidy(apply(&stripped, end_plan(&parsed, &reported))), node);
    let planned = apply(&stripped, mark_planned(&parsed, &reported));
    assert_eq!(tidy(maintenance.end_plan(&planned)), node, "the new record counts the taint as ours");
    let cordoned = apply(&stripped, super::super::cordon(&parsed, &reported));
    assert_eq!(tidy(maintenance.uncordon(&cordoned, CordonedBy::NmReconciler)), node);
    assert_eq!(end_plan(&parse(&node), &reported), None, "there is nothing to remove");
}
