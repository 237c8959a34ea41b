//! Reads and changes the record of a roll in the cluster, for commands that do not run it.

use std::sync::Arc;

use futures::future::try_join_all;
use kube::ResourceExt;

use crate::client::cluster::Cluster;
use crate::error::Error;
use crate::error::roll_error::RollError;
use crate::maintenance::uid;
use crate::roll::job;
use crate::roll::record::{Roll, RollNode, RollRecord, Step};
use crate::roll::runner::{is_outdated, write_record};
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
