//! The event loop: every event becomes a message, `update` answers with effects, and the screen is drawn when something
//! changed. Nothing in the loop waits for a server.

use std::io;
use std::time::Duration;

use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyModifiers};
use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use nm_core::client::cluster::Cluster;
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::explain::lasting_outages;
use nm_core::explain::read_facts::read_wanted;
use nm_core::terminal::output::Output;
use nm_core::terminal::text::Line;
use nm_core::watch::event_loop::expiry;
use nm_core::watch::goal_tracker::{GoalTracker, TargetOutcome, WaitTarget};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::message::{CommandError, Effect, Message};
use crate::model::{Model, Options};
use crate::objects::watch_state::WatchKind;
use crate::recording::error::RecordingError;
use crate::recording::recorded_nodes::followed;
use crate::recording::recorder::{NewRecording, Recorder};
use crate::screen::redraw::Redraw;
use crate::screen::signals::{self, Signal};
use crate::screen::terminal::Screen;
use crate::tasks::latest_task::LatestTask;
use crate::tasks::pending_commands::await_results;
use crate::tasks::{kubectl, leader, pod_count, pod_requests, requests, start_plans};
use crate::update::causes::known_of;
use crate::update::update;
use crate::view;
use crate::watches::Watches;

/// How often ages on the screen are updated.
const TICK_INTERVAL: Duration = Duration::from_secs(1);

/// How many messages may be queued; watches wait when there are more.
const MESSAGE_QUEUE: usize = 256;

/// How many drains are summed up at the end.
const MAX_SUMMARIES: usize = 10;

/// Why the dashboard ended.
#[derive(Debug)]
pub enum EndReason {
    /// Its goal was reached, or never will be.
    Settled(Vec<(WaitTarget, TargetOutcome)>, Exit),
    /// The user closed it.
    Quit,
    /// Ctrl-C, a signal, or a terminal that is gone.
    Interrupted,
    /// Its timeout expired; the duration of the timeout.
    TimedOut(Duration),
    /// The screen cannot be drawn.
    Failed(io::Error),
}

impl EndReason {
    /// How the dashboard exits because of its goal; none if something else has ended it.
    pub fn settled(&self) -> Option<Exit> {
        match self {
            Self::Settled(_, exit) => Some(*exit),
            Self::Quit | Self::Interrupted | Self::TimedOut(_) | Self::Failed(_) => None,
        }
    }
}

/// Result of a run of the dashboard.
#[derive(Debug)]
pub struct DashboardExit {
    /// Why it ended.
    pub reason: EndReason,
    /// Since when the view may have been out of date; none if it was current.
    pub stale_since: Option<Timestamp>,
    /// The results of commands that ended after the screen was released.
    pub results: Vec<Result<String, CommandError>>,
    /// The maintenances as they were seen last, and the goal.
    pub tracker: GoalTracker,
    /// What the drains that ended meanwhile have done and cost.
    pub summaries: Vec<Line>,
    /// How many messages were recorded, if that was asked for.
    pub recorded: Option<Result<u64, RecordingError>>,
}

/// Runs the dashboard until it ends. Takes the screen and releases it.
///
/// # Errors
///
/// If the terminal cannot be taken ([`Error::Screen`]). A later failure is [`EndReason::Failed`].
pub async fn run(
    options: Options,
    cluster: &Cluster,
    tracker: GoalTracker,
    timeout: Option<Duration>,
    recording: Option<NewRecording>,
    out: &mut Output,
) -> Result<DashboardExit, Error> {
    LocalSet::new().run_until(Box::pin(until_ended(options, cluster, tracker, timeout, recording, out))).await
}

