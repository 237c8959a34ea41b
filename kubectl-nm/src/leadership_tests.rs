//! Who works, by what is seen.

use serde_json::Value;

use super::*;
use crate::cluster::tests::{cluster, failure};
use crate::maintenance::fixture::with_status;

fn at(time: &str) -> Timestamp {
    format!("2026-01-02T{time}Z").parse().unwrap()
}

/// A lease that was last written at that time.
fn lease(spec: &Value, written: &str) -> Lease {
    serde_json::from_value(json!({"spec": spec, "metadata": {"name": NAME,
        "managedFields": [{"manager": "a", "operation": "Apply", "time": at(written).to_string()}]}}))
    .unwrap()
}

/// A lease that somebody held, renewed at that time.
fn held(renewed: &str) -> Lease {
    let renew_time = format!("2026-01-02T{renewed}.000000Z");
    lease(&json!({"holderIdentity": "a", "renewTime": renew_time, "leaseDurationSeconds": 15}), renewed)
}

/// A lease that was given back at that time.
fn given_back(written: &str) -> Lease {
    lease(&json!({"leaseTransitions": 3}), written)
}

#[test]
fn a_lease_tells_until_when_somebody_led() {
    let now = at("03:04:05");
    for is_installed in [true, false] {
        let of = |lease: Option<&Lease>| of(lease, is_installed, None, now);
        assert_eq!(of(Some(&held("03:04:00"))), Leadership::Held);
        assert_eq!(of(Some(&held("03:03:00"))), Leadership::Lapsed(at("03:03:15")));
        assert_eq!(of(None), Leadership::Unknown);
        let untold = Lease { metadata: Default::default(), ..given_back("03:00:00") };
        assert_eq!(of(Some(&untold)), Leadership::Unknown);
    }
}

#[test]
fn a_lease_that_nobody_holds_is_no_proof_of_absence_where_no_deployment_would_take_it() {
    let now = at("03:04:05");
    let left = given_back("03:00:00");
    assert_eq!(of(Some(&left), false, None, now), Leadership::Unknown);
    assert_eq!(of(Some(&left), true, None, now), Leadership::Lapsed(at("03:00:00")));
}

#[test]
fn what_was_done_after_the_last_leader_was_gone_was_done_without_election() {
    let now = at("05:00:00");
    for (lease, seen, works) in [
        (given_back("03:00:00"), "03:00:06", true),
        (given_back("03:00:00"), "04:59:59", true),
        // A leader may have written until it gave its lease back.
        (given_back("03:00:00"), "03:00:05", false),
        (given_back("03:00:00"), "02:00:00", false),
        (held("03:00:00"), "03:00:16", true),
        (held("03:00:00"), "03:00:15", false),
    ] {
        let found = of(Some(&lease), true, Some(at(seen)), now);
        assert_eq!(found == Leadership::Unelected(at(seen)), works, "{found:?} {seen}");
        assert_eq!(matches!(found, Leadership::Lapsed(_)), !works, "{found:?} {seen}");
    }
    assert_eq!(of(None, true, Some(at("04:59:30")), now), Leadership::Unelected(at("04:59:30")));
    assert_eq!(of(None, true, Some(at("04:58:59")), now), Leadership::Unknown);
}

#[test]
fn work_is_seen_by_statuses_conditions_and_the_leases_on_nodes() {
    let nothing = with_status("n1", json!({"phase": "Running"}));
    assert_eq!(last_seen([&nothing], &[]), None);
    let updated = with_status("n2", json!({"phase": "Running", "lastUpdate": "2026-01-02T01:00:00Z"}));
    assert_eq!(last_seen([&nothing, &updated], &[]), Some(at("01:00:00")));
    let moved = with_status(
        "n3",
        json!({"conditions": [{"type": "Drained", "status": "True", "reason": "Drained",
        "message": "", "lastTransitionTime": "2026-01-02T02:00:00Z"}]}),
    );
    assert_eq!(last_seen([&updated, &moved], &[]), Some(at("02:00:00")));
    let on_node = |holder: &str| {
        lease(&json!({"holderIdentity": holder, "renewTime": "2026-01-02T03:00:00.000000Z"}), "03:00:00")
    };
    assert_eq!(last_seen([&moved], &[on_node("node-maintenance")]), Some(at("03:00:00")));
    assert_eq!(last_seen([&moved], &[on_node("nhc")]), Some(at("02:00:00")), "another's");
}

#[tokio::test]
async fn who_may_not_see_the_lease_is_none_the_wiser() {
    let (cluster, _) = cluster(|_, _| failure(403, "Forbidden", "x"));
    assert_eq!(find(&cluster, &[], Timestamp::UNIX_EPOCH).await, Leadership::Unknown);
}
