//! Which Deployments are restarted when, and which pods are not evicted meanwhile.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};

use super::*;
use crate::api::maintenance::NodeMaintenance;
use crate::api::names::FINALIZER;
use crate::api::status::BlockReason;
use crate::decide::cluster_state::StartBatch;
use crate::decide::decide;
use crate::decide::decision::Decision;
use crate::drain::budget_allowance::Budgets;
use crate::drain::eviction_attempts::Attempt;
use crate::drain::eviction_outcome::{AccessDenied, EvictionOutcome};
use crate::drain::surge::RestartRefusal;

#[path = "stalled_rollout_tests.rs"]
mod stalled_rollouts;

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

fn pod(name: &str, set: &str) -> Arc<DrainPod> {
    let owner =
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": set, "controller": true});
    Arc::new(parse(json!({
        "metadata": {"namespace": "shop", "name": name, "uid": name, "ownerReferences": [owner]},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })))
}

fn parse<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A budget that expects so many pods, of which so many are healthy and so many have to be.
fn budget(desired: i32, healthy: i32, expected: i32) -> Budgets {
    let budget: PodDisruptionBudget = parse(json!({
        "metadata": {"namespace": "shop", "name": "web", "resourceVersion": "1"}, "spec": {"selector": {}},
        "status": {"currentHealthy": healthy, "desiredHealthy": desired, "expectedPods": expected,
            "disruptionsAllowed": healthy - desired},
    }));
    Budgets::from_objects([&budget])
}

/// A budget whose `minAvailable` is a number, so that it counts the additional pods of a rollout. All pods are healthy.
fn counting_budget(desired: i32, expected: i32) -> Budgets {
    counting_unhealthy(desired, expected, expected)
}

/// The same while so many pods are healthy.
fn counting_unhealthy(desired: i32, healthy: i32, expected: i32) -> Budgets {
    let budget: PodDisruptionBudget = parse(json!({
        "metadata": {"namespace": "shop", "name": "web", "resourceVersion": "1"},
        "spec": {"selector": {}, "minAvailable": desired},
        "status": {"conditions": [{"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods",
                "message": "", "lastTransitionTime": now()}],
            "currentHealthy": healthy, "desiredHealthy": desired, "expectedPods": expected,
            "disruptionsAllowed": (healthy - desired).max(0)},
    }));
    Budgets::from_objects([&budget])
}

fn key(name: &str) -> WorkloadKey {
    WorkloadKey { namespace: "shop".into(), name: name.into() }
}

/// The Deployment `web` at a revision, and a `ReplicaSet` of it at another.
fn workload(deployment: i64, set: i64) -> WorkloadState {
    let deployment = json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "d", "resourceVersion": "9", "generation": 5,
            "annotations": {"deployment.kubernetes.io/revision": deployment.to_string()}},
        "spec": {"replicas": 1, "selector": {}, "template": {}},
        "status": {"observedGeneration": 5, "replicas": 1, "updatedReplicas": 1},
    });
    let deployment = Some(Arc::new(parse(deployment)));
    let pods = vec![pod("new", "web-2")];
    WorkloadState::Known(Workload { revision: Some(set), deployment, pods, ..Workload::default() })
}

/// A cordoned node with the pod `old` of the Deployment, whose budget never allows its eviction.
fn observed(workload: Option<WorkloadState>) -> ClusterState {
    let node = json!({"metadata": {"name": "n1", "uid": "node-uid", "resourceVersion": "9"}, "spec": {}});
    ClusterState {
        node: Some(Arc::new(parse(node))),
        pods: Some(vec![pod("old", "web-1")]),
        batch: StartBatch { age: StartBatch::MAX_DELAY, ..StartBatch::default() },
        budgets: budget(1, 1, 1),
        workloads: workload.map(|workload| (key("web-1"), workload)).into_iter().collect(),
        steady_now: SteadyTime::after_start(Duration::from_secs(3_600)),
        ..ClusterState::default()
    }
}

fn maintenance(drain: &Value, status: &Value) -> NodeMaintenance {
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-uid"});
    parse(json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
        "metadata": {"name": "m", "uid": "m-uid", "resourceVersion": "1", "generation": 1,
            "finalizers": [FINALIZER], "ownerReferences": [owner]},
        "spec": {"nodeName": "n1", "drain": drain}, "status": status,
    }))
}

fn surge() -> Value {
    json!({"surge": "WhenBlocked"})
}

