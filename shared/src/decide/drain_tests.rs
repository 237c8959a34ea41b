//! What `decide` promises.

use super::*;
use crate::api::names::FINALIZER;
use crate::api::status::{BlockReason, BlockedPod};
use crate::cluster::pod::{self, DrainPod};
use crate::decide::cluster_state::StartBatch;
use crate::drain::budget_allowance::Budgets;
use crate::drain::eviction_attempts::Attempt;
use crate::drain::eviction_outcome::EvictionOutcome;
use crate::drain::returning::Returning;
use crate::drain::steady_time::SteadyTime;
use jiff::SignedDuration;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

#[path = "completion_tests.rs"]
mod completion;
#[path = "deleted_after_refusal_tests.rs"]
mod deleted_after_refusal;
#[path = "drained_again_tests.rs"]
mod drained_again;
#[path = "hold_tests.rs"]
mod hold;
#[path = "lease_tests.rs"]
mod lease;
#[path = "machine_tests.rs"]
mod machines;
#[path = "node_tests.rs"]
mod node_marks;
#[path = "permission_tests.rs"]
mod permissions;
#[path = "returning_tests.rs"]
mod returning;
#[path = "suspension_tests.rs"]
mod suspension;
#[path = "turn_tests.rs"]
mod turns;
#[path = "volume_detach_tests.rs"]
mod volume_detach;

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

/// A maintenance that has our finalizer and its node's owner reference.
fn maintenance(extra: &Value) -> NodeMaintenance {
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-uid"});
    let mut object = json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
        "metadata": {"name": "m", "uid": "m-uid", "resourceVersion": "1", "generation": 1,
            "finalizers": [FINALIZER], "ownerReferences": [owner]},
        "spec": {"nodeName": "n1"},
    });
    json_patch_merge(&mut object, extra);
    serde_json::from_value(object).unwrap()
}

fn json_patch_merge(target: &mut Value, patch: &Value) {
    if let (Some(target), Some(patch)) = (target.as_object_mut(), patch.as_object()) {
        for (key, value) in patch {
            if value.is_null() {
                target.remove(key);
            } else {
                json_patch_merge(target.entry(key).or_insert(Value::Null), value);
            }
        }
    } else {
        *target = patch.clone();
    }
}

fn pod_named(name: &str, metadata: &Value) -> Arc<DrainPod> {
    let owner =
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": true});
    let mut pod =
        json!({"metadata": {"namespace": "ns", "name": name, "uid": name, "ownerReferences": [owner]}});
    json_patch_merge(&mut pod["metadata"], metadata);
    Arc::new(serde_json::from_value(pod).unwrap())
}

/// A node with pods `a` and `b`, long after all nodes of maintenances that started together were cordoned.
fn observed() -> ClusterState {
    let node = json!({"metadata": {"name": "n1", "uid": "node-uid", "resourceVersion": "9"}, "spec": {}});
    ClusterState {
        node: Some(Arc::new(serde_json::from_value(node).unwrap())),
        pods: Some(vec![pod_named("b", &json!({})), pod_named("a", &json!({}))]),
        batch: StartBatch { age: StartBatch::MAX_DELAY, ..StartBatch::default() },
        ..ClusterState::default()
    }
}

/// The same once the node is cordoned.
fn cordoned() -> ClusterState {
    let mut node = serde_json::to_value(observed().node.unwrap().as_ref()).unwrap();
    let decision = decide(&maintenance(&json!({})), &observed(), now());
    json_patch_merge(&mut node, &decision.node.unwrap().0);
    ClusterState { node: Some(Arc::new(serde_json::from_value(node).unwrap())), ..observed() }
}

/// The object as the decision's status leaves it.
fn after(maintenance: &NodeMaintenance, decision: &Decision) -> NodeMaintenance {
    let status = decision.status.clone().or_else(|| maintenance.status.clone());
    NodeMaintenance { status, ..maintenance.clone() }
}

fn reasons(decision: &Decision) -> Vec<EventReason> {
    decision.events.iter().map(|event| event.reason).collect()
}

fn asked(decision: &Decision) -> Vec<&str> {
    decision.evictions.iter().map(|eviction| pod::uid(&eviction.pod)).collect()
}

fn condition<'a>(status: &'a NodeMaintenanceStatus, type_: &str) -> (&'a str, &'a str) {
    let condition = status.conditions.iter().find(|condition| condition.type_ == type_).unwrap();
    (&condition.status, &condition.reason)
}

