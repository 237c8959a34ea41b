//! Runs a roll: watches its maintenances and the nodes, and carries out what [`decide`] decides.

mod end;
mod health_checks;
mod outcomes;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use futures::stream::{BoxStream, FuturesUnordered, StreamExt, pending};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::Api;
use nm_core::client::cluster::Cluster;
use nm_core::client::watch_stream::{
    WatchChange, WatchPolicy, WatchTarget, WatchUpdate, watch, watch_current_maintenances,
};
use nm_core::error::Error;
use nm_core::maintenance::cache::MaintenanceCache;
use nm_core::maintenance::uid;
use nm_shared::NodeMaintenance;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use crate::absence::LeftNode;
use crate::actions::RunningActions;
use crate::apply::{Applied, apply};
use crate::backoff::Backoff;
use crate::command::{NodeOutputLine, log_name};
use crate::decide::{Decisions, RollChange, RollState, decide, heartbeat};
use crate::health::NodeCheck;
use crate::health_round::Workloads;
use crate::job;
use crate::observed::Observed;
use crate::record::{ActionState, DisturbedObject, Halt, NodeRecord, Roll, RollRecord, Step};
use crate::settings::RollSettings;
use crate::skip;
use crate::store;
use crate::unfinished::{UnfinishedNode, unfinished};
use crate::view::{RollInput, RollReporter, RollView};

pub use self::end::RollEnd;

/// How often gates are checked that no watch reports.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

enum Event {
    Maintenances(WatchUpdate<NodeMaintenance>),
    Nodes(WatchUpdate<Node>),
    /// A watch ended for good.
    Unwatched(Error),
    Output(NodeOutputLine),
    Finished(Finished),
    Input(RollInput),
    Tick,
}

/// What ran beside the loop.
enum Finished {
    Action(String, Step, ActionState),
    /// A round of checks that began at this time.
    Health(Timestamp, Vec<Checked>),
    /// An action that was ended.
    Ended,
    /// The roll is paused or continued.
    Paused(Result<(), Error>),
    Applied(Box<Applied>),
    Heartbeat(Box<Applied>),
}

/// A node whose health was checked in a step, and what is not healthy.
type Checked = (String, Step, Result<NodeCheck, Error>);

/// A program that runs a roll.
pub struct RollRunner<'a> {
    cluster: &'a Cluster,
    name: String,
    /// The settings as they were when the program began. Those in the objects are not read again: a command that somebody
    /// writes there later is not run.
    settings: RollSettings,
    log_folder: Option<PathBuf>,
    maintenances: MaintenanceCache,
    are_nodes_listed: bool,
    /// Whether the maintenances and the nodes are up to date, as far as their watches know.
    live: (bool, bool),
    /// The newest record that is known. It outlives the last maintenance.
    record: RollRecord,
    observed: Observed,
    /// Whether the changes of the last decision are being carried out.
    is_applying: bool,
    /// Whether a heartbeat is being written meanwhile.
    is_beating: bool,
    backoff: Backoff,
    checks: HealthChecks,
    asked: Option<String>,
    tasks: FuturesUnordered<LocalBoxFuture<'a, Finished>>,
    actions: RunningActions,
    lines: (mpsc::Sender<NodeOutputLine>, mpsc::Receiver<NodeOutputLine>),
}

/// What the program knows of its health checks.
#[derive(Default)]
struct HealthChecks {
    /// Whether a round is under way.
    is_under_way: bool,
    /// What was not healthy in the last round, and when that began, by node.
    last: BTreeMap<String, (Timestamp, Vec<DisturbedObject>)>,
    workloads: Workloads,
}

impl<'a> RollRunner<'a> {
    /// A program that runs this roll: the runner of the record, which is stored. `retried` is why the roll had halted
    /// before.
    pub fn new(
        cluster: &'a Cluster,
        roll: &Roll,
        record: RollRecord,
        retried: Option<Halt>,
        log_folder: Option<PathBuf>,
    ) -> Self {
        let runner = record.runner.as_ref().map(|runner| runner.id.clone()).unwrap_or_default();
        Self {
            cluster,
            name: roll.name.clone(),
            settings: roll.settings.clone(),
            log_folder,
            maintenances: MaintenanceCache::default(),
            are_nodes_listed: false,
            live: (true, true),
            record,
            observed: Observed { started: Timestamp::now(), runner, retried, ..Observed::default() },
            is_applying: false,
            is_beating: false,
            backoff: Backoff::default(),
            checks: HealthChecks::default(),
            asked: None,
            tasks: FuturesUnordered::new(),
            actions: RunningActions::default(),
            lines: mpsc::channel(256),
        }
    }

