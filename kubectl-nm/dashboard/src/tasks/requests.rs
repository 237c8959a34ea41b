//! What the dashboard changes in the cluster: each request is sent, and its result is in words.

use nm_core::client::cluster::Cluster;

use crate::message::{ClusterRequest, CommandError};
use crate::tasks::{actions, pod_requests};

pub(crate) async fn send(cluster: &Cluster, request: ClusterRequest) -> Result<String, CommandError> {
    match request {
        ClusterRequest::Start(wanted) => actions::start(cluster, &wanted).await,
        ClusterRequest::Stop(unwanted) => actions::stop(cluster, &unwanted, false).await,
        ClusterRequest::StopKeepingCordons(unwanted) => actions::stop(cluster, &unwanted, true).await,
        ClusterRequest::Pause { targets, pause } => actions::suspend(cluster, &targets, pause).await,
        ClusterRequest::Evict { target, uid } => pod_requests::evict(cluster, &target, &uid).await,
        ClusterRequest::DeletePod { target, uid } => pod_requests::delete(cluster, &target, &uid).await,
    }
}
