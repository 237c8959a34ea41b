//! Decisions of a maintenance that waits for volumes to be detached.

use super::*;
use crate::cluster::volume_attachment::NodeVolumes;

fn waiting(timeout_seconds: i64, on_timeout: &str) -> NodeMaintenance {
    let wait = json!({"timeoutSeconds": timeout_seconds, "onTimeout": on_timeout});
    maintenance(&json!({"spec": {"drain": {"waitForVolumeDetach": wait}}}))
}

/// A node without pods to which these volumes are attached.
fn empty_node(attached: &[&str]) -> ClusterState {
    let attachment = |name: &&str| {
        let attachment = json!({"metadata": {"name": format!("csi-{name}")},
            "spec": {"attacher": "d", "nodeName": "n1", "source": {"persistentVolumeName": name}}});
        Arc::new(serde_json::from_value(attachment).unwrap())
    };
    let volumes = NodeVolumes {
        attachments: attached.iter().map(attachment).collect(),
        is_complete: true,
        ..NodeVolumes::default()
    };
    ClusterState { pods: Some(Vec::new()), volumes, ..cordoned() }
}

fn seconds_later(seconds: i64) -> Timestamp {
    now().checked_add(SignedDuration::from_secs(seconds)).unwrap()
}

/// The maintenance after its last pod was gone, with volume `pv` attached.
fn detaching(timeout_seconds: i64, on_timeout: &str) -> NodeMaintenance {
    let maintenance = waiting(timeout_seconds, on_timeout);
    let busy = ClusterState { volumes: empty_node(&["pv"]).volumes, ..cordoned() };
    let decision = decide(&maintenance, &busy, now());
    let status = decision.status.as_ref().unwrap();
    assert!(status.attached_volumes.is_none(), "while there are pods only they are waited for");
    assert!(status.conditions.iter().all(|condition| condition.type_ != "VolumesDetached"));
    let begun = after(&maintenance, &decision);
    let decision = decide(&begun, &empty_node(&["pv"]), now());
    after(&begun, &decision)
}

#[test]
fn a_node_is_drained_once_its_volumes_are_detached() {
    let waiting = detaching(60, "Succeed");
    let status = waiting.status.as_ref().unwrap();
    assert_eq!((status.phase, status.drain_progress), (Some(Phase::Running), 100));
    assert_eq!(condition(status, "Drained"), ("False", "DetachingVolumes"));
    assert_eq!(condition(status, "VolumesDetached"), ("False", "DetachingVolumes"));
    assert_eq!(condition(status, "Degraded"), ("False", "AsExpected"));
    assert_eq!(status.attached_volumes.as_ref().unwrap()[0].attachment, "csi-pv");
    let unchanged = decide(&waiting, &empty_node(&["pv"]), seconds_later(10));
    assert!(unchanged.status.is_none() && unchanged.requeue_after.unwrap() <= Duration::from_secs(50));
    let decision = decide(&waiting, &empty_node(&[]), seconds_later(10));
    let status = decision.status.as_ref().unwrap();
    assert_eq!((status.phase, status.attached_volumes.as_ref()), (Some(Phase::Succeeded), None));
    assert_eq!(condition(status, "Drained"), ("True", "Drained"));
    assert_eq!(condition(status, "VolumesDetached"), ("True", "AsExpected"));
    assert_eq!(reasons(&decision), [EventReason::SucceedMaintenance]);
}

#[test]
fn by_default_no_volume_is_waited_for() {
    let plain = maintenance(&json!({}));
    let begun = after(&plain, &decide(&plain, &cordoned(), now()));
    let status = decide(&begun, &empty_node(&["pv"]), now()).status.unwrap();
    assert_eq!((status.phase, status.attached_volumes), (Some(Phase::Succeeded), None));
    assert!(status.conditions.iter().all(|condition| condition.type_ != "VolumesDetached"));
}

#[test]
fn after_the_timeout_it_succeeds_with_a_warning_until_the_volumes_are_detached() {
    let waiting = detaching(60, "Succeed");
    let decision = decide(&waiting, &empty_node(&["pv"]), seconds_later(60));
    let status = decision.status.as_ref().unwrap();
    assert_eq!(status.phase, Some(Phase::Succeeded));
    assert_eq!(condition(status, "Drained"), ("True", "DetachTimedOut"));
    assert_eq!(condition(status, "Degraded"), ("True", "DetachTimedOut"));
    assert_eq!((status.last_error.as_str(), status.attached_volumes.as_ref().unwrap().len()), ("", 1));
    assert_eq!(reasons(&decision), [EventReason::SucceedMaintenance, EventReason::DetachTimedOut]);
    let late = after(&waiting, &decision);
    assert!(decide(&late, &empty_node(&["pv"]), seconds_later(90)).status.is_none(), "it is reported once");
    let decision = decide(&late, &empty_node(&[]), seconds_later(90));
    let status = decision.status.as_ref().unwrap();
    assert_eq!(condition(status, "Drained"), ("True", "Drained"));
    assert_eq!(condition(status, "Degraded"), ("False", "AsExpected"));
    assert!(decision.events.is_empty());
}

