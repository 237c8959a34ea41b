//! What the table cannot show: missing permissions, several namespaces, and pods that are not blocked.

use nm_shared::ForbiddenAccess;
use serde_json::{Value, json};

use super::*;
use crate::explain::cluster_facts::{FactsToRead, ReadPod};
use crate::explain::read_facts;
use crate::testing::fake_server::{cluster, failure};

#[test]
fn what_may_not_be_read_is_said_and_changes_nothing() {
    let forbidden = |access: &str| Unseen::Forbidden(access.to_owned());
    let edit = |edit: &dyn Fn(&mut ClusterFacts)| {
        let base = beside(pending("Unschedulable", UNFIT));
        let mut facts = base.facts();
        edit(&mut facts);
        let mut causes = explained(&with_status("n1", blocked_status("shop")), &facts);
        assert_eq!(causes.len(), 1);
        causes.remove(0)
    };
    let guarded = |facts: &mut ClusterFacts| facts.budgets.remove(&web()).unwrap();
    for (cause, what, unseen, command) in [
        (
            edit(&|facts| {
                let hidden = GuardedPods { pods: Err(forbidden("list pods")), ..guarded(facts) };
                facts.budgets.insert(web(), hidden);
            }),
            None,
            "Not known, because you have no permission to list pods.",
            EXPLAIN,
        ),
        (
            edit(&|facts| {
                let denied = Err(forbidden("get poddisruptionbudgets.policy"));
                let hidden = GuardedPods { budget: denied, ..guarded(facts) };
                facts.budgets.insert(web(), hidden);
            }),
            None,
            "Not known, because you have no permission to get poddisruptionbudgets.policy.",
            EXPLAIN,
        ),
        (
            edit(&|facts| facts.nodes = Some(Err(forbidden("list nodes")))),
            Some(format!("shop/web-2 is Pending, because the scheduler finds no node: {UNFIT}")),
            "Not known, because you have no permission to list nodes.",
            DESCRIBE,
        ),
        (
            edit(&|facts| {
                let failed = Unseen::Failed("list pods".into(), "no answer within 10 s".into());
                let hidden = GuardedPods { pods: Err(failed), ..guarded(facts) };
                facts.budgets.insert(web(), hidden);
            }),
            None,
            "Not known, because the request to list pods failed: no answer within 10 s.",
            BUDGET,
        ),
    ] {
        assert_eq!(cause.what[1..], what.into_iter().collect::<Vec<_>>());
        assert_eq!((cause.unseen, cause.commands), (vec![unseen.to_owned()], vec![command.to_owned()]));
    }
    // The budget was deleted.
    let gone = edit(&|facts| {
        let deleted = GuardedPods { budget: Ok(None), ..guarded(facts) };
        facts.budgets.insert(web(), deleted);
    });
    assert_eq!((gone.what[1].as_str(), gone.passes()), ("The budget does not exist any more.", true));
    // Two budgets allow evictions by now.
    let situation = Situation::default();
    let mut facts = situation.facts();
    for budget in [web(), PodReference { namespace: "shop".into(), name: "api".into() }] {
        let mut allows = situation.budget.clone();
        allows["status"]["disruptionsAllowed"] = json!(1);
        facts.budgets.insert(budget, Situation { budget: allows, ..situation.clone() }.guarded());
    }
    let mut status = blocked_status("shop");
    let mut of_api = status["blockedPods"][0].clone();
    of_api["budget"]["name"] = json!("api");
    status["blockedPods"].as_array_mut().unwrap().push(of_api);
    let [both] = <[Cause; 1]>::try_from(explained(&with_status("n1", status), &facts)).unwrap();
    assert_eq!(both.what.last().unwrap(), "By now, the budgets allow 2 evictions in total.");
    // Nothing was read.
    let blind = edit(&|facts| facts.budgets.clear());
    assert_eq!(
        (blind.what, blind.commands),
        (vec!["PDB shop/web needs 2, has 2.".into()], vec![BUDGET.into()])
    );
}

/// Two namespaces in the same situation.
fn in_two_namespaces(situation: &Situation) -> Vec<Cause> {
    let mut facts = situation.facts();
    let mut twin = situation.guarded();
    for pod in twin.pods.as_mut().unwrap() {
        pod.metadata.namespace = Some("blog".into());
    }
    facts.budgets.insert(PodReference { namespace: "blog".into(), name: "web".into() }, twin);
    let mut status = blocked_status("shop");
    let twin = blocked_status("blog")["blockedPods"][0].clone();
    status["blockedPods"].as_array_mut().unwrap().push(twin);
    explained(&with_status("n1", status), &facts)
}

