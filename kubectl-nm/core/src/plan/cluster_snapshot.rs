//! The objects that a plan depends on. What the user may not read is left out and listed as unknown.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Debug;

use futures::future::join_all;
use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use kube::core::{PartialObjectMeta, Status};
use nm_shared::cluster::disruption_budget::BudgetKey;
use nm_shared::cluster::node;
use nm_shared::cluster::pod;
use nm_shared::cluster::volumes::Volumes;
use nm_shared::drain::plan::DaemonSets;
use nm_shared::drain::virtual_machine::VirtualMachineInstance;
use nm_shared::gate::etcd::Etcd;
use nm_shared::gate::etcd_guard::EtcdGuard;
use nm_shared::{Grant, Group, NodeMaintenance, PodReference};
use serde::de::DeserializeOwned;

use crate::client::all_groups;
use crate::client::cluster::Cluster;
use crate::client::list_pages::list_pages;
use crate::client::reconciler_deployment::{EXTERNAL_ETCD, LABEL_SELECTOR, SettingValue};
use crate::client::reconciler_grants;
use crate::client::unread::Unread;
use crate::error::Error;
use crate::plan::growing_budgets;
use crate::plan::max_unavailable::MaxUnavailableLimit;
use crate::plan::pods_elsewhere::MAX_CONCURRENT;
use crate::plan::pods_of_budgets::{self, PodsOfBudgets};
use crate::plan::snapshot_pods::SnapshotPods;
use crate::plan::time_limit::{NoAnswer, TimeLimit, within};

/// How many volume claims are read one by one. Of more, all of the cluster are listed.
const MAX_CLAIMS: usize = 64;

/// The objects as they are when the plan is made.
#[derive(Debug)]
pub struct ClusterSnapshot {
    /// All nodes; none without access.
    pub nodes: Option<Vec<Node>>,
    /// The maintenances of the current group; empty without access or if none is installed.
    pub maintenances: Vec<NodeMaintenance>,
    pub(crate) older: Vec<NodeMaintenance>,
    /// The pods; `None` without access.
    pub pods: Option<SnapshotPods>,
    pub(crate) daemon_sets: DaemonSets,
    /// The disruption budgets; empty without access.
    pub budgets: Vec<PodDisruptionBudget>,
    /// Whether they could be read.
    pub(super) are_budgets_known: bool,
    /// Whether budgets that demand as many pods as there are count more once workloads have created them, as far as that is known.
    pub(super) growing: BTreeMap<BudgetKey, bool>,
    /// What the pods show of the budgets that count too few healthy ones to allow an eviction.
    pub(super) pods_of_budgets: PodsOfBudgets,
    pub(crate) volumes: Volumes,
    /// The volume claims that are being deleted, of pods on planned nodes at least.
    pub(crate) deleted_claims: BTreeSet<PodReference>,
    /// The virtual machines, if pods on planned nodes run any.
    pub(crate) machines: Vec<VirtualMachineInstance>,
    /// The Jobs that control pods on planned nodes.
    pub(crate) jobs: Vec<Job>,
    /// Whether the cluster is OpenShift. Only known if a node is planned that may run etcd.
    pub(super) is_openshift: bool,
    /// Whether etcd runs outside of the cluster, by the settings of nm-reconciler.
    pub(super) has_external_etcd: bool,
    pub(crate) limit: MaxUnavailableLimit,
    /// The users that nm-reconciler runs as; empty without access to its Deployment.
    pub(super) accounts: Vec<String>,
    /// What nm-reconciler may not do, of what the settings of the drains need.
    pub(super) denied: BTreeSet<Grant>,
    /// What could not be read, and why.
    pub unknown: Vec<Unread>,
}

