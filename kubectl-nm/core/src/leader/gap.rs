//! Whether anything serves maintenances.
//!
//! In most clusters that is one request: the lease of the leader. Its times come from the leader's clock, which may differ
//! from the local one, so the times are stated and not only the conclusion.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use nm_shared::cluster::leader_lease::{self, LeaderLeaseState};
use serde::Serialize;
use tokio::time::timeout;

use crate::client::cluster::Cluster;
use crate::client::reconciler_deployment::{LABEL_SELECTOR, OTHER_OPERATOR};
use crate::client::unread::Unread;
use crate::error::Error;
use crate::leader::reconcilers::Leadership;
use crate::maintenance::status;
use crate::terminal::text::{Line, Style};

const LEASES: &str = "leases.coordination.k8s.io";
const DEPLOYMENTS: &str = "deployments.apps";

/// Statuses that wait for something are written once a minute.
const AT_WORK: SignedDuration = SignedDuration::from_mins(2);

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
    Released {
        /// When it did, by its clock.
        at: Timestamp,
    },
    /// Nobody has ever led, and no pod of this Deployment is ready.
    NotReady {
        /// Its namespace and name.
        deployment: String,
        /// Since when it has not been available.
        since: Timestamp,
    },
    /// There is neither a lease nor a Deployment, nor the Deployment of the medik8s operator.
    NotInstalled,
}

/// How long a command waits to know who leads, beside what it was asked for.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// The warning that nobody leads. Where this is not known, it is not said. A reconciler without leader election has no lease, so
/// that none seems to be installed counts only if `nothing_is_done`: a maintenance that such a reconciler would have begun.
pub async fn warning(cluster: &Cluster, nothing_is_done: bool) -> Option<Line> {
    let gap = timeout(MAX_WAIT, read(cluster, Timestamp::now())).await.ok()?.ok()??;
    (gap != LeaderGap::NotInstalled || nothing_is_done)
        .then(|| Line::new("warning: ").with(Style::Bad, gap.words()))
}

/// What shows whether a reconciler leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// One leads, or something else serves maintenances.
    Served,
    /// None seems to lead.
    Gap(LeaderGap),
    /// The Deployments decide.
    Undecided {
        /// When the last leader released its lease, if somebody has led before.
        released: Option<Timestamp>,
    },
}

/// Reads whether a reconciler leads: the gap, if there is one.
///
/// # Errors
///
/// What is not known, and why.
pub async fn read(cluster: &Cluster, now: Timestamp) -> Result<Option<LeaderGap>, Unread> {
    Ok(match read_lease(cluster, now).await? {
        Evidence::Served => None,
        Evidence::Gap(gap) => unless_left_over(cluster, gap, now).await,
        Evidence::Undecided { released } => read_deployments(cluster, released, now).await?,
    })
}

/// The gap that the lease shows, unless the lease is left over from an earlier installation and something else serves
/// maintenances: the medik8s operator, or a reconciler without leader election. Without access to Deployments, the lease decides.
pub async fn unless_left_over(cluster: &Cluster, gap: LeaderGap, now: Timestamp) -> Option<LeaderGap> {
    let ours = deployments(cluster, ListParams::default().labels(LABEL_SELECTOR)).await;
    if !ours.is_ok_and(|ours| ours.is_empty()) {
        return Some(gap);
    }
    let all = deployments(cluster, ListParams::default()).await.unwrap_or_default();
    let is_by_olm = all.iter().any(|deployment| deployment.name_any() == leader_lease::NAME);
    if is_by_olm {
        return Some(gap);
    }
    // Whoever writes statuses after the lease has expired has no lease.
    let is_served = all.iter().any(is_other_operator)
        || match gap.expired() {
            Some(expired) => written_recently(cluster, now).await.into_iter().any(|at| at > expired),
            None => false,
        };
    (!is_served).then_some(gap)
}

