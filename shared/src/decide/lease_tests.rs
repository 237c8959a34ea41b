//! Decisions while another holder has the node's lease, and about releasing it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::*;

/// The cluster while another holder has the lease.
fn taken() -> ClusterState {
    let spec = json!({"holderIdentity": "nhc", "leaseDurationSeconds": 600, "renewTime": MicroTime(now())});
    let lease = serde_json::from_value(json!({"metadata": {"name": "node-n1"}, "spec": spec})).unwrap();
    ClusterState { lease: Some(Arc::new(lease)), ..observed() }
}

#[test]
fn a_node_whose_lease_another_holder_has_is_not_changed() {
    let decision = decide(&maintenance(&json!({})), &taken(), now());
    assert!(decision.node.is_none() && decision.lease.is_none() && decision.evictions.is_empty());
    let status = decision.status.as_ref().unwrap();
    assert_eq!((status.phase, status.error_on_lease_count), (Some(Phase::Pending), 0));
    assert!(status.last_error.starts_with("failed to obtain a lease that is not owned by us"));
    assert_eq!(condition(status, "Cordoned"), ("False", "LeaseHeld"));
    assert_eq!(reasons(&decision), [EventReason::BeginMaintenance]);
    assert_eq!(decision.requeue_after, Some(Duration::from_secs(600)));
    let pending = after(&maintenance(&json!({})), &decision);
    let freed = decide(&pending, &observed(), now());
    let status = freed.status.as_ref().unwrap();
    assert_eq!((status.phase, status.eviction_pods), (Some(Phase::Running), 2), "counted when it begins");
    assert!(freed.lease.is_some() && status.last_error.is_empty());
}

#[test]
fn a_lost_lease_stops_evictions_and_one_lost_for_good_uncordons_the_node() {
    let new = maintenance(&json!({}));
    let begun = after(&new, &decide(&new, &observed(), now()));
    let lost = ClusterState { lease: taken().lease, ..cordoned() };
    let decision = decide(&begun, &lost, now());
    assert!(decision.node.is_none() && decision.evictions.is_empty());
    assert_eq!(decision.evictable, Some(HashSet::new()), "queued requests are dropped");
    let status = decision.status.as_ref().unwrap();
    assert_eq!((status.phase, status.error_on_lease_count), (Some(Phase::Running), 1));
    assert_eq!(condition(status, "Degraded"), ("True", "LeaseLost"));

    let again = decide(&after(&begun, &decision), &cordoned(), now());
    let status = again.status.as_ref().unwrap();
    assert_eq!((status.error_on_lease_count, condition(status, "Degraded").0), (0, "False"), "it is back");

    let mut hopeless = begun;
    hopeless.status.as_mut().unwrap().error_on_lease_count = 4;
    let over = decide(&hopeless, &lost, now());
    assert!(over.node.is_some(), "uncordoned");
    assert!(over.end_evacuations, "virtual machines stay");
    assert_eq!(over.status.as_ref().unwrap().phase, Some(Phase::Failed));
    assert_eq!(reasons(&over), [EventReason::UncordonNode, EventReason::FailedMaintenance]);
    let after_all = decide(&after(&hopeless, &over), &taken(), now());
    assert!(after_all.node.is_none() && after_all.status.is_none() && after_all.events.is_empty());
}

#[test]
fn the_lease_is_deleted_with_the_maintenance_if_it_is_ours() {
    let over = maintenance(&json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    assert!(
        decide(&over, &ClusterState { lease: taken().lease, ..cordoned() }, now()).release_lease.is_none()
    );
    let lease = json!({"metadata": {"name": "node-n1"}, "spec": {"holderIdentity": "node-maintenance"}});
    let lease = Some(Arc::new(serde_json::from_value(lease).unwrap()));
    assert_eq!(
        decide(&over, &ClusterState { lease: lease.clone(), ..cordoned() }, now()).release_lease,
        lease.map(LeaseRelease::Observed)
    );
    let unobserved = decide(&over, &cordoned(), now()).release_lease;
    assert_eq!(unobserved, Some(LeaseRelease::Unobserved), "its creation may not be known");
}

#[test]
fn a_drained_node_whose_lease_is_lost_for_good_returns_to_service_before_the_object_is_deleted() {
    let drained = ClusterState { pods: Some(vec![]), ..cordoned() };
    let new = maintenance(&json!({}));
    let mut done = after(&new, &decide(&new, &drained, now()));
    assert_eq!(done.status.as_ref().unwrap().phase, Some(Phase::Succeeded));
    done.status.as_mut().unwrap().error_on_lease_count = 4;
    let over = decide(&done, &ClusterState { lease: taken().lease, ..drained }, now());
    assert_eq!(over.node.unwrap().0["spec"]["unschedulable"], Value::Null);
    assert_eq!(over.status.unwrap().phase, Some(Phase::Failed));
}
