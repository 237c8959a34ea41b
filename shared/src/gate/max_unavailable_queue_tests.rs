use super::*;
use crate::api::names::{FINALIZER, UNDO_ANNOTATION};
use serde_json::json;
use std::sync::Arc;

fn node(name: &str, ready: &str) -> Arc<Node> {
    let labels = match name.get(..2) {
        Some("cp") => json!({"node-role.kubernetes.io/control-plane": ""}),
        Some("et") => json!({"node-role.kubernetes.io/etcd": ""}),
        _ => json!({}),
    };
    let conditions = json!([{"type": "Ready", "status": ready}]);
    let node = json!({"metadata": {"name": name, "labels": labels}, "status": {"conditions": conditions}});
    Arc::new(serde_json::from_value(node).unwrap())
}

/// A maintenance of the node of the same name, created at that second. With a `+` it has begun, with a `?` it is
/// suspended; after a `:` is the reason for which it waits.
fn maintenance(text: &str, second: usize) -> NodeMaintenance {
    let (text, reason) = text.split_once(':').unwrap_or((text, ""));
    let name = text.trim_end_matches(['+', '?']);
    let at = format!("2026-01-01T00:00:{second:02}Z");
    let condition = |type_: &str, status: &str, reason: &str| json!({"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": at});
    let conditions = match (text.contains('+'), reason) {
        (true, _) => vec![condition("Cordoned", "True", ""), condition("Drained", "False", "Evicting")],
        (false, "") => vec![],
        (false, reason) => {
            vec![condition("Cordoned", "False", reason), condition("Drained", "False", reason)]
        }
    };
    serde_json::from_value(json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
        "metadata": {"name": name, "uid": format!("{name} {second}"), "creationTimestamp": at},
        "spec": {"nodeName": name, "suspend": text.contains('?')}, "status": {"conditions": conditions},
    }))
    .unwrap()
}

/// The position of `maintenance` among `all`.
fn position<'a>(
    maintenance: &NodeMaintenance,
    all: impl IntoIterator<Item = &'a NodeMaintenance>,
    at_work: impl Fn(&NodeMaintenance) -> bool,
    nodes: &[Arc<Node>],
    limit: MaxUnavailable,
) -> Option<Queued> {
    let members: Vec<GateMember> =
        all.into_iter().map(|other| GateMember::new(other, at_work(other))).collect();
    let nodes = nodes.iter().map(|node| (node::name(node).to_owned(), GateNode::from(&**node))).collect();
    Queue::new(&members, &nodes, limit).get(ownership::uid(maintenance)).cloned()
}

/// Checks why each of these maintenances, oldest first, waits.
fn check(maintenances: &[&str], limit: &str, expected: &[Option<&str>]) {
    let names = ["a", "b", "c", "d", "e", "f", "cp1", "cp2"];
    let mut nodes: Vec<Arc<Node>> = names.map(|name| node(name, "True")).to_vec();
    nodes.extend([node("down1", "False"), node("cp3", "Unknown")]);
    let all: Vec<NodeMaintenance> =
        maintenances.iter().enumerate().map(|(second, text)| maintenance(text, second)).collect();
    let limit = limit.parse().unwrap();
    for (maintenance, expected) in all.iter().zip(expected) {
        let found = position(maintenance, all.iter().rev(), |_| false, &nodes, limit);
        assert_eq!(
            found.map(|queued| queued.to_string()).as_deref(),
            *expected,
            "{maintenances:?}: {:?}",
            maintenance.metadata.name
        );
    }
}

/// The sentence of a maintenance in the queue while `unavailable` of 10 nodes are unavailable.
fn queued(position: &str, unavailable: usize, limit: &str) -> String {
    format!(
        "position {position} in the queue: {unavailable} of 10 nodes are unavailable and the limit is {limit}"
    )
}

#[test]
fn nodes_that_are_not_ready_count_and_maintenances_wait_in_the_order_of_their_creation() {
    let (first, second) = (queued("1 of 2", 4, "4"), queued("2 of 2", 4, "4"));
    check(&["a", "b", "c", "d"], "4", &[None, None, Some(&first), Some(&second)]);
    check(&["a+", "b+", "c", "d"], "40%", &[None, None, Some(&queued("1 of 2", 4, "40%"))]);
    check(&["a+", "b+", "down1", "c"], "4", &[None, None, None, Some(&queued("1 of 1", 4, "4"))]);
    check(&["a", "no-such-node", "b", "c"], "5", &[None, None, None, None]);
}

#[test]
fn a_position_has_the_length_of_the_queue_and_the_limit_in_nodes() {
    let nodes = ["a", "b", "c", "d"].map(|name| node(name, "True"));
    let all = ["a", "b", "c"].map(|name| maintenance(name, 0));
    let half = "50%".parse().unwrap();
    let found = position(&all[2], &all, |_| false, &nodes, half).unwrap();
    assert_eq!(found.position, QueuePosition { position: 1, length: 1, limit: 2 });
}

