//! Whatever was done to a node, its maintenance is undone exactly.

use proptest::prelude::*;

use super::*;
use crate::api::names::{AUTOSCALER_ANNOTATIONS, LOAD_BALANCER_LABEL};
use crate::drain::node_patch;

proptest! {
    #[test]
    fn a_kept_cordon_leaves_a_node_as_if_it_had_been_cordoned_before(
        group in proptest::sample::select(&Group::ALL),
        unschedulable in proptest::option::of(Just(true)),
        tainted in any::<bool>(),
        excluded in proptest::option::of(prop_oneof![Just("true"), Just("false")]),
        uncordoned_by_hand in any::<bool>(),
        record_removed in any::<bool>(),
    ) {
        let mut node = json!({"metadata": {"name": "n", "labels": {"zone": "a"}}, "spec": {}});
        if let Some(flag) = unschedulable {
            node["spec"]["unschedulable"] = json!(flag);
        }
        if tainted {
            node["spec"]["taints"] = json!([{"key": "other", "effect": "NoSchedule"}]);
        }
        // Without the record, the previous label is not known.
        let excluded = excluded.filter(|_| !record_removed);
        if let Some(value) = excluded {
            node["metadata"]["labels"][EXCLUDE_LABEL] = json!(value);
        }
        let maintenance = Maintenance::of(group);
        let mut cordoned = maintenance.cordon(&node, CordonedBy::Nobody);
        if uncordoned_by_hand {
            cordoned["spec"]["unschedulable"] = json!(false);
        }
        if record_removed {
            cordoned["metadata"]["annotations"] = json!({});
        }
        let past = if record_removed { CordonedBy::NmReconciler } else { CordonedBy::Nobody };
        let requester = Requester { keeps_cordon: true, ..maintenance.requester(past) };
        let patch = node_patch::uncordon(&parse(&cordoned), &requester).unwrap();
        prop_assert!(leaves_cordoned(&parse(&cordoned), &patch));
        let left = maintenance.remove_record(&apply(&cordoned, Some(patch)));
        let mut expected = node.clone();
        expected["spec"]["unschedulable"] = json!(true);
        let keys = |node: &Value| -> Vec<String> {
            let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
            taints.iter().map(|taint| taint["key"].as_str().unwrap().to_owned()).collect()
        };
        let mut wanted = keys(&expected);
        wanted.push(UNSCHEDULABLE_TAINT.to_owned());
        prop_assert_eq!(keys(&left), wanted);
        prop_assert_eq!(&left["spec"]["unschedulable"], &expected["spec"]["unschedulable"]);
        prop_assert_eq!(&left["metadata"]["labels"], &expected["metadata"]["labels"]);
        let again = node_patch::uncordon(&parse(&left), &requester);
        prop_assert_eq!(again, None, "it stays so when the decision is made again");
    }

    #[test]
    fn uncordoning_restores_the_previous_state(
        group in proptest::sample::select(&Group::ALL),
        unschedulable in proptest::option::of(Just(true)),
        keys in proptest::collection::btree_set(
            prop_oneof![Just(DRAIN_TAINT), Just(KUBEVIRT_DRAIN_TAINT), Just(UNSCHEDULABLE_TAINT), Just("other")
            ], 0..4),
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
        prop_assert_eq!(tidy(cordon_and_uncordon(&node, group)), node);
    }

    #[test]
    fn uncordoning_restores_the_previous_state_whatever_is_removed_by_hand(
        unschedulable in any::<bool>(),
        tainted in any::<bool>(),
        excluded in proptest::option::of(prop_oneof![Just("true"), Just("false")]),
        removed in any::<[bool; 4]>(),
        record_removed in any::<bool>(),
        status_written in any::<bool>(),
        cordoned_again in any::<bool>(),
    ) {
        let mut node = json!({"metadata": {"name": "n", "labels": {"zone": "a"}}, "spec": {}});
        // Without the record, the previous marks are not known.
        if !record_removed {
            if unschedulable {
                node["spec"]["unschedulable"] = json!(true);
            }
            if tainted {
                node["spec"]["taints"] = json!([{"key": UNSCHEDULABLE_TAINT, "effect": "NoSchedule"}]);
            }
            if let Some(value) = excluded {
                node["metadata"]["labels"][EXCLUDE_LABEL] = json!(value);
            }
        }
        let maintenance = Maintenance::alone("m");
        let mut there = maintenance.cordon(&node, CordonedBy::Nobody);
        remove_by_hand(&mut there, removed);
        let mut past = if status_written { CordonedBy::NmReconciler } else { CordonedBy::Nobody };
        if record_removed {
            there["metadata"]["annotations"] = json!({});
            past = CordonedBy::NmReconciler;
        }
        if cordoned_again {
            there = maintenance.cordon(&there, past);
            prop_assert!(is_cordoned(&parse(&there), Group::Medik8s));
        } else if record_removed && removed[1] && removed[3] {
            // What is left may be the cordon of someone else, after ours was reverted.
            return Ok(());
        }
        let back = maintenance.uncordon(&there, past);
        prop_assert_eq!(maintenance.uncordon(&back, past), back.clone(), "once is enough");
        prop_assert_eq!(tidy(maintenance.remove_record(&back)), node);
    }

    #[test]
    fn what_neighbours_are_asked_is_undone_whatever_was_there_before(
        label in proptest::option::of(prop_oneof![Just(""), Just("true"), Just("false")]),
        values in proptest::collection::vec(proptest::option::of(prop_oneof![Just("true"), Just("false")]), 2),
        asked in proptest::collection::vec(any::<(bool, bool)>(), 1..4),
        ends in any::<bool>(),
    ) {
        let mut node = json!({"metadata": {"name": "n", "labels": {"zone": "a"}, "annotations": {"other": "x"}}, "spec": {}});
        if let Some(value) = label {
            node["metadata"]["labels"][LOAD_BALANCER_LABEL] = json!(value);
        }
        for (key, value) in AUTOSCALER_ANNOTATIONS.iter().zip(&values) {
            if let Some(value) = value {
                node["metadata"]["annotations"][key] = json!(value);
            }
        }
        let maintenance = Maintenance::alone("m");
        let mut there = node.clone();
        for (excluded_from_load_balancers, protected_from_autoscalers) in asked {
            let neighbours = Neighbours { excluded_from_load_balancers, protected_from_autoscalers };
            let requester = Requester { neighbours, ..maintenance.requester(CordonedBy::Nobody) };
            there = apply(&there, node_patch::cordon(&parse(&there), &requester));
            prop_assert_eq!(node_patch::cordon(&parse(&there), &requester), None, "once is enough");
            let is_left_out = |node: &Value| {
                node["metadata"]["labels"].get(LOAD_BALANCER_LABEL).is_some_and(|value| value != "false")
            };
            prop_assert_eq!(is_left_out(&there), excluded_from_load_balancers || is_left_out(&node));
            for (key, before) in AUTOSCALER_ANNOTATIONS.iter().zip(&values) {
                let expected = if protected_from_autoscalers { Some("true") } else { *before };
                prop_assert_eq!(there["metadata"]["annotations"][key].as_str(), expected);
            }
        }
        if ends {
            let back = maintenance.uncordon(&there, CordonedBy::Nobody);
            prop_assert_eq!(tidy(maintenance.remove_record(&back)), node);
        }
    }
}

#[test]
fn what_neighbours_were_asked_is_undone_if_the_record_is_gone_or_cannot_be_read() {
    let node = json!({"metadata": {"name": "n", "labels": {"zone": "a"}}, "spec": {}});
    let maintenance = Maintenance::alone("m");
    let neighbours = Neighbours { excluded_from_load_balancers: true, protected_from_autoscalers: true };
    let requester = Requester { neighbours, ..maintenance.requester(CordonedBy::NmReconciler) };
    let cordoned = apply(&node, node_patch::cordon(&parse(&node), &requester));
    let (mut unreadable, mut gone) = (cordoned.clone(), cordoned);
    unreadable["metadata"]["annotations"][UNDO_ANNOTATION] = json!("{");
    gone["metadata"]["annotations"].as_object_mut().unwrap().remove(UNDO_ANNOTATION);
    for broken in [unreadable, gone] {
        for there in [broken.clone(), apply(&broken, node_patch::cordon(&parse(&broken), &requester))] {
            let back = apply(&there, node_patch::uncordon(&parse(&there), &requester));
            assert_eq!(tidy(maintenance.remove_record(&back)), node);
        }
    }
}
