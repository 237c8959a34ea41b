//! Reads and changes a roll in the cluster.
//!
//! A pause writes the record and then suspends the drains that are under way. If the program of the roll has just begun a
//! node, it suspends that node when it sees the record. Whoever resumes a roll asks for a heartbeat in its record, and waits
//! until it changes, at most for a minute: the clocks of two computers may differ, so a heartbeat is compared with the one
//! before.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::core::Status;
use nm_core::client::cluster::{Cluster, Deletion};
use nm_core::error::Error;
use nm_core::maintenance::uid;
use nm_shared::decide::drain_status;
use nm_shared::{DrainSpec, NodeMaintenance};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::error::RollError;
use crate::job;
use crate::record::{
    self, LABEL, NODE, Pause, Roll, RollNode, RollRecord, Runner, SETTINGS, STATE, Step, roll_name,
};
use crate::settings::NodeAction;

const MAX_ATTEMPTS: usize = 10;

/// How long the end of a program waits for its last write.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// How often a heartbeat is looked for.
const HEARTBEAT_CHECK: Duration = Duration::from_millis(500);

/// The roll of this name.
///
/// # Errors
///
/// If there is no such roll ([`RollError::Unknown`]), if its records are not valid, or if the request fails.
pub async fn load(cluster: &Cluster, name: &str) -> Result<Roll, Error> {
    let all: Vec<_> = cluster.maintenances().await?.into_iter().map(Arc::new).collect();
    Ok(Roll::find(name, &all)?.ok_or_else(|| RollError::Unknown(name.to_owned()))?)
}

/// Changes the record of a roll whose maintenances are all created. If somebody else writes it at the same time, the
/// change is made again. Returns the roll and the record that was written.
///
/// # Errors
///
/// If the roll cannot be loaded or is incomplete, if `change` fails, if a request fails, or if all attempts meet a
/// concurrent change ([`RollError::Contended`]).
pub async fn update(
    cluster: &Cluster,
    name: &str,
    change: impl Fn(&Roll, RollRecord) -> Result<RollRecord, Error>,
) -> Result<(Roll, RollRecord), Error> {
    replace_record(cluster, name, |roll| change(roll, roll.complete_record()?.next())).await
}

