//! Whether a reconciler is active, as far as the user's permissions show. A leader renews its lease. A reconciler without
//! leader election shows only by its writes: the statuses of maintenances and the leases of nodes.

use std::time::Duration;

use futures::stream::{self, Stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use nm_core::client::cluster::Cluster;
use nm_core::client::objects;
use nm_core::error::Error;
use nm_core::maintenance::{Leadership, Reconcilers};
use nm_shared::NodeMaintenance;
use nm_shared::api::names::LEASE_NAMESPACE;
use nm_shared::cluster::leader_lease::{LeaderLeaseState, NAME};
use nm_shared::cluster::node_lease;
use serde_json::json;
use tokio::time::sleep;

use crate::install::installation::Installation;
use crate::install::lease_observation::{self, LeaseObservation};
use crate::install::manifests;

/// How often a leader renews its lease: every third of 15 s. It releases the lease within this time after a renewal.
const RENEWAL_INTERVAL: SignedDuration = SignedDuration::from_secs(5);

/// How old a write may be to count as activity, if no lease shows when the last leader ended.
const ACTIVITY_TIMEOUT: SignedDuration = SignedDuration::from_secs(60);

/// How often a command that waits looks again.
const INTERVAL: Duration = Duration::from_secs(60);

/// Reads the lease and, if there is no leader, looks for writes of a reconciler without leader election. Missing permissions
/// make the result unknown, and are not an error.
pub(crate) async fn find(cluster: &Cluster, maintenances: &[NodeMaintenance], now: Timestamp) -> Reconcilers {
    let found = Installation::find(cluster, None).await.ok();
    if found.as_ref().is_some_and(|found| found.deployment.is_none() && found.other_operator.is_some()) {
        return Reconcilers::default();
    }
    let is_installed = found.as_ref().is_some_and(|found| found.deployment.is_some());
    let namespace = found.map_or_else(|| manifests::NAMESPACE.to_owned(), |found| found.namespace);
    let wanted = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": NAME, "namespace": &namespace}});
    let lease = lease_observation::observe(cluster, &wanted, now).await.unwrap_or_default();
    let active = last_write(maintenances, &[]);
    let leadership = match of(&lease, is_installed, active, now) {
        Leadership::Lapsed(_) => {
            let leases = node_leases(cluster).await.unwrap_or_default();
            of(&lease, is_installed, last_write(maintenances, &leases), now)
        }
        leadership => leadership,
    };
    Reconcilers { leadership, namespace: is_installed.then_some(namespace) }
}

/// What [`find`] finds, now and again from time to time: the leader may die while a command waits.
pub(crate) fn follow(cluster: &Cluster) -> impl Stream<Item = Reconcilers> {
    stream::unfold(true, async |is_first| {
        if !is_first {
            sleep(INTERVAL).await;
        }
        let all = cluster.maintenances().await.unwrap_or_default();
        Some((find(cluster, &all, Timestamp::now()).await, false))
    })
}

pub(crate) async fn node_leases(cluster: &Cluster) -> Result<Vec<Lease>, Error> {
    let kind = ("coordination.k8s.io/v1", "Lease");
    let found = objects::list(cluster, kind, Some(LEASE_NAMESPACE), &ListParams::default()).await?;
    Ok(found.into_iter().filter_map(|lease| serde_json::from_value(lease).ok()).collect())
}

/// The last known write of a reconciler: it writes the status of a maintenance on every change, and renews the lease of a
/// node during its maintenance.
pub(crate) fn last_write<'a>(
    maintenances: impl IntoIterator<Item = &'a NodeMaintenance>,
    node_leases: &[Lease],
) -> Option<Timestamp> {
    let statuses = maintenances.into_iter().filter_map(|maintenance| maintenance.status.as_ref());
    let written = statuses.flat_map(|status| {
        let changed = status.conditions.iter().map(|condition| condition.last_transition_time.0);
        changed.chain(status.last_update.as_ref().map(|at| at.0))
    });
    let ours = node_leases.iter().filter(|lease| node_lease::is_ours(lease));
    let renewed = ours.filter_map(|lease| Some(lease.spec.as_ref()?.renew_time.as_ref()?.0));
    written.chain(renewed).max()
}

/// Which kind of reconciler is active, given the lease and the last write. `is_installed`: whether there is a
/// Deployment, whose reconcilers are active only while they lead.
pub(crate) fn of(
    observed: &LeaseObservation,
    is_installed: bool,
    last_write: Option<Timestamp>,
    now: Timestamp,
) -> Leadership {
    let state = observed.state(now);
    if let LeaderLeaseState::Held { .. } = state {
        return Leadership::Held;
    }
    let ended = observed.lease.as_ref().and_then(EndOfTerm::of);
    let unelected = last_write.filter(|written| match &ended {
        // Times in statuses are whole seconds.
        Some(ended) => written.as_second() > ended.latest_write.as_second(),
        None => now.duration_since(*written) < ACTIVITY_TIMEOUT,
    });
    match (unelected, ended) {
        (Some(written), _) => Leadership::Unelected(written),
        (None, Some(ended)) if state == LeaderLeaseState::Expired || is_installed => {
            Leadership::Lapsed(ended.at.min(now))
        }
        (None, _) => Leadership::Unknown,
    }
}

struct EndOfTerm {
    /// When its lease expired or was released.
    at: Timestamp,
    /// Later writes are not the last leader's.
    latest_write: Timestamp,
}

impl EndOfTerm {
    fn of(lease: &Lease) -> Option<Self> {
        let spec = lease.spec.as_ref();
        let expired = spec.and_then(|spec| {
            let duration = SignedDuration::from_secs(spec.lease_duration_seconds?.into());
            spec.renew_time.as_ref()?.0.checked_add(duration).ok()
        });
        let managers = lease.metadata.managed_fields.iter().flatten();
        let written = managers.filter_map(|manager| manager.time.as_ref()).map(|at| at.0).max();
        match (expired, written) {
            (Some(at), written) => {
                Some(Self { at, latest_write: written.map_or(at, |written| written.max(at)) })
            }
            // The patch that releases a lease is not recorded with a time of its own.
            (None, Some(at)) => {
                Some(Self { at, latest_write: at.checked_add(RENEWAL_INTERVAL).unwrap_or(at) })
            }
            (None, None) => None,
        }
    }
}

#[cfg(test)]
#[path = "leadership_tests.rs"]
mod tests;
