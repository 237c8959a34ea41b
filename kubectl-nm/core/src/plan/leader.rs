//! Whether anything serves maintenances, for what is said before one begins.
//!
//! In most clusters that is one request: the lease of the leader. Its times come from the leader's clock, which may differ
//! from the local one, so the times are stated and not only the conclusion.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use nm_shared::cluster::leader_lease::{self, LeaderLeaseState};
use serde::Serialize;

use crate::client::cluster::Cluster;
use crate::client::reconciler_deployment::{LABEL_SELECTOR, OTHER_OPERATOR};
use crate::error::Error;
use crate::plan::unread::Unread;

const LEASES: &str = "leases.coordination.k8s.io";
const DEPLOYMENTS: &str = "deployments.apps";

/// Why no reconciler seems to lead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum LeaderGap {
    /// The last leader has not renewed its lease in time.
    Lapsed {
        /// When it last did, by its clock.
        renewed: Timestamp,
        /// For how many seconds the lease is valid after that.
        valid_seconds: i32,
    },
    /// The last leader has released its lease.
    Released,
    /// Nobody has ever led, and no pod of this Deployment is ready.
    NotReady {
        /// Its namespace and name.
        deployment: String,
    },
    /// There is neither a lease nor a Deployment, nor the Deployment of the medik8s operator.
    NotInstalled,
}

/// What shows whether a reconciler leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// One leads, or something else serves maintenances.
    Served,
    /// None seems to lead.
    Gap(LeaderGap),
    /// The Deployments decide.
    Undecided,
}

/// Reads whether a reconciler leads: the gap, if there is one.
///
/// # Errors
///
/// What is not known, and why.
pub async fn gap(cluster: &Cluster, now: Timestamp) -> Result<Option<LeaderGap>, Unread> {
    const WHAT: &str = "whether a reconciler leads";
    let unread = |error: Error| Unread::failed(WHAT, &error);
    let ours = ListParams::default().fields(&format!("metadata.name={}", leader_lease::NAME));
    let leases: Vec<Lease> =
        cluster.list(&Api::all(cluster.client()), LEASES, &ours).await.map_err(unread)?;
    if let Evidence::Gap(gap) = match by_leases(&leases, now) {
        Evidence::Undecided => {
            let of = async |which: ListParams| {
                cluster.list(&Api::<Deployment>::all(cluster.client()), DEPLOYMENTS, &which).await
            };
            let labelled = of(ListParams::default().labels(LABEL_SELECTOR)).await.map_err(unread)?;
            if labelled.is_empty() {
                // The medik8s operator has other labels, and by OLM nm-reconciler has too.
                by_all_deployments(&of(ListParams::default()).await.map_err(unread)?, !leases.is_empty())
            } else {
                by_deployments(&labelled, !leases.is_empty())
            }
        }
        decided => decided,
    } {
        return Ok(Some(gap));
    }
    Ok(None)
}

fn by_leases(leases: &[Lease], now: Timestamp) -> Evidence {
    if leader_lease::leader(leases, now).is_some() {
        return Evidence::Served;
    }
    let lapsed = leases.iter().filter_map(|lease| {
        let spec = lease.spec.as_ref()?;
        let holder = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty());
        let is_lapsed = leader_lease::state(Some(lease), now) == LeaderLeaseState::Expired;
        let renewed = spec.renew_time.as_ref().filter(|_| is_lapsed && holder.is_some())?.0;
        Some((renewed, spec.lease_duration_seconds?))
    });
    match lapsed.max() {
        Some((renewed, valid_seconds)) => Evidence::Gap(LeaderGap::Lapsed { renewed, valid_seconds }),
        None => Evidence::Undecided,
    }
}

/// `has_lease`: whether somebody has led before.
fn by_deployments(ours: &[Deployment], has_lease: bool) -> Evidence {
    let is_ready = |deployment: &&Deployment| {
        deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0) > 0
    };
    match ours {
        [] => Evidence::Undecided,
        // A single replica may run without leader election.
        [..] if !has_lease && ours.iter().any(|deployment| is_ready(&deployment)) => Evidence::Served,
        [..] if has_lease => Evidence::Gap(LeaderGap::Released),
        [first, ..] => Evidence::Gap(LeaderGap::NotReady {
            deployment: format!("{}/{}", first.namespace().unwrap_or_default(), first.name_any()),
        }),
    }
}

