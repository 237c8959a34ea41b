//! Drains that do not continue: they have failed, nobody leads, or a hook holds them.

use serde_json::{Value, json};

use super::*;
use crate::explain::cluster_facts::{FactsToRead, ReadPod};
use crate::leader::Leadership;
use crate::testing::objects::timed_out;

#[test]
fn a_drain_that_failed_says_what_blocked_it_and_what_blocks_it_now() {
    let failed = |situation: &Situation, suspend: bool| {
        let mut object = timed_out("n1", blocked_status("shop"));
        object.spec.suspend = suspend;
        explained(&object, &situation.facts())
    };
    let advice = |causes: &[Cause]| causes[0].advice.clone();
    let still = failed(&beside(crashing("web-2", "n2", 1, "Error")), false);
    assert_eq!(still[1].what[0], "When the drain failed: PDB shop/web needs 2, has 2.");
    assert!(still[1].what[1].contains("keeps exiting") && !still[1].passes(), "{still:#?}");
    assert_eq!(
        advice(&still),
        "First fix what blocks the pods; then remove the timeout, and the drain continues"
    );
    let allows = edited(min_available(json!(2), (3, 2, 3)), "/status/disruptionsAllowed", json!(1));
    let over = failed(&Situation { budget: allows, ..Situation::default() }, false);
    assert_eq!(over[1].outlook, Outlook::AwaitsDrain);
    assert_eq!((over[1].advice.as_str(), over[1].commands.len()), ("", 0), "nothing is retried");
    assert_eq!(advice(&over), "What blocked the drain is over: remove the timeout, and the drain continues");
    let paused = failed(&beside(crashing("web-2", "n2", 1, "Error")), true);
    let both = "First fix what blocks the pods; then remove the timeout and resume the maintenance, and the drain continues";
    assert_eq!(advice(&paused), both);
}

#[test]
fn a_pod_that_its_deployment_will_replace_first_once_a_failed_drain_continues_needs_nothing_else() {
    let causes_with = |granted: Option<bool>, tried: Value| {
        let mut status = blocked_status("shop");
        status["blockedPods"][0]["surge"] = tried;
        let mut object = timed_out("n1", status);
        object.spec.drain = Some(parse(&json!({"surge": "WhenBlocked", "timeoutSeconds": 60})));
        let facts = ClusterFacts { is_surge_granted: granted, ..never("minAvailable", json!(1), 1).facts() };
        explained(&object, &facts)
    };
    let causes = |granted| causes_with(granted, Value::Null);
    let surged = causes(Some(true));
    let what = "The budget can never allow an eviction: minAvailable is 1, and it has 1 pod. While the drain goes on, its \
                Deployment replaces its pod before it leaves (spec.drain.surge).";
    assert_eq!(surged[1].what[1], what);
    assert_eq!((surged[1].advice.as_str(), surged[1].commands.len()), ("", 0), "the budget stays as it is");
    assert_eq!(surged[0].advice, "Remove the timeout, and the drain continues");
    let needs = "Let the Deployment replace its only pod before the pod leaves, if other nodes have room (`kubectl nm plan n1 --surge` shows that); this needs `kubectl nm install --grant surge` first";
    assert_eq!(causes(Some(false))[1].advice, needs);
    let unless = "Let the Deployment replace its only pod before the pod leaves, if other nodes have room (`kubectl nm plan n1 --surge` shows that); unless it is granted already, this needs `kubectl nm \
                  install --grant surge`";
    assert_eq!(causes(None)[1].advice, unless);
    let tried = causes_with(Some(true), json!({"reason": "Unknown"}));
    assert_eq!(tried[1].commands, ["kubectl -n shop edit pdb web"], "nm-reconciler could not replace it");
}

/// The causes of a drain that timed out after 60 s while it waited for pods to terminate, for 30 s, for longer or for as long as they need.
fn awaiting(completion: &Value, is_blocked: bool) -> Vec<Cause> {
    awaiting_with(completion, is_blocked, Value::Null)
}

