//! Replacements that fit only nodes in maintenance.

use serde_json::{Value, json};

use super::*;
use crate::maintenance::ROLL_LABEL;
use crate::maintenance::roll::{RollRunners, STATE};

pub(super) const EDIT: &str = "kubectl -n shop edit deploy/web";
const EDIT_BUDGET: &str = "kubectl -n shop edit pdb web";
pub(super) const STOP: &str = "kubectl nm stop n1";

fn hostname(name: &str) -> Value {
    json!({"kubernetes.io/hostname": name})
}

/// A node with the label that has its name.
fn labelled(node: Value) -> Value {
    let name = node["metadata"]["name"].clone();
    edited(node, "/metadata/labels", json!({"pool": "blue", "kubernetes.io/hostname": name}))
}

/// `n1` in maintenance, and `n2`, which is free.
fn two_nodes() -> Vec<Value> {
    vec![labelled(cordoned("n1")), labelled(node("n2", json!({})))]
}

fn pinned(pod: Value) -> Value {
    edited(pod, "/spec/nodeSelector", hostname("n1"))
}

#[track_caller]
pub(super) fn only(causes: Vec<Cause>) -> Cause {
    let [cause] = <[Cause; 1]>::try_from(causes).unwrap();
    cause
}

#[test]
fn a_replacement_that_selects_a_node_in_maintenance_says_so_and_no_node_is_to_be_added() {
    let third = pinned(pending("Unschedulable", UNFIT));
    let situation = Situation { nodes: two_nodes(), ..beside(third.clone()) };
    let cause = only(situation.causes());
    assert_eq!(
        cause.what[1],
        "No node is left for the replacement shop/web-2: its nodeSelector kubernetes.io/hostname=n1 selects only n1, which is \
         in maintenance."
    );
    assert_eq!(cause.advice, "Change the nodeSelector of its workload, or stop the maintenance");
    assert_eq!(cause.commands, [EDIT, STOP]);
    check_harmless(&cause);

    let fourth = edited(edited(third, "/metadata/name", json!("web-3")), "/metadata/uid", json!("uid-web-3"));
    let pods = [situation.pods.clone(), vec![fourth]].concat();
    let cause = only(Situation { pods, ..situation }.causes());
    assert!(
        cause.what[1]
            .starts_with("No node is left for the replacements shop/web-2, shop/web-3: their nodeSelector ")
    );
    assert_eq!(cause.commands, [EDIT, STOP], "one workload is changed once");
}

#[test]
fn a_new_node_helps_if_it_can_have_the_label_that_is_selected() {
    let third = edited(pending("Unschedulable", UNFIT), "/spec/nodeSelector", json!({"pool": "blue"}));
    let green = edited(node("n2", json!({})), "/metadata/labels", json!({"pool": "green"}));
    let cause = only(Situation { nodes: vec![cordoned("n1"), green], ..beside(third) }.causes());
    let expected = "its nodeSelector pool=blue selects only n1, which is in maintenance.";
    assert!(cause.what[1].ends_with(expected), "{cause:#?}");
    assert_eq!(
        cause.advice,
        "Add a node that the nodeSelector selects, change the nodeSelector of its workload, or stop the maintenance"
    );
    assert_eq!(cause.commands, [EDIT, STOP]);
}

#[test]
fn a_node_affinity_is_named_as_such() {
    let named = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
    let required = json!({"nodeSelectorTerms": [{"matchFields": [named]}]});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
    let third = edited(pending("Unschedulable", UNFIT), "/spec/affinity", affinity);
    let cause = only(Situation { nodes: two_nodes(), ..beside(third) }.causes());
    assert!(
        cause.what[1].ends_with("its node affinity selects only n1, which is in maintenance."),
        "{cause:#?}"
    );
    assert_eq!(cause.advice, "Change the node affinity of its workload, or stop the maintenance");
}

