//! The watch on the leader's lease. A standby replica learns from it that nobody leads, the leader that it no longer leads,
//! and the write fence when the leader last renewed.
//!
//! A lease expires when it was not renewed for its duration after this replica has seen it, by the steady clock. The times in
//! it are by the clock of the leader, which may differ by any amount (client-go's `leaderelection` does the same).

use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use nm_shared::cluster::leader_lease;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::telemetry::readiness::ReadinessCheck;
use crate::watch::watch_stream::{WatchHealth, object_states, only, restarted_watch};

/// How long to wait after a failure. It is short, because a leader without a watch stops leading.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The lease as the watch last delivered it.
#[derive(Debug, Clone)]
pub(crate) struct LeaseWatch(watch::Receiver<Option<SeenLease>>);

/// The lease, and since when its spec has been like this.
#[derive(Debug, Default)]
struct SeenLease {
    lease: Option<Box<Lease>>,
    since: Option<Instant>,
}

/// Who leads.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Leadership {
    /// Nobody: the lease was released, was not renewed in time, or does not exist.
    Vacant(Option<Box<Lease>>),
    Leads {
        /// The identity of the leader.
        by: String,
        /// When it last renewed the lease, by its clock.
        renewed: Timestamp,
        /// When the lease expires unless it is renewed.
        expires: Instant,
    },
}

impl SeenLease {
    fn replace(&mut self, lease: Option<Lease>, now: Instant) {
        let spec = |lease: Option<&Lease>| lease.and_then(|lease| lease.spec.clone());
        if spec(lease.as_ref()) != spec(self.lease.as_deref()) {
            self.since = Some(now);
        }
        self.lease = lease.map(Box::new);
    }

    fn state(&self, now: Instant) -> Leadership {
        self.leader().filter(|(_, _, expires)| *expires > now).map_or_else(
            || Leadership::Vacant(self.lease.clone()),
            |(by, renewed, expires)| Leadership::Leads { by, renewed, expires },
        )
    }

    /// The holder, its last renewal, and when the lease expires.
    fn leader(&self) -> Option<(String, Timestamp, Instant)> {
        let spec = self.lease.as_ref()?.spec.as_ref()?;
        let by = spec.holder_identity.clone().filter(|by| !by.is_empty())?;
        let seconds = u64::try_from(spec.lease_duration_seconds?).ok()?;
        Some((by, spec.renew_time.as_ref()?.0, self.since? + Duration::from_secs(seconds)))
    }
}

impl LeaseWatch {
    /// Starts to watch. The check passes while the watch is healthy. The watch ends when the last clone is dropped.
    pub(crate) fn start(leases: Api<Lease>, check: ReadinessCheck) -> Self {
        let (sender, receiver) = watch::channel(None);
        tokio::spawn(async move {
            tokio::select! {
                () = run(leases, &sender, check) => {}
                () = sender.closed() => {}
            }
        });
        Self(receiver)
    }

    /// Who leads; none while that is unknown.
    pub(crate) fn state(&mut self) -> Option<Leadership> {
        self.0.borrow_and_update().as_ref().map(|lease| lease.state(Instant::now()))
    }

    /// Resolves if the watch ends by itself, which is a bug.
    pub(crate) async fn ended(mut self) {
        while self.0.changed().await.is_ok() {}
    }

    /// Waits for a change since the last call of [`Self::state`].
    pub(crate) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // The watch has panicked, or its runtime shuts down. Either ends this task too.
            std::future::pending::<()>().await;
        }
    }
}

async fn run(leases: Api<Lease>, sender: &watch::Sender<Option<SeenLease>>, check: ReadinessCheck) {
    let mut health = WatchHealth::new("the leader's lease", Some(check));
    let only = only(leader_lease::NAME);
    let events = restarted_watch(leases, only).inspect(|event| health.record(event));
    let mut states = std::pin::pin!(object_states(events));
    while let Some(state) = states.next().await {
        let Ok(lease) = state else {
            tokio::time::sleep(RETRY_INTERVAL).await;
            continue;
        };
        sender.send_modify(|seen| seen.get_or_insert_default().replace(lease, Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::Body;
    use kube::Client;
    use serde_json::{Value, json};

    use super::*;
    use crate::telemetry::readiness::Readiness;

    #[tokio::test]
    async fn a_watch_that_panics_is_noticed_and_its_check_fails() {
        let server = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
            assert!(request.uri().path().is_empty(), "every request panics");
            Ok::<_, Infallible>(http::Response::new(Body::empty()))
        });
        let readiness = Readiness::default();
        let leases = Api::namespaced(Client::new(server, "default"), "default");
        LeaseWatch::start(leases, readiness.check("leader-election")).ended().await;
        let report = readiness.report();
        assert!(!report.is_ready && report.lines.starts_with("[-]leader-election failed: "), "{report:?}");
    }

    #[tokio::test]
    async fn a_lease_expires_by_the_time_in_which_it_was_not_renewed_whatever_the_clocks_say() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let lease = |holder: Value, renewed: i64| -> Option<Lease> {
            let renewed = Timestamp::from_second(1_000_000 + renewed).unwrap().to_string();
            let spec = json!({"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15});
            Some(serde_json::from_value(json!({"spec": spec})).unwrap())
        };
        for hour in [-3600, 0, 3600] {
            let mut seen = SeenLease::default();
            let leads = |seen: &SeenLease, second| matches!(seen.state(at(second)), Leadership::Leads { .. });
            seen.replace(lease(json!("a"), hour), at(0));
            assert!(leads(&seen, 14) && !leads(&seen, 15));
            seen.replace(lease(json!("a"), hour), at(10));
            assert!(leads(&seen, 14) && !leads(&seen, 15), "it was not renewed");
            seen.replace(lease(json!("a"), hour + 5), at(10));
            assert!(leads(&seen, 24) && !leads(&seen, 25));
            // client-go releases a lease by an empty name.
            for vacant in [lease(Value::Null, hour), lease(json!(""), hour), None] {
                seen.replace(vacant, at(11));
                assert!(!leads(&seen, 11));
            }
        }
    }
}