// Defect openshift/machine-api-operator#1066: Two control-plane nodes are drained at once, and their budgets block
// each other forever.
#[test]
fn control_plane_nodes_begin_one_at_a_time_and_block_no_others() {
    let one = Some(
        "position 1 of 1 in the queue: only one control-plane node or member of etcd may be in maintenance",
    );
    check(&["cp1+", "cp2", "a"], "9", &[None, one, None]);
    check(&["cp1", "cp2", "a"], "9", &[None, one, None]);
    check(&["cp1+", "cp3", "a"], "9", &[None, one, None]);
    check(&["cp3", "cp1", "a"], "9", &[None, one, None]);
}

#[test]
fn members_of_etcd_begin_one_at_a_time_and_the_control_plane_does_not_wait_for_them() {
    let nodes: Vec<_> = ["etcd1", "etcd2", "cp1", "cp2"].map(|name| node(name, "True")).to_vec();
    let all = ["etcd1+", "etcd2", "cp1", "cp2"].map(|text| maintenance(text, 0));
    let waits = |at: usize| position(&all[at], &all, |_| false, &nodes, "9".parse().unwrap()).is_some();
    assert_eq!([1, 2, 3].map(waits), [true, false, true]);
}

#[test]
fn a_maintenance_that_waits_for_something_else_takes_no_place_in_the_queue() {
    let only = queued("1 of 1", 3, "3");
    for held in ["LeaseHeld", "QuorumAtRisk", "LeaseLost", "DuplicateMaintenance", "MissingAccess"] {
        check(&[&format!("a:{held}"), "b", "c"], "3", &[None, None, Some(&only)]);
    }
    let (first, second) = (queued("1 of 2", 3, "3"), queued("2 of 2", 3, "3"));
    check(&["a:MaxUnavailable", "b", "c"], "3", &[None, Some(&first), Some(&second)]);
}

#[test]
fn a_planned_maintenance_takes_no_place_until_it_is_resumed_and_a_paused_one_keeps_its_own() {
    let second = queued("1 of 1", 3, "3");
    check(&["a?", "b", "c"], "3", &[None, None, Some(&second)]);
    check(&["a?:Planned", "b", "c"], "3", &[None, None, Some(&second)]);
    check(&["a:Planned", "b"], "3", &[None, Some(&second)]);
    check(&["a+?", "b"], "3", &[None, Some(&second)]);
    let member = |text: &str, second| GateMember::new(&maintenance(text, second), false);
    assert!(!member("a?", 0).goes_before(&member("b", 1)) && member("a", 0).goes_before(&member("b", 1)));
}

#[test]
fn a_duplicate_takes_no_place_in_the_queue() {
    let at = |position: &str| Some(queued(position, 3, "3"));
    let expected = [None, at("1 of 2"), at("2 of 3"), at("2 of 2")];
    check(&["a+", "b", "b", "c"], "3", &expected.each_ref().map(Option::as_deref));
    check(&["a:LeaseHeld", "a", "b"], "3", &[None, None, None]);
}

#[test]
fn a_change_that_moves_no_one_in_the_queue_changes_no_member() {
    let member = |text: &str| GateMember::new(&maintenance(text, 0), false);
    for (before, after, expected) in [
        ("a", "a:LeaseHeld", true),
        ("a", "a:MaxUnavailable", false),
        ("a", "a+", true),
        ("a:MaxUnavailable", "a:QuorumAtRisk", true),
        ("a:QuorumAtRisk", "a:LeaseHeld", false),
        ("a:LeaseHeld", "a:MaxUnavailable", true),
        ("a+", "a:LeaseLost", true),
        ("a", "a:DuplicateMaintenance", true),
    ] {
        assert_eq!(member(before) != member(after), expected, "{before} {after}");
    }
    let mut drained = maintenance("a+", 0);
    drained.status.as_mut().unwrap().drain_progress = 50;
    assert_eq!(GateMember::new(&drained, true), member("a+"));
}

#[test]
fn a_node_with_marks_or_an_undo_record_is_taken_whatever_the_status_says() {
    let uid = "a 0";
    let with_record = |owner: &str| {
        let record = json!({"maintenance": owner, "madeUnschedulable": true}).to_string();
        let metadata = json!({"name": "a", "annotations": {UNDO_ANNOTATION: record}});
        Arc::new(serde_json::from_value::<Node>(json!({ "metadata": metadata })).unwrap())
    };
    let (first, second) = (maintenance("a", 0), maintenance("b", 1));
    let check = |record: &str, expected: (bool, bool)| {
        let nodes = [with_record(record), node("b", "True"), node("c", "False")];
        let waits = |of: &NodeMaintenance| {
            position(of, [&first, &second], |_| false, &nodes, MaxUnavailable::Nodes(1)).is_some()
        };
        assert_eq!((waits(&first), waits(&second)), expected, "{record}");
    };
    check(uid, (false, true));
    check("another", (true, true));
}