/// A status that shows `old` as surging, and the revision of its `ReplicaSet` if its Deployment was restarted for it.
fn surging(revision: Option<i64>) -> Value {
    let set = |revision: i64| json!([{"namespace": "shop", "name": "web-1", "revision": revision}]);
    let pod = json!({"namespace": "shop", "name": "old", "deployment": "web", "since": "2026-01-01T00:30:00Z",
        "restarted": revision.is_some()});
    json!({"phase": "Running", "totalpods": 1, "evictionPods": 1, "surgingPods": [pod],
        "restartedReplicaSets": revision.map(set)})
}

/// The decision about a maintenance that surges.
fn decided(status: &Value, observed: &ClusterState) -> Decision {
    decide(&maintenance(&surge(), status), observed, now())
}

fn shown(decision: &Decision) -> SurgingPod {
    let status = decision.status.as_ref().expect("the status changes");
    let [pod]: [SurgingPod; 1] = status.surging_pods.clone().unwrap().try_into().unwrap();
    assert_eq!((status.pod_counts.surging, status.pod_counts.blocked), (1, 0));
    pod
}

fn obstacle(decision: &Decision) -> SurgeObstacle {
    let blocked = &decision.status.as_ref().expect("the status changes").blocked_pods[0];
    assert_eq!(blocked.reason, BlockReason::DisruptionBudget);
    assert!(blocked.message.contains("; it is not replaced first: "), "{}", blocked.message);
    blocked.facts.surge.as_ref().expect("an obstacle").reason
}

#[test]
fn nothing_is_read_by_default_or_for_a_pod_that_its_budget_releases() {
    let wanted = |drain: &Value, budgets: Budgets| {
        let observed = ClusterState { budgets, ..observed(None) };
        decide(&maintenance(drain, &json!({})), &observed, now()).workloads.unwrap().len()
    };
    assert_eq!(wanted(&json!({}), budget(1, 1, 1)), 0);
    assert_eq!(wanted(&surge(), Budgets::default()), 0);
    assert_eq!(wanted(&surge(), budget(1, 2, 2)), 0);
    assert_eq!(wanted(&surge(), budget(1, 1, 1)), 1);
}

#[test]
fn a_deployment_is_restarted_with_the_status_that_shows_its_pods_and_its_pods_are_not_evicted() {
    let decision = decided(&json!({}), &observed(Some(workload(3, 3))));
    let pod = shown(&decision);
    assert_eq!((pod.deployment.as_str(), pod.restarted, pod.replacement), ("web", true, None));
    assert_eq!(decision.restarts.len(), 1);
    let recorded = decision.status.as_ref().unwrap().restarted_replica_sets.as_deref().unwrap();
    assert_eq!(recorded, [decision.restarts[0].replica_set.clone()]);
    assert!(decision.evictions.is_empty() && decision.evictable.unwrap().is_empty());
    assert_eq!(decision.status.unwrap().last_error, "");
}

#[test]
fn a_restart_is_repeated_only_while_nothing_shows_that_it_happened() {
    let restarts = |revision: Option<i64>, workload| {
        decided(&surging(revision), &observed(Some(workload))).restarts.len()
    };
    assert_eq!(restarts(Some(3), workload(3, 3)), 1, "it was not sent, or its answer was lost");
    assert_eq!(restarts(None, workload(3, 3)), 1, "another rollout has ended");
    assert_eq!(restarts(Some(3), workload(4, 3)), 0, "it is being rolled out");
    assert_eq!(restarts(Some(3), workload(5, 5)), 0, "it was undone");
}

#[test]
fn pods_of_one_deployment_share_a_restart() {
    let pods = vec![pod("old", "web-1"), pod("older", "web-1")];
    let observed =
        ClusterState { pods: Some(pods), budgets: budget(2, 2, 2), ..observed(Some(workload(3, 3))) };
    let decision = decided(&json!({}), &observed);
    assert_eq!(decision.restarts.len(), 1);
    assert_eq!(decision.status.unwrap().surging_pods.unwrap().len(), 2);
}

#[test]
fn a_pod_that_is_being_replaced_is_shown_with_its_replacement_and_not_evicted() {
    // The budget allows a disruption by now.
    let observed = ClusterState { budgets: budget(1, 2, 2), ..observed(Some(workload(4, 3))) };
    let decision = decided(&surging(Some(3)), &observed);
    let pod = shown(&decision);
    let replacement = pod.replacement.expect("a replacement");
    assert_eq!((replacement.name.as_str(), replacement.ready), ("new", true));
    assert_eq!((pod.restarted, pod.since.0.to_string().as_str()), (true, "2026-01-01T00:30:00Z"));
    assert!(decision.evictions.is_empty());
}

