//! Pods that wait for the turn of their budget, and when they are blocked instead.

use std::collections::HashMap;

use super::*;
use crate::api::status::{WaitReason, WaitingPod};
use crate::cluster::disruption_budget::Budget;
use crate::drain::budget_allowance::RemainingBudget;
use crate::drain::budget_motion::BudgetMotion;
use crate::drain::cordon_backoff::RecordonBackoff;

const LIMIT: Duration = Duration::from_secs(30);

fn at(second: u64) -> SteadyTime {
    SteadyTime::after_start(Duration::from_secs(second))
}

/// A budget that guards all pods, of which so many of five are healthy and four have to be.
fn budget(healthy: i32, conditions: &Value) -> Arc<Budget> {
    budget_of(5, healthy, conditions)
}

/// The same of so many expected pods. Of four, it can never allow an eviction.
fn budget_of(expected: i32, healthy: i32, conditions: &Value) -> Arc<Budget> {
    let object: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"namespace": "ns", "name": "guard", "resourceVersion": "1"}, "spec": {"selector": {}},
        "status": {"currentHealthy": healthy, "desiredHealthy": 4,
            "disruptionsAllowed": (healthy - 4).max(0), "expectedPods": expected, "conditions": conditions},
    }))
    .unwrap();
    Arc::new(Budget::from(&object))
}

fn left(budget: Arc<Budget>) -> RemainingBudget {
    RemainingBudget::of(budget, None, 0, [])
}

/// Two guarded pods, at `second` after the start of this program.
fn guarded(budget: RemainingBudget, second: u64) -> ClusterState {
    let ready = |name: &str| {
        let mut pod = DrainPod::clone(&pod_named(name, &json!({})));
        pod.ready = Some(pod::ConditionStatus::True);
        Arc::new(pod)
    };
    ClusterState {
        budgets: Budgets::from_iter([budget]),
        blocked_after: LIMIT,
        steady_now: at(second),
        pods: Some(vec![ready("a"), ready("b")]),
        ..cordoned()
    }
}

fn status_of(object: &NodeMaintenance, state: &ClusterState) -> NodeMaintenanceStatus {
    let decision = decide(object, state, now());
    decision.status.or_else(|| object.status.clone()).unwrap()
}

fn states(state: &ClusterState) -> (i32, i32) {
    let counts = status_of(&maintenance(&json!({})), state).pod_counts;
    (counts.waiting, counts.blocked)
}

#[test]
fn a_pod_counts_as_blocked_by_its_budget_as_soon_as_the_status_says_so() {
    let budget = json!({
        "metadata": {"namespace": "ns", "name": "guard"}, "spec": {"selector": {}},
        "status": {"currentHealthy": 2, "desiredHealthy": 2, "disruptionsAllowed": 0, "expectedPods": 2},
    });
    let budget: PodDisruptionBudget = serde_json::from_value(budget).unwrap();
    let batch = StartBatch { uncordoned: true, ..StartBatch::default() };
    let mut ready = DrainPod::clone(&pod_named("a", &json!({})));
    ready.ready = Some(pod::ConditionStatus::True);
    let guarded = ClusterState {
        batch,
        budgets: Budgets::from_objects([&budget]),
        pods: Some(vec![Arc::new(ready)]),
        ..observed()
    };
    let early = decide(&maintenance(&json!({})), &guarded, now());
    let held: Vec<_> = early.blocked_by_budget.iter().map(|(held, _)| pod::uid(held)).collect();
    let reported = early.status.unwrap().blocked_pods;
    assert_eq!(held, reported.iter().map(|blocked| blocked.name.as_str()).collect::<Vec<_>>());
    assert_eq!((held, early.evictions.len()), (vec!["a"], 0));
}

#[test]
fn a_pod_waits_for_the_turn_of_its_budget_and_is_blocked_once_nothing_has_moved_for_a_while() {
    let changed_at = |second| left(budget(4, &json!([]))).moving(at(second), true, None);
    assert_eq!(states(&guarded(changed_at(100), 100)), (2, 0));
    assert_eq!(states(&guarded(changed_at(100), 129)), (2, 0));
    assert_eq!(states(&guarded(changed_at(100), 130)), (0, 2));
    assert_eq!(states(&guarded(changed_at(129), 130)), (2, 0), "something moved");
    let decision = decide(&maintenance(&json!({})), &guarded(changed_at(100), 110), now());
    assert!(decision.requeue_after.unwrap() <= Duration::from_secs(20), "{:?}", decision.requeue_after);
    let status = decision.status.unwrap();
    let waiting = status.waiting_pods.clone().unwrap();
    let told: Vec<_> = waiting.iter().map(|pod| (pod.name.as_str(), pod.reason, pod.ahead)).collect();
    assert_eq!(told, [("a", WaitReason::BudgetTurn, 0), ("b", WaitReason::BudgetTurn, 1)]);
    let facts = waiting[0].budget.as_ref().unwrap();
    assert_eq!(
        (facts.name.as_str(), facts.current_healthy, facts.desired_healthy),
        ("guard", Some(4), Some(4))
    );
    assert_eq!((status.last_error.as_str(), status.blocked_pods.len()), ("", 0));
    assert_eq!(condition(&status, "Drained"), ("False", "Evicting"));
}

