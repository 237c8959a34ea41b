//! The watch on the lease by which one replica leads. What it tells serves three ends: who stands by learns that nobody
//! leads, the leader that it does no more, and the fence when the leader last renewed.

use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::runtime::watcher;
use nm_shared::cluster::leader_lease::{self, LeaderLeaseState};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::telemetry::readiness::Check;

/// After a failure the watch begins anew so soon: a leader that hears nothing stops.
const PAUSE: Duration = Duration::from_secs(1);

/// The lease as the watch told it last.
#[derive(Debug, Clone)]
pub(crate) struct LeaseWatch(watch::Receiver<Seen>);

#[derive(Debug)]
enum Seen {
    Nothing,
    Lease(Option<Box<Lease>>),
}

impl LeaseWatch {
    /// Begins to watch, and keeps the check of whether it would hear of a change. The watch ends once nobody looks at it
    /// any more.
    pub(crate) fn start(leases: Api<Lease>, check: Check) -> Self {
        let (sender, receiver) = watch::channel(Seen::Nothing);
        tokio::spawn(async move {
            tokio::select! {
                () = listen(leases, &sender, &check) => {}
                () = sender.closed() => {}
            }
        });
        Self(receiver)
    }

    /// Who leads; none while that is not known.
    pub(crate) fn tenure(&mut self) -> Option<LeaderLeaseState> {
        match &*self.0.borrow_and_update() {
            Seen::Nothing => None,
            Seen::Lease(lease) => Some(leader_lease::state(lease.as_deref(), Timestamp::now())),
        }
    }

    /// Resolves if the watch has broken off.
    pub(crate) async fn broke_off(mut self) {
        while self.0.changed().await.is_ok() {}
    }

    /// Waits for news since the last look.
    pub(crate) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // The task lives as long as this, so it broke off, or was ended with its runtime, as this will be.
            std::future::pending::<()>().await;
        }
    }
}

async fn listen(leases: Api<Lease>, sender: &watch::Sender<Seen>, check: &Check) {
    let mut states = watcher::watch_object(leases, leader_lease::NAME).boxed();
    let mut interrupted = false;
    while let Some(state) = states.next().await {
        match state {
            Ok(lease) => {
                if std::mem::take(&mut interrupted) {
                    info!("watch on the leader's lease goes on");
                }
                check.pass();
                sender.send_replace(Seen::Lease(lease.map(Box::new)));
            }
            Err(error) => {
                if !std::mem::replace(&mut interrupted, true) {
                    warn!(%error, "watch on the leader's lease interrupted; it will be resumed");
                }
                check.fail("the leader's lease cannot be watched");
                tokio::time::sleep(PAUSE).await;
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
    async fn a_watch_that_panics_is_told_and_its_check_fails() {
        let server = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
            assert!(request.uri().path().is_empty(), "whoever asks panics");
            Ok::<_, Infallible>(http::Response::new(Body::empty()))
        });
        let readiness = Readiness::default();
        let leases = Api::namespaced(Client::new(server, "default"), "default");
        LeaseWatch::start(leases, readiness.check("leader-election")).broke_off().await;
        let report = readiness.report().unwrap_err();
        assert!(report.starts_with("[-]leader-election failed: "), "{report}");
    }
}
