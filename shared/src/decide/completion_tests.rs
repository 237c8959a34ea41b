//! Decisions about pods that may terminate on their own (`spec.drain.waitForCompletion`).

use super::*;
use crate::api::departed_pods::DepartedPods;
use crate::api::status::WaitingPod;

fn at(second: i64) -> Timestamp {
    now().checked_add(SignedDuration::from_secs(second)).unwrap()
}

/// A maintenance that waits for Jobs for up to so many seconds.
fn patient(timeout: i64) -> NodeMaintenance {
    maintenance(&json!({"spec": {"drain": {"waitForCompletion": {"timeoutSeconds": timeout}}}}))
}

fn of_job(name: &str) -> Arc<DrainPod> {
    let job = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true}]);
    pod_named(name, &json!({"ownerReferences": job}))
}

/// A node with the pod `a` of a Job, and the other pod `b`.
fn with_job(observed: ClusterState) -> ClusterState {
    ClusterState { pods: Some(vec![of_job("a"), pod_named("b", &json!({}))]), ..observed }
}

/// The maintenance after its first decision.
fn begun(timeout: i64) -> NodeMaintenance {
    let new = patient(timeout);
    after(&new, &decide(&new, &with_job(observed()), now()))
}

fn completing(maintenance: &NodeMaintenance) -> Vec<WaitingPod> {
    maintenance.status.as_ref().unwrap().waiting_pods.clone().unwrap_or_default()
}

#[test]
fn a_pod_that_is_waited_for_is_reported_and_the_others_leave_meanwhile() {
    let decision = decide(&patient(0), &with_job(observed()), now());
    assert_eq!(asked(&decision), ["b"]);
    assert_eq!(decision.evictable, Some(["b".to_owned()].into()), "a queued request for it is dropped");
    assert_eq!(decision.requeue_after, None, "the end of the pod is an event");
    let status = decision.status.as_ref().unwrap();
    assert_eq!((status.eviction_pods, status.pod_counts.waiting), (2, 2));
    assert_eq!(condition(status, "Drained"), ("False", "Evicting"));
    let [pod]: [WaitingPod; 1] = status.waiting_pods.clone().unwrap().try_into().unwrap();
    assert_eq!((pod.reference().to_string().as_str(), pod.since.0, pod.until), ("ns/a", now(), None));
    assert!(status.blocked_pods.is_empty() && status.last_error.is_empty());
}

#[test]
fn a_pod_that_has_ended_is_evicted_like_any_other_finished_pod() {
    let mut ended = DrainPod::clone(&of_job("a"));
    ended.phase = pod::PodPhase::Finished;
    let seen = ClusterState { pods: Some(vec![Arc::new(ended)]), ..cordoned() };
    let decision = decide(&begun(0), &seen, at(30));
    assert_eq!(asked(&decision), ["a"]);
    assert_eq!(decision.status.unwrap().waiting_pods, None);
    let gone = ClusterState { pods: Some(vec![]), ..cordoned() };
    assert_eq!(decide(&begun(0), &gone, at(60)).status.unwrap().phase, Some(Phase::Succeeded));
}

#[test]
fn when_the_time_is_up_the_pod_is_evicted_and_a_decision_is_due_then() {
    let first = decide(&patient(60), &with_job(observed()), now());
    assert_eq!(first.requeue_after, Some(Duration::from_secs(60)));
    let begun = begun(60);
    assert_eq!(completing(&begun)[0].until.as_ref().unwrap().0, at(60));
    let early = decide(&begun, &with_job(cordoned()), at(59));
    assert_eq!((asked(&early), early.requeue_after), (vec!["b"], Some(Duration::from_secs(1))));
    assert!(early.status.is_none(), "nothing has changed");
    let late = decide(&begun, &with_job(cordoned()), at(60));
    assert_eq!(asked(&late), ["a", "b"]);
    assert_eq!(late.status.unwrap().waiting_pods, None);
}