#[test]
fn a_new_maintenance_is_adopted_and_cordons_counts_and_evicts() {
    let new = maintenance(&json!({"metadata": {"finalizers": [], "ownerReferences": []}}));
    let decision = decide(&new, &observed(), now());
    assert!(
        decision.add_finalizer.is_some() && decision.node.is_some() && decision.remove_finalizer.is_none()
    );
    let status = decision.status.as_ref().unwrap();
    assert_eq!((status.phase, status.drain_progress), (Some(Phase::Running), 0));
    assert_eq!((status.total_pods, status.eviction_pods), (2, 2));
    assert_eq!(status.pending_pods, ["a", "b"]);
    assert_eq!(status.pending_pods_refs[0].to_string(), "ns/a");
    assert_eq!(status.pod_counts.waiting, 2);
    assert_eq!(condition(status, "Cordoned"), ("True", "Cordoned"));
    assert_eq!(condition(status, "Drained"), ("False", "Evicting"));
    assert_eq!(reasons(&decision), [EventReason::BeginMaintenance]);
    assert_eq!(asked(&decision), ["a", "b"]);
}

// Defect DataDog/draino#5: A node is drained before it is cordoned.
#[test]
fn no_pod_is_evicted_before_the_pods_are_known_and_the_other_nodes_are_cordoned() {
    let unlisted = decide(&maintenance(&json!({})), &ClusterState { pods: None, ..observed() }, now());
    assert!(unlisted.node.is_some() && unlisted.status.is_none() && unlisted.evictions.is_empty());
    let batch = StartBatch { uncordoned: true, ..StartBatch::default() };
    let early = decide(&maintenance(&json!({})), &ClusterState { batch, ..observed() }, now());
    assert!(early.evictions.is_empty() && early.status.is_some());
    assert_eq!(early.requeue_after, batch.eviction_delay());
}

#[test]
fn a_drained_node_succeeds_once() {
    let running = maintenance(&json!({"status": {"phase": "Running", "totalpods": 2, "evictionPods": 2}}));
    let decision = decide(&running, &ClusterState { pods: Some(vec![]), ..observed() }, now());
    let status = decision.status.as_ref().unwrap();
    assert_eq!((status.phase, status.drain_progress), (Some(Phase::Succeeded), 100));
    assert!(status.pending_pods.is_empty() && status.last_error.is_empty() && status.last_update.is_some());
    assert_eq!((status.total_pods, status.eviction_pods, status.pod_counts.gone), (2, 2, 2));
    assert_eq!(condition(status, "Drained"), ("True", "Drained"));
    assert_eq!(reasons(&decision), [EventReason::SucceedMaintenance]);
    let again =
        decide(&after(&running, &decision), &ClusterState { pods: Some(vec![]), ..cordoned() }, now());
    assert!(again.status.is_none() && again.events.is_empty());
}

#[test]
fn the_pods_are_counted_only_once() {
    let begun = maintenance(&json!({"status": {"phase": "Running", "totalpods": 7, "evictionPods": 5}}));
    let status = decide(&begun, &observed(), now()).status.unwrap();
    assert_eq!((status.total_pods, status.eviction_pods, status.drain_progress), (7, 5, 60));
}

#[test]
fn a_pod_that_arrives_after_success_is_moved_and_the_phase_stays() {
    let done = maintenance(&json!({"status": {"phase": "Succeeded", "totalpods": 2, "evictionPods": 2}}));
    let decision = decide(&done, &observed(), now());
    assert_eq!(asked(&decision), ["a", "b"]);
    let status = decision.status.unwrap();
    assert_eq!(status.phase, Some(Phase::Succeeded));
    assert_eq!(condition(&status, "Drained"), ("False", "Evicting"));
}

#[test]
fn a_missing_node_fails_with_begin_and_failed_events() {
    let decision = decide(&maintenance(&json!({})), &ClusterState { node: None, ..observed() }, now());
    let status = decision.status.as_ref().unwrap();
    assert_eq!((status.phase, status.last_error.as_str()), (Some(Phase::Failed), "nodes \"n1\" not found"));
    assert_eq!(reasons(&decision), [EventReason::BeginMaintenance, EventReason::FailedMaintenance]);
    assert!(decision.node.is_none() && decision.evictions.is_empty());
}

