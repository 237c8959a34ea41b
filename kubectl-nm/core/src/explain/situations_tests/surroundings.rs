//! What no status shows: workloads without a ready pod, and a node that is not Ready. And pods with more than one budget.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};

use super::*;
use crate::explain::cluster_facts::{Outage, OutageGap, ReadPod, StoppedPod, UnreadyNode, Workload};
use crate::explain::outage_causes::summary;

const BEGAN: &str = "2026-01-02T03:04:05Z";

pub(super) fn drained() -> NodeMaintenance {
    let condition = |type_: &str| {
        json!({"type": type_, "status": "True", "reason": type_, "message": "",
        "lastTransitionTime": BEGAN})
    };
    with_status(
        "n1",
        json!({"phase": "Succeeded", "evictionPods": 2, "podCounts": {"gone": 2}, "departedPods": {},
            "conditions": [condition("Cordoned"), condition("Drained")]}),
    )
}

const LEFT: &str = "2 pods of this workload left n1 during the drain.";

/// A Deployment that wants so many pods and has these, none of which is Ready, after two left `n1`.
pub(super) fn outage(wanted: i32, conditions: Value, pods: Vec<Value>) -> ClusterFacts {
    let object = json!({"metadata": {"name": "web", "namespace": "shop"},
        "spec": {"replicas": wanted, "selector": {}, "template": {}}, "status": {"conditions": conditions, "replicas": pods.len()}});
    let left = |name: &str| StoppedPod {
        pod: PodReference { namespace: "shop".into(), name: name.into() },
        uid: name.into(),
        node: "n1".into(),
        at: "2026-01-02T03:05:00Z".parse().unwrap(),
    };
    let pods = pods.iter().map(|pod| ReadPod { pod: parse(pod), warnings: Vec::new() }).collect();
    let outage = Outage {
        workload: Workload::from(&parse::<Deployment>(&object)),
        left: vec![left("web-6c4-bcdfg"), left("web-6c4-bcdfh")],
        preempted: Vec::new(),
        terminating: 0,
        last_stopped: left("web-6c4-bcdfg").at,
        failing_since: None,
        pods,
    };
    ClusterFacts {
        nodes: Some(Ok(vec![parse(&cordoned("n1")), parse(&cordoned("n2"))])),
        in_maintenance: ["n1".into(), "n2".into()].into(),
        outages: [("n1".to_owned(), vec![outage])].into(),
        ..ClusterFacts::default()
    }
}

