use super::*;
use serde_json::{Value, json};

fn object(name: &str, selector: &Value, allowed: i32) -> PodDisruptionBudget {
    let budget = json!({
        "metadata": {"namespace": "shop", "name": name, "resourceVersion": "7"},
        "spec": {"selector": selector},
        "status": {"currentHealthy": 3, "desiredHealthy": 2, "disruptionsAllowed": allowed, "expectedPods": 3},
    });
    serde_json::from_value(budget).unwrap()
}

fn carts(allowed: i32) -> Budgets {
    Budgets::from_objects(&[object("cart", &cart(), allowed)])
}

fn carts_after(allowed: i32, in_flight: i32, answer: Option<(&str, BudgetUse)>) -> Budgets {
    let budget = Arc::new(Budget::from(&object("cart", &cart(), allowed)));
    Budgets::from_iter([RemainingBudget::of(budget, None, in_flight, answer)])
}

fn cart() -> Value {
    json!({"matchLabels": {"app": "cart"}})
}

fn pod_in(namespace: &str, app: &str, status: &Value) -> DrainPod {
    let metadata = json!({"namespace": namespace, "name": "p", "labels": {"app": app}});
    serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap()
}

fn pod(namespace: &str, app: &str) -> DrainPod {
    pod_in(namespace, app, &json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}))
}

fn is_free(budgets: &mut Budgets, pod: &DrainPod) -> bool {
    !matches!(budgets.use_disruption(pod, 0), BudgetPrediction::Exhausted(_))
}

#[test]
fn a_budget_guards_the_pods_that_it_selects_in_its_namespace() {
    let all = [object("cart", &cart(), 1), object("all", &json!({}), 1), object("none", &Value::Null, 0)];
    let budgets = Budgets::from_objects(&all);
    let guards = |pod: &DrainPod| -> Vec<String> {
        budgets.guarding(pod).into_iter().map(|guard| guard.key.name.clone()).collect()
    };
    assert_eq!(guards(&pod("shop", "cart")), ["cart", "all"]);
    assert_eq!(guards(&pod("shop", "web")), ["all"]);
    assert!(guards(&pod("elsewhere", "cart")).is_empty());
}

#[test]
fn no_more_evictions_are_requested_than_a_budget_allows() {
    let mut budgets = carts(2);
    let asked: Vec<bool> = (0..3).map(|_| is_free(&mut budgets, &pod("shop", "cart"))).collect();
    assert_eq!(asked, [true, true, false]);
    assert!(is_free(&mut budgets, &pod("shop", "web")), "nothing guards it");
    let BudgetPrediction::Exhausted(BudgetBlock { budget, refusal, .. }) =
        budgets.use_disruption(&pod("shop", "cart"), 0)
    else {
        panic!()
    };
    assert_eq!(budget.to_string(), "shop/cart");
    assert_eq!(refusal.message, "The disruption budget cart needs 2 healthy pods and has 3 currently");
    let facts = BudgetFacts {
        name: "cart".to_owned(),
        desired_healthy: Some(2),
        current_healthy: Some(3),
        disruptions_allowed: Some(2),
        expected_pods: Some(3),
    };
    assert_eq!(refusal.budget, Some(facts));
}

#[test]
fn an_answer_without_the_number_of_pods_is_completed_by_the_status() {
    let facts = BudgetFacts {
        name: "cart".to_owned(),
        desired_healthy: Some(2),
        current_healthy: Some(1),
        disruptions_allowed: Some(0),
        expected_pods: None,
    };
    let refusal = BudgetRefusal { budget: Some(facts), ..BudgetRefusal::from("no") };
    let budgets = carts_after(1, 0, Some(("7", BudgetUse::Refused(&refusal))));
    let completed = budgets.refusals(&pod("shop", "cart")).remove(0).budget.unwrap();
    assert_eq!((completed.current_healthy, completed.expected_pods), (Some(1), Some(3)));
}

#[test]
fn a_disruption_may_be_used_by_another_eviction_before_the_request_is_sent() {
    let mut budgets = carts(2);
    let BudgetPrediction::Allowed(disruption) = budgets.use_disruption(&pod("shop", "cart"), 0) else {
        panic!()
    };
    let check = |in_flight: i32, answers: &[(&str, BudgetUse)], spent: bool| {
        assert_eq!(
            disruption.is_used_up(in_flight, answers.iter().copied()),
            spent,
            "{in_flight} {answers:?}"
        );
    };
    check(0, &[], false);
    check(1, &[], false);
    check(1, &[("6", BudgetUse::Accepted)], false);
    check(1, &[("7", BudgetUse::Accepted)], true);
    check(2, &[], true);
    check(0, &[("7", BudgetUse::Refused(&"no".into()))], true);
}

