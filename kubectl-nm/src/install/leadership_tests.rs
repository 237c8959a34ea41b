//! Who leads, given leases and their renewals.

use std::sync::Mutex;
use std::time::Duration;

use nm_core::testing::fake_server::{cluster, failure};
use serde_json::Value;
use tokio::time::Instant;

use super::*;

fn at(time: &str) -> Timestamp {
    format!("2026-01-02T{time}Z").parse().unwrap()
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
        let of = |lease: Option<Lease>| LeaderLease::read_at(lease, now).leadership(is_installed, now);
        assert_eq!(of(Some(held("03:04:00"))), Leadership::Held);
        assert_eq!(of(Some(held("03:03:00"))), Leadership::Lapsed(at("03:03:15")));
        assert_eq!(of(None), Leadership::Unknown);
        let without_times = Lease { spec: released("03:00:00").spec, ..Lease::default() };
        assert_eq!(of(Some(without_times)), Leadership::Unknown);
    }
}

#[test]
fn a_released_lease_means_no_leader_only_if_there_is_a_deployment() {
    let now = at("03:04:05");
    let left = LeaderLease::read_at(Some(released("03:00:00")), now);
    assert_eq!(left.leadership(false, now), Leadership::Unknown);
    assert_eq!(left.leadership(true, now), Leadership::Lapsed(at("03:00:00")));
}

#[test]
fn the_skew_is_the_difference_at_the_renewal() {
    for (seen, skew) in [
        ("03:04:05", None),
        ("03:04:07", None),
        ("03:04:08", Some(3)),
        ("03:04:03", None),
        ("03:02:35", Some(90)),
    ] {
        let observed = LeaderLease::renewed_at(Some(held("03:04:05")), at(seen));
        assert_eq!(observed.skew, skew.map(SignedDuration::from_secs), "{seen}");
        assert_eq!(observed.leadership(true, at(seen)), Leadership::Held, "{seen}");
    }
    assert_eq!(LeaderLease::read_at(Some(held("03:04:05")), at("03:04:09")).skew, None);
}

#[test]
fn the_wait_depends_on_the_duration_of_the_lease() {
    let lasting = |seconds: u32| {
        lease(
            &json!({"holderIdentity": "a", "leaseDurationSeconds": seconds, "renewTime": "2026-01-02T03:04:05.000000Z"}),
            "03:04:05",
        )
    };
    for (duration, timeout) in [(15, 7_500), (30, 15_000), (60, 30_000), (137, 60_000), (600, 60_000)] {
        let found = renewal_timeout(Some(&lasting(duration)), at("03:20:00"));
        assert_eq!(found, Some(Duration::from_millis(timeout)), "{duration}");
    }
    assert_eq!(renewal_timeout(Some(&lasting(15)), at("03:04:08")), None);
}

#[tokio::test]
async fn without_permission_to_read_the_lease_the_leader_is_unknown() {
    let (cluster, _) = cluster(|_, _| failure(403, "Forbidden", "x"));
    assert_eq!(find(&cluster, Timestamp::UNIX_EPOCH).await, Reconcilers::default());
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
    (find(&cluster, "2026-01-02T03:04:05Z".parse().unwrap()).await.leadership, begun.elapsed())
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