impl ClusterSnapshot {
    /// Reads what a plan for these nodes depends on. What has not been read within the limit is listed as unknown, like what
    /// the user may not read.
    ///
    /// # Errors
    ///
    /// If a request fails for a reason other than missing permission.
    pub(crate) async fn read(
        limit: Option<TimeLimit>,
        planned: &[String],
        cluster: &Cluster,
    ) -> Result<Self, Error> {
        let planned: HashSet<&str> = planned.iter().map(String::as_str).collect();
        let everywhere = ListParams::default;
        let labelled = ListParams::default().labels(LABEL_SELECTOR);
        let older = Group::ALL.into_iter().filter(|group| *group != Group::Medik8s);
        let add_set = |sets: &mut HashSet<_>, set: DaemonSet| {
            sets.insert((set.namespace().unwrap_or_default(), set.name_any()));
        };
        let (of_nodes, of_pods, of_sets, of_budgets, of_deployments, maintenances, of_older) = tokio::join!(
            within(limit, list_everywhere(cluster, "list nodes", everywhere(), Vec::<Node>::push)),
            within(limit, SnapshotPods::read(&planned, cluster)),
            within(limit, list_everywhere(cluster, "list daemonsets.apps", everywhere(), add_set)),
            within(
                limit,
                list_everywhere(cluster, "list poddisruptionbudgets.policy", everywhere(), Vec::push)
            ),
            within(
                limit,
                list_everywhere(cluster, "list deployments.apps", labelled, Vec::<Deployment>::push)
            ),
            within(limit, cluster.maintenances()),
            join_all(older.map(|group| within(limit, all_groups::list_group(cluster, group)))),
        );
        let mut unknown = Vec::new();
        let of_all = "the capacity of other nodes, the control plane and the queue";
        let nodes = if_permitted(of_nodes, of_all, &mut unknown)?;
        let mut pods = if_permitted(of_pods, "the pods", &mut unknown)?;
        let sets = if_permitted(of_sets, "which DaemonSets exist", &mut unknown)?;
        let budgets = if_permitted(of_budgets, "the disruption budgets", &mut unknown)?;
        let has_external_etcd =
            of_deployments.as_ref().is_ok_and(|deployments| sets_external_etcd(deployments));
        let accounts = of_deployments.as_deref().map(reconciler_grants::accounts).unwrap_or_default();
        let max_unavailable = match of_deployments {
            Ok(read) => MaxUnavailableLimit::of(&read),
            Err(NoAnswer::TooLate(why)) => MaxUnavailableLimit::Unknown(why),
            Err(NoAnswer::Failed(Error::Server { asked, status })) if status.is_forbidden() => {
                MaxUnavailableLimit::Unknown(format!("you may not {asked}"))
            }
            Err(NoAnswer::Failed(error)) => return Err(error),
        };
        let maintenances = match maintenances {
            // Without the installation nothing is in maintenance.
            Err(NoAnswer::Failed(Error::NotInstalled { .. })) => Ok(Vec::new()),
            read => read,
        };
        let what = "which nodes are in maintenance";
        let maintenances = if_permitted(maintenances, what, &mut unknown)?;
        let mut older = Vec::new();
        for read in of_older {
            let found = if_permitted(read, what, &mut unknown)?.into_iter().flatten();
            older.extend(found.map(|found| found.maintenance));
        }
        let (volumes, deleted_claims) =
            Box::pin(read_volumes(limit, pods.as_ref(), cluster, &mut unknown)).await?;
        if let Some(pods) = &mut pods {
            let read = pods.read_elsewhere(nodes.as_deref(), &volumes, cluster);
            if_permitted(within(limit, read).await, "what runs on other nodes", &mut unknown)?;
        }
        let machines = read_machines(limit, pods.as_ref(), cluster, &mut unknown).await?;
        let jobs = read_jobs(limit, pods.as_ref(), cluster, &mut unknown).await?;
        let daemon_sets = DaemonSets {
            incomplete: sets.is_none(),
            names: sets.unwrap_or_default(),
            ..DaemonSets::default()
        };
        let are_budgets_known = budgets.is_some();
        let (maintenances, budgets) = (maintenances.unwrap_or_default(), budgets.unwrap_or_default());
        let (growing, pods_of_budgets) =
            read_pods_of_budgets(limit, pods.as_ref(), &budgets, cluster, &mut unknown).await?;
        let is_planned = |node: &&Node| planned.contains(node::name(node)) && node::may_run_etcd(node);
        // Only the quorum of etcd depends on it.
        let is_openshift = nodes.iter().flatten().any(|node| is_planned(&node))
            && match within(limit, cluster.is_openshift()).await {
                Ok(is_openshift) => is_openshift,
                Err(NoAnswer::Failed(error)) => return Err(error),
                Err(NoAnswer::TooLate(why)) => {
                    unknown.push(Unread::too_late("whether etcd keeps its quorum", why));
                    false
                }
            };
        Ok(Self {
            nodes,
            maintenances,
            older,
            pods,
            daemon_sets,
            budgets,
            are_budgets_known,
            growing,
            pods_of_budgets,
            volumes,
            deleted_claims,
            machines,
            jobs,
            is_openshift,
            has_external_etcd,
            limit: max_unavailable,
            accounts,
            denied: BTreeSet::new(),
            unknown,
        })
    }

