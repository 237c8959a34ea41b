//! Reading the cluster as it is at this moment: no watch tells what was stored an instant ago.

use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ListParams;
use kube::core::Selector;
use kube::{Api, Client, ResourceExt};
use nm_shared::cluster::node;
use nm_shared::drain::plan::DaemonSets;
use nm_shared::gate::quorum::{self, ETCD_NAMESPACE, EtcdGuard};
use nm_shared::{Group, Grouped, NodeMaintenance};

/// What could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {what} now: {source}")]
pub(super) struct Unread {
    what: String,
    source: kube::Error,
}

/// So that a failed read says what it was for.
fn of<T>(what: impl Into<String>, read: kube::Result<T>) -> Result<T, Unread> {
    read.map_err(|source| Unread { what: what.into(), source })
}

/// The cluster as it is.
pub(super) struct Cluster {
    client: Client,
}

impl Cluster {
    /// The one that the client talks to.
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    /// The node of this name, if there is one. What cannot be a name leads to no request: it might lead anywhere.
    pub(super) async fn node(&self, name: &str) -> Result<Option<Node>, Unread> {
        if !node::is_valid_name(name) {
            return Ok(None);
        }
        of(format!("node {name}"), Api::<Node>::all(self.client.clone()).get_opt(name).await)
    }

    /// The nodes of the control plane.
    pub(super) async fn control_plane(&self) -> Result<Vec<Node>, Unread> {
        let nodes = Api::<Node>::all(self.client.clone());
        let mut found: Vec<Node> = Vec::new();
        for label in node::CONTROL_PLANE {
            let listed =
                of("the control-plane nodes", nodes.list(&ListParams::default().labels(label)).await)?;
            // Most carry both labels.
            let known = |node: &Node| found.iter().any(|other| other.name_any() == node.name_any());
            let more: Vec<Node> = listed.into_iter().filter(|node| !known(node)).collect();
            found.extend(more);
        }
        Ok(found)
    }

    /// All maintenances of our own group.
    pub(super) async fn maintenances(&self) -> Result<Vec<NodeMaintenance>, Unread> {
        let all = Api::<NodeMaintenance>::all(self.client.clone()).list(&ListParams::default()).await;
        Ok(of("nodemaintenances", all)?.items)
    }

    /// The nodes in maintenance by an object of an older group: none of a group that is not installed, or that we may not
    /// see and so do not serve.
    pub(super) async fn in_older_maintenances(&self) -> Result<Vec<String>, Unread> {
        let older = Group::ALL.into_iter().filter(|group| *group != Group::Medik8s);
        let listed = try_join_all(older.map(|group| self.of_older(group))).await?;
        Ok(listed.into_iter().flatten().map(|found| found.maintenance.spec.node_name).collect())
    }

    async fn of_older(&self, group: Group) -> Result<Vec<Grouped>, Unread> {
        let all = Api::<Grouped>::all_with(self.client.clone(), &group);
        let mut found = match all.list(&ListParams::default()).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Vec::new(),
            listed => of("nodemaintenances", listed)?.items,
        };
        // The first of these definitions was one of namespaced objects, which nobody serves.
        found.retain(|found| found.maintenance.metadata.namespace.is_none());
        Ok(found)
    }

    /// The pods on a node that exists.
    pub(super) async fn pods(&self, node: &str) -> Result<Vec<Pod>, Unread> {
        let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let pods = Api::<Pod>::all(self.client.clone()).list(&on_node).await;
        Ok(of(format!("the pods of node {node}"), pods)?.items)
    }

    /// The names of all `DaemonSet`s.
    pub(super) async fn daemon_sets(&self) -> Result<DaemonSets, Unread> {
        let sets = Api::<DaemonSet>::all(self.client.clone()).list_metadata(&ListParams::default()).await;
        Ok(DaemonSets::listed(of("daemonsets", sets)?.iter().map(|set| &set.metadata)))
    }

    /// What guards etcd; none where this is not OpenShift.
    pub(super) async fn guard(&self) -> Result<Option<EtcdGuard>, Unread> {
        let groups = of("the API groups", self.client.list_api_groups().await)?;
        if !quorum::is_openshift(&groups) {
            return Ok(None);
        }
        let budgets = Api::<PodDisruptionBudget>::namespaced(self.client.clone(), ETCD_NAMESPACE);
        let what = format!("the budgets in {ETCD_NAMESPACE}");
        let budgets = of(what, budgets.list(&ListParams::default()).await)?.items;
        let mut pods = Vec::new();
        // Without one budget, and only one, nobody asks for its pods.
        if let [budget] = budgets.as_slice()
            && let Some(selector) = budget.spec.as_ref().and_then(|spec| spec.selector.clone())
            && let Ok(selector) = Selector::try_from(selector)
        {
            let guards = Api::<Pod>::namespaced(self.client.clone(), ETCD_NAMESPACE);
            let guards = guards.list(&ListParams::default().labels_from(&selector)).await;
            pods = of(format!("the guard pods in {ETCD_NAMESPACE}"), guards)?.items;
        }
        Ok(Some(EtcdGuard { budgets, pods }))
    }
}
