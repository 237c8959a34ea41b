//! Stores the history of a roll while it runs. The roll neither waits for that nor halts because of it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use nm_core::client::cluster::Cluster;
use nm_core::client::objects;
use nm_core::error::Error;
use nm_core::terminal::output::Output;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::history::{History, HistoryChange, HistoryKeeper, config_map};
use super::runner_job;
use crate::command::NodeOutputLine;
use crate::error::RollError;
use crate::report::{LineFormat, LineReporter};
use crate::store::is_outdated;
use crate::view::{RollInput, RollReporter, RollView};

/// How long it waits after a request that failed for a while.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// How long the end of a program waits for its last write.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

/// Writes what a [`HistoryKeeper`] notes to the `ConfigMap` of the roll.
pub struct HistoryWriter {
    config_map: Value,
    changes: UnboundedReceiver<HistoryChange>,
    failures: UnboundedSender<RollError>,
    /// What the `ConfigMap` contains, with the patch; none before it was read.
    history: Option<History>,
    received: Vec<HistoryChange>,
    patch: BTreeMap<String, Value>,
    has_given_up: bool,
}

/// What notes the history of a roll, and what stores it. The Job with this uid owns the `ConfigMap`.
pub fn history(roll: &str, job_uid: Option<&str>) -> (HistoryKeeper, HistoryWriter) {
    let (changes, received) = unbounded_channel();
    let (failures, failed) = unbounded_channel();
    let mut config_map = config_map(roll);
    if let Some(uid) = job_uid {
        config_map["metadata"]["ownerReferences"] = json!([
            {"apiVersion": "batch/v1", "kind": "Job", "name": runner_job::name(roll), "uid": uid},
        ]);
    }
    let writer = HistoryWriter {
        config_map,
        changes: received,
        failures,
        history: None,
        received: Vec::new(),
        patch: BTreeMap::new(),
        has_given_up: false,
    };
    (HistoryKeeper::new(changes, failed), writer)
}

impl HistoryWriter {
    /// Writes what is noted, until this future is dropped.
    pub async fn run(&mut self, cluster: &Cluster) -> Infallible {
        while let Some(change) = self.changes.recv().await {
            self.received.push(change);
            self.write(cluster).await;
        }
        pending().await
    }

    /// Writes the rest, if that does not take long.
    pub async fn flush(&mut self, cluster: &Cluster) {
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, self.write(cluster)).await;
    }

    async fn write(&mut self, cluster: &Cluster) {
        while !self.has_given_up {
            match self.write_once(cluster).await {
                Ok(()) => return,
                Err(error) if error.is_waited_for() || is_outdated(&error) => {
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                Err(error) => {
                    self.has_given_up = true;
                    let _ = self.failures.send(RollError::NoHistory(error.to_string()));
                }
            }
        }
    }

    async fn write_once(&mut self, cluster: &Cluster) -> Result<(), Error> {
        while let Ok(change) = self.changes.try_recv() {
            self.received.push(change);
        }
        if self.received.is_empty() && self.patch.is_empty() {
            return Ok(());
        }
        if self.history.is_none() {
            let stored = objects::get(cluster, &self.config_map).await?;
            self.history = Some(stored.as_ref().map(History::of).unwrap_or_default());
        }
        let Some(history) = &mut self.history else { return Ok(()) };
        for change in self.received.drain(..) {
            history.note(change, &mut self.patch);
        }
        if self.patch.is_empty() {
            return Ok(());
        }
        // A Job that ended was replaced: the next one owns the history.
        let mut patch = json!({"metadata": {}, "data": self.patch});
        if let Some(owners) = self.config_map["metadata"].get("ownerReferences") {
            patch["metadata"]["ownerReferences"] = owners.clone();
        }
        match objects::patch(cluster, &self.config_map, &patch).await {
            Err(error) if error.is_not_found() => {
                let mut whole = self.config_map.clone();
                whole["data"] = history.data();
                objects::create(cluster, &whole, false).await?;
            }
            patched => drop(patched?),
        }
        self.patch.clear();
        Ok(())
    }
}

/// Prints a line for each change of a roll, and notes its history.
pub struct HistoryReporter<'a> {
    lines: LineReporter<'a>,
    keeper: &'a mut HistoryKeeper,
}

impl<'a> HistoryReporter<'a> {
    /// Prints to `out`.
    pub fn new(out: &'a mut Output, keeper: &'a mut HistoryKeeper) -> Self {
        Self { lines: LineReporter::new(out, LineFormat::Text), keeper }
    }
}

impl RollReporter for HistoryReporter<'_> {
    fn show(&mut self, view: &RollView) -> Result<(), Error> {
        self.keeper.note(view);
        if let Some(failure) = self.keeper.failure() {
            self.lines.show_error(&failure.into());
        }
        self.lines.show(view)
    }

    fn output(&mut self, line: &NodeOutputLine) -> Result<(), Error> {
        self.lines.output(line)
    }

    fn ask(&mut self, node: &str) -> Result<(), Error> {
        self.lines.ask(node)
    }

    fn show_error(&mut self, error: &Error) {
        self.lines.show_error(error);
    }

    fn next_input(&mut self) -> LocalBoxFuture<'_, Result<RollInput, Error>> {
        self.lines.next_input()
    }
}