    pub(crate) fn etcd(&self) -> Etcd {
        if self.has_external_etcd {
            return Etcd::External;
        }
        let pods = self.pods.iter().flat_map(|pods| &pods.etcd);
        if self.is_openshift { Etcd::Guarded(EtcdGuard::among(&self.budgets, pods)) } else { Etcd::OnNodes }
    }
}

/// Which budgets count more pods later, as far as that is known, and what the pods show of those that count too few healthy ones.
async fn read_pods_of_budgets(
    limit: Option<TimeLimit>,
    pods: Option<&SnapshotPods>,
    budgets: &[PodDisruptionBudget],
    cluster: &Cluster,
    unknown: &mut Vec<Unread>,
) -> Result<(BTreeMap<BudgetKey, bool>, PodsOfBudgets), Error> {
    let growing = within(limit, growing_budgets::read(pods, budgets, cluster));
    let of_budgets = within(limit, pods_of_budgets::read(pods, budgets, cluster));
    let (growing, of_budgets) = tokio::join!(growing, of_budgets);
    let growing = if_permitted(growing, "whether budgets lack pods", unknown)?;
    let of_budgets = if_permitted(of_budgets, "whether budgets have counted their pods", unknown)?;
    Ok((growing.unwrap_or_default(), of_budgets.unwrap_or_default()))
}

/// The volumes that pods claim, if any do, and the claims that are being deleted.
async fn read_volumes(
    limit: Option<TimeLimit>,
    pods: Option<&SnapshotPods>,
    cluster: &Cluster,
    unknown: &mut Vec<Unread>,
) -> Result<(Volumes, BTreeSet<PodReference>), Error> {
    let claims = pods.map(SnapshotPods::claims).unwrap_or_default();
    if claims.is_empty() {
        return Ok(Default::default());
    }
    let volumes = list_everywhere(
        cluster,
        "list persistentvolumes",
        ListParams::default(),
        Vec::<PersistentVolume>::push,
    );
    let (volumes, claims) =
        tokio::join!(within(limit, volumes), within(limit, read_deleted_claims(claims, cluster)));
    let volumes = if_permitted(volumes, "which volumes are local", unknown)?;
    let claims = if_permitted(claims, "which volume claims are being deleted", unknown)?;
    Ok((Volumes::new(volumes.unwrap_or_default()), claims.unwrap_or_default()))
}

/// Which of these claims are being deleted; with those of other pods if there are many.
async fn read_deleted_claims(
    claims: BTreeSet<PodReference>,
    cluster: &Cluster,
) -> Result<BTreeSet<PodReference>, Error> {
    type Claim = PartialObjectMeta<PersistentVolumeClaim>;
    let add_deleted = |deleted: &mut BTreeSet<PodReference>, claim: Claim| {
        let is_deleted = claim.metadata.deletion_timestamp.is_some();
        deleted.extend(is_deleted.then(|| pod::reference_in(&claim.metadata)));
    };
    if claims.len() > MAX_CLAIMS {
        let what = "list persistentvolumeclaims";
        return list_everywhere(cluster, what, ListParams::default(), add_deleted).await;
    }
    let claim = async |PodReference { namespace, name }| {
        let claims: Api<Claim> = Api::namespaced(cluster.client(), &namespace);
        cluster.request("get persistentvolumeclaims", async || claims.get_opt(&name).await).await
    };
    let read = stream::iter(claims).map(claim).buffered(MAX_CONCURRENT).try_collect::<Vec<_>>().await?;
    let mut deleted = BTreeSet::new();
    read.into_iter().flatten().for_each(|claim| add_deleted(&mut deleted, claim));
    Ok(deleted)
}