/// The same if this holds the drain.
fn awaiting_with(completion: &Value, is_blocked: bool, hold: Value) -> Vec<Cause> {
    let mut status = if is_blocked { blocked_status("shop") } else { json!({}) };
    status["waitingPods"] = json!([
        {"namespace": "shop", "name": "import-x", "reason": "Completing", "since": "2026-01-02T03:04:05Z"},
        {"namespace": "shop", "name": "cart-0", "reason": "Order", "since": "2026-01-02T03:04:05Z", "ahead": 2},
    ]);
    status["hold"] = hold;
    let mut object = timed_out("n1", status);
    let cordoned = json!({"type": "Cordoned", "status": "True", "reason": "Cordoned", "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z"});
    object.status.as_mut().unwrap().conditions.push(parse(&cordoned));
    object.spec.drain = Some(parse(&json!({"timeoutSeconds": 60, "waitForCompletion": completion})));
    explained(&object, &beside(crashing("web-2", "n2", 1, "Error")).facts())
}

#[test]
fn a_drain_that_failed_says_that_it_evicts_what_it_waited_for_once_it_continues() {
    let patch =
        |drain: &str| format!("kubectl patch nm n1 --type=merge -p '{{\"spec\":{{\"drain\":{drain}}}}}'");
    let both = patch("{\"timeoutSeconds\":0,\"waitForCompletion\":{\"timeoutSeconds\":0}}");
    let found = awaiting(&json!({"timeoutSeconds": 30}), false);
    let unless = "the time limit of the pods that are to terminate on their own, unless they may be evicted; then remove the timeout, and \
                  the drain continues";
    assert_eq!(found[0].advice, format!("Remove {unless}"));
    assert_eq!(found[0].commands, [both.as_str()], "nobody who copies it loses a Job");
    let waited = "When the drain failed, it waited for pods to terminate on their own (Completing).";
    let at_once = "Their time ended at 2026-01-02T03:04:35Z: a drain that continues evicts them at once.";
    assert_eq!(found[1].what, [format!("{waited} {at_once}")]);
    let lost = "A Job counts an evicted pod as failed, and may fail for good.";
    let only = "To evict them all the same, remove only the timeout of the drain";
    assert_eq!(found[1].advice, format!("{lost} {only}"));
    assert_eq!(found[1].commands, [patch("{\"timeoutSeconds\":0}")]);
    let later = awaiting(&json!({"timeoutSeconds": 36000}), false);
    assert!(
        later[1].what[0]
            .ends_with("Their time ends at 2026-01-02T13:04:05Z: a drain that continues evicts them then."),
        "{later:#?}"
    );
    assert_eq!(later[0].commands, [both.as_str()]);
    let blocked = awaiting(&json!({"timeoutSeconds": 30}), true);
    let fix = format!("First fix what blocks the pods; then remove {unless}");
    assert_eq!(blocked[0].advice, fix);
    let flush = json!({"since": "2026-01-02T03:04:05Z", "hooks": [{"name": "flush", "owner": "cache-team"}]});
    let held = awaiting_with(&json!({"timeoutSeconds": 30}), false, flush);
    let removes = "kubectl annotate nm n1 pre-drain.hook.kubectl-nm.dev/flush-";
    assert_eq!(held[0].commands, [removes, both.as_str()], "the Jobs are kept, too");
    let unlimited = awaiting(&json!({}), false);
    assert_eq!(unlimited[0].commands, [patch("{\"timeoutSeconds\":0}")]);
    assert_eq!(unlimited[1].what, [waited]);
    // Not only pods of Jobs are waited for.
    let selected = awaiting(&json!({"podSelector": {"matchLabels": {"app": "import"}}}), false);
    assert!(
        selected[1].advice.starts_with("An evicted pod does not finish: a Job counts it as failed"),
        "{selected:#?}"
    );
    assert_eq!(
        selected[2].what,
        ["When the drain failed, pods waited in order (Order) for those before them."]
    );
    assert_eq!(selected[2].commands, ["kubectl nm plan n1"]);
}

