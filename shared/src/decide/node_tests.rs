//! How a maintenance changes its node and reverts that, whatever others change.

use super::*;
use crate::api::group::Group;
use crate::api::names::{DRAIN_TAINT, EXCLUDE_LABEL, EXCLUDE_VALUE, KEEP_CORDON_ANNOTATION, UNDO_ANNOTATION};
use crate::api::status::QueuePosition;
use crate::cluster::node_lease::LeaseWrite;
use crate::decide::steps::DecisionStep;
use crate::drain::cordon_backoff::RecordonBackoff;
use crate::drain::node_patch::is_cordoned;
use std::collections::HashSet;

/// A maintenance whose status shows that it has started.
fn begun() -> NodeMaintenance {
    let new = maintenance(&json!({}));
    after(&new, &decide(&new, &observed(), now()))
}

fn ending(maintenance: &NodeMaintenance) -> NodeMaintenance {
    let mut ending = maintenance.clone();
    ending.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:59:00Z")).unwrap());
    ending
}

/// The same cluster with the node changed.
fn with_node(observed: ClusterState, change: impl FnOnce(&mut Value)) -> ClusterState {
    let mut node = serde_json::to_value(observed.node.as_deref().unwrap()).unwrap();
    change(&mut node);
    ClusterState { node: Some(Arc::new(serde_json::from_value(node).unwrap())), ..observed }
}

/// The cluster once the decision's patch is applied to the node.
fn patched(observed: ClusterState, decision: &Decision) -> ClusterState {
    let patch = decision.node.clone().unwrap().0;
    with_node(observed, |node| json_patch_merge(node, &patch))
}

fn remove_taint(node: &mut Value) {
    node["spec"]["taints"].as_array_mut().unwrap().retain(|taint| taint["key"] != DRAIN_TAINT);
}

fn is_in_service(observed: &ClusterState) -> bool {
    let node = observed.node.as_deref().unwrap();
    let spec = node.spec.clone().unwrap_or_default();
    let labels = node.metadata.labels.clone().unwrap_or_default();
    spec.unschedulable != Some(true)
        && spec.taints.unwrap_or_default().is_empty()
        && !labels.contains_key(EXCLUDE_LABEL)
}

#[test]
fn an_undo_record_counts_before_the_status_does_even_without_the_drain_taint() {
    let new = maintenance(&json!({}));
    let stripped = with_node(cordoned(), remove_taint);
    let again = decide(&new, &stripped, now());
    let there = patched(stripped, &again);
    assert!(is_cordoned(there.node.as_deref().unwrap(), Group::Medik8s));
    let end = decide(&ending(&after(&new, &again)), &there, now());
    assert!(is_in_service(&patched(there, &end)));
}

#[test]
fn a_maintenance_that_an_undo_record_names_has_begun_and_is_not_queued() {
    let reason = crate::gate::max_unavailable_queue::QueueReason::ControlPlane;
    let queued = Queued { position: QueuePosition::default(), reason };
    let full = crate::gate::Gate { queue: Some(queued), ..Default::default() };
    let queued = ClusterState { gate: full, ..with_node(cordoned(), remove_taint) };
    assert!(decide(&maintenance(&json!({})), &queued, now()).at_work);
}

#[test]
fn a_node_without_its_undo_record_is_uncordoned_completely() {
    let stripped = with_node(cordoned(), |node| node["metadata"]["annotations"] = json!({}));
    let end = decide(&ending(&begun()), &stripped, now());
    assert!(is_in_service(&patched(stripped, &end)));
    assert_eq!(reasons(&end), [EventReason::UncordonNode, EventReason::RemovedMaintenance]);
}

/// The decisions about a maintenance that ends, until nothing is left to do: the events, and the node.
fn stopped(maintenance: &NodeMaintenance, before: ClusterState) -> (Vec<PendingEvent>, Node) {
    let end = decide(&ending(maintenance), &before, now());
    let back = patched(before, &end);
    let again = decide(&ending(maintenance), &back, now());
    assert_eq!(again.node, None, "a crash after the patch changes nothing");
    (end.events, back.node.unwrap().as_ref().clone())
}