#[test]
fn a_selector_is_not_blamed_for_nodes_that_it_selects() {
    let third = edited(pending("Unschedulable", UNFIT), "/spec/nodeSelector", json!({"pool": "blue"}));
    let full = node("n2", json!({"taints": [{"key": "role", "effect": "NoSchedule"}]}));
    let cause = only(Situation { nodes: vec![cordoned("n1"), full], ..beside(third) }.causes());
    let expected = "No node is left for the replacement shop/web-2: n1 is in maintenance; n2 has the taint role:NoSchedule.";
    assert_eq!((cause.what[1].as_str(), cause.commands.as_slice()), (expected, [STOP.to_owned()].as_slice()));
    let advice =
        "Add a node, remove the taint from n2 if it is not needed any more, or return one to service";
    assert_eq!(cause.advice, advice);
}

#[test]
fn every_other_node_is_named_or_counted() {
    let tainted = |at: usize| {
        let taints = json!([{"key": format!("role-{at}"), "effect": "NoSchedule"}]);
        node(&format!("n{at}"), json!({"taints": taints}))
    };
    let nodes = [cordoned("n1")].into_iter().chain((2..7).map(tainted)).collect();
    let cause = only(Situation { nodes, ..beside(pending("Unschedulable", UNFIT)) }.causes());
    let rest = "; n4 has the taint role-4:NoSchedule; 2 other nodes do not fit either.";
    assert!(cause.what[1].ends_with(rest), "{cause:#?}");
    assert_eq!(
        cause.advice,
        "Add a node, remove the taints from n2, n3, n4 and 2 more if they are not needed any more, or return one to service"
    );
}

#[test]
fn a_selector_is_named_although_a_node_that_it_selects_cannot_run_the_pod_now() {
    let third = edited(pending("Unschedulable", UNFIT), "/spec/nodeSelector", json!({"pool": "blue"}));
    let mut off = node("n2", json!({}));
    off["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown"}]);
    let mut green = node("n3", json!({}));
    green["metadata"]["labels"] = json!({"pool": "green"});
    let nodes = vec![cordoned("n1"), off, green];
    let cause = only(Situation { nodes, ..beside(third) }.causes());
    let expected = "No node is left for the replacement shop/web-2: its nodeSelector pool=blue selects only n1, which is in \
                    maintenance, and n2, which is not Ready.";
    assert_eq!(cause.what[1], expected);
    assert_eq!(cause.commands[0], "kubectl -n shop edit deploy/web");
}

#[test]
fn nodes_that_are_not_ready_or_under_pressure_are_named_and_those_of_the_control_plane_are_not() {
    let tainted =
        |name: &str, key: &str| node(name, json!({"taints": [{"key": key, "effect": "NoSchedule"}]}));
    let mut off = node("n4", json!({}));
    off["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown"}]);
    let mut of_control_plane = tainted("cp", "node-role.kubernetes.io/control-plane");
    of_control_plane["metadata"]["labels"] = json!({"node-role.kubernetes.io/control-plane": ""});
    let pressure = "node.kubernetes.io/disk-pressure";
    let nodes = vec![cordoned("n1"), tainted("n2", pressure), tainted("n3", pressure), off, of_control_plane];
    let cause = only(Situation { nodes, ..beside(pending("Unschedulable", UNFIT)) }.causes());
    let expected = "No node is left for the replacement shop/web-2: n1 is in maintenance; n4 is not Ready; n2, n3 have the taint \
                    node.kubernetes.io/disk-pressure:NoSchedule.";
    assert_eq!(cause.what[1], expected);
    assert_eq!(cause.advice, "Add a node, make n4 Ready, or return one to service");
}

