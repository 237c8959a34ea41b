//! Forecasts of small drains.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};

use super::*;
use crate::api::pod_reference::PodReference;
use crate::api::status::BlockReason;

fn pod(name: &str, app: &str, extra: &Value) -> Arc<DrainPod> {
    let owner =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app, "controller": true}]);
    let mut pod = json!({
        "metadata": {"namespace": "shop", "name": name, "uid": name, "labels": {"app": app}, "ownerReferences": owner},
        "spec": {"containers": []},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    for (path, value) in extra.as_object().unwrap() {
        *pod.pointer_mut(path).unwrap() = value.clone();
    }
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn budget(name: &str, app: &str, allowed: i32, expected: i32) -> PodDisruptionBudget {
    let budget = json!({
        "metadata": {"namespace": "shop", "name": name},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"currentHealthy": 6 + allowed, "desiredHealthy": 6, "disruptionsAllowed": allowed,
            "expectedPods": expected},
    });
    serde_json::from_value(budget).unwrap()
}

fn planned(node: &str, pods: Vec<Arc<DrainPod>>) -> PlannedNode {
    PlannedNode {
        node: node.to_owned(),
        drain: DrainSpec::default(),
        pods,
        readiness: Readiness::Ready(None),
        cordon_tolerated: HashSet::new(),
        failing: HashMap::new(),
    }
}

fn forecast(
    nodes: Vec<PlannedNode>,
    budgets: &[PodDisruptionBudget],
    answers: &[(&str, EvictionOutcome)],
) -> Forecast {
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let draft = DrainPreview::new(nodes, &DaemonSets::default(), now).unwrap();
    let answers = answers.iter().map(|(uid, answer)| ((*uid).to_owned(), answer.clone())).collect();
    draft.forecast(Budgets::from_objects(budgets), &answers, now)
}

fn carts(names: &[&str]) -> Vec<Arc<DrainPod>> {
    names.iter().map(|name| pod(name, "cart", &json!({}))).collect()
}

fn words(forecast: &Forecast) -> Vec<&'static str> {
    let word = |expected: &PodForecast| match &expected.fate {
        PodOutcome::Stays(_) => "stays",
        PodOutcome::Terminating => "ends",
        PodOutcome::DeletedWithNamespace => "ends with its namespace",
        PodOutcome::Evicted => "goes",
        PodOutcome::Migrated => "migrates",
        PodOutcome::Completes(_) => "completes",
        PodOutcome::Surges(_) => "surges",
        PodOutcome::WaitsForBudget(_) => "later",
        PodOutcome::Deleted(_) => "deleted",
        PodOutcome::Blocked(obstacle) => obstacle.reason.as_str(),
    };
    forecast.pods.iter().map(word).collect()
}

#[test]
fn a_budget_is_shared_by_all_nodes_of_the_plan() {
    let nodes = || vec![planned("n1", carts(&["a", "b", "c"])), planned("n2", carts(&["d", "e", "f", "g"]))];
    let check = |allowed: i32, expected: i32, now: usize, at_most: usize, rounds: Option<usize>| {
        let found = forecast(nodes(), &[budget("cart", "cart", allowed, expected)], &[]);
        let key = BudgetKey { namespace: "shop".into(), name: "cart".into() };
        assert_eq!(
            found.budgets,
            [BudgetForecast { budget: key, pods: 7, now, at_most, rounds, short_of: 0, lacks: None }],
            "{allowed} of {expected}"
        );
    };
    check(2, 8, 2, 2, Some(4));
    check(7, 13, 7, 7, Some(1));
    check(1, 9, 1, 3, Some(3));
    check(0, 8, 0, 2, Some(4));
    check(0, 6, 0, 0, None);
}

