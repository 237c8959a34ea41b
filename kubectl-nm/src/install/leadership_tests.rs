//! Who works, by what is seen.

use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::*;
use crate::client::cluster::tests::{cluster, failure};
use crate::maintenance::fixture::with_status;

fn at(time: &str) -> Timestamp {
    format!("2026-01-02T{time}Z").parse().unwrap()
}

/// Who works, by a lease whose times leave no doubt.
fn of(lease: Option<&Lease>, is_installed: bool, seen: Option<Timestamp>, now: Timestamp) -> Leadership {
    super::of(&lease.cloned().into(), is_installed, seen, now)
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
        let untold = Lease { spec: given_back("03:00:00").spec, ..Lease::default() };
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

/// Who leads by a lease that was renewed at that time and then, where it is, again with each look.
async fn found(renewed: &str, again: bool) -> (Leadership, Duration) {
    let begun: Timestamp = renewed.parse().unwrap();
    let looks = Mutex::new(0);
    let (cluster, _) = cluster(move |_, path| {
        if path != "/apis/coordination.k8s.io/v1/namespaces/node-maintenance/leases/nm-reconciler" {
            return failure(404, "NotFound", "x");
        }
        let mut looks = looks.lock().unwrap();
        let renewed = begun + SignedDuration::from_secs(if again { *looks } else { 0 });
        *looks += 1;
        let spec = json!({"holderIdentity": "a", "renewTime": renewed, "leaseDurationSeconds": 15});
        let metadata = json!({"name": NAME, "namespace": "node-maintenance"});
        (
            200,
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}),
        )
    });
    let begun = Instant::now();
    (find(&cluster, &[], "2026-01-02T03:04:05Z".parse().unwrap()).await, begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_goes_wrong_ends_nobodys_leadership() {
    for renewed in ["2026-01-02T03:03:00.000000Z", "2026-01-02T03:09:00.000000Z"] {
        assert_eq!(found(renewed, true).await.0, Leadership::Held, "{renewed}");
        let (leadership, took) = found(renewed, false).await;
        assert!(matches!(leadership, Leadership::Lapsed(_)), "{renewed}: {leadership:?}");
        assert!(took <= Duration::from_secs(8), "{took:?}");
    }
    let (leadership, took) = found("2026-01-02T03:04:00.000000Z", false).await;
    assert_eq!(
        (leadership, took),
        (Leadership::Held, Duration::ZERO),
        "what leaves no doubt is not waited for"
    );
}
