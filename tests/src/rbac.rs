//! Users with few permissions.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::workload::parse;

/// A service account by name and namespace.
pub fn service_account(name: &str, namespace: &str) -> ServiceAccount {
    parse(json!({"metadata": {"name": name, "namespace": namespace}}))
}

/// A `ClusterRole` with these rules, bound to the service account `default` of a namespace.
pub async fn bind_cluster_role(cluster: &Cluster, role: &str, namespace: &str, rules: &[Value]) {
    let binding: ClusterRoleBinding = parse(json!({
        "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
    }));
    let role: ClusterRole = parse(json!({"metadata": {"name": role}, "rules": rules}));
    let params = PostParams::default();
    Api::all(cluster.client.clone()).create(&params, &role).await.unwrap();
    Api::all(cluster.client.clone()).create(&params, &binding).await.unwrap();
}

/// The permission of a service account `default` to do everything with maintenances, and nothing else.
pub struct MaintenanceAccess(String);

impl MaintenanceAccess {
    /// Grants it.
    pub async fn grant(cluster: &Cluster, account: &ServiceAccount) -> Self {
        Self::grant_with(cluster, account, &[]).await
    }

    /// Grants it together with the permission to list these resources, as `RESOURCE.GROUP`, in all namespaces.
    pub async fn grant_with(cluster: &Cluster, account: &ServiceAccount, lists: &[&str]) -> Self {
        let namespace = account.namespace().unwrap();
        let role = format!("{namespace}-maintainer");
        let own = json!({"apiGroups": ["nodemaintenance.medik8s.io"], "resources": ["nodemaintenances"], "verbs": ["*"]});
        let list = |name: &&str| {
            let (resource, group) = name.split_once('.').unwrap_or((name, ""));
            json!({"apiGroups": [group], "resources": [resource], "verbs": ["get", "list"]})
        };
        let rules: Vec<Value> = std::iter::once(own).chain(lists.iter().map(list)).collect();
        bind_cluster_role(cluster, &role, &namespace, &rules).await;
        Self(role)
    }

    /// Revokes it.
    pub async fn revoke(self, cluster: &Cluster) {
        let params = DeleteParams::default();
        Api::<ClusterRoleBinding>::all(cluster.client.clone()).delete(&self.0, &params).await.unwrap();
        Api::<ClusterRole>::all(cluster.client.clone()).delete(&self.0, &params).await.unwrap();
    }
}