#[test]
fn after_a_restart_of_the_reconciler_a_surging_pod_is_left_alone_until_its_deployment_is_known() {
    let observed = ClusterState { budgets: budget(1, 2, 2), ..observed(None) };
    let decision = decided(&surging(Some(3)), &observed);
    assert!(decision.evictions.is_empty());
    assert_eq!(decision.workloads.unwrap().len(), 1);
}

#[test]
fn a_pod_that_a_rollout_added_is_left_alone_until_the_rollout_ended() {
    // The new pod is on the node, and the Deployment ends the old one elsewhere.
    let rolling = |wanted: i32| {
        let WorkloadState::Known(mut workload) = workload(4, 4) else { unreachable!() };
        let mut deployment = workload.deployment.as_deref().unwrap().clone();
        deployment.spec.as_mut().unwrap().replicas = Some(wanted);
        deployment.status.as_mut().unwrap().replicas = Some(wanted + 1);
        workload.deployment = Some(Arc::new(deployment));
        Some(WorkloadState::Known(workload))
    };
    let evictions = |workload: Option<WorkloadState>, budgets: Budgets| {
        let decision = decided(&json!({}), &ClusterState { budgets, ..observed(workload) });
        assert!(decision.restarts.is_empty());
        decision.evictions.len()
    };
    assert_eq!(evictions(rolling(1), counting_budget(1, 2)), 0);
    assert_eq!(evictions(None, counting_budget(1, 2)), 0, "the Deployment is being read");
    assert_eq!(evictions(rolling(2), counting_budget(2, 3)), 0);
    assert_eq!(evictions(rolling(3), counting_budget(2, 4)), 1, "its budget allows an eviction anyway");
    assert_eq!(evictions(None, counting_budget(1, 3)), 1, "no rollout adds that many pods");
    assert_eq!(evictions(Some(workload(4, 4)), counting_budget(1, 2)), 1, "no rollout is under way");
}

/// The same with more pods of the Deployment.
fn with_pods(workload: WorkloadState, pods: &[Value]) -> WorkloadState {
    let WorkloadState::Known(mut workload) = workload else { unreachable!() };
    workload.pods.extend(pods.iter().map(|pod| Arc::new(parse(pod.clone()))));
    WorkloadState::Known(workload)
}

#[test]
fn a_budget_that_counts_pods_which_have_ended_never_allows_an_eviction_either() {
    let names = json!({"namespace": "shop", "name": "other"});
    let failed = json!({"metadata": names, "status": {"phase": "Failed"}});
    let deletion = json!({"namespace": "shop", "name": "other", "deletionTimestamp": "2026-01-01T01:00:30Z"});
    let terminating = json!({"metadata": deletion});
    let restarts = |budgets: Budgets, others: &[Value]| {
        let workload = with_pods(workload(3, 3), others);
        decided(&json!({}), &ClusterState { budgets, ..observed(Some(workload)) }).restarts.len()
    };
    assert_eq!(restarts(counting_unhealthy(1, 1, 2), &[]), 0, "the other pod may become healthy");
    assert_eq!(restarts(counting_unhealthy(1, 1, 2), slice::from_ref(&failed)), 1);
    assert_eq!(restarts(counting_unhealthy(1, 1, 2), slice::from_ref(&terminating)), 1);
    assert_eq!(restarts(counting_unhealthy(1, 1, 4), &[failed.clone(), failed.clone(), terminating]), 1);
    assert_eq!(restarts(budget(1, 1, 2), &[failed]), 0, "its budget expects what its controllers want");
}

#[test]
fn a_pod_that_a_rollout_added_is_left_alone_beside_pods_that_have_ended() {
    let WorkloadState::Known(mut rolling) = workload(4, 4) else { unreachable!() };
    let mut deployment = rolling.deployment.as_deref().unwrap().clone();
    deployment.status.as_mut().unwrap().replicas = Some(2);
    rolling.deployment = Some(Arc::new(deployment));
    let observed = ClusterState {
        budgets: counting_unhealthy(1, 2, 5),
        ..observed(Some(WorkloadState::Known(rolling)))
    };
    assert!(decided(&json!({}), &observed).evictions.is_empty());
}

