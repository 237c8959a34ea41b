//! Causes, by the status of an object.

use serde_json::{Value, json};

use super::*;
use crate::testing::objects::{requested, running, stopping, with_status};

fn with_condition(phase: &str, type_: &str, status: &str, reason: &str, message: &str) -> NodeMaintenance {
    let condition = json!({"type": type_, "status": status, "reason": reason, "message": message,
        "observedGeneration": 1, "lastTransitionTime": "2026-01-02T03:04:05Z"});
    let mut object = with_status("n1", json!({"phase": phase, "conditions": [condition]}));
    if reason == "TimedOut" {
        object.spec.drain = serde_json::from_value(json!({"timeoutSeconds": 60})).unwrap();
    }
    object
}

fn now() -> Timestamp {
    "2026-01-02T03:07:25Z".parse().unwrap()
}

fn only(maintenance: &NodeMaintenance) -> Cause {
    let mut causes = causes(maintenance, &Reconcilers::default(), &ClusterFacts::default(), "kubectl", now());
    assert_eq!(causes.len(), 1, "{causes:?}");
    causes.remove(0)
}

#[test]
fn a_drained_node_whose_roll_nobody_runs_waits_for_somebody() {
    let of_roll = |state: Value| {
        let mut object = with_status("n1", json!({"phase": "Succeeded", "evictionPods": 3}));
        object.metadata.labels = Some([("kubectl-nm.dev/roll".to_owned(), "k2".to_owned())].into());
        let annotation = ("kubectl-nm.dev/roll-state".to_owned(), state.to_string());
        object.metadata.annotations = Some([annotation].into());
        let facts = ClusterFacts::of_maintenances([&object]);
        causes(&object, &Reconcilers::default(), &facts, "kubectl", now())
    };
    let runner = |at: &str| json!({"revision": 3, "runner": {"id": "a", "who": "ann@laptop", "at": at}});
    for state in [json!({"revision": 3}), runner("2026-01-02T03:04:05Z")] {
        let cause = of_roll(state).remove(0);
        assert_eq!(cause.what, ["Nobody runs roll k2, so the node stays in maintenance."]);
        assert_eq!(cause.commands[1..], ["kubectl nm roll resume k2", "kubectl nm stop n1"]);
        assert!(!cause.passes());
    }
    assert_eq!(of_roll(runner("2026-01-02T03:07:20Z")), []);
    let aborted = of_roll(json!({"revision": 3, "paused": true, "aborted": "bob@desk"})).remove(0);
    assert_eq!(
        aborted.what,
        ["bob@desk aborted roll k2, and nobody finishes the node: it stays in maintenance."]
    );
    assert_eq!(aborted.commands, ["kubectl nm stop n1", "kubectl nm roll resume k2"]);
}

#[test]
fn a_node_of_a_paused_roll_waits_for_its_roll_to_be_resumed_by_whoever_reads_who_has_paused_it() {
    let of_roll = |object: NodeMaintenance, pause: &Value, is_run: bool| {
        let mut object = object;
        let at = if is_run { "2026-01-02T03:07:20Z" } else { "2026-01-02T03:04:05Z" };
        let state = json!({"revision": 3, "paused": true, "pause": pause,
            "runner": {"id": "a", "who": "ann@laptop", "at": at}});
        object.metadata.labels = Some([("kubectl-nm.dev/roll".to_owned(), "k2".to_owned())].into());
        object.metadata.annotations =
            Some([("kubectl-nm.dev/roll-state".to_owned(), state.to_string())].into());
        let facts = ClusterFacts::of_maintenances([&object]);
        causes(&object, &Reconcilers::default(), &facts, "kubectl", now()).remove(0)
    };
    let pause = json!({"by": "bob@desk", "at": "2026-01-02T03:05:00Z"});
    let suspended = |phase: &str, reason: &str| with_condition(phase, "Suspended", "True", reason, "");
    let drained = || with_status("n1", json!({"phase": "Succeeded", "evictionPods": 3}));
    for (object, sentence) in [
        (suspended("Pending", "Planned"), "The maintenance starts when its turn in roll k2 comes."),
        (
            suspended("Running", "Paused"),
            "The maintenance is paused: no pod is evicted, and the node stays cordoned.",
        ),
        (drained(), "No further node, command or Job is started until the roll is resumed."),
    ] {
        let cause = of_roll(object.clone(), &pause, true);
        let paused = "bob@desk paused roll k2 at 2026-01-02 03:05:00 UTC.";
        assert!(cause.what.len() == 2 && cause.what.contains(&paused.to_owned()), "{cause:?}");
        assert!(cause.what.contains(&sentence.to_owned()), "{cause:?}");
        assert_eq!(
            (cause.commands.join(" "), cause.passes()),
            ("kubectl nm roll resume k2".to_owned(), true)
        );
        let unknown = of_roll(object, &Value::Null, true);
        assert!(unknown.what.contains(&"Roll k2 is paused.".to_owned()), "{unknown:?}");
    }
    let nobody = of_roll(drained(), &pause, false);
    assert_eq!(nobody.what.len(), 2, "nobody runs it, and it is paused: {nobody:?}");
    assert!(!nobody.passes());
}

