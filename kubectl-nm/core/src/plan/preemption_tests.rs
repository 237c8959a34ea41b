//! What a plan says of pods that the replacements of a drain preempt.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::*;
use crate::plan::report::tests::{pod, report, snapshot};

fn shown(report: &PlanReport) -> Vec<String> {
    lines(&harms(report, None)).iter().map(ToString::to_string).collect()
}

/// A Ready pod of the Deployment `owner` that requests so many of the four CPUs of a node.
fn sized(owner: &str, name: &str, cpu: u32, priority: i32) -> Arc<Pod> {
    let mut sized = (*pod(name, &json!({"name": "v"}))).clone();
    let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu.to_string()}}});
    sized.spec = serde_json::from_value(json!({"containers": [container], "priority": priority})).unwrap();
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{owner}-6f"), "uid": "o",
        "controller": true}]);
    sized.metadata.owner_references = serde_json::from_value::<Option<Vec<_>>>(owner).unwrap();
    let labels: Value = json!({"pod-template-hash": "6f"});
    sized.metadata.labels = serde_json::from_value(labels).unwrap();
    Arc::new(sized)
}

/// The harms of a drain of `n1`, with these pods on it and those on other nodes.
fn harms_of(nodes: &[&str], planned: &[Arc<Pod>], others: &[(&str, Arc<Pod>)]) -> Vec<String> {
    let mut snapshot = snapshot(nodes, planned.to_vec());
    let pods = snapshot.pods.as_mut().unwrap();
    for (node, pod) in others {
        pods.elsewhere.as_mut().unwrap().add(node, pod);
    }
    shown(&report(&["n1"], None, snapshot, &[]))
}

#[test]
fn a_workload_all_of_whose_ready_pods_are_preempted_is_said_to_have_none() {
    let high = || sized("high", "high-6f-a", 3, 100);
    let peer = ("n3", sized("high", "high-6f-b", 3, 100));
    let low = |name: &str, cpu: u32| sized("low", name, cpu, 0);
    let down = |by: &str| {
        format!(
            "no Ready pod until a replacement is Ready: 1 workload (Deployment shop/low, probably preempted by {by})"
        )
    };
    let fits = "fits only by preemption: shop/high-6f-a, probably on n2 instead of shop/low-6f-a";
    let nowhere = ", which then fits on no node";
    let nodes = ["n1", "n2", "n3"];
    let only = [peer.clone(), ("n2", low("low-6f-a", 3))];
    assert_eq!(harms_of(&nodes, &[high()], &only), [down("shop/high-6f-a"), format!("{fits}{nowhere}")]);
    let another = [peer.clone(), ("n2", low("low-6f-a", 3)), ("n3", low("low-6f-b", 1))];
    assert_eq!(harms_of(&nodes, &[high()], &another), [format!("{fits}{nowhere}")], "one stays on n3");
    let small = [peer.clone(), ("n2", low("low-6f-a", 1)), ("n2", sized("other", "other-6f-a", 1, 200))];
    assert_eq!(
        harms_of(&nodes, &[high()], &small),
        [down("shop/high-6f-a"), fits.to_owned()],
        "there is room for it on n3"
    );
    let drained = [high(), low("low-6f-b", 1)];
    let with_the_drain = harms_of(&["n1", "n2"], &drained, &[("n2", low("low-6f-a", 3)), peer]);
    assert!(
        with_the_drain.contains(&down("shop/high-6f-a")),
        "one leaves with the drain, the other is preempted: {with_the_drain:?}"
    );
}