/// Reads what the lease of the leader shows, with one request.
///
/// # Errors
///
/// What is not known, and why.
pub async fn read_lease(cluster: &Cluster, now: Timestamp) -> Result<Evidence, Unread> {
    // From the API server's cache: each node has a lease, and etcd would be asked for all of them.
    let ours = ListParams::default().fields(&format!("metadata.name={}", leader_lease::NAME)).match_any();
    let leases: Vec<Lease> =
        cluster.list(&Api::all(cluster.client()), LEASES, &ours).await.map_err(|error| unread(&error))?;
    Ok(by_leases(&leases, now))
}

/// Reads whether Deployments show that nobody leads, where the lease does not decide: the gap, if there is one. `released`: as
/// in [`Evidence::Undecided`].
///
/// # Errors
///
/// What is not known, and why.
pub async fn read_deployments(
    cluster: &Cluster,
    released: Option<Timestamp>,
    now: Timestamp,
) -> Result<Option<LeaderGap>, Unread> {
    let labelled = deployments(cluster, ListParams::default().labels(LABEL_SELECTOR)).await?;
    let evidence = if labelled.is_empty() {
        // The medik8s operator has other labels, and by OLM nm-reconciler has too.
        by_all_deployments(&deployments(cluster, ListParams::default()).await?, released, now)
    } else {
        by_deployments(&labelled, released, now)
    };
    Ok(match evidence {
        Evidence::Gap(LeaderGap::NotInstalled) if is_at_work(cluster, now).await => None,
        Evidence::Gap(gap) => Some(gap),
        Evidence::Served | Evidence::Undecided { .. } => None,
    })
}

/// Whether the status of a maintenance was just written, by a reconciler that is not seen otherwise.
async fn is_at_work(cluster: &Cluster, now: Timestamp) -> bool {
    !written_recently(cluster, now).await.is_empty()
}

/// When the statuses of maintenances were last written, of those that were just written.
async fn written_recently(cluster: &Cluster, now: Timestamp) -> Vec<Timestamp> {
    let all = cluster.maintenances().await.unwrap_or_default();
    let written = all.iter().filter_map(|object| Some(status(object).last_update.as_ref()?.0));
    written.filter(|at| now.duration_since(*at).abs() < AT_WORK).collect()
}

async fn deployments(cluster: &Cluster, which: ListParams) -> Result<Vec<Deployment>, Unread> {
    let api = Api::<Deployment>::all(cluster.client());
    cluster.list(&api, DEPLOYMENTS, &which).await.map_err(|error| unread(&error))
}

fn unread(error: &Error) -> Unread {
    Unread::failed("whether nm-reconciler leads", error)
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
        None => Evidence::Undecided { released: leases.iter().map(|lease| released_at(lease, now)).max() },
    }
}

/// When the lease, which has no holder, was released: a reconciler that releases it leaves that time.
fn released_at(lease: &Lease, now: Timestamp) -> Timestamp {
    lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref()).map_or(now, |at| at.0.min(now))
}

/// Since when the Deployment, of which no pod is ready, has not been available.
fn unavailable_since(deployment: &Deployment, now: Timestamp) -> Timestamp {
    let conditions = deployment.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let unavailable = conditions.filter(|it| it.type_ == "Available" && it.status == "False");
    let since = unavailable.filter_map(|it| it.last_transition_time.clone()).max();
    // One that was scaled to 0 is available, and does not show since when.
    let is_scaled_down = deployment.spec.as_ref().is_some_and(|spec| spec.replicas == Some(0));
    let created = || deployment.creation_timestamp().filter(|_| !is_scaled_down);
    since.or_else(created).map_or(now, |at| at.0.min(now))
}