#[test]
fn the_pod_of_the_reconciler_is_reported_as_evicted_last() {
    let own = pod_named("b", &json!({}));
    let own_pod = Some(pod::reference(&own));
    let pods =
        |pods: Vec<Arc<DrainPod>>| ClusterState { pods: Some(pods), own_pod: own_pod.clone(), ..cordoned() };
    let status = |state: &ClusterState| status_of(&maintenance(&json!({})), state);
    let both = pods(vec![pod_named("a", &json!({})), Arc::clone(&own)]);
    let waiting = status(&both).waiting_pods.unwrap_or_default();
    let told: Vec<_> = waiting.iter().map(|pod| (pod.name.as_str(), pod.reason)).collect();
    assert_eq!(told, [("b", WaitReason::EvictedLast)]);
    let mut paused = maintenance(&json!({}));
    paused.spec.suspend = true;
    paused.status = Some(status(&both));
    assert_eq!(status_of(&paused, &both).waiting_pods, None, "none is evicted while it is paused");
    let timed = maintenance(&json!({"spec": {"drain": {"timeoutSeconds": 60}}}));
    let begun = after(&timed, &decide(&timed, &both, now()));
    assert_eq!(status_of(&begun, &both).waiting_pods.map(|pods| pods.len()), Some(1));
    let late = decide(&begun, &both, now() + SignedDuration::from_secs(60)).status.unwrap();
    assert_eq!((late.phase, late.waiting_pods), (Some(Phase::Failed), None), "nor once it has timed out");
    let recordons = RecordonBackoff { count: 3, since_last: Duration::from_secs(1) };
    let contested = ClusterState { node: observed().node, recordons, ..both };
    assert_eq!(status_of(&begun, &contested).waiting_pods, None, "nor before its node is cordoned again");
}

#[test]
fn a_budget_that_can_never_allow_an_eviction_blocks_at_once() {
    let failed = json!([{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "no scale",
        "lastTransitionTime": now()}]);
    let now_changed = |budget| states(&guarded(left(budget).moving(at(100), true, None), 100));
    assert_eq!(now_changed(budget(4, &failed)), (0, 2));
    assert_eq!(now_changed(budget_of(4, 4, &json!([]))), (0, 2));
}

/// The two guarded pods, not Ready, on a node with such a condition `Ready`.
fn unready_on(ready: &Value, budget: RemainingBudget, second: u64) -> ClusterState {
    let mut observed = guarded(budget, second);
    let mut node = Node::clone(observed.node.as_ref().unwrap());
    let mut condition = json!({"type": "Ready"});
    json_patch_merge(&mut condition, ready);
    node.status = serde_json::from_value(json!({"conditions": [condition]})).unwrap();
    let unready = ["a", "b"].map(|name| Arc::new(DrainPod::clone(&pod_named(name, &json!({})))));
    (observed.node, observed.pods) = (Some(Arc::new(node)), Some(unready.into()));
    observed
}

#[test]
fn pods_of_a_node_that_does_not_report_do_not_wait_for_each_other_to_be_ready() {
    let states_on = |ready: &str, of_budget| states(&unready_on(&json!({ "status": ready }), of_budget, 100));
    let lost = |expected| left(budget_of(expected, 3, &json!([]))).moving(at(99), true, None);
    assert_eq!(states_on("Unknown", lost(5)), (0, 2), "four are needed, and only three can be Ready");
    assert_eq!(states_on("False", lost(5)), (2, 0), "its kubelet reports, and may only have been restarted");
    assert_eq!(states_on("True", lost(5)), (2, 0));
    assert_eq!(
        states_on("Unknown", lost(6)),
        (2, 0),
        "another pod is not Ready either, and may be in a moment"
    );
    let replaced = |until| states_on("Unknown", lost(5).moving(at(99), true, Some(at(until))));
    assert_eq!((replaced(90), replaced(60)), ((2, 0), (0, 2)), "an evicted pod is to be replaced");
    let motion = BudgetMotion {
        seen: at(99),
        has_changed: true,
        busy_until: Some(at(90)),
        lacks_stuck: true,
        ..BudgetMotion::default()
    };
    assert_eq!(motion.left(LIMIT, false, at(100), now()), Duration::from_secs(20), "until that is over");
}

