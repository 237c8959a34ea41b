//! Carries out the changes of one decision. This is one future that borrows nothing from the runner, so that the runner
//! continues meanwhile: a server that does not respond delays neither the output of commands nor the input.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::join_all;
use kube::ResourceExt;
use nm_shared::NodeMaintenance;
use serde_json::json;

use crate::client::cluster::Cluster;
use crate::error::Error;
use crate::roll::decide::RollChange;
use crate::roll::health;
use crate::roll::job;
use crate::roll::observed::NodeView;
use crate::roll::record::{self, NODE, NodeRecord, Roll, RollNode, RollRecord, Step};
use crate::roll::settings::NodeAction;
use crate::roll::store;

/// The results of the changes of one decision.
pub(super) struct Applied {
    pub(super) roll: Roll,
    /// The objects as they were written.
    pub(super) objects: Vec<NodeMaintenance>,
    pub(super) outcomes: Vec<(RollChange, Result<(), Error>)>,
}

/// Writes the record, if it is one of the changes, and then carries out the other changes concurrently. If the record cannot
/// be written, nothing else is changed, unless the roll has halted: then the results of its actions are still stored.
pub(super) async fn apply(
    cluster: &Cluster,
    roll: Roll,
    changes: Vec<RollChange>,
    nodes: BTreeMap<String, NodeView>,
    has_halted: bool,
) -> Applied {
    let mut applied = Applied { roll, objects: Vec::new(), outcomes: Vec::new() };
    let mut changes = changes.into_iter().peekable();
    if let Some(RollChange::Record(record)) =
        changes.next_if(|change| matches!(change, RollChange::Record(_)))
    {
        let written = write_record(cluster, &mut applied.roll, &record).await;
        let is_written = written.is_ok();
        let outcome = written.map(|object| applied.objects.extend(object));
        applied.outcomes.push((RollChange::Record(record), outcome));
        if !is_written && !has_halted {
            return applied;
        }
    }
    let roll = &applied.roll;
    let carried_out = join_all(changes.map(async |change| {
        let outcome = carry_out(cluster, roll, &change, &nodes).await;
        (change, outcome)
    }))
    .await;
    for (change, outcome) in carried_out {
        let outcome = outcome.map(|object| applied.objects.extend(object));
        applied.outcomes.push((change, outcome));
    }
    applied
}

/// Writes the record of the roll to the anchor, and returns the new object of it. The other changes are made to that.
async fn write_record(
    cluster: &Cluster,
    roll: &mut Roll,
    record: &RollRecord,
) -> Result<Option<NodeMaintenance>, Error> {
    let Some(anchor) = roll.anchor(record).map(|anchor| anchor.node().to_owned()) else { return Ok(None) };
    let Some(anchor) = roll.nodes.iter_mut().find(|node| node.node() == anchor) else { return Ok(None) };
    let object = store::write_record(cluster, &anchor.object, record).await?;
    anchor.object = Arc::new(object.clone());
    Ok(Some(object))
}

/// Returns the object that was written, if one was.
async fn carry_out(
    cluster: &Cluster,
    roll: &Roll,
    change: &RollChange,
    nodes: &BTreeMap<String, NodeView>,
) -> Result<Option<NodeMaintenance>, Error> {
    let node = change.node().and_then(|name| roll.node(name));
    match (change, node) {
        (RollChange::Record(_), _) | (_, None) => Ok(None),
        (RollChange::Begin(name, record), Some(node)) => {
            let Some(view) = nodes.get(name) else { return Ok(None) };
            let baseline = health::baseline(cluster, name, view).await?;
            let record = NodeRecord { baseline, ..record.clone() };
            write_node(cluster, node, &record, Some(false)).await.map(Some)
        }
        (RollChange::Write(_, record), Some(node)) => write_node(cluster, node, record, None).await.map(Some),
        (RollChange::Pause(_), Some(node)) => {
            let mut patch = record::version_patch(&node.object);
            patch["spec"] = json!({"suspend": true});
            cluster.patch(&node.object.name_any(), &patch, false).await.map(Some)
        }
        (RollChange::Act(name, record), Some(node)) => {
            let written = write_node(cluster, node, record, None).await?;
            if let Some(NodeAction::Job(template)) = &roll.settings.action {
                job::create(cluster, &job::of_node(template, &roll.name, name, record)).await?;
            }
            Ok(Some(written))
        }
        (RollChange::Delete(_), Some(node)) => cluster.delete_unchanged(&node.object).await.map(|_| None),
        (RollChange::Release(_), Some(node)) => store::release(cluster, node).await.map(Some),
    }
}

async fn write_node(
    cluster: &Cluster,
    node: &RollNode,
    record: &NodeRecord,
    suspend: Option<bool>,
) -> Result<NodeMaintenance, Error> {
    let mut patch = record::annotation_patch(&node.object, NODE, record);
    if let Some(suspend) = suspend {
        patch["spec"] = json!({"suspend": suspend});
    }
    if record.step == Step::Returning {
        patch["metadata"]["finalizers"] = json!(node.finalizers(true));
    }
    cluster.patch(&node.object.name_any(), &patch, false).await
}
