//! Decisions without all of the access that they need.

use super::*;
use crate::decide::failed_write::{FailedWrite, WriteFailure};
use crate::decide::failure_report::report_failure;

#[test]
fn missing_access_degrades_the_maintenance() {
    let mut attempt = Attempt::default();
    attempt
        .end(EvictionOutcome::Forbidden("cannot create resource \"pods/eviction\"".into()), SteadyTime::MIN);
    let attempts = [("a".to_owned(), attempt)].into();
    let status =
        decide(&maintenance(&json!({})), &ClusterState { attempts, ..observed() }, now()).status.unwrap();
    assert_eq!(condition(&status, "Degraded"), ("True", "MissingAccess"));
}

#[test]
fn node_conditions_that_may_not_be_written_degrade_and_block_nothing() {
    let forbidden = Some("cannot patch nodes/status".into());
    let observed = ClusterState { node_conditions: true, node_conditions_forbidden: forbidden, ..observed() };
    let decision = decide(&maintenance(&json!({})), &observed, now());
    let status = decision.status.as_ref().unwrap();
    assert_eq!(condition(status, "Degraded"), ("True", "MissingAccess"));
    assert_eq!((status.last_error.as_str(), decision.evictions.is_empty()), ("", false));
}

#[test]
fn without_access_to_leases_the_node_is_not_changed_and_the_error_has_a_hint() {
    let forbidden = ClusterState { leases_forbidden: Some("cannot list leases".into()), ..observed() };
    let decision = decide(&maintenance(&json!({})), &forbidden, now());
    assert!(decision.node.is_none() && decision.evictions.is_empty());
    let status = decision.status.unwrap();
    assert_eq!(condition(&status, "Degraded"), ("True", "MissingAccess"));
    let remedy =
        "cannot list leases; if the namespace medik8s-leases was removed, apply lease_namespace.yaml, ";
    assert!(status.last_error.starts_with(remedy), "{}", status.last_error);
}

#[test]
fn without_access_to_pods_the_node_is_cordoned() {
    let forbidden = ClusterState { pods_forbidden: Some("cannot list pods".into()), ..observed() };
    let decision = decide(&maintenance(&json!({})), &forbidden, now());
    let status = decision.status.as_ref().unwrap();
    assert!(decision.node.is_some() && decision.evictions.is_empty());
    assert_eq!(condition(status, "Cordoned"), ("True", "Cordoned"));
    assert_eq!(condition(status, "Degraded"), ("True", "MissingAccess"));
    let unpatched = reported(&maintenance(&json!({})), WriteFailure::Denied("cannot patch nodes".into()));
    assert_eq!(condition(&unpatched, "Cordoned"), ("False", "MissingAccess"));
}

/// The status of a maintenance whose node cannot be patched.
fn reported(maintenance: &NodeMaintenance, cause: WriteFailure) -> NodeMaintenanceStatus {
    let write = FailedWrite { attempt: "cannot patch node n1".to_owned(), cause };
    report_failure(maintenance, &cordoned(), write, now()).status.unwrap()
}

#[test]
fn a_refused_write_fails_the_maintenance_in_the_words_of_the_api_server() {
    let status =
        reported(&maintenance(&json!({})), WriteFailure::Refused("denied request: frozen".to_owned()));
    assert_eq!(status.phase, Some(Phase::Failed));
    assert_eq!(status.last_error, "cannot patch node n1: denied request: frozen");
    for type_ in ["Cordoned", "Drained"] {
        assert_eq!(condition(&status, type_), ("False", "WriteFailed"));
    }
    assert_eq!(condition(&status, "Degraded"), ("True", "WriteFailed"));
}

#[test]
fn a_refused_write_does_not_undo_a_drain_that_has_succeeded() {
    let drained = ClusterState { pods: Some(Vec::new()), ..observed() };
    let begun = decide(&maintenance(&json!({})), &drained, now()).status.unwrap();
    let begun = serde_json::to_value(begun).unwrap();
    assert_eq!(begun["phase"], "Succeeded");
    let refused = WriteFailure::Refused("denied request: frozen".to_owned());
    let status = reported(&maintenance(&json!({"status": begun})), refused);
    assert_eq!((status.phase, condition(&status, "Drained").0), (Some(Phase::Succeeded), "True"));
    assert_eq!(condition(&status, "Degraded"), ("True", "WriteFailed"));
}

