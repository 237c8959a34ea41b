//! Maintenances that are planned, because they were created suspended, or paused, because that was set later.

use super::*;
use crate::api::group::Group;
use crate::api::names::{PLANNED_TAINT, UNDO_ANNOTATION};
use crate::api::status::QueuePosition;
use crate::api::suspension::Suspension;
use crate::drain::node_patch::is_cordoned;
use crate::gate::max_unavailable_queue::QueueReason;

fn suspended() -> NodeMaintenance {
    maintenance(&json!({"spec": {"suspend": true}}))
}

fn suspend(maintenance: &NodeMaintenance, suspend: bool) -> NodeMaintenance {
    let mut changed = maintenance.clone();
    changed.spec.suspend = suspend;
    changed.metadata.generation = changed.metadata.generation.map(|generation| generation + 1);
    changed
}

fn ending(maintenance: &NodeMaintenance) -> NodeMaintenance {
    let mut ending = maintenance.clone();
    ending.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:59:00Z")).unwrap());
    ending
}

/// The cluster once the decision's patch is applied to the node.
fn patched(observed: &ClusterState, decision: &Decision) -> ClusterState {
    let mut node = serde_json::to_value(observed.node.as_deref().unwrap()).unwrap();
    if let Some(patch) = &decision.node {
        json_patch_merge(&mut node, &patch.0);
    }
    ClusterState { node: Some(Arc::new(serde_json::from_value(node).unwrap())), ..observed.clone() }
}

fn taints(observed: &ClusterState) -> Vec<String> {
    let spec = observed.node.as_deref().unwrap().spec.clone().unwrap_or_default();
    spec.taints.unwrap_or_default().into_iter().map(|taint| taint.key).collect()
}

fn at(second: i64) -> Timestamp {
    now().checked_add(SignedDuration::from_secs(second)).unwrap()
}

/// A planned maintenance and its cluster.
fn planned() -> (NodeMaintenance, ClusterState) {
    let decision = decide(&suspended(), &observed(), now());
    (after(&suspended(), &decision), patched(&observed(), &decision))
}

/// A maintenance that has started, with a timeout of 60 s.
fn begun() -> NodeMaintenance {
    let new = maintenance(&json!({"spec": {"drain": {"timeoutSeconds": 60}}}));
    after(&new, &decide(&new, &observed(), now()))
}

#[test]
fn a_maintenance_that_is_created_suspended_only_taints_its_node() {
    assert!(!needs_pods(&suspended(), &observed(), now()));
    let decision = decide(&suspended(), &observed(), now());
    assert!(decision.lease.is_none() && decision.evictions.is_empty() && !decision.at_work);
    assert_eq!(reasons(&decision), [EventReason::PlannedMaintenance]);
    let (planned, cluster) = planned();
    assert_eq!(taints(&cluster), [PLANNED_TAINT]);
    assert!(cluster.node.as_deref().unwrap().spec.as_ref().unwrap().unschedulable.is_none());
    let status = planned.status.as_ref().unwrap();
    assert_eq!((status.phase, status.last_error.as_str()), (Some(Phase::Pending), ""));
    assert_eq!(condition(status, "Suspended"), ("True", "Planned"));
    assert_eq!(condition(status, "Cordoned"), ("False", "Planned"));
    assert_eq!(condition(status, "Drained"), ("False", "Planned"));
    let again = decide(&planned, &cluster, at(60));
    assert!(again.status.is_none() && again.node.is_none() && again.events.is_empty(), "{again:?}");
}

#[test]
fn a_planned_maintenance_that_is_resumed_begins_and_its_planned_taint_is_gone() {
    let (planned, cluster) = planned();
    let decision = decide(&suspend(&planned, false), &cluster, at(60));
    assert_eq!(reasons(&decision), [EventReason::BeginMaintenance]);
    assert!(decision.lease.is_some() && decision.at_work);
    assert_eq!(asked(&decision), ["a", "b"]);
    let status = decision.status.as_ref().unwrap();
    assert_eq!((status.phase, status.paused_seconds), (Some(Phase::Running), None));
    assert_eq!(condition(status, "Suspended"), ("False", "Resumed"));
    let there = patched(&cluster, &decision);
    assert!(is_cordoned(there.node.as_deref().unwrap(), Group::Medik8s));
    assert!(!taints(&there).contains(&PLANNED_TAINT.to_owned()));
}

#[test]
fn a_planned_maintenance_that_is_deleted_leaves_its_node_as_it_was() {
    let (planned, cluster) = planned();
    let decision = decide(&ending(&planned), &cluster, at(60));
    assert!(decision.remove_finalizer.is_some() && decision.node_released);
    assert_eq!(reasons(&decision), [EventReason::RemovedMaintenance], "nothing is uncordoned");
    let left = patched(&cluster, &decision);
    assert!(taints(&left).is_empty());
    let annotations = left.node.as_deref().unwrap().metadata.annotations.clone().unwrap_or_default();
    assert!(!annotations.contains_key(UNDO_ANNOTATION));
    let unseen = decide(&ending(&suspended()), &observed(), now());
    assert!(unseen.node.is_some(), "a taint that arrives late is refused");
}