#[test]
fn a_cause_that_concerns_the_whole_node_has_its_own_command() {
    let patch =
        |drain: &str| format!("kubectl patch nm n1 --type=merge -p '{{\"spec\":{{\"drain\":{drain}}}}}'");
    for (phase, reason, command, passes) in [
        ("Pending", "MaxUnavailable", "kubectl get nm -o wide".to_owned(), true),
        ("Pending", "QuorumAtRisk", "kubectl get nm -o wide".to_owned(), false),
        ("Pending", "LeaseHeld", "kubectl -n medik8s-leases get lease node-n1 -o yaml".to_owned(), false),
        ("Failed", "LeaseLost", "kubectl -n medik8s-leases get lease node-n1 -o yaml".to_owned(), false),
        ("Failed", "CordonContested", "kubectl get node n1 -o yaml --show-managed-fields".to_owned(), false),
        ("Failed", "DuplicateMaintenance", "kubectl delete nm n1".to_owned(), false),
        ("Failed", "NodeNotFound", "kubectl delete nm n1".to_owned(), false),
        ("Failed", "TimedOut", patch("{\"timeoutSeconds\":0}"), false),
        ("Failed", "InvalidDrain", "kubectl edit nm n1".to_owned(), false),
        ("Failed", "MissingAccess", "kubectl nm doctor".to_owned(), false),
        ("Failed", "SomethingNewer", "kubectl describe nm n1".to_owned(), false),
    ] {
        let cause = only(&with_condition(phase, "Drained", "False", reason, "it is so"));
        assert_eq!(
            (cause.passes(), cause.since.map(|at| at.to_string())),
            (passes, Some("2026-01-02T03:04:05Z".into()))
        );
        let what = if reason == "TimedOut" { "The drain timed out after 60 s." } else { "It is so." };
        // Its advice has two ways.
        let stop = (reason == "CordonContested").then(|| "kubectl nm stop n1".to_owned());
        let commands = std::iter::once(command).chain(stop).collect();
        assert_eq!((cause.what, cause.commands), (vec![what.to_owned()], commands), "{reason}");
        assert!(!cause.advice.is_empty() && !cause.advice.ends_with('.'), "{reason}");
    }
    let mut degraded = with_condition("Running", "Degraded", "True", "MissingAccess", "no access");
    let user = "system:serviceaccount:ops:nm-reconciler";
    let forbidden = json!({"user": user, "verb": "list", "resource": "pods"});
    degraded.status.as_mut().unwrap().forbidden = serde_json::from_value(forbidden).unwrap();
    let cause = only(&degraded);
    let command = format!("kubectl auth can-i --list --as={user}");
    assert_eq!((cause.what, cause.commands), (vec!["No access.".to_owned()], vec![command]));
}

#[test]
fn an_invalid_selector_is_corrected_in_the_field_that_has_it() {
    let mut object = with_condition("Failed", "Drained", "False", "InvalidDrain", "it is so");
    let selector = json!({"matchExpressions": [{"key": "app", "operator": "Near"}]});
    let drain = json!({"waitForCompletion": {"podSelector": selector}});
    object.spec.drain = serde_json::from_value(drain).unwrap();
    let cause = only(&object);
    assert!(cause.advice.starts_with("Correct waitForCompletion in spec.drain"), "{cause:?}");
    assert_eq!(cause.commands, ["kubectl edit nm n1"]);
}

