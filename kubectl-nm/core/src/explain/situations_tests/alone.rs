//! What is said of one pod alone, while others are blocked, or wait, alike.

use super::*;
use crate::explain::explanation::of_pod;
use crate::testing::objects::with_status;

const PODS: [&str; 4] = ["a/web-0", "b/web-0", "c/web-0", "d/web-0"];

fn reference(pod: &str) -> PodReference {
    let (namespace, name) = pod.split_once('/').unwrap();
    PodReference { namespace: namespace.into(), name: name.into() }
}

/// The pods in a list of a status, each with these fields besides.
fn listed(fields: &Value) -> Value {
    let pod = |pod: &&str| {
        let PodReference { namespace, name } = reference(pod);
        let mut pod = json!({"namespace": namespace, "name": name, "since": "2026-01-02T03:04:05Z", "message": "", "attempts": 1});
        pod.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        pod
    };
    PODS.iter().map(pod).collect()
}

/// Each pod is explained without a word about another one, and no command is about another one.
fn check(status: Value, facts: &ClusterFacts) {
    let mut object = with_status("n1", status);
    object.spec.drain = Some(parse(&json!({"waitForCompletion": {}})));
    let now = NOW.parse().unwrap();
    for pod in PODS {
        let told = of_pod(&reference(pod), &object, &Reconcilers::default(), facts, "kubectl", now).unwrap();
        assert_eq!(told.pods, [pod], "{told:#?}");
        let text = format!("{} {} {}", told.what.join(" "), told.advice, told.commands.join(" "));
        for other in PODS.iter().filter(|other| **other != pod) {
            let namespace = other.split_once('/').unwrap().0;
            assert!(!text.contains(*other) && !text.contains(&format!("-n {namespace} ")), "{pod}: {text}");
        }
        assert!(!text.contains("alike"), "{text}");
    }
}

fn blocked(reason: &str, mut fields: Value) {
    fields["reason"] = json!(reason);
    check(
        json!({"phase": "Running", "blockedPods": listed(&fields), "podCounts": {"blocked": 4}}),
        &ClusterFacts::default(),
    );
}

#[test]
fn a_pod_is_explained_alone_whatever_blocks_others_alike() {
    blocked("Finalizers", json!({"finalizers": ["example.com/keep"]}));
    blocked("AdmissionWebhook", json!({"webhook": "guard.example.com", "message": "denied"}));
    blocked("Unmanaged", json!({}));
    blocked("LocalStorage", json!({}));
    blocked("NotEnding", json!({}));
    blocked("KeepsReturning", json!({"message": "keeps returning: it tolerates every taint"}));
    blocked("DisruptionBudget", json!({"budget": {"name": "web", "desiredHealthy": 2, "currentHealthy": 2}}));
}

/// What the cluster shows of the pods: each is guarded by a budget of its own that can never allow an eviction.
fn alike() -> ClusterFacts {
    alike_of(&PODS)
}

fn alike_of(pods: &[&str]) -> ClusterFacts {
    let mut facts = ClusterFacts::default();
    for pod in pods {
        let PodReference { namespace, .. } = reference(pod);
        let budget =
            edited(never("maxUnavailable", json!(0), 1).budget, "/metadata/namespace", json!(namespace));
        let guarded = edited(ready("web-0", "n1"), "/metadata/namespace", json!(namespace));
        let guarded = GuardedPods {
            budget: Ok(Some(parse(&budget))),
            pods: Ok(vec![parse(&guarded)]),
            incomplete_owners: vec![],
            may_surge: true,
            full_quota: None,
            warnings: std::collections::HashMap::default(),
        };
        facts.budgets.insert(PodReference { namespace, name: "web".into() }, guarded);
    }
    facts
}

fn waiting(reason: &str) -> Value {
    json!({"phase": "Running", "podCounts": {"waiting": 4}, "waitingPods": listed(&json!({
        "reason": reason, "ahead": 2, "budget": {"name": "web", "desiredHealthy": 1, "currentHealthy": 1}}))})
}

#[test]
fn a_pod_that_waits_or_leaves_is_explained_alone() {
    check(waiting("BudgetTurn"), &alike_without_surge());
    check(waiting("Order"), &ClusterFacts::default());
    let surging = json!({"phase": "Running", "podCounts": {"surging": 4}, "surgingPods": listed(&json!({"deployment": "web"}))});
    check(surging, &ClusterFacts::default());
    let pods = PODS.iter().map(|pod| {
        let pod = edited(ready("web-0", "n1"), "/metadata/namespace", json!(reference(pod).namespace));
        parse(&edited(pod, "/metadata/deletionTimestamp", json!(NOW)))
    });
    let facts = ClusterFacts {
        terminating: [("n1".to_owned(), Ok(pods.collect()))].into(),
        ..ClusterFacts::default()
    };
    let pending: Vec<Value> = PODS.iter().map(|pod| json!(reference(pod))).collect();
    check(json!({"phase": "Running", "podCounts": {"terminating": 4}, "pendingPodsRefs": pending}), &facts);
}

fn alike_without_surge() -> ClusterFacts {
    let mut facts = alike();
    facts.budgets.values_mut().for_each(|guarded| guarded.may_surge = false);
    facts
}

#[test]
fn the_commands_of_like_budgets_that_are_left_out_are_counted() {
    let names: Vec<String> = ('a'..='h').map(|namespace| format!("{namespace}/web-0")).collect();
    for (count, left_out) in [(6, 0), (7, 2), (8, 3)] {
        let pods: Vec<&str> = names.iter().take(count).map(String::as_str).collect();
        let mut facts = alike_of(&pods);
        facts.budgets.values_mut().for_each(|guarded| guarded.may_surge = false);
        let budget = json!({"name": "web", "desiredHealthy": 1, "currentHealthy": 1});
        let blocked: Vec<Value> = pods
            .iter()
            .map(|pod| {
                json!({"namespace": reference(pod).namespace, "name": "web-0", "reason": "DisruptionBudget",
                    "message": "m", "since": NOW, "attempts": 1, "budget": budget})
            })
            .collect();
        let object = with_status("n1", json!({"phase": "Running", "blockedPods": blocked}));
        let [cause] = <[Cause; 1]>::try_from(explained(&object, &facts)).unwrap();
        assert_eq!((cause.commands.len(), cause.left_out.len()), (count - left_out, left_out), "{cause:#?}");
    }
}

#[test]
fn a_surge_for_one_pod_is_said_to_restart_the_workloads_of_the_others() {
    let facts = alike();
    let fields = json!({"reason": "DisruptionBudget", "budget": {"name": "web", "desiredHealthy": 1, "currentHealthy": 1}});
    let object = with_status(
        "n1",
        json!({"phase": "Running", "blockedPods": listed(&fields), "podCounts": {"blocked": 4}}),
    );
    let told = of_pod(
        &reference("c/web-0"),
        &object,
        &Reconcilers::default(),
        &facts,
        "kubectl",
        NOW.parse().unwrap(),
    )
    .unwrap();
    assert!(
        told.advice.contains("it also restarts a/deploy/web, b/deploy/web, d/deploy/web"),
        "{}",
        told.advice
    );
}
