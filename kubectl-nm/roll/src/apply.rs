//! Carries out the changes of one decision. This is one future that borrows nothing from the runner, so that the runner
//! continues meanwhile: a server that does not respond delays neither the output of commands nor the input.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::{join, join_all};
use kube::ResourceExt;
use kube::core::Status;
use nm_core::client::cluster::Cluster;
use nm_core::error::Error;
use nm_shared::NodeMaintenance;
use serde_json::json;

use crate::decide::RollChange;
use crate::error::RollError;
use crate::health;
use crate::health_round::{Round, Workloads};
use crate::job;
use crate::observed::NodeView;
use crate::record::{self, Baseline, DisturbedObject, NODE, NodeRecord, Roll, RollNode, RollRecord, Step};
use crate::settings::NodeAction;
use crate::store;

/// The results of the changes of one decision.
pub(super) struct Applied {
    pub(super) roll: Roll,
    /// The objects as they were written.
    pub(super) objects: Vec<NodeMaintenance>,
    pub(super) outcomes: Vec<(RollChange, Result<(), RollChangeError>)>,
}

/// Why a change was not carried out.
#[derive(Debug)]
pub(super) enum RollChangeError {
    /// The maintenance was not read or written.
    Maintenance(Error),
    /// The Job of the node was not created.
    Job(Error),
}

impl RollChangeError {
    pub(super) fn error(&self) -> &Error {
        match self {
            Self::Maintenance(error) | Self::Job(error) => error,
        }
    }

    /// Whether the maintenance was changed or deleted since it was read.
    pub(super) fn is_outdated(&self) -> bool {
        matches!(self, Self::Maintenance(error) if store::is_outdated(error))
    }
}

impl From<Error> for RollChangeError {
    fn from(error: Error) -> Self {
        Self::Maintenance(error)
    }
}

/// Writes the record, if it is one of the changes, and then carries out the other changes concurrently. If the record cannot
/// be written, nothing else is changed, unless the roll has halted: then the results of its actions are still stored.
pub(super) async fn apply(
    cluster: &Cluster,
    roll: Roll,
    changes: Vec<RollChange>,
    nodes: BTreeMap<String, NodeView>,
    workloads: &Workloads,
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
        applied.outcomes.push((RollChange::Record(record), outcome.map_err(RollChangeError::from)));
        if !is_written && !has_halted {
            return applied;
        }
    }
    let roll = &applied.roll;
    let (begins, others): (Vec<_>, Vec<_>) =
        changes.partition(|change| matches!(change, RollChange::Begin(..)));
    let others = join_all(others.into_iter().map(async |change| {
        let outcome = carry_out(cluster, roll, &change).await;
        (change, outcome)
    }));
    let (others, begun) = join(others, begin(cluster, roll, begins, &nodes, workloads)).await;
    for (change, outcome) in others.into_iter().chain(begun) {
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

type Outcome = Result<Option<NodeMaintenance>, RollChangeError>;

/// Begins nodes. The baselines of all of them are read first: the drain of one disturbs what the others have.
async fn begin(
    cluster: &Cluster,
    roll: &Roll,
    begins: Vec<RollChange>,
    nodes: &BTreeMap<String, NodeView>,
    workloads: &Workloads,
) -> Vec<(RollChange, Outcome)> {
    let is_under_way = |node: &&RollNode| node.record.step > Step::Planned;
    let under_way = roll.nodes.iter().filter(is_under_way);
    let disturbed: BTreeSet<&DisturbedObject> =
        under_way.flat_map(|node| &node.record.baseline.healthy).collect();
    let round = Round::new(cluster, workloads);
    let read = join_all(begins.into_iter().map(async |change| {
        let view = change.node().and_then(|name| Some((name, nodes.get(name)?)));
        let baseline = match view {
            Some((name, view)) => health::baseline(&round, name, view, &disturbed).await.map(Some),
            None => Ok(None),
        };
        (change, baseline)
    }))
    .await;
    join_all(read.into_iter().map(async |(change, baseline)| {
        let outcome = match baseline {
            Ok(baseline) => write_begin(cluster, roll, &change, baseline).await,
            Err(error) => Err(error),
        };
        (change, outcome.map_err(RollChangeError::from))
    }))
    .await
}

async fn write_begin(
    cluster: &Cluster,
    roll: &Roll,
    change: &RollChange,
    baseline: Option<Baseline>,
) -> Result<Option<NodeMaintenance>, Error> {
    let RollChange::Begin(name, record) = change else { return Ok(None) };
    let Some((node, baseline)) = roll.node(name).zip(baseline) else { return Ok(None) };
    let record = NodeRecord { baseline, ..record.clone() };
    write_node(cluster, node, &record, Some(false)).await.map(Some)
}

/// Returns the object that was written, if one was.
async fn carry_out(cluster: &Cluster, roll: &Roll, change: &RollChange) -> Outcome {
    let node = change.node().and_then(|name| roll.node(name));
    match (change, node) {
        (RollChange::Recreate(maintenance), _) => Ok(Some(recreate(cluster, &roll.name, maintenance).await?)),
        (RollChange::Record(_) | RollChange::Begin(..), _) | (_, None) => Ok(None),
        (RollChange::Write(_, record), Some(node)) => {
            Ok(Some(write_node(cluster, node, record, None).await?))
        }
        (RollChange::Pause(_), Some(node)) => {
            let mut patch = record::version_patch(&node.object);
            patch["spec"] = json!({"suspend": true});
            Ok(Some(cluster.patch(&node.object.name_any(), &patch, false).await?))
        }
        (RollChange::Act(name, record), Some(node)) => {
            let written = write_node(cluster, node, record, None).await?;
            if let Some(NodeAction::Job(template)) = roll.settings.action_of(record.step) {
                let job = job::of_node(template, &roll.name, name, record);
                job::create(cluster, &job).await.map_err(RollChangeError::Job)?;
            }
            Ok(Some(written))
        }
        (RollChange::Delete(_), Some(node)) => {
            cluster.delete_unchanged(&node.object).await?;
            Ok(None)
        }
        (RollChange::Release(_), Some(node)) => Ok(Some(store::release(cluster, &node.object).await?)),
    }
}

/// Creates a maintenance again, unless this program has done so before and the watch does not show it yet.
async fn recreate(
    cluster: &Cluster,
    roll: &str,
    maintenance: &NodeMaintenance,
) -> Result<NodeMaintenance, Error> {
    let refused = match cluster.create(maintenance, false).await {
        Err(error) if error.status().is_some_and(Status::is_already_exists) => error,
        created => return created,
    };
    match cluster.maintenance(&maintenance.name_any()).await? {
        Some(existing) if record::roll_name(&existing) == Some(roll) => Ok(existing),
        Some(_) => Err(RollError::InMaintenance(vec![maintenance.spec.node_name.clone()]).into()),
        None => Err(refused),
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
    if record.step == Step::Draining && node.is_hooked() {
        patch["metadata"]["annotations"][record::hook()] = json!(null);
    }
    if record.step == Step::Returning {
        patch["metadata"]["finalizers"] = json!(record::finalizers(&node.object, true));
    }
    cluster.patch(&node.object.name_any(), &patch, false).await
}
