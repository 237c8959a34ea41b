//! Reads the pods of Deployments whose rollouts pods wait for.

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::core::Selector;
use nm_shared::PodReference;

use crate::client::cluster::Cluster;
use crate::explain::bounded_requests::{MAX_PODS, get, list};
use crate::explain::cluster_facts::{ReadPod, Unseen};
use crate::explain::obstacle::Obstacle;
use crate::explain::owner::{Owner, OwnerKind, owner_of};
use crate::explain::read_warnings::{MAX_DETAILS, warnings_about};

/// The pods of a Deployment, the first that are not Ready with the warnings about them.
pub(super) async fn pods_of(
    cluster: &Cluster,
    name: &PodReference,
    now: Timestamp,
) -> Result<Vec<ReadPod>, Unseen> {
    let deployment = get::<Deployment>(cluster, "deployments.apps", name).await?;
    let selector = deployment.and_then(|deployment| Selector::try_from(deployment.spec?.selector).ok());
    // The other pods of the namespace do not show anything about it.
    let Some(selector) = selector else { return Ok(Vec::new()) };
    let pods: Api<Pod> = Api::namespaced(cluster.client(), &name.namespace);
    let selected = ListParams::default().labels_from(&selector).limit(MAX_PODS);
    let pods = list(cluster, &pods, "list pods", selected).await?;
    let own = Owner::new(OwnerKind::Deployment, &name.name);
    let own = pods.into_iter().filter(|pod| owner_of(pod).as_ref() == Some(&own));
    let (unready, ready): (Vec<Pod>, Vec<Pod>) = own.partition(|pod| Obstacle::of(pod, &[], now).is_some());
    let unready = unready.into_iter().enumerate().map(async |(at, pod)| {
        let warnings = if at < MAX_DETAILS { warnings_about(cluster, &pod).await } else { Vec::new() };
        ReadPod { pod, warnings }
    });
    let ready = ready.into_iter().map(|pod| ReadPod { pod, warnings: Vec::new() });
    Ok(join_all(unready).await.into_iter().chain(ready).collect())
}
