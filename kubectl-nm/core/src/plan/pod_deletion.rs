//! Whether nm-reconciler may delete pods, which `--delete-after` needs. Without the permission, refused pods stay blocked.

use k8s_openapi::api::apps::v1::Deployment;
use nm_shared::Grant;

use crate::client::cluster::Cluster;
use crate::client::objects::{Permission, is_allowed};

/// The users that the Deployments of nm-reconciler run as.
pub(super) fn accounts(deployments: &[Deployment]) -> Vec<String> {
    let account = |deployment: &Deployment| {
        let namespace = deployment.metadata.namespace.as_deref()?;
        let spec = deployment.spec.as_ref()?.template.spec.as_ref()?;
        let name = spec.service_account_name.as_deref().unwrap_or("default");
        Some(format!("system:serviceaccount:{namespace}:{name}"))
    };
    deployments.iter().filter_map(account).collect()
}

/// Whether none of these users may delete pods. False if that cannot be found out.
pub(super) async fn is_denied(accounts: &[String], cluster: &Cluster) -> bool {
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
