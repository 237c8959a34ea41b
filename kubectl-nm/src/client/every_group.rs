//! Maintenances of every group that the cluster serves: our own, and the two from before the operator moved to medik8s.
//!
//! nm-reconciler serves all of them, so who removes it, looks for what it left behind or foretells what it would do must
//! know of all. Other commands are about our own group.

use kube::api::{Api, DeleteParams, ListParams, Preconditions};
use kube::core::Status;
use kube::{Resource, ResourceExt};
use nm_shared::api::names::GROUP;
use nm_shared::{Group, Grouped, NodeMaintenance};
use serde_json::Value;

use crate::client::cluster::Cluster;
use crate::client::objects;
use crate::error::Error;

/// All maintenances, whichever group they are of; none of a group that is not served.
///
/// # Errors
///
/// When the server cannot be asked or refuses.
pub(crate) async fn maintenances(cluster: &Cluster) -> Result<Vec<Grouped>, Error> {
    let each = Group::ALL.map(|group| of(cluster, group));
    Ok(futures::future::try_join_all(each).await?.into_iter().flatten().collect())
}

/// All maintenances of a group; none of one that is not served.
///
/// # Errors
///
/// When the server cannot be asked or refuses.
pub(crate) async fn of(cluster: &Cluster, group: Group) -> Result<Vec<Grouped>, Error> {
    if is_to_be_asked(cluster, group).await? { listed(cluster, group).await } else { Ok(Vec::new()) }
}

/// The older groups that the cluster serves.
///
/// # Errors
///
/// When the server cannot be asked or refuses.
pub(crate) async fn older(cluster: &Cluster) -> Result<Vec<Group>, Error> {
    let mut served = Vec::new();
    for group in Group::ALL.into_iter().filter(|group| group.name() != GROUP) {
        if is_served(cluster, group).await? {
            served.push(group);
        }
    }
    Ok(served)
}

/// The maintenances of a group as the server sends them, with fields that this program does not know; nothing where an
/// older group is not served, which is as it should be.
///
/// # Errors
///
/// When the server cannot be asked or refuses, or does not know our own group.
pub(crate) async fn raw(cluster: &Cluster, group: Group) -> Result<Option<Vec<Value>>, Error> {
    if !is_to_be_asked(cluster, group).await? {
        return Ok(None);
    }
    let (version, kind) = (Grouped::api_version(&group), Grouped::kind(&group));
    objects::list(cluster, (&version, &kind), None, &ListParams::default()).await.map(Some)
}

/// Asks for the end of a maintenance, unless it is another one by now.
///
/// # Errors
///
/// When the server cannot be asked or refuses.
pub(crate) async fn end(cluster: &Cluster, object: &Grouped) -> Result<(), Error> {
    let api: Api<Grouped> = Api::all_with(cluster.client(), &object.group);
    let exactly = Preconditions { uid: object.maintenance.uid(), resource_version: None };
    let params = DeleteParams { preconditions: Some(exactly), ..DeleteParams::default() };
    let (name, asked) = (object.maintenance.name_any(), format!("delete {}", resource(object.group)));
    match cluster.ask(&asked, async || api.delete(&name, &params).await).await {
        Err(error) if error.status().is_some_and(|status| status.is_not_found() || status.is_conflict()) => {
            Ok(())
        }
        answer => answer.map(drop),
    }
}

/// Our own group is asked for in any case: that it is not served is something to tell.
async fn is_to_be_asked(cluster: &Cluster, group: Group) -> Result<bool, Error> {
    Ok(group.name() == GROUP || is_served(cluster, group).await?)
}

/// Discovery is open to everybody: who may not list a group that nobody has installed is not told of a missing right.
async fn is_served(cluster: &Cluster, group: Group) -> Result<bool, Error> {
    let (client, version) = (cluster.client(), format!("{}/{}", group.name(), group.version()));
    let asked = format!("get /apis/{version}");
    let plural = NodeMaintenance::plural(&());
    match cluster.ask(&asked, async || client.list_api_group_resources(&version).await).await {
        // The first of these definitions was one of namespaced objects, which nobody serves.
        Ok(found) => Ok(found.resources.iter().any(|found| found.name == plural && !found.namespaced)),
        Err(error) if error.is_unserved() => Ok(false),
        Err(error) if error.status().is_some_and(Status::is_not_found) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn listed(cluster: &Cluster, group: Group) -> Result<Vec<Grouped>, Error> {
    let api: Api<Grouped> = Api::all_with(cluster.client(), &group);
    let (everything, asked) = (ListParams::default(), format!("list {}", resource(group)));
    match cluster.ask(&asked, async || api.list(&everything).await).await {
        Ok(found) => Ok(found.items),
        Err(error) if error.is_unserved() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn resource(group: Group) -> String {
    group.definition()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::cluster::tests::{cluster, failure};

    #[tokio::test]
    async fn a_group_that_nobody_installed_is_not_listed_and_one_that_is_is() {
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
        end(&cluster, &found[0]).await.unwrap();
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
    async fn of_the_older_groups_only_a_refusal_is_a_failure() {
        let (cluster, _) = cluster(|_, path| match path {
            _ if path.starts_with("/apis/nodemaintenance.kubevirt.io/") => failure(403, "Forbidden", ""),
            _ => failure(404, "NotFound", ""),
        });
        assert_eq!(raw(&cluster, Group::Kubevirt).await.unwrap(), None);
        assert!(raw(&cluster, Group::NodeMaintenanceKubevirt).await.is_err());
        assert!(matches!(raw(&cluster, Group::Medik8s).await, Err(Error::NotInstalled { .. })));
    }
}