#[test]
fn a_budget_allows_no_more_evictions_than_its_replacements_fit() {
    let forecast_with = |unplaced: &[&str], seconds: i64| {
        let drain = DrainSpec { delete_after_seconds: seconds, ..DrainSpec::default() };
        let station = PlannedNode { drain, ..planned("n1", carts(&["a", "b", "c", "d"])) };
        let mut found = forecast(vec![station], &[budget("cart", "cart", 1, 8)], &[]);
        let reference = |name: &&str| PodReference { namespace: "shop".into(), name: (*name).into() };
        found.hold_back(&unplaced.iter().map(reference).collect(), &Budgets::default());
        found
    };
    // Two may be unavailable at once: as many may stay unreplaced, and still all go.
    for (unplaced, expected, short_of, rounds) in [
        (&[][..], ["goes", "later", "later", "later"], 0, Some(3)),
        (&["c", "d"], ["goes", "later", "later", "later"], 0, Some(3)),
        (&["b", "c", "d"], ["goes", "later", "later", "DisruptionBudget"], 1, None),
        (&["a", "b", "c", "d"], ["goes", "later", "DisruptionBudget", "DisruptionBudget"], 2, None),
    ] {
        let found = forecast_with(unplaced, 0);
        assert_eq!(words(&found), expected, "{unplaced:?}");
        assert_eq!((found.budgets[0].short_of, found.budgets[0].rounds), (short_of, rounds), "{unplaced:?}");
    }
    assert_eq!(words(&forecast_with(&["a", "b", "c"], 600)), ["goes", "later", "deleted", "later"]);
}

#[test]
fn a_budget_whose_pods_terminate_moves_once_they_have_been_replaced() {
    let deleted = |at: &str| {
        let deleted: DrainPod =
            serde_json::from_value(json!({"metadata": {"namespace": "shop", "name": "z", "uid": "z",
            "labels": {"app": "cart"}, "deletionTimestamp": at, "deletionGracePeriodSeconds": 60}}))
            .unwrap();
        Arc::new(deleted)
    };
    let found = |at: &str| {
        let pods = carts(&["a"]).into_iter().chain([deleted(at)]).collect();
        forecast(vec![planned("n1", pods)], &[budget("cart", "cart", 0, 8)], &[])
    };
    assert_eq!(words(&found("2026-01-01T00:00:50Z")), ["later", "ends"]);
    assert_eq!(words(&found("2025-12-31T23:59:30Z")), ["DisruptionBudget", "ends"]);
    let never = json!({"currentHealthy": 2, "desiredHealthy": 2, "disruptionsAllowed": 0, "expectedPods": 2});
    let mut never_allows = budget("cart", "cart", 0, 8);
    never_allows.status = serde_json::from_value(never).unwrap();
    let pods = carts(&["a"]).into_iter().chain([deleted("2026-01-01T00:00:50Z")]).collect();
    let found = forecast(vec![planned("n1", pods)], &[never_allows], &[]);
    assert_eq!(words(&found), ["DisruptionBudget", "ends"], "however many pods are replaced");
}

#[test]
fn pods_of_a_node_that_does_not_report_are_blocked_as_the_drain_blocks_them() {
    let unready = |name: &str| pod(name, "cart", &json!({"/status": {"phase": "Running"}}));
    let ended = || pod("z", "web", &json!({"/status": {"phase": "Succeeded"}}));
    let recent = json!([{"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
        "lastTransitionTime": "2025-12-31T23:59:50Z"}]);
    let mut lacks = budget("cart", "cart", -1, 7);
    lacks.status.as_mut().unwrap().conditions = serde_json::from_value(recent).unwrap();
    let planned_on = |readiness, drain| {
        let mut pods = vec![unready("a"), unready("b"), pod("c", "web", &json!({})), ended()];
        pods.extend(carts(&["d"]));
        let node = PlannedNode { drain, readiness, ..planned("n1", pods) };
        words(&forecast(vec![node], std::slice::from_ref(&lacks), &[]))
    };
    let on = |readiness| planned_on(readiness, DrainSpec::default());
    let budget = "DisruptionBudget";
    assert_eq!(on(Readiness::Ready(None)), ["later", "later", "goes", "later", "goes"]);
    assert_eq!(on(Readiness::Silent), [budget, budget, "NodeNotReady", budget, "goes"]);
    // Its kubelet reports, and terminates pods.
    assert_eq!(on(Readiness::NotReady), ["later", "later", "goes", "later", "goes"]);
    let forced = DrainSpec { grace_period_seconds: 0, ..DrainSpec::default() };
    let impatient = DrainSpec { skip_wait_for_delete_timeout_seconds: 60, ..DrainSpec::default() };
    for drain in [forced, impatient] {
        assert_eq!(planned_on(Readiness::Silent, drain), [budget, budget, "goes", budget, "goes"]);
    }
}

