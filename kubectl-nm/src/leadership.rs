//! Whether a reconciler is at work, as far as the caller may see.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use nm_shared::leader_lease::{NAME, Tenure, tenure};
use serde_json::json;

use crate::cluster::Cluster;
use crate::installed::Installed;
use crate::{manifests, objects};

/// Who works on the maintenances of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leadership {
    /// Somebody does.
    Held,
    /// Somebody did, until then.
    Lapsed(Option<Timestamp>),
    /// Nobody can tell: the lease is not for the caller to see, or there is none, as where one reconciler runs alone.
    Unknown,
}

/// Looks at the lease. Whoever may not is none the wiser, which is no error.
pub(crate) async fn find(cluster: &Cluster, now: Timestamp) -> Leadership {
    let installed = Installed::find(cluster, None).await.ok();
    if installed.as_ref().is_some_and(|found| found.deployment.is_none() && found.other_operator.is_some()) {
        return Leadership::Unknown;
    }
    let namespace = installed.map_or_else(|| manifests::NAMESPACE.to_owned(), |found| found.namespace);
    let wanted = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": NAME, "namespace": namespace}});
    let found = objects::get(cluster, &wanted).await.ok().flatten();
    of(found.and_then(|found| serde_json::from_value(found).ok()).as_ref(), now)
}

fn of(lease: Option<&Lease>, now: Timestamp) -> Leadership {
    let Some(lease) = lease else { return Leadership::Unknown };
    if let Tenure::Held { .. } = tenure(Some(lease), now) {
        return Leadership::Held;
    }
    let until = lease.spec.as_ref().and_then(|spec| {
        let lasts = SignedDuration::from_secs(spec.lease_duration_seconds?.into());
        spec.renew_time.as_ref()?.0.checked_add(lasts).ok()
    });
    Leadership::Lapsed(until)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::tests::{cluster, failure};

    fn lease(spec: &serde_json::Value) -> Lease {
        serde_json::from_value(json!({"metadata": {"name": NAME}, "spec": spec})).unwrap()
    }

    #[test]
    fn a_lease_tells_until_when_somebody_led() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let renewed =
            |at: &str| lease(&json!({"holderIdentity": "a", "renewTime": at, "leaseDurationSeconds": 15}));
        assert_eq!(of(Some(&renewed("2026-01-02T03:04:00.000000Z")), now), Leadership::Held);
        let until = "2026-01-02T03:03:15Z".parse().unwrap();
        assert_eq!(of(Some(&renewed("2026-01-02T03:03:00.000000Z")), now), Leadership::Lapsed(Some(until)));
        assert_eq!(of(Some(&lease(&json!({}))), now), Leadership::Lapsed(None));
        assert_eq!(of(None, now), Leadership::Unknown);
    }

    #[tokio::test]
    async fn who_may_not_see_the_lease_is_none_the_wiser() {
        let (cluster, _) = cluster(|_, _| failure(403, "Forbidden", "x"));
        assert_eq!(find(&cluster, Timestamp::UNIX_EPOCH).await, Leadership::Unknown);
    }
}
