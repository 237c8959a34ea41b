//! What budgets are charged, and which pods wait for them.

use std::time::Duration;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use nm_shared::cluster::disruption_budget::Budget;
use nm_shared::drain::budget_allowance::Budgets;
use serde_json::json;

use super::*;
use crate::cache::watched::WatchUpdate;

fn evictions() -> Evictions {
    Evictions::new(NonZeroUsize::MIN)
}

fn pod(uid: &str) -> DrainPod {
    serde_json::from_value(json!({"metadata": {"uid": uid}})).unwrap()
}

/// A budget at this version that allows five disruptions.
fn budget(version: &str) -> Arc<Budget> {
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"namespace": "shop", "name": "cart", "resourceVersion": version},
        "status": {"disruptionsAllowed": 5},
    }))
    .unwrap();
    Arc::new(Budget::from(&budget))
}

fn seen(budget: Arc<Budget>) -> SeenBudget {
    SeenBudget::new(budget, SteadyTime::MIN)
}

fn last_request(state: &mut Evictions) -> Option<SteadyTime> {
    let budget = budget("1");
    let budgets = Budgets::from_iter([state.left(&seen(budget.clone()))]);
    budgets.asked(&budget.version().key)
}

#[test]
fn a_budget_is_charged_while_a_request_is_in_progress() {
    let mut state = evictions();
    let at = |second| SteadyTime::after_start(Duration::from_secs(second));
    assert_eq!(last_request(&mut state), None);
    state.begin("n", &pod("a"), &[budget("1").version().clone()], false, at(1));
    assert_eq!(last_request(&mut state), Some(at(1)));
    state.end("n", &pod("a"), RemovalRequest::Evict, EvictionOutcome::RefusedByBudget("".into()), at(2));
    assert_eq!(last_request(&mut state), Some(at(2)));
}

#[test]
fn evictions_that_a_budget_shows_are_forgotten_unless_in_progress() {
    let mut state = evictions();
    let at = SteadyTime::MIN;
    for (uid, version) in [("old", "1"), ("new", "2"), ("in progress", "1"), ("gone", "2")] {
        state.begin("n", &pod(uid), &[budget(version).version().clone()], false, at);
    }
    for uid in ["old", "new", "gone"] {
        state.end("n", &pod(uid), RemovalRequest::Evict, EvictionOutcome::Accepted, at);
    }
    state.forget_gone("n", |uid| uid != "gone");
    let uses = |state: &Evictions| {
        let requests = &state.budgets[&budget("2").version().key];
        let mut answers: Vec<_> = requests.answers(|node, uid| budget_use(&state.nodes, node, uid)).collect();
        answers.sort_by_key(|(version, _)| *version);
        let answers = answers.into_iter().map(|(version, used)| format!("{version} {used:?}"));
        (requests.in_flight(), answers.collect::<Vec<_>>().join(", "))
    };
    assert_eq!(uses(&state), (1, "1 Accepted, 2 Accepted".to_owned()));
    state.left(&seen(budget("2")));
    assert_eq!(uses(&state), (1, "2 Accepted".to_owned()));
    state.left(&seen(budget("3")));
    assert_eq!(uses(&state), (1, String::new()));
}

#[test]
fn an_allowance_is_spent_by_other_evictions() {
    let mut state = evictions();
    let disruption = |allowed| AllowedDisruption { guard: budget("1").version().clone(), allowed };
    assert!(!state.is_used_up(&disruption(1)));
    state.begin("elsewhere", &pod("a"), &[budget("1").version().clone()], false, SteadyTime::MIN);
    assert!(state.is_used_up(&disruption(1)) && !state.is_used_up(&disruption(2)));
}

#[test]
fn a_pod_that_is_not_wanted_does_not_count_as_refused() {
    let mut state = evictions();
    let at = |second| SteadyTime::after_start(Duration::from_secs(second));
    let since = |state: &Evictions, uid: &str| state.attempts("n")[uid].refused_since;
    for uid in ["left out", "wanted"] {
        state.begin("n", &pod(uid), &[], false, at(1));
        state.end(
            "n",
            &pod(uid),
            RemovalRequest::Evict,
            EvictionOutcome::NotMigratable(String::new()),
            at(1),
        );
    }
    state.withdraw_unwanted("n", &["wanted".to_owned()].into());
    assert_eq!(since(&state, "wanted"), Some(at(1)));
    assert_eq!(since(&state, "left out"), None);
}