#[test]
fn pods_of_a_node_that_does_not_report_wait_on_if_the_leader_before_has_reported_that() {
    let counts = |second| {
        let first_seen = left(budget_of(5, 3, &json!([]))).moving(at(0), false, None);
        let state = unready_on(&json!({"status": "Unknown"}), first_seen, second);
        status_of(&reported_as_waiting(), &state).pod_counts
    };
    assert_eq!((counts(1).waiting, counts(1).blocked), (1, 1));
    assert_eq!((counts(31).waiting, counts(31).blocked), (0, 2));
}

#[test]
fn pods_that_are_not_ready_wait_for_a_while_once_their_node_is_ready_again() {
    let states_after = |seconds: i64| {
        let since = now() - SignedDuration::from_secs(seconds);
        let ready = json!({"status": "True", "lastTransitionTime": since});
        let idle = left(budget_of(5, 3, &json!([]))).moving(at(0), true, None);
        let mut state = unready_on(&ready, idle, 100);
        let unready = states(&state);
        state.pods = guarded(left(budget(4, &json!([]))), 100).pods;
        (unready, states(&state))
    };
    assert_eq!(
        states_after(29),
        ((2, 0), (0, 2)),
        "those that are Ready do not change what the budget allows"
    );
    assert_eq!(states_after(30), ((0, 2), (0, 2)));
}

#[test]
fn a_budget_whose_evicted_pods_have_no_replacements_yet_blocks_once_nothing_has_moved_for_a_while() {
    // It counts the pods that exist, and the owner has not created the next one.
    let evicted_until = left(budget_of(4, 4, &json!([]))).moving(at(0), false, Some(at(100)));
    assert_eq!(states(&guarded(evicted_until.clone(), 100)), (2, 0));
    assert_eq!(states(&guarded(evicted_until.clone(), 129)), (2, 0));
    assert_eq!(states(&guarded(evicted_until, 130)), (0, 2));
    // The leader that evicted them is not the one that decides now.
    let counts = |second| {
        let first_seen = left(budget_of(4, 4, &json!([]))).moving(at(0), false, None);
        status_of(&reported_as_waiting(), &guarded(first_seen, second)).pod_counts
    };
    assert_eq!((counts(1).waiting, counts(1).blocked), (1, 1));
    assert_eq!((counts(31).waiting, counts(31).blocked), (0, 2));
    // It came closer to an eviction, and was then changed.
    let changed = left(budget_of(4, 4, &json!([]))).moving(at(100), true, None);
    let counts = status_of(&reported_as_waiting(), &guarded(changed, 101)).pod_counts;
    assert_eq!((counts.waiting, counts.blocked), (0, 2));
}

/// A maintenance of which a leader has reported that pod `a` waits for its budget.
fn reported_as_waiting() -> NodeMaintenance {
    maintenance(&json!({"status": {"phase": "Running", "totalpods": 2, "evictionPods": 2, "waitingPods": [
        {"namespace": "ns", "name": "a", "reason": "BudgetTurn", "since": "2026-01-01T00:50:00Z"}]}}))
}

#[test]
fn a_leader_that_does_not_know_when_a_budget_moved_relies_on_what_it_shows() {
    let unready = |seconds: i64| {
        let since = now() - SignedDuration::from_secs(seconds);
        json!([{"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
            "lastTransitionTime": since}])
    };
    let first_seen = |conditions: &Value| left(budget(4, conditions)).moving(at(0), false, None);
    assert_eq!(states(&guarded(first_seen(&unready(5)), 1)), (2, 0));
    assert_eq!(states(&guarded(first_seen(&unready(300)), 1)), (0, 2), "it has been exhausted for long");
    assert_eq!(states(&guarded(first_seen(&json!([])), 1)), (0, 2));
    // The leader before this one has seen it move.
    let waiting = reported_as_waiting();
    let counts = |second| status_of(&waiting, &guarded(first_seen(&unready(300)), second)).pod_counts;
    assert_eq!((counts(1).waiting, counts(1).blocked), (1, 1));
    assert_eq!((counts(31).waiting, counts(31).blocked), (0, 2));
}

#[test]
fn a_pod_that_takes_long_to_terminate_and_a_request_in_flight_keep_the_others_waiting() {
    let terminates = left(budget(4, &json!([]))).moving(at(100), true, Some(at(220)));
    assert_eq!(states(&guarded(terminates.clone(), 219)), (2, 0));
    assert_eq!(states(&guarded(terminates.clone(), 249)), (2, 0));
    assert_eq!(states(&guarded(terminates, 250)), (0, 2));
    let in_flight = RemainingBudget::of(budget(5, &json!([])), None, 1, []).moving(at(0), true, None);
    assert_eq!(states(&guarded(in_flight, 500)), (2, 0));
}