async fn until_ended(
    options: Options,
    cluster: &Cluster,
    tracker: GoalTracker,
    timeout: Option<Duration>,
    recording: Option<NewRecording>,
    out: &mut Output,
) -> Result<DashboardExit, Error> {
    let (to, messages) = mpsc::channel(MESSAGE_QUEUE);
    let signals = signals::listen().map_err(Error::Screen)?;
    let (program_output, program_outputs) = mpsc::channel(MESSAGE_QUEUE);
    let mut screen = Screen::take(program_output).map_err(Error::Screen)?;
    let options = Options { size: screen.size().map_err(Error::Screen)?, ..options };
    let model = Model::new(options, tracker);
    let recorder = recording.map(|recording| recording.begin(Box::new(report_to(to.clone()))));
    let mut watches = Watches::start(cluster, model.nodes.is_watched, to.clone());
    if let Some(node) = model.opened() {
        watches.open(node, node, false);
    }
    let mut dashboard = Dashboard {
        model,
        watches,
        commands: JoinSet::new(),
        counts: LatestTask::default(),
        lookups: LatestTask::default(),
        causes: LatestTask::default(),
        outages: LatestTask::default(),
        plans: LatestTask::default(),
        leader: LatestTask::default(),
        kubectl: LatestTask::default(),
        inputs: EventStream::new(),
        cluster,
        to,
        recorder,
    };
    let mut sources = Sources { signals, messages, program_outputs };
    // Also without a screen, commands that were begun are awaited, and the recording is completed.
    let ended = dashboard.until_end(&mut screen, &mut sources, timeout).await;
    let reason = ended.unwrap_or_else(EndReason::Failed);
    let Sources { mut signals, mut messages, .. } = sources;
    drop(screen);
    let Dashboard { model, watches, commands, recorder, .. } = dashboard;
    // Their messages would fill the queue that the results of commands go through.
    drop(watches);
    let end = async { while signals.next().await.is_some_and(|signal| !signal.ends()) {} };
    let results = await_results(commands, &mut messages, end, cluster.flags(), out).await;
    let stale_since = model.health.stale_since(WatchKind::Maintenances);
    // Without a goal, the states of the maintenances are printed after them.
    let summaries = summaries(&model, model.fleet.tracker.goal().is_none());
    // The writer of the recording may be about to report an error to nobody.
    drop(messages);
    let written = recorder.map(Recorder::finish);
    Ok(DashboardExit {
        reason,
        stale_since,
        results,
        tracker: model.fleet.tracker,
        summaries,
        recorded: written,
    })
}

/// The summaries of the drains that ended, the latest ones if there are many. `with_states`: whether the states of the
/// maintenances are printed, too.
pub fn summaries(model: &Model, with_states: bool) -> Vec<Line> {
    let find = |uid: &str| model.fleet.maintenance(uid).map(AsRef::as_ref);
    let ended = model.records.ended(find, with_states);
    let latest = &ended[ended.len().saturating_sub(MAX_SUMMARIES)..];
    let of_node = |(node, lines): &(String, Vec<String>)| {
        lines.iter().map(|line| Line::new(format!("node/{node}: {line}"))).collect::<Vec<_>>()
    };
    latest.iter().flat_map(of_node).collect()
}

/// What the dashboard waits for, beside keys.
struct Sources {
    signals: BoxStream<'static, Signal>,
    messages: mpsc::Receiver<Message>,
    /// What other programs write to standard error.
    program_outputs: mpsc::Receiver<String>,
}

struct Dashboard<'a> {
    model: Model,
    watches: Watches,
    /// Commands that are running, as local tasks of this thread.
    commands: JoinSet<()>,
    /// Counts pods.
    counts: LatestTask,
    /// Finds out what is known of the pod of a dialog.
    lookups: LatestTask,
    /// Reads what explains the open node.
    causes: LatestTask,
    outages: LatestTask,
    /// Makes the plan of the start dialog.
    plans: LatestTask,
    /// Reads whether a reconciler leads.
    leader: LatestTask,
    /// Runs kubectl, whose output is on the screen.
    kubectl: LatestTask,
    inputs: EventStream,
    cluster: &'a Cluster,
    to: mpsc::Sender<Message>,
    recorder: Option<Recorder>,
}

