//! What becomes of pods in the node's view.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::*;
use crate::maintenance::fixture::{requested, with_status};

fn now() -> Timestamp {
    "2026-01-02T03:10:00Z".parse().unwrap()
}

fn pod(name: &str, more: &Value) -> Arc<Facts> {
    let mut object = json!({"metadata": {"name": name, "namespace": "shop", "uid": name}});
    for (key, value) in more.as_object().unwrap() {
        object["metadata"][key] = value.clone();
    }
    let pod: Pod = serde_json::from_value(object).unwrap();
    Arc::new(Facts::of(&pod))
}

fn plain(name: &str) -> Arc<Facts> {
    pod(name, &json!({}))
}

fn owned(name: &str, kind: &str) -> Arc<Facts> {
    let owner = json!([{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o", "controller": true}]);
    pod(name, &json!({"ownerReferences": owner}))
}

fn ending(name: &str, deadline: &str) -> Arc<Facts> {
    pod(name, &json!({"deletionTimestamp": deadline, "deletionGracePeriodSeconds": 30}))
}

fn running(status: &Value) -> NodeMaintenance {
    let mut whole = json!({"phase": "Running"});
    for (key, value) in status.as_object().unwrap() {
        whole[key] = value.clone();
    }
    with_status("n1", whole)
}

fn blocked(name: &str, reason: &str) -> Value {
    json!({"namespace": "shop", "name": name, "reason": reason, "message": "m",
        "since": "2026-01-02T03:09:00Z", "attempts": 7})
}

/// The rows with their messages up to the first comma: how the reconciler words an obstacle is its own business.
fn told(pods: &Pods) -> Vec<String> {
    let rows = (0..pods.rows.len()).filter_map(|index| pods.rows.nth(index));
    let line = |row: &PodRow| {
        let message = row.stand.message.split(',').next().unwrap_or_default();
        format!("{} {} {message}", row.stand.place.word(), row.id.name).trim_end().to_owned()
    };
    rows.map(line).collect()
}

#[test]
fn pods_stand_where_they_and_the_status_say() {
    let status = running(&json!({
        "blockedPods": [blocked("b", "DisruptionBudget"), blocked("e1", "DisruptionBudget"), blocked("e2", "NodeNotReady")],
        "migratingPods": [{"namespace": "shop", "name": "vm", "machine": "db", "source": "n1", "target": "n2"}],
        "podCounts": {"blocked": 3, "waiting": 1, "evicting": 1},
    }));
    let mut pods = Pods::default();
    let seen = [
        plain("w"),
        plain("b"),
        ending("e0", "2026-01-02T03:10:20Z"),
        ending("e1", "2026-01-02T03:10:20Z"),
        ending("e2", "2026-01-02T03:10:20Z"),
        ending("late", "2026-01-02T03:00:00Z"),
        plain("vm"),
        owned("ds", "DaemonSet"),
        pod("static", &json!({"annotations": {"kubernetes.io/config.mirror": "x"}})),
    ];
    pods.see_all(&seen, Some(&status), now());
    assert_eq!(
        told(&pods),
        [
            "BLOCKED b m",
            "BLOCKED e2 m",
            "BLOCKED late terminating",
            "ENDING e0",
            "ENDING e1",
            "MIGRATING vm db to n2",
            "WAITING w",
            "STAYS ds DaemonSet",
            "STAYS static static pod",
        ]
    );
    let row = pods.rows.get("b").unwrap();
    assert_eq!((row.stand.attempts, row.stand.reason), (7, Some(nm_shared::BlockReason::DisruptionBudget)));
    let asked = pods.rows.get("e0").unwrap().stand.since.unwrap();
    assert_eq!(asked, "2026-01-02T03:09:50Z".parse().unwrap());
}

#[test]
fn pods_of_a_node_that_is_not_in_maintenance_just_run_and_are_not_remembered() {
    let mut pods = Pods::default();
    pods.see_all(&[plain("a"), plain("b")], None, now());
    pods.see_gone(&plain("a").id, None, now());
    assert_eq!(told(&pods), ["RUNNING b"]);
    pods.rejoin(Some(&requested("n1")), now());
    assert_eq!(told(&pods), ["WAITING b"]);
}

#[test]
fn pods_that_went_are_remembered_by_the_watch_and_across_its_interruptions() {
    let status = running(&json!({}));
    let mut pods = Pods::default();
    pods.see_all(&[plain("a"), plain("b"), owned("ds", "DaemonSet")], Some(&status), now());
    pods.see_gone(&plain("a").id, Some(&status), now());
    pods.see_gone(&owned("ds", "DaemonSet").id, Some(&status), now());
    assert_eq!(told(&pods), ["WAITING b", "GONE a"]);
    let later = now() + SignedDuration::from_secs(9);
    pods.see_all(&[plain("c")], Some(&status), later);
    assert_eq!(told(&pods), ["WAITING c", "GONE b", "GONE a"], "who went last comes first");
    assert_eq!(pods.rows.get("a").unwrap().stand.since, Some(now()));
    pods.see(&plain("a"), Some(&status), later);
    assert_eq!(told(&pods), ["WAITING a", "WAITING c", "GONE b"]);
}

#[test]
fn a_change_of_the_status_moves_the_pods_that_it_concerns() {
    let mut pods = Pods::default();
    pods.see_all(&[plain("a"), plain("b")], Some(&running(&json!({}))), now());
    let status = running(
        &json!({"blockedPods": [blocked("b", "Forbidden")], "podCounts": {"blocked": 1, "evicting": 1}}),
    );
    pods.rejoin(Some(&status), now());
    assert_eq!(told(&pods), ["BLOCKED b m", "EVICTING a"]);
    let status = running(&json!({"podCounts": {"blocked": 2, "waiting": 0}}));
    pods.rejoin(Some(&status), now());
    let hint = "or blocked: the status does not list all";
    assert_eq!(told(&pods), [format!("WAITING a {hint}"), format!("WAITING b {hint}")]);
}

#[test]
fn a_change_of_many_pods_at_once_keeps_them_all_in_order() {
    let many: Vec<Arc<Facts>> = (0..1000).map(|i| plain(&format!("p{i:03}"))).collect();
    let mut pods = Pods::default();
    pods.see_all(&many, Some(&running(&json!({}))), now());
    pods.rejoin(Some(&running(&json!({"podCounts": {"evicting": 1000}}))), now());
    assert_eq!(pods.rows.len(), 1000);
    assert_eq!(told(&pods)[999], "EVICTING p999");
}

#[test]
fn another_drain_spec_judges_the_pods_anew() {
    let mut other = running(&json!({}));
    let mut pods = Pods::default();
    pods.see_all(&[plain("a"), owned("b", "ReplicaSet")], Some(&other), now());
    assert_eq!(told(&pods), ["WAITING a", "WAITING b"]);
    other.spec.drain = Some(DrainSpec { force: false, ..DrainSpec::default() });
    pods.rejoin(Some(&other), now());
    let blocked = told(&pods);
    assert!(blocked[0].starts_with("BLOCKED a ") && blocked[1] == "WAITING b", "{blocked:?}");
    pods.rejoin(None, now());
    assert_eq!(told(&pods), ["RUNNING a", "RUNNING b"]);
    pods.rejoin(Some(&other), now());
    assert_eq!(told(&pods), blocked);
    other.spec.drain = None;
    pods.rejoin(Some(&other), now());
    assert_eq!(told(&pods), ["WAITING a", "WAITING b"]);
}

#[test]
fn time_makes_an_ending_pod_a_stuck_one() {
    let status = running(&json!({}));
    let mut pods = Pods::default();
    pods.see_all(&[ending("e", "2026-01-02T03:10:20Z")], Some(&status), now());
    pods.tick(Some(&status), now() + SignedDuration::from_secs(60));
    assert_eq!(told(&pods), ["ENDING e"]);
    pods.tick(Some(&status), now() + SignedDuration::from_secs(90));
    assert_eq!(told(&pods)[0], "BLOCKED e terminating");
}

#[test]
fn without_the_right_to_list_pods_the_status_is_shown_and_pods_that_leave_it_went() {
    let pending = |names: &[&str]| {
        let pods: Vec<Value> = names.iter().map(|name| json!({"namespace": "shop", "name": name})).collect();
        running(&json!({"pendingPodsRefs": pods, "blockedPods": [blocked("b", "Forbidden")]}))
    };
    let mut pods = Pods::default();
    pods.hide(Some(&pending(&["a", "b"])), now());
    assert_eq!(told(&pods), ["BLOCKED b m", "TO GO a"]);
    pods.rejoin(Some(&pending(&["b"])), now());
    assert_eq!(told(&pods), ["BLOCKED b m", "GONE a"]);
}

#[test]
fn a_pod_that_waits_for_those_of_a_lower_priority_says_so() {
    for (order, said) in [
        ("PriorityAscending", "WAITING w not asked to go yet: lower priorities go first"),
        ("None", "WAITING w"),
    ] {
        let mut maintenance = running(&json!({"podCounts": {"waiting": 1}}));
        maintenance.spec.drain = serde_json::from_value(json!({"order": order})).unwrap();
        let mut pods = Pods::default();
        pods.see_all(&[plain("w")], Some(&maintenance), now());
        assert_eq!(told(&pods), [said]);
    }
}