#[test]
fn pods_that_the_drain_waits_for_are_a_cause_that_passes() {
    let completing = |until: Option<&str>| {
        let pod = json!({"namespace": "shop", "name": "import-x", "reason": "Completing", "since": "2026-01-02T03:04:05Z",
                "until": until});
        let mut status = running(40, &[]);
        status["waitingPods"] = json!([pod]);
        only(&with_status("n1", status))
    };
    let cause = completing(None);
    assert_eq!(cause.what, ["The drain waits for pods to terminate on their own (Completing)."]);
    assert_eq!((cause.passes(), cause.pods), (true, vec!["shop/import-x".to_owned()]));
    assert_eq!(cause.since.map(|at| at.to_string()), Some("2026-01-02T03:04:05Z".into()));
    let patch = r#"kubectl patch nm n1 --type=merge -p '{"spec":{"drain":{"waitForCompletion":null}}}'"#;
    assert_eq!(cause.commands, [patch]);
    let limited = "The drain waits for pods to terminate on their own (Completing), and evicts them at \
                   2026-01-02T04:00:00Z.";
    let cause = completing(Some("2026-01-02T04:00:00Z"));
    assert_eq!(cause.what, [limited]);
    assert!(
        cause.advice.ends_with("to wait for as long as the pods need, remove the time limit"),
        "{cause:#?}"
    );
    let patch = r#"kubectl patch nm n1 --type=merge -p '{"spec":{"drain":{"waitForCompletion":{"timeoutSeconds":0}}}}'"#;
    assert_eq!(cause.commands, [patch]);
}

#[test]
fn a_hook_keeps_the_pods_that_the_drain_waits_for_and_is_named_beside_missing_access() {
    let pod = json!({"namespace": "shop", "name": "import-x", "reason": "Completing", "since": "2026-01-02T03:04:05Z",
        "until": "2026-01-02T04:00:00Z"});
    let mut object = with_condition("Running", "Degraded", "True", "MissingAccess", "no access");
    let status = object.status.as_mut().unwrap();
    status.waiting_pods = serde_json::from_value(json!([pod])).unwrap();
    let hooks = json!([{"name": "backup", "owner": "ops"}]);
    status.hold = serde_json::from_value(json!({"since": "2026-01-02T03:04:05Z", "hooks": hooks})).unwrap();
    let found = causes(&object, &Reconcilers::default(), &ClusterFacts::default(), "kubectl", now());
    let what: Vec<&str> = found.iter().map(|cause| cause.what[0].as_str()).collect();
    assert_eq!(
        what,
        [
            "No access.",
            "No pod is evicted yet: the maintenance waits for hook backup (owner: ops).",
            "The drain waits for pods to terminate on their own (Completing), and evicts them at 2026-01-02T04:00:00Z, or once the \
             hooks are removed, if that is later."
        ]
    );
    assert!(found[2].commands[0].contains("{\"timeoutSeconds\":0}"), "{:?}", found[2].commands);
    // Later, these pods are not listed any more.
    object.spec.drain = serde_json::from_value(json!({"waitForCompletion": {"timeoutSeconds": 60}})).unwrap();
    let status = object.status.as_mut().unwrap();
    status.waiting_pods = None;
    let cordoned = json!({"type": "Cordoned", "status": "True", "reason": "Cordoned", "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z"});
    status.conditions.push(serde_json::from_value(cordoned).unwrap());
    let found = causes(&object, &Reconcilers::default(), &ClusterFacts::default(), "kubectl", now());
    assert_eq!(
        found[1].what[1],
        "Once nothing holds the drain, it also evicts pods that were to terminate on their own: their time ended at 2026-01-02T03:05:05Z. A \
         Job counts an evicted pod as failed, and may fail for good."
    );
}

