//! Pods of Deployments whose rollout is stalled, or that have not been read yet.

use super::*;

#[test]
fn a_pod_of_a_stalled_rollout_is_left_alone_because_the_rollout_may_continue() {
    let evictions = |state: WorkloadState, budgets: Budgets| {
        decided(&json!({}), &ClusterState { budgets, ..observed(Some(state)) }).evictions.len()
    };
    assert_eq!(evictions(stalled(), counting_budget(1, 2)), 0, "its replacement has become Ready");
    assert_eq!(evictions(stalled(), counting_budget(1, 3)), 1, "its budget allows an eviction anyway");
}

#[test]
fn a_stalled_rollout_that_somebody_undoes_is_not_restarted() {
    let status = after(&json!({}), decided(&surging(Some(3)), &observed(Some(stalled()))));
    assert_eq!(obstacle_in(&status), SurgeObstacle::Stalled);
    // The budget counts the new pod too, and would allow an eviction if it were healthy.
    let counted = ClusterState { budgets: budget(1, 1, 2), ..observed(Some(stalled())) };
    let status = after(&status, decided(&status, &counted));
    assert_eq!(obstacle_in(&status), SurgeObstacle::Stalled);
    let decision = decided(&status, &observed(Some(workload(5, 5))));
    assert!(decision.restarts.is_empty());
    assert_eq!(obstacle(&decision), SurgeObstacle::RolledBack);
}

/// The workload whose rollout exceeded its deadline.
fn stalled() -> WorkloadState {
    let WorkloadState::Known(mut workload) = workload(4, 3) else { unreachable!() };
    let mut deployment = workload.deployment.as_deref().unwrap().clone();
    let condition = json!({"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"});
    deployment.status.as_mut().unwrap().conditions = Some(vec![parse(condition)]);
    workload.deployment = Some(Arc::new(deployment));
    WorkloadState::Known(workload)
}

/// The workload whose rollout exceeded its deadline, with these pods, of which so many are wanted.
fn stalled_with(wanted: i32, pods: Vec<Arc<DrainPod>>) -> WorkloadState {
    let WorkloadState::Known(mut workload) = stalled() else { unreachable!() };
    let mut deployment = workload.deployment.as_deref().unwrap().clone();
    deployment.spec.as_mut().unwrap().replicas = Some(wanted);
    (workload.deployment, workload.pods) = (Some(Arc::new(deployment)), pods);
    WorkloadState::Known(workload)
}

fn unready(name: &str, set: &str) -> Arc<DrainPod> {
    let mut unready = DrainPod::clone(&pod(name, set));
    unready.ready = None;
    Arc::new(unready)
}

#[test]
fn a_pod_of_a_stalled_rollout_is_evicted_if_its_budget_can_do_without_the_pods_that_the_rollout_added() {
    // The other three healthy pods are those of another Deployment.
    let decide = |budgets: Budgets, pods: Vec<Arc<DrainPod>>| {
        let workload = Some(stalled_with(1, pods));
        decided(&json!({}), &ClusterState { budgets, ..observed(workload) })
    };
    let old = || pod("old", "web-1");
    let evictions = |healthy, pods| decide(counting_budget(2, healthy), pods).evictions.len();
    assert_eq!(evictions(4, vec![old(), unready("new", "web-2")]), 1, "the rollout added no healthy pod");
    assert_eq!(evictions(5, vec![old(), pod("new", "web-2")]), 1, "without the new pod there are four");
    assert_eq!(evictions(3, vec![old(), pod("new", "web-2")]), 0, "without the new pod there are two");
    assert_eq!(evictions(4, vec![pod("new", "web-2")]), 0, "the pods of the Deployment are not all known");
}

#[test]
fn a_pod_that_is_left_alone_because_of_a_stalled_rollout_is_blocked_with_that_reason() {
    let pods = vec![pod("old", "web-1"), pod("new", "web-2")];
    let workload = Some(stalled_with(1, pods));
    let decision =
        decided(&json!({}), &ClusterState { budgets: counting_budget(1, 2), ..observed(workload) });
    assert!(decision.evictions.is_empty());
    assert_eq!(obstacle(&decision), SurgeObstacle::Stalled);
}

#[test]
fn an_exhausted_budget_is_asked_about_a_pod_of_a_stalled_rollout_only_if_the_rollout_has_added_no_pod() {
    // Of the two healthy pods that the budget requires, one or both are those of the Deployment.
    let decide = |workload: Option<WorkloadState>| {
        let budgets = counting_unhealthy(2, 2, 3);
        let blocked_after = Duration::from_secs(30);
        decided(&json!({}), &ClusterState { budgets, blocked_after, ..observed(workload) })
    };
    let old = || pod("old", "web-1");
    let none_added = decide(Some(stalled_with(1, vec![old(), unready("new", "web-2")])));
    assert_eq!(none_added.evictions.len(), 1, "the eviction is tried, as of any exhausted budget");
    assert!(none_added.evictions[0].uses_disruption.is_none());
    assert_eq!(obstacle(&none_added), SurgeObstacle::Stalled);
    let added = decide(Some(stalled_with(1, vec![old(), pod("new", "web-2")])));
    assert!(added.evictions.is_empty(), "the rollout may end a pod at any moment");
    assert_eq!(obstacle(&added), SurgeObstacle::Stalled);
    assert!(decide(None).evictions.is_empty(), "the Deployment is not known yet");
}

#[test]
fn a_pod_waits_until_it_is_known_what_controls_it_unless_it_is_shown_as_blocked() {
    let counts = |status: &Value| {
        let decision = decided(status, &observed(None));
        assert!(decision.evictions.is_empty());
        let counts = decision.status.unwrap().pod_counts;
        (counts.waiting, counts.blocked)
    };
    assert_eq!(counts(&json!({})), (1, 0));
    let blocked = json!({"namespace": "shop", "name": "old", "reason": "DisruptionBudget", "message": "x",
        "since": "2026-01-01T00:30:00Z", "attempts": 1});
    assert_eq!(counts(&json!({"phase": "Running", "blockedPods": [blocked]})), (0, 1));
}