#[test]
fn pods_that_keep_failing_are_blocked_by_a_budget_that_waits_for_them() {
    let unready = |name: &str| pod(name, "cart", &json!({"/status": {"phase": "Running"}}));
    let recent = json!([{"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
        "lastTransitionTime": "2025-12-31T23:59:50Z"}]);
    let mut lacks = budget("cart", "cart", -1, 7);
    lacks.status.as_mut().unwrap().conditions = serde_json::from_value(recent).unwrap();
    let planned_with = |failing: &[(&str, Stuck)]| {
        let failing = failing.iter().map(|(name, why)| ((*name).to_owned(), *why)).collect();
        let node = PlannedNode { failing, ..planned("n1", vec![unready("a"), unready("b")]) };
        let found = forecast(vec![node], std::slice::from_ref(&lacks), &[]);
        (words(&found), found.budgets[0].lacks)
    };
    assert_eq!(planned_with(&[]), (vec!["later"; 2], None), "it has just lost them");
    let [crashes, fails] = [Stuck::Crashing, Stuck::Unready];
    assert_eq!(planned_with(&[("a", fails)]), (vec!["later"; 2], None), "six of seven are enough");
    for (of, lacks) in [([fails; 2], fails), ([crashes; 2], crashes), ([fails, crashes], crashes)] {
        let [first, second] = of;
        let expected = (vec!["DisruptionBudget"; 2], Some(lacks));
        assert_eq!(planned_with(&[("a", first), ("b", second)]), expected, "{of:?}");
    }
}

#[test]
fn of_a_budget_that_lacks_ready_pods_it_is_not_known_that_capacity_is_what_lacks() {
    // A replacement that crashes has found a node, and moves the budget with each start.
    let mut moving = budget("cart", "cart", 0, 8);
    let condition = json!([{"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
        "lastTransitionTime": "2025-12-31T23:59:50Z"}]);
    moving.status.as_mut().unwrap().conditions = serde_json::from_value(condition).unwrap();
    let names = ["a", "b", "c", "d"];
    let mut found = forecast(vec![planned("n1", carts(&names))], &[moving], &[]);
    assert_eq!(words(&found), ["later"; 4]);
    let reference = |name: &str| PodReference { namespace: "shop".into(), name: name.into() };
    found.hold_back(&names.map(reference).into(), &Budgets::default());
    assert_eq!((words(&found), found.budgets[0].short_of), (vec!["later"; 4], 0));
}

#[test]
fn a_pod_that_is_left_to_end_by_itself_is_not_asked_about_and_uses_no_disruption() {
    let job = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true}]);
    let check = |timeout: i64, leaves: bool| {
        let mut node = planned("n1", carts(&["a", "b"]));
        node.pods.push(pod("job", "cart", &json!({"/metadata/ownerReferences": job})));
        let completion = json!({"waitForCompletion": {"timeoutSeconds": timeout}});
        node.drain = serde_json::from_value(completion).unwrap();
        let found = forecast(vec![node], &[budget("cart", "cart", 2, 9)], &[]);
        assert_eq!(words(&found), ["goes", "goes", "completes"]);
        assert_eq!((found.budgets[0].pods, found.budgets[0].now), (2, 2));
        let fate = (found.pods[2].fate.clone(), found.pods[2].leaves, found.pods[2].is_replaced());
        assert_eq!(fate, (PodOutcome::Completes(Some(timeout).filter(|_| leaves)), leaves, leaves));
    };
    check(0, false);
    check(3_600, true);
}

