//! Pausing and resuming maintenances, for `pause`, `resume` and the dashboard.

use kube::ResourceExt;
use nm_shared::NodeMaintenance;

use crate::client::cluster::Cluster;
use crate::error::Error;
use crate::maintenance::{node, status, uid};

/// Sets or clears `spec.suspend`, unless nothing would heed it. Returns the maintenance as it was at that moment.
///
/// # Errors
///
/// If the definition lacks the field ([`Error::SuspendPruned`]), if the medik8s operator manages the maintenance
/// ([`Error::SuspendIgnored`]), or if the request fails.
pub async fn suspend(
    cluster: &Cluster,
    object: &NodeMaintenance,
    suspend: bool,
) -> Result<NodeMaintenance, Error> {
    let (name, uid) = (object.name_any(), uid(object));
    // The medik8s operator writes no conditions, and its definition would prune ours.
    if suspend && status(object).phase.is_some() && status(object).conditions.is_empty() {
        check_kept(&cluster.suspend(&name, &uid, suspend, true).await?, suspend)?;
        return Err(Error::SuspendIgnored(node(object).to_owned()));
    }
    let changed = cluster.suspend(&name, &uid, suspend, false).await?;
    check_kept(&changed, suspend)?;
    Ok(changed)
}

/// Checks that the API server has kept `spec.suspend` of an object that it returned.
pub(crate) fn check_kept(answer: &NodeMaintenance, suspend: bool) -> Result<(), Error> {
    if answer.spec.suspend == suspend { Ok(()) } else { Err(Error::SuspendPruned) }
}