#[test]
fn a_deferred_pod_counts_as_refused_while_its_budget_refuses() {
    use EvictionOutcome::{Accepted, RefusedByBudget, RefusedByWebhook, Throttled, Unknown};
    let mut state = evictions();
    let at = |second| SteadyTime::after_start(Duration::from_secs(second));
    let said = String::new;
    let throttled = Throttled { retry_after: None, message: said() };
    let webhook = RefusedByWebhook { webhook: said(), message: said() };
    let budget = budget("1").version().clone();
    let deferred = |state: &mut Evictions, second| {
        state.defer("n", &pod("deferred"), &budget.key, at(second));
        state.attempts("n")["deferred"].refused_since
    };
    assert_eq!(deferred(&mut state, 0), None, "no eviction was requested yet");
    state.eviction("n", &pod("deferred")).attempt.end(webhook.clone(), at(0));
    assert_eq!(deferred(&mut state, 0), Some(at(0)), "something else refuses it");
    let ask = |state: &mut Evictions, second, answer: &EvictionOutcome| {
        state.begin("n", &pod("asked"), std::slice::from_ref(&budget), false, at(second));
        state.end("n", &pod("asked"), RemovalRequest::Evict, answer.clone(), at(second));
        assert_eq!(state.nodes_waiting_in(""), ["n"], "it waits for the budget in any case");
    };
    // The errors of one pod are no verdict of the budget, which refuses all the same.
    for (second, answer) in [
        (1, Unknown(said())),
        (2, RefusedByBudget("".into())),
        (3, webhook),
        (4, Accepted),
        (5, throttled),
        (6, Unknown(said())),
        (50, RefusedByBudget("".into())),
    ] {
        ask(&mut state, second, &answer);
        assert_eq!(deferred(&mut state, second), Some(at(0)), "{answer:?}");
    }
    for second in [60, 110] {
        ask(&mut state, second, &Unknown(said()));
        assert_eq!(deferred(&mut state, second), Some(at(0)), "it refused {} s ago", second - 50);
    }
    assert_eq!(deferred(&mut state, 111), None, "nobody knows whether it still refuses");
    ask(&mut state, 112, &RefusedByBudget("".into()));
    assert_eq!(deferred(&mut state, 113), Some(at(113)));
}

#[tokio::test]
async fn a_withdrawn_request_ends_and_its_answer_is_ignored() {
    let (mut state, at) = (evictions(), SteadyTime::MIN);
    let [withdrawn, wanted] = ["withdrawn", "wanted"].map(|uid| state.begin("n", &pod(uid), &[], false, at));
    assert!(!withdrawn.is_requested());
    state.withdraw_unwanted("n", &["wanted".to_owned()].into());
    assert!(!wanted.is_requested());
    withdrawn.requested().await;
    assert!(!state.end("n", &pod("withdrawn"), RemovalRequest::Evict, EvictionOutcome::Accepted, at));
    assert!(state.end("n", &pod("wanted"), RemovalRequest::Evict, EvictionOutcome::Accepted, at));
}

fn pod_in(namespace: &str, uid: &str) -> DrainPod {
    serde_json::from_value(json!({"metadata": {"namespace": namespace, "uid": uid}})).unwrap()
}

fn guards(names: &[&str]) -> Vec<Arc<BudgetVersion>> {
    let guard = |name: &&str| {
        let key = BudgetKey { namespace: "shop".to_owned(), name: (*name).to_owned() };
        Arc::new(BudgetVersion { key, version: "1".to_owned() })
    };
    names.iter().map(guard).collect()
}

/// How many requests are in flight for a budget, which is the number of evictions that say so.
fn in_flight(state: &Evictions, budget: &str) -> i32 {
    let key = guards(&[budget])[0].key.clone();
    let guards_it = |eviction: &PodEviction| eviction.guards.iter().any(|guard| guard.key == key);
    let evictions = state.nodes.values().flat_map(HashMap::values);
    let pending = evictions.filter(|eviction| eviction.request.is_some() && guards_it(eviction)).count();
    let counted = state.budgets.get(&key).map_or(0, BudgetRequests::in_flight);
    assert_eq!(usize::try_from(counted), Ok(pending));
    counted
}

