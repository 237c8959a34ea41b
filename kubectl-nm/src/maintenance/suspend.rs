//! Pausing and resuming maintenances, for `pause`, `resume` and the dashboard.

use kube::ResourceExt;
use nm_shared::NodeMaintenance;

use crate::client::cluster::Cluster;
use crate::error::Error;
use crate::maintenance::{node, status, uid};

/// Sets or clears `spec.suspend`, unless nothing would heed it.
pub(crate) async fn suspend(cluster: &Cluster, object: &NodeMaintenance, suspend: bool) -> Result<(), Error> {
    // The medik8s operator writes no conditions.
    if suspend && status(object).phase.is_some() && status(object).conditions.is_empty() {
        return Err(Error::SuspendIgnored(node(object).to_owned()));
    }
    check_kept(&cluster.suspend(&object.name_any(), &uid(object), suspend).await?, suspend)
}

/// Checks that the API server has kept `spec.suspend` of an object that it answered.
pub(crate) fn check_kept(answer: &NodeMaintenance, suspend: bool) -> Result<(), Error> {
    if answer.spec.suspend == suspend { Ok(()) } else { Err(Error::SuspendPruned) }
}