/// `released`: as in [`Evidence::Undecided`].
fn by_deployments(ours: &[Deployment], released: Option<Timestamp>, now: Timestamp) -> Evidence {
    let is_ready = |deployment: &&Deployment| {
        deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0) > 0
    };
    match (ours, released) {
        ([], _) => Evidence::Undecided { released },
        ([..], Some(at)) => Evidence::Gap(LeaderGap::Released { at }),
        // A single replica may run without leader election.
        ([..], None) if ours.iter().any(|deployment| is_ready(&deployment)) => Evidence::Served,
        ([first, ..], None) => Evidence::Gap(LeaderGap::NotReady {
            deployment: format!("{}/{}", first.namespace().unwrap_or_default(), first.name_any()),
            since: unavailable_since(first, now),
        }),
    }
}

fn is_other_operator(deployment: &Deployment) -> bool {
    let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    deployment.name_any().starts_with(OTHER_OPERATOR) && replicas != Some(0)
}

fn by_all_deployments(all: &[Deployment], released: Option<Timestamp>, now: Timestamp) -> Evidence {
    if all.iter().any(is_other_operator) {
        return Evidence::Served;
    }
    let by_olm: Vec<Deployment> =
        all.iter().filter(|deployment| deployment.name_any() == leader_lease::NAME).cloned().collect();
    match by_deployments(&by_olm, released, now) {
        Evidence::Undecided { released: None } => Evidence::Gap(LeaderGap::NotInstalled),
        // A released lease may be left over, and whoever leads without one may run anywhere.
        evidence => evidence,
    }
}

impl LeaderGap {
    /// Who leads, for the causes why maintenances make no progress. Where none is installed, some may work without being seen.
    pub fn leadership(&self, now: Timestamp) -> Leadership {
        match self {
            Self::NotInstalled => Leadership::Unknown,
            Self::Lapsed { .. } => Leadership::Lapsed(self.expired().unwrap_or(now).min(now)),
            Self::Released { at: since } | Self::NotReady { since, .. } => Leadership::Lapsed(*since),
        }
    }

    /// When the lease expired, by the leader's clock.
    fn expired(&self) -> Option<Timestamp> {
        let Self::Lapsed { renewed, valid_seconds } = self else { return None };
        renewed.checked_add(SignedDuration::from_secs((*valid_seconds).into())).ok()
    }