    /// Runs the roll until it is done or halts, or somebody else takes it over.
    ///
    /// # Errors
    ///
    /// If the cluster cannot be watched at the start, if the records of the roll are not valid, or if the reporter
    /// fails.
    pub async fn run(&mut self, reporter: &mut dyn RollReporter) -> Result<RollEnd, Error> {
        let mut maintenances =
            watch_current_maintenances(self.cluster, WatchPolicy::LONG_COMMAND).chain(pending());
        let mut nodes = watch_nodes(self.cluster).chain(pending());
        let mut ticks = interval(CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let event = tokio::select! {
                biased;
                input = reporter.next_input() => match input? {
                    RollInput::Leave => return Ok(RollEnd::Left),
                    input => Event::Input(input),
                },
                Some(event) = maintenances.next() => event.map_or_else(Event::Unwatched, Event::Maintenances),
                Some(event) = nodes.next() => event.map_or_else(Event::Unwatched, Event::Nodes),
                Some(finished) = self.tasks.next() => Event::Finished(finished),
                _ = ticks.tick() => Event::Tick,
                // Last: a command may print without end.
                Some(line) = self.lines.1.recv() => Event::Output(line),
            };
            if self.observed.advance(Timestamp::now()) {
                // A connection may look alive although it is not, and what it has received may be old.
                maintenances =
                    watch_current_maintenances(self.cluster, WatchPolicy::LONG_COMMAND).chain(pending());
                nodes = watch_nodes(self.cluster).chain(pending());
                self.live = (false, false);
                if matches!(event, Event::Maintenances(_) | Event::Nodes(_) | Event::Unwatched(_)) {
                    continue;
                }
            }
            let is_output = matches!(event, Event::Output(_));
            self.handle(event, reporter)?;
            // No decision depends on the output, and each one on the results of the one before.
            if is_output || !self.is_known() {
                continue;
            }
            let end = if self.is_applying { self.beat()? } else { self.step(reporter)? };
            if let Some(end) = end {
                self.report(&end).await;
                return Ok(end);
            }
        }
    }

    /// Gives up the roll, so that somebody else can continue it at once.
    pub async fn release(&mut self) {
        store::release_runner(self.cluster, &self.name, &self.observed.runner).await;
    }

    fn handle(&mut self, event: Event, reporter: &mut dyn RollReporter) -> Result<(), Error> {
        match event {
            Event::Maintenances(WatchUpdate::Change(WatchChange::Applied(object)))
                if self.is_older(&object) => {}
            Event::Maintenances(WatchUpdate::Change(change)) => {
                if let Some(change) = self.valid(change) {
                    self.observed.note_abort(&change, &self.name, &self.record);
                    if let WatchChange::Applied(object) | WatchChange::Deleted(object) = &change {
                        self.observed.note_maintenance(object);
                    }
                    self.maintenances.apply(&change);
                }
            }
            Event::Maintenances(WatchUpdate::Live) => {
                (self.live.0, self.observed.login) = (true, None);
            }
            Event::Nodes(WatchUpdate::Live) => (self.live.1, self.observed.login) = (true, None),
            Event::Maintenances(WatchUpdate::Lost { since, error }) => {
                self.live.0 = false;
                self.note_lost(since, &error);
            }
            Event::Nodes(WatchUpdate::Lost { since, error }) => {
                self.live.1 = false;
                self.note_lost(since, &error);
            }
            Event::Nodes(WatchUpdate::Change(change)) => {
                self.are_nodes_listed |= matches!(change, WatchChange::Listed(_));
                self.observed.apply_nodes(change, Timestamp::now());
            }
            Event::Unwatched(error) if !self.is_known() => return Err(error),
            Event::Unwatched(error) => {
                // What is known of the other objects suffices to store the results of actions.
                self.live = (true, true);
                self.stop("", format!("the cluster cannot be watched any more: {error}"));
            }
            Event::Output(line) => reporter.output(&line)?,
            Event::Finished(Finished::Action(node, step, state)) => {
                self.actions.forget(&node);
                self.observed.actions.insert((node, step), state);
            }
            Event::Finished(Finished::Health(began, checked)) => self.take_checked(began, checked),
            Event::Finished(Finished::Paused(Ok(())) | Finished::Ended) | Event::Tick => {}
            Event::Finished(Finished::Paused(Err(error))) => reporter.show_error(&error),
            Event::Finished(Finished::Applied(applied)) => {
                self.is_applying = false;
                self.take_applied(*applied);
            }
            Event::Finished(Finished::Heartbeat(mut applied)) => {
                self.is_beating = false;
                // The record is adopted from its object by the next decision: somebody may have paused the roll meanwhile.
                for (change, _) in applied.outcomes.extract_if(.., |(_, outcome)| outcome.is_ok()) {
                    self.backoff.succeeded(&change);
                }
                self.take_applied(*applied);
            }
            Event::Input(input) => self.take_input(input),
        }
        Ok(())
    }

