//! The runner of a halted roll in the cluster: it stays, so that `roll resume` lets it continue. The roll stays halted also if
//! somebody deletes the maintenance with its record.

use std::time::Duration;

use futures::stream::{StreamExt, pending};
use jiff::Timestamp;
use nm_core::client::cluster::Cluster;
use nm_core::client::watch_stream::{WatchPolicy, WatchUpdate, watch_current_maintenances};
use nm_core::error::Error;
use nm_core::maintenance::cache::MaintenanceCache;
use tokio::time::interval;

use crate::decide::is_due;
use crate::error::RollError;
use crate::in_cluster::history::HistoryKeeper;
use crate::record::{Roll, RollRecord, Runner};
use crate::store;

const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Waits until the roll is no longer halted, or is not this runner's any more. Meanwhile, it writes heartbeats, and notes the nodes
/// that leave. Returns who has aborted the roll. `last` is its record.
///
/// # Errors
///
/// If the maintenances cannot be watched, or if a record of the roll is not valid.
pub async fn wait_until_resumed(
    cluster: &Cluster,
    name: &str,
    me: &Runner,
    mut last: RollRecord,
    keeper: &mut HistoryKeeper,
) -> Result<Option<String>, Error> {
    let mut cache = MaintenanceCache::default();
    let mut updates = watch_current_maintenances(cluster, WatchPolicy::LONG_COMMAND).chain(pending());
    let mut ticks = interval(CHECK_INTERVAL);
    loop {
        tokio::select! {
            Some(update) = updates.next() => if let WatchUpdate::Change(change) = update? {
                cache.apply(&change);
            },
            _ = ticks.tick() => {}
        }
        if !cache.is_complete() {
            continue;
        }
        let Some(roll) = Roll::find(name, cache.all())? else { return Ok(last.aborted) };
        keeper.watch(&roll, Timestamp::now());
        let Some(record) = roll.record.as_ref().filter(|record| record.revision >= last.revision) else {
            match store::store_again(cluster, &roll, &last).await {
                Err(error) if !(store::is_outdated(&error) || error.is_waited_for()) => return Err(error),
                // The cache shows it soon.
                _ => continue,
            }
        };
        if !is_standing_by(record, me) {
            return Ok(record.aborted.clone());
        }
        last = record.clone();
        if (last.asked || is_due(&last, Timestamp::now())) && beat(cluster, name, me).await?.is_none() {
            return Ok(None);
        }
    }
}

/// Whether this program waits for somebody to resume the roll.
fn is_standing_by(record: &RollRecord, me: &Runner) -> bool {
    let is_mine = record.runner.as_ref().is_some_and(|runner| runner.id == me.id);
    is_mine && record.halt.is_some() && record.aborted.is_none()
}

/// Writes a heartbeat; `None` if there is nothing to wait for any more. A later one is written if the API server does not
/// respond.
async fn beat(cluster: &Cluster, name: &str, me: &Runner) -> Result<Option<()>, Error> {
    let written = store::update(cluster, name, |_, record| {
        if !is_standing_by(&record, me) {
            return Err(RollError::Contended.into());
        }
        let runner = Some(Runner { at: Timestamp::now(), ..me.clone() });
        Ok(RollRecord { asked: false, runner, ..record })
    });
    match written.await {
        Ok(_) => Ok(Some(())),
        Err(error) if error.is_waited_for() => Ok(Some(())),
        Err(error) if matches!(error.above(), Some(RollError::Contended | RollError::Unknown(_))) => Ok(None),
        Err(error) => Err(error),
    }
}