#[test]
fn a_node_stays_cordoned_if_its_maintenance_says_so_or_if_it_was_before() {
    let schedulable = |node: &Node| node.spec.as_ref().unwrap().unschedulable != Some(true);
    let notes = |events: &[PendingEvent]| -> Vec<(EventReason, String)> {
        events.iter().map(|event| (event.reason, event.note.clone())).collect()
    };
    let removed = || (EventReason::RemovedMaintenance, String::from("Maintenance of node n1 is removed"));

    let (events, node) = stopped(&begun(), cordoned());
    assert!(schedulable(&node));
    assert_eq!(notes(&events), [(EventReason::UncordonNode, "Node n1 is uncordoned".to_owned()), removed()]);

    let mut keeps = begun();
    keeps.metadata.annotations.get_or_insert_default().insert(KEEP_CORDON_ANNOTATION.into(), "true".into());
    let (events, node) = stopped(&keeps, cordoned());
    assert!(!schedulable(&node) && !node_patch::has_drain_taint(&node, Group::Medik8s));
    let sentence = "Node n1 stays cordoned, as its maintenance requests".to_owned();
    assert_eq!(notes(&events), [(EventReason::CordonKept, sentence), removed()]);

    let before = with_node(observed(), |node| node["spec"]["unschedulable"] = json!(true));
    let new = maintenance(&json!({}));
    let decision = decide(&new, &before, now());
    let there = patched(before, &decision);
    let (events, node) = stopped(&after(&new, &decision), there);
    assert!(!schedulable(&node));
    let sentence = "Node n1 stays cordoned, as before its maintenance".to_owned();
    assert_eq!(notes(&events), [(EventReason::CordonKept, sentence), removed()]);
}

#[test]
fn the_end_of_the_maintenance_of_a_deleted_node_says_that_a_new_node_is_not_in_maintenance() {
    let sentence = |observed: &ClusterState, object: &NodeMaintenance| {
        let end = decide(&ending(object), observed, now());
        end.events.iter().find(|event| event.reason == EventReason::RemovedMaintenance).unwrap().note.clone()
    };
    let gone = ClusterState { node: None, ..cordoned() };
    let deleted = "Maintenance of node n1 is removed: the node was deleted. A new node of this name is not in maintenance";
    assert_eq!(sentence(&gone, &begun()), deleted);
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-uid"});
    let of_node = json!({"metadata": {"ownerReferences": [owner]}});
    let begun_there = NodeMaintenance { status: begun().status, ..maintenance(&of_node) };
    let new = with_node(observed(), |node| node["metadata"]["uid"] = json!("another"));
    let replaced = "Maintenance of node n1 is removed: the node was deleted, and the new node of this name is not in maintenance";
    assert_eq!(sentence(&new, &begun_there), replaced);
}

#[test]
fn a_new_node_of_the_same_name_keeps_the_cordon_that_it_came_with() {
    let new = with_node(observed(), |node| {
        node["metadata"]["uid"] = json!("another");
        node["spec"]["unschedulable"] = json!(true);
    });
    assert_eq!(decide(&ending(&begun()), &new, now()).node, None);
}

#[test]
fn a_new_node_of_the_same_name_counts_as_another_also_once_it_owns_the_maintenance() {
    let new = with_node(observed(), |node| {
        node["metadata"]["uid"] = json!("another");
        node["spec"]["unschedulable"] = json!(true);
    });
    let owner = |uid: &str| json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid});
    let owners = json!({"metadata": {"ownerReferences": [owner("node-uid"), owner("another")]}});
    let adopted = NodeMaintenance { status: begun().status, ..maintenance(&owners) };
    let decision = decide(&adopted, &new, now());
    assert!(decision.events.is_empty(), "it was not uncordoned");
    let there = patched(new, &decision);
    let end = decide(&ending(&adopted), &there, now());
    let back = patched(there, &end);
    assert_eq!(back.node.unwrap().spec.clone().unwrap().unschedulable, Some(true), "as it came");
}

