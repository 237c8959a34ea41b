//! Who leads, by the lease of the leader election, as far as the user's permissions show it.
//!
//! The times of the lease come from the leader's clock. If the local clock says that the lease has expired, or that it was
//! renewed in the future, the clocks may just differ. Then the lease is watched for a renewal: every leader renews it after
//! a third of its duration, and replicas take it if nobody does.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use nm_core::client::cluster::Cluster;
use nm_core::client::objects;
use nm_core::error::Error;
use nm_core::leader::{Leadership, Reconcilers};
use nm_shared::cluster::leader_lease::{self, LeaderLeaseState, NAME};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::install::installation::Installation;
use crate::install::manifests;

/// How often the lease is read while a renewal is awaited.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The longest wait for a renewal.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Clock difference that is not reported.
const NEGLIGIBLE_SKEW: SignedDuration = SignedDuration::from_secs(2);

/// The lease of the leader election, and who leads by it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LeaderLease {
    pub(crate) lease: Option<Lease>,
    pub(crate) state: LeaderLeaseState,
    /// How far the local clock and the leader's differ, if they do.
    pub(crate) skew: Option<SignedDuration>,
}

impl LeaderLease {
    /// A lease whose times are plausible.
    pub(crate) fn read_at(lease: Option<Lease>, now: Timestamp) -> Self {
        Self { state: leader_lease::state(lease.as_ref(), now), lease, skew: None }
    }

    /// A lease whose renewal was observed at this time of the local clock. It is judged by the leader's clock.
    pub(crate) fn renewed_at(lease: Option<Lease>, now: Timestamp) -> Self {
        let renewed = renewed(lease.as_ref()).unwrap_or(now);
        let skew = now.duration_since(renewed).abs();
        Self { skew: (skew > NEGLIGIBLE_SKEW).then_some(skew), ..Self::read_at(lease, renewed) }
    }

    /// `is_installed`: whether there is a Deployment, whose reconcilers are active only while they lead.
    pub(crate) fn leadership(&self, is_installed: bool, now: Timestamp) -> Leadership {
        match (&self.state, self.lease.as_ref().and_then(end_of_term)) {
            (LeaderLeaseState::Held { .. }, _) => Leadership::Held,
            (state, Some(at)) if *state == LeaderLeaseState::Expired || is_installed => {
                Leadership::Lapsed(at.min(now))
            }
            _ => Leadership::Unknown,
        }
    }
}

/// When a lease expired or was released.
fn end_of_term(lease: &Lease) -> Option<Timestamp> {
    let duration = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    let expired = renewed(Some(lease))
        .zip(duration)
        .and_then(|(renewed, seconds)| renewed.checked_add(SignedDuration::from_secs(seconds.into())).ok());
    let managers = lease.metadata.managed_fields.iter().flatten();
    let written = managers.filter_map(|manager| manager.time.as_ref()).map(|at| at.0).max();
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
    let known = if holder.is_empty() { renewed(Some(lease)) } else { expired };
    known.or(written)
}

/// Reads who leads. Missing permissions make the result unknown, and are not an error.
pub(crate) async fn find(cluster: &Cluster, now: Timestamp) -> Reconcilers {
    let found = Installation::find(cluster, None).await.ok();
    if found.as_ref().is_some_and(|found| found.deployment.is_none() && found.other_operator.is_some()) {
        return Reconcilers::default();
    }
    let is_installed = found.as_ref().is_some_and(|found| found.deployment.is_some());
    let namespace = found.map_or_else(|| manifests::NAMESPACE.to_owned(), |found| found.namespace);
    let lease = observe(cluster, &namespace, now).await.unwrap_or_default();
    Reconcilers {
        leadership: lease.leadership(is_installed, now),
        namespace: is_installed.then_some(namespace),
    }
}

/// Reads the lease. If its times are implausible, waits some seconds for a renewal.
pub(crate) async fn observe(
    cluster: &Cluster,
    namespace: &str,
    now: Timestamp,
) -> Result<LeaderLease, Error> {
    let start = Instant::now();
    let first = read(cluster, namespace).await?;
    let Some(timeout) = renewal_timeout(first.as_ref(), now) else {
        return Ok(LeaderLease::read_at(first, now));
    };
    while start.elapsed() < timeout {
        sleep(POLL_INTERVAL).await;
        // The next read makes up for a failed one.
        let Ok(next) = read(cluster, namespace).await else { continue };
        if renewed(next.as_ref()) != renewed(first.as_ref()) {
            let passed = SignedDuration::try_from(start.elapsed()).unwrap_or_default();
            return Ok(LeaderLease::renewed_at(next, now + passed));
        }
    }
    Ok(LeaderLease { lease: first, state: LeaderLeaseState::Expired, skew: None })
}

async fn read(cluster: &Cluster, namespace: &str) -> Result<Option<Lease>, Error> {
    let wanted = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": NAME, "namespace": namespace}});
    let found = objects::get(cluster, &wanted).await?;
    let parse = |found| serde_json::from_value(found).map_err(|error| Error::Unshowable(error.to_string()));
    found.map(parse).transpose()
}

/// How long to wait for a renewal, if the lease has a holder and its times are implausible.
fn renewal_timeout(lease: Option<&Lease>, now: Timestamp) -> Option<Duration> {
    let spec = lease?.spec.as_ref()?;
    let duration = SignedDuration::from_secs(spec.lease_duration_seconds?.into());
    let age = now.duration_since(renewed(lease)?);
    let is_held = spec.holder_identity.as_ref().is_some_and(|holder| !holder.is_empty());
    let is_plausible = age >= -NEGLIGIBLE_SKEW && age < duration;
    // Half of the duration, more than the third after which leaders renew: a leader may be late.
    (is_held && !is_plausible).then(|| Duration::try_from(duration / 2).unwrap_or(MAX_WAIT).min(MAX_WAIT))
}

fn renewed(lease: Option<&Lease>) -> Option<Timestamp> {
    Some(lease?.spec.as_ref()?.renew_time.as_ref()?.0)
}

#[cfg(test)]
#[path = "leadership_tests.rs"]
mod tests;
