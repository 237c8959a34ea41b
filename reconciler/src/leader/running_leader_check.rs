//! The check of a reconciler without leader election: it starts only if no other reconciler leads, because both would work
//! on the same nodes.
//!
//! It checks all namespaces or, without that permission, its own. `--leader-elect=false` skips the check, in a pod too,
//! where a rollout would otherwise wait for the lease of the replica that it replaces.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client};
use nm_shared::cluster::leader_lease::{self, Leader};
use tokio::time::sleep;
use tracing::warn;

/// How long to wait after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
#[error(
    "another nm-reconciler is running: lease {}/{} is held by {} until {}. Two nm-reconcilers would work on the \
     same nodes. Scale the other one to zero replicas first, join its leader election with --leader-elect \
     --namespace {}, or run alongside it anyway with --leader-elect=false",
    .0.namespace, leader_lease::NAME, .0.holder, .0.until, .0.namespace
)]
pub(crate) struct AnotherLeads(Leader);

/// Waits until it is known whether a reconciler leads in any namespace. Without permission to list the leases of all
/// namespaces, reads that of `namespace`; without permission for that, logs a warning and succeeds.
pub(crate) async fn check_no_leader(client: &Client, namespace: &str) -> Result<(), AnotherLeads> {
    let mut warned = false;
    loop {
        match leases(client, namespace).await {
            Ok(leases) => {
                let leader = leader_lease::leader(&leases, Timestamp::now());
                return leader.map_or(Ok(()), |leader| Err(AnotherLeads(leader)));
            }
            Err(kube::Error::Api(status)) if status.code == 403 => {
                warn!("cannot check whether another nm-reconciler is running: {}", status.message);
                return Ok(());
            }
            Err(error) => {
                if !std::mem::replace(&mut warned, true) {
                    warn!(%error, "cannot check whether another nm-reconciler is running; retrying");
                }
                sleep(RETRY_INTERVAL).await;
            }
        }
    }
}

async fn leases(client: &Client, namespace: &str) -> kube::Result<Vec<Lease>> {
    let named = ListParams::default().fields(&format!("metadata.name={}", leader_lease::NAME));
    match Api::<Lease>::all(client.clone()).list(&named).await {
        Err(kube::Error::Api(status)) if status.code == 403 => {
            let own = Api::<Lease>::namespaced(client.clone(), namespace);
            Ok(own.get_opt(leader_lease::NAME).await?.into_iter().collect())
        }
        listed => listed.map(|leases| leases.items),
    }
}