#[test]
fn the_only_pod_of_a_deployment_that_fits_no_other_node_is_not_to_be_replaced_first() {
    let never = || never("maxUnavailable", json!(0), 1);
    let fits = only(Situation { nodes: two_nodes(), ..never() }.causes());
    assert!(fits.commands[0].contains("WhenBlocked"), "{fits:#?}");
    let situation = Situation { nodes: two_nodes(), pods: vec![pinned(ready("web-0", "n1"))], ..never() };
    let cause = only(situation.causes());
    assert_eq!(
        cause.what[1],
        "The budget can never allow an eviction: maxUnavailable is 0, and it has 1 pod. A replacement fits on no other node: its \
         nodeSelector kubernetes.io/hostname=n1 selects only n1, which is in maintenance."
    );
    assert_eq!(cause.commands, [EDIT, EDIT_BUDGET, STOP]);
    assert!(cause.advice.ends_with("; or stop the maintenance and keep the pod"), "{cause:#?}");
    check_harmless(&cause);
    let alone = only(Situation { nodes: vec![cordoned("n1")], ..never() }.causes());
    assert!(
        alone.what[1].ends_with("A replacement fits on no other node: n1 is in maintenance."),
        "{alone:#?}"
    );
    assert_eq!(
        alone.commands,
        [STOP, EDIT_BUDGET],
        "no Deployment can replace its pods first without a node"
    );
}

#[test]
fn a_budget_that_can_never_allow_an_eviction_is_changed_last_if_another_node_lets_a_deployment_replace_the_pods()
 {
    let of_set = |mut pod: Value| {
        pod["metadata"]["ownerReferences"][0]["kind"] = json!("StatefulSet");
        pod
    };
    let allow_one = "kubectl -n shop patch pdb web --type=merge -p '{\"spec\":{\"maxUnavailable\":1}}'";
    let surge = "kubectl patch nm n1 --type=merge -p '{\"spec\":{\"drain\":{\"surge\":\"WhenBlocked\"}}}'";
    let (stop_2, stop_3) = ("kubectl nm stop n2", "kubectl nm stop n3");
    for (pods, is_set, commands) in [
        (1, false, vec![stop_3, stop_2, surge, STOP, EDIT_BUDGET]),
        (1, true, vec![EDIT_BUDGET, STOP]),
        (3, false, vec![stop_3, stop_2, surge, STOP, allow_one]),
        (3, true, vec![allow_one, STOP]),
    ] {
        let mut situation = never("maxUnavailable", json!(0), pods);
        situation.nodes = ["n1", "n2", "n3"].map(cordoned).into();
        situation.in_maintenance = vec!["n1", "n2", "n3"];
        if is_set {
            situation.pods = situation.pods.into_iter().map(of_set).collect();
        }
        let facts = ClusterFacts { drained: ["n3".to_owned()].into(), ..situation.facts() };
        let cause = only(explained(&with_status("n1", blocked_status("shop")), &facts));
        assert!(
            cause.what[1].ends_with("A replacement fits on no other node: n1, n2, n3 are in maintenance."),
            "{cause:#?}"
        );
        assert!(cause.commands == commands && !cause.passes(), "{cause:#?}");
        let cost =
            if pods == 1 { "the only pod is unavailable" } else { "is unavailable until there is a node" };
        assert!(cause.advice.contains(cost), "{cause:#?}");
        // With another node, a Deployment can replace the pod first; nothing else would allow the eviction.
        let first = "Add a node, or return one of n3, n2 to service, unless its machine is being worked on; then let the \
                     Deployment replace its ";
        assert_eq!(cause.advice.starts_with(first), !is_set, "{cause:#?}");
        check_harmless(&cause);
    }
}

#[test]
fn the_node_that_is_explained_is_the_last_to_be_returned_to_service() {
    let third = pending("Unschedulable", UNFIT);
    let nodes = ["n1", "n2", "n3"];
    let situation =
        Situation { nodes: nodes.map(cordoned).into(), in_maintenance: nodes.into(), ..beside(third) };
    let cause = only(situation.causes());
    assert_eq!(
        cause.advice,
        "Add a node, or return one of these nodes to service, unless its machine is being worked on"
    );
    assert_eq!(cause.commands, ["kubectl nm stop n2", "kubectl nm stop n3", STOP]);
}

