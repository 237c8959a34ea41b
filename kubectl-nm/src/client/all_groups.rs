//! Maintenances of every API group that the cluster serves: the current group, and two older ones from before the operator
//! moved to medik8s.
//!
//! nm-reconciler reconciles all of them, so `uninstall`, `doctor`, `gather` and `plan` take all into account. Other commands
//! use the current group only.

use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt};
use nm_shared::{Group, GroupedMaintenance, NodeMaintenance};
use serde_json::Value;

use crate::client::cluster::{Cluster, Deletion};
use crate::client::objects;
use crate::error::Error;

pub(crate) async fn maintenances(cluster: &Cluster) -> Result<Vec<GroupedMaintenance>, Error> {
    let each = Group::ALL.map(|group| list_group(cluster, group));
    Ok(futures::future::try_join_all(each).await?.into_iter().flatten().collect())
}

/// All maintenances of a group; none if it is not served.
pub(crate) async fn list_group(cluster: &Cluster, group: Group) -> Result<Vec<GroupedMaintenance>, Error> {
    if !must_be_listed(cluster, group).await? {
        return Ok(Vec::new());
    }
    let api: Api<GroupedMaintenance> = Api::all_with(cluster.client(), &group);
    match cluster.list(&api, &group.definition(), &ListParams::default()).await {
        Err(error) if error.is_unserved() => Ok(Vec::new()),
        found => found,
    }
}

pub(crate) async fn older_groups(cluster: &Cluster) -> Result<Vec<Group>, Error> {
    let mut served = Vec::new();
    for group in Group::ALL.into_iter().filter(|group| *group != Group::Medik8s) {
        if is_served(cluster, group).await? {
            served.push(group);
        }
    }
    Ok(served)
}

/// The maintenances of a group as the server sends them, including fields that this program does not know; `None` if an
/// older group is not served.
pub(crate) async fn list_raw(cluster: &Cluster, group: Group) -> Result<Option<Vec<Value>>, Error> {
    if !must_be_listed(cluster, group).await? {
        return Ok(None);
    }
    let (version, kind) = (GroupedMaintenance::api_version(&group), GroupedMaintenance::kind(&group));
    objects::list(cluster, (&version, &kind), None, &ListParams::default()).await.map(Some)
}

/// Deletes a maintenance, unless another one has its name by now.
pub(crate) async fn delete(cluster: &Cluster, object: &GroupedMaintenance) -> Result<Deletion, Error> {
    let api: Api<GroupedMaintenance> = Api::all_with(cluster.client(), &object.group);
    let maintenance = &object.maintenance;
    cluster.delete_exactly(&api, &object.group.definition(), &maintenance.name_any(), maintenance.uid()).await
}

/// The current group is always listed, so that a missing CRD is reported.
async fn must_be_listed(cluster: &Cluster, group: Group) -> Result<bool, Error> {
    Ok(group == Group::Medik8s || is_served(cluster, group).await?)
}

/// Uses discovery, which needs no permission, so that no missing permission is reported for a group that is not installed.
async fn is_served(cluster: &Cluster, group: Group) -> Result<bool, Error> {
    let (client, version) = (cluster.client(), format!("{}/{}", group.name(), group.version()));
    let asked = format!("get /apis/{version}");
    let plural = NodeMaintenance::plural(&());
    match cluster.request(&asked, async || client.list_api_group_resources(&version).await).await {
        // The objects of the oldest CRD were namespaced, which nm-reconciler does not reconcile.
        Ok(found) => Ok(found.resources.iter().any(|found| found.name == plural && !found.namespaced)),
        Err(error) if error.is_unserved() || error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::cluster::tests::{cluster, failure};

    #[tokio::test]
    async fn only_served_groups_are_listed() {
        let (cluster, requests) = cluster(|method, path| match path {
            _ if method == "DELETE" => failure(404, "NotFound", "m"),
            "/apis/kubevirt.io/v1alpha1" => (
                200,
                json!({"kind": "APIResourceList", "groupVersion": "kubevirt.io/v1alpha1", "resources": [
                    {"name": "nodemaintenances", "singularName": "nodemaintenance", "namespaced": false,
                     "kind": "NodeMaintenance", "verbs": ["list"]}]}),
            ),
            "/apis/kubevirt.io/v1alpha1/nodemaintenances" => (
                200,
                json!({"kind": "NodeMaintenanceList", "apiVersion": "kubevirt.io/v1alpha1", "metadata": {}, "items": [
                    {"apiVersion": "kubevirt.io/v1alpha1", "kind": "NodeMaintenance",
                     "metadata": {"name": "m", "uid": "u"}, "spec": {"nodeName": "n1"}}]}),
            ),
            _ => failure(404, "NotFound", ""),
        });
        let found = Box::pin(maintenances(&cluster)).await.unwrap();
        assert_eq!(found.iter().map(|object| object.group).collect::<Vec<_>>(), [Group::Kubevirt]);
        delete(&cluster, &found[0]).await.unwrap();
        let mut requests = requests.lock().unwrap().clone();
        requests.sort();
        assert_eq!(
            requests,
            [
                "DELETE /apis/kubevirt.io/v1alpha1/nodemaintenances/m",
                "GET /apis/kubevirt.io/v1alpha1",
                "GET /apis/kubevirt.io/v1alpha1/nodemaintenances",
                "GET /apis/nodemaintenance.kubevirt.io/v1beta1",
                "GET /apis/nodemaintenance.medik8s.io/v1beta1/nodemaintenances",
            ]
        );
    }

    #[tokio::test]
    async fn an_older_group_that_is_not_served_is_no_error() {
        let (cluster, _) = cluster(|_, path| match path {
            _ if path.starts_with("/apis/nodemaintenance.kubevirt.io/") => failure(403, "Forbidden", ""),
            _ => failure(404, "NotFound", ""),
        });
        assert_eq!(list_raw(&cluster, Group::Kubevirt).await.unwrap(), None);
        assert!(list_raw(&cluster, Group::NodeMaintenanceKubevirt).await.is_err());
        assert!(matches!(list_raw(&cluster, Group::Medik8s).await, Err(Error::NotInstalled { .. })));
    }
}
