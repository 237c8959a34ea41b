//! Shows a roll that another program runs.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::stream::{StreamExt, pending};
use jiff::Timestamp;
use kube::ResourceExt;
use nm_core::args::duration;
use nm_core::client::cluster::Cluster;
use nm_core::client::watch_stream::{WatchChange, WatchPolicy, WatchUpdate, watch_current_maintenances};
use nm_core::error::Error;
use nm_core::maintenance::cache::MaintenanceCache;
use nm_shared::NodeMaintenance;
use tokio::time::{MissedTickBehavior, interval};

use crate::decide::{HEARTBEAT_TIMEOUT, RollState, decide};
use crate::error::RollError;
use crate::observed::{NodeView, Observed};
use crate::record::{Roll, RollRecord, STATE, roll_name};
use crate::runner::{RollEnd, watch_nodes};
use crate::store;
use crate::view::{RollInput, RollReporter, RollView};

const SHOW_INTERVAL: Duration = Duration::from_millis(250);

/// Shows a roll until it is over, halts, or the user leaves. Nothing is written, unless the user pauses the roll.
///
/// # Errors
///
/// If there is no such roll, if the cluster cannot be watched, if a record is not valid, or if the reporter fails.
pub async fn show(cluster: &Cluster, name: &str, reporter: &mut dyn RollReporter) -> Result<RollEnd, Error> {
    let mut updates = watch_current_maintenances(cluster, WatchPolicy::LONG_COMMAND).chain(pending());
    let mut node_updates = watch_nodes(cluster).chain(pending());
    let mut ticks = interval(SHOW_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut maintenances = MaintenanceCache::default();
    let mut seen = Observed::default();
    let mut is_current = (true, true);
    let mut last: Option<Roll> = None;
    // The last record is seen for a moment only: then its object is gone, and the roll with it.
    let mut newest = RollRecord::default();
    // A record names the nodes that are done only until their maintenances are gone.
    let mut released = BTreeSet::new();
    loop {
        tokio::select! {
            input = reporter.next_input() => match input? {
                RollInput::Leave => return Ok(RollEnd::Left),
                RollInput::Pause(paused) => {
                    if let Err(error) = store::pause(cluster, name, paused).await {
                        reporter.show_error(&error);
                    }
                }
                RollInput::Answer(_) => {}
            },
            Some(update) = updates.next() => match update? {
                WatchUpdate::Change(change) => {
                    note_record(&mut newest, &mut released, &change, name);
                    maintenances.apply(&change);
                }
                other => is_current.0 = matches!(other, WatchUpdate::Live),
            },
            // Without the permission to list nodes, what they wait for is not shown.
            Some(Ok(update)) = node_updates.next() => match update {
                WatchUpdate::Change(change) => seen.apply_nodes(change, Timestamp::now()),
                other => is_current.1 = matches!(other, WatchUpdate::Live),
            },
            _ = ticks.tick(), if maintenances.is_complete() => {
                let roll = Roll::find(name, maintenances.all())?;
                let is_over = roll.is_none();
                let Some(shown) = roll.or(last.take()) else {
                    return Err(RollError::Unknown(name.to_owned()).into());
                };
                let record = if is_over { newest.clone() } else { shown.complete_record()? };
                let now = Timestamp::now();
                let state = state(&record, is_over, now);
                let mut observed = Observed::shown_at(now, &shown, seen.nodes.clone());
                if observed.nodes.is_empty() {
                    let unknown = shown.nodes.iter().map(|node| (node.node().to_owned(), NodeView::default()));
                    observed.nodes = unknown.collect();
                }
                let progress = if is_over { Vec::new() } else { decide(&shown, &record, &observed).progress };
                let record = RollRecord { released: released.iter().cloned().collect(), ..record };
                reporter.show(&RollView {
                    roll: &shown,
                    record: &record,
                    progress: &progress,
                    state: &state,
                    aborted: record.aborted.as_deref(),
                    is_current: is_current == (true, true),
                    now,
                })?;
                match state {
                    RollState::Done => return Ok(RollEnd::Done(Box::new(record))),
                    RollState::Aborted(who) => return Ok(RollEnd::Aborted(who, Box::new(record))),
                    RollState::Halted(halt) => {
                        let begun = shown.nodes.iter().filter(|node| node.is_worked_on());
                        return Ok(RollEnd::Halted(halt, begun.map(|node| node.node().to_owned()).collect()));
                    }
                    RollState::Working | RollState::Waiting(_) | RollState::TakenOver(_) => {}
                }
                last = Some(shown);
            }
        }
    }
}

/// The state of a roll by its record.
fn state(record: &RollRecord, is_over: bool, now: Timestamp) -> RollState {
    match (&record.halt, &record.aborted, &record.runner) {
        (_, Some(who), _) if is_over => RollState::Aborted(who.clone()),
        _ if is_over => RollState::Done,
        (Some(halt), None, _) => RollState::Halted(halt.clone()),
        (None, None, _) if record.paused => RollState::Waiting(String::from("paused")),
        (_, _, None) => RollState::Waiting(String::from("nobody runs the roll")),
        (_, _, Some(runner)) => {
            let since = now.duration_since(runner.at);
            if since < HEARTBEAT_TIMEOUT {
                return RollState::Working;
            }
            let ago = duration::age(since.as_secs());
            RollState::Waiting(format!("{} ran the roll, last seen {ago} ago", runner.who))
        }
    }
}

/// Keeps the record of the roll in an object that has changed or is gone, if it is newer, and the nodes that it calls done.
fn note_record(
    newest: &mut RollRecord,
    released: &mut BTreeSet<String>,
    change: &WatchChange<NodeMaintenance>,
    name: &str,
) {
    let objects = match change {
        WatchChange::Listed(objects) => objects.as_slice(),
        WatchChange::Applied(object) | WatchChange::Deleted(object) => std::slice::from_ref(object),
    };
    for object in objects.iter().filter(|object| roll_name(object) == Some(name)) {
        let text = object.annotations().get(STATE);
        let record = text.and_then(|text| serde_json::from_str::<RollRecord>(text).ok());
        released.extend(record.iter().flat_map(|record| record.released.iter().cloned()));
        if let Some(record) = record.filter(|record| record.revision > newest.revision) {
            *newest = record;
        }
    }
}
