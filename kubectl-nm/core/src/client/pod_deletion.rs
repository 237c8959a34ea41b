//! Whether nm-reconciler may delete pods, which `--delete-after` needs. Without the permission, refused pods stay blocked.

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, ListParams};
use nm_shared::Grant;

use crate::client::cluster::Cluster;
use crate::client::list_pages::list_pages;
use crate::client::objects::{Permission, is_allowed};
use crate::client::reconciler_deployment::LABEL_SELECTOR;
use crate::error::Error;

/// Whether nm-reconciler may not delete pods. False if that cannot be found out.
///
/// # Errors
///
/// If its Deployments cannot be listed.
pub(crate) async fn read(cluster: &Cluster) -> Result<bool, Error> {
    let (all, labelled) = (Api::all(cluster.client()), ListParams::default().labels(LABEL_SELECTOR));
    let deployments: Vec<Deployment> =
        list_pages(&all, cluster, "list deployments.apps", labelled, Vec::push).await?;
    Ok(is_denied(&accounts(&deployments), cluster).await)
}

/// The users that the Deployments of nm-reconciler run as.
pub(crate) fn accounts(deployments: &[Deployment]) -> Vec<String> {
    let account = |deployment: &Deployment| {
        let namespace = deployment.metadata.namespace.as_deref()?;
        let spec = deployment.spec.as_ref()?.template.spec.as_ref()?;
        let name = spec.service_account_name.as_deref().unwrap_or("default");
        Some(format!("system:serviceaccount:{namespace}:{name}"))
    };
    deployments.iter().filter_map(account).collect()
}

/// Whether none of these users may delete pods. False if that cannot be found out.
pub(crate) async fn is_denied(accounts: &[String], cluster: &Cluster) -> bool {
    for account in accounts {
        for &(verb, group, resource) in Grant::PodDeletion.permissions() {
            let permission = Permission { verb, group: group.to_owned(), resource: resource.to_owned() };
            if is_allowed(cluster, Some(account), &permission).await.unwrap_or(true) {
                return false;
            }
        }
    }
    !accounts.is_empty()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::fake_server::reading_cluster;

    #[tokio::test]
    async fn a_permission_of_the_groups_of_a_service_account_is_one_of_the_account() {
        let cluster = reading_cluster(|_, _, review| {
            let groups = review["spec"]["groups"].as_array().into_iter().flatten();
            let groups: Vec<&str> = groups.filter_map(|group| group.as_str()).collect();
            let of_account = ["system:serviceaccounts", "system:serviceaccounts:nm", "system:authenticated"];
            (
                201,
                json!({"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {},
                "status": {"allowed": groups == of_account}}),
            )
        });
        assert!(!is_denied(&[String::from("system:serviceaccount:nm:nm-reconciler")], &cluster).await);
        assert!(is_denied(&[String::from("ada")], &cluster).await);
    }
}