    /// What shows that nobody leads: `no nm-reconciler leads: the last one has released its lease`.
    pub fn words(&self) -> String {
        match self {
            Self::Lapsed { renewed, .. } => {
                let until = self.expired().unwrap_or(*renewed);
                format!("no nm-reconciler leads: by this computer's clock, its lease expired at {until:.0}")
            }
            Self::Released { .. } => {
                String::from("no nm-reconciler leads: the last one has released its lease")
            }
            Self::NotReady { deployment, .. } => {
                format!("no nm-reconciler leads: no pod of deployment {deployment} is ready")
            }
            Self::NotInstalled => String::from(
                "no nm-reconciler was found: the cluster contains neither its lease nor its Deployment. Ignore this \
                 if it runs outside the cluster without leader election",
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
            "spec": {"selector": {}, "template": {}},
            "status": {"readyReplicas": ready, "conditions": [{"type": "Available",
                "status": "False", "lastTransitionTime": "2026-01-02T03:01:00Z"}]}}])
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
        let gap = read(&cluster, now()).await.unwrap();
        let requests = requests.lock().unwrap().len();
        (gap, requests)
    }

    #[tokio::test]
    async fn a_leader_is_found_with_one_request() {
        assert_eq!(found(lease(&json!("a"), "03:04:00"), json!([]), true).await, (None, 1));
        let lapsed =
            LeaderGap::Lapsed { renewed: "2026-01-02T03:03:00Z".parse().unwrap(), valid_seconds: 15 };
        assert!(lapsed.words().ends_with("its lease expired at 2026-01-02T03:03:15Z"), "{}", lapsed.words());
        assert_eq!(found(lease(&json!("a"), "03:03:00"), json!([]), true).await.0, Some(lapsed));
    }

    #[tokio::test]
    async fn without_a_holder_the_deployments_decide() {
        let (ours, other) = ("nm-reconciler", "node-maintenance-operator-controller-manager");
        let released = || lease(&Value::Null, "03:00:00");
        let at = "2026-01-02T03:00:00Z".parse().unwrap();
        let not_ready = LeaderGap::NotReady {
            deployment: "nm/nm-reconciler".into(),
            since: "2026-01-02T03:01:00Z".parse().unwrap(),
        };
        for (leases, deployments, labelled, expected) in [
            (released(), deployment(ours, 1), true, Some(LeaderGap::Released { at })),
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

    #[test]
    fn since_when_nobody_leads_does_not_move() {
        let at: Timestamp = "2026-01-02T03:00:00Z".parse().unwrap();
        let deployment = String::from("nm/nm-reconciler");
        for gap in [LeaderGap::Released { at }, LeaderGap::NotReady { deployment, since: at }] {
            assert_eq!(gap.leadership(now()), Leadership::Lapsed(at), "{gap:?}");
        }
    }

    #[tokio::test]
    async fn a_lease_that_is_left_over_does_not_matter_beside_the_medik8s_operator() {
        let lapsed = || lease(&json!("a"), "03:03:00");
        let other = deployment("node-maintenance-operator-controller-manager", 1);
        assert_eq!(found(lapsed(), other, false).await.0, None);
        for (ours, labelled) in [(0, true), (0, false), (1, true)] {
            let ours = deployment("nm-reconciler", ours);
            assert!(matches!(found(lapsed(), ours, labelled).await.0, Some(LeaderGap::Lapsed { .. })));
        }
    }

    #[tokio::test]
    async fn a_maintenance_whose_status_was_just_written_is_served() {
        let gap_with = async |written: &str| {
            let status = json!({"phase": "Running", "lastUpdate": written});
            let object = crate::testing::objects::with_status("n1", status);
            let (cluster, _) = cluster(move |_, path| match path.rsplit('/').next() {
                Some("nodemaintenances") => crate::testing::fake_server::list(std::slice::from_ref(&object)),
                _ => items(&json!([])),
            });
            read(&cluster, now()).await.unwrap()
        };
        assert_eq!(gap_with("2026-01-02T03:03:00Z").await, None);
        assert_eq!(gap_with("2026-01-02T02:00:00Z").await, Some(LeaderGap::NotInstalled));
        let words = LeaderGap::NotInstalled.words();
        assert!(
            words.starts_with("no nm-reconciler was found: ") && words.contains("without leader election"),
            "{words}"
        );
    }

    #[tokio::test]
    async fn a_lease_that_is_left_over_does_not_matter_beside_a_reconciler_without_leader_election() {
        let gap_with = async |written: &str| {
            let status = json!({"phase": "Running", "lastUpdate": written});
            let object = crate::testing::objects::with_status("n1", status);
            let (cluster, _) = cluster(move |_, path| match path.rsplit('/').next() {
                Some("nodemaintenances") => crate::testing::fake_server::list(std::slice::from_ref(&object)),
                Some("leases") => items(&lease(&json!("a"), "03:03:00")),
                _ => items(&json!([])),
            });
            read(&cluster, now()).await.unwrap()
        };
        assert_eq!(gap_with("2026-01-02T03:04:00Z").await, None);
        let before = gap_with("2026-01-02T03:03:10Z").await;
        assert!(matches!(before, Some(LeaderGap::Lapsed { .. })), "its last leader wrote it: {before:?}");
    }

    #[tokio::test]
    async fn without_permission_it_is_not_known() {
        let (cluster, _) = cluster(|_, _| failure(403, "Forbidden", "x"));
        let unread = read(&cluster, now()).await.unwrap_err();
        assert_eq!(
            unread.to_string(),
            "whether nm-reconciler leads: you may not list leases.coordination.k8s.io"
        );
    }
}
