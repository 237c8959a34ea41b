//! `kubectl nm watch --output json`: one JSON object per line, for programs.
//!
//! The command's help documents the fields. Within a version they keep their meaning; new ones may be added.

use std::ops::ControlFlow;

use jiff::{Timestamp, Unit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use nm_shared::{
    AttachedVolume, BlockReason, NodeMaintenance, Phase, PodCounts, PodReference, ReturnedPod, SurgingPod,
};
use serde::Serialize;

use crate::client::watch_stream::{WatchChange, WatchUpdate};
use crate::error::Error;
use crate::error::exit::Exit;
use crate::leader::changes::LeaderNeed;
use crate::maintenance::changes::{MaintenanceChange, PodChange, pod_changes};
use crate::maintenance::{State, attached_volumes, node, percent_gone, status, uid};
use crate::terminal::output::Output;
use crate::terminal::text::Line;
use crate::watch::deleted_nodes::DeletedNodes;
use crate::watch::event_loop::LoopEvent;
use crate::watch::goal_tracker::{GoalTracker, TargetOutcome};
use crate::watch::outage_change::OutageChange;

const RECORD_VERSION: u8 = 1;

#[derive(Serialize)]
struct NdjsonRecord<'a> {
    version: u8,
    #[serde(flatten)]
    body: RecordBody<'a>,
    time: Timestamp,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum RecordBody<'a> {
    Snapshot {
        live: bool,
        maintenances: Vec<MaintenanceRecord<'a>>,
    },
    Node(MaintenanceRecord<'a>),
    Pod {
        node: &'a str,
        #[serde(flatten)]
        pod: PodRecord<'a>,
    },
    Condition {
        node: &'a str,
        condition: &'a str,
        status: &'a str,
        reason: &'a str,
        message: &'a str,
        since: Timestamp,
    },
    Workload {
        node: &'a str,
        workload: &'a str,
        state: &'static str,
    },
    Done {
        exit_code: u8,
        result: &'static str,
        nodes: Vec<NodeResult>,
    },
}

#[derive(Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct MaintenanceRecord<'a> {
    node: &'a str,
    #[serde(rename = "maintenance")]
    name: &'a str,
    uid: String,
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<Phase>,
    progress: i32,
    pods: PodCounts,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    attached_volumes: &'a [AttachedVolume],
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    node_deleted: bool,
}

#[derive(Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum PodRecord<'a> {
    Blocked {
        namespace: &'a str,
        name: &'a str,
        reason: BlockReason,
        message: &'a str,
        since: Timestamp,
        attempts: i32,
    },
    Unblocked(PodReference),
    Migrating {
        namespace: &'a str,
        name: &'a str,
        machine: &'a str,
        source: Option<&'a str>,
        target: Option<&'a str>,
        since: Option<Timestamp>,
        #[serde(rename = "staysOnStop")]
        stays_on_stop: bool,
    },
    Waiting {
        namespace: &'a str,
        name: &'a str,
        reason: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        budget: Option<&'a str>,
        since: Timestamp,
        until: Option<Timestamp>,
    },
    Surging(&'a SurgingPod),
    Staying(&'a ReturnedPod),
    Deleted(PodReference),
    Gone(PodReference),
}

impl<'a> From<PodChange<'a>> for PodRecord<'a> {
    fn from(change: PodChange<'a>) -> Self {
        match change {
            PodChange::Blocked(pod) => Self::Blocked {
                namespace: &pod.namespace,
                name: &pod.name,
                reason: pod.reason,
                message: &pod.message,
                since: pod.since.0,
                attempts: pod.attempts,
            },
            PodChange::Unblocked(pod) => Self::Unblocked(pod),
            PodChange::Migrating(pod) => Self::Migrating {
                namespace: &pod.namespace,
                name: &pod.name,
                machine: &pod.machine,
                source: pod.source.as_deref(),
                target: pod.target.as_deref(),
                since: pod.since.as_ref().map(|since| since.0),
                stays_on_stop: pod.stays_on_stop,
            },
            PodChange::Waiting(pod) => Self::Waiting {
                namespace: &pod.namespace,
                name: &pod.name,
                reason: pod.reason.as_str(),
                budget: pod.budget.as_ref().map(|budget| budget.name.as_str()),
                since: pod.since.0,
                until: pod.until.as_ref().map(|until| until.0),
            },
            PodChange::Surging(pod) => Self::Surging(pod),
            PodChange::Returned(pod) => Self::Staying(pod),
            PodChange::Deleted(pod) => Self::Deleted(pod),
            PodChange::Gone(pod) => Self::Gone(pod),
        }
    }
}

