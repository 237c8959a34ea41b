//! The watch on the leader's lease. A standby replica learns from it that nobody leads, the leader that it no longer leads,
//! and the write fence when the leader last renewed.

use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::runtime::watcher;
use nm_shared::cluster::leader_lease::{self, LeaderLeaseState};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::telemetry::readiness::ReadinessCheck;

/// How long to wait after a failure. It is short, because a leader without a watch stops leading.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The lease as the watch last delivered it.
#[derive(Debug, Clone)]
pub(crate) struct LeaseWatch(watch::Receiver<LeaseSnapshot>);

#[derive(Debug)]
enum LeaseSnapshot {
    Unknown,
    Known(Option<Box<Lease>>),
}

impl LeaseWatch {
    /// Starts to watch. The check passes while the watch is healthy. The watch ends when the last clone is dropped.
    pub(crate) fn start(leases: Api<Lease>, check: ReadinessCheck) -> Self {
        let (sender, receiver) = watch::channel(LeaseSnapshot::Unknown);
        tokio::spawn(async move {
            tokio::select! {
                () = run(leases, &sender, &check) => {}
                () = sender.closed() => {}
            }
        });
        Self(receiver)
    }

    /// Who leads; none while that is unknown.
    pub(crate) fn state(&mut self) -> Option<LeaderLeaseState> {
        match &*self.0.borrow_and_update() {
            LeaseSnapshot::Unknown => None,
            LeaseSnapshot::Known(lease) => Some(leader_lease::state(lease.as_deref(), Timestamp::now())),
        }
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

async fn run(leases: Api<Lease>, sender: &watch::Sender<LeaseSnapshot>, check: &ReadinessCheck) {
    let mut states = watcher::watch_object(leases, leader_lease::NAME).boxed();
    let mut is_interrupted = false;
    while let Some(state) = states.next().await {
        match state {
            Ok(lease) => {
                if std::mem::take(&mut is_interrupted) {
                    info!("watch on the leader's lease resumed");
                }
                check.pass();
                sender.send_replace(LeaseSnapshot::Known(lease.map(Box::new)));
            }
            Err(error) => {
                if !std::mem::replace(&mut is_interrupted, true) {
                    warn!(%error, "watch on the leader's lease interrupted; retrying");
                }
                check.fail("the leader's lease cannot be watched");
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::Body;
    use kube::Client;

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
}
