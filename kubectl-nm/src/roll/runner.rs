//! Runs a roll: watches its maintenances and the nodes, and carries out what [`decide`] decides.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use futures::stream::{BoxStream, FuturesUnordered, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::Api;
use nm_shared::NodeMaintenance;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use crate::client::cluster::Cluster;
use crate::client::watch_stream::{
    WatchChange, WatchPolicy, WatchTarget, WatchUpdate, watch, watch_maintenances,
};
use crate::error::Error;
use crate::maintenance::cache::MaintenanceCache;
use crate::maintenance::uid;
use crate::roll::actions::RunningActions;
use crate::roll::apply::{Applied, apply};
use crate::roll::command::OutputLine;
use crate::roll::decide::{Change, Decisions, Outlook, decide};
use crate::roll::health;
use crate::roll::job;
use crate::roll::observed::{Health, Observed};
use crate::roll::record::{
    self, ActionState, DoneNodes, NodeRecord, Roll, RollRecord, Runner, STATE, Step, roll_name,
};
use crate::roll::settings::RollSettings;
use crate::roll::store::{self, is_outdated};
use crate::roll::view::{RollInput, RollReporter, RollView};

/// How often gates are checked that no watch reports.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How a run of a roll ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RollEnd {
    Done(DoneNodes),
    Halted(record::Halt),
    TakenOver(Runner),
    /// Somebody aborted the roll; who.
    Aborted(String),
    /// The user left. The roll stays as it is.
    Left,
}

enum Event {
    Maintenances(WatchUpdate<NodeMaintenance>),
    Nodes(WatchUpdate<Node>),
    Output(OutputLine),
    Finished(Finished),
    Input(RollInput),
    Tick,
}

/// What ran beside the loop.
enum Finished {
    Action(String, ActionState),
    Health(String, Step, Result<Health, Error>),
    /// An action that was ended.
    Ended,
    /// The roll is paused or continued.
    Paused(Result<(), Error>),
    Applied(Box<Result<Applied, Error>>),
}

/// A program that runs a roll.
pub(crate) struct RollRunner<'a> {
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
    checking: BTreeSet<String>,
    asked: Option<String>,
    tasks: FuturesUnordered<LocalBoxFuture<'a, Finished>>,
    actions: RunningActions,
    lines: (mpsc::Sender<OutputLine>, mpsc::Receiver<OutputLine>),
}