#[test]
fn evictions_that_the_status_does_not_show_yet_are_subtracted() {
    let check = |allowed: i32, in_flight: i32, answer: Option<(&str, BudgetUse)>, free: bool| {
        let mut budgets = carts_after(allowed, in_flight, answer);
        assert_eq!(is_free(&mut budgets, &pod("shop", "cart")), free, "{allowed} {in_flight} {answer:?}");
    };
    let refusal = BudgetRefusal::from("the API server knows better");
    let refused = BudgetUse::Refused(&refusal);
    check(1, 1, None, false);
    check(2, 1, None, true);
    check(1, 0, Some(("7", BudgetUse::Accepted)), false);
    check(1, 0, Some(("6", BudgetUse::Accepted)), true);
    check(5, 0, Some(("7", refused)), false);
    check(5, 0, Some(("6", refused)), true);
}

#[test]
fn a_refusal_counts_for_all_pods_until_the_budget_changes() {
    let check = |version: &str, expected: &str| {
        let newer = "the API server knows better".into();
        let mut budgets = carts_after(0, 0, Some((version, BudgetUse::Refused(&newer))));
        let prediction = budgets.use_disruption(&pod("shop", "cart"), 0);
        let BudgetPrediction::Exhausted(BudgetBlock { refusal, .. }) = prediction else { panic!() };
        assert_eq!(refusal.message, expected);
    };
    check("7", "the API server knows better");
    check("6", "The disruption budget cart does not allow evicting pods currently");
}

#[test]
fn an_answer_without_numbers_keeps_those_of_the_budget() {
    let answer = BudgetRefusal {
        message: "the API server knows better".to_owned(),
        budget: Some(BudgetFacts { name: "cart".to_owned(), ..BudgetFacts::default() }),
    };
    let mut budgets = carts_after(0, 0, Some(("7", BudgetUse::Refused(&answer))));
    let prediction = budgets.use_disruption(&pod("shop", "cart"), 0);
    let BudgetPrediction::Exhausted(BudgetBlock { refusal, .. }) = prediction else { panic!() };
    assert_eq!(refusal.message, answer.message);
    assert_eq!(refusal.budget.as_ref().and_then(|budget| budget.desired_healthy), Some(2));
}

#[test]
fn a_budget_whose_spec_is_still_being_processed_allows_nothing() {
    let mut stale = object("cart", &cart(), 5);
    stale.metadata.generation = Some(2);
    refuses_because(&stale, "is still being processed by the server.");
}

#[test]
fn a_budget_that_failed_to_sync_says_why() {
    let mut failed = object("cart", &cart(), 0);
    let condition = json!({"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed",
        "message": "no scale", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    failed.status.as_mut().unwrap().conditions = Some(vec![serde_json::from_value(condition).unwrap()]);
    refuses_because(&failed, "does not allow evicting pods currently because it failed sync: no scale");
}

fn refuses_because(budget: &PodDisruptionBudget, reason: &str) {
    let opinion = Budgets::from_objects([budget]).use_disruption(&pod("shop", "cart"), 0);
    let BudgetPrediction::Exhausted(BudgetBlock { refusal, .. }) = opinion else { panic!("{opinion:?}") };
    assert_eq!(refusal.message, format!("The disruption budget cart {reason}"));
}

#[test]
fn an_exhausted_budget_ignores_pods_whose_eviction_is_no_disruption() {
    let mut budgets = carts(0);
    for status in [json!({"phase": "Pending"}), json!({"phase": "Succeeded"}), json!({"phase": "Running"})] {
        assert!(is_free(&mut budgets, &pod_in("shop", "cart", &status)), "{status}");
    }
    assert!(!is_free(&mut budgets, &pod("shop", "cart")));
}

#[test]
fn a_pod_that_is_not_stuck_leaves_only_if_it_can_be_spared_besides_those_that_stay_stuck() {
    let named = |name: &str, is_ready: bool| {
        let ready = if is_ready { "True" } else { "False" };
        let pod = json!({"metadata": {"namespace": "shop", "name": name, "uid": name, "labels": {"app": "cart"}},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}});
        serde_json::from_value::<DrainPod>(pod).unwrap()
    };
    let [ready, starts, fails] = [named("a", true), named("b", false), named("c", false)];
    let key = BudgetKey { namespace: "shop".into(), name: "cart".into() };
    let lacks = |budgets: &Budgets| [&ready, &starts, &fails].map(|pod| budgets.lacks(&key, pod));
    let why = Stuck::Crashing;
    let mut elsewhere = carts(0);
    elsewhere.note_stuck_elsewhere(&named("z", false), why);
    assert_eq!(lacks(&elsewhere), [Some(why); 3], "two of three are needed, and one stays stuck");
    let mut planned = carts(0);
    planned.note_stuck(&fails, why);
    assert_eq!(lacks(&planned), [None; 3], "once it has been evicted, it may become Ready elsewhere");
    let mut both = carts(0);
    both.note_stuck_elsewhere(&named("z", false), why);
    both.note_stuck(&fails, why);
    assert_eq!(lacks(&both), [Some(why); 3], "not even the one that fails may leave");
}