#[test]
fn marks_are_known_as_ours_if_the_undo_record_is_removed_before_the_status_is_written() {
    let lease = json!({"spec": {"holderIdentity": crate::api::names::LEASE_HOLDER, "leaseDurationSeconds": 3600,
        "renewTime": "2026-01-01T00:59:00.000000Z"}});
    let lease = Some(Arc::new(serde_json::from_value(lease).unwrap()));
    let stripped =
        ClusterState { lease, ..with_node(cordoned(), |node| node["metadata"]["annotations"] = json!({})) };
    let new = maintenance(&json!({}));
    let again = decide(&new, &stripped, now());
    assert_eq!(reasons(&again), [EventReason::BeginMaintenance], "it was not uncordoned");
    let there = patched(stripped, &again);
    let end = decide(&ending(&after(&new, &again)), &there, now());
    assert!(is_in_service(&patched(there, &end)));
}

#[test]
fn our_taint_and_our_lease_show_that_the_record_was_removed_and_so_does_another_maintenance() {
    let lease = json!({"spec": {"holderIdentity": crate::api::names::LEASE_HOLDER, "leaseDurationSeconds": 3600,
        "renewTime": "2026-01-01T00:59:00.000000Z"}});
    let lease = Some(Arc::new(serde_json::from_value(lease).unwrap()));
    let stripped = |node: &mut Value| {
        node["metadata"]["annotations"] = json!({});
        node["metadata"]["labels"] = json!({});
    };
    let leased = ClusterState { lease, ..with_node(cordoned(), stripped) };
    let younger = NodeMaintenance {
        status: begun().status,
        ..maintenance(&json!({"metadata": {"name": "z", "uid": "z-uid",
        "creationTimestamp": "2026-01-01T00:00:00Z"}}))
    };
    let untainted = with_node(with_node(cordoned(), stripped), remove_taint);
    let beside = ClusterState { competing: vec![Arc::new(younger)], ..untainted };
    for observed in [leased, beside] {
        let first = maintenance(&json!({"metadata": {"finalizers": null}}));
        let decision = decide(&first, &observed, now());
        let there = patched(observed, &decision);
        let end = decide(
            &ending(&after(&maintenance(&json!({})), &decision)),
            &ClusterState { competing: vec![], ..there.clone() },
            now(),
        );
        assert!(is_in_service(&patched(there, &end)));
    }
}

#[test]
fn what_somebody_sets_after_the_node_was_returned_stays_while_the_finalizer_is_left() {
    let end = decide(&ending(&begun()), &cordoned(), now());
    let steps = end.clone().into_steps();
    let is_return = |step: &DecisionStep| matches!(step, DecisionStep::RecordReturn);
    assert!(steps.iter().any(is_return));
    let labelled = |has_returned: bool| {
        let back = ClusterState { has_returned, ..patched(cordoned(), &end) };
        with_node(back, |node| {
            node["metadata"]["labels"] = json!({(EXCLUDE_LABEL): EXCLUDE_VALUE});
            node["spec"]["unschedulable"] = json!(true);
        })
    };
    let again = decide(&ending(&begun()), &labelled(true), now());
    assert_eq!((again.node, again.remove_finalizer.is_some()), (None, true));
    assert!(
        decide(&ending(&begun()), &labelled(false), now()).node.is_some(),
        "the next leader does not know"
    );
}

