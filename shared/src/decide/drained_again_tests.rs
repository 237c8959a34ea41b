//! Decisions about a node that was drained, and is drained again.

use super::*;
use crate::drain::cordon_backoff::RecordonBackoff;
use crate::drain::plan::DaemonSets;

fn at(second: i64) -> Timestamp {
    now().checked_add(SignedDuration::from_secs(second)).unwrap()
}

fn empty(observed: ClusterState) -> ClusterState {
    ClusterState { pods: Some(vec![]), ..observed }
}

/// The node without its marks: something else has uncordoned it so often that the cordon is restored later.
fn uncordoned() -> ClusterState {
    let recordons = RecordonBackoff { count: 5, since_last: Duration::from_secs(1) };
    ClusterState { recordons, ..empty(observed()) }
}

/// A maintenance whose node was cordoned at 0 s and drained at 43 s.
fn drained() -> NodeMaintenance {
    let new = maintenance(&json!({}));
    let begun = after(&new, &decide(&new, &observed(), now()));
    after(&begun, &decide(&begun, &empty(cordoned()), at(43)))
}

fn first(maintenance: &NodeMaintenance) -> (Option<Timestamp>, bool) {
    let status = maintenance.status.as_ref().unwrap();
    (status.first_drained_at(), status.first_drained.is_some())
}

#[test]
fn a_node_was_drained_when_it_was_drained_first_whatever_comes_later() {
    let drained = drained();
    assert_eq!(first(&drained), (Some(at(43)), false), "the condition has the time");
    let later = after(&drained, &decide(&drained, &cordoned(), at(100)));
    assert_eq!(condition(later.status.as_ref().unwrap(), "Drained"), ("False", "Evicting"));
    assert_eq!(first(&later), (Some(at(43)), true));
    let again = after(&later, &decide(&later, &empty(cordoned()), at(178)));
    assert_eq!(condition(again.status.as_ref().unwrap(), "Drained"), ("True", "Drained"));
    assert_eq!(first(&again), (Some(at(43)), true));
    let contested = after(&again, &decide(&again, &uncordoned(), at(200)));
    assert_eq!(condition(contested.status.as_ref().unwrap(), "Drained"), ("False", "CordonContested"));
    assert_eq!(first(&contested), (Some(at(43)), true));
}

#[test]
fn a_node_that_was_returned_to_service_meanwhile_counts_anew() {
    let drained = drained();
    let gone = after(&drained, &decide(&drained, &ClusterState { node: None, ..empty(observed()) }, at(100)));
    assert_eq!(first(&gone), (None, false));
    let begun = maintenance(&json!({}));
    let begun = after(&begun, &decide(&begun, &observed(), now()));
    assert_eq!(first(&begun), (None, false));
}

#[test]
fn a_pod_that_comes_later_does_not_lower_the_number_of_pods_that_are_gone() {
    let new = maintenance(&json!({}));
    let begun = after(&new, &decide(&new, &observed(), now()));
    let late = pod_named("late", &json!({"creationTimestamp": "2026-01-01T01:00:20Z"}));
    let early = pod_named("a", &json!({"creationTimestamp": "2026-01-01T00:59:00Z"}));
    let shown = |before: &NodeMaintenance, pods: Vec<Arc<DrainPod>>| {
        let decision = decide(before, &ClusterState { pods: Some(pods), ..cordoned() }, at(30));
        let status = after(before, &decision).status.unwrap();
        (status.pod_counts.gone, status.pod_counts.pending(), status.drain_progress)
    };
    assert_eq!(shown(&begun, vec![early.clone(), late.clone()]), (1, 2, 0));
    assert_eq!(shown(&begun, vec![early]), (1, 1, 50));
    assert_eq!(shown(&drained(), vec![late]), (2, 1, 50), "the progress is that of the medik8s operator");
    assert_eq!(shown(&drained(), vec![]), (2, 0, 100));
}

#[test]
fn pods_that_no_longer_have_to_leave_are_not_gone() {
    let new = maintenance(&json!({}));
    let begun = after(&new, &decide(&new, &observed(), now()));
    assert_eq!(begun.status.as_ref().unwrap().eviction_pods, 2);
    let mut spec = serde_json::to_value(&begun).unwrap();
    spec["spec"]["drain"] = json!({"podSelector": {"matchLabels": {"app": "low"}}});
    let changed: NodeMaintenance = serde_json::from_value(spec).unwrap();
    let drained = after(&changed, &decide(&changed, &cordoned(), at(10)));
    let drained = after(&drained, &decide(&drained, &cordoned(), at(20)));
    let status = drained.status.unwrap();
    assert_eq!(condition(&status, "Drained"), ("True", "Drained"));
    assert_eq!((status.eviction_pods, status.pod_counts.gone, status.drain_progress), (2, 0, 100));
    assert_eq!(status.unselected_pods, Some(2));
}

#[test]
fn the_pod_of_a_job_of_a_roll_that_is_created_right_after_the_cordon_is_no_pod_that_stays() {
    let spec = json!({"podSelector": {"matchExpressions": [{"key": "kubectl-nm.dev/roll", "operator": "DoesNotExist"}]}});
    let new = maintenance(&json!({"spec": {"drain": spec}}));
    let begun = after(&new, &decide(&new, &observed(), now()));
    let second = "2026-01-01T01:00:00Z";
    assert_eq!(begun.status.as_ref().unwrap().begun_at(), second.parse().ok());
    let job = pod_named("job", &json!({"creationTimestamp": second, "labels": {"kubectl-nm.dev/roll": "r"}}));
    let seen = ClusterState { pods: Some(vec![job]), ..cordoned() };
    let status = after(&begun, &decide(&begun, &seen, at(20))).status.unwrap();
    assert_eq!((status.eviction_pods, status.pod_counts.gone, status.unselected_pods), (2, 2, None));
}

#[test]
fn a_pod_of_a_daemon_set_that_is_scheduled_later_is_not_taken_for_one_that_should_leave() {
    let new = maintenance(&json!({}));
    let begun = after(&new, &decide(&new, &observed(), now()));
    let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "d", "controller": true});
    let agent =
        pod_named("agent", &json!({"creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [owner]}));
    // Which DaemonSets exist is not known, so their pods stay.
    let daemon_sets = Arc::new(DaemonSets { incomplete: true, ..DaemonSets::default() });
    let seen = ClusterState { pods: Some(vec![agent]), daemon_sets, ..cordoned() };
    let decision = decide(&begun, &seen, at(30));
    let status = after(&begun, &decision).status.unwrap();
    assert_eq!((status.pod_counts.staying, status.pod_counts.gone), (1, 2));
}