#[test]
fn a_replacement_that_lacks_resources_or_its_volume_elsewhere_can_return_to_the_drained_node() {
    let third = pending(
        "Unschedulable",
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable.",
    );
    let situation = Situation { nodes: two_nodes(), ..beside(third.clone()) };
    let cause = only(situation.causes());
    assert_eq!(
        cause.advice,
        "Add capacity, or check what the pods request and select, and their volume claims; or stop the maintenance: \
         the pods may fit on its node"
    );
    assert_eq!(cause.commands.last().map(String::as_str), Some(STOP));
    check_harmless(&cause);

    let mut of_roll = with_status("n1", blocked_status("shop"));
    of_roll.metadata.labels = Some([(ROLL_LABEL.to_owned(), "kernel".to_owned())].into());
    let record = json!({"revision": 2, "runner": {"id": "x", "who": "ada@vm", "at": NOW}}).to_string();
    of_roll.metadata.annotations = Some([(STATE.to_owned(), record)].into());
    let facts = ClusterFacts { rolls: RollRunners::of([&of_roll]), ..situation.facts() };
    let causes = explained(&of_roll, &facts);
    assert!(
        causes.iter().all(|cause| !cause.commands.contains(&STOP.to_owned())),
        "the roll returns its nodes: {causes:#?}"
    );
    let bound = "0/2 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, 1 node(s) were unschedulable.";
    let bound = only(Situation { nodes: two_nodes(), ..beside(pending("Unschedulable", bound)) }.causes());
    assert!(bound.advice.starts_with("Return a node to service that can use the volume"), "{bound:#?}");
    assert!(!bound.commands.contains(&STOP.to_owned()), "{bound:#?}");

    let apart = "0/2 nodes are available: 1 node(s) didn't match pod anti-affinity rules, 2 node(s) were unschedulable.";
    let apart = Situation {
        nodes: vec![cordoned("n1"), cordoned("n2"), node("n3", json!({}))],
        in_maintenance: vec!["n1", "n2"],
        ..beside(pending("Unschedulable", apart))
    };
    let apart = only(apart.causes());
    assert!(
        apart.advice.ends_with(
            "; or return a node to service on which the pods may fit, unless its machine is being worked on"
        ),
        "{apart:#?}"
    );
    assert_eq!(
        apart.commands.last().map(String::as_str),
        Some("kubectl nm stop n2"),
        "n1 has a pod of the workload"
    );

    let with_port =
        |pod: Value| edited(pod, "/spec/containers/0/ports", json!([{"containerPort": 80, "hostPort": 80}]));
    let taken = "0/2 nodes are available: 1 node(s) didn't have free ports for the requested pod ports, 2 node(s) were unschedulable.";
    let mut taken = beside(with_port(pending("Unschedulable", taken)));
    taken.pods[0] = with_port(taken.pods[0].clone());
    let nodes = vec![cordoned("n1"), cordoned("n2"), node("n3", json!({}))];
    let taken = only(Situation { nodes, in_maintenance: vec!["n1", "n2"], ..taken }.causes());
    assert_eq!(
        taken.commands.last().map(String::as_str),
        Some("kubectl nm stop n2"),
        "n1 has a pod with the port"
    );

    let elsewhere = edited(third, "/spec/nodeSelector", json!({"pool": "none"}));
    let cause = only(Situation { nodes: two_nodes(), ..beside(elsewhere) }.causes());
    assert!(!cause.commands.contains(&STOP.to_owned()), "{cause:#?}");
}

#[test]
fn nothing_replaces_the_pods_of_a_budget_without_a_controller() {
    let bare = |pods: i32| {
        let mut situation = never("minAvailable", json!(pods), pods);
        for pod in &mut situation.pods {
            pod["metadata"]["ownerReferences"] = json!([]);
        }
        only(Situation { nodes: vec![cordoned("n1")], ..situation }.causes())
    };
    let only_pod = bare(1);
    assert_eq!(only_pod.what.len(), 2, "no node is missing: {only_pod:#?}");
    assert_eq!(
        (only_pod.advice.as_str(), only_pod.commands.as_slice()),
        (
            "Agree on a time with the owner of the pod, then set minAvailable to 0: no controller replaces the only pod after \
             its eviction",
            [EDIT_BUDGET.to_owned()].as_slice()
        )
    );
    let several = bare(2);
    assert_eq!(
        several.advice,
        "Set minAvailable to 1: one of its 2 pods may then leave, and no controller replaces it"
    );
}