#[test]
fn a_maintenance_that_ends_without_a_record_makes_a_late_cordon_fail() {
    let lease = json!({"spec": {"holderIdentity": crate::api::names::LEASE_HOLDER}});
    let lease = Some(Arc::new(serde_json::from_value(lease).unwrap()));
    let leased = ClusterState { lease, ..observed() };
    let new = maintenance(&json!({}));
    let end = decide(&ending(&new), &leased, now());
    assert_eq!(reasons(&end), [EventReason::RemovedMaintenance], "nothing was uncordoned");
    let changed = patched(leased, &end);
    assert!(is_in_service(&changed));
    let node = changed.node.as_deref().unwrap();
    assert!(node_patch::remove_record(node, "m-uid").is_some(), "it is removed after the finalizer");
    assert_eq!(decide(&ending(&new), &changed, now()).node, None, "once");
    assert_eq!(decide(&ending(&new), &observed(), now()).node, None, "nothing was sent without the lease");
}

#[test]
fn the_undo_record_names_an_heir_before_the_finalizer_is_removed() {
    let heir = Arc::new(maintenance(&json!({"metadata": {"name": "z", "uid": "z-uid"}})));
    let beside =
        ClusterState { competing: vec![heir], other_uids: HashSet::from(["z-uid".to_owned()]), ..cordoned() };
    let end = decide(&ending(&begun()), &beside, now());
    assert!(end.remove_finalizer.is_some() && end.release_lease.is_none());
    let left = patched(beside, &end);
    let node = left.node.as_deref().unwrap();
    assert!(node.metadata.annotations.as_ref().unwrap()[UNDO_ANNOTATION].contains("z-uid"));
    assert!(is_cordoned(node, Group::Medik8s));
}

#[test]
fn a_node_that_someone_uncordoned_is_cordoned_again_with_an_event() {
    let again = decide(&begun(), &observed(), now());
    assert!(again.node.is_some());
    assert_eq!((reasons(&again), again.recordon_count), (vec![EventReason::RecordonNode; 2], Some(1)));
    let standing = decide(&begun(), &cordoned(), now());
    assert!(reasons(&standing).is_empty() && standing.recordon_count.is_none());
}

#[test]
fn a_contested_cordon_is_restored_with_backoff_and_no_pod_is_evicted_in_between() {
    let fought = |count, seconds, uncordoned: ClusterState| {
        let recordons = RecordonBackoff { count, since_last: Duration::from_secs(seconds) };
        decide(&begun(), &ClusterState { recordons, ..uncordoned }, now())
    };
    let early = fought(3, 1, observed());
    assert!(early.node.is_none() && early.events.is_empty() && early.evictions.is_empty());
    assert_eq!(early.evictable, Some(HashSet::new()), "also those that are queued");
    assert_eq!(early.requeue_after, Some(Duration::from_secs(3)));
    let status = early.status.unwrap();
    assert_eq!(condition(&status, "Degraded"), ("True", "CordonContested"));
    assert_eq!(condition(&status, "Cordoned"), ("False", "CordonContested"));
    assert_eq!(condition(&status, "Drained"), ("False", "CordonContested"));
    let due = fought(3, 4, observed());
    assert!(due.node.is_some());
    assert_eq!(due.recordon_count, Some(4));
    assert_eq!(asked(&due), ["a", "b"]);
    let standing = fought(3, 10, cordoned());
    assert_eq!(asked(&standing), ["a", "b"]);
    assert_eq!(condition(&standing.status.unwrap(), "Degraded"), ("True", "CordonContested"));
    assert!(fought(3, 300, cordoned()).status.is_none(), "the cordon has stood");
    assert_eq!(fought(1, 0, observed()).requeue_after, Some(Duration::from_secs(1)), "a person, once more");
}