#[test]
fn a_planned_maintenance_whose_record_was_removed_leaves_no_taint() {
    let (planned, cluster) = planned();
    let mut stripped = cluster.clone();
    Arc::make_mut(stripped.node.as_mut().unwrap()).metadata.annotations.as_mut().unwrap().clear();
    assert!(taints(&patched(&stripped, &decide(&ending(&planned), &stripped, at(60)))).is_empty());
    let resumed = suspend(&planned, false);
    let begun = patched(&stripped, &decide(&resumed, &stripped, at(60)));
    assert!(!taints(&begun).contains(&PLANNED_TAINT.to_owned()));
    let queue = Queued { position: QueuePosition::default(), reason: QueueReason::ControlPlane };
    let gate = crate::gate::Gate { quorum: None, queue: Some(queue) };
    let waiting = after(&resumed, &decide(&resumed, &ClusterState { gate, ..cluster }, at(60)));
    assert_eq!(waiting.status.as_ref().unwrap().phase, Some(Phase::Pending));
    assert!(taints(&patched(&stripped, &decide(&ending(&waiting), &stripped, at(61)))).is_empty());
}

#[test]
fn a_plan_that_follows_one_whose_record_was_removed_leaves_no_taint() {
    let (_, cluster) = planned();
    let mut stripped = cluster;
    Arc::make_mut(stripped.node.as_mut().unwrap()).metadata.annotations.as_mut().unwrap().clear();
    let with_other = ClusterState {
        other_uids: HashSet::from(["the one that ends".to_owned()]),
        other_was_planned: true,
        ..stripped
    };
    let next = suspended();
    let both = patched(&with_other, &decide(&next, &with_other, at(60)));
    let alone = ClusterState { other_uids: HashSet::new(), other_was_planned: false, ..both };
    assert!(taints(&patched(&alone, &decide(&ending(&next), &alone, at(61)))).is_empty());
}

#[test]
fn a_planned_maintenance_needs_no_access_to_leases_and_waits_for_no_gate() {
    let queued = Queued { position: QueuePosition::default(), reason: QueueReason::ControlPlane };
    let gate = crate::gate::Gate { quorum: Some("quorum".to_owned()), queue: Some(queued) };
    let denied = ClusterState { gate, leases_forbidden: Some("no".into()), ..observed() };
    let status = decide(&suspended(), &denied, now()).status.unwrap();
    assert_eq!((status.phase, status.queue), (Some(Phase::Pending), None));
    assert_eq!(condition(&status, "Drained"), ("False", "Planned"));
}

#[test]
fn a_second_maintenance_of_a_planned_one_s_node_is_a_duplicate_and_inherits_nothing() {
    let older =
        json!({"metadata": {"name": "older", "uid": "older", "creationTimestamp": "2026-01-01T00:00:00Z"}});
    let younger = json!({"metadata": {"name": "younger", "uid": "younger",
        "creationTimestamp": "2026-01-01T00:00:01Z"}});
    let (older, younger) = (maintenance(&older), suspend(&maintenance(&younger), true));
    for older in [older.clone(), suspend(&older, true)] {
        let seen = ClusterState { competing: vec![Arc::new(older)], ..observed() };
        let status = decide(&younger, &seen, now()).status.unwrap();
        assert_eq!(
            (status.phase, condition(&status, "Drained").1),
            (Some(Phase::Failed), "DuplicateMaintenance")
        );
    }
    let begun = after(&older, &decide(&older, &observed(), now()));
    let cordoned = patched(&observed(), &decide(&older, &observed(), now()));
    let seen = ClusterState { competing: vec![Arc::new(younger)], ..cordoned };
    let end = decide(&ending(&begun), &seen, now());
    assert_eq!(reasons(&end)[0], EventReason::UncordonNode, "a planned maintenance keeps no node cordoned");
    assert!(taints(&patched(&seen, &end)).is_empty());
}