#[test]
fn only_nodes_are_named_from_which_no_other_pod_keeps_the_replacement() {
    let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}]}});
    let message = "0/3 nodes are available: 3 node(s) were unschedulable.";
    let third = edited(pending("Unschedulable", message), "/spec/affinity", apart);
    let situation = Situation {
        nodes: vec![cordoned("n1"), cordoned("n2"), cordoned("n3")],
        in_maintenance: vec!["n1", "n2", "n3"],
        ..beside(third)
    };
    let cause = only(situation.causes());
    assert_eq!(
        cause.what.last().unwrap(),
        "No node is left for the replacement shop/web-2: n3 is in maintenance."
    );
    assert_eq!(cause.commands, ["kubectl nm stop n3"], "n1 and n2 have pods of the workload");
}

#[test]
fn nodes_that_the_template_selects_are_named_also_if_other_pods_keep_the_replacement_from_them() {
    let affinity = json!({
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "pair", "operator": "Exists"}]}]}},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}]}});
    let message = "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 node(s) were unschedulable.";
    let third = edited(pending("Unschedulable", message), "/spec/affinity", affinity);
    let of_pair = |name: &str| edited(cordoned(name), "/metadata/labels/pair", json!("a"));
    let situation = Situation {
        nodes: vec![of_pair("n1"), of_pair("n2"), of_pair("n3"), node("n4", json!({}))],
        in_maintenance: vec!["n1", "n2", "n3"],
        ..beside(third)
    };
    let cause = only(situation.causes());
    assert_eq!(
        cause.what.last().unwrap(),
        "No node is left for the replacement shop/web-2: its node affinity selects only n1, n2, n3, which are in maintenance, \
         and other pods keep it from n1, n2."
    );
    assert!(cause.commands.contains(&String::from("kubectl nm stop n3")), "{:?}", cause.commands);
}

#[test]
fn a_budget_of_several_workloads_with_one_pod_each_is_not_changed_without_their_owners() {
    let situation = |kind: &str| {
        let mut never = never("maxUnavailable", json!(0), 2);
        never.pods[1]["metadata"]["ownerReferences"][0]["name"] = json!("api-7d5");
        never.pods[1]["metadata"]["labels"]["pod-template-hash"] = json!("7d5");
        for pod in &mut never.pods {
            pod["metadata"]["ownerReferences"][0]["kind"] = json!(kind);
        }
        only(never.causes())
    };
    let surged = situation("ReplicaSet");
    assert!(
        surged.advice.starts_with("Let the Deployments replace their pods before they leave"),
        "{surged:#?}"
    );
    assert!(surged.commands[0].contains("WhenBlocked") && surged.commands.len() == 1, "{surged:#?}");
    let sets = situation("StatefulSet");
    let expected = "Agree on a time with the owners of the pods, then set maxUnavailable to 1: sts/api-7d5, sts/web-6c4 have only one pod \
                    each, which is unavailable from its eviction until its replacement is Ready";
    assert_eq!(sets.advice, expected);
    assert_eq!(sets.commands, ["kubectl -n shop edit pdb web"]);
}

/// A budget that never allows an eviction of so many pods, which must be on different nodes.
fn apart(pods: i32) -> Situation {
    let mut apart = never("minAvailable", json!(pods), pods);
    let term =
        json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}});
    for pod in &mut apart.pods {
        pod["spec"]["affinity"] =
            json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term.clone()]}});
    }
    apart
}

const MAY_BE_MISSING: &str = "Set minAvailable to 2: one of its 3 pods at a time may then be unavailable, and may be missing until its \
                              node is back in service: there are too few other nodes for all pods";

#[test]
fn no_surge_is_advised_where_each_node_has_a_pod_that_keeps_the_replacement_away() {
    let with = |nodes: Vec<Value>| only(Situation { nodes, ..apart(2) }.causes());
    let full = with(vec![cordoned("n1"), node("n2", json!({}))]);
    let expected = "Set minAvailable to 1: one of its 2 pods at a time may then be unavailable, and is missing until its node is back in \
                    service: pods on the other nodes keep its replacement away";
    assert_eq!((full.advice.as_str(), full.commands.len()), (expected, 1), "{full:#?}");
    let free = with(vec![cordoned("n1"), node("n2", json!({})), node("n3", json!({}))]);
    assert!(free.commands.iter().any(|command| command.contains("WhenBlocked")), "{free:#?}");
}