#[test]
fn each_request_in_flight_is_counted_once_until_it_is_answered_or_withdrawn() {
    use EvictionOutcome::{Accepted, RefusedByBudget};
    use RemovalRequest::{Delete, Evict};
    let (mut state, at) = (evictions(), SteadyTime::MIN);
    let disruption = AllowedDisruption { guard: guards(&["k"])[0].clone(), allowed: 2 };
    for uid in ["a", "b", "c"] {
        state.begin("n", &pod(uid), &guards(&["k"]), false, at);
    }
    assert_eq!((in_flight(&state, "k"), state.is_used_up(&disruption)), (3, true));
    for _ in 0..2 {
        state.end("n", &pod("a"), Evict, EvictionOutcome::Unknown(String::new()), at);
        assert_eq!((in_flight(&state, "k"), state.is_used_up(&disruption)), (2, true));
    }
    assert_eq!(state.take_freed().len(), 1, "no event on the budget will show this");
    for freed in [1, 0] {
        state.withdraw("n", &pod("b"));
        assert_eq!((in_flight(&state, "k"), state.is_used_up(&disruption)), (1, false));
        assert_eq!(state.take_freed().len(), freed);
    }
    state.begin("n", &pod("b"), &guards(&["k"]), false, at);
    state.withdraw_unwanted("n", &["b".to_owned()].into());
    assert_eq!((in_flight(&state, "k"), state.take_freed()), (1, ["shop".to_owned()].into()));
    assert!(!state.end("n", &pod("c"), Evict, Accepted, at), "it was withdrawn");
    state.begin("n", &pod("a"), &guards(&["k"]), false, at);
    assert_eq!(in_flight(&state, "k"), 2);
    state.end("n", &pod("a"), Delete, RefusedByBudget("".into()), at);
    assert!(state.take_freed().is_empty(), "an event on the budget shows what it allows");
    state.begin("n", &pod("a"), &guards(&["l"]), false, at);
    assert_eq!((in_flight(&state, "k"), in_flight(&state, "l")), (1, 1));
    state.forget_gone("n", |_| false);
    assert_eq!((in_flight(&state, "k"), in_flight(&state, "l")), (1, 1));
    state.begin("other", &pod("d"), &guards(&["k"]), false, at);
    state.retain_nodes(|node| node == "other");
    assert_eq!((in_flight(&state, "k"), in_flight(&state, "l")), (1, 0));
    assert_eq!(state.take_freed(), ["shop".to_owned()].into());
}

#[test]
fn a_withdrawn_request_leaves_the_answer_at_the_version_at_which_it_was_given() {
    let (mut state, at) = (evictions(), SteadyTime::MIN);
    let refused = EvictionOutcome::RefusedByBudget("".into());
    state.begin("n", &pod("a"), &[budget("1").version().clone()], false, at);
    state.end("n", &pod("a"), RemovalRequest::Evict, refused, at);
    let is_used_up = |state: &Evictions, version: &str| {
        state.is_used_up(&AllowedDisruption { guard: budget(version).version().clone(), allowed: 1 })
    };
    assert!(is_used_up(&state, "1"));
    state.begin("n", &pod("a"), &[budget("2").version().clone()], false, at);
    assert!(is_used_up(&state, "2"), "by the request");
    state.withdraw("n", &pod("a"));
    assert!(!is_used_up(&state, "2"));
}

#[test]
fn a_change_of_a_budget_concerns_the_nodes_with_pods_that_wait_in_its_namespace() {
    let (mut state, at) = (evictions(), SteadyTime::MIN);
    let webhook = EvictionOutcome::RefusedByWebhook { webhook: String::new(), message: String::new() };
    let answer = |state: &mut Evictions, namespace: &str, outcome: &EvictionOutcome| {
        let pod = pod_in(namespace, namespace);
        state.begin("n", &pod, &[], false, at);
        state.end("n", &pod, RemovalRequest::Evict, outcome.clone(), at);
    };
    let waiting = |state: &mut Evictions| ["a", "b"].map(|name| state.nodes_waiting_in(name).join(","));
    for namespace in ["a", "b"] {
        answer(&mut state, namespace, &webhook);
    }
    assert_eq!(waiting(&mut state), ["n", "n"]);
    answer(&mut state, "a", &EvictionOutcome::Accepted);
    assert_eq!(waiting(&mut state), ["", "n"]);
    state.defer("n", &pod_in("a", "a"), &budget("1").version().key, at);
    assert_eq!(waiting(&mut state), ["n", "n"]);
    state.retain_nodes(|_| false);
    assert!(state.waiting.is_empty());
}

#[test]
fn a_budget_is_busy_until_the_pods_whose_evictions_it_allowed_are_gone() {
    let mut state = evictions();
    let now = state.now();
    let slow = |uid: &str| DrainPod { grace_seconds: 600, ..pod(uid) };
    let guards = [budget("1").version().clone()];
    for uid in ["a", "b"] {
        state.begin("n", &slow(uid), &guards, false, now);
        state.end("n", &slow(uid), RemovalRequest::Evict, EvictionOutcome::Accepted, now);
    }
    let busy_until = |state: &Evictions| state.budgets[&guards[0].key].busy_until().unwrap();
    let deadline = now.after(Duration::from_secs(600));
    assert_eq!(busy_until(&state), deadline);
    state.forget_gone("n", |uid| uid == "b");
    assert_eq!(busy_until(&state), deadline, "b terminates still");
    state.forget_gone("n", |_| false);
    let gone = busy_until(&state);
    assert!(gone >= now && gone < now.after(Duration::from_secs(300)), "{gone:?}");
}

