//! The runner of a halted roll in the cluster: it stays, so that `roll resume` lets it continue. The roll stays halted even if
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
/// that leave. Only what the watch shows ends the wait, and no record that is older than the last known one. Returns who has aborted
/// the roll. `last` is its record.
///
/// # Errors
///
/// If the roll is gone, even if there is a later one of its name ([`RollError::Unknown`]), if the maintenances cannot be watched, or
/// if a record of the roll is not valid.
pub async fn wait_until_resumed(
    cluster: &Cluster,
    mut roll: Roll,
    me: &Runner,
    mut last: RollRecord,
    keeper: &mut HistoryKeeper,
) -> Result<Option<String>, Error> {
    let mut cache = MaintenanceCache::default();
    let mut updates = watch_current_maintenances(cluster, WatchPolicy::LONG_COMMAND).chain(pending());
    let mut ticks = interval(CHECK_INTERVAL);
    let mut written: Option<RollRecord> = None;
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
        let shown = Roll::find(&roll.name, cache.all())?.filter(|shown| shown.is_same(&roll));
        let is_shown = shown.is_some();
        if let Some(shown) = shown {
            keeper.watch(&shown, Timestamp::now());
            roll = shown;
        }
        let is_stored = match stored(&roll, &last).filter(|_| is_shown) {
            Some(record) if !is_standing_by(record, me) => return Ok(record.aborted.clone()),
            Some(record) => {
                last = record.clone();
                true
            }
            None => false,
        };
        let unseen = written.as_ref().filter(|written| written.revision > last.revision);
        let beats = match unseen {
            Some(unseen) => is_due(unseen, Timestamp::now()),
            None => !is_stored || last.asked || is_due(&last, Timestamp::now()),
        };
        if beats {
            match beat(cluster, &roll, me, &last).await {
                // The watch shows soon that the roll is gone, and perhaps who has aborted it.
                Err(error) if is_shown && matches!(error.above(), Some(RollError::Unknown(_))) => {}
                record => written = record?.or(written),
            }
        }
    }
}

/// Whether this program waits for somebody to resume the roll.
fn is_standing_by(record: &RollRecord, me: &Runner) -> bool {
    let is_mine = record.runner.as_ref().is_some_and(|runner| runner.id == me.id);
    is_mine && record.halt.is_some() && record.aborted.is_none()
}

/// The stored record of a roll; none if it was deleted with its maintenance: whatever is stored is older than the last one that
/// this program knows.
fn stored<'a>(roll: &'a Roll, last: &RollRecord) -> Option<&'a RollRecord> {
    roll.record.as_ref().filter(|record| record.revision >= last.revision)
}

/// Writes a heartbeat to the stored record or, if that was deleted, to the last one that this program knows, which is stored again.
/// Nothing is written if there is nothing to wait for any more: the watch shows that soon. If the API server does not respond, a
/// later heartbeat is written. Returns the record that was written.
///
/// # Errors
///
/// If the roll is gone ([`RollError::Unknown`]), if one of its records is not valid, or if the API server refuses the request.
async fn beat(
    cluster: &Cluster,
    known: &Roll,
    me: &Runner,
    last: &RollRecord,
) -> Result<Option<RollRecord>, Error> {
    let written = store::replace_record(cluster, &known.name, |roll| {
        if !roll.is_same(known) {
            return Err(RollError::Unknown(known.name.clone()).into());
        }
        let record = stored(roll, last).unwrap_or(last);
        if !is_standing_by(record, me) {
            return Err(RollError::Contended.into());
        }
        let runner = Some(Runner { at: Timestamp::now(), ..me.clone() });
        Ok(RollRecord { asked: false, runner, ..record.next() })
    });
    match written.await {
        Ok((_, record)) => Ok(Some(record)),
        Err(error) if matches!(error.above(), Some(RollError::Contended)) || error.is_waited_for() => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[path = "standby_tests.rs"]
mod tests;
