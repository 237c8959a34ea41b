//! Decisions about pods that their owners put back on the node (`spec.drain.returningPods`).

use super::*;
use crate::api::returned_pod::{ReturnedPod, WorkloadReference};
use crate::drain::returning::Returning;

/// A pod of the Deployment `operator` that tolerates all taints or none.
fn of_operator(name: &str, tolerates: bool) -> Arc<DrainPod> {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "operator-5d9", "uid": "rs", "controller": true}]);
    let metadata = json!({"namespace": "ns", "name": name, "uid": name, "ownerReferences": owner,
        "labels": {"pod-template-hash": "5d9"}});
    let tolerations = if tolerates { json!([{"operator": "Exists"}]) } else { json!([]) };
    Arc::new(
        serde_json::from_value(json!({"metadata": metadata, "spec": {"tolerations": tolerations}})).unwrap(),
    )
}

/// The cordoned node with these pods, of which some have returned.
fn seen(pods: &[Arc<DrainPod>], returned: &[&str]) -> ClusterState {
    let returned = returned.iter().map(ToString::to_string).collect();
    let returning = Returning { returned, ..Returning::default() };
    ClusterState { pods: Some(pods.to_vec()), returning, ..cordoned() }
}

#[test]
fn a_pod_that_returns_in_place_of_one_that_came_later_stays_known_as_such() {
    let begun = evicted(&maintenance(&json!({})));
    let came_later = |process: &[&str]| {
        let mut seen = seen(&[of_operator("b", true)], process);
        seen.returning.came_later = seen.returning.returned.clone();
        seen
    };
    let decided = after(&begun, &decide(&begun, &came_later(&["b"]), now()));
    let is_later = |object: &NodeMaintenance| {
        object.status.as_ref().unwrap().returned_pods.as_ref().unwrap()[0].came_later
    };
    assert!(is_later(&decided));
    // Another process has not seen that.
    let others = vec![of_operator("b", true), of_operator("x", false)];
    let decision = decide(&decided, &ClusterState { pods: Some(others), ..came_later(&[]) }, now());
    assert!(is_later(&after(&decided, &decision)));
    // Nor that this one replaces a pod that was there.
    let there = after(&begun, &decide(&begun, &seen(&[of_operator("b", true)], &["b"]), now()));
    assert!(!is_later(&there));
    let decision = decide(&there, &came_later(&["b"]), now());
    assert!(!is_later(&after(&there, &decision)));
}

fn waiting() -> NodeMaintenance {
    maintenance(&json!({"spec": {"drain": {"returningPods": "Wait"}}}))
}

/// The maintenance after the eviction of the operator's pod `a`, with what replaced it.
fn evicted(new: &NodeMaintenance) -> NodeMaintenance {
    let decision = decide(new, &seen(&[of_operator("a", true)], &[]), now());
    assert_eq!(asked(&decision), ["a"], "it is evicted once");
    after(new, &decision)
}

#[test]
fn a_pod_that_tolerates_the_cordon_stays_when_it_has_returned_and_the_drain_ends() {
    let begun = evicted(&maintenance(&json!({})));
    let decision = decide(&begun, &seen(&[of_operator("b", true)], &["b"]), now());
    assert!(decision.evictions.is_empty() && decision.evictable == Some([].into()));
    let status = decision.status.as_ref().unwrap();
    assert_eq!((status.phase, status.drain_progress), (Some(Phase::Succeeded), 100));
    assert_eq!((status.pod_counts.staying, status.pod_counts.gone), (1, 1));
    let [pod]: [ReturnedPod; 1] = status.returned_pods.clone().unwrap().try_into().unwrap();
    assert_eq!((pod.reference().to_string().as_str(), pod.since.0), ("ns/b", now()));
    let deployment = WorkloadReference {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        name: "operator".to_owned(),
    };
    assert_eq!(pod.workload, Some(deployment));
    let drained = status.conditions.iter().find(|condition| condition.type_ == "Drained").unwrap();
    assert!(drained.message.contains("1 pod that came after the cordon stays"), "{}", drained.message);

    assert!(!pod.came_later);

    // Another process has not seen the first pod.
    let decided = after(&begun, &decision);
    let restarted = decide(&decided, &seen(&[of_operator("b", true)], &[]), now());
    assert!(restarted.evictions.is_empty() && restarted.status.is_none());
    let gone = decide(&decided, &seen(&[], &[]), now());
    assert_eq!(gone.status.unwrap().returned_pods, None);
}

#[test]
fn with_wait_a_returned_pod_is_evicted_again_until_it_has_returned_too_often() {
    let begun = evicted(&waiting());
    let decision = decide(&begun, &seen(&[of_operator("b", true)], &["b"]), now());
    assert_eq!(asked(&decision), ["b"]);
    let exhausted = Returning {
        returned: ["d".to_owned()].into(),
        exhausted: ["d".to_owned()].into(),
        ..Returning::default()
    };
    let observed = ClusterState { returning: exhausted, ..seen(&[of_operator("d", true)], &[]) };
    let blocked = decide(&begun, &observed, now());
    let status = blocked.status.as_ref().unwrap();
    assert_eq!(
        (status.blocked_pods[0].reason, status.phase),
        (BlockReason::KeepsReturning, Some(Phase::Running))
    );

    // The option is changed, or the reconciler is a newer one.
    let stay = NodeMaintenance { spec: maintenance(&json!({})).spec, ..after(&begun, &blocked) };
    let decision = decide(&stay, &seen(&[of_operator("d", true)], &[]), now());
    let status = decision.status.unwrap();
    assert_eq!((status.phase, status.blocked_pods.len()), (Some(Phase::Succeeded), 0));
    assert_eq!(status.returned_pods.unwrap()[0].name, "d");
}

#[test]
fn a_pod_that_does_not_tolerate_the_cordon_is_evicted_again_and_then_blocked() {
    let begun = evicted(&maintenance(&json!({})));
    let bound = of_operator("b", false);
    let decision = decide(&begun, &seen(std::slice::from_ref(&bound), &["b"]), now());
    assert_eq!(asked(&decision), ["b"]);
    let exhausted = Returning { exhausted: ["b".to_owned()].into(), ..Returning::default() };
    let decision = decide(&begun, &ClusterState { returning: exhausted, ..seen(&[bound], &["b"]) }, now());
    assert_eq!(decision.status.unwrap().blocked_pods[0].reason, BlockReason::KeepsReturning);
}

#[test]
fn a_returned_pod_stays_even_if_the_spec_would_not_move_it() {
    let careful = maintenance(&json!({"spec": {"drain": {"deleteEmptyDirData": false}}}));
    let mut pod = DrainPod::clone(&of_operator("b", true));
    pod.has_empty_dir = true;
    let decision = decide(&careful, &seen(&[Arc::new(pod)], &["b"]), now());
    assert_eq!(decision.status.unwrap().phase, Some(Phase::Succeeded));
}