#[test]
fn no_eviction_is_requested_while_it_is_not_known_whether_a_rollout_replaces_the_pod() {
    assert!(decided(&json!({}), &observed(None)).evictions.is_empty());
}

#[test]
fn a_restart_that_was_undone_is_not_repeated() {
    let undone = observed(Some(workload(5, 5)));
    let decision = decided(&surging(Some(3)), &undone);
    assert_eq!(obstacle(&decision), SurgeObstacle::RolledBack);
    let after = serde_json::to_value(decision.status.unwrap()).unwrap();
    let decision = decided(&after, &undone);
    assert!(decision.restarts.is_empty() && decision.status.is_none(), "{:?}", decision.status);
    // Somebody restarts it once more.
    assert!(shown(&decided(&after, &observed(Some(workload(6, 5))))).restarted);
}

/// The status after a decision, or the one before it.
fn after(status: &Value, decision: Decision) -> Value {
    decision.status.map_or_else(|| status.clone(), |status| serde_json::to_value(status).unwrap())
}

#[test]
fn a_restarted_reconciler_knows_that_a_restart_was_undone() {
    let undone = || observed(Some(workload(5, 5)));
    let status = after(&json!({}), decided(&surging(Some(3)), &undone()));
    // It does not know yet what controls the pod.
    let status = after(&status, decided(&status, &observed(None)));
    let decision = decided(&status, &undone());
    assert!(decision.restarts.is_empty());
    assert_eq!(obstacle_in(&after(&status, decision)), SurgeObstacle::RolledBack);
}

#[test]
fn a_pause_does_not_forget_that_a_restart_was_undone() {
    let undone = || observed(Some(workload(5, 5)));
    let status = after(&json!({}), decided(&surging(Some(3)), &undone()));
    let suspended = |status: &Value| {
        let mut maintenance = maintenance(&surge(), status);
        maintenance.spec.suspend = true;
        decide(&maintenance, &undone(), now())
    };
    let status = after(&status, suspended(&status));
    let status = after(&status, suspended(&status));
    let decision = decided(&status, &undone());
    assert!(decision.restarts.is_empty());
    assert_eq!(obstacle_in(&after(&status, decision)), SurgeObstacle::RolledBack);
}

#[test]
fn an_eviction_whose_answer_is_lost_does_not_forget_that_a_restart_was_undone() {
    let undone = || observed(Some(workload(5, 5)));
    let answer =
        Some((SteadyTime::after_start(Duration::from_secs(3_599)), EvictionOutcome::Unknown("lost".into())));
    let lost =
        [(pod::uid(&pod("old", "web-1")).to_owned(), Attempt { last: answer, ..Attempt::default() })].into();
    let lost = ClusterState { attempts: lost, ..undone() };
    let status = after(&json!({}), decided(&surging(Some(3)), &lost));
    let decision = decided(&status, &undone());
    assert!(decision.restarts.is_empty());
    assert_eq!(obstacle_in(&after(&status, decision)), SurgeObstacle::RolledBack);
}

#[test]
fn a_pod_is_not_evicted_while_the_rollout_that_replaces_it_is_being_undone() {
    let WorkloadState::Known(mut workload) = workload(5, 5) else { unreachable!() };
    let mut deployment = workload.deployment.as_deref().unwrap().clone();
    deployment.status.as_mut().unwrap().replicas = Some(2);
    workload.deployment = Some(Arc::new(deployment));
    // The new pod is still healthy.
    let budgets = budget(1, 2, 2);
    let observed = ClusterState { budgets, ..observed(Some(WorkloadState::Known(workload))) };
    let decision = decided(&surging(Some(3)), &observed);
    assert!(decision.evictions.is_empty() && decision.evictable.as_ref().unwrap().is_empty());
    assert!(!shown(&decision).restarted, "another rollout is under way");
}

#[test]
fn a_pod_whose_replacement_may_be_on_the_node_as_well_is_not_replaced_first() {
    let mut tolerant = (*pod("old", "web-1")).clone();
    tolerant.tolerations = Box::new([parse(json!({"operator": "Exists"}))]);
    let tolerated = ClusterState { pods: Some(vec![Arc::new(tolerant)]), ..observed(Some(workload(3, 3))) };
    let WorkloadState::Known(mut workload) = workload(3, 3) else { unreachable!() };
    let mut deployment = workload.deployment.as_deref().unwrap().clone();
    deployment.spec.as_mut().unwrap().template.spec =
        Some(parse(json!({"nodeName": "n1", "containers": []})));
    workload.deployment = Some(Arc::new(deployment));
    let named = observed(Some(WorkloadState::Known(workload)));
    for (observed, sets) in [(tolerated, "tolerates the taints of the node"), (named, "sets nodeName")] {
        let decision = decided(&json!({}), &observed);
        assert!(decision.restarts.is_empty());
        let status = after(&json!({}), decision);
        assert_eq!(obstacle_in(&status), SurgeObstacle::MayReturn);
        let message = status["blockedPods"][0]["message"].as_str().unwrap();
        assert!(message.ends_with(sets), "{message}");
    }
}

