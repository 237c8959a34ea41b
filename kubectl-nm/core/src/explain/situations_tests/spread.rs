//! Replacements that their topology spread constraints keep from nodes in service.

use super::*;

const UNEVEN: &str = "0/3 nodes are available: 1 node(s) didn't match pod topology spread constraints, 2 node(s) were unschedulable.";

/// Of a workload that is spread over nodes, one pod is on n1, which is explained, two are on n2, none is on n3, and one waits for a
/// node. `skew` is how far the numbers may differ, and `selector` what is spread.
fn spread(skew: i32, selector: Value, n2: Value) -> Situation {
    let constraint = json!([{"maxSkew": skew, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector}]);
    let third = edited(pending("Unschedulable", UNEVEN), "/spec/topologySpreadConstraints", constraint);
    let with_name = |node: Value| {
        let name = node["metadata"]["name"].clone();
        edited(node, "/metadata/labels", json!({"kubernetes.io/hostname": name}))
    };
    let beside = beside(third);
    Situation {
        budget: min_available(json!(3), (4, 3, 3)),
        pods: [beside.pods.clone(), vec![ready("web-3", "n2")]].concat(),
        nodes: [cordoned("n1"), n2, cordoned("n3")].map(with_name).into(),
        in_maintenance: vec!["n1", "n3"],
        ..beside
    }
}

#[test]
fn only_a_node_is_to_be_returned_on_which_a_pod_may_be_in_addition_to_those_that_it_is_spread_with() {
    let of_web = json!({"matchLabels": {"app": "web"}});
    let of_more = json!({"matchExpressions": [{"key": "tier", "operator": "Exists"}]});
    let tainted = || node("n2", json!({"taints": [{"key": "role", "effect": "NoSchedule"}]}));
    let (n1, n3) = ("kubectl nm stop n1", "kubectl nm stop n3");
    for (skew, selector, n2, expected) in [
        (1, of_web.clone(), node("n2", json!({})), &[n3][..]),
        (2, of_web.clone(), node("n2", json!({})), &[n3, n1]),
        // The constraint may count more pods than those of the budget.
        (1, of_more, node("n2", json!({})), &[n3, n1]),
        (1, of_web, tainted(), &[n3]),
    ] {
        let causes = spread(skew, selector, n2).causes();
        let commands = causes.iter().flat_map(|cause| &cause.commands);
        let stops: Vec<&String> = commands.filter(|command| command.contains(" stop ")).collect();
        assert_eq!(stops, expected, "{causes:#?}");
        causes.iter().for_each(check_harmless);
    }
}

#[test]
fn a_cordoned_node_on_which_a_pod_would_be_spread_too_unevenly_is_not_to_be_uncordoned() {
    let of_web = || json!({"matchLabels": {"app": "web"}});
    let advice = |skew: i32| {
        let full = node("n2", json!({"unschedulable": true}));
        let situation = spread(skew, of_web(), full);
        let causes = situation.causes();
        causes.iter().map(|cause| cause.advice.clone()).collect::<Vec<_>>().join(" ")
    };
    let (strict, loose) = (advice(1), advice(3));
    assert!(!strict.contains("uncordon n2"), "{strict}");
    assert!(loose.contains("uncordon n2"), "{loose}");
}

#[test]
fn a_pod_that_pods_on_other_nodes_keep_away_fits_its_node_once_it_is_drained() {
    let apart = "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) didn't match pod anti-affinity rules.";
    let commands = |phase: &str| {
        let facts = surroundings::outage(3, json!([]), vec![pending("Unschedulable", apart)]);
        let nodes =
            vec![parse(&cordoned("n1")), parse(&node("n2", json!({}))), parse(&node("n3", json!({})))];
        let object = with_status(
            "n1",
            json!({"phase": phase, "conditions": [{"type": "Cordoned", "status": "True",
            "lastTransitionTime": "2026-01-02T03:04:30Z", "reason": "Cordoned", "message": ""}]}),
        );
        let known = ClusterFacts::of_maintenances([&object]);
        let facts = ClusterFacts {
            nodes: Some(Ok(nodes)),
            in_maintenance: known.in_maintenance,
            drained: known.drained,
            ..facts
        };
        explained(&object, &facts).into_iter().flat_map(|cause| cause.commands).collect::<Vec<_>>()
    };
    let stop = String::from("kubectl nm stop n1");
    assert!(commands("Succeeded").contains(&stop), "{:#?}", commands("Succeeded"));
    assert!(!commands("Running").contains(&stop), "its other pods may be there");
}