#[test]
fn pods_that_came_back_are_a_cause_that_passes_with_what_to_change_in_their_workload() {
    let of = |name: &str, deployment: &str| {
        json!({"namespace": "kube-system", "name": name, "since": "2026-01-02T03:04:05Z",
            "workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment}})
    };
    let pod = |name: &str| of(name, "cilium-operator");
    // nm-reconciler and the program that runs a roll have to tolerate the cordon.
    let mut runner = of("r", "nm-roll-kernel");
    runner["namespace"] = json!("node-maintenance-rolls");
    let pods = [pod("a"), of("c", "nm-reconciler"), runner, pod("b")];
    let cause = only(&with_status("n1", json!({"phase": "Succeeded", "returnedPods": pods})));
    assert_eq!(
        cause.what,
        [
            "The pods of deploy/cilium-operator in kube-system tolerate the cordon: they returned to the node and stay."
        ]
    );
    assert_eq!(cause.pods, ["kube-system/a", "kube-system/b"]);
    assert_eq!(cause.outlook, Outlook::Stays);
    assert_eq!(cause.commands, ["kubectl -n kube-system edit deploy/cilium-operator"]);
}

#[test]
fn the_medik8s_operator_reports_by_its_last_error() {
    let failed = with_status("n1", json!({"phase": "Failed", "lastError": "nodes \"n1\" not found"}));
    assert_eq!(only(&failed).what, ["Nodes \"n1\" not found."]);
    assert_eq!(only(&with_status("n1", json!({"phase": "Failed"}))).what, ["The status contains no reason."]);
}

#[test]
fn a_maintenance_that_no_reconciler_handles_is_reported_since_when() {
    let waiting = only(&requested("n1"));
    assert_eq!(waiting.what, ["nm-reconciler has not started the maintenance yet."]);
    assert_eq!(waiting.since.map(|at| at.to_string()), Some("2026-01-02T03:04:05Z".into()));
    assert_eq!(
        only(&stopping(requested("n1"))).what,
        ["nm-reconciler has not returned the node to service yet."]
    );
    assert!(!waiting.passes());
    let soon = causes(
        &requested("n1"),
        &Reconcilers::default(),
        &ClusterFacts::default(),
        "kubectl",
        "2026-01-02T03:04:19Z".parse().unwrap(),
    );
    assert!(soon[0].passes(), "a moment is no problem");
    let mut held = stopping(requested("n1"));
    held.metadata.finalizers = Some(vec!["example.com/audit".to_owned()]);
    let cause = only(&held);
    assert_eq!(
        cause.what,
        ["The node is back in service, but a finalizer keeps the object: example.com/audit."]
    );
    assert_eq!(
        cause.advice,
        "The owner of its finalizer must remove it; remove it yourself only if its owner no longer exists"
    );
    assert_eq!(cause.commands, ["kubectl edit nm n1"]);
}

#[test]
fn blocked_pods_are_no_causes_once_it_stops() {
    let mut held = stopping(with_status("n1", running(40, &[("cart-0", "nothing replaces it")])));
    held.metadata.finalizers = Some(vec!["example.com/audit".to_owned()]);
    assert_eq!(
        only(&held).what,
        ["The node is back in service, but a finalizer keeps the object: example.com/audit."]
    );
}

#[test]
fn pods_that_are_blocked_by_the_same_thing_are_one_cause() {
    let budget =
        |name: &str| format!("The disruption budget {name} needs 3 healthy pods and has 3 currently");
    let (cart, web) = (budget("cart"), budget("web"));
    let mut status = running(40, &[("cart-0", &cart), ("web-0", &web), ("cart-1", &cart), ("cart-2", &cart)]);
    status["blockedPods"][2]["since"] = json!("2026-01-01T00:00:00Z");
    let found = causes(
        &with_status("n1", status),
        &Reconcilers::default(),
        &ClusterFacts::default(),
        "kubectl",
        now(),
    );
    assert_eq!(found.len(), 2, "{found:#?}");
    assert_eq!(found[0].what, ["PDB shop/cart needs 3, has 3."]);
    assert_eq!(found[0].pods, ["shop/cart-0", "shop/cart-1", "shop/cart-2"]);
    assert_eq!(
        (found[0].since.map(|at| at.to_string()), found[0].refusals),
        (Some("2026-01-01T00:00:00Z".into()), 9)
    );
    assert_eq!(found[0].commands, ["kubectl -n shop describe pdb cart"]);
    assert_eq!(found[1].pods, ["shop/web-0"]);
}

#[test]
fn similarly_blocked_pods_have_a_few_commands() {
    let names: Vec<String> = (0..9).map(|at| format!("p{at}")).collect();
    let pods: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "nothing replaces it")).collect();
    let mut status = running(0, &pods);
    for pod in status["blockedPods"].as_array_mut().into_iter().flatten() {
        pod["reason"] = json!("Unmanaged");
    }
    let cause = only(&with_status("n1", status));
    assert_eq!(
        cause.what,
        [
            "shop/p0, shop/p1, shop/p2 and 6 more have no controller that would replace them, and --force=false keeps them."
        ]
    );
    let delete = |pod: &str| format!("kubectl -n shop delete pod {pod}");
    assert_eq!(cause.commands, ["p0", "p1", "p2", "p3", "p4"].map(delete));
}

