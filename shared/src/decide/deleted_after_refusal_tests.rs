//! What a maintenance shows of pods that were deleted because their eviction was refused (`spec.drain.deleteAfterSeconds`).

use super::*;
use crate::api::pod_reference::PodReference;
use crate::decide::status_events::deleted_after_refusal;

fn at(second: i64) -> Timestamp {
    now().checked_add(SignedDuration::from_secs(second)).unwrap()
}

fn deleted(names: &[&str]) -> ClusterState {
    let pod = |name: &&str| PodReference { namespace: "shop".to_owned(), name: (*name).to_owned() };
    ClusterState { deleted: names.iter().map(pod).collect(), ..cordoned() }
}

fn counted(maintenance: &NodeMaintenance) -> i32 {
    deleted_after_refusal(maintenance.status.as_ref().unwrap())
}

#[test]
fn deleted_pods_are_counted_once_and_share_an_event() {
    let new = maintenance(&json!({"spec": {"drain": {"deleteAfterSeconds": 20}}}));
    let begun = after(&new, &decide(&new, &observed(), now()));
    assert_eq!(counted(&begun), 0);
    let decision = decide(&begun, &deleted(&["web-1", "web-2"]), at(20));
    let [event] = decision.events.as_slice() else { panic!("{:?}", decision.events) };
    assert_eq!((event.reason, event.subject), (EventReason::DeletedAfterRefusal, EventSubject::Maintenance));
    let note = "2 pods of node n1 deleted: their evictions were refused for 20 s (deleteAfterSeconds): shop/web-1, shop/web-2";
    assert_eq!((event.note.as_str(), event.pod.as_ref().unwrap().name.as_str()), (note, "web-1"));
    let begun = after(&begun, &decision);
    assert_eq!(counted(&begun), 2);
    // They are forgotten once this status is written.
    let later = decide(&begun, &cordoned(), at(30));
    assert!(later.events.is_empty() && later.status.is_none());
    let last = decide(&begun, &deleted(&["db-0"]), at(40));
    let note = "1 pod of node n1 deleted: its eviction was refused for 20 s (deleteAfterSeconds): shop/db-0";
    assert_eq!(last.events[0].note, note);
    assert_eq!(counted(&after(&begun, &last)), 3);
}

#[test]
fn an_event_has_no_names_without_a_status_that_counts_them() {
    let new = maintenance(&json!({"spec": {"drain": {"deleteAfterSeconds": 20}}}));
    let begun = after(&new, &decide(&new, &observed(), now()));
    let written = ClusterState { status_written: Some(at(20)), ..deleted(&["web-1"]) };
    let early = decide(&begun, &written, at(20));
    assert!(early.status.is_none() && early.events.is_empty() && early.requeue_after.is_some());
}
