//! Stores the history of a roll while it runs. The roll neither waits for that nor halts because of it.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use nm_core::client::cluster::Cluster;
use nm_core::client::objects;
use nm_core::error::Error;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::history::{History, HistoryKeeper, config_map};
use super::runner_job;
use crate::error::RollError;
use crate::store::is_outdated;

/// How long it waits after a request that failed for a while.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// How long the end of a program waits for its last write.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

/// Writes what a [`HistoryKeeper`] notes to the `ConfigMap` of the roll.
pub struct HistoryWriter {
    config_map: Value,
    noted: watch::Receiver<History>,
    /// What the `ConfigMap` contains; none before it was read.
    stored: Option<History>,
    /// Why nothing is written any more.
    failure: Option<Error>,
}

/// What notes the history of a roll, and what stores it. The Job with this uid owns the `ConfigMap`.
pub fn history(roll: &str, job_uid: Option<&str>) -> (HistoryKeeper, HistoryWriter) {
    let keeper = HistoryKeeper::new();
    let mut config_map = config_map(roll);
    if let Some(uid) = job_uid {
        config_map["metadata"]["ownerReferences"] = json!([
            {"apiVersion": "batch/v1", "kind": "Job", "name": runner_job::name(roll), "uid": uid},
        ]);
    }
    let noted = keeper.noted.subscribe();
    (keeper, HistoryWriter { config_map, noted, stored: None, failure: None })
}

impl HistoryWriter {
    /// Writes what is noted, until this future is dropped.
    pub async fn run(&mut self, cluster: &Cluster) -> Infallible {
        while self.failure.is_none() && self.noted.changed().await.is_ok() {
            self.write(cluster).await;
        }
        pending().await
    }

    /// Writes the rest, if that does not take long. Returns why the history is not complete, if the cluster refuses it.
    pub async fn flush(mut self, cluster: &Cluster) -> Option<RollError> {
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, self.write(cluster)).await;
        self.failure.map(|error| RollError::NoHistory(error.to_string()))
    }

    async fn write(&mut self, cluster: &Cluster) {
        while self.failure.is_none() {
            match self.write_once(cluster).await {
                Ok(()) => return,
                Err(error) if error.is_waited_for() || is_outdated(&error) => {
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                Err(error) => self.failure = Some(error),
            }
        }
    }

    async fn write_once(&mut self, cluster: &Cluster) -> Result<(), Error> {
        let noted = self.noted.borrow().clone();
        if noted == History::default() {
            return Ok(());
        }
        let stored = match self.stored.take() {
            Some(stored) => stored,
            None => {
                objects::get(cluster, &self.config_map).await?.as_ref().map(History::of).unwrap_or_default()
            }
        };
        let next = stored.continued(&noted);
        let data = next.patch(&stored);
        if !data.is_empty() {
            // A Job that ended was replaced: the next one owns the history.
            let mut patch = json!({"metadata": {}, "data": data});
            if let Some(owners) = self.config_map["metadata"].get("ownerReferences") {
                patch["metadata"]["ownerReferences"] = owners.clone();
            }
            match objects::patch(cluster, &self.config_map, &patch).await {
                Err(error) if error.is_not_found() => {
                    let mut whole = self.config_map.clone();
                    whole["data"] = json!(next.patch(&History::default()));
                    objects::create(cluster, &whole, false).await?;
                }
                patched => drop(patched?),
            }
        }
        self.stored = Some(next);
        Ok(())
    }
}
