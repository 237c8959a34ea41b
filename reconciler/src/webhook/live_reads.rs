//! Live reads of the cluster for reviews. A watch would not show what was stored a moment ago.

use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ListParams;
use kube::core::Selector;
use kube::{Api, Client, ResourceExt};
use nm_shared::cluster::node;
use nm_shared::cluster::pod::{DrainPod, ReceivedPod};
use nm_shared::drain::plan::DaemonSets;
use nm_shared::gate::etcd::Etcd;
use nm_shared::gate::etcd_guard::{self, ETCD_NAMESPACE, EtcdGuard};
use nm_shared::{Group, GroupedMaintenance, NodeMaintenance};

#[derive(Debug, thiserror::Error)]
#[error("cannot read {what}: {source}")]
pub(super) struct ReadError {
    what: String,
    source: kube::Error,
}

/// Adds to a failed read what it was for.
fn reading<T>(what: impl Into<String>, read: kube::Result<T>) -> Result<T, ReadError> {
    read.map_err(|source| ReadError { what: what.into(), source })
}

/// The cluster as it is now.
pub(super) struct LiveCluster {
    client: Client,
    /// Whether etcd runs outside of the cluster.
    has_external_etcd: bool,
}

impl LiveCluster {
    pub(super) fn new(client: Client, has_external_etcd: bool) -> Self {
        Self { client, has_external_etcd }
    }

    /// The node of this name, if there is one. An invalid name is not sent, because it would change the request's path.
    pub(super) async fn node(&self, name: &str) -> Result<Option<Node>, ReadError> {
        if !node::is_valid_name(name) {
            return Ok(None);
        }
        reading(format!("node {name}"), Api::<Node>::all(self.client.clone()).get_opt(name).await)
    }

    /// The nodes that [may run etcd](node::may_run_etcd).
    pub(super) async fn etcd_nodes(&self) -> Result<Vec<Node>, ReadError> {
        let nodes = Api::<Node>::all(self.client.clone());
        let mut found: Vec<Node> = Vec::new();
        for label in node::ETCD_ROLES {
            let labelled = ListParams::default().labels(label);
            let listed = reading("the nodes of the control plane and of etcd", nodes.list(&labelled).await)?;
            // Most nodes have several of these labels.
            let known = |node: &Node| found.iter().any(|other| other.name_any() == node.name_any());
            let more: Vec<Node> = listed.into_iter().filter(|node| !known(node)).collect();
            found.extend(more);
        }
        Ok(found)
    }

    /// The maintenances of these existing nodes. Those of all others are not read: with each creation there would be one more.
    pub(super) async fn maintenances_of(&self, nodes: &[String]) -> Result<Vec<NodeMaintenance>, ReadError> {
        let found = try_join_all(nodes.iter().map(|node| self.of_node(node))).await;
        let found = match found {
            // The definition is older, or that of the medik8s operator: no field of it can be selected.
            Err(ReadError { source: kube::Error::Api(status), .. }) if status.code == 400 => {
                let all = Api::<NodeMaintenance>::all(self.client.clone()).list(&ListParams::default()).await;
                let mut all = reading("nodemaintenances", all)?.items;
                all.retain(|found| nodes.contains(&found.spec.node_name));
                return Ok(all);
            }
            found => found?,
        };
        Ok(found.into_iter().flatten().collect())
    }

    async fn of_node(&self, node: &str) -> Result<Vec<NodeMaintenance>, ReadError> {
        let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let found = Api::<NodeMaintenance>::all(self.client.clone()).list(&of_node).await;
        Ok(reading(format!("the nodemaintenances of node {node}"), found)?.items)
    }

    /// The nodes of maintenances of older groups: none for a group that is not installed or that the reconciler has no
    /// permission to list.
    pub(super) async fn nodes_of_older_groups(&self) -> Result<Vec<String>, ReadError> {
        let older = Group::ALL.into_iter().filter(|group| *group != Group::Medik8s);
        let listed = try_join_all(older.map(|group| self.of_older(group))).await?;
        Ok(listed.into_iter().flatten().map(|found| found.maintenance.spec.node_name).collect())
    }

    async fn of_older(&self, group: Group) -> Result<Vec<GroupedMaintenance>, ReadError> {
        let all = Api::<GroupedMaintenance>::all_with(self.client.clone(), &group);
        let mut found = match all.list(&ListParams::default()).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Vec::new(),
            listed => reading("nodemaintenances", listed)?.items,
        };
        // The first of these definitions was namespaced. Nothing reconciles its objects.
        found.retain(|found| found.maintenance.metadata.namespace.is_none());
        Ok(found)
    }

    /// The pods on an existing node.
    pub(super) async fn pods(&self, node: &str) -> Result<Vec<DrainPod>, ReadError> {
        let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let pods = Api::<ReceivedPod>::all(self.client.clone()).list(&on_node).await;
        let pods = reading(format!("the pods of node {node}"), pods)?;
        Ok(pods.into_iter().map(DrainPod::from).collect())
    }

    pub(super) async fn daemon_sets(&self) -> Result<DaemonSets, ReadError> {
        let sets = Api::<DaemonSet>::all(self.client.clone()).list_metadata(&ListParams::default()).await;
        Ok(DaemonSets::listed(reading("daemonsets", sets)?.iter().map(|set| &set.metadata)))
    }

    /// Where etcd runs, and what guards it.
    pub(super) async fn etcd(&self) -> Result<Etcd, ReadError> {
        if self.has_external_etcd {
            return Ok(Etcd::External);
        }
        let groups = reading("the API groups", self.client.list_api_groups().await)?;
        if !etcd_guard::is_openshift(&groups) {
            return Ok(Etcd::OnNodes);
        }
        let budgets = Api::<PodDisruptionBudget>::namespaced(self.client.clone(), ETCD_NAMESPACE);
        let what = format!("the budgets in {ETCD_NAMESPACE}");
        let budgets = reading(what, budgets.list(&ListParams::default()).await)?.items;
        let mut pods = Vec::new();
        // The pods matter only if there is exactly one budget.
        if let [budget] = budgets.as_slice()
            && let Some(selector) = budget.spec.as_ref().and_then(|spec| spec.selector.clone())
            && let Ok(selector) = Selector::try_from(selector)
        {
            let guards = Api::<ReceivedPod>::namespaced(self.client.clone(), ETCD_NAMESPACE);
            let guards = guards.list(&ListParams::default().labels_from(&selector)).await;
            let guards = reading(format!("the guard pods in {ETCD_NAMESPACE}"), guards)?;
            pods = guards.into_iter().map(DrainPod::from).collect();
        }
        Ok(Etcd::Guarded(EtcdGuard { budgets, pods }))
    }
}