#[test]
fn a_pod_that_waits_for_others_is_not_blocked_but_one_that_can_never_go_is() {
    let one = |allowed| {
        forecast(vec![planned("n1", carts(&["a", "b"]))], &[budget("cart", "cart", allowed, 7)], &[])
    };
    assert_eq!(words(&one(1)), ["goes", "later"]);
    let none = one(0);
    assert_eq!(words(&none), ["DisruptionBudget"; 2]);
    let PodOutcome::Blocked(obstacle) = &none.pods[0].fate else { panic!() };
    assert_eq!(obstacle.message, "The disruption budget cart needs 6 healthy pods and has 6 currently");
}

#[test]
fn a_pod_that_is_deleted_in_the_end_is_not_blocked_unless_the_drain_spec_keeps_it() {
    let patient =
        |seconds: i64| DrainSpec { delete_after_seconds: seconds, force: false, ..DrainSpec::default() };
    let drained = |seconds: i64, allowed: i32| {
        let mut pods = carts(&["a", "b"]);
        pods.push(pod("bare", "web", &json!({"/metadata/ownerReferences": []})));
        let station = PlannedNode { drain: patient(seconds), ..planned("n1", pods) };
        forecast(vec![station], &[budget("cart", "cart", allowed, 6 + allowed)], &[])
    };
    assert_eq!(words(&drained(0, 0)), ["DisruptionBudget", "DisruptionBudget", "Unmanaged"]);
    let past = drained(600, 0);
    assert_eq!(words(&past), ["deleted", "deleted", "Unmanaged"]);
    let after = |forecast: &Forecast| forecast.pods.iter().map(|pod| pod.deleted_after).collect::<Vec<_>>();
    assert_eq!(after(&past), [Some(600), Some(600), None]);
    let shared = drained(600, 1);
    assert_eq!(
        (words(&shared), after(&shared)),
        (vec!["goes", "later", "Unmanaged"], vec![None, Some(600), None])
    );
    let webhook = EvictionOutcome::RefusedByWebhook { webhook: "w".into(), message: "no".into() };
    let station = PlannedNode { drain: patient(600), ..planned("n1", carts(&["a"])) };
    assert_eq!(words(&forecast(vec![station], &[], &[("a", webhook)])), ["deleted"]);
}

#[test]
fn answers_take_precedence_over_budgets() {
    let nodes = || vec![planned("n1", carts(&["a"]))];
    let accepted = [("a", EvictionOutcome::Accepted)];
    assert_eq!(words(&forecast(nodes(), &[budget("cart", "cart", 0, 6)], &accepted)), ["goes"]);
    let refused = [("a", EvictionOutcome::RefusedByBudget("no".into()))];
    assert_eq!(words(&forecast(nodes(), &[budget("cart", "cart", 1, 7)], &refused)), ["DisruptionBudget"]);
    let webhook =
        EvictionOutcome::RefusedByWebhook { webhook: "w".into(), message: "not before noon".into() };
    assert_eq!(words(&forecast(nodes(), &[], &[("a", webhook)])), ["AdmissionWebhook"]);
    let policy = EvictionOutcome::RefusedByPolicy { policy: None, message: "not before noon".into() };
    assert_eq!(words(&forecast(nodes(), &[], &[("a", policy)])), ["AdmissionPolicy"]);
    assert_eq!(
        words(&forecast(nodes(), &[], &[("a", EvictionOutcome::Migrating("m".into()))])),
        ["migrates"]
    );
}