#[test]
fn a_budget_is_busy_until_its_pods_that_others_have_deleted_are_gone() {
    let object = |name: &str, app: &str, at_most: i32| -> PodDisruptionBudget {
        serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": name, "resourceVersion": "1"},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {"expectedPods": 3, "desiredHealthy": 3 - at_most, "currentHealthy": 2, "disruptionsAllowed": 0},
        }))
        .unwrap()
    };
    let all = vec![object("cart", "cart", 1), object("never", "cart", 0), object("other", "other", 1)];
    let mut budgets = DisruptionBudgets::default();
    budgets.apply(WatchUpdate::Listed(all), SteadyTime::MIN);
    let deleted =
        json!({"metadata": {"namespace": "shop", "name": "a", "uid": "a", "labels": {"app": "cart"}}});
    let deleted: DrainPod = serde_json::from_value(deleted).unwrap();
    let busy_until = |state: &Evictions, name: &str| {
        let key = BudgetKey { namespace: "shop".into(), name: name.into() };
        state.budgets.get(&key).and_then(BudgetRequests::busy_until)
    };
    for was_refused in [false, true] {
        let mut state = evictions();
        let before = state.now();
        if was_refused {
            let guards: Vec<_> = budgets.moved_by(&deleted).cloned().collect();
            state.begin("n", &deleted, &guards, true, before);
            let refused = EvictionOutcome::RefusedByBudget("".into());
            state.end("n", &deleted, RemovalRequest::Evict, refused, before);
        }
        let asked = last_request(&mut state);
        state.note_terminating("n", &deleted, Duration::from_secs(600), &budgets);
        let until = busy_until(&state, "cart").unwrap();
        assert!(until >= before.after(Duration::from_secs(600)), "{until:?}");
        assert_eq!((busy_until(&state, "other"), busy_until(&state, "never")), (None, None));
        assert_eq!(last_request(&mut state), asked, "nothing is requested");
        // The end is not put off.
        state.note_terminating("n", &deleted, Duration::from_secs(900), &budgets);
        assert_eq!(busy_until(&state, "cart"), Some(until));
        state.forget_gone("n", |_| false);
        assert!(busy_until(&state, "cart").is_some_and(|gone| gone < until));
    }
}

#[test]
fn a_request_for_a_budget_that_seems_exhausted_is_a_probe() {
    let mut state = evictions();
    let at = SteadyTime::MIN;
    let guards = [budget("1").version().clone()];
    state.begin("n", &pod("asked"), &guards, true, at);
    state.begin("n", &pod("allowed"), &guards, false, at);
    let attempts = state.attempts("n");
    assert!(attempts["asked"].is_probe && !attempts["allowed"].is_probe);
    state.end("n", &pod("asked"), RemovalRequest::Evict, EvictionOutcome::RefusedByBudget("".into()), at);
    assert!(!state.attempts("n")["asked"].is_probe);
}

#[test]
fn pods_that_were_deleted_are_known_until_a_status_counts_them_or_their_node_is_left() {
    use RemovalRequest::{Delete, Evict};
    let (mut state, at) = (evictions(), SteadyTime::MIN);
    let end = |state: &mut Evictions, uid: &str, request, outcome| {
        let _withdrawal = state.begin("n", &pod(uid), &[], false, at);
        state.end("n", &pod(uid), request, outcome, at);
    };
    end(&mut state, "evicted", Evict, EvictionOutcome::Accepted);
    end(&mut state, "refused", Delete, EvictionOutcome::Forbidden("".into()));
    end(&mut state, "gone", Delete, EvictionOutcome::Gone);
    assert_eq!(state.deleted("n"), []);
    end(&mut state, "a", Delete, EvictionOutcome::Accepted);
    end(&mut state, "b", Delete, EvictionOutcome::Accepted);
    assert_eq!(state.deleted("n").len(), 2);
    end(&mut state, "c", Delete, EvictionOutcome::Accepted);
    state.forget_deleted("n", 2);
    assert_eq!(state.deleted("n"), [pod::reference(&pod("c"))]);
    state.leave_node("n");
    assert_eq!(state.deleted("n"), []);
}
