//! Whether nm-reconciler has the permissions of a grant.

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, ListParams};
use nm_shared::Grant;

use crate::client::cluster::Cluster;
use crate::client::list_pages::list_pages;
use crate::client::objects::is_allowed;
use crate::client::reconciler_deployment::LABEL_SELECTOR;
use crate::error::Error;

/// Whether nm-reconciler has the permissions of a grant; none if that cannot be found out.
///
/// # Errors
///
/// If its Deployments cannot be listed.
pub(crate) async fn read(cluster: &Cluster, grant: Grant) -> Result<Option<bool>, Error> {
    let (all, labelled) = (Api::all(cluster.client()), ListParams::default().labels(LABEL_SELECTOR));
    let deployments: Vec<Deployment> =
        list_pages(&all, cluster, "list deployments.apps", labelled, Vec::push).await?;
    Ok(is_granted(&accounts(&deployments), grant, cluster).await)
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

/// Whether one of these users has the permissions of a grant; none if that cannot be found out.
pub(crate) async fn is_granted(accounts: &[String], grant: Grant, cluster: &Cluster) -> Option<bool> {
    let mut granted = if accounts.is_empty() { None } else { Some(false) };
    for account in accounts {
        match has_all(account, grant, cluster).await {
            Ok(true) => return Some(true),
            Ok(false) => {}
            Err(_) => granted = None,
        }
    }
    granted
}

async fn has_all(account: &str, grant: Grant, cluster: &Cluster) -> Result<bool, Error> {
    for &permission in grant.permissions() {
        if !is_allowed(cluster, Some(account), &permission.into()).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::fake_server::{failure, reading_cluster};

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
        let is_granted = async |accounts: &[&str]| {
            let accounts: Vec<String> = accounts.iter().map(|name| (*name).to_owned()).collect();
            is_granted(&accounts, Grant::PodDeletion, &cluster).await
        };
        assert_eq!(is_granted(&["ada", "system:serviceaccount:nm:nm-reconciler"]).await, Some(true));
        assert_eq!(is_granted(&["ada"]).await, Some(false));
        assert_eq!(is_granted(&[]).await, None);
    }

    #[tokio::test]
    async fn a_review_that_fails_shows_nothing() {
        let cluster = reading_cluster(|_, _, _| failure(403, "Forbidden", "no"));
        assert_eq!(is_granted(&[String::from("ada")], Grant::Surge, &cluster).await, None);
    }
}
