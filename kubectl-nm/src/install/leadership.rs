//! Whether a reconciler is at work, as far as the caller may see. One that leads renews its lease; one that runs without
//! leader election shows only by its work: by the statuses that it writes and the leases of nodes that it renews.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use nm_shared::NodeMaintenance;
use nm_shared::api::names::LEASE_NAMESPACE;
use nm_shared::cluster::leader_lease::{LeaderLeaseState, NAME};
use nm_shared::cluster::node_lease;
use serde_json::json;

use crate::client::cluster::Cluster;
use crate::client::objects;
use crate::error::Error;
use crate::install::installed::Installed;
use crate::install::leader_clock::{self, Observed};
use crate::install::manifests;

/// How long after its last renewal a leader gives its lease back at the latest: it renews every third of 15 s.
const RENEWED_EVERY: SignedDuration = SignedDuration::from_secs(5);

/// How old a sign of work may be where no lease says when the last leader was gone.
const FRESH: SignedDuration = SignedDuration::from_secs(60);

/// Who works on the maintenances of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leadership {
    /// Somebody leads.
    Held,
    /// Nobody leads, but at that time, when the last leader was gone, somebody was at work.
    Unelected(Timestamp),
    /// Somebody led until then, and nobody was seen at work since.
    Lapsed(Timestamp),
    /// Nobody can tell: the lease is not for the caller to see, there is none, or nobody holds it, as where one reconciler
    /// runs alone.
    Unknown,
}

/// Looks at the lease and, if nobody leads, at what shows that somebody is at work all the same. Whoever may not see that is
/// none the wiser, which is no error.
pub(crate) async fn find(cluster: &Cluster, maintenances: &[NodeMaintenance], now: Timestamp) -> Leadership {
    let installed = Installed::find(cluster, None).await.ok();
    if installed.as_ref().is_some_and(|found| found.deployment.is_none() && found.other_operator.is_some()) {
        return Leadership::Unknown;
    }
    let is_installed = installed.as_ref().is_some_and(|found| found.deployment.is_some());
    let namespace = installed.map_or_else(|| manifests::NAMESPACE.to_owned(), |found| found.namespace);
    let wanted = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": NAME, "namespace": namespace}});
    let lease = leader_clock::observe(cluster, &wanted, now).await.unwrap_or_default();
    let seen = last_seen(maintenances, &[]);
    match of(&lease, is_installed, seen, now) {
        Leadership::Lapsed(_) => {
            let leases = node_leases(cluster).await.unwrap_or_default();
            of(&lease, is_installed, last_seen(maintenances, &leases), now)
        }
        leadership => leadership,
    }
}

/// The leases on nodes.
///
/// # Errors
///
/// When the server cannot be asked or refuses.
pub(crate) async fn node_leases(cluster: &Cluster) -> Result<Vec<Lease>, Error> {
    let kind = ("coordination.k8s.io/v1", "Lease");
    let found = objects::list(cluster, kind, Some(LEASE_NAMESPACE), &ListParams::default()).await?;
    Ok(found.into_iter().filter_map(|lease| serde_json::from_value(lease).ok()).collect())
}

/// When a reconciler was last at work, as maintenances and the leases on their nodes show: it writes a status for each
/// change, and renews a node's lease for as long as the node is in maintenance.
pub(crate) fn last_seen<'a>(
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

/// Who works, by the lease and by when a reconciler was last at work. `is_installed` is whether there is a Deployment, whose
/// reconcilers work only while they lead.
pub(crate) fn of(
    observed: &Observed,
    is_installed: bool,
    last_seen: Option<Timestamp>,
    now: Timestamp,
) -> Leadership {
    let held = observed.tenure(now);
    if let LeaderLeaseState::Held { .. } = held {
        return Leadership::Held;
    }
    let ended = observed.lease.as_ref().and_then(Ended::of);
    let working = last_seen.filter(|seen| match &ended {
        // Statuses tell time in whole seconds.
        Some(ended) => seen.as_second() > ended.certainly.as_second(),
        None => now.duration_since(*seen) < FRESH,
    });
    match (working, ended) {
        (Some(seen), _) => Leadership::Unelected(seen),
        (None, Some(ended)) if held == LeaderLeaseState::Expired || is_installed => {
            Leadership::Lapsed(ended.at.min(now))
        }
        (None, _) => Leadership::Unknown,
    }
}

/// When the last leader was gone.
struct Ended {
    /// When its lease ran out or was given back.
    at: Timestamp,
    /// From when on nothing can be its work any more.
    certainly: Timestamp,
}

impl Ended {
    fn of(lease: &Lease) -> Option<Self> {
        let spec = lease.spec.as_ref();
        let ran_out = spec.and_then(|spec| {
            let lasts = SignedDuration::from_secs(spec.lease_duration_seconds?.into());
            spec.renew_time.as_ref()?.0.checked_add(lasts).ok()
        });
        let managers = lease.metadata.managed_fields.iter().flatten();
        let written = managers.filter_map(|manager| manager.time.as_ref()).map(|at| at.0).max();
        match (ran_out, written) {
            (Some(at), written) => {
                Some(Self { at, certainly: written.map_or(at, |written| written.max(at)) })
            }
            // The patch that gives a lease back leaves no time of its own.
            (None, Some(at)) => Some(Self { at, certainly: at.checked_add(RENEWED_EVERY).unwrap_or(at) }),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
#[path = "leadership_tests.rs"]
mod tests;