#[test]
fn a_node_that_is_schedulable_counts_neither_as_cordoned_nor_as_drained_and_its_maintenance_has_begun_all_the_same()
 {
    let recordons = RecordonBackoff { count: 3, since_last: Duration::from_secs(1) };
    let pods = Some(Vec::new());
    let uncordoned = ClusterState { recordons, pods: pods.clone(), ..observed() };
    let mut drained = begun();
    drained.spec.drain = serde_json::from_value(json!({"timeoutSeconds": 7_200})).unwrap();
    let begun_at = drained.status.as_ref().unwrap().begun_at();
    let contested = after(&drained, &decide(&drained, &uncordoned, now()));
    let status = contested.status.clone().unwrap();
    assert_eq!(condition(&status, "Cordoned"), ("False", "CordonContested"));
    assert_eq!(condition(&status, "Drained"), ("False", "CordonContested"));
    assert!(ownership::has_begun(&contested) && !ownership::is_planned(&contested));
    assert_eq!(status.begun_at(), begun_at);
    // It may be paused, and has no place in the queue: the node is its own.
    let mut paused = contested.clone();
    paused.spec.suspend = true;
    assert!(decide(&paused, &uncordoned, now()).at_work);
    let again = ClusterState { pods, recordons, ..cordoned() };
    let restored = after(&contested, &decide(&contested, &again, now()));
    let status = restored.status.clone().unwrap();
    assert_eq!(condition(&status, "Cordoned").0, "True");
    assert_eq!(condition(&status, "Drained"), ("True", "Drained"));
    assert_eq!(status.begun_at(), begun_at, "timeouts are counted from the first cordon");
}

/// Whether the maintenance is verified before anything is written, and whether the node is. Only requests that wait are withdrawn
/// before that.
fn verified(decision: Decision) -> (bool, bool) {
    let steps = decision.into_steps();
    let is_withdrawal = |step: &&DecisionStep| {
        use DecisionStep::{WithdrawOutdated, WithdrawRestarts, WithdrawUnwanted};
        matches!(step, WithdrawOutdated { .. } | WithdrawRestarts(_) | WithdrawUnwanted(_))
    };
    let before = steps
        .iter()
        .skip_while(is_withdrawal)
        .take_while(|step| matches!(step, DecisionStep::VerifyMaintenance | DecisionStep::VerifyNode));
    let before: Vec<_> = before.collect();
    let is_of = |node: bool| before.iter().any(|step| matches!(step, DecisionStep::VerifyNode) == node);
    (is_of(false), is_of(true))
}

#[test]
fn what_takes_or_releases_a_node_is_verified_unless_a_patch_with_a_resource_version_comes_first() {
    let new = maintenance(&json!({"metadata": {"finalizers": [], "ownerReferences": []}}));
    assert_eq!(verified(decide(&new, &observed(), now())), (false, false), "the patch of the finalizer");
    let adopted = maintenance(&json!({}));
    let unlisted = ClusterState { pods: None, ..observed() };
    assert_eq!(verified(decide(&adopted, &unlisted, now())), (true, false), "it cordons the node");
    assert_eq!(
        verified(decide(&ending(&begun()), &cordoned(), now())),
        (true, false),
        "it uncordons the node"
    );
    assert_eq!(verified(decide(&ending(&begun()), &observed(), now())), (true, true), "nothing to revert");
    let gone = ClusterState { node: None, ..observed() };
    assert_eq!(verified(decide(&ending(&begun()), &gone, now())), (true, true), "the node is gone");
}

#[test]
fn a_node_is_verified_before_a_status_first_says_that_it_is_cordoned() {
    let lease = decide(&maintenance(&json!({})), &observed(), now()).lease;
    let Some(LeaseWrite::Create(lease)) = lease else { panic!("no lease") };
    let there = ClusterState { lease: Some(Arc::new(*lease)), ..cordoned() };
    let new = maintenance(&json!({}));
    let begins = decide(&new, &there, now());
    let begun = after(&new, &begins);
    assert_eq!(verified(begins), (false, true));
    let fewer = ClusterState { pods: Some(Vec::new()), ..there };
    assert_eq!(verified(decide(&begun, &fewer, now())), (false, false), "it has begun before");
}