#[test]
fn no_pod_of_a_deleted_node_is_evictable_and_a_duplicate_does_not_decide() {
    let gone = decide(&maintenance(&json!({})), &ClusterState { node: None, ..observed() }, now());
    assert_eq!(gone.evictable, Some(HashSet::new()));
    let older = maintenance(&json!({"metadata": {"name": "a", "uid": "older", "generation": 7}}));
    let competing = vec![Arc::new(older)];
    let duplicate = decide(&maintenance(&json!({})), &ClusterState { competing, ..observed() }, now());
    assert_eq!((duplicate.evictable, duplicate.at_work), (None, false));
}

#[test]
fn a_node_that_appears_later_is_put_into_maintenance_and_counted_then() {
    let new = maintenance(&json!({}));
    let failed = after(&new, &decide(&new, &ClusterState { node: None, ..observed() }, now()));
    let status = decide(&failed, &observed(), now()).status.unwrap();
    assert_eq!((status.phase, status.total_pods, status.last_error.as_str()), (Some(Phase::Running), 2, ""));
}

#[test]
fn the_second_maintenance_of_a_node_fails_and_changes_nothing() {
    let older =
        maintenance(&json!({"metadata": {"name": "first", "creationTimestamp": "2026-01-01T00:00:00Z"}}));
    let second = maintenance(&json!({"metadata": {"creationTimestamp": "2026-01-01T00:30:00Z"}}));
    let competing = vec![Arc::new(older)];
    let decision = decide(&second, &ClusterState { competing: competing.clone(), ..observed() }, now());
    assert_eq!(decision.status.as_ref().unwrap().phase, Some(Phase::Failed));
    assert!(decision.node.is_none() && decision.evictions.is_empty());
    let gone = maintenance(&json!({"metadata": {"deletionTimestamp": "2026-01-01T00:59:00Z"}}));
    let decision = decide(&gone, &ClusterState { competing, ..observed() }, now());
    assert!(decision.node.is_none() && decision.remove_finalizer.is_some(), "the other keeps the cordon");
}

#[test]
fn evacuations_end_with_a_maintenance_that_has_begun_unless_another_has_the_node() {
    let gone = |status: Value| {
        maintenance(&json!({"metadata": {"deletionTimestamp": "2026-01-01T00:59:00Z"}, "status": status}))
    };
    let alone = || ClusterState { pods: None, ..observed() };
    let ends = |status: Value, seen: &ClusterState| decide(&gone(status), seen, now()).end_evacuations;
    // Whatever the status says of migrations: the process that has evicted may have died before it was written.
    assert!(ends(json!({"phase": "Running"}), &alone()));
    assert!(ends(json!({"phase": "Succeeded"}), &alone()));
    assert!(!ends(json!({"phase": "Pending"}), &alone()));
    assert!(!ends(json!({}), &alone()));
    assert!(!ends(json!({"phase": "Running"}), &ClusterState { node: None, ..alone() }));
    let competing = vec![Arc::new(maintenance(&json!({"metadata": {"name": "other", "uid": "other"}})))];
    assert!(!ends(json!({"phase": "Running"}), &ClusterState { competing, ..alone() }));
}

#[test]
fn deletion_uncordons_the_node_and_then_removes_the_finalizer() {
    let new = maintenance(&json!({}));
    let seen = observed();
    let patch = decide(&new, &seen, now()).node.unwrap().0;
    let mut node = json!(seen.node.as_deref().unwrap());
    json_patch_merge(&mut node, &patch);
    let seen = ClusterState { node: Some(Arc::new(serde_json::from_value(node).unwrap())), ..seen };
    let gone = maintenance(&json!({"metadata": {
        "deletionTimestamp": "2026-01-01T00:59:00Z", "finalizers": ["a/b", FINALIZER],
    }}));
    let decision = decide(&gone, &seen, now());
    assert_eq!(decision.node.as_ref().unwrap().0["spec"]["unschedulable"], Value::Null);
    assert_eq!(decision.remove_finalizer.as_ref().unwrap()["metadata"]["finalizers"], json!(["a/b"]));
    assert_eq!(reasons(&decision), [EventReason::UncordonNode, EventReason::RemovedMaintenance]);
    assert!(decision.evictions.is_empty() && decision.status.is_none());
    let foreign = maintenance(&json!({"metadata": {
        "deletionTimestamp": "2026-01-01T00:59:00Z", "finalizers": ["a/b"],
    }}));
    let decision = decide(&foreign, &seen, now());
    assert!(decision.node.is_none() && decision.remove_finalizer.is_none() && decision.events.is_empty());
}