#[test]
fn after_its_timeout_a_maintenance_shows_no_restart_that_it_does_not_request() {
    let drain = json!({"surge": "WhenBlocked", "timeoutSeconds": 60});
    let condition = json!({"type": "Cordoned", "status": "True", "reason": "Cordoned", "message": "",
        "lastTransitionTime": "2026-01-01T00:30:00Z"});
    let status = json!({"phase": "Running", "totalpods": 1, "evictionPods": 1, "conditions": [condition]});
    let decision = decide(&maintenance(&drain, &status), &observed(Some(workload(3, 3))), now());
    let status = decision.status.unwrap();
    assert!(decision.restarts.is_empty());
    assert_eq!((status.surging_pods, status.restarted_replica_sets), (None, None));
}

#[test]
fn a_restart_is_remembered_while_the_drain_has_another_policy() {
    let undone = observed(Some(workload(5, 5)));
    let status = after(&json!({}), decided(&surging(Some(3)), &undone));
    let status = after(&status, decide(&maintenance(&json!({}), &status), &undone, now()));
    let decision = decided(&status, &undone);
    assert!(decision.restarts.is_empty());
    assert_eq!(obstacle_in(&after(&status, decision)), SurgeObstacle::RolledBack);
}

#[test]
fn no_more_deployments_are_restarted_than_can_be_recorded() {
    let others = || (0..MAX_RESTARTED_REPLICA_SETS).map(|index| format!("other-{index}"));
    let mut status = surging(None);
    let record = |name: String| json!({"namespace": "shop", "name": name, "revision": 1});
    status["surgingPods"] = Value::Null;
    status["restartedReplicaSets"] = others().map(record).collect();
    let pods = others().map(|name| pod(&name, &name)).chain([pod("old", "web-1")]).collect();
    let observed = ClusterState { pods: Some(pods), ..observed(Some(workload(3, 3))) };
    let decision = decided(&status, &observed);
    assert!(decision.restarts.is_empty());
    let status = decision.status.unwrap();
    assert_eq!(status.surging_pods, None);
    assert_eq!(status.restarted_replica_sets.unwrap().len(), MAX_RESTARTED_REPLICA_SETS);
}

fn obstacle_in(status: &Value) -> SurgeObstacle {
    let reason = status["blockedPods"][0]["surge"]["reason"].clone();
    serde_json::from_value(reason).unwrap()
}

#[test]
fn a_refused_restart_is_reported_and_retried() {
    let refused = |refusal: RestartRefusal, seconds_ago: u64| {
        let at = SteadyTime::after_start(Duration::from_secs(3_600 - seconds_ago));
        let refusals = [(key("web"), (at, refusal))].into();
        ClusterState { restart_refusals: refusals, ..observed(Some(workload(3, 3))) }
    };
    let denied = AccessDenied::from("User \"u\" cannot patch resource \"deployments\" in API group \"apps\"");
    let decision = decided(&json!({}), &refused(RestartRefusal::Forbidden(denied), 4));
    assert_eq!(obstacle(&decision), SurgeObstacle::Forbidden);
    let facts = &decision.status.as_ref().unwrap().blocked_pods[0].facts;
    assert_eq!(facts.forbidden.as_ref().unwrap().resource, "deployments");
    assert!(decision.status.as_ref().unwrap().blocked_pods[0].message.contains("--grant surge"));
    assert!(decision.restarts.is_empty() && decision.requeue_after.unwrap() <= Duration::from_secs(6));
    let refusal = || RestartRefusal::Refused("no".into());
    assert_eq!(obstacle(&decided(&json!({}), &refused(refusal(), 4))), SurgeObstacle::Refused);
    let retried = decided(&json!({}), &refused(refusal(), 11));
    assert_eq!(obstacle(&retried), SurgeObstacle::Refused, "it does not alternate with surging");
    assert_eq!(retried.surging, Some([key("web")].into()), "the next reconcile does not withdraw the retry");
    assert_eq!((retried.restarts.len(), retried.status.unwrap().surging_pods), (1, None));
}

