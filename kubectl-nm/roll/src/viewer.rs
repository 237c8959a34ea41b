//! Shows a roll that another program runs.
//!
//! What the records and the nodes show is computed again only when one of them has changed. In between, the same is shown with
//! another time.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt, pending};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use nm_core::client::cluster::Cluster;
use nm_core::client::watch_stream::{WatchChange, WatchPolicy, WatchUpdate, watch_current_maintenances};
use nm_core::error::Error;
use nm_core::maintenance::cache::MaintenanceCache;
use nm_core::maintenance::uid;
use nm_shared::NodeMaintenance;
use tokio::time::{Instant, sleep, sleep_until};

use crate::decide::{HEARTBEAT_TIMEOUT, NodeProgress, RollState, decide};
use crate::error::RollError;
use crate::in_cluster::starting::starting;
use crate::job;
use crate::observed::Observed;
use crate::record::{NODE, Roll, RollNode, RollRecord, Runner, Step, roll_name};
use crate::runner::{RollEnd, watch_nodes};
use crate::store;
use crate::view::{RollInput, RollReporter, RollView};

/// How often a roll is shown of which nothing changes: the dashboard would take it for stale otherwise.
const SHOW_INTERVAL: Duration = Duration::from_secs(1);

/// How long changes are collected that are not steps of the roll.
const COALESCING_INTERVAL: Duration = Duration::from_millis(250);

/// How often the Job of a roll that nobody runs is read, and the pods of the Jobs that run for its nodes.
const JOB_INTERVAL: Duration = Duration::from_secs(5);

/// Shows a roll to `who` until it is over, halts, or the user leaves. Nothing is written, unless the user pauses the roll.
///
/// # Errors
///
/// If there is no such roll, if the cluster cannot be watched, if a record is not valid, or if the reporter fails.
pub async fn show(
    cluster: &Cluster,
    name: &str,
    who: &str,
    reporter: &mut dyn RollReporter,
) -> Result<RollEnd, Error> {
    let mut updates = watch_current_maintenances(cluster, WatchPolicy::LONG_COMMAND).chain(pending());
    let mut node_updates = watch_nodes(cluster).chain(pending());
    let mut job_reads = FuturesUnordered::new();
    let mut problem_reads = FuturesUnordered::new();
    let mut viewer = Viewer::new(name);
    let mut due = Instant::now() + SHOW_INTERVAL;
    loop {
        let urgency = tokio::select! {
            input = reporter.next_input() => {
                match input? {
                    RollInput::Leave => return Ok(RollEnd::Left),
                    RollInput::Pause(paused) => {
                        if let Err(error) = store::pause(cluster, name, paused, who).await {
                            reporter.show_error(&error);
                        }
                    }
                    RollInput::Answer(_) => {}
                }
                Urgency::Never
            }
            Some(update) = updates.next() => viewer.note_maintenances(update?),
            // Without the permission to list nodes, what they wait for is not shown.
            Some(Ok(update)) = node_updates.next() => viewer.note_nodes(update),
            Some(job) = job_reads.next() => {
                (viewer.is_job_read, viewer.starting) = (true, job);
                Urgency::Now
            }
            Some(problems) = problem_reads.next() => {
                viewer.problems = problems;
                Urgency::Soon
            }
            () = sleep_until(due) => Urgency::Now,
        };
        match urgency {
            Urgency::Never => continue,
            Urgency::Soon => due = due.min(Instant::now() + COALESCING_INTERVAL),
            Urgency::Now => due = Instant::now() + SHOW_INTERVAL,
        }
        if urgency == Urgency::Soon || !viewer.maintenances.is_complete() {
            continue;
        }
        let now = Timestamp::now();
        viewer.refresh(now)?;
        if viewer.awaits_job(now) {
            let (is_first, roll) = (!viewer.is_job_read, name.to_owned());
            if job_reads.is_empty() {
                let wait = if is_first { Duration::ZERO } else { JOB_INTERVAL };
                job_reads.push(async move {
                    sleep(wait).await;
                    // Without permission to read it, it is not known.
                    starting(cluster, &roll).await.ok().flatten()?.words().map(str::to_owned)
                });
            }
            if is_first {
                continue;
            }
        } else {
            (viewer.is_job_read, viewer.starting) = (false, None);
        }
        match viewer.seen.as_ref().map(|seen| &seen.roll).filter(|roll| job::has_running(roll)) {
            Some(roll) if problem_reads.is_empty() => {
                let roll = roll.clone();
                problem_reads.push(async move {
                    sleep(JOB_INTERVAL).await;
                    job::problem_words(cluster, &roll).await
                });
            }
            Some(_) => {}
            None => viewer.problems.clear(),
        }
        if let Some(end) = viewer.show(reporter, now)? {
            return Ok(end);
        }
    }
}