#[test]
fn pods_wait_for_the_one_that_takes_the_disruption_that_their_budget_has_allowed_for_long() {
    let healthy_since = now() - SignedDuration::from_secs(300);
    let healthy = json!([{"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods", "message": "",
        "lastTransitionTime": healthy_since}]);
    let state = guarded(left(budget(5, &healthy)).moving(at(0), false, None), 1);
    assert_eq!(states(&state), (2, 0));
    let status = status_of(&maintenance(&json!({})), &state);
    let waiting: Vec<_> = status.waiting_pods.iter().flatten().map(|pod| pod.name.as_str()).collect();
    assert_eq!(waiting, ["b"]);
}

#[test]
fn a_pod_stays_blocked_while_its_exhausted_budget_is_asked_again() {
    let moved = |in_flight| {
        RemainingBudget::of(budget(4, &json!([])), None, in_flight, []).moving(at(100), true, None)
    };
    let mut refused = Attempt::default();
    refused.end(EvictionOutcome::RefusedByBudget("no".into()), at(490));
    let asked = |attempt: Attempt| {
        let attempts =
            HashMap::from([("a".to_owned(), Attempt { in_flight: true, is_probe: true, ..attempt })]);
        ClusterState { attempts, ..guarded(moved(1), 500) }
    };
    for attempt in [Attempt::default(), refused] {
        let state = asked(attempt);
        assert_eq!(states(&state), (0, 2));
        let held = decide(&maintenance(&json!({})), &state, now()).blocked_by_budget;
        assert_eq!(held.iter().map(|(pod, _)| pod::uid(pod)).collect::<Vec<_>>(), ["b"]);
    }
    let evicted = guarded(moved(1), 500);
    let attempts = HashMap::from([("a".to_owned(), Attempt { in_flight: true, ..Attempt::default() })]);
    assert_eq!(states(&ClusterState { attempts, ..evicted }), (0, 1), "a request that the budget allowed");
}

#[test]
fn a_refusal_of_a_budget_that_is_not_known_blocks_after_the_same_time() {
    let refused = |second| {
        let mut attempt = Attempt::default();
        attempt.end(EvictionOutcome::RefusedByBudget("no".into()), at(100));
        let state = guarded(left(budget(4, &json!([]))), second);
        let attempts = [("a", attempt.clone()), ("b", attempt)].map(|(uid, it)| (uid.to_owned(), it));
        states(&ClusterState { budgets: Budgets::default(), attempts: attempts.into(), ..state })
    };
    assert_eq!((refused(110), refused(131)), ((2, 0), (0, 2)));
}

#[test]
fn numbers_of_budgets_alone_are_not_written_at_once() {
    let state =
        |healthy, second| guarded(left(budget(healthy, &json!([]))).moving(at(second), true, None), second);
    let first = decide(&maintenance(&json!({})), &state(3, 100), now());
    let object = after(&maintenance(&json!({})), &first);
    let later = now() + SignedDuration::from_secs(5);
    let again = decide(&object, &state(4, 105), later);
    assert!(again.status.is_none() && again.requeue_after.is_some(), "{:?}", again.status);
    let minute = now() + SignedDuration::from_secs(60);
    let status = decide(&object, &state(4, 160), minute).status.unwrap();
    assert_eq!(status.waiting_pods.unwrap()[0].budget.as_ref().unwrap().current_healthy, Some(4));
}

#[test]
fn pods_that_wait_only_because_of_the_order_are_reported_with_the_pods_before_them() {
    let of = |name: &str, priority: i32, edit: &dyn Fn(&mut DrainPod)| {
        let mut pod = DrainPod::clone(&pod_named(name, &json!({})));
        pod.priority = priority;
        edit(&mut pod);
        Arc::new(pod)
    };
    let told = |pods: Vec<Arc<DrainPod>>, drain: Value| {
        let state = ClusterState { pods: Some(pods), ..cordoned() };
        let waiting = status_of(&maintenance(&json!({"spec": {"drain": drain}})), &state).waiting_pods;
        let shown = |pod: &WaitingPod| format!("{} {} {}", pod.name, pod.reason.as_str(), pod.ahead);
        waiting.iter().flatten().map(shown).collect::<Vec<_>>()
    };
    let ordered = json!({"order": "PriorityAscending"});
    let plain = |name: &str, priority: i32| of(name, priority, &|_| {});
    let pods = vec![plain("a", 1000), plain("b", 10), plain("c", 0), plain("d", 0)];
    assert_eq!(told(pods.clone(), ordered.clone()), ["a Order 3", "b Order 2"]);
    assert_eq!(told(pods, json!({})), [""; 0]);
    let mounts = of("database", 1000, &|pod| pod.mounts_served_volume = true);
    let driver = of("driver", -10, &|pod| pod.registers_plugin = true);
    assert_eq!(told(vec![mounts, driver, plain("web", 0)], ordered), ["database Order 1", "driver Order 2"]);
}