#[test]
fn no_surge_is_advised_where_there_is_no_node_for_each_replacement() {
    let with = |free: &[&str]| {
        let others = free.iter().map(|name| node(name, json!({})));
        let nodes = [cordoned("n1"), cordoned("n2")].into_iter().chain(others).collect();
        only(Situation { nodes, in_maintenance: vec!["n1", "n2"], ..apart(3) }.causes())
    };
    let two = with(&["n3", "n4"]);
    assert_eq!((two.advice.as_str(), two.commands.len()), (MAY_BE_MISSING, 1), "{two:#?}");
    let three = with(&["n3", "n4", "n5"]);
    assert!(three.commands.iter().any(|command| command.contains("WhenBlocked")), "{three:#?}");
}

#[test]
fn a_pod_that_may_be_missing_after_its_eviction_is_named_even_if_nodes_cannot_be_read() {
    let mut status = blocked_status("shop");
    status["blockedPods"][0]["surge"] = json!({"reason": "KeptApart", "deployment": "web"});
    let mut object = with_status("n1", status);
    object.spec.drain = Some(parse(&json!({"surge": "WhenBlocked"})));
    let cause = only(explained(&object, &ClusterFacts { nodes: None, ..apart(3).facts() }));
    assert_eq!((cause.advice.as_str(), cause.commands.len()), (MAY_BE_MISSING, 1), "{cause:#?}");
}

#[test]
fn the_template_of_a_job_is_not_to_be_changed() {
    let third =
        edited(pinned(pending("Unschedulable", UNFIT)), "/metadata/ownerReferences/0/kind", json!("Job"));
    let third = edited(third, "/metadata/ownerReferences/0/apiVersion", json!("batch/v1"));
    let cause = only(Situation { nodes: two_nodes(), ..beside(third) }.causes());
    assert_eq!(
        (cause.advice.as_str(), cause.commands.as_slice()),
        ("Stop the maintenance", [STOP.to_owned()].as_slice())
    );
}

/// A node in maintenance that somebody had cordoned before.
fn cordoned_before(name: &str) -> Value {
    let mut node = cordoned(name);
    node["metadata"]["labels"]["remediation.medik8s.io/exclude-from-remediation"] = json!("true");
    node["metadata"]["annotations"] = json!({"kubectl-nm.dev/undo": "{\"madeUnschedulable\":false}"});
    node
}

#[test]
fn a_node_that_was_cordoned_before_its_maintenance_returns_last_and_is_uncordoned_too() {
    let found = |nodes: &[Value]| {
        let in_maintenance = ["n1", "n2", "n3"].into_iter().take(nodes.len()).collect();
        let situation = beside(pending("Unschedulable", UNFIT));
        let cause = only(Situation { nodes: nodes.to_vec(), in_maintenance, ..situation }.causes());
        check_harmless(&cause);
        (cause.advice, cause.commands)
    };
    let (advice, commands) = found(&[cordoned("n1"), cordoned_before("n2"), cordoned("n3")]);
    assert_eq!(
        advice,
        "Add a node, or return one of these nodes to service, unless its machine is being worked on (n2 was cordoned before its \
         maintenance: uncordon n2, too, if that cordon is not needed any more)"
    );
    let stop = |node: &str| format!("kubectl nm stop {node}");
    assert_eq!(commands, [stop("n3"), stop("n1"), stop("n2") + " --wait && kubectl uncordon n2"]);
    let (advice, commands) = found(&[cordoned_before("n1")]);
    assert_eq!(
        advice,
        "Add a node, or return one to service (n1 was cordoned before its maintenance: uncordon n1, too, if that cordon is not \
         needed any more)"
    );
    assert_eq!(commands, [stop("n1") + " --wait && kubectl uncordon n1"]);
}
