//! Maintenances of every group that the cluster serves: our own, and the two from before the operator moved to medik8s.
//!
//! nm-reconciler serves all of them, so who removes it or looks for what it left behind must know of all. Other commands
//! are about our own group.

use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Preconditions};
use kube::core::Status;
use nm_shared::names::GROUP;
use nm_shared::{Group, Grouped, NodeMaintenance};

use crate::cluster::Cluster;
use crate::error::Error;

/// All maintenances, whichever group they are of; none of a group that is not served.
///
/// # Errors
///
/// When the server cannot be asked or refuses.
pub(crate) async fn maintenances(cluster: &Cluster) -> Result<Vec<Grouped>, Error> {
    let each = Group::ALL.map(async |group| {
        let is_served = group.name() == GROUP || is_served(cluster, group).await?;
        if is_served { of_group(cluster, group).await } else { Ok(Vec::new()) }
    });
    Ok(futures::future::try_join_all(each).await?.into_iter().flatten().collect())
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

/// Discovery is open to everybody: who may not list a group that nobody has installed is not told of a missing right.
async fn is_served(cluster: &Cluster, group: Group) -> Result<bool, Error> {
    let (client, version) = (cluster.client(), format!("{}/{}", group.name(), group.version()));
    let asked = format!("get /apis/{version}");
    let plural = <NodeMaintenance as kube::Resource>::plural(&());
    match cluster.ask(&asked, async || client.list_api_group_resources(&version).await).await {
        Ok(found) => Ok(found.resources.iter().any(|resource| resource.name == plural)),
        Err(Error::NotInstalled { .. }) => Ok(false),
        Err(error) if error.status().is_some_and(Status::is_not_found) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn of_group(cluster: &Cluster, group: Group) -> Result<Vec<Grouped>, Error> {
    let api: Api<Grouped> = Api::all_with(cluster.client(), &group);
    let (everything, asked) = (ListParams::default(), format!("list {}", resource(group)));
    match cluster.ask(&asked, async || api.list(&everything).await).await {
        Ok(found) => Ok(found.items),
        Err(Error::NotInstalled { .. }) => Ok(Vec::new()),
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
    use crate::cluster::tests::{cluster, failure};

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
}