/// The same, if `next` makes the next record of whatever is stored of the roll.
pub(crate) async fn replace_record(
    cluster: &Cluster,
    name: &str,
    next: impl Fn(&Roll) -> Result<RollRecord, Error>,
) -> Result<(Roll, RollRecord), Error> {
    for _ in 0..MAX_ATTEMPTS {
        let roll = load(cluster, name).await?;
        let record = next(&roll)?;
        let Some(anchor) = roll.anchor(&record) else { return Ok((roll, record)) };
        match write_record(cluster, &anchor.object, &record).await {
            Ok(_) => return Ok((roll, record)),
            Err(error) if is_outdated(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Err(RollError::Contended.into())
}

/// Gives up a roll that the program with this id runs, so that somebody else can continue it at once.
pub async fn release_runner(cluster: &Cluster, name: &str, id: &str) {
    let written = update(cluster, name, |_, record| {
        let is_mine = record.runner.as_ref().is_some_and(|runner| runner.id == id);
        if is_mine { Ok(RollRecord { runner: None, ..record }) } else { Err(RollError::Contended.into()) }
    });
    // If this is not written, no heartbeat follows.
    let _ = tokio::time::timeout(RELEASE_TIMEOUT, written).await;
}

/// Pauses a roll or lets it continue: whether further nodes begin, and the drains that are under way. Returns the roll as it
/// was before, and its new record. `who` is the user who does that.
///
/// # Errors
///
/// As [`update`] and [`suspend_drains`]. If only the drains cannot be suspended, the record is already written.
pub async fn pause(
    cluster: &Cluster,
    name: &str,
    paused: bool,
    who: &str,
) -> Result<(Roll, RollRecord), Error> {
    let (roll, record) = update(cluster, name, |_, record| {
        let new = || Pause { by: who.to_owned(), at: Timestamp::now() };
        // A roll that is paused already stays paused since then.
        let pause = paused.then(|| record.pause.clone().unwrap_or_else(new));
        Ok(RollRecord { paused, pause, ..record })
    })
    .await?;
    suspend_drains(cluster, &roll, paused).await?;
    Ok((roll, record))
}

/// Pauses or resumes the drains of a roll that are under way.
///
/// # Errors
///
/// If a request fails. Some of the drains may have changed by then.
pub async fn suspend_drains(cluster: &Cluster, roll: &Roll, suspend: bool) -> Result<(), Error> {
    let draining = roll
        .nodes
        .iter()
        .filter(|node| node.is_in_drain() && node.object.spec.suspend != suspend && !node.is_leaving());
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
pub fn is_outdated(error: &Error) -> bool {
    error.status().is_some_and(|status| Status::is_conflict(status) || Status::is_not_found(status))
}

/// Deletes the maintenances of some nodes of a roll, and the Jobs that run on them. First, the record moves to a maintenance
/// that stays. A maintenance that changes meanwhile is judged again. Returns the nodes that were removed.
///
/// # Errors
///
/// If the roll cannot be loaded, if a request fails, or if all attempts meet a concurrent change
/// ([`RollError::Contended`]).
pub async fn remove(
    cluster: &Cluster,
    name: &str,
    is_removed: impl Fn(&RollNode) -> bool,
) -> Result<Vec<RollNode>, Error> {
    let roll = keep_record(cluster, name, &is_removed).await?;
    let may_end = async |object: &Arc<NodeMaintenance>| {
        let node = RollNode::of(object)?;
        if !is_removed(&node) {
            return Ok(false);
        }
        // Somebody may have written the record of the roll to it since that moved.
        if node.revision
            > roll
                .nodes
                .iter()
                .find(|known| uid(&known.object) == uid(&node.object))
                .and_then(|known| known.revision)
        {
            keep_record(cluster, name, &is_removed).await?;
        }
        if let Some(NodeAction::Job(template)) = roll.settings.action_of(node.record.step) {
            job::delete(cluster, &job::of_node(template, &roll.name, node.node(), &node.record)).await?;
        }
        Ok(true)
    };
    let removed = roll.nodes.iter().filter(|node| is_removed(node));
    let ended = removed.map(async |node| end(cluster, &node.object, &may_end).await);
    let ended: Vec<_> = try_join_all(ended).await?.into_iter().flatten().collect();
    Ok(ended.iter().map(RollNode::of).collect::<Result<_, _>>()?)
}

/// Takes the nodes out of a roll whose drains somebody has started before their turn: their maintenances stay, as if `start` had
/// created them. First, the record of the roll moves to another maintenance. Returns the names of the nodes.
///
/// # Errors
///
/// As [`remove`].
pub async fn hand_over(cluster: &Cluster, name: &str) -> Result<Vec<String>, Error> {
    let mut handed_over = Vec::new();
    for _ in 0..MAX_ATTEMPTS {
        let roll = match keep_record(cluster, name, RollNode::is_started_early).await {
            Err(error) if matches!(error.above(), Some(RollError::Unknown(_))) => return Ok(handed_over),
            roll => roll?,
        };
        let mut is_complete = true;
        for node in roll.nodes.iter().filter(|node| node.is_started_early() && !node.is_leaving()) {
            let patch = leaving_patch(&node.object);
            match cluster.patch(&node.object.name_any(), &patch, false).await {
                Ok(_) => handed_over.push(node.node().to_owned()),
                // It is judged again.
                Err(error) if is_outdated(&error) => is_complete = false,
                Err(error) => return Err(error),
            }
        }
        if is_complete {
            return Ok(handed_over);
        }
    }
    Err(RollError::Contended.into())
}

/// A merge patch that takes a maintenance out of its roll, without ending it.
fn leaving_patch(object: &NodeMaintenance) -> Value {
    let mut patch = record::version_patch(object);
    patch["metadata"]["labels"] = json!({LABEL: null});
    patch["metadata"]["annotations"] = json!({SETTINGS: null, NODE: null, STATE: null, record::hook(): null});
    patch["metadata"]["finalizers"] = json!(record::finalizers(object, false));
    patch
}

/// A record that may be deleted, because it could not move to a maintenance that stays.
#[derive(Debug, thiserror::Error)]
#[error("the state of roll {roll} may be deleted with a maintenance: {source}")]
pub struct UnkeptRecord {
    roll: String,
    source: Error,
}

/// Lets the rolls of maintenances that are about to be deleted keep their records, which some of these maintenances may have.
/// Returns the records that may be deleted.
pub async fn keep_records(
    cluster: &Cluster,
    stopped: impl IntoIterator<Item = &NodeMaintenance>,
) -> Vec<UnkeptRecord> {
    let stopped: Vec<_> = stopped.into_iter().collect();
    let rolls: BTreeSet<&str> = stopped.iter().filter_map(|object| roll_name(object)).collect();
    let is_stopped =
        |node: &RollNode| stopped.iter().any(|object| object.metadata.uid == node.object.metadata.uid);
    let mut unkept = Vec::new();
    for roll in rolls {
        match keep_record(cluster, roll, is_stopped).await {
            Ok(_) => {}
            Err(error) if matches!(error.above(), Some(RollError::Unknown(_))) => {}
            Err(source) => unkept.push(UnkeptRecord { roll: roll.to_owned(), source }),
        }
    }
    unkept
}

/// Writes the record of a roll to a maintenance that stays, if some others are about to be deleted. Returns the roll as it is then.
///
/// # Errors
///
/// If the roll cannot be loaded, if a request fails, or if all attempts meet a concurrent change ([`RollError::Contended`]).
async fn keep_record(
    cluster: &Cluster,
    name: &str,
    is_removed: impl Fn(&RollNode) -> bool,
) -> Result<Roll, Error> {
    for _ in 0..MAX_ATTEMPTS {
        let roll = load(cluster, name).await?;
        match move_record(cluster, &roll, &is_removed).await {
            Ok(false) => return Ok(roll),
            // Somebody may have written to the old maintenance meanwhile.
            Ok(true) => {}
            Err(error) if is_outdated(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Err(RollError::Contended.into())
}

/// Writes the newest record to a maintenance that stays, unless that has it. Returns whether it was written.
async fn move_record(
    cluster: &Cluster,
    roll: &Roll,
    is_removed: &impl Fn(&RollNode) -> bool,
) -> Result<bool, Error> {
    let is_going = |node: &&RollNode| is_removed(node) || node.is_leaving();
    let (going, rest): (Vec<_>, Vec<_>) = roll.nodes.iter().partition(is_going);
    let newest = going.into_iter().max_by_key(|node| node.revision);
    let Some(record) = newest.map(|node| RollRecord::of(&node.object)).transpose()?.flatten() else {
        return Ok(false);
    };
    // A copy that was moved has the same revision as what somebody has written meanwhile, and not the change.
    if rest.iter().any(|node| node.revision > Some(record.revision)) {
        return Ok(false);
    }
    let rest = Roll { nodes: rest.into_iter().cloned().collect(), ..roll.clone() };
    let Some(anchor) = rest.anchor(&record) else { return Ok(false) };
    write_record(cluster, &anchor.object, &record.next()).await?;
    Ok(true)
}

/// Takes a maintenance out of a roll: its node returns to service, and it ends. Returns it as it was then; none if it has
/// changed and may not end.
async fn end(
    cluster: &Cluster,
    object: &Arc<NodeMaintenance>,
    may_end: impl AsyncFn(&Arc<NodeMaintenance>) -> Result<bool, Error>,
) -> Result<Option<Arc<NodeMaintenance>>, Error> {
    let mut object = Arc::clone(object);
    for _ in 0..MAX_ATTEMPTS {
        let is_kept = record::is_kept(&object);
        if object.metadata.deletion_timestamp.is_some() {
            if !is_kept {
                return Ok(Some(object));
            }
            match release(cluster, &object).await {
                Ok(_) => return Ok(Some(object)),
                Err(error) if error.is_not_found() => return Ok(Some(object)),
                Err(error) if is_outdated(&error) => {}
                Err(error) => return Err(error),
            }
        } else if may_end(&object).await? {
            match cluster.delete_unchanged(&object).await? {
                Deletion::Gone => return Ok(Some(object)),
                Deletion::UnderWay if !is_kept => return Ok(Some(object)),
                Deletion::UnderWay | Deletion::Replaced => {}
            }
        } else {
            return Ok(None);
        }
        let newer = cluster.maintenance(&object.name_any()).await?;
        let Some(newer) = newer.filter(|newer| uid(newer) == uid(&object)) else { return Ok(Some(object)) };
        object = Arc::new(newer);
    }
    Err(RollError::Contended.into())
}

/// Removes the finalizer with which a roll keeps a maintenance.
pub(crate) async fn release(cluster: &Cluster, object: &NodeMaintenance) -> Result<NodeMaintenance, Error> {
    let mut patch = record::version_patch(object);
    patch["metadata"]["finalizers"] = json!(record::finalizers(object, false));
    cluster.patch(&object.name_any(), &patch, false).await
}

/// Ends all maintenances with the label of a roll, whatever their records are. Returns them as they were.
///
/// # Errors
///
/// If a request fails, or if all attempts meet a concurrent change ([`RollError::Contended`]).
pub async fn remove_unread(cluster: &Cluster, name: &str) -> Result<Vec<Arc<NodeMaintenance>>, Error> {
    let all = cluster.maintenances().await?.into_iter().map(Arc::new);
    let of_roll = all.filter(|object| roll_name(object) == Some(name));
    try_join_all(of_roll.map(async |object| {
        end(cluster, &object, async |_: &Arc<NodeMaintenance>| Ok(true)).await?;
        Ok(object)
    }))
    .await
}

/// Gives each drain of a roll that is not done this time limit, counted from now. Zero means none.
///
/// # Errors
///
/// If a request fails. Some of the drains may have changed by then.
pub async fn extend_drains(cluster: &Cluster, roll: &Roll, limit: Duration) -> Result<(), Error> {
    let now = Timestamp::now();
    let drains = roll.nodes.iter().filter(|node| node.record.step <= Step::Draining && !node.is_leaving());
    try_join_all(drains.map(async |node| {
        let seconds = timeout_seconds(&node.object, limit, now);
        let patch = json!({
            "metadata": {"uid": uid(&node.object)},
            "spec": {"drain": {"timeoutSeconds": seconds}},
        });
        cluster.patch(&node.object.name_any(), &patch, false).await
    }))
    .await?;
    Ok(())
}

/// The `timeoutSeconds` by which the drain of a maintenance times out when this time has passed from now.
fn timeout_seconds(object: &NodeMaintenance, limit: Duration, now: Timestamp) -> i64 {
    let seconds = i64::try_from(limit.as_secs()).unwrap_or(i64::MAX);
    if seconds == 0 {
        return 0;
    }
    // The deadline of a drain of one second is a second after its beginning.
    let drain = DrainSpec { timeout_seconds: 1, ..object.spec.drain.clone().unwrap_or_default() };
    let after_a_second = drain_status::deadline(object, &drain, now).unwrap_or(now);
    let elapsed = now.duration_since(after_a_second).saturating_add(SignedDuration::from_secs(1));
    seconds.saturating_add(elapsed.as_secs().max(0))
}

/// The program that runs a roll: asks for a heartbeat, and waits for one at most this long. The time in it is not compared,
/// because the clocks of two computers may differ.
///
/// # Errors
///
/// If the roll cannot be loaded or updated: see [`update`].
pub async fn find_runner(
    cluster: &Cluster,
    name: &str,
    last: &Runner,
    timeout: Duration,
) -> Result<Option<Runner>, Error> {
    update(cluster, name, |_, record| Ok(RollRecord { asked: true, ..record })).await?;
    let end = Instant::now() + timeout;
    while Instant::now() < end {
        let roll = load(cluster, name).await?;
        match roll.complete_record()?.runner {
            None => return Ok(None),
            Some(runner) if runner != *last => return Ok(Some(runner)),
            Some(_) => tokio::time::sleep(HEARTBEAT_CHECK).await,
        }
    }
    Ok(None)
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