#[test]
fn a_failure_of_the_api_server_is_shown_and_keeps_the_phase() {
    let failed = || WriteFailure::Failed("etcdserver: request timed out".to_owned());
    let new = reported(&maintenance(&json!({})), failed());
    assert_eq!((new.phase, condition(&new, "Cordoned")), (Some(Phase::Pending), ("False", "WriteFailed")));
    let status = decide(&maintenance(&json!({})), &observed(), now()).status.unwrap();
    let status = serde_json::to_value(status).unwrap();
    let begun = reported(&maintenance(&json!({"status": status})), failed());
    assert_eq!((begun.phase, condition(&begun, "Cordoned")), (Some(Phase::Running), ("True", "Cordoned")));
    assert_eq!(condition(&begun, "Degraded"), ("True", "WriteFailed"));
    assert_eq!(begun.last_error, "cannot patch node n1: etcdserver: request timed out");
}

#[test]
fn a_maintenance_that_waits_is_no_longer_degraded_by_what_is_cured() {
    let denied = WriteFailure::Denied("cannot patch nodes".into());
    let degraded = serde_json::to_value(reported(&maintenance(&json!({})), denied)).unwrap();
    let spec = json!({"holderIdentity": "nhc", "leaseDurationSeconds": 600, "renewTime": "2026-01-01T01:00:00.000000Z"});
    let lease = serde_json::from_value(json!({"metadata": {"name": "node-n1"}, "spec": spec})).unwrap();
    let taken = ClusterState { lease: Some(Arc::new(lease)), ..observed() };
    let waiting = decide(&maintenance(&json!({"status": degraded})), &taken, now()).status.unwrap();
    assert_eq!(condition(&waiting, "Cordoned"), ("False", "LeaseHeld"));
    assert_eq!(condition(&waiting, "Degraded"), ("False", "AsExpected"));
}

#[test]
fn a_failure_shows_a_node_that_is_schedulable_neither_as_cordoned_nor_as_drained() {
    let drained = ClusterState { pods: Some(Vec::new()), ..observed() };
    let status = decide(&maintenance(&json!({})), &drained, now()).status.unwrap();
    let begun_at = status.begun_at();
    assert_eq!((condition(&status, "Cordoned").0, condition(&status, "Drained").0), ("True", "True"));
    let begun = maintenance(&json!({"status": serde_json::to_value(status).unwrap()}));
    let failures = [
        WriteFailure::Denied("cannot patch nodes".into()),
        WriteFailure::Refused("denied request: frozen".to_owned()),
        WriteFailure::Failed("etcdserver: request timed out".to_owned()),
    ];
    let reports = failures.map(|cause| {
        let write = FailedWrite { attempt: "cannot patch node n1".to_owned(), cause };
        report_failure(&begun, &observed(), write, now())
    });
    let no_leases = ClusterState { leases_forbidden: Some("cannot list leases".into()), ..observed() };
    let lease = json!({"metadata": {"name": "node-n1"}, "spec": {"holderIdentity": "other",
        "leaseDurationSeconds": 3600, "renewTime": "2026-01-01T01:00:00.000000Z"}});
    let lease = Some(Arc::new(serde_json::from_value(lease).unwrap()));
    let lease_lost = ClusterState { lease, ..observed() };
    let others = [no_leases, lease_lost].map(|state| decide(&begun, &state, now()));
    for decision in reports.into_iter().chain(others) {
        let status = decision.status.unwrap();
        assert_eq!(condition(&status, "Cordoned").0, "False", "{}", status.last_error);
        assert_eq!(condition(&status, "Drained").0, "False", "{}", status.last_error);
        assert_eq!(status.begun_at(), begun_at, "it has begun all the same: {}", status.last_error);
    }
}