#[derive(Serialize)]
struct NodeResult {
    node: String,
    result: &'static str,
}

/// Prints NDJSON about what a [`GoalTracker`] watches, until the watch is over.
pub struct NdjsonReporter<'a> {
    out: &'a mut Output,
    now: &'a dyn Fn() -> Timestamp,
    tracker: GoalTracker,
    live: bool,
    results: Vec<NodeResult>,
    /// The maintenances whose nodes were deleted, where that is known.
    deleted_nodes: Option<&'a DeletedNodes>,
}

impl<'a> NdjsonReporter<'a> {
    /// Prints to `out`, with the times of the clock `now`.
    pub fn new(out: &'a mut Output, now: &'a dyn Fn() -> Timestamp, tracker: GoalTracker) -> Self {
        Self { out, now, tracker, live: true, results: Vec::new(), deleted_nodes: None }
    }

    /// Reports of maintenances that their nodes were deleted.
    #[must_use]
    pub fn with_deleted_nodes(self, deleted_nodes: &'a DeletedNodes) -> Self {
        Self { deleted_nodes: Some(deleted_nodes), ..self }
    }

    /// What is watched.
    pub fn tracker(&self) -> &GoalTracker {
        &self.tracker
    }

    /// What the maintenances need a leader for.
    pub fn leader_need(&self) -> LeaderNeed {
        self.tracker.leader_need()
    }

