//! Which kind of reconciler is active, given leases and writes.

use std::sync::Mutex;
use std::time::Duration;

use nm_core::testing::fake_server::{cluster, failure};
use nm_core::testing::objects::with_status;
use serde_json::Value;
use tokio::time::Instant;

use super::*;

fn at(time: &str) -> Timestamp {
    format!("2026-01-02T{time}Z").parse().unwrap()
}

/// The leadership, given a lease whose times are plausible.
fn of(lease: Option<&Lease>, is_installed: bool, seen: Option<Timestamp>, now: Timestamp) -> Leadership {
    super::of(&lease.cloned().into(), is_installed, seen, now)
}

/// A lease that was last written at this time.
fn lease(spec: &Value, written: &str) -> Lease {
    serde_json::from_value(json!({"spec": spec, "metadata": {"name": NAME,
        "managedFields": [{"manager": "a", "operation": "Apply", "time": at(written).to_string()}]}}))
    .unwrap()
}

/// A lease with a holder, renewed at this time.
fn held(renewed: &str) -> Lease {
    let renew_time = format!("2026-01-02T{renewed}.000000Z");
    lease(&json!({"holderIdentity": "a", "renewTime": renew_time, "leaseDurationSeconds": 15}), renewed)
}

/// A lease that was released at this time.
fn released(written: &str) -> Lease {
    lease(&json!({"leaseTransitions": 3}), written)
}

#[test]
fn the_lease_shows_until_when_there_was_a_leader() {
    let now = at("03:04:05");
    for is_installed in [true, false] {
        let of = |lease: Option<&Lease>| of(lease, is_installed, None, now);
        assert_eq!(of(Some(&held("03:04:00"))), Leadership::Held);
        assert_eq!(of(Some(&held("03:03:00"))), Leadership::Lapsed(at("03:03:15")));
        assert_eq!(of(None), Leadership::Unknown);
        let without_times = Lease { spec: released("03:00:00").spec, ..Lease::default() };
        assert_eq!(of(Some(&without_times)), Leadership::Unknown);
    }
}

#[test]
fn a_released_lease_means_no_leader_only_if_there_is_a_deployment() {
    let now = at("03:04:05");
    let left = released("03:00:00");
    assert_eq!(of(Some(&left), false, None, now), Leadership::Unknown);
    assert_eq!(of(Some(&left), true, None, now), Leadership::Lapsed(at("03:00:00")));
}

#[test]
fn writes_after_the_last_term_come_from_a_reconciler_without_election() {
    let now = at("05:00:00");
    for (lease, written, is_active) in [
        (released("03:00:00"), "03:00:06", true),
        (released("03:00:00"), "04:59:59", true),
        // A leader may write until it releases its lease.
        (released("03:00:00"), "03:00:05", false),
        (released("03:00:00"), "02:00:00", false),
        (held("03:00:00"), "03:00:16", true),
        (held("03:00:00"), "03:00:15", false),
    ] {
        let found = of(Some(&lease), true, Some(at(written)), now);
        assert_eq!(found == Leadership::Unelected(at(written)), is_active, "{found:?} {written}");
        assert_eq!(matches!(found, Leadership::Lapsed(_)), !is_active, "{found:?} {written}");
    }
    assert_eq!(of(None, true, Some(at("04:59:30")), now), Leadership::Unelected(at("04:59:30")));
    assert_eq!(of(None, true, Some(at("04:58:59")), now), Leadership::Unknown);
}

#[test]
fn statuses_conditions_and_node_leases_show_writes() {
    let nothing = with_status("n1", json!({"phase": "Running"}));
    assert_eq!(last_write([&nothing], &[]), None);
    let updated = with_status("n2", json!({"phase": "Running", "lastUpdate": "2026-01-02T01:00:00Z"}));
    assert_eq!(last_write([&nothing, &updated], &[]), Some(at("01:00:00")));
    let moved = with_status(
        "n3",
        json!({"conditions": [{"type": "Drained", "status": "True", "reason": "Drained",
        "message": "", "lastTransitionTime": "2026-01-02T02:00:00Z"}]}),
    );
    assert_eq!(last_write([&updated, &moved], &[]), Some(at("02:00:00")));
    let on_node = |holder: &str| {
        lease(&json!({"holderIdentity": holder, "renewTime": "2026-01-02T03:00:00.000000Z"}), "03:00:00")
    };
    assert_eq!(last_write([&moved], &[on_node("node-maintenance")]), Some(at("03:00:00")));
    assert_eq!(last_write([&moved], &[on_node("nhc")]), Some(at("02:00:00")), "another's");
}

#[tokio::test]
async fn without_permission_to_read_the_lease_the_leader_is_unknown() {
    let (cluster, _) = cluster(|_, _| failure(403, "Forbidden", "x"));
    assert_eq!(find(&cluster, &[], Timestamp::UNIX_EPOCH).await, Reconcilers::default());
}

/// The leadership, given a lease that was renewed at this time and, if `again`, with each read.
async fn found(renewed: &str, again: bool) -> (Leadership, Duration) {
    let begun: Timestamp = renewed.parse().unwrap();
    let reads = Mutex::new(0);
    let (cluster, _) = cluster(move |_, path| {
        if path != "/apis/coordination.k8s.io/v1/namespaces/node-maintenance/leases/nm-reconciler" {
            return failure(404, "NotFound", "x");
        }
        let mut reads = reads.lock().unwrap();
        let renewed = begun + SignedDuration::from_secs(if again { *reads } else { 0 });
        *reads += 1;
        let spec = json!({"holderIdentity": "a", "renewTime": renewed, "leaseDurationSeconds": 15});
        let metadata = json!({"name": NAME, "namespace": "node-maintenance"});
        (
            200,
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}),
        )
    });
    let begun = Instant::now();
    (find(&cluster, &[], "2026-01-02T03:04:05Z".parse().unwrap()).await.leadership, begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_wrong_clock_does_not_hide_a_leader() {
    for renewed in ["2026-01-02T03:03:00.000000Z", "2026-01-02T03:09:00.000000Z"] {
        assert_eq!(found(renewed, true).await.0, Leadership::Held, "{renewed}");
        let (leadership, took) = found(renewed, false).await;
        assert!(matches!(leadership, Leadership::Lapsed(_)), "{renewed}: {leadership:?}");
        assert!(took <= Duration::from_secs(8), "{took:?}");
    }
    let (leadership, took) = found("2026-01-02T03:04:00.000000Z", false).await;
    assert_eq!((leadership, took), (Leadership::Held, Duration::ZERO), "plausible times need no wait");
}