/// The virtual machines, if pods run any.
async fn read_machines(
    limit: Option<TimeLimit>,
    pods: Option<&SnapshotPods>,
    cluster: &Cluster,
    unknown: &mut Vec<Unread>,
) -> Result<Vec<VirtualMachineInstance>, Error> {
    if !pods.is_some_and(SnapshotPods::have_machines) {
        return Ok(Vec::new());
    }
    let what = "list virtualmachineinstances.kubevirt.io";
    let read = list_everywhere(cluster, what, ListParams::default(), Vec::<VirtualMachineInstance>::push);
    let read = match within(limit, read).await {
        // Pods that only look like those of KubeVirt.
        Err(NoAnswer::Failed(Error::Server { status, .. })) if status.code == 404 => Ok(Vec::new()),
        read => read,
    };
    Ok(if_permitted(read, "who moves virtual machines", unknown)?.unwrap_or_default())
}

/// The Jobs that control pods, if any do.
async fn read_jobs(
    limit: Option<TimeLimit>,
    pods: Option<&SnapshotPods>,
    cluster: &Cluster,
    unknown: &mut Vec<Unread>,
) -> Result<Vec<Job>, Error> {
    let names = pods.map(SnapshotPods::jobs).unwrap_or_default();
    let job = async |PodReference { namespace, name }| {
        let jobs: Api<Job> = Api::namespaced(cluster.client(), &namespace);
        cluster.request("get jobs.batch", async || jobs.get_opt(&name).await).await
    };
    let read = stream::iter(names).map(job).buffered(MAX_CONCURRENT).try_collect::<Vec<_>>();
    let read = if_permitted(within(limit, read).await, "which Jobs fail if their pods are evicted", unknown)?;
    Ok(read.into_iter().flatten().flatten().collect())
}

/// Whether the Deployments of nm-reconciler say that etcd runs outside of the cluster.
fn sets_external_etcd(deployments: &[Deployment]) -> bool {
    let is_set = |deployment: &Deployment| {
        let deployment = serde_json::to_value(deployment).unwrap_or_default();
        EXTERNAL_ETCD.switch_of(&deployment) == SettingValue::Value(String::from("true"))
    };
    !deployments.is_empty() && deployments.iter().all(is_set)
}

/// Lists all objects of a kind.
async fn list_everywhere<K, Kept: Default>(
    cluster: &Cluster,
    what: &str,
    selected: ListParams,
    add: impl FnMut(&mut Kept, K),
) -> Result<Kept, Error>
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    list_pages(&Api::all(cluster.client()), cluster, what, selected, add).await
}

/// The result of a read; none without access or in time, which is then listed with `what` as unknown.
fn if_permitted<T>(
    read: Result<T, NoAnswer>,
    what: &str,
    unknown: &mut Vec<Unread>,
) -> Result<Option<T>, Error> {
    let error = match read {
        Ok(read) => return Ok(Some(read)),
        Err(NoAnswer::TooLate(why)) => {
            unknown.push(Unread::too_late(what, why));
            return Ok(None);
        }
        Err(NoAnswer::Failed(error)) => error,
    };
    match &error {
        Error::Server { asked, status } if Status::is_forbidden(status) => {
            unknown.push(Unread::forbidden(what, asked));
            Ok(None)
        }
        _ => Err(error),
    }
}

#[cfg(test)]
#[path = "cluster_snapshot_tests.rs"]
mod tests;