fn by_all_deployments(all: &[Deployment], has_lease: bool) -> Evidence {
    let is_other = |deployment: &Deployment| {
        let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
        deployment.name_any().starts_with(OTHER_OPERATOR) && replicas != Some(0)
    };
    if all.iter().any(is_other) {
        return Evidence::Served;
    }
    let by_olm: Vec<Deployment> =
        all.iter().filter(|deployment| deployment.name_any() == leader_lease::NAME).cloned().collect();
    match by_deployments(&by_olm, has_lease) {
        Evidence::Undecided if !has_lease => Evidence::Gap(LeaderGap::NotInstalled),
        // A released lease may be left over, and whoever leads without one may run anywhere.
        evidence => evidence,
    }
}

impl LeaderGap {
    /// What shows that nobody leads.
    pub fn words(&self) -> String {
        match self {
            Self::Lapsed { renewed, valid_seconds } => {
                let until = renewed.saturating_add(SignedDuration::from_secs((*valid_seconds).into()));
                let until = until.unwrap_or(*renewed);
                format!("no nm-reconciler leads: by this computer's clock, its lease expired at {until:.0}")
            }
            Self::Released => String::from("no nm-reconciler leads: the last one has released its lease"),
            Self::NotReady { deployment } => {
                format!("no nm-reconciler leads: no pod of deployment {deployment} is ready")
            }
            Self::NotInstalled => String::from(
                "nothing seems to serve maintenances: there is neither a lease nor a Deployment of nm-reconciler",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::fake_server::{cluster, failure};

    fn now() -> Timestamp {
        "2026-01-02T03:04:05Z".parse().unwrap()
    }

    fn items(items: &Value) -> (u16, Value) {
        (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}))
    }

    fn lease(holder: &Value, renewed: &str) -> Value {
        let renewed = format!("2026-01-02T{renewed}.000000Z");
        json!([{"metadata": {"namespace": "nm", "name": "nm-reconciler"},
            "spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}}])
    }

    fn deployment(name: &str, ready: i32) -> Value {
        json!([{"metadata": {"namespace": "nm", "name": name},
            "spec": {"selector": {}, "template": {}}, "status": {"readyReplicas": ready}}])
    }

    /// What is found, and how many requests that took. `labelled`: whether the Deployment has the labels of an installation.
    async fn found(leases: Value, deployments: Value, labelled: bool) -> (Option<LeaderGap>, usize) {
        let asked = std::sync::Mutex::new(0);
        let (cluster, requests) = cluster(move |_, path| {
            if path.ends_with("/leases") {
                return items(&leases);
            }
            *asked.lock().unwrap() += 1;
            let is_filtered = *asked.lock().unwrap() == 1;
            let none = json!([]);
            items(if is_filtered && !labelled { &none } else { &deployments })
        });
        let gap = gap(&cluster, now()).await.unwrap();
        let requests = requests.lock().unwrap().len();
        (gap, requests)
    }

    #[tokio::test]
    async fn a_leader_is_found_with_one_request() {
        assert_eq!(found(lease(&json!("a"), "03:04:00"), json!([]), true).await, (None, 1));
        let lapsed =
            LeaderGap::Lapsed { renewed: "2026-01-02T03:03:00Z".parse().unwrap(), valid_seconds: 15 };
        assert!(lapsed.words().ends_with("its lease expired at 2026-01-02T03:03:15Z"), "{}", lapsed.words());
        assert_eq!(found(lease(&json!("a"), "03:03:00"), json!([]), true).await, (Some(lapsed), 1));
    }

    #[tokio::test]
    async fn without_a_holder_the_deployments_decide() {
        let (ours, other) = ("nm-reconciler", "node-maintenance-operator-controller-manager");
        let released = || lease(&Value::Null, "03:00:00");
        let not_ready = LeaderGap::NotReady { deployment: "nm/nm-reconciler".into() };
        for (leases, deployments, labelled, expected) in [
            (released(), deployment(ours, 1), true, Some(LeaderGap::Released)),
            (released(), json!([]), true, None),
            (json!([]), deployment(ours, 0), true, Some(not_ready.clone())),
            (json!([]), deployment(ours, 1), true, None),
            (json!([]), deployment(ours, 0), false, Some(not_ready)),
            (json!([]), deployment(other, 1), false, None),
            (released(), deployment(other, 1), false, None),
            (json!([]), json!([]), false, Some(LeaderGap::NotInstalled)),
        ] {
            let shown = format!("{leases} {deployments}");
            assert_eq!(found(leases, deployments, labelled).await.0, expected, "{shown}");
        }
    }

    #[tokio::test]
    async fn without_permission_it_is_not_known() {
        let (cluster, _) = cluster(|_, _| failure(403, "Forbidden", "x"));
        let unread = gap(&cluster, now()).await.unwrap_err();
        assert_eq!(
            unread.to_string(),
            "whether a reconciler leads: you may not list leases.coordination.k8s.io"
        );
    }
}
