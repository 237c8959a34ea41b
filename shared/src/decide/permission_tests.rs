//! Decisions without all of the access that they need.

use super::*;

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
    let unpatched = missing_access(&maintenance(&json!({})), "cannot patch nodes".into(), now());
    assert_eq!(condition(unpatched.status.as_ref().unwrap(), "Cordoned"), ("False", "MissingAccess"));
}