    fn note_lost(&mut self, since: Timestamp, error: &Error) {
        self.observed.login = error.needs_login().then(|| error.to_string());
        self.observed.note_lost(since);
    }

    /// Whether the watch is behind what this program has written itself. Versions of one object are comparable numbers
    /// (KEP-5504).
    fn is_older(&self, object: &NodeMaintenance) -> bool {
        let version = |object: &NodeMaintenance| object.resource_version()?.parse::<u64>().ok();
        let known = self.maintenances.get(&uid(object)).and_then(|known| version(known));
        known.zip(version(object)).is_some_and(|(known, new)| new < known)
    }

    /// Whether all objects have been listed.
    fn is_known(&self) -> bool {
        self.maintenances.is_complete() && self.are_nodes_listed
    }

    /// The change with valid objects only. The roll halts because of the others, and its actions still end in order: what was
    /// known of such an object is kept.
    fn valid(&mut self, change: WatchChange<NodeMaintenance>) -> Option<WatchChange<NodeMaintenance>> {
        let mut valid = |object: Arc<NodeMaintenance>| match Roll::find(&self.name, [&object]) {
            Ok(_) => Some(object),
            Err(error) => {
                self.stop(&object.spec.node_name, error.to_string());
                self.maintenances.get(&uid(&object)).map(Arc::clone)
            }
        };
        match change {
            WatchChange::Listed(objects) => {
                Some(WatchChange::Listed(objects.into_iter().filter_map(valid).collect()))
            }
            WatchChange::Applied(object) => valid(object).map(WatchChange::Applied),
            WatchChange::Deleted(object) => Some(WatchChange::Deleted(object)),
        }
    }

    /// The roll cannot continue, because of a node or as a whole: it halts.
    fn stop(&mut self, node: &str, why: String) {
        self.observed.broken.get_or_insert((node.to_owned(), why));
    }

    /// The roll halts because of a node.
    fn fail(&mut self, node: &str, why: &str) {
        self.observed.failed.insert(node.to_owned(), why.to_owned());
    }

    fn take_input(&mut self, input: RollInput) {
        match input {
            RollInput::Answer(answer) => {
                if let Some(node) = self.asked.take() {
                    self.observed.confirmed.insert(node, answer);
                }
            }
            RollInput::Pause(paused) => {
                let (cluster, name) = (self.cluster, self.name.clone());
                let who = self.record.runner.as_ref().map(|runner| runner.who.clone()).unwrap_or_default();
                self.tasks.push(Box::pin(async move {
                    Finished::Paused(store::pause(cluster, &name, paused, &who).await.map(drop))
                }));
            }
            RollInput::Leave => {}
        }
    }

    /// The record of the roll as this program knows it.
    pub fn record(&self) -> &RollRecord {
        &self.record
    }

    /// Who has aborted the roll; none if nobody has.
    pub fn aborted(&self) -> Option<&str> {
        self.observed.aborted.as_deref().or(self.record.aborted.as_deref())
    }

    /// The nodes that are not done, as far as is known.
    pub fn unfinished(&self) -> Vec<UnfinishedNode> {
        unfinished(self.roll().ok().flatten().as_ref(), &self.record)
    }

