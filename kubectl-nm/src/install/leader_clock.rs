//! The lease by which a reconciler leads, whatever the clocks say.
//!
//! Its times are those of the leader's clock. Where ours says that it has run out, or will be renewed in the future, the
//! clocks may only differ: then whoever leads is seen to renew it, as every leader does after a third of its duration.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use nm_shared::cluster::leader_lease::{self, LeaderLeaseState};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::client::cluster::Cluster;
use crate::client::objects;
use crate::error::Error;

/// How often it is looked whether a lease is renewed.
const LOOK: Duration = Duration::from_secs(1);

/// For how long at most.
const LONGEST: Duration = Duration::from_secs(60);

/// By how much clocks differ that nobody takes for different.
const NEGLIGIBLE: SignedDuration = SignedDuration::from_secs(2);

/// A lease as it was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Observed {
    /// The lease, if there is one.
    pub(crate) lease: Option<Lease>,
    /// Whether it was seen to be renewed; nothing where its times leave no doubt, so that nobody waited for it.
    pub(crate) renewed: Option<bool>,
    /// By how much our clock was ahead of the leader's when it was seen to be renewed.
    ahead: Option<SignedDuration>,
}

impl Observed {
    /// Who leads.
    pub(crate) fn tenure(&self, now: Timestamp) -> LeaderLeaseState {
        match self.renewed {
            None => leader_lease::state(self.lease.as_ref(), now),
            Some(false) => LeaderLeaseState::Expired,
            // As it is by the leader's clock.
            Some(true) => {
                leader_lease::state(self.lease.as_ref(), renewed(self.lease.as_ref()).unwrap_or(now))
            }
        }
    }

    /// A lease that was seen to be renewed at this time of our clock.
    pub(crate) fn renewed_at(lease: Option<Lease>, seen: Timestamp) -> Self {
        let ahead = renewed(lease.as_ref()).map(|renewed| seen.duration_since(renewed));
        Self { lease, renewed: Some(true), ahead }
    }

    /// By how much our clock and that of the leader differ, if anybody would take them for different.
    pub(crate) fn skew(&self) -> Option<SignedDuration> {
        self.ahead.map(SignedDuration::abs).filter(|skew| *skew > NEGLIGIBLE)
    }
}

impl From<Option<Lease>> for Observed {
    fn from(lease: Option<Lease>) -> Self {
        Self { lease, ..Self::default() }
    }
}

/// Looks at the lease of that namespace and name, and for some seconds whether it is renewed if it is in doubt.
///
/// # Errors
///
/// When the server cannot be asked or refuses.
pub(crate) async fn observe(cluster: &Cluster, wanted: &Value, now: Timestamp) -> Result<Observed, Error> {
    let begun = Instant::now();
    let first = look(cluster, wanted).await?;
    let Some(patience) = doubt(first.as_ref(), now) else { return Ok(first.into()) };
    while begun.elapsed() < patience {
        sleep(LOOK).await;
        // A look that fails is made up for by the next.
        let Ok(next) = look(cluster, wanted).await else { continue };
        if renewed(next.as_ref()) != renewed(first.as_ref()) {
            let passed = SignedDuration::try_from(begun.elapsed()).unwrap_or_default();
            return Ok(Observed::renewed_at(next, now + passed));
        }
    }
    Ok(Observed { lease: first, renewed: Some(false), ahead: None })
}

async fn look(cluster: &Cluster, wanted: &Value) -> Result<Option<Lease>, Error> {
    let found = objects::get(cluster, wanted).await?;
    let parse = |found| serde_json::from_value(found).map_err(|error| Error::Unshowable(error.to_string()));
    found.map(parse).transpose()
}

/// How long it takes to be sure, if a lease that somebody holds looks as if nobody renewed it.
fn doubt(lease: Option<&Lease>, now: Timestamp) -> Option<Duration> {
    let spec = lease?.spec.as_ref()?;
    let lasts = SignedDuration::from_secs(spec.lease_duration_seconds?.into());
    let age = now.duration_since(renewed(lease)?);
    let is_held = spec.holder_identity.as_ref().is_some_and(|holder| !holder.is_empty());
    let is_clear = age >= -NEGLIGIBLE && age < lasts;
    // Half of it: a leader that is late is none that is gone.
    (is_held && !is_clear).then(|| Duration::try_from(lasts / 2).unwrap_or(LONGEST).min(LONGEST))
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
    fn clocks_differ_by_what_they_did_when_the_lease_was_seen_renewed() {
        for (seen, skew) in [(0, None), (2, None), (3, Some(3)), (-2, None), (-90, Some(90))] {
            let observed = Observed::renewed_at(Some(lease(15)), after(seen));
            assert_eq!(observed.skew(), skew.map(SignedDuration::from_secs), "{seen}");
        }
        assert_eq!(Observed::from(Some(lease(15))).skew(), None);
    }

    #[test]
    fn a_long_lease_is_given_the_time_of_its_renewals() {
        for (lasts, patience) in [(15, 7_500), (30, 15_000), (60, 30_000), (137, 60_000), (600, 60_000)] {
            let doubt = doubt(Some(&lease(lasts)), after(1_000));
            assert_eq!(doubt, Some(Duration::from_millis(patience)), "{lasts}");
        }
        assert_eq!(doubt(Some(&lease(15)), after(3)), None);
    }
}