impl<'a> RollRunner<'a> {
    /// A program that runs this roll: the runner of the record, which is stored. `retried` is the node that had halted the
    /// roll before.
    pub(crate) fn new(
        cluster: &'a Cluster,
        roll: &Roll,
        record: RollRecord,
        retried: Option<String>,
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
            checking: BTreeSet::new(),
            asked: None,
            tasks: FuturesUnordered::new(),
            actions: RunningActions::default(),
            lines: mpsc::channel(256),
        }
    }

    /// Runs the roll until it is done or halts, or somebody else takes it over.
    pub(crate) async fn run(&mut self, reporter: &mut dyn RollReporter) -> Result<RollEnd, Error> {
        let mut maintenances = watch_maintenances(self.cluster);
        let mut nodes = watch_nodes(self.cluster);
        let mut ticks = interval(CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let event = tokio::select! {
                biased;
                input = reporter.next_input() => match input? {
                    RollInput::Leave => return Ok(RollEnd::Left),
                    input => Event::Input(input),
                },
                event = maintenances.next() => match event { Some(event) => Event::Maintenances(event?), None => continue },
                event = nodes.next() => match event { Some(event) => Event::Nodes(event?), None => continue },
                Some(finished) = self.tasks.next() => Event::Finished(finished),
                _ = ticks.tick() => Event::Tick,
                // Last: a command may print without end.
                Some(line) = self.lines.1.recv() => Event::Output(line),
            };
            let is_output = matches!(event, Event::Output(_));
            self.handle(event, reporter)?;
            // No decision depends on the output, and each one on the results of the one before.
            if is_output || self.is_applying || !self.maintenances.is_complete() || !self.are_nodes_listed {
                continue;
            }
            if let Some(end) = self.step(reporter)? {
                return Ok(end);
            }
        }
    }

    /// Gives up the roll, so that somebody else can continue it at once.
    pub(crate) async fn release(&mut self) {
        store::release_runner(self.cluster, &self.name, &self.observed.runner).await;
    }

    fn handle(&mut self, event: Event, reporter: &mut dyn RollReporter) -> Result<(), Error> {
        match event {
            Event::Maintenances(WatchUpdate::Change(WatchChange::Applied(object)))
                if self.is_older(&object) => {}
            Event::Maintenances(WatchUpdate::Change(change)) => {
                self.note_abort(&change);
                self.maintenances.apply(&change);
            }
            Event::Maintenances(update) => self.live.0 = matches!(update, WatchUpdate::Live),
            Event::Nodes(WatchUpdate::Change(change)) => {
                self.are_nodes_listed |= matches!(change, WatchChange::Listed(_));
                self.observed.apply_nodes(change, Timestamp::now());
            }
            Event::Nodes(update) => self.live.1 = matches!(update, WatchUpdate::Live),
            Event::Output(line) => reporter.output(&line)?,
            Event::Finished(Finished::Action(node, state)) => {
                self.actions.forget(&node);
                self.observed.actions.insert(node, state);
            }
            Event::Finished(Finished::Health(node, step, health)) => {
                self.checking.remove(&node);
                match health {
                    Ok(health) => {
                        self.observed.health.insert((node, step), health);
                    }
                    Err(error) if error.is_transient() => {}
                    Err(error) => {
                        self.fail(&node, &format!("the health of node {node} cannot be checked: {error}"));
                    }
                }
            }
            Event::Finished(Finished::Paused(Ok(())) | Finished::Ended) | Event::Tick => {}
            Event::Finished(Finished::Paused(Err(error))) => reporter.show_error(&error),
            Event::Finished(Finished::Applied(applied)) => self.take_applied((*applied)?)?,
            Event::Input(input) => self.take_input(input),
        }
        Ok(())
    }

    /// Whether the watch is behind what this program has written itself. Versions of one object are comparable numbers
    /// (KEP-5504).
    fn is_older(&self, object: &NodeMaintenance) -> bool {
        let version = |object: &NodeMaintenance| object.resource_version()?.parse::<u64>().ok();
        let known = self.maintenances.get(&uid(object)).and_then(|known| version(known));
        known.zip(version(object)).is_some_and(|(known, new)| new < known)
    }

    /// Remembers that somebody has aborted the roll: the object with that record is deleted soon.
    fn note_abort(&mut self, change: &WatchChange<NodeMaintenance>) {
        let WatchChange::Applied(object) = change else { return };
        if roll_name(object) != Some(&self.name) {
            return;
        }
        let record = object.annotations().get(STATE).and_then(|text| serde_json::from_str(text).ok());
        let Some(RollRecord { revision, aborted: Some(who), .. }) = record else { return };
        if revision > self.record.revision {
            self.observed.aborted = Some(who);
        }
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
                self.tasks.push(Box::pin(async move {
                    Finished::Paused(store::pause(cluster, &name, paused).await.map(drop))
                }));
            }
            RollInput::Leave => {}
        }
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
        self.observed.now = Timestamp::now();
        self.observed.is_current = self.live == (true, true);
        let Decisions { changes, progress, outlook } = decide(&roll, &self.record, &self.observed);
        reporter.show(&RollView {
            roll: &roll,
            record: &self.record,
            progress: &progress,
            outlook: &outlook,
            is_current: self.observed.is_current,
            now: self.observed.now,
        })?;
        match outlook {
            Outlook::Done => return Ok(Some(RollEnd::Done(self.record.done.clone()))),
            Outlook::Halted(halt) => return Ok(Some(RollEnd::Halted(halt))),
            Outlook::TakenOver(other) => return Ok(Some(RollEnd::TakenOver(other))),
            Outlook::Aborted(who) => return Ok(Some(RollEnd::Aborted(who))),
            Outlook::Working | Outlook::Waiting(_) => {}
        }
        self.end_actions(&roll);
        self.check_health(&roll);
        if self.asked.is_none() {
            let confirming = progress.iter().find(|node| {
                node.step == Step::Confirming && !self.observed.confirmed.contains_key(&node.node)
            });
            if let Some(confirming) = confirming {
                reporter.ask(&confirming.node)?;
                self.asked = Some(confirming.node.clone());
            }
        }
        if !changes.is_empty() {
            self.is_applying = true;
            let (cluster, nodes) = (self.cluster, self.observed.nodes.clone());
            self.tasks.push(Box::pin(async move {
                Finished::Applied(Box::new(apply(cluster, roll, changes, nodes).await))
            }));
        }
        Ok(None)
    }

    /// Starts the checks whose results are not watched, each after the one before has ended.
    fn check_health(&mut self, roll: &Roll) {
        let cluster = self.cluster;
        let is_checked = |step: Step| matches!(step, Step::Checking | Step::Recovering);
        let wanted: Vec<(String, Step, Vec<_>)> = roll
            .nodes
            .iter()
            .filter(|node| is_checked(node.record.step) && !node.is_leaving())
            .map(|node| (node.node().to_owned(), node.record.step, node.record.baseline.healthy.clone()))
            .collect();
        // A node that is checked again later has to be healthy then.
        self.observed
            .health
            .retain(|(node, step), _| wanted.iter().any(|(name, now, _)| name == node && now == step));
        for (node, step, disturbed) in wanted {
            if !self.checking.insert(node.clone()) {
                continue;
            }
            self.tasks.push(Box::pin(async move {
                tokio::time::sleep(CHECK_INTERVAL / 2).await;
                let health = match step {
                    Step::Checking => health::daemon_sets(cluster, &node, &disturbed).await,
                    _ => health::recovery(cluster, &disturbed).await,
                };
                Finished::Health(node, step, health)
            }));
        }
    }

    /// Records the results of the changes of a decision.
    fn take_applied(&mut self, applied: Applied) -> Result<(), Error> {
        self.is_applying = false;
        let Applied { roll, record, objects, outcomes } = applied;
        if let Some(record) = record {
            self.record = record;
        }
        for object in objects {
            // The watch may have shown its end meanwhile.
            if self.maintenances.get(&uid(&object)).is_some() && !self.is_older(&object) {
                self.maintenances.apply(&WatchChange::Applied(Arc::new(object)));
            }
        }
        for (change, outcome) in outcomes {
            match (change, outcome) {
                (Change::Act(name, record), Ok(())) => {
                    self.observed.actions.insert(name.clone(), ActionState::Running);
                    self.act(&roll, &name, &record);
                }
                (Change::Act(name, _), Err(error)) if !error.is_transient() && !is_outdated(&error) => {
                    self.observed.actions.insert(name, ActionState::Failed(error.to_string()));
                }
                (Change::Begin(name, _), Ok(())) => {
                    self.observed.refused.remove(&name);
                }
                (Change::Begin(name, _), Err(error)) if is_webhook_refusal(&error) => {
                    self.observed.refused.insert(name, error.to_string());
                }
                (Change::Pause(name), Ok(())) => {
                    self.observed.to_pause.remove(&name);
                }
                (_, Ok(())) => {}
                // The watch has, or will have, what changed: it is decided again.
                (_, Err(error)) if error.is_transient() || is_outdated(&error) => {}
                (change, Err(error)) => {
                    let Some(node) = change.node() else { return Err(error) };
                    self.fail(node, &format!("the maintenance of node {node} cannot be changed: {error}"));
                }
            }
        }
        Ok(())
    }

    /// Starts the command of a node, or follows its Job.
    fn act(&mut self, roll: &Roll, name: &str, record: &NodeRecord) {
        let log = self.log_folder.as_ref().map(|folder| folder.join(format!("{name}.log")));
        let action = self.actions.start(self.cluster, roll, name, record, log, self.lines.0.clone());
        let name = name.to_owned();
        self.tasks.push(Box::pin(async move {
            action.await.map_or(Finished::Ended, |state| Finished::Action(name, state))
        }));
    }

    /// Ends the actions of nodes that somebody takes out of the roll: their nodes return to service.
    fn end_actions(&mut self, roll: &Roll) {
        let stays = |name: &str| roll.node(name).is_some_and(|node| !node.is_leaving());
        for (name, job) in self.actions.end_unless(stays) {
            self.observed.actions.remove(&name);
            let text = String::from("ended: the maintenance of the node was deleted");
            // If the channel is full, the output of the command says enough.
            let _ = self.lines.0.try_send(OutputLine { node: name, text });
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

fn is_webhook_refusal(error: &Error) -> bool {
    error.status().is_some_and(|status| status.message.starts_with("admission webhook"))
}

fn watch_nodes(cluster: &Cluster) -> BoxStream<'static, Result<WatchUpdate<Node>, Error>> {
    let target = WatchTarget {
        api: Api::all(cluster.client()),
        field_selector: None,
        resource: "nodes",
        server: cluster.server().to_owned(),
    };
    watch(target, WatchPolicy::COMMAND, Some)
}