#[test]
fn what_blocks_pods_by_their_spec_or_state_has_the_pods_as_its_subject() {
    for (reason, details, expected) in [
        (
            "Unmanaged",
            json!({}),
            "shop/bare has no controller that would replace it, and --force=false keeps it.",
        ),
        (
            "LocalStorage",
            json!({}),
            "shop/bare has emptyDir volumes, and --delete-emptydir-data=false keeps it.",
        ),
        (
            "Finalizers",
            json!({"finalizers": ["a/b", "c/d"]}),
            "shop/bare has terminated, and finalizers keep it: a/b, c/d.",
        ),
        (
            "NodeNotReady",
            json!({"node": "n1"}),
            "shop/bare is terminating, but node n1 is not Ready: no kubelet confirms that.",
        ),
        (
            "NamespaceTerminating",
            json!({}),
            "The namespace of shop/bare is being deleted, together with the pod.",
        ),
    ] {
        let mut status = running(0, &[("bare", "has something")]);
        let pod = &mut status["blockedPods"][0];
        (pod["reason"], pod["budget"]) = (json!(reason), json!(null));
        for (field, value) in details.as_object().unwrap() {
            pod[field] = value.clone();
        }
        assert_eq!(only(&with_status("n1", status)).what, [expected]);
    }
}

