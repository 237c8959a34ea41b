//! Reads and changes a roll in the cluster.

use std::sync::Arc;

use futures::future::try_join_all;
use kube::ResourceExt;
use kube::core::Status;
use nm_shared::NodeMaintenance;

use crate::client::cluster::Cluster;
use crate::error::Error;
use crate::error::roll_error::RollError;
use crate::maintenance::uid;
use crate::roll::job;
use crate::roll::record::{self, Roll, RollNode, RollRecord, STATE, Step};
use crate::roll::settings::NodeAction;

const MAX_ATTEMPTS: usize = 10;

/// The roll of this name.
pub(crate) async fn load(cluster: &Cluster, name: &str) -> Result<Roll, Error> {
    let all: Vec<_> = cluster.maintenances().await?.into_iter().map(Arc::new).collect();
    Ok(Roll::find(name, &all)?.ok_or_else(|| RollError::Unknown(name.to_owned()))?)
}

/// Changes the record of a roll whose maintenances are all created. If somebody else writes it at the same time, the
/// change is made again. Returns the roll and the record that was written.
pub(crate) async fn update(
    cluster: &Cluster,
    name: &str,
    change: impl Fn(&Roll, RollRecord) -> Result<RollRecord, Error>,
) -> Result<(Roll, RollRecord), Error> {
    for _ in 0..MAX_ATTEMPTS {
        let roll = load(cluster, name).await?;
        let record = roll.complete_record()?.next();
        let record = change(&roll, record)?;
        let Some(anchor) = roll.anchor(&record) else { return Ok((roll, record)) };
        match write_record(cluster, &anchor.object, &record).await {
            Ok(_) => return Ok((roll, record)),
            Err(error) if is_outdated(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Err(RollError::Contended.into())
}

/// Pauses a roll or lets it continue: whether further nodes begin, and the drains that are under way. Returns the roll as it
/// was before, and its new record.
pub(crate) async fn pause(cluster: &Cluster, name: &str, paused: bool) -> Result<(Roll, RollRecord), Error> {
    let (roll, record) = update(cluster, name, |_, record| Ok(RollRecord { paused, ..record })).await?;
    suspend_drains(cluster, &roll, paused).await?;
    Ok((roll, record))
}

/// Pauses or resumes the drains of a roll that are under way.
pub(crate) async fn suspend_drains(cluster: &Cluster, roll: &Roll, suspend: bool) -> Result<(), Error> {
    let draining = roll.nodes.iter().filter(|node| {
        node.record.step == Step::Draining && node.object.spec.suspend != suspend && !node.is_deleted()
    });
    try_join_all(draining.map(async |node| {
        cluster.suspend(&node.object.name_any(), &uid(&node.object), suspend, false).await
    }))
    .await?;
    Ok(())
}

/// Writes the record of a roll to a maintenance, on condition that this is its current version.
pub(crate) async fn write_record(
    cluster: &Cluster,
    anchor: &NodeMaintenance,
    record: &RollRecord,
) -> Result<NodeMaintenance, Error> {
    cluster.patch(&anchor.name_any(), &record::annotation_patch(anchor, STATE, record), false).await
}

/// Whether the object was changed or deleted since it was read.
pub(crate) fn is_outdated(error: &Error) -> bool {
    error.status().is_some_and(|status| Status::is_conflict(status) || Status::is_not_found(status))
}

/// Deletes the maintenances of some nodes of a roll, and the Jobs that run on them. First, the record moves to a
/// maintenance that stays.
pub(crate) async fn remove<'a>(
    cluster: &Cluster,
    roll: &Roll,
    record: &RollRecord,
    nodes: impl IntoIterator<Item = &'a RollNode>,
) -> Result<(), Error> {
    let nodes: Vec<&RollNode> = nodes.into_iter().collect();
    let mut rest = roll.clone();
    rest.nodes.retain(|node| !nodes.iter().any(|removed| removed.node() == node.node()));
    let anchor = roll.anchor(record).map(RollNode::node);
    if let Some(next) = rest.anchor(record).filter(|next| Some(next.node()) != anchor) {
        match write_record(cluster, &next.object, &record.next()).await {
            // It was changed meanwhile: the runner writes the record again, or its history is lost, and nothing else.
            Ok(_) => {}
            Err(error) if is_outdated(&error) => {}
            Err(error) => return Err(error),
        }
    }
    let existing = nodes.into_iter().filter(|node| !node.is_deleted());
    try_join_all(existing.map(async |node| {
        if let (Step::Acting, Some(NodeAction::Job(template))) = (node.record.step, &roll.settings.action) {
            job::delete(cluster, &job::of_node(template, &roll.name, node)).await?;
        }
        cluster.delete(&node.object.name_any(), &uid(&node.object)).await
    }))
    .await?;
    Ok(())
}