/// When a change is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Urgency {
    /// It is not about the roll.
    Never,
    /// Together with others.
    Soon,
    /// At once: a node has taken a step, and may take the next one a moment later.
    Now,
}

struct Viewer<'a> {
    name: &'a str,
    maintenances: MaintenanceCache,
    nodes: Observed,
    are_nodes_listed: bool,
    /// Whether the maintenances and the nodes are up to date, as far as is known.
    live: (bool, bool),
    /// The newest record. The last one is seen for a moment only: then its object is gone, and the roll with it.
    newest: RollRecord,
    /// A record names the nodes that are done only until their maintenances are gone.
    released: BTreeSet<String>,
    /// Whether the Job of a roll that nobody runs was read.
    is_job_read: bool,
    /// The Job that is about to run the roll; none if there is none.
    starting: Option<String>,
    /// Why the Jobs of nodes do not start, by node, as it was read last.
    problems: BTreeMap<String, String>,
    has_changed: bool,
    /// The roll as it was seen last.
    seen: Option<SeenRoll>,
}

struct SeenRoll {
    roll: Roll,
    record: RollRecord,
    progress: Vec<NodeProgress>,
    is_over: bool,
}

impl<'a> Viewer<'a> {
    fn new(name: &'a str) -> Self {
        Self {
            name,
            maintenances: MaintenanceCache::default(),
            nodes: Observed::default(),
            are_nodes_listed: false,
            live: (true, true),
            newest: RollRecord::default(),
            released: BTreeSet::new(),
            is_job_read: false,
            starting: None,
            problems: BTreeMap::new(),
            has_changed: true,
            seen: None,
        }
    }

    fn note_maintenances(&mut self, update: WatchUpdate<NodeMaintenance>) -> Urgency {
        let WatchUpdate::Change(change) = update else {
            self.live.0 = matches!(update, WatchUpdate::Live);
            return Urgency::Soon;
        };
        let urgency = self.urgency(&change);
        let objects = match &change {
            WatchChange::Listed(objects) => objects.as_slice(),
            WatchChange::Applied(object) | WatchChange::Deleted(object) => std::slice::from_ref(object),
        };
        for object in objects.iter().filter(|object| self.is_of_roll(object)).cloned().collect::<Vec<_>>() {
            self.note_record(&object);
        }
        self.maintenances.apply(&change);
        self.has_changed |= urgency != Urgency::Never;
        urgency
    }

    fn is_of_roll(&self, object: &NodeMaintenance) -> bool {
        roll_name(object) == Some(self.name)
    }

    fn urgency(&self, change: &WatchChange<NodeMaintenance>) -> Urgency {
        let WatchChange::Applied(object) = change else {
            let is_other = matches!(change, WatchChange::Deleted(object) if !self.is_of_roll(object));
            return if is_other { Urgency::Never } else { Urgency::Now };
        };
        let step = |object: &NodeMaintenance| object.annotations().get(NODE).cloned();
        let known = self.maintenances.get(&uid(object));
        match known {
            Some(known) if self.is_of_roll(known) && step(known) == step(object) => Urgency::Soon,
            Some(known) if self.is_of_roll(known) => Urgency::Now,
            _ if self.is_of_roll(object) => Urgency::Now,
            _ => Urgency::Never,
        }
    }

    /// Keeps the record in an object if it is newer, and the nodes that it calls done.
    fn note_record(&mut self, object: &NodeMaintenance) {
        let Some(record) = RollRecord::of(object).ok().flatten() else { return };
        self.released.extend(record.released.iter().cloned());
        if record.revision > self.newest.revision {
            self.newest = record;
        }
    }

    fn note_nodes(&mut self, update: WatchUpdate<Node>) -> Urgency {
        let WatchUpdate::Change(change) = update else {
            self.live.1 = matches!(update, WatchUpdate::Live);
            return Urgency::Soon;
        };
        self.are_nodes_listed |= matches!(change, WatchChange::Listed(_));
        let has_changed = self.nodes.apply_nodes(change, Timestamp::now());
        self.has_changed |= has_changed;
        if has_changed { Urgency::Soon } else { Urgency::Never }
    }