#[test]
fn a_drain_that_failed_while_pods_waited_for_their_turn_says_what_will_block_them() {
    let object = timed_out("n1", serde_json::to_value(waiting_for_their_turn().status).unwrap());
    let continues = "emove the timeout, and the drain continues";
    let stuck = explained(&object, &beside(crashing("web-2", "n2", 1, "Error")).facts());
    assert_eq!(stuck[0].advice, format!("First fix what blocks the pods; then r{continues}"));
    assert_eq!(stuck[1].commands, ["kubectl -n shop logs web-2 -c app --previous"]);
    let starting = beside(pod("web-2", "", json!({"phase": "Pending"})));
    assert_eq!(explained(&object, &starting.facts())[0].advice, format!("R{continues}"));
}

#[test]
fn while_nobody_leads_nothing_is_retried_and_what_is_stuck_keeps_its_remedy() {
    let allows = edited(min_available(json!(2), (3, 2, 3)), "/status/disruptionsAllowed", json!(1));
    let over = Situation { budget: allows, ..Situation::default() }.facts();
    let created =
        edited(waiting("ContainerCreating", ""), "/status/startTime", json!("2026-01-02T03:07:00Z"));
    let (blocked, waiting) = (with_status("n1", blocked_status("shop")), waiting_for_their_turn());
    for (object, facts, has_remedy) in [
        (&blocked, over.clone(), false),
        (&waiting, over, false),
        (&waiting, ClusterFacts::default(), false),
        (&waiting, beside(created).facts(), false),
        (&waiting, beside(crashing("web-2", "n2", 1, "Error")).facts(), true),
        (&waiting, beside(pending("Unschedulable", UNFIT)).facts(), true),
        (&waiting, beside(running(json!({"started": true}))).facts(), true),
    ] {
        let advice = |leadership| {
            let reconcilers = Reconcilers { leadership, ..Reconcilers::default() };
            let mut causes = causes(object, &reconcilers, &facts, "kubectl", NOW.parse().unwrap());
            let cause = causes.remove(0);
            (cause.advice, cause.commands)
        };
        let nobody_leads = advice(Leadership::Lapsed(NOW.parse().unwrap()));
        let expected = if has_remedy { advice(Leadership::Held) } else { (String::new(), Vec::new()) };
        assert_eq!(nobody_leads, expected);
    }
}

#[test]
fn no_pod_is_to_be_deleted_before_the_hook_that_holds_its_drain_is_removed() {
    let pod = |name: &str, reason: &str| {
        json!({"namespace": "shop", "name": name, "reason": reason, "message": "m", "since": "2026-01-02T03:04:05Z",
            "attempts": 0})
    };
    let pods = [pod("bare", "Unmanaged"), pod("cache", "LocalStorage")];
    let hook = |name: &str| json!({"name": name, "owner": "dba"});
    let drain = |phase: &str, hold: Value| {
        let timed_out = json!([{"type": "Drained", "status": "False", "reason": "TimedOut", "message": "it took too long",
            "lastTransitionTime": "2026-01-02T03:05:05Z"}]);
        let conditions = if phase == "Failed" { timed_out } else { json!([]) };
        let status = json!({"phase": phase, "blockedPods": pods, "podCounts": {"blocked": 2}, "hold": hold,
            "conditions": conditions});
        explained(&with_status("n1", status), &ClusterFacts::default())
    };
    let of_hooks = |hooks: Value| json!({"since": "2026-01-02T03:04:05Z", "hooks": hooks});
    for (phase, hooks, removed) in [
        ("Running", json!([hook("db")]), "Once the hook is removed, delete the pod if "),
        ("Running", json!([hook("db"), hook("mq")]), "Once the hooks are removed, delete the pod if "),
        ("Failed", json!([hook("db")]), "Once the hook is removed, delete the pod if "),
    ] {
        let causes = drain(phase, of_hooks(hooks));
        let [first, bare, cache] = &causes[..] else { panic!("{causes:#?}") };
        assert!(
            first.what[0].contains("hook db (owner: dba)") || first.what[0].contains("hooks db"),
            "{first:#?}"
        );
        assert!(!first.advice.contains("First fix"), "{first:#?}");
        assert!(bare.advice.starts_with(removed) && cache.advice.starts_with(removed), "{causes:#?}");
    }
    let (free, balancers) = (drain("Running", Value::Null), json!({"since": NOW, "loadBalancersUntil": NOW}));
    assert!(free[0].advice.starts_with("Delete the pod if "), "{free:#?}");
    let delayed = drain("Running", balancers);
    assert!(delayed[1].advice.starts_with("Delete the pod if "), "nobody removes a hook: {delayed:#?}");
}