#[test]
fn a_refused_pod_is_listed_as_blocked_and_retried_later() {
    let mut attempt = Attempt::default();
    attempt.end(
        EvictionOutcome::RefusedByBudget(
            "The disruption budget guard needs 1 healthy pods and has 1 currently".into(),
        ),
        SteadyTime::MIN,
    );
    let observed = ClusterState { attempts: [("a".to_owned(), attempt)].into(), ..observed() };
    let decision = decide(&maintenance(&json!({})), &observed, now());
    let status = decision.status.as_ref().unwrap();
    let blocked = &status.blocked_pods[0];
    assert_eq!(
        (blocked.name.as_str(), blocked.reason, blocked.attempts),
        ("a", BlockReason::DisruptionBudget, 1)
    );
    assert_eq!(blocked.message, "The disruption budget guard needs 1 healthy pods and has 1 currently");
    assert_eq!(blocked.facts.budget.as_ref().unwrap().name, "guard");
    assert_eq!(json!(status).to_string().matches("needs 1 healthy pods").count(), 1, "{status:?}");
    assert_eq!(status.last_error, "1 pod is blocked: ns/a (DisruptionBudget)");
    assert_eq!(condition(status, "Drained"), ("False", "Blocked"));
    assert_eq!(asked(&decision), ["b"]);
    assert!(decision.requeue_after.unwrap() <= Duration::from_secs(1));
    let pruned = ClusterState { prunes_details: true, ..observed };
    let pruned = decide(&maintenance(&json!({})), &pruned, now()).status.unwrap();
    assert_eq!(pruned.last_error, format!("1 pod is blocked: ns/a: {}", blocked.message));
}

#[test]
fn setting_the_clock_delays_no_retry() {
    let mut attempt = Attempt::default();
    attempt.end(
        EvictionOutcome::RefusedByWebhook { webhook: String::new(), message: String::new() },
        SteadyTime::MIN,
    );
    let new = maintenance(&json!({}));
    for hours in [-1, 1] {
        let set = now().checked_add(SignedDuration::from_secs(3_600 * hours)).unwrap();
        let after = |milliseconds| {
            let steady_now = SteadyTime::MIN.after(Duration::from_millis(milliseconds));
            let attempts = [("a".to_owned(), attempt.clone())].into();
            decide(&new, &ClusterState { steady_now, attempts, ..observed() }, set)
        };
        let early = after(400);
        assert_eq!((asked(&early), early.requeue_after), (vec!["b"], Some(Duration::from_millis(600))));
        let due = after(1_000);
        assert_eq!(asked(&due), ["a", "b"]);
        let reported = &due.status.as_ref().unwrap().blocked_pods[0];
        assert_eq!(
            set.duration_since(reported.since.0).as_secs(),
            1,
            "the status has the time of the wall clock"
        );
    }
}

#[test]
fn terminating_pods_and_pods_with_a_request_in_flight_are_not_evicted() {
    let attempt = Attempt { in_flight: true, ..Attempt::default() };
    let ending = pod_named("b", &json!({"deletionTimestamp": "2026-01-01T01:00:20Z"}));
    let seen = ClusterState {
        pods: Some(vec![pod_named("a", &json!({})), ending]),
        attempts: [("a".to_owned(), attempt)].into(),
        ..observed()
    };
    let decision = decide(&maintenance(&json!({})), &seen, now());
    assert!(decision.evictions.is_empty());
    let counts = decision.status.unwrap().pod_counts;
    assert_eq!((counts.evicting, counts.terminating), (1, 1));
}

#[test]
fn past_its_timeout_a_drain_fails_and_stops_evicting_but_stays_cordoned() {
    let new = maintenance(&json!({"spec": {"drain": {"timeoutSeconds": 60}}}));
    let begun = after(&new, &decide(&new, &observed(), now()));
    let before = decide(&begun, &cordoned(), now().checked_add(SignedDuration::from_secs(59)).unwrap());
    assert_eq!(before.requeue_after, Some(Duration::from_secs(1)));
    let late = decide(&begun, &cordoned(), now().checked_add(SignedDuration::from_secs(60)).unwrap());
    let status = late.status.as_ref().unwrap();
    assert_eq!(status.phase, Some(Phase::Failed));
    assert_eq!(status.last_error, "the drain timed out after 60 s, 2 pods are left");
    assert_eq!(condition(status, "Cordoned").0, "True");
    assert!(late.evictions.is_empty());
    assert_eq!(reasons(&late), [EventReason::FailedMaintenance]);
}