#[test]
fn a_cause_is_said_once_whatever_the_number_of_namespaces() {
    let left = Situation { nodes: vec![cordoned("n1")], ..beside(pending("Unschedulable", UNFIT)) };
    let causes = in_two_namespaces(&left);
    let [cause] = causes.as_slice() else { panic!("{causes:#?}") };
    assert_eq!(cause.pods, ["blog/web-0", "shop/web-0"]);
    let no_node = "No node is left for the replacements blog/web-2, shop/web-2: n1 is in maintenance.";
    assert_eq!(cause.what, ["PDB blog/web needs 2, has 2.", "PDB shop/web needs 2, has 2.", no_node]);
    assert_eq!(cause.commands, ["kubectl nm stop n1"]);
    let causes = in_two_namespaces(&never("maxUnavailable", json!(0), 3));
    assert_eq!((causes.len(), causes[0].commands.len()), (1, 3), "{causes:#?}");
    // Other exit codes are other causes.
    let causes = in_two_namespaces(&beside(crashing("web-2", "n2", 1, "Error")));
    assert_eq!(causes.len(), 1, "{causes:#?}");
}

#[test]
fn pods_that_wait_for_their_turn_pass_and_say_what_they_wait_for() {
    let object = waiting_for_their_turn();
    let seen = |facts: &ClusterFacts| {
        let mut causes = explained(&object, facts);
        assert_eq!(causes.len(), 1, "{causes:#?}");
        causes.remove(0)
    };
    let starting = beside(waiting("ContainerCreating", ""));
    let cause = seen(&starting.facts());
    assert!(cause.passes(), "{cause:#?}");
    assert_eq!(
        cause.what,
        [
            "PDB shop/web needs 2, has 2: 2 pods wait for their turn, 1 ahead.",
            "shop/web-2 is starting on n2."
        ]
    );
    check_harmless(&cause);
    // It is not Blocked yet, and what will block it can be seen.
    let cause = seen(&beside(crashing("web-2", "n2", 1, "Error")).facts());
    assert!(cause.passes() && cause.what[1].contains("keeps exiting"), "{cause:#?}");
    let cause = seen(&ClusterFacts::default());
    assert!(cause.passes(), "{cause:#?}");
    assert_eq!(cause.commands, [BUDGET]);
}