#[test]
fn a_pod_is_reported_since_the_first_status_that_listed_it() {
    let mut spec = begun(60);
    spec.spec.drain.as_mut().unwrap().wait_for_completion.as_mut().unwrap().timeout_seconds = 90;
    let changed = after(&spec, &decide(&spec, &with_job(cordoned()), at(10)));
    let [pod]: [WaitingPod; 1] = completing(&changed).try_into().unwrap();
    assert_eq!((pod.since.0, pod.until.unwrap().0), (now(), at(90)));
}

#[test]
fn the_time_does_not_run_while_the_maintenance_is_paused() {
    let mut paused = begun(60);
    paused.spec.suspend = true;
    let decision = decide(&paused, &with_job(cordoned()), at(10));
    assert_eq!(decision.requeue_after, None);
    let paused = after(&paused, &decision);
    assert_eq!(completing(&paused)[0].until, None, "it would change every second");
    let still = decide(&paused, &with_job(cordoned()), at(100));
    assert!(still.status.is_none() && still.evictions.is_empty());
    let mut resumed = paused;
    resumed.spec.suspend = false;
    let decision = decide(&resumed, &with_job(cordoned()), at(110));
    assert_eq!((asked(&decision), decision.requeue_after), (vec!["b"], Some(Duration::from_secs(50))));
    let resumed = after(&resumed, &decision);
    assert_eq!(completing(&resumed)[0].until.as_ref().unwrap().0, at(160));
    assert_eq!(asked(&decide(&resumed, &with_job(cordoned()), at(160))), ["a", "b"]);
}

#[test]
fn the_timeout_of_the_drain_fails_it_also_while_a_pod_is_waited_for() {
    let times_out =
        json!({"spec": {"drain": {"timeoutSeconds": 30, "waitForCompletion": {"timeoutSeconds": 60}}}});
    let new = maintenance(&times_out);
    let begun = after(&new, &decide(&new, &with_job(observed()), now()));
    assert_eq!(completing(&begun)[0].until, None, "it is not evicted");
    let late = decide(&begun, &with_job(cordoned()), at(30));
    assert_eq!(late.status.as_ref().unwrap().phase, Some(Phase::Failed));
    assert!(asked(&late).is_empty() && asked(&decide(&begun, &with_job(cordoned()), at(60))).is_empty());
}

#[test]
fn an_eviction_that_was_accepted_before_the_option_was_set_takes_its_course_and_a_refusal_is_over() {
    let state = |outcome: EvictionOutcome| {
        let mut attempt = Attempt::default();
        attempt.end(outcome, SteadyTime::MIN);
        let seen = ClusterState { attempts: [("a".to_owned(), attempt)].into(), ..with_job(observed()) };
        let status = decide(&patient(0), &seen, now()).status.unwrap();
        (status.pod_counts.evicting, status.pod_counts.blocked, status.waiting_pods.is_some())
    };
    assert_eq!(state(EvictionOutcome::Accepted), (1, 0, false));
    assert_eq!(state(EvictionOutcome::RefusedByBudget("numbers".into())), (0, 0, true));
}

#[test]
fn an_invalid_selector_evicts_no_pod_and_names_its_field() {
    let selector = json!({"matchExpressions": [{"key": "app", "operator": "Near"}]});
    let completion = json!({"podSelector": selector});
    let bad = maintenance(&json!({"spec": {"drain": {"waitForCompletion": completion}}}));
    let decision = decide(&bad, &with_job(observed()), now());
    assert!(decision.evictions.is_empty() && decision.evictable == Some(HashSet::new()));
    let status = decision.status.as_ref().unwrap();
    assert_eq!(condition(status, "Drained"), ("False", "InvalidDrain"));
    let error = "spec.drain.waitForCompletion.podSelector: ";
    assert!(status.last_error.starts_with(error), "{}", status.last_error);
}

#[test]
fn at_most_fifty_pods_are_listed() {
    let pods: Vec<_> = (0..60).map(|at| of_job(&format!("{at:02}"))).collect();
    let seen = ClusterState { pods: Some(pods), ..observed() };
    let status = decide(&patient(0), &seen, now()).status.unwrap();
    let listed = status.waiting_pods.unwrap();
    assert_eq!((listed.len(), listed[0].name.as_str(), status.pod_counts.waiting), (50, "00", 60));
}