#[test]
fn a_paused_maintenance_evicts_nothing_and_keeps_its_node() {
    let paused = suspend(&begun(), true);
    assert!(needs_pods(&paused, &cordoned(), at(5)));
    let decision = decide(&paused, &cordoned(), at(5));
    assert!(decision.evictions.is_empty() && decision.at_work && decision.node.is_none());
    assert_eq!(decision.evictable, Some(HashSet::new()), "queued evictions are withdrawn");
    assert_eq!(reasons(&decision), [EventReason::PausedMaintenance]);
    let status = decision.status.as_ref().unwrap();
    assert_eq!((status.phase, status.pod_counts.waiting), (Some(Phase::Running), 2));
    assert_eq!(condition(status, "Suspended"), ("True", "Paused"));
    assert_eq!(condition(status, "Cordoned"), ("True", "Cordoned"));
    assert_eq!(condition(status, "Drained"), ("False", "Paused"));
    let resumed = suspend(&after(&paused, &decision), false);
    let decision = decide(&resumed, &cordoned(), at(20));
    assert_eq!(asked(&decision), ["a", "b"]);
    assert_eq!(reasons(&decision), [EventReason::ResumedMaintenance]);
    assert_eq!(decision.status.unwrap().paused_seconds, Some(15));
}

#[test]
fn a_paused_maintenance_is_cordoned_again_and_is_drained_once_its_last_pod_is_gone() {
    let paused = suspend(&begun(), true);
    let again = decide(&paused, &observed(), at(5));
    assert!(again.node.is_some() && again.evictions.is_empty());
    let empty = ClusterState { pods: Some(vec![]), ..cordoned() };
    let done = decide(&paused, &empty, at(5)).status.unwrap();
    assert_eq!((done.phase, condition(&done, "Drained").0), (Some(Phase::Succeeded), "True"));
}

#[test]
fn the_timeout_does_not_run_during_pauses() {
    let mut running = begun();
    for (second, suspended) in [(50, true), (1_000, false)] {
        let changed = suspend(&running, suspended);
        let decision = decide(&changed, &cordoned(), at(second));
        let status = decision.status.as_ref().unwrap();
        assert_eq!(status.phase, Some(Phase::Running), "{second}");
        running = after(&changed, &decision);
    }
    // 50 s had passed before the pause of 950 s.
    assert_eq!(decide(&running, &cordoned(), at(1_009)).requeue_after, Some(Duration::from_secs(1)));
    let late = decide(&running, &cordoned(), at(1_010)).status.unwrap();
    assert_eq!(condition(&late, "Drained"), ("False", "TimedOut"));
    let paused = suspend(&running, true);
    assert_eq!(decide(&paused, &cordoned(), at(1_010)).status.unwrap().phase, Some(Phase::Failed), "before");
}

#[test]
fn a_drain_that_has_timed_out_keeps_its_blocked_pods_while_it_is_paused() {
    let mut refused = Attempt::default();
    refused
        .end(EvictionOutcome::RefusedByBudget("The disruption budget guard needs 1".into()), SteadyTime::MIN);
    let refused = ClusterState { attempts: [("a".to_owned(), refused)].into(), ..cordoned() };
    let begun = begun();
    let failed = after(&begun, &decide(&begun, &refused, at(60)));
    let paused = suspend(&failed, true);
    let decision = decide(&paused, &refused, at(90));
    let status = decision.status.unwrap_or_else(|| paused.status.clone().unwrap());
    assert_eq!((status.phase, status.blocked_pods.len()), (Some(Phase::Failed), 1));
    assert!(decision.evictions.is_empty());
}

#[test]
fn a_maintenance_that_the_medik8s_operator_began_is_paused_and_not_planned() {
    let theirs = maintenance(&json!({"spec": {"suspend": true}, "status": {"phase": "Running"}}));
    let decision = decide(&theirs, &observed(), now());
    let status = decision.status.as_ref().unwrap();
    assert_eq!(Suspension::in_status(status), Some(Suspension::Paused));
    assert!(decision.evictions.is_empty() && !taints(&patched(&observed(), &decision)).is_empty());
}

#[test]
fn no_pod_is_evicted_before_the_status_counts_the_pods_even_right_after_another_status() {
    let (planned, cluster) = planned();
    let written = now().checked_sub(SignedDuration::from_millis(100)).unwrap();
    let early = ClusterState { status_written: Some(written), ..cluster };
    let resumed = suspend(&planned, false);
    let decision = decide(&resumed, &early, now());
    assert!(decision.node.is_some() && decision.status.is_none() && decision.evictions.is_empty());
    assert_eq!(decision.requeue_after, Some(Duration::from_millis(400)));
    let later = decide(&resumed, &early, now().checked_add(SignedDuration::from_millis(400)).unwrap());
    assert_eq!((later.status.as_ref().unwrap().eviction_pods, asked(&later)), (2, vec!["a", "b"]));
}

#[test]
fn a_plan_leaves_a_node_alone_that_has_the_marks_of_another_maintenance_but_no_record() {
    let mut node = serde_json::to_value(cordoned().node.as_deref().unwrap()).unwrap();
    node["metadata"]["annotations"].as_object_mut().unwrap().remove(UNDO_ANNOTATION);
    let stripped = ClusterState { node: Some(Arc::new(serde_json::from_value(node).unwrap())), ..cordoned() };
    assert!(decide(&suspended(), &stripped, now()).node.is_none());
}