#[test]
fn a_paused_maintenance_restarts_nothing() {
    let mut maintenance = maintenance(&surge(), &surging(Some(3)));
    maintenance.spec.suspend = true;
    let decision = decide(&maintenance, &observed(Some(workload(3, 3))), now());
    assert!(decision.restarts.is_empty());
    assert_eq!(decision.status.unwrap().pod_counts.surging, 0);
}

#[test]
fn a_restart_in_progress_is_withdrawn_when_the_maintenance_is_paused_or_stopped_before_anything_is_read() {
    use crate::decide::steps::DecisionStep;
    let withdrawn = |change: &dyn Fn(&mut NodeMaintenance)| {
        let mut maintenance = maintenance(&surge(), &surging(Some(3)));
        change(&mut maintenance);
        let steps = decide(&maintenance, &observed(Some(workload(3, 3))), now()).into_steps();
        let kept = steps.iter().position(|step| match step {
            DecisionStep::WithdrawRestarts(wanted) => !wanted.contains(&key("web")),
            _ => false,
        });
        let read = steps.iter().position(|step| matches!(step, DecisionStep::VerifyMaintenance));
        kept.is_some_and(|kept| read.is_none_or(|read| kept < read))
    };
    assert!(!withdrawn(&|_| {}));
    assert!(withdrawn(&|maintenance| maintenance.spec.suspend = true));
    let deleted = || parse(json!("2026-01-01T00:59:00Z"));
    assert!(withdrawn(&|maintenance| maintenance.metadata.deletion_timestamp = Some(deleted())));
}

#[test]
fn no_more_replica_sets_are_watched_than_a_node_may_have_and_pods_that_may_leave_make_room() {
    let sets = || (0..MAX_WATCHED_REPLICA_SETS + 20).map(|at| format!("set-{at:03}"));
    let pods: Vec<_> = sets().map(|set| pod(&set, &set)).collect();
    let all = ClusterState { pods: Some(pods.clone()), budgets: budget(1, 1, 1), ..observed(None) };
    let watched = |observed: &ClusterState| decided(&json!({}), observed).workloads.unwrap();
    assert_eq!(watched(&all).len(), MAX_WATCHED_REPLICA_SETS);
    // With an order, only those whose turn it is.
    let mut ordered = pods.clone();
    Arc::make_mut(ordered.last_mut().unwrap()).priority = -1;
    let spec = json!({"surge": "WhenBlocked", "order": "PriorityAscending"});
    let decision =
        decide(&maintenance(&spec, &json!({})), &ClusterState { pods: Some(ordered), ..all.clone() }, now());
    assert_eq!(decision.workloads, Some([key(&sets().next_back().unwrap())].into()));
    // The budget of the last 20 allows a disruption.
    let mut pods = pods;
    let last = sets().skip(MAX_WATCHED_REPLICA_SETS);
    for (at, set) in last.enumerate() {
        let mut other = DrainPod::clone(&pods[MAX_WATCHED_REPLICA_SETS + at]);
        other.labels = Arc::new([("app".to_owned(), "other".to_owned())].into());
        pods[MAX_WATCHED_REPLICA_SETS + at] = Arc::new(other);
        assert!(!watched(&all).contains(&key(&set)));
    }
    let of = |name: &str, operator: &str, minimum: i32, healthy: i32| -> PodDisruptionBudget {
        let requirement = json!({"key": "app", "operator": operator});
        parse(json!({
            "metadata": {"namespace": "shop", "name": name, "resourceVersion": "1"},
            "spec": {"selector": {"matchExpressions": [requirement]}, "minAvailable": minimum},
            "status": {"currentHealthy": healthy, "desiredHealthy": minimum, "expectedPods": healthy,
                "disruptionsAllowed": healthy - minimum},
        }))
    };
    let budgets = Budgets::from_objects([&of("a", "DoesNotExist", 1, 1), &of("b", "Exists", 20, 22)]);
    let some = watched(&ClusterState { pods: Some(pods), budgets, ..observed(None) });
    assert_eq!(some.len(), MAX_WATCHED_REPLICA_SETS);
    assert!(sets().skip(MAX_WATCHED_REPLICA_SETS).all(|set| some.contains(&key(&set))));
}