#[test]
fn an_invalid_selector_evicts_no_pod() {
    let selector = json!({"matchExpressions": [{"key": "app", "operator": "Near"}]});
    let bad = maintenance(&json!({"spec": {"drain": {"podSelector": selector}}}));
    let decision = decide(&bad, &observed(), now());
    assert!(decision.evictions.is_empty());
    let status = decision.status.as_ref().unwrap();
    assert_eq!(condition(status, "Degraded"), ("True", "InvalidDrain"));
    assert_eq!(condition(status, "Drained"), ("False", "InvalidDrain"));
    assert!(status.last_error.starts_with("spec.drain.podSelector: "), "{}", status.last_error);
    assert!(decision.node.is_some());
    assert_eq!(condition(status, "Cordoned"), ("True", "Cordoned"));
}

#[test]
fn the_status_is_written_at_most_twice_a_second_and_the_last_change_always() {
    let new = maintenance(&json!({}));
    let begun = after(&new, &decide(&new, &observed(), now()));
    let written = now().checked_sub(SignedDuration::from_millis(100)).unwrap();
    let one_gone = ClusterState {
        pods: Some(vec![pod_named("a", &json!({}))]),
        status_written: Some(written),
        ..cordoned()
    };
    let early = decide(&begun, &one_gone, now());
    assert!(early.status.is_none());
    assert_eq!(early.requeue_after, Some(Duration::from_millis(400)));
    let done = ClusterState { pods: Some(vec![]), ..one_gone };
    let held = decide(&begun, &done, now());
    assert!(held.status.is_none() && held.events.is_empty(), "also when the phase changes");
    let later = now().checked_add(SignedDuration::from_millis(400)).unwrap();
    assert_eq!(decide(&begun, &done, later).status.unwrap().phase, Some(Phase::Succeeded));
}

#[test]
fn counts_of_refusals_are_written_with_the_next_change_or_once_a_minute() {
    let seen = |attempts: u32, message: &str| {
        let mut attempt = Attempt::default();
        for _ in 0..attempts {
            let message = message.to_owned();
            let refusal = EvictionOutcome::RefusedByWebhook { webhook: String::new(), message };
            attempt.end(refusal, SteadyTime::MIN);
        }
        ClusterState { attempts: [("a".to_owned(), attempt)].into(), ..cordoned() }
    };
    let new = maintenance(&json!({}));
    let first = decide(&new, &seen(1, "no"), now());
    let begun = after(&new, &first);
    let then = |seconds, seen: &ClusterState| {
        decide(&begun, seen, now().checked_add(SignedDuration::from_secs(seconds)).unwrap())
    };
    let reported =
        |decision: &Decision| decision.status.as_ref().map(|status| status.blocked_pods[0].attempts);
    assert_eq!(reported(&first), Some(1));
    let early = then(57, &seen(5, "no"));
    assert_eq!((reported(&early), early.requeue_after), (None, Some(Duration::from_secs(3))));
    assert_eq!(reported(&then(60, &seen(5, "no"))), Some(5));
    assert_eq!(reported(&then(1, &seen(5, "still no"))), Some(5), "with the next change");
    assert_eq!(reported(&then(-3_600, &seen(5, "no"))), Some(5), "a clock that was set back delays nothing");
    let unasked = NodeMaintenanceStatus {
        blocked_pods: vec![BlockedPod {
            attempts: 0,
            ..first.status.clone().unwrap().blocked_pods.remove(0)
        }],
        ..first.status.clone().unwrap()
    };
    let begun = NodeMaintenance { status: Some(unasked), ..new.clone() };
    assert_eq!(
        reported(&decide(&begun, &seen(1, "no"), now())),
        Some(1),
        "that it was asked at all is a change"
    );
}

#[test]
fn a_returning_pod_is_not_evicted_even_after_a_restart() {
    let new = maintenance(&json!({}));
    let returning = Returning { exhausted: ["a".to_owned()].into(), ..Returning::default() };
    let decision = decide(&new, &ClusterState { returning, ..observed() }, now());
    assert_eq!(asked(&decision), ["b"]);
    let blocked = &decision.status.as_ref().unwrap().blocked_pods;
    assert_eq!((blocked.len(), blocked[0].reason), (1, BlockReason::KeepsReturning));
    assert_eq!(asked(&decide(&after(&new, &decision), &observed(), now())), ["b"]);
}