    /// Reports an event. Breaks with the exit code when the watch is over.
    ///
    /// # Errors
    ///
    /// If stdout cannot be written, or if [`GoalTracker::apply`] fails.
    pub fn react(&mut self, event: LoopEvent) -> Result<ControlFlow<Exit>, Error> {
        match event {
            LoopEvent::Watch(WatchUpdate::Change(change)) => return self.report_update(&change),
            LoopEvent::Watch(WatchUpdate::Lost { .. }) if self.live => {
                self.live = false;
                self.print_snapshot()?;
            }
            LoopEvent::Watch(WatchUpdate::Live) if !self.live => {
                self.live = true;
                self.print_snapshot()?;
            }
            LoopEvent::Heartbeat => self.print_snapshot()?,
            LoopEvent::Leader(change) => self.out.message(&change.line()),
            LoopEvent::Outage(OutageChange { node, workload, is_down }) => {
                let state = if is_down { "down" } else { "recovered" };
                self.print(RecordBody::Workload { node: &node, workload: &workload, state })?;
            }
            LoopEvent::Warning(text) => self.out.message(&Line::new(format!("warning: {text}"))),
            LoopEvent::Watch(WatchUpdate::Live | WatchUpdate::Lost { .. }) => {}
            LoopEvent::TimedOut(_) => return self.finish(Exit::TimedOut),
            LoopEvent::Interrupted => return self.finish(Exit::Interrupted),
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Prints that the watch ended with an error. The error itself goes to stderr, as for every command.
    ///
    /// # Errors
    ///
    /// If stdout cannot be written.
    pub fn fail(&mut self) -> Result<(), Error> {
        self.finish(Exit::Error).map(drop)
    }

    /// Prints that what was watched is over, such as a recording at its end.
    ///
    /// # Errors
    ///
    /// If stdout cannot be written.
    pub fn end(&mut self) -> Result<(), Error> {
        self.print_done(Exit::Done, "ended")
    }

    fn report_update(&mut self, change: &WatchChange<NodeMaintenance>) -> Result<ControlFlow<Exit>, Error> {
        let update = self.tracker.apply(change)?;
        if update.is_first_list {
            self.print_snapshot()?;
        }
        for change in &update.changes {
            let bodies = match change {
                MaintenanceChange::Updated { before, now } => {
                    // The snapshot has the maintenances of the first list, but not their pods.
                    update_records(before.as_deref(), now, update.is_first_list)
                }
                MaintenanceChange::Deleted(last) => {
                    let gone = MaintenanceRecord { state: String::from("gone"), ..maintenance_record(last) };
                    vec![RecordBody::Node(gone)]
                }
            };
            let node_deleted = self.deleted_nodes.is_some_and(|deleted| deleted.has(change.object()));
            for body in bodies {
                self.print(match body {
                    RecordBody::Node(record) => {
                        RecordBody::Node(MaintenanceRecord { node_deleted, ..record })
                    }
                    other => other,
                })?;
            }
        }
        for (target, outcome) in update.settled {
            let result = match outcome {
                TargetOutcome::Reached => "reached",
                TargetOutcome::Failed(_) => "failed",
                TargetOutcome::Deleted | TargetOutcome::Replaced => "lost",
            };
            self.results.push(NodeResult { node: target.node, result });
        }
        update.exit.map_or(Ok(ControlFlow::Continue(())), |exit| self.finish(exit))
    }

    fn print_snapshot(&mut self) -> Result<(), Error> {
        if !self.tracker.cache().is_complete() {
            return Ok(());
        }
        let mut maintenances: Vec<MaintenanceRecord<'_>> =
            self.tracker.cache().objects().map(maintenance_record).collect();
        maintenances.sort_by_key(|record| record.node);
        let line = line((self.now)(), RecordBody::Snapshot { live: self.live, maintenances })?;
        Ok(self.out.document(&line)?)
    }

    fn finish(&mut self, exit: Exit) -> Result<ControlFlow<Exit>, Error> {
        let result = match exit {
            Exit::Done => "reached",
            Exit::Failed => "failed",
            Exit::Lost => "lost",
            Exit::TimedOut => "timedOut",
            Exit::Interrupted => "interrupted",
            Exit::Error | Exit::Usage => "error",
        };
        self.print_done(exit, result)?;
        Ok(ControlFlow::Break(exit))
    }

    fn print_done(&mut self, exit: Exit, result: &'static str) -> Result<(), Error> {
        let mut nodes = std::mem::take(&mut self.results);
        let open = self.tracker.awaited();
        nodes.extend(
            open.into_iter().map(|object| NodeResult { node: node(object).to_owned(), result: "open" }),
        );
        self.print(RecordBody::Done { exit_code: exit.number(), result, nodes })
    }

    fn print(&mut self, body: RecordBody<'_>) -> Result<(), Error> {
        let line = line((self.now)(), body)?;
        Ok(self.out.document(&line)?)
    }
}

fn line(now: Timestamp, body: RecordBody<'_>) -> Result<String, Error> {
    // Rounding fails only at the limits of the calendar.
    let record = NdjsonRecord {
        version: RECORD_VERSION,
        body,
        time: now.round(Unit::Millisecond).unwrap_or_default(),
    };
    let json = serde_json::to_string(&record).map_err(|error| Error::Unshowable(error.to_string()))?;
    Ok(json + "\n")
}

fn maintenance_record(object: &NodeMaintenance) -> MaintenanceRecord<'_> {
    let status = status(object);
    MaintenanceRecord {
        node: node(object),
        name: object.metadata.name.as_deref().unwrap_or_default(),
        uid: uid(object),
        state: State::of(object).word().to_lowercase(),
        phase: status.phase,
        progress: percent_gone(status),
        pods: status.pod_counts,
        reason: object.spec.reason.as_deref(),
        error: &status.last_error,
        attached_volumes: attached_volumes(object),
        node_deleted: false,
    }
}

/// The lines about a new or updated maintenance: its own unless a snapshot has it, its conditions, and its pods.
fn update_records<'a>(
    before: Option<&'a NodeMaintenance>,
    now: &'a NodeMaintenance,
    is_in_snapshot: bool,
) -> Vec<RecordBody<'a>> {
    let mut records = Vec::new();
    if !is_in_snapshot && before.map(maintenance_record).as_ref() != Some(&maintenance_record(now)) {
        records.push(RecordBody::Node(maintenance_record(now)));
    }
    let known = before.map(|before| status(before).conditions.as_slice()).unwrap_or_default();
    let is_new = |condition: &&Condition| !known.contains(condition);
    records.extend(status(now).conditions.iter().filter(is_new).map(|condition| RecordBody::Condition {
        node: node(now),
        condition: &condition.type_,
        status: &condition.status,
        reason: &condition.reason,
        message: &condition.message,
        since: condition.last_transition_time.0,
    }));
    let pods = pod_changes(before, now).into_iter();
    records.extend(pods.map(|change| RecordBody::Pod { node: node(now), pod: change.into() }));
    records
}

#[cfg(test)]
#[path = "ndjson_tests.rs"]
mod tests;
