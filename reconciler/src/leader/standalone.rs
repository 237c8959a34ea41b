//! A reconciler that takes part in no election looks, before it writes anything, whether one leads: both would work on
//! the same nodes.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client};
use nm_shared::cluster::leader_lease::{self, Leader};
use tokio::time::sleep;
use tracing::warn;

/// What failed is tried again so soon.
const PAUSE: Duration = Duration::from_secs(1);

/// Another leads.
#[derive(Debug, thiserror::Error)]
#[error(
    "another nm-reconciler is at work: lease {}/{} is held by {} until {}. Two of them would work on the same nodes: scale \
     that one to no replicas first, take part in its election with --leader-elect --namespace {}, or give \
     --leader-elect=false to run beside it all the same",
    .0.namespace, leader_lease::NAME, .0.holder, .0.until, .0.namespace
)]
pub(crate) struct AnotherLeads(Leader);

/// Waits until it is known whether anybody leads, wherever it is installed. Who may not read the leases of all namespaces
/// reads that of `namespace`; who may not even that is warned, and begins.
pub(crate) async fn refuse_beside_leader(client: &Client, namespace: &str) -> Result<(), AnotherLeads> {
    let mut told = false;
    loop {
        match leases(client, namespace).await {
            Ok(leases) => {
                let leader = leader_lease::leader(&leases, Timestamp::now());
                return leader.map_or(Ok(()), |leader| Err(AnotherLeads(leader)));
            }
            Err(kube::Error::Api(status)) if status.code == 403 => {
                warn!(
                    "cannot find out whether another nm-reconciler is at work, which would work on the same nodes: {}",
                    status.message
                );
                return Ok(());
            }
            Err(error) => {
                if !std::mem::replace(&mut told, true) {
                    warn!(
                        %error,
                        "cannot ask whether another nm-reconciler is at work; nothing is done before that is known"
                    );
                }
                sleep(PAUSE).await;
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
        answered => answered.map(|leases| leases.items),
    }
}
