//! What the cluster says of nodes that may be drained. What the user may not read is left out, and said to be.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, ListParams};
use kube::core::Status;
use nm_shared::drain_plan::DaemonSets;
use nm_shared::pod_requests::Resources;
use nm_shared::quorum::{ETCD_NAMESPACE, Guard};
use nm_shared::volumes::{self, Volumes};
use nm_shared::{NodeMaintenance, node, pod};
use serde::de::DeserializeOwned;

use super::limit::{LABELS, Limit};
use crate::cluster::Cluster;
use crate::error::Error;

/// How many objects a page of a list has, as for kubectl.
const PAGE: u32 = 500;

/// What could be read.
#[derive(Debug)]
pub(crate) struct Readings {
    /// All nodes; none if they may not be listed.
    pub(crate) nodes: Option<Vec<Node>>,
    /// All maintenances.
    pub(crate) maintenances: Vec<NodeMaintenance>,
    /// The pods; none if they may not be listed.
    pub(crate) pods: Option<Pods>,
    /// The cluster's `DaemonSet`s.
    pub(crate) daemon_sets: DaemonSets,
    /// The cluster's disruption budgets.
    pub(crate) budgets: Vec<Arc<PodDisruptionBudget>>,
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
        let (mut pods, mut sets) = (Pods::default(), HashSet::new());
        let (mut nodes, mut budgets, mut deployments) = (Vec::new(), Vec::new(), Vec::new());
        let everywhere = ListParams::default;
        let labelled = ListParams::default().labels(LABELS);
        let (of_nodes, of_pods, of_sets, of_budgets, of_deployments, maintenances) = tokio::join!(
            each(cluster, "list nodes", everywhere(), |node: Node| nodes.push(node)),
            each(cluster, "list pods", everywhere(), |pod: Pod| pods.see(pod, &planned)),
            each(cluster, "list daemonsets.apps", everywhere(), |set: DaemonSet| {
                sets.insert((
                    set.metadata.namespace.unwrap_or_default(),
                    set.metadata.name.unwrap_or_default(),
                ));
            }),
            each(cluster, "list poddisruptionbudgets.policy", everywhere(), |budget: PodDisruptionBudget| {
                budgets.push(Arc::new(budget));
            }),
            each(cluster, "list deployments.apps", labelled, |found: Deployment| deployments.push(found)),
            cluster.maintenances(),
        );
        let mut missing = Vec::new();
        let mut may = |read: Result<(), Error>, unknown: &str| may(read, unknown, &mut missing);
        let nodes =
            may(of_nodes, "room elsewhere, the control plane and who waits in line")?.then_some(nodes);
        let pods = may(of_pods, "what becomes of the pods")?.then_some(pods);
        let incomplete = !may(of_sets, "whose DaemonSet is gone")?;
        may(of_budgets, "what disruption budgets make of all evictions together")?;
        let limit = match of_deployments {
            Err(Error::Server { asked, status }) if status.is_forbidden() => {
                Limit::Unknown(format!("you may not {asked}"))
            }
            read => read.map(|()| Limit::of(&deployments))?,
        };
        let mut known = Vec::new();
        may(maintenances.map(|all| known = all), "which nodes are in maintenance already")?;
        let volumes = match &pods {
            Some(pods) if pods.have_claims() => {
                let mut volumes = Vec::new();
                let read =
                    each(cluster, "list persistentvolumes", everywhere(), |volume: PersistentVolume| {
                        volumes.push(volume);
                    });
                may(read.await, "which volumes are local")?;
                Volumes::new(volumes)
            }
            _ => Volumes::default(),
        };
        let daemon_sets = DaemonSets { names: sets, incomplete };
        let is_planned = |node: &&Node| planned.contains(node::name(node)) && node::is_control_plane(node);
        // Of no interest to other nodes.
        let is_openshift =
            nodes.iter().flatten().any(|node| is_planned(&node)) && cluster.is_openshift().await?;
        Ok(Self {
            is_openshift,
            nodes,
            maintenances: known,
            pods,
            daemon_sets,
            budgets,
            volumes,
            limit,
            missing,
        })
    }

    /// What guards etcd; none where this is not OpenShift.
    pub(crate) fn guard(&self) -> Option<Guard> {
        let budgets = self.budgets.iter().map(AsRef::as_ref);
        let pods = self.pods.iter().flat_map(|pods| &pods.etcd);
        self.is_openshift.then(|| Guard::among(budgets, pods))
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

/// Whether something could be read; if the user may not, that is noted.
fn may(read: Result<(), Error>, unknown: &str, missing: &mut Vec<String>) -> Result<bool, Error> {
    let error = match read {
        Ok(()) => return Ok(true),
        Err(error) => error,
    };
    match &error {
        Error::Server { asked, status } if Status::is_forbidden(status) => {
            missing.push(format!("{unknown}: you may not {asked}"));
            Ok(false)
        }
        _ => Err(error),
    }
}

/// Reads all objects of a kind, page by page.
async fn each<K>(
    cluster: &Cluster,
    what: &str,
    mut page: ListParams,
    mut see: impl FnMut(K),
) -> Result<(), Error>
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    page = page.limit(PAGE);
    let api: Api<K> = Api::all(cluster.client());
    loop {
        let list = cluster.ask(what, async || api.list(&page).await).await?;
        list.items.into_iter().for_each(&mut see);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(()),
        }
    }
}
