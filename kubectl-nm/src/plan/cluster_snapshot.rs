//! What the cluster says of nodes that may be drained. What the user may not read is left out, and said to be.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Debug;
use std::sync::Arc;

use futures::future::join_all;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, ListParams};
use kube::core::Status;
use nm_shared::cluster::node;
use nm_shared::cluster::pod;
use nm_shared::cluster::pod_requests::Resources;
use nm_shared::cluster::volumes::{self, Volumes};
use nm_shared::drain::plan::DaemonSets;
use nm_shared::gate::quorum::{ETCD_NAMESPACE, EtcdGuard};
use nm_shared::{Group, NodeMaintenance};
use serde::de::DeserializeOwned;

use crate::client::all_groups;
use crate::client::cluster::Cluster;
use crate::client::reconciler_deployment::LABEL_SELECTOR;
use crate::error::Error;
use crate::plan::max_unavailable::Limit;

/// How many objects a page of a list has, as for kubectl.
const PAGE: u32 = 500;

/// What could be read.
#[derive(Debug)]
pub(crate) struct Readings {
    /// All nodes; none if they may not be listed.
    pub(crate) nodes: Option<Vec<Node>>,
    /// All maintenances of our own group.
    pub(crate) maintenances: Vec<NodeMaintenance>,
    /// Those of the older groups.
    pub(crate) older: Vec<NodeMaintenance>,
    /// The pods; none if they may not be listed.
    pub(crate) pods: Option<Pods>,
    /// The cluster's `DaemonSet`s.
    pub(crate) daemon_sets: DaemonSets,
    /// The cluster's disruption budgets.
    pub(crate) budgets: Vec<PodDisruptionBudget>,
    /// The volumes that claims have.
    pub(crate) volumes: Volumes,
    /// Whether the cluster is OpenShift, where a node of its control plane is planned.
    pub(super) is_openshift: bool,
    /// How many nodes may be unavailable at once.
    pub(crate) limit: Limit,
    /// What may not be read, and what is therefore not known.
    pub(crate) missing: Vec<String>,
}

/// The pods of a cluster, as far as they matter.
#[derive(Debug, Default)]
pub(crate) struct Pods {
    /// Those on the nodes of the plan, by node.
    pub(crate) planned: HashMap<String, Vec<Arc<Pod>>>,
    /// What those on other nodes request, by node.
    pub(crate) used: BTreeMap<String, Resources>,
    /// Those beside etcd.
    etcd: Vec<Pod>,
}

impl Readings {
    /// Reads all that matters to a drain of these nodes.
    ///
    /// # Errors
    ///
    /// When the server cannot be asked, or refuses for another reason than a missing right.
    pub(crate) async fn of(planned: &[String], cluster: &Cluster) -> Result<Self, Error> {
        let planned: HashSet<&str> = planned.iter().map(String::as_str).collect();
        let everywhere = ListParams::default;
        let labelled = ListParams::default().labels(LABEL_SELECTOR);
        let older = Group::ALL.into_iter().filter(|group| *group != Group::Medik8s);
        let (of_nodes, of_pods, of_sets, of_budgets, of_deployments, maintenances, of_older) = tokio::join!(
            each(cluster, "list nodes", everywhere(), |nodes: &mut Vec<Node>, node| nodes.push(node)),
            each(cluster, "list pods", everywhere(), |pods: &mut Pods, pod: Pod| pods.see(pod, &planned)),
            each(cluster, "list daemonsets.apps", everywhere(), |sets: &mut HashSet<_>, set: DaemonSet| {
                sets.insert((
                    set.metadata.namespace.unwrap_or_default(),
                    set.metadata.name.unwrap_or_default(),
                ));
            }),
            each(cluster, "list poddisruptionbudgets.policy", everywhere(), Vec::push),
            each(cluster, "list deployments.apps", labelled, |all: &mut Vec<Deployment>, one| all.push(one)),
            cluster.maintenances(),
            join_all(older.map(|group| all_groups::list_group(cluster, group))),
        );
        let mut missing = Vec::new();
        let nodes = may(of_nodes, "room elsewhere, the control plane and who waits in line", &mut missing)?;
        let pods = may(of_pods, "what becomes of the pods", &mut missing)?;
        let sets = may(of_sets, "whose DaemonSet is gone", &mut missing)?;
        let budgets =
            may(of_budgets, "what disruption budgets make of all evictions together", &mut missing)?;
        let limit = match of_deployments {
            Err(Error::Server { asked, status }) if status.is_forbidden() => {
                Limit::Unknown(format!("you may not {asked}"))
            }
            read => Limit::of(&read?),
        };
        let maintenances = match maintenances {
            // Before the installation nothing is in maintenance.
            Err(Error::NotInstalled { .. }) => Ok(Vec::new()),
            read => read,
        };
        let unknown = "which nodes are in maintenance already";
        let maintenances = may(maintenances, unknown, &mut missing)?;
        let mut older = Vec::new();
        for read in of_older {
            let found = may(read, unknown, &mut missing)?.into_iter().flatten();
            older.extend(found.map(|found| found.maintenance));
        }
        let volumes = match &pods {
            Some(pods) if pods.have_claims() => {
                let push = |volumes: &mut Vec<PersistentVolume>, volume| volumes.push(volume);
                let read = each(cluster, "list persistentvolumes", everywhere(), push).await;
                Volumes::new(may(read, "which volumes are local", &mut missing)?.unwrap_or_default())
            }
            _ => Volumes::default(),
        };
        let daemon_sets = DaemonSets {
            incomplete: sets.is_none(),
            names: sets.unwrap_or_default(),
            ..DaemonSets::default()
        };
        let (maintenances, budgets) = (maintenances.unwrap_or_default(), budgets.unwrap_or_default());
        let is_planned = |node: &&Node| planned.contains(node::name(node)) && node::is_control_plane(node);
        // Of no interest to other nodes.
        let is_openshift =
            nodes.iter().flatten().any(|node| is_planned(&node)) && cluster.is_openshift().await?;
        Ok(Self {
            nodes,
            maintenances,
            older,
            pods,
            daemon_sets,
            budgets,
            volumes,
            is_openshift,
            limit,
            missing,
        })
    }

