//! The leader election lease, observed independently of clocks.
//!
//! Its times come from the leader's clock. If the local clock says that the lease has expired, or that it was renewed in the
//! future, the clocks may just differ. Then the lease is watched for a renewal: every leader renews it after a third of its
//! duration.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use nm_core::client::cluster::Cluster;
use nm_core::client::objects;
use nm_core::error::Error;
use nm_shared::cluster::leader_lease::{self, LeaderLeaseState};
use serde_json::Value;
use tokio::time::{Instant, sleep};

const POLL_INTERVAL: Duration = Duration::from_secs(1);

const MAX_WAIT: Duration = Duration::from_secs(60);

/// Clock difference that is not reported.
const NEGLIGIBLE_SKEW: SignedDuration = SignedDuration::from_secs(2);

/// A lease and whether its holder renews it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LeaseObservation {
    pub(crate) lease: Option<Lease>,
    /// Whether a renewal was observed; `None` if the times are plausible, so that no renewal was awaited.
    pub(crate) renewed: Option<bool>,
    /// How far the local clock was ahead of the leader's when the renewal was observed.
    ahead: Option<SignedDuration>,
}

impl LeaseObservation {
    pub(crate) fn state(&self, now: Timestamp) -> LeaderLeaseState {
        match self.renewed {
            None => leader_lease::state(self.lease.as_ref(), now),
            Some(false) => LeaderLeaseState::Expired,
            // Judged by the leader's clock.
            Some(true) => {
                leader_lease::state(self.lease.as_ref(), renewed(self.lease.as_ref()).unwrap_or(now))
            }
        }
    }

    /// A lease whose renewal was observed at this time of the local clock.
    pub(crate) fn renewed_at(lease: Option<Lease>, observed: Timestamp) -> Self {
        let ahead = renewed(lease.as_ref()).map(|renewed| observed.duration_since(renewed));
        Self { lease, renewed: Some(true), ahead }
    }

    pub(crate) fn skew(&self) -> Option<SignedDuration> {
        self.ahead.map(SignedDuration::abs).filter(|skew| *skew > NEGLIGIBLE_SKEW)
    }
}

impl From<Option<Lease>> for LeaseObservation {
    fn from(lease: Option<Lease>) -> Self {
        Self { lease, ..Self::default() }
    }
}

/// Reads the lease with this one's namespace and name. If its times are implausible, waits some seconds for a renewal.
pub(crate) async fn observe(
    cluster: &Cluster,
    wanted: &Value,
    now: Timestamp,
) -> Result<LeaseObservation, Error> {
    let start = Instant::now();
    let first = read(cluster, wanted).await?;
    let Some(timeout) = renewal_timeout(first.as_ref(), now) else { return Ok(first.into()) };
    while start.elapsed() < timeout {
        sleep(POLL_INTERVAL).await;
        // The next read makes up for a failed one.
        let Ok(next) = read(cluster, wanted).await else { continue };
        if renewed(next.as_ref()) != renewed(first.as_ref()) {
            let passed = SignedDuration::try_from(start.elapsed()).unwrap_or_default();
            return Ok(LeaseObservation::renewed_at(next, now + passed));
        }
    }
    Ok(LeaseObservation { lease: first, renewed: Some(false), ahead: None })
}

async fn read(cluster: &Cluster, wanted: &Value) -> Result<Option<Lease>, Error> {
    let found = objects::get(cluster, wanted).await?;
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
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(lasts: u32) -> Lease {
        serde_json::from_value(json!({"spec": {"holderIdentity": "a", "leaseDurationSeconds": lasts,
            "renewTime": "2026-01-02T03:04:05.000000Z"}}))
        .unwrap()
    }

    fn after(seconds: i64) -> Timestamp {
        "2026-01-02T03:04:05Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
    }

    #[test]
    fn the_skew_is_the_difference_at_the_renewal() {
        for (seen, skew) in [(0, None), (2, None), (3, Some(3)), (-2, None), (-90, Some(90))] {
            let observed = LeaseObservation::renewed_at(Some(lease(15)), after(seen));
            assert_eq!(observed.skew(), skew.map(SignedDuration::from_secs), "{seen}");
        }
        assert_eq!(LeaseObservation::from(Some(lease(15))).skew(), None);
    }

    #[test]
    fn the_wait_depends_on_the_duration_of_the_lease() {
        for (duration, timeout) in [(15, 7_500), (30, 15_000), (60, 30_000), (137, 60_000), (600, 60_000)] {
            let found = renewal_timeout(Some(&lease(duration)), after(1_000));
            assert_eq!(found, Some(Duration::from_millis(timeout)), "{duration}");
        }
        assert_eq!(renewal_timeout(Some(&lease(15)), after(3)), None);
    }
}