#[test]
fn a_terminating_pod_that_is_no_longer_waited_for_counts_as_staying_and_not_as_gone() {
    let impatient = maintenance(&json!({"spec": {"drain": {"skipWaitForDeleteTimeoutSeconds": 60}}}));
    let since = |deleted: &str| pod_named("a", &json!({"deletionTimestamp": deleted}));
    let pods = |pods: Vec<Arc<DrainPod>>| ClusterState { pods: Some(pods), ..cordoned() };
    let later = now() + SignedDuration::from_secs(300);
    let counts = |maintenance: &NodeMaintenance, observed: &ClusterState, now: Timestamp| {
        let status = decide(maintenance, observed, now).status.unwrap();
        (status.phase, status.eviction_pods, status.pod_counts.staying, status.pod_counts.gone)
    };
    let begun = after(&impatient, &decide(&impatient, &observed(), now()));
    let stuck = pods(vec![since("2026-01-01T01:00:30Z")]);
    assert_eq!(counts(&begun, &stuck, later), (Some(Phase::Succeeded), 2, 1, 1));

    // One that the drain has never waited for.
    let old = since("2026-01-01T00:30:00Z");
    let both = pods(vec![old.clone(), pod_named("b", &json!({}))]);
    let begun = after(&impatient, &decide(&impatient, &both, now()));
    assert_eq!(counts(&begun, &pods(vec![old]), later), (Some(Phase::Succeeded), 1, 1, 1));
}

#[test]
fn an_override_of_the_quorum_is_recorded_once() {
    let insists =
        json!({"metadata": {"annotations": {crate::api::names::OVERRIDE_QUORUM_ANNOTATION: "true"}}});
    let at_risk = |observed: ClusterState| ClusterState {
        gate: crate::gate::Gate { quorum: Some("etcd is at risk".to_owned()), queue: None },
        ..observed
    };
    let maintenance = maintenance(&insists);
    let said = |maintenance: &NodeMaintenance, observed: ClusterState| {
        let decision = decide(maintenance, &at_risk(observed), now());
        let notes = decision.events.iter().filter(|event| event.reason == EventReason::QuorumOverridden);
        (notes.map(|event| event.note.clone()).collect::<Vec<_>>(), decision)
    };
    let once = ["By annotation: etcd is at risk"];
    let (notes, decision) = said(&maintenance, observed());
    assert_eq!((notes.as_slice(), decision.node.is_some()), (&once.map(str::to_owned)[..], true));
    let unseen = ClusterState { pods_forbidden: Some("cannot list pods".into()), ..observed() };
    assert_eq!(said(&maintenance, unseen).0, once, "it begins, though it gets no further");
    // The node was patched, and then somebody was faster with the status.
    let (notes, decision) = said(&maintenance, cordoned());
    assert_eq!((notes.as_slice(), decision.node), (&once.map(str::to_owned)[..], None));
    let begun = after(&maintenance, &decide(&maintenance, &at_risk(cordoned()), now()));
    assert_eq!(said(&begun, cordoned()).0, Vec::<String>::new());
    let (notes, _) = said(&begun, observed());
    assert_eq!(notes, Vec::<String>::new(), "cordoned anew");
}

#[test]
fn at_most_fifty_blocked_pods_are_listed_with_their_causes_and_all_are_counted() {
    let keeps_data = maintenance(&json!({"spec": {"drain": {"deleteEmptyDirData": false}}}));
    let with_data = |at: usize| {
        let mut pod = DrainPod::clone(&pod_named(&format!("{at:02}"), &json!({})));
        pod.has_empty_dir = true;
        Arc::new(pod)
    };
    let pods = Some((0..60).map(with_data).collect());
    let status = decide(&keeps_data, &ClusterState { pods, ..observed() }, now()).status.unwrap();
    assert_eq!((status.blocked_pods.len(), status.pod_counts.blocked), (50, 60));
    let has_cause = |pod: &BlockedPod| pod.reason == BlockReason::LocalStorage && !pod.message.is_empty();
    assert!(status.blocked_pods.iter().all(has_cause), "{status:?}");
}
