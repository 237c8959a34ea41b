//! The lease by which a reconciler leads, whatever the clocks say.
//!
//! Its times are those of the leader's clock. Where ours says that it has run out, or will be renewed in the future, the
//! clocks may only differ: then whoever leads is seen to renew it, as every leader does after a third of its duration.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use nm_shared::leader_lease::{Tenure, tenure};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::cluster::Cluster;
use crate::error::Error;
use crate::objects;

/// How often it is looked whether a lease is renewed.
const LOOK: Duration = Duration::from_secs(1);

/// For how long at most.
const LONGEST: Duration = Duration::from_secs(15);

/// By how much clocks differ that nobody takes for different.
const NEGLIGIBLE: SignedDuration = SignedDuration::from_secs(2);

/// A lease as it was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Observed {
    /// The lease, if there is one.
    pub(crate) lease: Option<Lease>,
    /// Whether it was seen to be renewed; nothing where its times leave no doubt, so that nobody waited for it.
    pub(crate) renewed: Option<bool>,
}

impl Observed {
    /// Who leads.
    pub(crate) fn tenure(&self, now: Timestamp) -> Tenure {
        match self.renewed {
            None => tenure(self.lease.as_ref(), now),
            Some(false) => Tenure::Lapsed,
            // As it is by the leader's clock.
            Some(true) => tenure(self.lease.as_ref(), renewed(self.lease.as_ref()).unwrap_or(now)),
        }
    }

    /// By how much our clock and that of the leader differ, if that is more than nothing.
    pub(crate) fn skew(&self, now: Timestamp) -> Option<SignedDuration> {
        let ours_is_ahead = now.duration_since(renewed(self.lease.as_ref())?);
        (self.renewed == Some(true)).then(|| ours_is_ahead.abs())
    }
}

impl From<Option<Lease>> for Observed {
    fn from(lease: Option<Lease>) -> Self {
        Self { lease, renewed: None }
    }
}

/// Looks at the lease of that namespace and name, and for some seconds whether it is renewed if it is in doubt.
///
/// # Errors
///
/// When the server cannot be asked or refuses.
pub(crate) async fn observe(cluster: &Cluster, wanted: &Value, now: Timestamp) -> Result<Observed, Error> {
    let first = look(cluster, wanted).await?;
    let Some(patience) = doubt(first.as_ref(), now) else { return Ok(first.into()) };
    let begun = Instant::now();
    while begun.elapsed() < patience {
        sleep(LOOK).await;
        // A look that fails is made up for by the next.
        let Ok(next) = look(cluster, wanted).await else { continue };
        if renewed(next.as_ref()) != renewed(first.as_ref()) {
            return Ok(Observed { lease: next, renewed: Some(true) });
        }
    }
    Ok(Observed { lease: first, renewed: Some(false) })
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
