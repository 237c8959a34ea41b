//! Replacements that fit nodes that are not Ready.

use nm_shared::cluster::volumes::Volumes;
use serde_json::{Value, json};

use super::nodes::{EDIT, STOP, only};
use super::*;
use crate::explain::no_node_left::NoNodeLeft;

#[test]
fn a_node_that_is_off_returns_once_it_is_ready() {
    let off = json!([{"type": "Ready", "status": "Unknown"}]);
    let n1 = || edited(cordoned("n1"), "/status/conditions", off.clone());
    let cause = only(Situation { nodes: vec![n1()], ..beside(pending("Unschedulable", UNFIT)) }.causes());
    let what = "No node is left for the replacement shop/web-2: n1 is in maintenance and not Ready.";
    let advice = "Add a node, or return one to service once it is Ready again";
    assert_eq!((cause.what[1].as_str(), cause.advice.as_str()), (what, advice));
    let third = edited(pending("Unschedulable", UNFIT), "/spec/nodeSelector", json!({"pool": "blue"}));
    let green = edited(node("n2", json!({})), "/metadata/labels", json!({"pool": "green"}));
    let cause = only(Situation { nodes: vec![n1(), green], ..beside(third) }.causes());
    let what = "its nodeSelector pool=blue selects only n1, which is in maintenance and not Ready.";
    assert!(cause.what[1].ends_with(what), "{cause:#?}");
    let advice = "or stop the maintenance once the node is Ready again";
    assert!(cause.advice.ends_with(advice), "{cause:#?}");
    assert_eq!(cause.commands, [EDIT, STOP]);
}

#[test]
fn only_nodes_that_would_take_the_pods_are_to_be_made_ready() {
    let off = |name: &str, spec: Value| {
        let off = json!([{"type": "Ready", "status": "Unknown"}]);
        edited(node(name, spec), "/status/conditions", off)
    };
    let gpu = || json!({"taints": [{"key": "gpu", "effect": "NoSchedule"}]});
    let rebooting =
        edited(cordoned("n2"), "/status/conditions", json!([{"type": "Ready", "status": "Unknown"}]));
    let forgotten = json!({"taints": [{"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown",
        "effect": "NoExecute"}]});
    for (other, why, advice) in [
        (rebooting, "n2 is in maintenance and not Ready", "Add a node, or return one to service"),
        (off("n3", gpu()), "n3 is not Ready", "Add a node, or return one to service"),
        (
            off("n3", json!({"unschedulable": true})),
            "n3 is not Ready",
            "Add a node, or return one to service",
        ),
        (off("n3", json!({})), "n3 is not Ready", "Add a node, make n3 Ready, or return one to service"),
        (
            node("n3", forgotten),
            "n3 has the taint node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
            "Add a node, remove the taint from n3 if it is not needed any more, or return one to service",
        ),
    ] {
        let nodes = vec![cordoned("n1"), other];
        let in_maintenance = vec!["n1", "n2"];
        let situation = Situation { nodes, in_maintenance, ..beside(pending("Unschedulable", UNFIT)) };
        let cause = only(situation.causes());
        let expected =
            format!("No node is left for the replacement shop/web-2: n1 is in maintenance; {why}.");
        assert_eq!((cause.what[1].as_str(), cause.advice.as_str()), (expected.as_str(), advice));
    }
}

#[test]
fn a_pod_that_cannot_terminate_on_a_node_that_is_off_does_not_hide_what_its_replacement_waits_for() {
    let over = edited(terminating("2026-01-02T03:06:00Z"), "/spec/nodeName", json!("n2"));
    let starting = pod("web-3", "n3", json!({"phase": "Pending", "conditions": []}));
    let off =
        edited(node("n2", json!({})), "/status/conditions", json!([{"type": "Ready", "status": "Unknown"}]));
    let nodes = vec![cordoned("n1"), off, node("n3", json!({}))];
    let mut situation = Situation { nodes, ..beside(over) };
    situation.pods.push(starting);
    let cause = only(situation.causes());
    assert_eq!(cause.what[1], "shop/web-3 is starting on n3.");
}

#[test]
fn a_replacement_that_was_scheduled_to_a_node_which_is_off_is_not_starting() {
    let bound = pod(
        "web-2",
        "n2",
        json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}),
    );
    for (status, expected, command) in [
        ("True", "shop/web-2 is starting on n2.", "kubectl -n shop describe pod web-2"),
        ("Unknown", "shop/web-2 is not Ready, because node n2 does not report.", "kubectl describe node n2"),
    ] {
        let n2 =
            edited(node("n2", json!({})), "/status/conditions", json!([{"type": "Ready", "status": status}]));
        let cause = only(Situation { nodes: vec![cordoned("n1"), n2], ..beside(bound.clone()) }.causes());
        assert_eq!(
            (cause.what[1].as_str(), cause.commands.as_slice()),
            (expected, [command.to_owned()].as_slice())
        );
    }
}

#[test]
fn its_own_node_is_no_other_one_that_is_left_for_a_pod_that_tolerates_everything() {
    let tolerant = |pod: Value| edited(pod, "/spec/tolerations", json!([{"operator": "Exists"}]));
    let nodes = [parse::<Node>(&cordoned("n1"))];
    let in_maintenance = ["n1".to_owned()].into();
    let left =
        |pod: Value| NoNodeLeft::of(&parse(&tolerant(pod)), &nodes, &Volumes::default(), &in_maintenance);
    assert!(left(ready("web-0", "n1")).is_some(), "evicted, it would return");
    assert!(left(pending("Unschedulable", UNFIT)).is_none(), "no maintenance keeps it from n1");
}
