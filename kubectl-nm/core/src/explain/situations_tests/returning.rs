//! Pods that return to their node after each eviction (`spec.drain.returningPods: Wait`).

use super::*;
use crate::explain::cluster_facts::{FactsToRead, ReadPod};
use crate::maintenance::node;

/// The advice about `web-0`, which keeps returning to n1 because it tolerates every taint, beside n2.
fn advice(n2: Value, in_maintenance: &[&str], selector: Value, policy: &str) -> (String, Vec<String>) {
    let blocked = json!({"namespace": "shop", "name": "web-0", "reason": "KeepsReturning", "since": "2026-01-02T03:04:05Z",
        "message": "pods of its owner have returned to the node at least 3 times and are not evicted again: they tolerate every taint", "attempts": 0});
    let status = json!({"phase": "Running", "blockedPods": [blocked], "podCounts": {"blocked": 1}});
    let mut object = with_status("n1", status);
    object.spec.drain = Some(parse(&json!({"returningPods": policy})));
    let wanted = FactsToRead::of([&object]);
    assert!(wanted.has_unplaced && node(&object) == "n1");
    let pod = edited(ready("web-0", "n1"), "/spec/tolerations", json!([{"operator": "Exists"}]));
    let pod = edited(pod, "/spec/nodeSelector", selector);
    let read = ReadPod { pod: parse(&pod), warnings: vec![] };
    let facts = ClusterFacts {
        replacements: wanted.replacements.into_iter().map(|name| (name, Ok(Some(read.clone())))).collect(),
        nodes: Some(Ok([cordoned("n1"), n2].iter().map(parse).collect())),
        in_maintenance: in_maintenance.iter().map(ToString::to_string).collect(),
        ..ClusterFacts::default()
    };
    let causes = explained(&object, &facts);
    let [cause] = &causes[..] else { panic!("{causes:#?}") };
    (cause.advice.clone(), cause.commands.clone())
}

#[test]
fn a_pod_that_no_other_node_can_take_is_not_to_lose_its_toleration_first() {
    const STAY: &str = r#"kubectl patch nm n1 --type=merge -p '{"spec":{"drain":{"returningPods":"Stay"}}}'"#;
    const EDIT: &str = "kubectl -n shop edit deploy/web";
    let free = || super::node("n2", json!({}));
    let pinned = || json!({"kubernetes.io/hostname": "n1"});
    let (advice_of_free, commands) = advice(free(), &["n1"], json!({}), "Wait");
    assert!(advice_of_free.starts_with("In the pod template, replace the toleration"), "{advice_of_free}");
    assert_eq!(commands, [EDIT]);
    let (alone, commands) = advice(free(), &["n1"], pinned(), "Wait");
    assert_eq!(
        alone,
        "No other node can take shop/web-0, which would be Pending without its toleration: let the pod stay on the node (returningPods), or \
         scale the owner of the pod down"
    );
    assert_eq!(commands, [STAY, EDIT]);
    let (away, commands) = advice(cordoned("n2"), &["n1", "n2"], json!({}), "Wait");
    assert_eq!(
        away,
        "No other node can take shop/web-0, which would be Pending without its toleration: return n2 to service, unless its machine is \
         being worked on, or let the pod stay on the node (returningPods), or scale the owner of the pod down"
    );
    assert_eq!(commands, ["kubectl nm stop n2", STAY, EDIT]);
}

#[test]
fn no_budget_is_to_be_changed_for_pods_whose_template_assigns_them_to_the_node() {
    let assigned = |situation: &mut Situation, owner: Option<Value>| {
        let fields = json!([{"operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:nodeName": {}}}}]);
        let pod = edited(situation.pods[0].clone(), "/metadata/managedFields", fields);
        situation.pods[0] = match owner {
            Some(owner) => edited(pod, "/metadata/ownerReferences", json!([owner])),
            None => pod,
        };
    };
    for (spec, value, pods) in [("maxUnavailable", 0, 1), ("maxUnavailable", 0, 3), ("minAvailable", 1, 1)] {
        let mut situation = Situation { nodes: vec![cordoned("n1")], ..never(spec, json!(value), pods) };
        assigned(&mut situation, None);
        let causes = situation.causes();
        let [cause] = &causes[..] else { panic!("{causes:#?}") };
        let returns = "An evicted pod would return: its pod template assigns it to this node (nodeName).";
        assert!(cause.what.iter().any(|what| what.ends_with(returns)), "{cause:#?}");
        assert_eq!(
            cause.advice,
            "Remove nodeName from the pod template, so that the scheduler chooses a node: if a Deployment or StatefulSet updates its \
             pods on its own, that moves the pod, whatever the budget allows; or stop the maintenance and keep the pod"
        );
        assert_eq!(cause.commands, ["kubectl -n shop edit deploy/web", "kubectl nm stop n1"]);
    }
    let mut of_job = never("minAvailable", json!(1), 1);
    assigned(
        &mut of_job,
        Some(json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true})),
    );
    let causes = of_job.causes();
    assert_eq!(
        causes[0].advice,
        "Stop the maintenance and keep the pod: the template of a Job cannot be changed"
    );
    assert_eq!(causes[0].commands, ["kubectl nm stop n1"]);
}