#[test]
fn after_the_timeout_it_fails_if_it_is_to_fail_and_succeeds_once_the_volumes_are_detached() {
    let waiting = detaching(60, "Fail");
    let decision = decide(&waiting, &empty_node(&["pv"]), seconds_later(60));
    let status = decision.status.as_ref().unwrap();
    assert_eq!(status.phase, Some(Phase::Failed));
    assert_eq!(condition(status, "Drained"), ("False", "DetachTimedOut"));
    assert_eq!(status.last_error, "1 volume is still attached 60 s after the last pod was gone: pv");
    assert_eq!(reasons(&decision), [EventReason::FailedMaintenance]);
    let failed = after(&waiting, &decision);
    let status = decide(&failed, &empty_node(&[]), seconds_later(90)).status.unwrap();
    assert_eq!((status.phase, status.last_error.as_str()), (Some(Phase::Succeeded), ""));
}

#[test]
fn a_pause_and_the_timeout_of_the_drain_do_not_matter_to_volumes() {
    let mut waiting = detaching(60, "Succeed");
    waiting.spec.suspend = true;
    waiting.spec.drain.as_mut().unwrap().timeout_seconds = 1;
    let paused = decide(&waiting, &empty_node(&["pv"]), seconds_later(30)).status.unwrap();
    assert_eq!((paused.phase, condition(&paused, "Drained").1), (Some(Phase::Running), "DetachingVolumes"));
    let paused = NodeMaintenance { status: Some(paused), ..waiting };
    let over = decide(&paused, &empty_node(&["pv"]), seconds_later(60)).status.unwrap();
    assert_eq!(over.phase, Some(Phase::Succeeded));
}

#[test]
fn a_late_pod_begins_the_wait_again() {
    let waiting = detaching(60, "Fail");
    let late = ClusterState { volumes: empty_node(&["pv"]).volumes, ..cordoned() };
    let decision = decide(&waiting, &late, seconds_later(50));
    let busy = after(&waiting, &decision);
    assert!(busy.status.as_ref().unwrap().attached_volumes.is_none());
    let again = after(&busy, &decide(&busy, &empty_node(&["pv"]), seconds_later(55)));
    let status = again.status.as_ref().unwrap();
    assert_eq!(status.attached_volumes.as_ref().unwrap()[0].since.0, seconds_later(55));
    let decision = decide(&again, &empty_node(&["pv"]), seconds_later(100));
    assert!(decision.status.is_none(), "{:?}", decision.status);
}

#[test]
fn missing_access_is_reported_from_the_beginning_and_ends_with_the_timeout() {
    let denied = "User \"u\" cannot list resource \"volumeattachments\" in API group \"storage.k8s.io\"";
    let forbid = |state: ClusterState| ClusterState {
        volumes: NodeVolumes::default(),
        volumes_forbidden: Some(denied.into()),
        ..state
    };
    let new = waiting(60, "Succeed");
    let decision = decide(&new, &forbid(cordoned()), now());
    let status = decision.status.as_ref().unwrap();
    assert_eq!(condition(status, "Degraded"), ("True", "MissingAccess"));
    assert_eq!(status.forbidden.as_ref().unwrap().resource, "volumeattachments");
    let degraded = status.conditions.iter().find(|condition| condition.type_ == "Degraded").unwrap();
    assert!(degraded.message.contains("--grant volume-detach"), "{}", degraded.message);
    assert_eq!(asked(&decision), ["a", "b"], "pods do not wait for it");
    let begun = after(&new, &decision);
    let decision = decide(&begun, &forbid(empty_node(&[])), now());
    let status = decision.status.as_ref().unwrap();
    assert_eq!((status.phase, condition(status, "Drained").1), (Some(Phase::Running), "DetachingVolumes"));
    let waits = after(&begun, &decision);
    let status = decide(&waits, &forbid(empty_node(&[])), seconds_later(60)).status.unwrap();
    assert_eq!((status.phase, condition(&status, "Degraded").1), (Some(Phase::Succeeded), "MissingAccess"));
}

#[test]
fn a_restart_changes_nothing() {
    let waiting = detaching(60, "Succeed");
    let overdue = after(&waiting, &decide(&waiting, &empty_node(&["pv"]), seconds_later(60)));
    let drained = after(&waiting, &decide(&waiting, &empty_node(&[]), seconds_later(30)));
    let unlisted = ClusterState { volumes: NodeVolumes::default(), ..empty_node(&[]) };
    for (name, before, later) in
        [("waiting", waiting, 59), ("overdue", overdue, 90), ("drained", drained, 90)]
    {
        let decision = decide(&before, &unlisted, seconds_later(later));
        assert_eq!(decision.status, None, "{name}");
        assert!(decision.events.is_empty(), "{name}");
    }
}

#[test]
fn the_volumes_of_a_node_are_looked_up_once_no_pod_has_to_leave() {
    use crate::decide::drain_plan::needs_volumes;
    let needs =
        |maintenance: &NodeMaintenance, observed: &ClusterState| needs_volumes(maintenance, observed, now());
    let (waits, empty) = (waiting(60, "Succeed"), empty_node(&[]));
    assert!(needs(&waits, &empty));
    assert!(!needs(&waits, &cordoned()), "pods remain");
    assert!(!needs(&waits, &ClusterState { pods: None, ..empty_node(&[]) }), "the pods are not known");
    assert!(!needs(&maintenance(&json!({})), &empty), "nobody waits for volumes");
}