#[test]
fn a_workload_without_a_ready_pod_is_a_cause_of_its_own_with_the_reason_of_its_replacements() {
    let unavailable =
        || json!([{"type": "Available", "status": "False", "lastTransitionTime": "2026-01-02T03:05:10Z"}]);
    let refused = json!([{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: pods"}]);
    let unready = "shop/deploy/web is down: its 1 pod is not ready.";
    let none = "shop/deploy/web is down: it has no pod.";
    for (name, facts, why, command, passes) in [
        (
            "no node is left for the replacement",
            outage(2, unavailable(), vec![pending("Unschedulable", UNFIT)]),
            Some("No node is left for the replacement shop/web-2: n1, n2 are in maintenance."),
            "kubectl nm stop n2",
            false,
        ),
        (
            "the image cannot be pulled",
            outage(2, unavailable(), vec![waiting("ErrImagePull", "manifest unknown")]),
            Some("shop/web-2 on n2: the image shop/web:2 cannot be pulled (ErrImagePull): manifest unknown."),
            DESCRIBE,
            false,
        ),
        (
            "the replacement has just been created",
            outage(
                2,
                unavailable(),
                vec![edited(
                    waiting("ContainerCreating", ""),
                    "/status/startTime",
                    json!("2026-01-02T03:07:00Z"),
                )],
            ),
            Some("shop/web-2 has been starting on n2 for 25s."),
            "kubectl -n shop describe deploy/web",
            true,
        ),
        (
            "a quota",
            outage(2, refused, vec![]),
            Some("deploy/web could not create 2 pods when it last tried: exceeded quota: pods."),
            "kubectl -n shop get resourcequotas",
            false,
        ),
        (
            "nothing is seen",
            outage(2, unavailable(), vec![]),
            None,
            "kubectl -n shop describe deploy/web",
            false,
        ),
    ] {
        let causes = explained(&drained(), &facts);
        let [cause] = causes.as_slice() else { panic!("{name}: {causes:#?}") };
        let down = if facts.outages["n1"][0].pods.is_empty() { none } else { unready };
        let what: Vec<&str> = [down, LEFT].into_iter().chain(why).collect();
        assert_eq!(cause.what, what, "{name}");
        assert_eq!((cause.commands[0].as_str(), cause.passes()), (command, passes), "{name}");
        check_harmless(cause);
    }
    assert_eq!(explained(&drained(), &ClusterFacts::default()), []);
    let facts = ClusterFacts { partly_seen: ["n1".into()].into(), ..outage(2, unavailable(), vec![]) };
    assert_eq!(explained(&drained(), &facts)[0].what[1], format!("At least {LEFT}"));
}

#[test]
fn pods_of_a_node_that_is_not_ready_cannot_terminate_and_nobody_is_to_wait_for_that() {
    let pod = json!({"namespace": "shop", "name": "web-0"});
    let object = with_status(
        "n1",
        json!({"phase": "Running", "podCounts": {"terminating": 1}, "pendingPodsRefs": [pod]}),
    );
    let unready = |message: Option<&str>| ClusterFacts {
        unready: BTreeMap::from([(
            "n1".to_owned(),
            UnreadyNode { since: BEGAN.parse().ok(), message: message.map(str::to_owned) },
        )]),
        terminating: [(
            "n1".to_owned(),
            Ok(vec![parse(&edited(terminating(BEGAN), "/metadata/name", json!("web-0")))]),
        )]
        .into(),
        ..ClusterFacts::default()
    };
    let causes = explained(&object, &unready(None));
    let [cause] = causes.as_slice() else { panic!("{causes:#?}") };
    assert_eq!(
        cause.what,
        [
            "Node n1 has not been Ready since 2026-01-02T03:04:05Z: its kubelet does not report, so its pod cannot terminate."
        ]
    );
    assert!(!cause.passes() && cause.pods == ["shop/web-0"], "{cause:#?}");
    let has = |text: &str| cause.advice.contains(text);
    assert!(has("Power the node on") && has("out-of-service"), "{cause:#?}");
    check_harmless(cause);
    // A kubelet that reports terminates pods.
    let causes = explained(&object, &unready(Some("container runtime is down")));
    assert_eq!(
        causes[0].what,
        ["Node n1 has not been Ready since 2026-01-02T03:04:05Z: container runtime is down."]
    );
    // A node from which no pod has to go may be off.
    assert_eq!(explained(&drained(), &unready(None)), []);
    // The status reports it by itself, too.
    let blocked = json!({"namespace": "shop", "name": "web-0", "reason": "NodeNotReady", "message": "m", "node": "n1",
        "since": BEGAN, "attempts": 0});
    let status = json!({"phase": "Running", "blockedPods": [blocked], "podCounts": {"blocked": 1}, "pendingPodsRefs": [pod]});
    let causes = explained(&with_status("n1", status), &unready(None));
    assert_eq!(causes.len(), 1, "{causes:#?}");
}

#[test]
fn a_pod_that_terminates_on_a_node_that_is_off_is_not_waited_for_on_another_node() {
    let off = |status: &str| {
        let conditions = json!([{"type": "Ready", "status": status, "message": "kubelet stopped"}]);
        edited(node("n2", json!({})), "/status/conditions", conditions)
    };
    let overdue =
        || edited(terminating("2026-01-02T03:06:00Z"), "/status/conditions/0/status", json!("False"));
    for (status, what, command) in [
        (
            "Unknown",
            "shop/web-2 is terminating, but node n2 is not Ready: no kubelet confirms that.",
            "kubectl describe node n2",
        ),
        ("False", "shop/web-2 is terminating: its grace period ended 1m25s ago.", DESCRIBE),
    ] {
        let facts = Situation { nodes: vec![off(status)], ..beside(overdue()) }.facts();
        let causes = explained(&with_status("n1", blocked_status("shop")), &facts);
        let [cause] = causes.as_slice() else { panic!("{causes:#?}") };
        assert_eq!((cause.what[1].as_str(), cause.commands[0].as_str()), (what, command));
        let waiting = explained(&waiting_for_their_turn(), &facts);
        assert_eq!(waiting[0].outlook == Outlook::WillBlock, status == "Unknown", "{waiting:#?}");
    }
}

#[test]
fn pods_that_terminate_for_too_long_are_not_hidden_by_one_that_has_time_left() {
    let pods = |deadlines: &[&str]| {
        let pod = |(at, deadline): (usize, &&str)| {
            parse(&edited(terminating(deadline), "/metadata/name", json!(format!("web-{at}"))))
        };
        let refs: Vec<Value> = (0..deadlines.len())
            .map(|at| json!({"namespace": "shop", "name": format!("web-{at}")}))
            .collect();
        let object = with_status(
            "n1",
            json!({"phase": "Running", "podCounts": {"terminating": refs.len()}, "pendingPodsRefs": refs}),
        );
        let terminating = Ok(deadlines.iter().enumerate().map(pod).collect());
        let facts =
            ClusterFacts { terminating: [("n1".to_owned(), terminating)].into(), ..ClusterFacts::default() };
        explained(&object, &facts)[0].what[0].clone()
    };
    let (soon, over, long_over) = ("2026-01-02T03:07:42Z", "2026-01-02T03:07:06Z", "2026-01-02T03:06:45Z");
    for (deadlines, grace) in [
        (vec![soon, soon], "at most 17s of their grace periods are left"),
        (vec![over, long_over], "their grace periods ended up to 40s ago"),
        (
            vec![soon, over],
            "the grace period of 1 of them ended 19s ago, and the others have at most 17s left",
        ),
        (
            vec![soon, over, long_over],
            "the grace periods of 2 of them ended up to 40s ago, and the others have at most 17s left",
        ),
    ] {
        let what = pods(&deadlines);
        assert!(what.ends_with(&format!("are terminating: {grace}.")), "{what}");
    }
}

#[test]
fn a_kubelet_that_is_back_gives_its_terminating_pods_their_grace_period_again() {
    let refs = ["web-0", "web-1"].map(|name| json!({"namespace": "shop", "name": name}));
    let said = |pods: &[Value], since: &str| {
        let status = json!({"phase": "Running", "podCounts": {"terminating": pods.len()},
            "pendingPodsRefs": refs[..pods.len()].to_vec()});
        let facts = ClusterFacts {
            terminating: [("n1".to_owned(), Ok(pods.iter().map(parse).collect()))].into(),
            ready_since: [("n1".to_owned(), since.parse().unwrap())].into(),
            ..ClusterFacts::default()
        };
        explained(&with_status("n1", status), &facts)[0].what[0].clone()
    };
    let pod = |name: &str| {
        let pod = edited(terminating("2026-01-02T03:06:00Z"), "/metadata/name", json!(name));
        let mut pod = edited(pod, "/spec/nodeName", json!("n1"));
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(60);
        pod
    };
    let (back, before) = ("2026-01-02T03:07:05Z", "2026-01-02T03:00:00Z");
    assert_eq!(said(&[pod("web-0")], back), "shop/web-0 is terminating, with 40s of its grace period left.");
    assert_eq!(
        said(&[pod("web-0"), pod("web-1")], back),
        "shop/web-0, shop/web-1 are terminating: at most 40s of their grace periods are left."
    );
    assert_eq!(said(&[pod("web-0")], before), "shop/web-0 is terminating: its grace period ended 1m25s ago.");
}

#[test]
fn several_budgets_on_a_pod_are_one_statement_and_the_advice_is_what_helps() {
    let budget = |name: &str| json!({"name": name, "desiredHealthy": 1, "currentHealthy": 2});
    let pod = |name: &str| {
        json!({"namespace": "shop", "name": name, "reason": "MultipleDisruptionBudgets",
        "message": "2 disruption budgets select this pod", "since": BEGAN, "attempts": 3,
        "budgets": [budget("narrow"), budget("wide")]})
    };
    let status =
        json!({"phase": "Running", "blockedPods": [pod("web-0"), pod("web-1")], "podCounts": {"blocked": 2}});
    let causes = explained(&with_status("n1", status), &ClusterFacts::default());
    let [cause] = causes.as_slice() else { panic!("{causes:#?}") };
    assert_eq!(
        cause.what,
        ["shop/web-0, shop/web-1 are selected by more than one disruption budget: narrow, wide."]
    );
    assert!(cause.advice.starts_with("Change the selectors of the budgets so that only one selects the pod"));
    let recount =
        "kubectl -n shop annotate pdb narrow wide kubectl-nm.dev/recount=\"$(date +%s)\" --overwrite";
    assert_eq!(cause.commands, ["kubectl -n shop edit pdb narrow wide", recount]);
    assert!(cause.advice.ends_with("so that their pods are counted again"), "{cause:#?}");
    assert!(!cause.passes());
}

#[test]
fn a_budget_over_several_workloads_is_not_judged_by_the_first_of_its_pods() {
    let pinned =
        |name: &str| edited(ready(name, "n1"), "/spec/nodeSelector", json!({"kubernetes.io/hostname": "n1"}));
    let labelled =
        |node: Value, name: &str| edited(node, "/metadata/labels", json!({"kubernetes.io/hostname": name}));
    let nodes = || vec![labelled(cordoned("n1"), "n1"), labelled(node("n2", json!({})), "n2")];
    let no_node = |pods: Vec<Value>| {
        let mut situation = Situation { nodes: nodes(), ..never("maxUnavailable", json!(0), 2) };
        situation.pods = pods;
        let mut object = blocked_status("shop");
        let mut other = object["blockedPods"][0].clone();
        other["name"] = json!("web-1");
        object["blockedPods"].as_array_mut().unwrap().push(other);
        let causes = explained(&with_status("n1", object), &situation.facts());
        causes[0].what.last().unwrap().contains("fits on no other node")
    };
    assert!(no_node(vec![pinned("web-0"), pinned("web-1")]));
    assert!(!no_node(vec![pinned("web-0"), ready("web-1", "n1")]), "another pod fits n2");
}

#[test]
fn what_is_not_known_of_workloads_is_said_and_blocks_nothing() {
    let forbidden = || OutageGap::Unseen(Unseen::Forbidden("list events".into()));
    let expired =
        |down: &[&str]| OutageGap::Expired { pods: 2, down: down.iter().map(ToString::to_string).collect() };
    for (gap, sentence, passes) in [
        (forbidden(), "Not known, because you have no permission to list events.", true),
        (
            OutageGap::MoreEvents(5000),
            "Only 5000 events about stopped pods were read, but there are more, so some pods that left may be missing here.",
            false,
        ),
        (
            OutageGap::MoreNamespaces(1),
            "Pods of 1 more namespace left too, but their workloads were not checked.",
            false,
        ),
        (
            OutageGap::MoreWarnings("shop".into()),
            "Not all warnings about pods in shop were read: a workload may have been down before the drain.",
            false,
        ),
        (
            OutageGap::MoreJobs { namespace: "shop".into(), limit: 500 },
            "Only 500 Jobs in shop were read, but there are more, and one may have failed.",
            false,
        ),
        (
            expired(&["shop/deploy/web"]),
            "The events of 2 pods that have left have expired: shop/deploy/web has no ready pod, perhaps since the drain.",
            true,
        ),
        (
            expired(&[]),
            "The events of 2 pods that have left have expired, so the workloads of these pods are not known.",
            true,
        ),
    ] {
        let outage_gaps = [("n1".to_owned(), [gap].into())].into();
        let causes = explained(&drained(), &ClusterFacts { outage_gaps, ..ClusterFacts::default() });
        let [cause] = causes.as_slice() else { panic!("{causes:#?}") };
        assert_eq!(
            cause.what,
            ["It is not known of all workloads whose pods left the node whether they have recovered."]
        );
        assert_eq!(cause.unseen, [sentence]);
        assert!(cause.is_outage && cause.passes() == passes, "{cause:#?}");
    }
}

#[test]
fn a_workload_whose_replacement_may_only_be_starting_is_not_called_down_at_the_end_of_a_wait() {
    let said = |pods: Vec<Value>, now: &str| {
        let facts = outage(2, Value::Null, pods);
        let lines = summary(&facts, now.parse().unwrap());
        lines.iter().map(|line| (line.words.clone(), line.may_only_start)).collect::<Vec<_>>()
    };
    let (soon, late) = ("2026-01-02T03:05:20Z", "2026-01-02T03:05:40Z");
    let yet = |words: &str| vec![(words.to_owned(), true)];
    let down = |why: &str| vec![(format!("shop/deploy/web is down: {why}"), false)];
    let starting = || vec![edited(waiting("ContainerCreating", ""), "/status/startTime", json!(soon))];
    assert_eq!(said(starting(), soon), yet("shop/deploy/web has no ready pod yet"));
    assert_eq!(said(starting(), late), down("its 1 pod is not ready"));
    assert_eq!(said(vec![], soon), yet("shop/deploy/web has no ready pod yet"));
    assert_eq!(said(vec![], late), down("it has no pod"));
    let unfit = || pending("Unschedulable", UNFIT);
    assert_eq!(said(vec![unfit()], soon), down("its 1 pod is not ready"));
    assert_eq!(said(vec![unfit(), unfit()], soon), down("its 2 pods are not ready"));
}

#[test]
fn a_workload_whose_pods_failed_before_the_drain_is_not_said_to_be_down_by_it() {
    let unavailable =
        json!([{"type": "Available", "status": "False", "lastTransitionTime": "2026-01-02T03:05:10Z"}]);
    let created = json!("2026-01-02T03:05:02Z");
    let crash = || edited(waiting("CrashLoopBackOff", ""), "/metadata/creationTimestamp", created.clone());
    let mut facts = outage(2, unavailable, vec![crash(), crash()]);
    let before = "2026-01-02T02:59:00Z";
    facts.outages.get_mut("n1").unwrap()[0].failing_since = before.parse().ok();
    let causes = explained(&drained(), &facts);
    let [cause] = causes.as_slice() else { panic!("{causes:#?}") };
    assert_eq!(
        cause.what[..3],
        [
            "shop/deploy/web is down: its 2 pods are not ready.",
            LEFT,
            "They had been failing before the drain, since 2026-01-02T02:59:00Z."
        ]
    );
    assert_eq!(cause.since, before.parse().ok(), "{cause:#?}");
    let lines = summary(&facts, NOW.parse().unwrap());
    assert_eq!(
        lines[0].words,
        "shop/deploy/web is down: its 2 pods are not ready; the pods that left had been failing before the drain"
    );
}

#[test]
fn workloads_that_are_down_for_the_same_cause_are_one_cause() {
    let unavailable =
        || json!([{"type": "Available", "status": "False", "lastTransitionTime": "2026-01-02T03:05:10Z"}]);
    let named = |name: &str, status: &str| {
        let replacement =
            edited(pending("Unschedulable", status), "/metadata/name", json!(format!("{name}-x")));
        let mut outage = outage(2, unavailable(), vec![replacement]).outages.remove("n1").unwrap().remove(0);
        outage.workload.owner = Owner::new(OwnerKind::Deployment, name);
        outage.left.iter_mut().for_each(|pod| pod.uid = format!("{name}-{}", pod.uid));
        outage
    };
    let workloads = ["api", "cart", "db", "web", "mail"];
    let mut facts = outage(2, unavailable(), vec![]);
    facts.outages = [("n1".to_owned(), workloads.map(|name| named(name, UNFIT)).into())].into();
    let causes = explained(&drained(), &facts);
    let [cause] = <[Cause; 1]>::try_from(causes).unwrap();
    assert_eq!(
        cause.what,
        [
            "shop/deploy/api, shop/deploy/cart, shop/deploy/db and 2 more are down: none of their pods is ready.",
            "10 pods of these workloads left n1 during the drain.",
            "No node is left for the replacements shop/api-x, shop/cart-x, shop/db-x and 2 more: n1, n2 are in maintenance.",
        ]
    );
    assert_eq!(
        cause.commands,
        ["kubectl nm stop n2", "kubectl nm stop n1", "kubectl get deployments,statefulsets -A"]
    );
    check_harmless(&cause);
}

#[test]
fn what_refuses_new_pods_is_named_with_the_command_that_shows_it() {
    let pods = "pods \"web-6c4-x\" is forbidden: ";
    let hooks = "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations";
    for (message, advice, command) in [
        (
            format!("{pods}ValidatingAdmissionPolicy 'no-pods' with binding 'shop' denied request: no"),
            "Do what the policy requires, or exempt the pods from it; then ",
            "kubectl get validatingadmissionpolicies no-pods -o yaml",
        ),
        (
            String::from("admission webhook \"scan.example.com\" denied the request: no"),
            "Do what webhook scan.example.com requires, or exempt the pods from it; then ",
            hooks,
        ),
        (
            String::from("failed calling webhook \"scan.example.com\": connection refused"),
            "Repair webhook scan.example.com, or exempt the pods from it; then ",
            hooks,
        ),
        (
            format!("{pods}exceeded quota: pods, requested: pods=1"),
            "Raise the quota, or free some of it; then ",
            "kubectl -n shop get resourcequotas",
        ),
        (
            format!("{pods}failed quota: cpu: must specify limits.cpu for: c"),
            "Set what quota cpu counts in the pod template of deploy/web, or as a default in a LimitRange of the namespace; then ",
            "kubectl -n shop edit deploy/web",
        ),
        (
            format!("{pods}policy 'p' with binding 'b' denied request: no"),
            "Do what the policy requires, or exempt the pods from it; then ",
            "kubectl get mutatingadmissionpolicies p -o yaml",
        ),
        (
            format!("{pods}violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false"),
            "Change the pods so that they meet the Pod Security level of their namespace, or the level; then ",
            "kubectl get namespace shop --show-labels",
        ),
        (
            format!("{pods}maximum cpu usage per Container is 1, but limit is 2"),
            "Change what prevents it, or the pods, so that they are admitted; then ",
            "kubectl -n shop describe deploy/web",
        ),
    ] {
        let owner = IncompleteOwner {
            namespace: "shop".into(),
            owner: Owner::new(OwnerKind::Deployment, "web"),
            missing: 1,
            message: message.clone(),
        };
        let causes = Situation { incomplete: vec![owner], ..Situation::default() }.causes();
        let [cause] = <[Cause; 1]>::try_from(causes).unwrap();
        assert!(cause.advice.starts_with(advice), "{message}: {cause:#?}");
        assert_eq!(cause.commands, [command], "{message}");
    }
}