#[test]
fn nobody_is_to_wait_for_the_replacement_of_a_pod_without_controller_whose_data_keeps_it() {
    let blocked = |name: &str| {
        json!({"namespace": "shop", "name": name, "reason": "LocalStorage", "message": "m", "since": "2026-01-02T03:04:05Z",
            "attempts": 0})
    };
    let pods = [blocked("bare"), blocked("web-0"), blocked("unread")];
    let object =
        with_status("n1", json!({"phase": "Running", "blockedPods": pods, "podCounts": {"blocked": 3}}));
    let wanted = FactsToRead::of([&object]);
    assert!(wanted.kept.len() == 3 && wanted.has_unplaced, "{wanted:?}");
    let read = |name: PodReference| {
        let pod = match name.name.as_str() {
            "unread" => return (name, Err(Unseen::Forbidden("get pods".into()))),
            "bare" => edited(ready("bare", "n1"), "/metadata/ownerReferences", json!([])),
            owned => ready(owned, "n1"),
        };
        (name, Ok(Some(ReadPod { pod: parse(&pod), warnings: vec![] })))
    };
    let replacements = wanted.kept.into_iter().map(read).collect();
    let causes = explained(&object, &ClusterFacts { replacements, ..ClusterFacts::default() });
    let [bare, others] = &causes[..] else { panic!("{causes:#?}") };
    assert_eq!(
        bare.advice,
        "Delete the pod if you no longer need it or its emptyDir data: no controller replaces it, and a deletion ignores budgets"
    );
    assert_eq!(bare.commands, ["kubectl -n shop delete pod bare"]);
    assert!(
        others.advice.contains("if a controller replaces the pod, wait for its replacement"),
        "{others:#?}"
    );
    assert_eq!(others.commands, ["kubectl -n shop delete pod web-0", "kubectl -n shop delete pod unread"]);
}

#[test]
fn the_finalizer_of_a_pod_that_is_to_be_deleted_is_named() {
    for reason in ["Unmanaged", "LocalStorage"] {
        let blocked = json!({"namespace": "shop", "name": "bare", "reason": reason, "message": "m",
            "since": "2026-01-02T03:04:05Z", "attempts": 0});
        let status = json!({"phase": "Running", "blockedPods": [blocked], "podCounts": {"blocked": 1}});
        let object = with_status("n1", status);
        let read = |name: PodReference| {
            let finalizers = json!(["example.com/hold", "batch.kubernetes.io/job-tracking"]);
            let pod = edited(ready("bare", "n1"), "/metadata/ownerReferences", json!([]));
            let pod = edited(pod, "/metadata/finalizers", finalizers);
            (name, Ok(Some(ReadPod { pod: parse(&pod), warnings: vec![] })))
        };
        let wanted = FactsToRead::of([&object]);
        assert!(!wanted.is_empty());
        let replacements = wanted.kept.into_iter().chain(wanted.bare).map(read).collect();
        let causes = explained(&object, &ClusterFacts { replacements, ..ClusterFacts::default() });
        let [cause] = &causes[..] else { panic!("{causes:#?}") };
        assert_eq!(cause.commands, ["kubectl -n shop delete pod bare"]);
        let said =
            "After a deletion, shop/bare stays Terminating until finalizer example.com/hold is removed.";
        assert_eq!(cause.what[1..], [said], "{reason}");
    }
}

