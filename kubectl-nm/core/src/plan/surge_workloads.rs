//! What controls the pods that may be replaced first. It is read only for a plan with `spec.drain.surge`.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Node, ResourceQuota};
use kube::Api;
use kube::api::ListParams;
use kube::core::Selector;
use nm_shared::cluster::pod::ReceivedPod;
use nm_shared::cluster::resource_quota;
use nm_shared::drain::budget_allowance::Budgets;
use nm_shared::drain::surge::{
    Workload, WorkloadKey, WorkloadState, deployment_of, keeps_pods_apart, nodes_for_replacements, revision,
};
use nm_shared::forecast::DrainPreview;

use crate::client::cluster::Cluster;
use crate::client::list_pages::list_pages;
use crate::client::unread::Unread;
use crate::error::Error;
use crate::plan::cluster_snapshot::ClusterSnapshot;

/// The `ReplicaSet`s of the pods that may be replaced first, with their Deployments. What the user may not read is added to
/// what is unknown.
///
/// # Errors
///
/// If a request fails for a reason other than missing permission.
pub(crate) async fn read(
    preview: &DrainPreview,
    snapshot: &mut ClusterSnapshot,
    cluster: &Cluster,
) -> Result<HashMap<WorkloadKey, WorkloadState>, Error> {
    let mut workloads = HashMap::new();
    let mut quotas: HashMap<String, Vec<ResourceQuota>> = HashMap::new();
    for key in preview.surge_candidates(&Budgets::from_objects(&snapshot.budgets)) {
        match workload(&key, cluster).await {
            Ok(mut workload) => {
                if !quotas.contains_key(&key.namespace) {
                    quotas.insert(key.namespace.clone(), read_quotas(&key.namespace, cluster).await?);
                }
                let pod = snapshot.pods.iter().find_map(|pods| pods.controlled_by(&key));
                workload.quota = pod.and_then(|pod| resource_quota::refusing(&quotas[&key.namespace], pod));
                workloads.insert(key, WorkloadState::Known(workload));
            }
            Err(Error::Server { asked, status }) if status.is_forbidden() => {
                let unknown = Unread::forbidden("which pods are replaced first", &asked);
                if !snapshot.unknown.contains(&unknown) {
                    snapshot.unknown.push(unknown);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(workloads)
}

/// The same with how many of the `nodes` that are left may take the replacements of Deployments that keep their pods apart.
pub(crate) fn with_nodes_left(
    workloads: &HashMap<WorkloadKey, WorkloadState>,
    nodes: &[&Node],
) -> HashMap<WorkloadKey, WorkloadState> {
    let mut workloads = workloads.clone();
    for state in workloads.values_mut() {
        if let WorkloadState::Known(workload) = state
            && workload.deployment.as_deref().is_some_and(keeps_pods_apart)
        {
            workload.nodes = nodes_for_replacements(workload, nodes.iter().copied());
        }
    }
    workloads
}

async fn workload(key: &WorkloadKey, cluster: &Cluster) -> Result<Workload, Error> {
    let sets: Api<ReplicaSet> = Api::namespaced(cluster.client(), &key.namespace);
    let set =
        cluster.request("get replicasets.apps", async || sets.get_metadata_opt(&key.name).await).await?;
    let set = set.map(|set| set.metadata).unwrap_or_default();
    let Some(name) = deployment_of(&set) else { return Ok(Workload::default()) };
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), &key.namespace);
    let deployment =
        cluster.request("get deployments.apps", async || deployments.get_opt(name).await).await?;
    let selector = deployment.as_ref().and_then(|deployment| deployment.spec.as_ref());
    let selector = selector.and_then(|spec| Selector::try_from(spec.selector.clone()).ok());
    let pods = match selector {
        Some(selector) => {
            let pods: Api<ReceivedPod> = Api::namespaced(cluster.client(), &key.namespace);
            let of_deployment = ListParams::default().labels_from(&selector);
            cluster.request("list pods", async || pods.list(&of_deployment).await).await?.items
        }
        None => Vec::new(),
    };
    let pods = pods.into_iter().map(|received| Arc::new(received.pod)).collect();
    let deployment = deployment.map(Arc::new);
    Ok(Workload { revision: revision(&set), deployment, pods, ..Workload::default() })
}

/// The quotas of a namespace; none without access, as a plan does not depend on them otherwise.
async fn read_quotas(namespace: &str, cluster: &Cluster) -> Result<Vec<ResourceQuota>, Error> {
    let quotas: Api<ResourceQuota> = Api::namespaced(cluster.client(), namespace);
    let what = "list resourcequotas";
    match list_pages(&quotas, cluster, what, ListParams::default(), Vec::push).await {
        Err(Error::Server { status, .. }) if status.is_forbidden() => Ok(Vec::new()),
        read => read,
    }
}