impl Dashboard<'_> {
    /// Runs until there is a reason to end.
    async fn until_end(
        &mut self,
        screen: &mut Screen,
        Sources { signals, messages, program_outputs }: &mut Sources,
        timeout: Option<Duration>,
    ) -> io::Result<EndReason> {
        let mut ticks = interval(TICK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        // A timeout too long for the clock never ends.
        let deadline = timeout.and_then(|after| Some((Instant::now().checked_add(after)?, after)));
        let mut redraw = Redraw::default();
        self.watch_leader();
        loop {
            if redraw.is_due() {
                screen.draw(|frame| view::draw(&self.model, frame))?;
                redraw.done();
            }
            let message = tokio::select! {
                biased;
                Some(signal) = signals.next() => match signal {
                    Signal::End | Signal::Interrupt => return Ok(EndReason::Interrupted),
                    Signal::Stop => {
                        screen.suspend()?;
                        redraw.now();
                        continue;
                    }
                    Signal::Continue => {
                        screen.retake()?;
                        redraw.now();
                        continue;
                    }
                },
                input = self.inputs.next() => match input {
                    Some(Ok(event)) if is_ctrl_c(&event) => return Ok(EndReason::Interrupted),
                    Some(Ok(event)) => {
                        panic_on_request(&event);
                        redraw.now();
                        Message::Input(event)
                    }
                    // The terminal is gone.
                    Some(Err(_)) | None => return Ok(EndReason::Interrupted),
                },
                () = redraw.wait() => continue,
                after = expiry(deadline) => return Ok(EndReason::TimedOut(after)),
                _ = ticks.tick() => Message::Tick(Timestamp::now()),
                Some(text) = program_outputs.recv() => Message::ProgramOutput(text),
                Some(message) = messages.recv() => message,
            };
            redraw.soon();
            self.record(&message);
            let is_about_maintenances = matches!(message, Message::Maintenances(_));
            let effect = update(&mut self.model, message);
            if is_about_maintenances {
                self.follow();
            }
            if let Some(effect) = effect
                && let Some(reason) = self.carry_out(effect, screen, &mut redraw)?
            {
                return Ok(reason);
            }
        }
    }

    fn watch_leader(&mut self) {
        self.leader.run(leader::watch(self.cluster.clone(), self.to.clone()));
    }

    /// Records what comes from the cluster.
    fn record(&mut self, message: &Message) {
        let Some(recorder) = &mut self.recorder else { return };
        if let Some(error) = recorder.record(Timestamp::now(), message) {
            update(&mut self.model, Message::RecordingFailed(error.to_string()));
        }
    }

    /// Watches what belongs in a recording although nobody looks at it.
    fn follow(&mut self) {
        if self.recorder.is_some() {
            let objects = self.model.fleet.tracker.cache().all().map(AsRef::as_ref);
            for node in self.watches.follow(followed(objects, &self.model.options.nodes)) {
                self.record(&Message::NodeClosed(node));
            }
        }
    }

    fn carry_out(
        &mut self,
        effect: Effect,
        screen: &mut Screen,
        redraw: &mut Redraw,
    ) -> io::Result<Option<EndReason>> {
        match effect {
            Effect::Open(node) => {
                let open = self.model.open.as_ref();
                let subject = open.map_or(&node, |open| &open.subject);
                let is_listed = open.is_some_and(|open| open.pods.complete);
                if let Some(closed) = self.watches.open(&node, subject, is_listed) {
                    self.record(&Message::NodeClosed(closed));
                }
            }
            Effect::Close => {
                if let Some(node) = self.watches.close() {
                    self.record(&Message::NodeClosed(node));
                }
            }
            Effect::Follow(nodes) => drop(self.watches.follow(nodes)),
            Effect::WatchReplacements(scopes) => self.watches.watch_replacements(&scopes),
            Effect::WatchWholeNodes => self.watches.watch_whole_nodes(),
            Effect::CountPods(nodes) => {
                self.counts.run(pod_count::count(self.cluster.clone(), nodes, self.to.clone()));
            }
            Effect::ReadCauses { node, wanted, all, rolls } => {
                let (cluster, to) = (self.cluster.clone(), self.to.clone());
                self.causes.run(async move {
                    let facts = known_of(&all, rolls);
                    let facts = Box::new(read_wanted(&cluster, &wanted, facts, Timestamp::now()).await);
                    // The receiver is gone if the dashboard has ended.
                    let _ = to.send(Message::CauseFacts { node, facts }).await;
                });
            }
            Effect::ReadOutages(known) => {
                let (cluster, to) = (self.cluster.clone(), self.to.clone());
                self.outages.run(async move {
                    let seen = lasting_outages::read(&cluster, &known).await;
                    // The receiver is gone if the dashboard has ended.
                    let _ = to.send(Message::Outages(seen)).await;
                });
            }
            Effect::Reconnect => {
                self.watches.reconnect();
                self.watch_leader();
                // Other programs may have written on the screen.
                screen.wipe()?;
            }
            Effect::Plan(request) => {
                self.plans.run(start_plans::make(self.cluster.clone(), request, self.to.clone()));
            }
            Effect::CheckPlan(request) => {
                self.plans.run(start_plans::check(self.cluster.clone(), request, self.to.clone()));
            }
            Effect::CancelPlan => self.plans.end(),
            // A second safeguard: `update` returns none in read-only mode.
            Effect::Send { .. } if self.model.options.readonly => {}
            Effect::Send { id, request } => {
                if request.ends_plan() {
                    self.plans.end();
                }
                let (cluster, to) = (self.cluster.clone(), self.to.clone());
                self.commands.spawn_local(async move {
                    let outcome = requests::send(&cluster, request).await;
                    // The receiver is gone if the dashboard has ended.
                    let _ = to.send(Message::Answered { id, outcome }).await;
                });
            }
            Effect::LookUp { action, target } => {
                let (cluster, to) = (self.cluster.clone(), self.to.clone());
                self.lookups.run(pod_requests::look_up(cluster, action, target, to));
            }
            Effect::Read { id, arguments } => {
                let flags = self.cluster.kubectl_arguments();
                self.kubectl.run(kubectl::read(flags, &arguments, id, self.to.clone()));
            }
            Effect::StopReading => self.kubectl.end(),
            Effect::Copy(text) => screen.copy(&text)?,
            Effect::Suspend => {
                screen.suspend()?;
                redraw.now();
            }
            Effect::End(exit) => {
                return Ok(Some(EndReason::Settled(std::mem::take(&mut self.model.settled), exit)));
            }
            Effect::Quit => return Ok(Some(EndReason::Quit)),
        }
        Ok(None)
    }
}

/// Reports to the dashboard that the recording ended early.
fn report_to(to: mpsc::Sender<Message>) -> impl FnOnce(String) + Send {
    // Without a receiver the dashboard has ended.
    move |why| drop(to.blocking_send(Message::RecordingFailed(why)))
}

/// In raw mode Ctrl-C is a key with the same meaning as the signal.
pub(super) fn is_ctrl_c(event: &Event) -> bool {
    matches!(event, Event::Key(KeyEvent { code: KeyCode::Char('c'), modifiers, .. })
        if modifiers.contains(KeyModifiers::CONTROL))
}

/// Panics on F12 if an environment variable is set, for the test that a panic restores the terminal.
fn panic_on_request(event: &Event) {
    let requested = cfg!(feature = "testing") && std::env::var_os("KUBECTL_NM_PANIC_ON_F12").is_some();
    let is_f12 = matches!(event, Event::Key(KeyEvent { code: KeyCode::F(12), .. }));
    assert!(!(requested && is_f12), "F12, as asked");
}
