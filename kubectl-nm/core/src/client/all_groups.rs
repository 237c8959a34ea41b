//! Maintenances of every API group that the cluster serves: the current group, and two older ones from before the operator
//! moved to medik8s.
//!
//! nm-reconciler reconciles all of them, so every command that shows or stops maintenances takes all into account. Commands that
//! create or change them use the current group only.

use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt};
use nm_shared::{Group, GroupedMaintenance, NodeMaintenance};
use serde_json::Value;

use crate::client::cluster::{Cluster, Deletion};
use crate::client::objects;
use crate::error::Error;
use crate::terminal::text::Line;

/// Lists the maintenances of every API group. A group that is not served has none.
///
/// # Errors
///
/// If a request fails.
pub async fn maintenances(cluster: &Cluster) -> Result<Vec<GroupedMaintenance>, Error> {
    let each = Group::ALL.map(|group| list_group(cluster, group));
    Ok(futures::future::try_join_all(each).await?.into_iter().flatten().collect())
}

/// What a command shows of the older groups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OlderGroups {
    /// The older groups whose maintenances were listed.
    pub shown: Vec<Group>,
    /// What is not shown, and why.
    pub warnings: Vec<Line>,
}

impl OlderGroups {
    fn warn(&mut self, what: &str) {
        self.warnings.push(Line::new(format!("warning: {what}")));
    }
}

/// The maintenances of all groups, for commands that show them.
///
/// # Errors
///
/// If the maintenances of the current group cannot be listed. Problems with an older group become warnings.
pub async fn shown(cluster: &Cluster) -> Result<(Vec<GroupedMaintenance>, OlderGroups), Error> {
    shown_as(cluster, async |group| list_served(cluster, group).await).await
}

/// The same as the server sends them, including fields that this program does not know.
///
/// # Errors
///
/// If the maintenances of the current group cannot be listed. Problems with an older group become warnings.
pub async fn shown_raw(cluster: &Cluster) -> Result<(Vec<Value>, OlderGroups), Error> {
    shown_as(cluster, async |group| list_served_raw(cluster, group).await).await
}

async fn shown_as<T>(
    cluster: &Cluster,
    list: impl AsyncFn(Group) -> Result<Vec<T>, Error>,
) -> Result<(Vec<T>, OlderGroups), Error> {
    // Where discovery fails, the command still shows the maintenances of the current group.
    let (current, older) = futures::join!(list(Group::Medik8s), older_groups(cluster));
    let (mut found, mut groups) = (current?, OlderGroups::default());
    for group in older.unwrap_or_default() {
        match list(group).await {
            Ok(objects) => {
                found.extend(objects);
                groups.shown.push(group);
            }
            Err(error) if error.is_unserved() => {}
            Err(error) if error.is_forbidden() => {
                let definition = group.definition();
                groups.warn(&format!("you lack permission to list {definition}, so none are shown"));
            }
            Err(error) => groups.warn(&format!("{} are not shown: {error}", group.definition())),
        }
    }
    Ok((found, groups))
}

/// All maintenances of a group; none if it is not served.
pub(crate) async fn list_group(cluster: &Cluster, group: Group) -> Result<Vec<GroupedMaintenance>, Error> {
    if !must_be_listed(cluster, group).await? {
        return Ok(Vec::new());
    }
    match list_served(cluster, group).await {
        Err(error) if error.is_unserved() => Ok(Vec::new()),
        found => found,
    }
}

async fn list_served(cluster: &Cluster, group: Group) -> Result<Vec<GroupedMaintenance>, Error> {
    let api: Api<GroupedMaintenance> = Api::all_with(cluster.client(), &group);
    cluster.list(&api, &group.definition(), &ListParams::default()).await
}

/// The older API groups that the cluster serves. Uses discovery, which needs no permission.
///
/// # Errors
///
/// If a discovery request fails.
pub async fn older_groups(cluster: &Cluster) -> Result<Vec<Group>, Error> {
    let client = cluster.client();
    // Most clusters have neither group, which this shows in one request.
    let groups = cluster.request("get /apis", async || client.list_api_groups().await).await?.groups;
    let is_there = |group: &Group| groups.iter().any(|found| found.name == group.name());
    let mut served = Vec::new();
    for group in Group::ALL.into_iter().filter(|group| *group != Group::Medik8s && is_there(group)) {
        if is_served(cluster, group).await? {
            served.push(group);
        }
    }
    Ok(served)
}

/// The maintenances of a group as the server sends them, including fields that this program does not know; `None` if an
/// older group is not served.
///
/// # Errors
///
/// If a request fails, or if the current group is not served.
pub async fn list_raw(cluster: &Cluster, group: Group) -> Result<Option<Vec<Value>>, Error> {
    if !must_be_listed(cluster, group).await? {
        return Ok(None);
    }
    list_served_raw(cluster, group).await.map(Some)
}