    /// Computes what is shown, if something has changed since then.
    fn refresh(&mut self, now: Timestamp) -> Result<(), Error> {
        if !std::mem::take(&mut self.has_changed) {
            return Ok(());
        }
        let Some(roll) = Roll::find(self.name, self.maintenances.all())? else {
            let seen = self.seen.as_mut().ok_or_else(|| RollError::Unknown(self.name.to_owned()))?;
            (seen.is_over, seen.record) = (true, self.newest.clone());
            seen.progress.clear();
            seen.record.released = self.released.iter().cloned().collect();
            return Ok(());
        };
        let mut record = roll.complete_record()?;
        let nodes = self.are_nodes_listed.then(|| self.nodes.nodes.clone());
        let progress = decide(&roll, &record, &Observed::shown_at(now, &roll, nodes)).progress;
        record.released = self.released.iter().cloned().collect();
        self.seen = Some(SeenRoll { roll, record, progress, is_over: false });
        Ok(())
    }

    /// Whether nobody runs a roll that a Job in the cluster may be about to run.
    fn awaits_job(&self, now: Timestamp) -> bool {
        let Some(SeenRoll { roll, record, is_over, .. }) = &self.seen else { return false };
        let stands_still = record.paused && record.aborted.is_none() || record.halt.is_some();
        roll.settings.in_cluster && !is_over && !stands_still && !is_run(record.runner.as_ref(), now)
    }

    /// Shows the roll as it was computed last. Returns its end.
    fn show(&self, reporter: &mut dyn RollReporter, now: Timestamp) -> Result<Option<RollEnd>, Error> {
        let Some(seen) = &self.seen else { return Ok(None) };
        let SeenRoll { roll, record, progress, .. } = seen;
        let mut progress = Cow::Borrowed(progress.as_slice());
        if !self.problems.is_empty() {
            job::add_problems(progress.to_mut(), &self.problems);
        }
        let state = state(seen, self.starting.clone(), now);
        reporter.show(&RollView {
            roll,
            record,
            progress: &progress,
            state: &state,
            aborted: record.aborted.as_deref(),
            is_current: self.live == (true, true),
            now,
        })?;
        Ok(match state {
            RollState::Done => Some(RollEnd::Done(Box::new(record.clone()))),
            RollState::Aborted(who) => Some(RollEnd::Aborted(who, Box::new(record.clone()))),
            RollState::Halted(halt) => {
                let begun = roll.nodes.iter().filter(|node| node.is_worked_on());
                Some(RollEnd::Halted(halt, begun.map(|node| node.node().to_owned()).collect()))
            }
            RollState::Working | RollState::Waiting(_) | RollState::TakenOver(_) => None,
        })
    }
}

/// Whether the last heartbeat of a program is not overdue.
fn is_run(runner: Option<&Runner>, now: Timestamp) -> bool {
    runner.is_some_and(|runner| now.duration_since(runner.at) < HEARTBEAT_TIMEOUT)
}

/// The state of a roll by its record. `starting` is the Job that is about to run it.
fn state(seen: &SeenRoll, starting: Option<String>, now: Timestamp) -> RollState {
    let SeenRoll { record, is_over, .. } = seen;
    match (&record.halt, &record.aborted, &record.runner) {
        (_, Some(who), _) if *is_over => RollState::Aborted(who.clone()),
        _ if *is_over => RollState::Done,
        (Some(halt), None, _) => RollState::Halted(halt.clone()),
        (None, None, _) if record.paused => RollState::Waiting(record.paused_words()),
        (_, aborted, runner) if is_run(runner.as_ref(), now) => {
            let closed = closed_window(seen, now).filter(|_| aborted.is_none());
            closed.map_or(RollState::Working, RollState::Waiting)
        }
        (_, _, runner) => RollState::Waiting(match (starting, runner) {
            (Some(starting), _) => starting,
            (None, None) => String::from("nobody runs the roll"),
            // The time itself: how long ago it is changes every second.
            (None, Some(runner)) => {
                format!(
                    "{} ran the roll, last seen at {}",
                    runner.who,
                    runner.at.strftime("%Y-%m-%d %H:%M:%S UTC")
                )
            }
        }),
    }
}

/// Why no planned node may start now because of the windows; none if other nodes are under way.
fn closed_window(SeenRoll { roll, record, progress, .. }: &SeenRoll, now: Timestamp) -> Option<String> {
    let is_planned =
        |node: &RollNode| node.record.step == Step::Planned && !node.is_leaving() && !node.is_absent();
    let planned: BTreeSet<&str> =
        roll.nodes.iter().filter(|node| is_planned(node)).map(RollNode::node).collect();
    let is_idle = !planned.is_empty() && progress.iter().all(|one| planned.contains(&*one.node));
    let slowest = SignedDuration::from_secs(record.done.slowest_seconds);
    roll.settings.windows.closed(now, slowest).filter(|_| is_idle)
}

#[cfg(test)]
#[path = "viewer_tests.rs"]
mod tests;