#[test]
fn a_terminating_pod_is_named_with_the_rest_of_its_grace_period() {
    let reference = |name: &str| json!({"namespace": "shop", "name": name});
    let status = |counts: Value, pods: &[&str]| {
        let refs: Vec<Value> = pods.iter().map(|name| reference(name)).collect();
        with_status("n1", json!({"phase": "Running", "podCounts": counts, "pendingPodsRefs": refs}))
    };
    let facts = |pods: Result<Vec<Value>, Unseen>| {
        let pods = pods.map(|pods| pods.iter().map(parse::<Pod>).collect());
        ClusterFacts { terminating: [("n1".to_owned(), pods)].into(), ..ClusterFacts::default() }
    };
    let one = status(json!({"terminating": 1}), &["web-2"]);
    let seen = |object: &NodeMaintenance, facts: &ClusterFacts| explained(object, facts);
    let left = terminating("2026-01-02T03:07:45Z");
    let causes = seen(&one, &facts(Ok(vec![left.clone()])));
    assert_eq!(causes[0].what, ["shop/web-2 is terminating, with 20s of its grace period left."]);
    assert!(causes[0].passes() && causes[0].pods == ["shop/web-2"], "{causes:#?}");
    check_harmless(&causes[0]);
    // A pod that has failed is gone once its Job has counted it.
    let mut ended = left.clone();
    ended["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    ended["metadata"]["finalizers"] = json!(["batch.kubernetes.io/job-tracking"]);
    let causes = seen(&one, &facts(Ok(vec![ended])));
    assert_eq!(causes[0].what, ["shop/web-2 has ended, and is removed once its Job has counted it."]);
    assert!(causes[0].passes() && causes[0].advice.contains("up to 10 minutes"), "{causes:#?}");
    // A pod of a DaemonSet does not have to go.
    let other = status(json!({"terminating": 1}), &["web-7"]);
    assert_eq!(seen(&other, &facts(Ok(vec![left]))), []);
    // Without permission, the name follows from the status, and the grace period does not.
    let hidden = facts(Err(Unseen::Forbidden("list pods".into())));
    let causes = seen(&one, &hidden);
    assert_eq!(causes[0].what, ["shop/web-2 is terminating."]);
    assert_eq!(
        causes[0].unseen,
        ["The grace period is not known, because you have no permission to list pods."]
    );
    assert_eq!(causes[0].commands, [""; 0], "a request that is refused helps nobody");
    let several = status(json!({"terminating": 1, "evicting": 1}), &["web-2", "web-3"]);
    assert_eq!(seen(&several, &hidden)[0].what, ["1 pod is terminating."]);
}

#[test]
fn an_image_that_must_not_be_pulled_is_to_be_loaded_and_its_registry_does_not_matter() {
    let advice = |reason| beside(waiting(reason, "")).causes()[0].advice.clone();
    assert!(advice("ErrImageNeverPull").contains("imagePullPolicy Never"));
    assert!(advice("ErrImagePull").contains("registry"));
}

#[test]
fn a_deletion_that_will_not_be_permitted_is_not_announced() {
    let budget = json!({"name": "web", "desiredHealthy": 3, "currentHealthy": 3, "disruptionsAllowed": 0});
    let blocked = json!({"namespace": "shop", "name": "web-0", "reason": "DisruptionBudget", "since": "2026-01-02T03:04:05Z",
        "message": "no", "attempts": 3, "budget": budget});
    let status = json!({"phase": "Running", "blockedPods": [blocked], "podCounts": {"blocked": 1}});
    let mut object = with_status("n1", status);
    object.spec.drain = Some(parse(&json!({"deleteAfterSeconds": 3600})));
    assert!(FactsToRead::of([&object]).pod_deletion);
    let facts = never("minAvailable", json!(3), 3).facts();
    let last = |is_deletion_denied: bool| {
        let facts = ClusterFacts { is_deletion_denied, ..facts.clone() };
        explained(&object, &facts)[0].what.last().cloned().unwrap()
    };
    assert!(
        last(false).starts_with("A pod whose eviction has been refused for 1h is deleted"),
        "{}",
        last(false)
    );
    assert_eq!(
        last(true),
        "--delete-after has no effect: nm-reconciler has no permission to delete pods; `kubectl nm install --grant \
         pod-deletion` grants it."
    );
    object.spec.drain = None;
    assert!(!FactsToRead::of([&object]).pod_deletion);
}

#[test]
fn a_deletion_that_is_not_permitted_is_one_cause_and_the_budgets_are_others() {
    let forbidden =
        json!({"user": "system:serviceaccount:nm:nm-reconciler", "verb": "delete", "resource": "pods"});
    let blocked = |namespace: &str, name: &str| {
        json!({"namespace": namespace, "name": name, "reason": "Forbidden", "since": "2026-01-02T03:04:05Z",
            "message": format!("pods \"{name}\" is forbidden: User cannot delete"), "attempts": 3, "forbidden": forbidden,
            "budget": {"name": "web", "desiredHealthy": 3, "currentHealthy": 3, "disruptionsAllowed": 0}})
    };
    let pods = [blocked("shop", "web-0"), blocked("shop", "web-1"), blocked("blog", "web-0")];
    let status = json!({"phase": "Running", "blockedPods": pods, "podCounts": {"blocked": 3}});
    let mut object = with_status("n1", status);
    object.spec.drain = Some(parse(&json!({"deleteAfterSeconds": 5})));
    let facts = never("minAvailable", json!(3), 3).facts();
    let causes = explained(&object, &facts);
    let of_deletion: Vec<&Cause> =
        causes.iter().filter(|cause| cause.commands == ["kubectl nm install --grant pod-deletion"]).collect();
    assert_eq!(of_deletion.len(), 1, "{causes:#?}");
    assert_eq!(
        of_deletion[0].what,
        [
            "shop/web-0, shop/web-1, blog/web-0 are to be deleted (--delete-after), but nm-reconciler had no permission to \
          delete pods when it last tried."
        ]
    );
    let of_budget =
        causes.iter().find(|cause| cause.what.iter().any(|what| what.contains("can never allow")));
    assert_eq!(of_budget.unwrap().pods, ["shop/web-0", "shop/web-1"]);
    let announced = |cause: &Cause| cause.what.iter().any(|what| what.contains("is deleted, regardless"));
    assert!(!causes.iter().any(announced), "{causes:#?}");
    let read = FactsToRead::of([&object]);
    assert!(read.budgets.contains(&web()), "{read:?}");
    // Somebody has granted it since.
    assert_eq!(read.denied, [parse(&forbidden)]);
    let facts = ClusterFacts { granted: read.denied, ..facts };
    let granted = explained(&object, &facts);
    let of_deletion = granted.iter().find(|cause| cause.what[0].contains("had no permission")).unwrap();
    assert_eq!(of_deletion.what[1..], ["By now, nm-reconciler has this permission."]);
    assert_eq!(
        (of_deletion.passes(), of_deletion.advice.as_str(), of_deletion.commands.as_slice()),
        (
            true,
            "Wait: nm-reconciler tries again within a minute",
            ["kubectl nm status n1".to_owned()].as_slice()
        )
    );
    check_harmless(of_deletion);
    // Nothing is tried until somebody continues the drain.
    object.status.as_mut().unwrap().phase = Some(nm_shared::Phase::Failed);
    let failed = explained(&object, &facts);
    let of_deletion =
        failed.iter().find(|cause| cause.what.iter().any(|what| what.contains("By now"))).unwrap();
    assert_eq!((of_deletion.advice.as_str(), of_deletion.commands.as_slice()), ("", [].as_slice()));
}

#[tokio::test]
async fn what_nm_reconciler_may_do_by_now_is_asked_for_its_service_account() {
    let denied: ForbiddenAccess = parse(
        &json!({"user": "system:serviceaccount:nm:nm-reconciler", "verb": "delete", "resource": "pods"}),
    );
    let other = ForbiddenAccess { resource: "pods/eviction".into(), ..denied.clone() };
    for (code, allowed, expected) in
        [(201, true, vec![denied.clone()]), (201, false, vec![]), (403, true, vec![])]
    {
        let (server, requests) = cluster(move |_, path| match path {
            "/apis/authorization.k8s.io/v1/subjectaccessreviews" if code == 201 => {
                let review = json!({"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {}});
                (201, edited(edited(review, "/status", json!({})), "/status/allowed", json!(allowed)))
            }
            path => failure(403, "Forbidden", path),
        });
        let wanted = FactsToRead { denied: vec![denied.clone(), other.clone()], ..FactsToRead::default() };
        let facts =
            read_facts::read_wanted(&server, &wanted, ClusterFacts::default(), NOW.parse().unwrap()).await;
        assert_eq!(facts.granted, expected, "{code} {allowed}");
        assert_eq!(requests.lock().unwrap().len(), 1);
    }
}

#[test]
fn a_pod_that_is_missing_comes_before_a_budget_that_never_allows() {
    let mut situation = never("minAvailable", json!(2), 2);
    situation.budget["status"]["currentHealthy"] = json!(1);
    situation.pods[1] = edited(pending("Unschedulable", UNFIT), "/metadata/name", json!("web-1"));
    let told = |situation: &Situation| {
        let causes = situation.causes();
        let what = causes.iter().map(|cause| cause.what[1].clone());
        what.collect::<Vec<String>>()
    };
    let missing = format!("shop/web-1 is Pending, because the scheduler finds no node: {UNFIT}");
    let never = "The budget can never allow an eviction: minAvailable is 2, and it has 2 pods.";
    assert_eq!(
        told(&situation),
        [missing.as_str(), &format!("{never} {ALL_READY}")],
        "with one pod, minAvailable 1 allows nothing either"
    );
    situation.pods[1] = ready("web-1", "n2");
    situation.budget["status"]["currentHealthy"] = json!(2);
    assert_eq!(told(&situation), [never]);
    situation.budget["status"]["currentHealthy"] = json!(1);
    situation.pods[0] = crashing("web-0", "n1", 1, "Error");
    assert!(
        told(&situation)[0].contains("shop/web-0 on n1: container app keeps exiting"),
        "{:?}",
        told(&situation)
    );
    assert_eq!(told(&situation)[1..], [never]);
}

#[test]
fn a_missing_pod_comes_first_also_if_another_budget_never_allows_either() {
    let mut situation = never("minAvailable", json!(2), 2);
    let api = PodReference { namespace: "shop".into(), name: "api".into() };
    let mut facts = situation.facts();
    facts.budgets.insert(api, facts.budgets[&web()].clone());
    situation.budget["status"]["currentHealthy"] = json!(1);
    situation.pods[1] = edited(pending("Unschedulable", UNFIT), "/metadata/name", json!("web-1"));
    facts.budgets.insert(web(), situation.guarded());
    let mut status = blocked_status("shop");
    let mut of_api = status["blockedPods"][0].clone();
    of_api["budget"]["name"] = json!("api");
    status["blockedPods"].as_array_mut().unwrap().insert(0, of_api);
    let causes = explained(&with_status("n1", status), &facts);
    let what: Vec<&str> = causes.iter().filter_map(|cause| cause.what.last()).map(String::as_str).collect();
    assert!(what[0].starts_with("shop/web-1 is Pending") && what[1].contains("can never allow"), "{what:#?}");
}

#[test]
fn what_lets_a_pod_return_is_named_with_its_owner_and_each_cause_by_itself() {
    let assigned = "pods of its owner have returned to the node at least 3 times and are not evicted again: their owner assigns them to this node, bypassing the scheduler";
    let tolerates = "pods of its owner have returned to the node at least 3 times and are not evicted again: they tolerate every taint (a toleration with operator Exists and no key)";
    let blocked = |name: &str, message: &str| {
        json!({"namespace": "shop", "name": name, "reason": "KeepsReturning", "message": message,
            "since": "2026-01-02T03:04:05Z", "attempts": 0})
    };
    let pods = [blocked("web-0", assigned), blocked("web-1", tolerates), blocked("web-2", assigned)];
    let object =
        with_status("n1", json!({"phase": "Running", "blockedPods": pods, "podCounts": {"blocked": 3}}));
    let told = |facts: &ClusterFacts| {
        let causes = explained(&object, facts).into_iter();
        causes.map(|cause| (cause.what.join(" "), cause.advice, cause.commands)).collect::<Vec<_>>()
    };
    let unread = told(&ClusterFacts::default());
    assert_eq!(unread.len(), 2, "{unread:#?}");
    assert_eq!(unread[0].0, format!("shop/web-0, shop/web-2: for each, {assigned}."));
    assert_eq!(unread[1].0, format!("shop/web-1: {tolerates}."));
    assert!(unread[0].1.contains("remove what lets it return"), "{unread:#?}");

    let read = FactsToRead::of([&object]).replacements;
    assert_eq!(read.len(), 3);
    let pod = |name: &PodReference| {
        let tolerations = if name.name == "web-1" { json!([{"operator": "Exists"}]) } else { json!([]) };
        let pod = edited(ready(&name.name, "n1"), "/spec/tolerations", tolerations);
        (name.clone(), Ok(Some(ReadPod { pod: parse(&pod), warnings: vec![] })))
    };
    let facts = ClusterFacts { replacements: read.iter().map(pod).collect(), ..ClusterFacts::default() };
    let [of_name, of_toleration] = &told(&facts)[..] else { panic!("{:#?}", told(&facts)) };
    assert!(of_name.1.starts_with("Remove nodeName from the pod template"), "{of_name:#?}");
    assert!(of_toleration.1.contains("replace the toleration"), "{of_toleration:#?}");
    for told in [of_name, of_toleration] {
        assert_eq!(told.2, ["kubectl -n shop edit deploy/web"]);
    }
}

#[test]
fn a_permission_to_surge_that_is_missing_is_one_cause_whatever_the_budgets() {
    let forbidden =
        json!({"user": "system:serviceaccount:nm:nm-reconciler", "verb": "get", "resource": "replicasets"});
    let blocked = |namespace: &str, name: &str| {
        json!({"namespace": namespace, "name": format!("{name}-0"), "reason": "DisruptionBudget", "since": "2026-01-02T03:04:05Z",
            "message": format!("The disruption budget {name} needs 1; it is not replaced first: forbidden"), "attempts": 3,
            "forbidden": forbidden, "surge": {"reason": "Forbidden"},
            "budget": {"name": name, "desiredHealthy": 1, "currentHealthy": 1, "disruptionsAllowed": 0}})
    };
    let pods = [blocked("shop", "web"), blocked("shop", "api"), blocked("blog", "web")];
    let object =
        with_status("n1", json!({"phase": "Running", "blockedPods": pods, "podCounts": {"blocked": 3}}));
    let causes = explained(&object, &ClusterFacts::default());
    let [cause] = &causes[..] else { panic!("{causes:#?}") };
    assert_eq!(
        cause.what,
        [
            "shop/web-0, shop/api-0, blog/web-0 are kept by their budgets and not replaced first, because nm-reconciler had no \
             permission to watch and patch deployments and get replicasets when it last tried."
        ]
    );
    assert_eq!(cause.commands, ["kubectl nm install --grant surge"]);
}

/// That a budget with another number needs Ready pods, too.
const ALL_READY: &str = "Even with another number, it allows one only once all of them are Ready.";

#[test]
fn a_budget_whose_pods_are_not_ready_is_not_said_to_allow_more_by_another_number_alone() {
    let probe = |name: &str| {
        let pod = edited(running(json!({"started": false})), "/metadata/name", json!(name));
        edited(pod, "/spec/nodeName", json!("n1"))
    };
    let mut situation = never("minAvailable", json!(2), 2);
    situation.budget["status"]["currentHealthy"] = json!(0);
    situation.pods = vec![probe("web-0"), probe("web-1")];
    let causes = situation.causes();
    // What is only starting is no cause of its own: that its start ends changes nothing.
    let [never] = &causes[..] else { panic!("{causes:#?}") };
    assert_eq!(
        never.what[1],
        "The budget can never allow an eviction: minAvailable is 2, and it has 2 pods. Even with another number, it allows one \
         only once 1 of them is Ready."
    );
    let wait = "Wait until its pods are Ready. Then set minAvailable to 1";
    assert!(never.advice.starts_with(wait), "{never:#?}");
    check_harmless(never);
    situation.pods = vec![crashing("web-0", "n1", 1, "Error"), probe("web-1")];
    let causes = situation.causes();
    let [crash, never] = &causes[..] else { panic!("{causes:#?}") };
    assert!(crash.what[1].contains("keeps exiting"), "{crash:#?}");
    assert!(never.advice.starts_with("First make its pods Ready. Then set minAvailable to 1"), "{never:#?}");
    let leaving = edited(probe("web-1"), "/metadata/deletionTimestamp", json!("2026-01-02T03:06:00Z"));
    situation.pods = vec![ready("web-0", "n1"), leaving];
    let causes = situation.causes();
    assert!(causes.iter().all(|cause| !cause.advice.starts_with("Wait")), "it does not start: {causes:#?}");
    // An eviction of the one that is not Ready would be allowed.
    situation.budget["status"]["currentHealthy"] = json!(1);
    situation.pods = vec![crashing("web-0", "n1", 1, "Error"), ready("web-1", "n2")];
    let causes = situation.causes();
    assert!(causes.iter().all(|cause| !cause.advice.contains("First make")), "{causes:#?}");
}

#[test]
fn a_budget_that_an_operator_manages_is_not_to_be_changed_before_it_is_known_why() {
    let owner = |kind: &str| json!([{"apiVersion": "example.com/v1", "kind": kind, "name": "main", "uid": "u", "controller": true}]);
    let zero = edited(min_available(json!(3), (3, 3, 3)), "/metadata/ownerReferences", owner("Database"));
    let of_budget = Situation { budget: zero, ..Situation::default() };
    let pods = ["web-0", "web-1", "web-2"]
        .map(|name| edited(ready(name, "n1"), "/metadata/ownerReferences", owner("PodSet")));
    let of_pods =
        Situation { budget: min_available(json!(3), (3, 3, 3)), pods: pods.to_vec(), ..Situation::default() };
    let config =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "chart", "uid": "u", "controller": true}]);
    let of_chart = Situation {
        budget: edited(min_available(json!(3), (3, 3, 3)), "/metadata/ownerReferences", config),
        ..Situation::default()
    };
    let [cause] = <[Cause; 1]>::try_from(of_chart.causes()).unwrap();
    assert!(cause.what[1].starts_with("The budget can never allow an eviction"), "{cause:#?}");
    for (situation, manager) in [(of_budget, "database"), (of_pods, "podset")] {
        let causes = situation.causes();
        let [cause] = causes.as_slice() else { panic!("{causes:#?}") };
        assert_eq!(
            cause.what[1..],
            ["The budget allows no eviction as it is: minAvailable is 3, and it has 3 pods."]
        );
        assert_eq!(
            cause.advice,
            format!(
                "{manager}/main manages the budget or its pods, and may allow evictions by itself: find out what it waits for \
                 before you change the budget"
            )
        );
        assert_eq!(cause.commands, [format!("kubectl -n shop describe {manager}.example.com/main")]);
    }
}