async fn list_served_raw(cluster: &Cluster, group: Group) -> Result<Vec<Value>, Error> {
    let (version, kind) = (GroupedMaintenance::api_version(&group), GroupedMaintenance::kind(&group));
    objects::list(cluster, (&version, &kind), None, &ListParams::default()).await
}

/// Deletes the maintenance with this name and uid, whether it is one of the current group or of an older group of `cluster`.
///
/// # Errors
///
/// If a request fails. A missing or replaced object is not an error: see [`Deletion`].
pub async fn delete_by_uid(cluster: &Cluster, name: &str, uid: &str) -> Result<Deletion, Error> {
    let in_current = cluster.delete(name, uid).await?;
    for &group in cluster.older_groups() {
        if in_current == Deletion::UnderWay {
            break;
        }
        let api: Api<GroupedMaintenance> = Api::all_with(cluster.client(), &group);
        let uid = Some(uid.to_owned());
        if cluster.delete_exactly(&api, &group.definition(), name, uid).await? == Deletion::UnderWay {
            return Ok(Deletion::UnderWay);
        }
    }
    Ok(in_current)
}

/// Deletes a maintenance, unless another one has its name by now.
///
/// # Errors
///
/// If the request fails. A missing or replaced object is not an error: see [`Deletion`].
pub async fn delete(cluster: &Cluster, object: &GroupedMaintenance) -> Result<Deletion, Error> {
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
    use std::sync::{Arc, Mutex};

    use serde_json::json;

    use super::*;
    use crate::testing::fake_server::{cluster, failure};

    /// A cluster that also serves `nodemaintenance.kubevirt.io`, where lists of it are answered with this code.
    fn with_an_older_group(code: u16) -> (Cluster, Arc<Mutex<Vec<String>>>) {
        let object = |version: &str, name: &str| {
            json!({"apiVersion": version, "kind": "NodeMaintenance", "metadata": {"name": name, "uid": format!("uid-{name}")},
                "spec": {"nodeName": name}})
        };
        let list = move |version: &str, name: &str| json!({"kind": "NodeMaintenanceList", "apiVersion": version, "metadata": {}, "items": [object(version, name)]});
        cluster(move |method, path| {
            let (group, older) =
                (Group::NodeMaintenanceKubevirt.name(), "nodemaintenance.kubevirt.io/v1beta1");
            match (method, path) {
                ("DELETE", "/apis/nodemaintenance.kubevirt.io/v1beta1/nodemaintenances/n2") => {
                    (200, object(older, "n2"))
                }
                ("DELETE", _) => failure(404, "NotFound", "n2"),
                (_, "/apis") => (
                    200,
                    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [{"name": group, "versions": [
                        {"groupVersion": older, "version": "v1beta1"}]}]}),
                ),
                (_, "/apis/nodemaintenance.kubevirt.io/v1beta1") => (
                    200,
                    json!({"kind": "APIResourceList", "groupVersion": older, "resources": [
                        {"name": "nodemaintenances", "singularName": "nodemaintenance", "namespaced": false,
                         "kind": "NodeMaintenance", "verbs": ["list"]}]}),
                ),
                (_, "/apis/nodemaintenance.kubevirt.io/v1beta1/nodemaintenances") if code == 200 => {
                    (200, list(older, "n2"))
                }
                (_, "/apis/nodemaintenance.kubevirt.io/v1beta1/nodemaintenances") => {
                    failure(code, if code == 403 { "Forbidden" } else { "InternalError" }, "x")
                }
                _ => (200, list("nodemaintenance.medik8s.io/v1beta1", "n1")),
            }
        })
    }

    #[tokio::test]
    async fn maintenances_of_an_older_group_are_shown_unless_they_cannot_be_listed() {
        let older = Group::NodeMaintenanceKubevirt;
        for (code, nodes, warnings) in
            [(200, vec!["n1", "n2"], 0), (403, vec!["n1"], 1), (500, vec!["n1"], 1)]
        {
            let (cluster, _) = with_an_older_group(code);
            let (found, groups) = shown(&cluster).await.unwrap();
            assert_eq!(found.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), nodes);
            assert_eq!(groups.shown, if code == 200 { vec![older] } else { vec![] });
            assert_eq!(groups.warnings.len(), warnings);
            let (raw, _) = shown_raw(&cluster).await.unwrap();
            assert_eq!(raw.len(), nodes.len());
        }
    }

    #[tokio::test]
    async fn a_maintenance_of_an_older_group_is_deleted_by_its_uid() {
        let (cluster, requests) = with_an_older_group(200);
        assert_eq!(delete_by_uid(&cluster, "n2", "uid-n2").await.unwrap(), Deletion::Gone);
        assert_eq!(requests.lock().unwrap().len(), 1, "the older groups are not known");
        let cluster = cluster.with_older_groups(&[Group::NodeMaintenanceKubevirt]);
        assert_eq!(delete_by_uid(&cluster, "n2", "uid-n2").await.unwrap(), Deletion::UnderWay);
    }

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