#[test]
fn without_an_answer_the_budgets_decide_and_the_reason_is_counted() {
    let dry = "admission webhook \"w\" does not support dry run";
    for silent in [
        EvictionOutcome::Forbidden("you may not".into()),
        EvictionOutcome::Throttled { retry_after: None, message: "you may not".into() },
        EvictionOutcome::Unknown(dry.into()),
    ] {
        let answers = [("a", silent.clone()), ("b", silent.clone())];
        let found =
            forecast(vec![planned("n1", carts(&["a", "b"]))], &[budget("cart", "cart", 1, 7)], &answers);
        assert_eq!(words(&found), ["goes", "later"], "{silent:?}");
        assert_eq!(found.unanswered.values().sum::<usize>(), 2, "{silent:?}");
    }
    let failed = [("a", EvictionOutcome::Unknown("failed calling webhook \"w\"".into()))];
    assert_eq!(words(&forecast(vec![planned("n1", carts(&["a"]))], &[], &failed)), ["ServerError"]);
}

#[test]
fn a_pod_whose_namespace_is_deleted_is_not_blocked_and_not_replaced() {
    let found =
        forecast(vec![planned("n1", carts(&["a"]))], &[], &[("a", EvictionOutcome::NamespaceTerminating)]);
    assert_eq!(words(&found), ["ends with its namespace"]);
    assert!(!found.pods[0].leaves && !found.pods[0].is_replaced(), "{found:?}");
}

#[test]
fn two_budgets_block_without_a_request() {
    let budgets = [budget("one", "cart", 1, 7), budget("two", "cart", 1, 7)];
    let found = forecast(vec![planned("n1", carts(&["a"]))], &budgets, &[]);
    assert_eq!(words(&found), ["MultipleDisruptionBudgets"]);
    let PodOutcome::Blocked(obstacle) = &found.pods[0].fate else { panic!() };
    assert!(
        obstacle.message.contains("one needs 6") && obstacle.message.contains("two needs 6"),
        "{obstacle:?}"
    );
    let starting = pod("a", "cart", &json!({"/status": {"phase": "Pending"}}));
    assert_eq!(words(&forecast(vec![planned("n1", vec![starting])], &budgets, &[])), ["goes"]);
}

#[test]
fn no_eviction_is_tried_for_pods_that_stay_terminate_or_are_blocked_by_the_spec() {
    let daemon =
        json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true}]);
    let web =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "w", "controller": true}]);
    let pods = || {
        vec![
            pod(
                "a-ending",
                "web",
                &json!({"/metadata": {"namespace": "shop", "name": "a-ending", "uid": "e",
                "deletionTimestamp": "2026-01-01T00:00:10Z", "deletionGracePeriodSeconds": 30, "ownerReferences": web}}),
            ),
            pod("b-bare", "web", &json!({"/metadata/ownerReferences": []})),
            pod("c-web", "web", &json!({})),
            pod("d-daemon", "web", &json!({"/metadata/ownerReferences": daemon})),
        ]
    };
    let sets = DaemonSets { incomplete: true, ..DaemonSets::default() };
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let drain = DrainSpec { force: false, ..DrainSpec::default() };
    for (drain, asked, expected) in [
        (DrainSpec::default(), &["b-bare", "c-web"][..], ["ends", "goes", "goes", "stays"]),
        (drain, &["c-web"], ["ends", BlockReason::Unmanaged.as_str(), "goes", "stays"]),
    ] {
        let draft =
            DrainPreview::new(vec![PlannedNode { drain, ..planned("n1", pods()) }], &sets, now).unwrap();
        assert_eq!(draft.to_evict().map(|pod| pod::uid(pod)).collect::<Vec<_>>(), asked);
        let found = draft.forecast(Budgets::default(), &HashMap::new(), now);
        assert_eq!(words(&found), expected);
        let replaced: Vec<&str> =
            found.pods.iter().filter(|pod| pod.is_replaced()).map(|pod| pod::uid(&pod.pod)).collect();
        assert_eq!(replaced, ["c-web"]);
    }
}