#[test]
fn pods_that_wait_for_their_turn_are_said_to_be_deleted_too_and_when() {
    let mut object = waiting_for_their_turn();
    object.spec.drain = Some(parse(&json!({"deleteAfterSeconds": 60})));
    let starting = beside(pod("web-2", "", json!({"phase": "Pending"}))).facts();
    let deleted = "A pod whose eviction has been refused for 1m is deleted, regardless of disruption budgets (--delete-after), the first by \
                   2026-01-02T03:08:20Z.";
    let found = explained(&object, &starting);
    let said = found.iter().find(|cause| cause.what.iter().any(|what| what == deleted)).unwrap();
    assert!(said.advice.ends_with("To let none be deleted, remove deleteAfterSeconds"), "{said:#?}");
    let last = said.commands.last().unwrap();
    assert!(last.contains("{\"spec\":{\"drain\":{\"deleteAfterSeconds\":0}}}"), "{last}");
    object.spec.drain = None;
    assert!(!format!("{:?}", explained(&object, &starting)).contains("--delete-after"));
}

#[test]
fn a_deletion_can_be_prevented_whatever_keeps_the_pods() {
    let mut object = with_status("n1", blocked_status("shop"));
    object.spec.drain = Some(parse(&json!({"deleteAfterSeconds": 60})));
    let causes = explained(&object, &never("maxUnavailable", json!(0), 3).facts());
    let [cause] = &causes[..] else { panic!("{causes:#?}") };
    assert!(cause.advice.ends_with("To let none be deleted, remove deleteAfterSeconds"), "{cause:#?}");
    assert!(cause.commands.last().unwrap().contains("{\"deleteAfterSeconds\":0}"), "{cause:#?}");
}

/// The cause of two pods that their data keeps on n1, beside n2, which the selector does not select.
fn kept_by_data(edit: impl Fn(Value) -> Value) -> Cause {
    let blocked = |name: &str| {
        json!({"namespace": "shop", "name": name, "reason": "LocalStorage", "message": "m", "since": "2026-01-02T03:04:05Z",
            "attempts": 0})
    };
    let pods = [blocked("web-0"), blocked("web-1")];
    let object =
        with_status("n1", json!({"phase": "Running", "blockedPods": pods, "podCounts": {"blocked": 2}}));
    let read = |name: PodReference| {
        let pod = edit(ready(&name.name, "n1"));
        (name, Ok(Some(ReadPod { pod: parse(&pod), warnings: vec![] })))
    };
    let replacements = FactsToRead::of([&object]).kept.into_iter().map(read).collect();
    let green = edited(node("n2", json!({})), "/metadata/labels", json!({"pool": "green"}));
    let facts = ClusterFacts {
        replacements,
        nodes: Some(Ok([cordoned("n1"), green].iter().map(parse).collect())),
        in_maintenance: ["n1".to_owned()].into(),
        ..ClusterFacts::default()
    };
    let [cause] = <[Cause; 1]>::try_from(explained(&object, &facts)).unwrap();
    cause
}

#[test]
fn a_pod_whose_data_keeps_it_is_not_to_be_deleted_where_nothing_would_replace_it_elsewhere() {
    let deletions = ["kubectl -n shop delete pod web-0", "kubectl -n shop delete pod web-1"];
    let free = kept_by_data(|pod| pod);
    assert!(free.advice.starts_with("Delete the pod if ") && free.commands == deletions, "{free:#?}");
    let pinned = kept_by_data(|pod| edited(pod, "/spec/nodeSelector", json!({"pool": "blue"})));
    let what = "A replacement of shop/web-0, shop/web-1 fits on no other node: their nodeSelector pool=blue selects only n1, which is in \
                maintenance.";
    assert_eq!(pinned.what.last().unwrap(), what);
    assert!(
        pinned.advice.starts_with("Stop the maintenance and keep the pods; or delete the pods: "),
        "{pinned:#?}"
    );
    assert_eq!(pinned.commands, [&["kubectl nm stop n1"], &deletions[..]].concat());
    let fields = json!([{"operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:nodeName": {}}}}]);
    let assigned = kept_by_data(|pod| edited(pod, "/metadata/managedFields", fields.clone()));
    assert!(assigned.what.last().unwrap().ends_with("(nodeName)."), "{assigned:#?}");
    assert_eq!(assigned.commands, ["kubectl nm stop n1"]);
}