    /// What a skip means for a node; none if the node cannot be skipped, or if the roll cannot be read.
    pub fn skip_consequence(&self, node: &str) -> Option<&'static str> {
        skip::consequence(node, &self.roll().ok().flatten()?, &self.record)
    }

    /// Whether another program can continue the roll: it finds it in its maintenances, which may all be gone with their nodes. True if
    /// that is not known.
    pub fn is_stored(&self) -> bool {
        self.roll().ok().flatten().is_some() || !self.maintenances.is_complete()
    }

    /// The nodes that have left the roll although they are not done.
    pub fn left(&self) -> &[LeftNode] {
        &self.record.left
    }

    fn roll(&self) -> Result<Option<Roll>, Error> {
        Ok(Roll::find(&self.name, self.maintenances.all())?)
    }

    /// Decides once, and begins to carry it out.
    fn step(&mut self, reporter: &mut dyn RollReporter) -> Result<Option<RollEnd>, Error> {
        let roll = self.roll()?.map(|roll| Roll { settings: self.settings.clone(), ..roll });
        let roll = roll.unwrap_or_else(|| Roll {
            name: self.name.clone(),
            settings: self.settings.clone(),
            nodes: Vec::new(),
            record: None,
        });
        self.observed.adopt_newer(&mut self.record, &roll);
        self.observed.note_live(self.live == (true, true));
        self.observed.note(&roll, &self.record);
        let Decisions { changes, progress, state } = decide(&roll, &self.record, &self.observed);
        reporter.show(&RollView {
            roll: &roll,
            record: &self.record,
            progress: &progress,
            state: &state,
            aborted: self.aborted(),
            is_current: self.observed.is_current,
            now: self.observed.now,
        })?;
        let record = || Box::new(self.record.clone());
        match state {
            RollState::Done => return Ok(Some(RollEnd::Done(record()))),
            RollState::Halted(halt) => {
                let begun = roll.nodes.iter().filter(|node| node.is_worked_on());
                return Ok(Some(RollEnd::Halted(halt, begun.map(|node| node.node().to_owned()).collect())));
            }
            RollState::TakenOver(other) => return Ok(Some(RollEnd::TakenOver(other))),
            RollState::Aborted(who) => return Ok(Some(RollEnd::Aborted(who, record()))),
            RollState::Working | RollState::Waiting(_) => {}
        }
        self.end_actions();
        self.check_health(&roll, &progress);
        if self.asked.is_none() {
            let confirming = progress.iter().find(|node| {
                node.step == Step::Confirming && !self.observed.confirmed.contains_key(&node.node)
            });
            if let Some(confirming) = confirming {
                reporter.ask(&confirming.node)?;
                self.asked = Some(confirming.node.clone());
            }
        }
        let changes = self.due(changes);
        if !changes.is_empty() {
            self.is_applying = true;
            let (cluster, nodes) = (self.cluster, self.observed.nodes.clone());
            let (workloads, has_halted) = (self.checks.workloads.clone(), self.record.halt.is_some());
            self.tasks.push(Box::pin(async move {
                let applied = apply(cluster, roll, changes, nodes, &workloads, has_halted).await;
                Finished::Applied(Box::new(applied))
            }));
        }
        Ok(None)
    }

    /// Writes a heartbeat, if one is due while the changes of a decision are being carried out: that may take longer than
    /// somebody waits for it.
    fn beat(&mut self) -> Result<Option<RollEnd>, Error> {
        let Some(roll) = self.roll()?.filter(|_| !self.is_beating) else { return Ok(None) };
        let roll = Roll { settings: self.settings.clone(), ..roll };
        let newer = roll.record.as_ref().filter(|newer| newer.revision > self.record.revision);
        let record = newer.unwrap_or(&self.record);
        if let Some(other) = record.runner.as_ref().filter(|runner| runner.id != self.observed.runner) {
            return Ok(Some(RollEnd::TakenOver(other.clone())));
        }
        let record = heartbeat(&roll, record, &self.observed);
        let changes = self.due(record.map(Box::new).map(RollChange::Record).into_iter().collect());
        if !changes.is_empty() {
            self.is_beating = true;
            let (cluster, workloads) = (self.cluster, self.checks.workloads.clone());
            self.tasks.push(Box::pin(async move {
                let applied = apply(cluster, roll, changes, BTreeMap::new(), &workloads, false).await;
                Finished::Heartbeat(Box::new(applied))
            }));
        }
        Ok(None)
    }

    /// Starts the command of a node, or follows its Job.
    fn act(&mut self, roll: &Roll, name: &str, record: &NodeRecord) {
        let log = self.log_folder.as_ref().map(|folder| folder.join(log_name(name)));
        let action = self.actions.start(self.cluster, roll, name, record, log, self.lines.0.clone());
        let (name, step) = (name.to_owned(), record.step);
        self.tasks.push(Box::pin(async move {
            action.await.map_or(Finished::Ended, |state| Finished::Action(name, step, state))
        }));
    }

    /// Ends the actions of nodes that somebody takes out of the roll: their nodes return to service.
    fn end_actions(&mut self) {
        // A watch that is lost may be behind: what looks deleted by somebody was perhaps deleted with its node.
        if !self.observed.is_current {
            return;
        }
        // The command of a node that was deleted may be what waits for its return.
        let stays = |name: &str| !self.observed.has_lost_maintenance(name);
        for (name, job) in self.actions.end_unless(stays) {
            self.observed.actions.retain(|(node, _), _| *node != name);
            let text = String::from("ended: the maintenance of the node was deleted");
            // If the channel is full, the output of the command says enough.
            let _ = self.lines.0.try_send(NodeOutputLine { node: name, text });
            if let Some(job) = job {
                let cluster = self.cluster;
                self.tasks.push(Box::pin(async move {
                    // Its time to live ends it otherwise.
                    let _ = job::delete(cluster, &job).await;
                    Finished::Ended
                }));
            }
        }
    }
}

pub(crate) fn watch_nodes(cluster: &Cluster) -> BoxStream<'static, Result<WatchUpdate<Node>, Error>> {
    let target = WatchTarget::all(Api::all(cluster.client()), "nodes", cluster.server());
    watch(target, WatchPolicy::LONG_COMMAND, Some)
}

#[cfg(test)]
#[path = "runner_tests.rs"]
mod tests;