#[test]
fn what_becomes_of_pods_that_do_not_move_is_counted_once_it_is_known() {
    let bare = json!({"metadata": {"namespace": "ns", "name": "c", "uid": "c"},
        "spec": {"containers": [], "volumes": [{"name": "v", "emptyDir": {}}]}});
    let bare: Arc<DrainPod> = Arc::new(serde_json::from_value(bare).unwrap());
    let with =
        |pods: Vec<Arc<DrainPod>>, observed: ClusterState| ClusterState { pods: Some(pods), ..observed };
    let departed = |timeout: i64, second: i64| {
        let new = patient(timeout);
        let first = decide(&new, &with(vec![of_job("a"), bare.clone()], observed()), now());
        let begun = after(&new, &first);
        let known = DepartedPods { unmanaged: 1, losing_empty_dir_data: 1, ..DepartedPods::default() };
        assert_eq!(begun.status.as_ref().unwrap().departed_pods, Some(known));
        let later = decide(&begun, &with(vec![bare.clone()], cordoned()), at(second));
        let after = after(&begun, &later);
        let again = decide(&after, &with(vec![bare.clone()], cordoned()), at(second + 9));
        let last = again.status.or_else(|| after.status.clone()).unwrap();
        assert_eq!(last.departed_pods, after.status.unwrap().departed_pods, "nothing is counted twice");
        last.departed_pods.unwrap().completed
    };
    assert_eq!(departed(0, 30), 1);
    assert_eq!(departed(60, 30), 1);
    assert_eq!(departed(60, 90), 0, "it was evicted by then");
}

#[test]
fn a_pod_of_a_job_that_did_not_complete_in_time_counts_as_one_that_is_evicted() {
    let new = patient(60);
    let first = decide(&new, &ClusterState { pods: Some(vec![of_job("a")]), ..observed() }, now());
    let begun = after(&new, &first);
    assert_eq!(begun.status.as_ref().unwrap().departed_pods.unwrap().of_jobs, 0);
    let seen = || ClusterState { pods: Some(vec![of_job("a")]), ..cordoned() };
    let late = after(&begun, &decide(&begun, &seen(), at(61)));
    assert_eq!(late.status.as_ref().unwrap().departed_pods.unwrap().of_jobs, 1);
    let again = decide(&late, &seen(), at(70)).status.or_else(|| late.status.clone()).unwrap();
    assert_eq!(again.departed_pods.unwrap().of_jobs, 1, "once");
}

#[test]
fn a_pod_that_has_completed_counts_as_such_although_its_object_is_deleted_by_the_drain() {
    let begun = begun(0);
    let mut ended = DrainPod::clone(&of_job("a"));
    ended.phase = pod::PodPhase::Finished;
    let seen = || ClusterState { pods: Some(vec![Arc::new(ended.clone())]), ..cordoned() };
    let later = after(&begun, &decide(&begun, &seen(), at(30)));
    let departed = later.status.as_ref().unwrap().departed_pods.unwrap();
    assert_eq!((departed.completed, departed.of_jobs), (1, 0));
    let gone = ClusterState { pods: Some(vec![]), ..cordoned() };
    let last = decide(&later, &gone, at(31)).status.unwrap().departed_pods.unwrap();
    assert_eq!((last.completed, last.of_jobs), (1, 0), "once");
}

#[test]
fn evicted_pods_of_jobs_are_counted_because_only_the_job_knows_whether_it_replaces_them() {
    let mut maintenance = patient(0);
    maintenance.spec.drain = None;
    let seen = ClusterState { pods: Some(vec![of_job("a")]), ..observed() };
    let status = decide(&maintenance, &seen, now()).status.unwrap();
    assert_eq!(status.departed_pods, Some(DepartedPods { of_jobs: 1, ..DepartedPods::default() }));
}
