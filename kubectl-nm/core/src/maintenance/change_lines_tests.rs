//! The lines of a maintenance, change by change.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::maintenance::changes::wait_progress;
use crate::testing::objects::{named, requested, running, stopping, with_status};

#[track_caller]
fn check(before: Option<Value>, now: Value, lines: &[&str]) {
    let object = |status| Arc::new(with_status("n1", status));
    let change = MaintenanceChange::Updated { before: before.map(object), now: object(now) };
    assert_eq!(shown(&change, LineDetail::Nodes), lines);
}

fn shown(change: &MaintenanceChange, detail: LineDetail) -> Vec<String> {
    lines(change, detail, false).iter().map(ToString::to_string).collect()
}

#[test]
fn a_state_is_reported_once_and_not_with_each_step_of_its_progress() {
    let (first, second) = (running(40, &[]), running(50, &[]));
    check(None, first.clone(), &["Draining 40%: 3 pods remaining (1 terminating, 2 evicting), 4 gone"]);
    check(Some(first.clone()), first.clone(), &[]);
    check(Some(first.clone()), second, &[]);
    check(Some(first), json!({"phase": "Succeeded", "evictionPods": 7}), &["Drained: 7 pods gone"]);
}

#[test]
fn a_queued_maintenance_is_reported_again_only_if_it_waits_for_something_else() {
    let queued = |reason: &str, error: &str| {
        json!({"phase": "Pending", "lastError": error, "conditions": [{"type": "Drained", "status": "False",
            "reason": reason, "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}]})
    };
    let third = || queued("MaxUnavailable", "third in the queue");
    check(None, third(), &["Queued: third in the queue"]);
    check(Some(third()), queued("MaxUnavailable", "second in the queue"), &[]);
    check(Some(third()), queued("LeaseHeld", "the lease is held"), &["Queued: the lease is held"]);
}

#[test]
fn blocked_pods_are_reported_when_they_begin_change_and_end() {
    let headline = "Blocked 40%: 4 pods remaining (1 blocked, 1 terminating, 2 evicting), 4 gone";
    let free = "Draining 40%: 3 pods remaining (1 terminating, 2 evicting), 4 gone";
    let (none, one) = (running(40, &[]), running(40, &[("cart-0", "budget cart has 1")]));
    check(
        Some(none.clone()),
        one.clone(),
        &[headline, "blocked shop/cart-0: DisruptionBudget: budget cart has 1"],
    );
    let two = || running(40, &[("cart-0", "budget cart has 2")]);
    check(Some(one.clone()), two(), &[]);
    let object = |status| Arc::new(with_status("n1", status));
    let change = MaintenanceChange::Updated { before: Some(object(one.clone())), now: object(two()) };
    let numbers = ["blocked shop/cart-0: DisruptionBudget: budget cart has 2"];
    assert_eq!(shown(&change, LineDetail::Pods), numbers);
    check(Some(one), none, &[free, "unblocked shop/cart-0"]);
}

#[test]
fn many_pods_that_are_blocked_for_one_cause_have_one_line() {
    let names: Vec<String> = (0..5).map(|number| format!("cart-{number}")).collect();
    let pods: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "budget cart has 1")).collect();
    let (free, stuck) = (running(40, &[]), running(40, &pods));
    let lines = |before: &Value, now: &Value| {
        let object = |status: &Value| Arc::new(with_status("n1", status.clone()));
        let change = MaintenanceChange::Updated { before: Some(object(before)), now: object(now) };
        shown(&change, LineDetail::Nodes)[1..].to_vec()
    };
    let three = "shop/cart-0, shop/cart-1, shop/cart-2 and 2 more";
    assert_eq!(
        lines(&free, &stuck),
        [format!("blocked 5 pods: DisruptionBudget: budget cart has 1: {three}")]
    );
    assert_eq!(lines(&stuck, &free), [format!("unblocked 5 pods: {three}")]);
}

#[test]
fn every_pod_is_reported_only_on_request() {
    let pods = |fields: Value| {
        let mut status = running(40, &[]);
        status.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        status
    };
    let since = "2026-01-02T03:04:05Z";
    let completing = |until: Option<&str>| {
        pods(json!({"waitingPods": [{"namespace": "shop", "name": "import-x", "reason": "Completing",
            "since": since, "until": until}]}))
    };
    let turn = pods(json!({"waitingPods": [{"namespace": "shop", "name": "cart-1", "reason": "BudgetTurn",
        "since": since, "budget": {"name": "cart", "desiredHealthy": 2, "currentHealthy": 2}}]}));
    let returned =
        pods(json!({"returnedPods": [{"namespace": "shop", "name": "operator-0", "since": since}]}));
    let moving = pods(json!({"migratingPods": [{"namespace": "shop", "name": "virt-launcher-db",
        "machine": "db", "target": "n2"}]}));
    let pending = pods(json!({"pendingPodsRefs": [{"namespace": "shop", "name": "cart-0"}]}));
    let limited = || completing(Some("2026-01-02T04:04:05Z"));
    let none = running(40, &[]);
    let waits = "waiting shop/import-x since 2026-01-02T03:04:05Z: Completing";
    for (before, now, lines) in [
        (none.clone(), completing(None), vec![waits.to_owned()]),
        (completing(None), completing(None), vec![]),
        (completing(None), limited(), vec![format!("{waits}, evicted at 2026-01-02T04:04:05Z")]),
        (limited(), none.clone(), vec![]),
        (
            none.clone(),
            turn,
            vec![format!(
                "waiting shop/cart-1 since {since}: BudgetTurn: budget cart allows the next eviction when it has 1 more Ready pod"
            )],
        ),
        (
            none.clone(),
            returned.clone(),
            vec!["staying shop/operator-0: came to the node after the cordon, which it tolerates".to_owned()],
        ),
        (returned.clone(), returned, vec![]),
        (none.clone(), moving, vec!["migrating shop/virt-launcher-db to n2: virtual machine db".to_owned()]),
        (pending, none, vec!["gone shop/cart-0".to_owned()]),
    ] {
        let object = |status| Arc::new(with_status("n1", status));
        let change = MaintenanceChange::Updated { before: Some(object(before)), now: object(now) };
        assert_eq!(shown(&change, LineDetail::Pods), lines);
        assert_eq!(shown(&change, LineDetail::Nodes), Vec::<String>::new());
    }
}

#[test]
fn a_pod_that_waits_for_its_budget_is_no_news_but_for_the_end_of_its_block() {
    let waits = |healthy: i32, ahead: i32| {
        let budget = json!({"name": "cart", "desiredHealthy": 4, "currentHealthy": healthy});
        let mut status = running(40, &[]);
        status["waitingPods"] = json!([{"namespace": "shop", "name": "cart-0", "reason": "BudgetTurn",
            "since": "2026-01-02T03:04:05Z", "budget": budget, "ahead": ahead}]);
        status
    };
    check(Some(running(40, &[])), waits(4, 0), &[]);
    let blocked = running(40, &[("cart-0", "budget cart has 1")]);
    let free = "Draining 40%: 3 pods remaining (1 terminating, 2 evicting), 4 gone";
    check(Some(blocked), waits(4, 0), &[free, "unblocked shop/cart-0"]);
    let progress = |healthy, ahead| {
        let object = with_status("n1", waits(healthy, ahead));
        wait_progress(&status(&object).waiting_pods.as_ref().unwrap()[0])
    };
    assert_eq!(
        progress(4, 0),
        "BudgetTurn: budget cart allows the next eviction when it has 1 more Ready pod"
    );
    let many = "BudgetTurn: budget cart allows the next eviction when it has at least 2 more Ready pods, after 2 other pods of the node";
    assert_eq!(progress(2, 2), many);
    let replaced = "BudgetTurn: budget cart allows the next eviction when evicted pods have been replaced, after 1 other pod of the node";
    assert_eq!(progress(5, 1), replaced);
}

#[test]
fn a_blocked_pod_that_is_replaced_first_is_unblocked() {
    let mut surging = running(40, &[]);
    surging["surgingPods"] = json!([{"namespace": "shop", "name": "cart-0", "deployment": "cart", "restarted": true,
        "since": "2026-01-02T03:04:05Z"}]);
    surging["podCounts"] = json!({"surging": 1});
    let now = "Draining 40%: 1 pod remaining (1 surging)";
    check(Some(running(40, &[("cart-0", "m")])), surging, &[now, "unblocked shop/cart-0"]);
}

#[test]
fn a_blocked_pod_that_is_gone_is_not_reported_as_unblocked() {
    let mut blocked = running(40, &[("cart-0", "budget cart has 1")]);
    blocked["pendingPodsRefs"] = json!([{"namespace": "shop", "name": "cart-0"}]);
    let (object, free) = (|status| Arc::new(with_status("n1", status)), running(50, &[]));
    let change = MaintenanceChange::Updated { before: Some(object(blocked)), now: object(free) };
    for detail in [LineDetail::Nodes, LineDetail::Pods] {
        assert_eq!(shown(&change, detail)[1..], ["gone shop/cart-0"]);
    }
}

#[test]
fn a_pod_that_was_deleted_after_refusals_is_not_reported_as_unblocked() {
    let at = |second: u32, mut status: Value, deleted: i32| {
        status["lastUpdate"] = json!(format!("2026-01-02T03:04:{second:02}Z"));
        status["departedPods"] = json!({"deletedAfterRefusal": deleted});
        let mut object = with_status("n1", status);
        object.spec.drain = Some(serde_json::from_value(json!({"deleteAfterSeconds": 20})).unwrap());
        Arc::new(object)
    };
    let lines = |before: &Arc<NodeMaintenance>, now: Arc<NodeMaintenance>| {
        let change = MaintenanceChange::Updated { before: Some(before.clone()), now };
        let shown = [LineDetail::Nodes, LineDetail::Pods].map(|detail| shown(&change, detail)[1..].to_vec());
        assert_eq!(shown[0], shown[1]);
        shown[0].clone()
    };
    let message = "budget cart has 1";
    // Blocked since second 5.
    let one = at(24, running(40, &[("cart-0", message)]), 0);
    let refused = "refused for 20s (--delete-after)";
    let deleted = format!("deleted shop/cart-0 because its eviction was {refused}");
    assert_eq!(lines(&one, at(25, running(40, &[]), 1)), [deleted]);
    assert_eq!(lines(&one, at(25, running(40, &[]), 0)), ["unblocked shop/cart-0"]);
    let early = ["deleted 1 pod because its eviction was ", refused].concat();
    assert_eq!(lines(&one, at(24, running(40, &[]), 1)), [early, "unblocked shop/cart-0".to_owned()]);
    let mut two = running(40, &[("cart-0", message), ("till-0", message)]);
    two["blockedPods"][1]["since"] = json!("2026-01-02T03:04:15Z");
    two["waitingPods"] = json!([{"namespace": "shop", "name": "db-0", "reason": "BudgetTurn",
        "since": "2026-01-02T03:04:05Z"}]);
    let several =
        format!("deleted 3 pods because their evictions were {refused}: shop/cart-0, shop/db-0 and 1 more");
    assert_eq!(
        lines(&at(24, two, 2), at(25, running(40, &[]), 5)),
        [several, "unblocked shop/till-0".to_owned()]
    );
}

#[test]
fn a_pod_cut_from_the_list_is_not_reported_as_unblocked() {
    let mut cut = running(40, &[]);
    cut["podCounts"]["blocked"] = json!(60);
    let mut full = running(40, &[("cart-0", "m")]);
    full["podCounts"]["blocked"] = json!(60);
    check(Some(full), cut, &[]);
}

#[test]
fn a_pod_that_was_blocked_before_a_pause_is_not_reported_as_unblocked() {
    let blocked = running(40, &[("cart-0", "budget cart has 1")]);
    let mut paused = running(40, &[]);
    paused["conditions"] = json!([{"type": "Suspended", "status": "True", "reason": "Paused", "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
    let lines = |before: &Value, now: &Value| {
        let object = |status: &Value| Arc::new(with_status("n1", status.clone()));
        let change = MaintenanceChange::Updated { before: Some(object(before)), now: object(now) };
        shown(&change, LineDetail::Nodes)
    };
    let is_reported = |line: &String| line.contains("blocked shop/cart-0");
    assert!(!lines(&blocked, &paused).iter().any(is_reported));
    assert!(lines(&paused, &blocked).iter().any(is_reported), "it is still blocked when the drain continues");
}

#[test]
fn errors_are_reported_once_and_not_beside_a_headline_that_has_them() {
    check(
        Some(json!({"phase": "Running"})),
        json!({"phase": "Running", "lastError": "webhook down"}),
        &["error: webhook down"],
    );
    let failed = json!({"phase": "Failed", "lastError": "gave up"});
    check(Some(json!({"phase": "Running", "lastError": "gave up"})), failed.clone(), &["Failed: gave up"]);
    check(None, failed, &["Failed: gave up"]);
}

#[test]
fn errors_that_summarize_blocked_pods_are_not_reported_beside_them() {
    let mut blocked = running(40, &[("cart-0", "budget cart has 1")]);
    let before = blocked.clone();
    let drained = |reason: &str| {
        json!([{"type": "Drained", "status": "False", "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z"}])
    };
    blocked["lastError"] = json!("1 pod is blocked: shop/cart-0 (DisruptionBudget)");
    blocked["conditions"] = drained("Blocked");
    check(Some(before.clone()), blocked.clone(), &[]);
    blocked["lastError"] = json!("the lease is held");
    blocked["conditions"] = drained("LeaseLost");
    check(Some(before), blocked, &["error: the lease is held"]);
}

#[test]
fn an_error_of_a_driver_is_reported_once() {
    let waits = |error: Option<&str>| {
        let volume = json!({"attachment": "csi-1", "persistentVolume": "pv-1", "driver": "d",
            "claim": {"namespace": "shop", "name": "data-0"}, "since": "2026-01-02T03:04:05Z", "error": error});
        json!({"phase": "Running", "attachedVolumes": [volume]})
    };
    let failed = "attached pv-1 (claim shop/data-0) by d since 2026-01-02T03:04:05Z: busy";
    check(Some(waits(None)), waits(Some("busy")), &[failed]);
    check(Some(waits(Some("busy"))), waits(Some("busy")), &[]);
}

#[test]
fn a_degraded_maintenance_is_reported() {
    let degraded = json!({"phase": "Running", "conditions": [{"type": "Degraded", "status": "True",
        "reason": "Forbidden", "message": "may not evict", "lastTransitionTime": "2026-01-02T03:04:05Z"}]});
    check(Some(json!({"phase": "Running"})), degraded.clone(), &["degraded: may not evict"]);
    check(Some(degraded.clone()), degraded, &[]);
}

#[test]
fn creation_and_deletion_are_reported() {
    let mut object = named("other", "n1", "u");
    object.spec.reason = Some("new \x1b[31mkernel".into());
    let created = MaintenanceChange::Updated { before: None, now: Arc::new(object) };
    assert_eq!(
        shown(&created, LineDetail::Nodes),
        [
            "Requested: nm-reconciler has not started the maintenance yet (reason: new ^[[31mkernel)",
            "name of the NodeMaintenance: other",
        ]
    );
    let told = |change: MaintenanceChange| lines(&change, LineDetail::Nodes, true)[0].to_string();
    let now = Arc::new(stopping(requested("n1")));
    assert_eq!(
        [
            told(MaintenanceChange::Updated { before: None, now: now.clone() }),
            told(MaintenanceChange::Deleted(now)),
        ],
        [
            "Stopping: the node was deleted, and its maintenance ends",
            "Stopped: the node was deleted, and its maintenance has ended",
        ]
    );
    for (last, line) in [
        (requested("n1"), "Stopped: the maintenance was deleted"),
        (stopping(requested("n1")), "Stopped: the maintenance has ended"),
    ] {
        assert_eq!(shown(&MaintenanceChange::Deleted(Arc::new(last)), LineDetail::Nodes)[0], line);
    }
}

#[test]
fn the_hooks_that_a_drain_waits_for_are_reported_and_their_removal_too() {
    let held = |hooks: &[&str]| {
        let hooks: Vec<Value> = hooks.iter().map(|name| json!({"name": name, "owner": "ceph"})).collect();
        let hold = json!({"since": "2026-01-02T03:04:05Z", "hooks": hooks});
        let mut status = running(0, &[]);
        status["hold"] = if hooks.is_empty() { json!(null) } else { hold };
        Arc::new(with_status("n1", status))
    };
    let told = |before: Arc<NodeMaintenance>, now: Arc<NodeMaintenance>| {
        let change = MaintenanceChange::Updated { before: Some(before), now };
        lines(&change, LineDetail::Nodes, false).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let [both, one, none] = [held(&["a", "b"]), held(&["a"]), held(&[])];
    let started = told(Arc::new(requested("n1")), both.clone());
    assert!(started[0].ends_with(", waiting for hooks a (owner: ceph), b (owner: ceph)"), "{started:?}");
    assert!(told(both, one.clone())[0].ends_with(", waiting for hook a (owner: ceph)"));
    assert!(told(one, none.clone())[0].starts_with("Draining 0%: "));
    assert_eq!(told(none.clone(), none), [""; 0]);
}