#[test]
fn a_status_shows_a_position_with_the_same_reason_and_perhaps_old_numbers() {
    let limit = |unavailable| QueueReason::Limit { unavailable, nodes: 9, limit: MaxUnavailable::Nodes(1) };
    let queued =
        |position, reason| Queued { position: QueuePosition { position, length: 9, limit: 1 }, reason };
    let status = |shown: &Queued| {
        let mut status = maintenance("a:MaxUnavailable", 0).status.unwrap();
        (status.queue, status.last_error) = (Some(shown.position), shown.to_string());
        status
    };
    let check = |shown: Queued, current: Queued, expected: ShownPosition| {
        assert_eq!(current.shown_in(&status(&shown)), expected, "{shown} {current}");
    };
    check(queued(2, limit(1)), queued(2, limit(1)), ShownPosition::Current);
    check(queued(2, limit(1)), queued(1, limit(1)), ShownPosition::OldNumbers);
    check(queued(2, limit(1)), queued(2, limit(3)), ShownPosition::OldNumbers);
    check(queued(2, limit(1)), queued(2, QueueReason::ControlPlane), ShownPosition::Otherwise);
    check(queued(2, QueueReason::ControlPlane), queued(2, limit(1)), ShownPosition::Otherwise);
    check(
        queued(2, QueueReason::ControlPlane),
        queued(1, QueueReason::ControlPlane),
        ShownPosition::OldNumbers,
    );
    let other = maintenance("a:LeaseHeld", 0).status.unwrap();
    assert_eq!(queued(2, limit(1)).shown_in(&other), ShownPosition::Otherwise);
}

#[test]
fn a_stopping_maintenance_keeps_its_place_until_it_is_gone_unless_it_never_began() {
    let mut ending = maintenance("a+", 0);
    ending.metadata.deletion_timestamp = ending.metadata.creation_timestamp.clone();
    ending.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    let waiting = maintenance("b", 1);
    let nodes = [node("a", "True"), node("b", "True")];
    let one = MaxUnavailable::Nodes(1);
    assert!(position(&waiting, [&ending, &waiting], |_| false, &nodes, one).is_some());
    let mut withdrawn = maintenance("a", 0);
    withdrawn.metadata.deletion_timestamp = withdrawn.metadata.creation_timestamp.clone();
    assert_eq!(position(&waiting, [&withdrawn, &waiting], |_| false, &nodes, one), None);
}

#[test]
fn a_maintenance_whose_node_is_back_in_service_has_no_place_although_the_finalizer_of_somebody_else_keeps_it()
{
    let mut kept = maintenance("a+", 0);
    kept.metadata.deletion_timestamp = kept.metadata.creation_timestamp.clone();
    kept.metadata.finalizers = Some(vec!["example.com/keep".to_owned()]);
    let waiting = maintenance("b", 1);
    let nodes = [node("a", "True"), node("b", "True")];
    assert_eq!(position(&waiting, [&kept, &waiting], |_| false, &nodes, MaxUnavailable::Nodes(1)), None);
}

#[test]
fn a_maintenance_at_work_keeps_its_place_if_another_of_an_earlier_name_is_created_in_the_same_second() {
    let (late, early) = (maintenance("b", 0), maintenance("a", 0));
    let nodes = [node("a", "True"), node("b", "True")];
    let position_of = |of: &NodeMaintenance, at_work: &str| {
        let is_at_work = |other: &NodeMaintenance| other.metadata.name.as_deref() == Some(at_work);
        position(of, [&late, &early], is_at_work, &nodes, MaxUnavailable::Nodes(1))
    };
    assert_eq!((position_of(&late, "b"), position_of(&early, "b").is_some()), (None, true));
    assert_eq!((position_of(&late, "").is_some(), position_of(&early, "")), (true, None));
}

#[test]
fn a_limit_is_a_number_or_a_percentage_of_nodes() {
    for (text, expected) in [("3", Some(3)), ("25%", Some(2)), ("1%", Some(1)), ("100%", Some(10))] {
        assert_eq!(text.parse::<MaxUnavailable>().ok().map(|limit| limit.of(10)), expected, "{text}");
        assert_eq!(text.parse::<MaxUnavailable>().unwrap().to_string(), text);
    }
    for bad in ["", "0", "-1", "0%", "101%", "a", "1.5", "%"] {
        assert_eq!(bad.parse::<MaxUnavailable>(), Err(InvalidLimit), "{bad}");
    }
}
