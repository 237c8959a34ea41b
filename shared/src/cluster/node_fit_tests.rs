//! Pods and nodes, one line a rule.

use super::*;
use crate::api::names::DRAIN_TAINT;
use serde_json::{Value, json};

fn node(extra: &Value) -> Node {
    let mut node = json!({
        "metadata": {"name": "n1", "labels": {"zone": "a", "cores": "8"}}, "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    for (field, value) in extra.as_object().unwrap() {
        node[field] = value.clone();
    }
    serde_json::from_value(node).unwrap()
}

fn pod(mut spec: Value) -> Pod {
    spec["containers"] = json!([{"name": "c", "ports": spec["ports"].take()}]);
    spec.as_object_mut().unwrap().remove("ports");
    serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
}

#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "one-line cases")]
fn check_pod(spec: &Value, extra: &Value, expected: Result<(), Unfit>) {
    assert_eq!(check(&pod(spec.clone()), &[], &node(extra)), expected, "{spec} {extra}");
}

#[test]
fn cordons_and_taints_exclude_pods_that_do_not_tolerate_them() {
    let cordoned = json!({"spec": {"unschedulable": true}});
    let tainted = |effect: &str| json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": effect}]}});
    let tolerating = |toleration: Value| json!({"tolerations": [toleration]});
    check_pod(&json!({}), &json!({}), Ok(()));
    check_pod(&json!({}), &cordoned, Err(Unfit::Cordoned));
    check_pod(&tolerating(json!({"operator": "Exists"})), &cordoned, Ok(()));
    check_pod(&tolerating(json!({"operator": "Exists", "key": UNSCHEDULABLE_TAINT})), &cordoned, Ok(()));
    for effect in ["NoSchedule", "NoExecute"] {
        check_pod(&json!({}), &tainted(effect), Err(Unfit::Taint(format!("k=v:{effect}"))));
    }
    check_pod(&json!({}), &tainted("PreferNoSchedule"), Ok(()));
    let taint = Err(Unfit::Taint("k=v:NoSchedule".into()));
    for (toleration, expected) in [
        (json!({"key": "k", "value": "v"}), Ok(())),
        (json!({"key": "k", "operator": "Exists"}), Ok(())),
        (json!({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}), Ok(())),
        (json!({"key": "k", "value": "w"}), taint.clone()),
        (json!({"key": "other", "operator": "Exists"}), taint.clone()),
        (json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), taint.clone()),
        (json!({"key": "k", "operator": "Near", "value": "v"}), taint),
    ] {
        check_pod(&tolerating(toleration), &tainted("NoSchedule"), expected);
    }
    let silent = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    check_pod(&tolerating(json!({"operator": "Exists"})), &silent, Err(Unfit::NotReady));
}

#[test]
fn selectors_and_required_affinity_choose() {
    let affinity = |terms: Value| {
        json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
    };
    let label = |key: &str, operator: &str, values: &[&str]| {
        affinity(json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]))
    };
    let name = |name: &str| {
        affinity(json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]))
    };
    for (spec, fits) in [
        (json!({"nodeSelector": {"zone": "a"}}), true),
        (json!({"nodeSelector": {"zone": "b"}}), false),
        (json!({"nodeSelector": {"rack": "1"}}), false),
        (label("zone", "In", &["a", "b"]), true),
        (label("zone", "NotIn", &["a"]), false),
        (label("rack", "NotIn", &["1"]), true),
        (label("zone", "Exists", &[]), true),
        (label("zone", "DoesNotExist", &[]), false),
        (label("cores", "Gt", &["4"]), true),
        (label("cores", "Gt", &["8"]), false),
        (label("cores", "Lt", &["9"]), true),
        (label("zone", "Lt", &["9"]), false),
        (label("zone", "Like", &["a"]), false),
        (name("n1"), true),
        (name("n2"), false),
        (affinity(json!([{}])), false),
        (affinity(json!([{}, {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}])), true),
    ] {
        check_pod(&spec, &json!({}), if fits { Ok(()) } else { Err(Unfit::NotSelected) });
    }
}

#[test]
fn volumes_bind_a_pod_to_the_nodes_that_reach_them() {
    let on = |name: &str| -> NodeSelector {
        let here = json!({"key": "metadata.name", "operator": "In", "values": [name]});
        serde_json::from_value(json!({"nodeSelectorTerms": [{"matchFields": [here]}]})).unwrap()
    };
    let found = |volumes: &[&NodeSelector]| check(&pod(json!({})), volumes, &node(&json!({})));
    assert_eq!(found(&[&on("n1")]), Ok(()));
    assert_eq!(found(&[&on("n1"), &on("n2")]), Err(Unfit::Volume));
}

#[test]
fn what_is_not_looked_at_is_named() {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let term = json!([{"topologyKey": "zone"}]);
    let sidecar = |policy: &str| json!({"name": "s", "restartPolicy": policy, "ports": [{"containerPort": 1, "hostPort": 80}]});
    let spread = |when: &str| json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": when}]});
    for (spec, expected) in [
        (json!({}), &[][..]),
        (json!({"affinity": {"podAntiAffinity": {required: term}}}), &["affinity between pods"]),
        (json!({"affinity": {"podAffinity": {required: term}}}), &["affinity between pods"]),
        (json!({"affinity": {"podAntiAffinity": {}}}), &[]),
        (spread("DoNotSchedule"), &["spread over topologies"]),
        (spread("ScheduleAnyway"), &[]),
        (json!({"ports": [{"containerPort": 1, "hostPort": 80}]}), &["host ports"]),
        (json!({"ports": [{"containerPort": 1}]}), &[]),
        (json!({"initContainers": [sidecar("Always")]}), &["host ports"]),
        (json!({"initContainers": [sidecar("Never")]}), &[]),
        (json!({"schedulerName": "mine"}), &["schedulers of their own"]),
        (json!({"schedulerName": "default-scheduler"}), &[]),
    ] {
        assert_eq!(left_out(&pod(spec.clone())), expected, "{spec}");
    }
}

#[test]
fn a_pod_may_be_scheduled_to_a_node_in_maintenance_if_it_tolerates_both_taints_and_selects_the_node() {
    let exists = |key: &str| json!({"key": key, "operator": "Exists"});
    let (drain, cordon) = (exists(DRAIN_TAINT), exists(UNSCHEDULABLE_TAINT));
    let all = json!([{"operator": "Exists"}]);
    let dedicated = json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
    for (spec, extra, expected) in [
        (json!({}), json!({}), false),
        (json!({"tolerations": all}), json!({}), true),
        (json!({"tolerations": all}), dedicated.clone(), true),
        (json!({"tolerations": [drain, cordon]}), json!({}), true),
        (json!({"tolerations": [drain, cordon]}), dedicated, false),
        (json!({"tolerations": [drain]}), json!({}), false),
        (json!({"tolerations": [cordon]}), json!({}), false),
        (json!({"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}), json!({}), false),
        (json!({"tolerations": all, "nodeSelector": {"zone": "a"}}), json!({}), true),
        (json!({"tolerations": all, "nodeSelector": {"zone": "b"}}), json!({}), false),
    ] {
        assert_eq!(
            tolerates_maintenance(&pod(spec.clone()), &node(&extra), DRAIN_TAINT),
            expected,
            "{spec} {extra}"
        );
    }
}