    /// What guards etcd; none where this is not OpenShift.
    pub(crate) fn guard(&self) -> Option<EtcdGuard> {
        let budgets = &self.budgets;
        let pods = self.pods.iter().flat_map(|pods| &pods.etcd);
        self.is_openshift.then(|| EtcdGuard::among(budgets, pods))
    }
}

impl Pods {
    fn see(&mut self, pod: Pod, planned: &HashSet<&str>) {
        let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) else { return };
        if pod.metadata.namespace.as_deref() == Some(ETCD_NAMESPACE) {
            self.etcd.push(pod.clone());
        }
        if planned.contains(node.as_str()) {
            self.planned.entry(node).or_default().push(Arc::new(pod));
        } else if !pod::is_finished(&pod) {
            self.used.entry(node).or_default().add(&Resources::of_pod(&pod));
        }
    }

    fn have_claims(&self) -> bool {
        self.planned.values().flatten().any(|pod| volumes::claims(pod).next().is_some())
    }
}

/// What could be read; if the user may not, that is noted.
fn may<T>(read: Result<T, Error>, unknown: &str, missing: &mut Vec<String>) -> Result<Option<T>, Error> {
    let error = match read {
        Ok(read) => return Ok(Some(read)),
        Err(error) => error,
    };
    match &error {
        Error::Server { asked, status } if Status::is_forbidden(status) => {
            missing.push(format!("{unknown}: you may not {asked}"));
            Ok(None)
        }
        _ => Err(error),
    }
}

/// Reads all objects of a kind, page by page, and keeps of them what `see` does. If the server has forgotten midway what
/// the list was of, it is asked for all at once.
async fn each<K, Kept: Default>(
    cluster: &Cluster,
    what: &str,
    whole: ListParams,
    mut see: impl FnMut(&mut Kept, K),
) -> Result<Kept, Error>
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    const EXPIRED: u16 = 410;
    let api: Api<K> = Api::all(cluster.client());
    let (mut kept, mut page) = (Kept::default(), whole.clone().limit(PAGE));
    loop {
        let list = match cluster.request(what, async || api.list(&page).await).await {
            Err(error)
                if page.continue_token.is_some()
                    && error.status().is_some_and(|status| status.code == EXPIRED) =>
            {
                (kept, page) = (Kept::default(), whole.clone());
                continue;
            }
            list => list?,
        };
        list.items.into_iter().for_each(|item| see(&mut kept, item));
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(kept),
        }
    }
}

#[cfg(test)]
#[path = "cluster_snapshot_tests.rs"]
mod tests;