#[test]
fn a_drain_that_failed_says_when_it_failed_and_not_since_when_its_node_is_cordoned() {
    let conditions = json!([
        {"type": "Cordoned", "status": "True", "reason": "Cordoned", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z"},
        {"type": "Drained", "status": "False", "reason": "TimedOut", "message": "7 of 8 pods are gone",
            "lastTransitionTime": "2026-01-02T03:04:05Z"},
    ]);
    let failed = |limit: i64, paused: Option<i64>, written: &str| {
        let mut object = with_status(
            "n1",
            json!({"phase": "Failed", "conditions": conditions, "lastUpdate": written, "pausedSeconds": paused,
                "lastError": "the drain timed out after 60 s, 1 pod is left; pod shop/cart-0: no"}),
        );
        object.spec.drain = Some(serde_json::from_value(json!({"timeoutSeconds": limit})).unwrap());
        let cause = only(&object);
        (cause.what[0].clone(), cause.since.unwrap().to_string(), cause.advice)
    };
    let text = || String::from("The drain timed out after 60 s.");
    // Later statuses count pods that leave afterwards.
    let advice = || String::from("Remove the timeout, and the drain continues");
    for (paused, since) in [(None, "2026-01-02T03:05:05Z"), (Some(30), "2026-01-02T03:05:35Z")] {
        assert_eq!(failed(60, paused, "2026-01-02T03:09:00Z"), (text(), since.into(), advice()));
    }
    let (removed, since, advice) = failed(0, None, "2026-01-02T03:06:00Z");
    assert_eq!((removed.as_str(), since.as_str()), ("The drain timed out.", "2026-01-02T03:06:00Z"));
    assert_eq!(advice, "The timeout has been removed: the drain continues once nm-reconciler sees that");
}

#[test]
fn a_drain_that_failed_and_is_paused_continues_once_it_is_resumed_too() {
    let mut object = with_condition("Failed", "Drained", "False", "TimedOut", "7 of 8 pods are gone");
    assert_eq!(only(&object).commands.len(), 1);
    object.spec.suspend = true;
    let cause = only(&object);
    assert_eq!(cause.advice, "Remove the timeout and resume the maintenance, and the drain continues");
    assert_eq!(cause.commands[1..], ["kubectl nm resume n1"]);
}

#[test]
fn a_draining_maintenance_has_no_cause_and_unlisted_pods_are_counted() {
    for status in [running(40, &[]), json!({"phase": "Succeeded"})] {
        assert_eq!(
            causes(
                &with_status("n1", status),
                &Reconcilers::default(),
                &ClusterFacts::default(),
                "kubectl",
                now()
            ),
            []
        );
    }
    let mut status: Value = running(40, &[("a", "m")]);
    status["podCounts"]["blocked"] = json!(7);
    assert_eq!(unlisted(&with_status("n1", status)), 6);
    assert_eq!(unlisted(&requested("n1")), 0);
}

#[test]
fn a_cause_is_reported_once_by_the_pods_or_by_the_whole_maintenance() {
    let mut object = with_condition("Running", "Degraded", "True", "MissingAccess", "1 pod is blocked");
    let access = json!({"user": "u", "verb": "create", "resource": "pods/eviction"});
    let pod = json!({"namespace": "shop", "name": "p", "reason": "Forbidden", "message": "no access",
        "since": "2026-01-02T03:04:05Z", "attempts": 1, "forbidden": access});
    object.status.as_mut().unwrap().blocked_pods = serde_json::from_value(json!([pod])).unwrap();
    let cause = only(&object);
    let command = "kubectl auth can-i create pods --subresource=eviction -n shop --as=u";
    assert_eq!((cause.what, cause.commands), (vec!["No access.".to_owned()], vec![command.to_owned()]));
}

#[test]
fn a_status_that_was_written_without_facts_is_explained_by_its_messages() {
    let numbers = "The disruption budget cart needs 3 healthy pods and has 3 currently";
    let mut status = running(40, &[("cart-0", numbers)]);
    status["blockedPods"][0].as_object_mut().unwrap().remove("budget");
    let cause = only(&with_status("n1", status));
    assert_eq!(
        (cause.what, cause.commands),
        (vec![format!("{numbers}.")], vec!["kubectl -n shop get pdb".to_owned()])
    );
}

#[test]
fn a_drain_that_timed_out_names_the_hooks_that_it_was_waiting_for() {
    let failed = |hold: Value| {
        let mut object = with_condition("Failed", "Drained", "False", "TimedOut", "0 of 8 pods are gone");
        object.status.as_mut().unwrap().hold = serde_json::from_value(hold).unwrap();
        only(&object)
    };
    let patch = r#"kubectl patch nm n1 --type=merge -p '{"spec":{"drain":{"timeoutSeconds":0}}}'"#;
    let since = "2026-01-02T03:04:05Z";
    let cause = failed(json!({"since": since, "hooks": [{"name": "flush", "owner": "cache-team"}]}));
    assert_eq!(cause.what, ["The drain timed out after 60 s, waiting for hook flush (owner: cache-team)."]);
    assert_eq!(cause.commands, ["kubectl annotate nm n1 pre-drain.hook.kubectl-nm.dev/flush-", patch]);
    let cause = failed(json!({"since": since, "loadBalancersUntil": "2026-01-02T03:09:05Z"}));
    assert_eq!(
        cause.what,
        ["The drain timed out after 60 s, waiting for load balancers until 2026-01-02T03:09:05Z."]
    );
    assert_eq!(cause.commands, [patch]);
}

#[test]
fn a_failed_drain_waits_for_no_pod() {
    let pod = json!({"namespace": "shop", "name": "import-x", "reason": "Completing", "since": "2026-01-02T03:04:05Z"});
    let mut object = with_condition("Failed", "Drained", "False", "TimedOut", "7 of 8 pods are gone");
    object.status.as_mut().unwrap().waiting_pods = serde_json::from_value(json!([pod])).unwrap();
    let found = causes(&object, &Reconcilers::default(), &ClusterFacts::default(), "kubectl", now());
    assert_eq!(
        found[1].what,
        ["When the drain failed, it waited for pods to terminate on their own (Completing)."]
    );
}

#[test]
fn pods_that_wait_because_of_the_order_are_a_cause_that_passes() {
    let pod = |name: &str, ahead: i32| json!({"namespace": "shop", "name": name, "reason": "Order", "since": "2026-01-02T03:04:05Z", "ahead": ahead});
    let mut status = running(40, &[]);
    status["waitingPods"] = json!([pod("db-0", 1), pod("db-1", 4)]);
    let cause = only(&with_status("n1", status.clone()));
    assert_eq!(
        cause.what,
        [
            "The drain evicts pods in order (Order): the next of these pods is evicted after 1 other pod of the node."
        ]
    );
    assert_eq!((cause.passes(), cause.pods), (true, vec!["shop/db-0".to_owned(), "shop/db-1".to_owned()]));
    assert_eq!(cause.commands, ["kubectl nm watch n1"]);
    assert_eq!(cause.advice, "Wait until the pods before them have left; this shows how far they are");
    status["blockedPods"] = json!([{"namespace": "shop", "name": "bare", "reason": "Unmanaged", "message": "",
        "since": "2026-01-02T03:04:05Z", "attempts": 1}]);
    let object = with_status("n1", status);
    let found = causes(&object, &Reconcilers::default(), &ClusterFacts::default(), "kubectl", now());
    let ordered = found.iter().find(|found| found.what == cause.what).unwrap();
    assert_eq!(
        ordered.advice,
        "If one of the blocked pods is before them, they stay until it has left; this shows how far they are"
    );
}
