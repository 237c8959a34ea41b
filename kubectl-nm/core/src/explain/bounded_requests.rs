//! Requests that end in time, and whose failure is something that is not seen.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::Resource;
use kube::api::{Api, ListParams};
use kube::core::{NamespaceResourceScope, PartialObjectMeta};
use nm_shared::PodReference;
use serde::de::DeserializeOwned;

use crate::client::cluster::Cluster;
use crate::error::Error;
use crate::explain::cluster_facts::Unseen;

/// How many budgets are read at the same time.
pub(super) const MAX_CONCURRENT: usize = 8;

/// How many pods of a budget are read. Of a larger workload, the rest is unseen.
pub(super) const MAX_PODS: u32 = 1000;

/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(10);

pub(super) async fn get<K>(
    cluster: &Cluster,
    resource: &str,
    name: &PodReference,
) -> Result<Option<K>, Unseen>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(cluster.client(), &name.namespace);
    let asked = format!("get {resource}");
    within_timeout(&asked, cluster.request(&asked, async || api.get_opt(&name.name).await)).await
}

pub(super) async fn list<K>(
    cluster: &Cluster,
    api: &Api<K>,
    asked: &str,
    which: ListParams,
) -> Result<Vec<K>, Unseen>
where
    K: Clone + Debug + DeserializeOwned,
{
    let is_limited = which.limit.is_some();
    let (items, is_cut) = page(cluster, api, asked, which).await?;
    if is_limited && is_cut && asked == "list pods" {
        return Err(Unseen::Failed(asked.to_owned(), format!("there are more than {MAX_PODS}")));
    }
    Ok(items)
}

/// The objects of a list up to its limit, and whether there are more.
pub(super) async fn page<K>(
    cluster: &Cluster,
    api: &Api<K>,
    asked: &str,
    which: ListParams,
) -> Result<(Vec<K>, bool), Unseen>
where
    K: Clone + Debug + DeserializeOwned,
{
    let list = within_timeout(asked, cluster.request(asked, async || api.list(&which).await)).await?;
    let is_cut = is_cut(&list.metadata);
    Ok((list.items, is_cut))
}

/// The metadata of the objects of a list; unseen if there are more than its limit.
pub(super) async fn metadata<K>(
    cluster: &Cluster,
    api: &Api<K>,
    asked: &str,
    which: ListParams,
) -> Result<Vec<PartialObjectMeta<K>>, Unseen>
where
    K: Clone + Debug + DeserializeOwned,
{
    let list =
        within_timeout(asked, cluster.request(asked, async || api.list_metadata(&which).await)).await?;
    if let (Some(limit), true) = (which.limit, is_cut(&list.metadata)) {
        return Err(Unseen::Failed(asked.to_owned(), format!("there are more than {limit}")));
    }
    Ok(list.items)
}

fn is_cut(list: &ListMeta) -> bool {
    list.continue_.as_deref().is_some_and(|token| !token.is_empty())
}

pub(super) async fn within_timeout<T>(
    asked: &str,
    request: impl Future<Output = Result<T, Error>>,
) -> Result<T, Unseen> {
    let failed = |why: String| Unseen::Failed(asked.to_owned(), why);
    match tokio::time::timeout(TIMEOUT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) if error.is_forbidden() => Err(Unseen::Forbidden(asked.to_owned())),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed(format!("no answer within {} s", TIMEOUT.as_secs()))),
    }
}
