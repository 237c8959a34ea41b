//! The loop: whatever happens becomes a message, `update` answers with effects, and the screen is drawn when something
//! changed. Nothing in it waits for a server.

use std::io;
use std::time::Duration;

use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyModifiers};
use futures::StreamExt;
use jiff::Timestamp;
use kube::runtime::watcher;
use nm_shared::NodeMaintenance;
use tokio::sync::mpsc;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::client::cluster::Cluster;
use crate::dashboard::actions;
use crate::dashboard::effect::Effect;
use crate::dashboard::feed::Feeds;
use crate::dashboard::message::{Change, Feed, Message};
use crate::dashboard::model::Model;
use crate::dashboard::options::{Options, ThemeName};
use crate::dashboard::pending_commands::last_answers;
use crate::dashboard::redraw::Paint;
use crate::dashboard::signals::{Signal, Signals};
use crate::dashboard::terminal::Screen;
use crate::dashboard::update::update;
use crate::dashboard::view;
use crate::error::Error;
use crate::error::exit::Exit;
use crate::terminal::output::Output;
use crate::watch::event_loop::expiry;
use crate::watch::goal_tracker::{GoalTracker, TargetOutcome, WaitTarget};

/// How often ages move on.
const TICK: Duration = Duration::from_secs(1);

/// How many messages may wait for the loop; watches wait when there are more.
const WAITING: usize = 256;

/// How the dashboard is to be.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    /// Whether nothing may be started or stopped.
    pub(crate) readonly: bool,
    /// The colours.
    pub(crate) theme: ThemeName,
    /// Whether to draw with ASCII characters alone.
    pub(crate) ascii: bool,
    /// Whether the mouse is ours; selecting text is then the terminal's with Shift.
    pub(crate) mouse: bool,
}

/// How it ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// What it was to wait for is so, or never will be.
    Settled(Vec<(WaitTarget, TargetOutcome)>, Exit),
    /// The user has seen enough.
    Quit,
    /// Ctrl-C, a signal, or a terminal that is gone.
    Interrupted,
    /// The time given ran out.
    TimedOut(Duration),
}

/// What it left behind.
#[derive(Debug)]
pub(crate) struct Left {
    /// How it ended.
    pub(crate) ended: Ended,
    /// Since when nobody knows whether what was on the screen is so; none if it was so at the end.
    pub(crate) old_since: Option<Timestamp>,
    /// What became of commands that the screen could not tell any more.
    pub(crate) done: Vec<Result<String, String>>,
}

/// Shows the dashboard until it ends. The screen is taken and given back in here.
///
/// # Errors
///
/// When the terminal does not do as it is told, or there is nothing to wait for where there should be.
pub(crate) async fn run(
    look: Look,
    cluster: &Cluster,
    tracker: &mut GoalTracker,
    given: Option<Duration>,
    out: &mut Output,
) -> Result<Left, Error> {
    LocalSet::new().run_until(until_ended(look, cluster, tracker, given, out)).await
}

async fn until_ended(
    look: Look,
    cluster: &Cluster,
    tracker: &mut GoalTracker,
    given: Option<Duration>,
    out: &mut Output,
) -> Result<Left, Error> {
    let (to, mut messages) = mpsc::channel(WAITING);
    let mut signals = Signals::listen().map_err(Error::Screen)?;
    let mut screen = Screen::take(look.mouse, to.clone()).map_err(Error::Screen)?;
    let model = Model::new(Options {
        nodes: tracker.nodes().to_vec(),
        context: cluster.context().to_owned(),
        kubectl: cluster.kubectl().to_owned(),
        readonly: look.readonly,
        theme: look.theme,
        ascii: look.ascii,
        size: screen.size().map_err(Error::Screen)?,
        now: Timestamp::now(),
    });
    let mut feeds = Feeds::start(cluster.client(), cluster.server(), to.clone());
    if let Some(node) = model.opened() {
        feeds.open(node);
    }
    let mut dashboard = Dashboard {
        model,
        feeds,
        commands: JoinSet::new(),
        cluster,
        tracker,
        settled: Vec::new(),
        to,
        readonly: look.readonly,
    };

    let mut inputs = EventStream::new();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    // A time too far to be written down never comes.
    let deadline = given.and_then(|after| Some((Instant::now().checked_add(after)?, after)));
    let mut paint = Paint::default();
    let ended = loop {
        if paint.is_due() {
            screen.draw(|frame| view::draw(&dashboard.model, frame)).map_err(Error::Screen)?;
            paint.done();
        }
        let message = tokio::select! {
            biased;
            signal = signals.next() => match signal {
                Signal::End => break Ended::Interrupted,
                Signal::Stop => {
                    screen.suspend().map_err(Error::Screen)?;
                    paint.now();
                    continue;
                }
                Signal::Continue => {
                    screen.retake().map_err(Error::Screen)?;
                    paint.now();
                    continue;
                }
            },
            input = inputs.next() => match input {
                Some(Ok(event)) if is_ctrl_c(&event) => break Ended::Interrupted,
                Some(Ok(event)) => {
                    panic_if_asked(&event);
                    paint.now();
                    Message::Input(event)
                }
                // The terminal is gone.
                Some(Err(_)) | None => break Ended::Interrupted,
            },
            () = paint.wait() => continue,
            after = expiry(deadline) => break Ended::TimedOut(after),
            _ = ticks.tick() => Message::Tick(Timestamp::now()),
            Some(message) = messages.recv() => message,
        };
        paint.soon();
        let (effects, exit) = dashboard.take_in(message)?;
        if let Some(exit) = exit {
            break Ended::Settled(std::mem::take(&mut dashboard.settled), exit);
        }
        if let Some(ended) = dashboard.carry_out(effects, &mut screen, &mut paint).map_err(Error::Screen)? {
            break ended;
        }
    };
    drop(screen);
    let Dashboard { model, feeds, commands, .. } = dashboard;
    // What they would say leaves no room for the answers that are awaited.
    drop(feeds);
    let end = async { while signals.next().await != Signal::End {} };
    let done = last_answers(commands, &mut messages, end, cluster.flags(), out).await;
    Ok(Left { ended, old_since: model.links.old_since(Feed::Maintenances), done })
}

/// Everything behind the screen.
struct Dashboard<'a> {
    model: Model,
    feeds: Feeds,
    /// Commands that are under way. They stay on this thread, on which they wait for servers without holding it up.
    commands: JoinSet<()>,
    cluster: &'a Cluster,
    tracker: &'a mut GoalTracker,
    /// What is no longer waited for.
    settled: Vec<(WaitTarget, TargetOutcome)>,
    to: mpsc::Sender<Message>,
    readonly: bool,
}

impl Dashboard<'_> {
    fn take_in(&mut self, message: Message) -> Result<(Vec<Effect>, Option<Exit>), Error> {
        let mut exit = None;
        if let Message::Maintenances(change) = &message {
            self.feeds.notice(change);
            for event in events(change) {
                let update = self.tracker.apply(event)?;
                self.settled.extend(update.settled);
                exit = exit.or(update.exit);
            }
        }
        Ok((update(&mut self.model, message), exit))
    }

    fn carry_out(
        &mut self,
        effects: Vec<Effect>,
        screen: &mut Screen,
        paint: &mut Paint,
    ) -> io::Result<Option<Ended>> {
        for effect in effects {
            match effect {
                Effect::Open(node) => self.feeds.open(&node),
                Effect::Close => self.feeds.close(),
                Effect::Reconnect => {
                    self.feeds.reconnect();
                    // Whoever wants everything anew may have had something written across the picture.
                    screen.wipe()?;
                }
                // The last lock on the door; nothing offers them then.
                Effect::Start(_) | Effect::Stop(_) if self.readonly => {}
                Effect::Start(wanted) => {
                    self.commands.spawn_local(actions::start(self.cluster.clone(), wanted, self.to.clone()));
                }
                Effect::Stop(unwanted) => {
                    self.commands.spawn_local(actions::stop(self.cluster.clone(), unwanted, self.to.clone()));
                }
                Effect::Copy(text) => screen.copy(&text)?,
                Effect::Suspend => {
                    screen.suspend()?;
                    paint.now();
                }
                Effect::Quit => return Ok(Some(Ended::Quit)),
            }
        }
        Ok(None)
    }
}

/// A change in the words of the watches that the other commands follow.
fn events(change: &Change<NodeMaintenance>) -> Vec<watcher::Event<NodeMaintenance>> {
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};

    match change {
        Change::All(objects) => {
            let each = objects.iter().map(|object| InitApply(NodeMaintenance::clone(object)));
            [Init].into_iter().chain(each).chain([InitDone]).collect()
        }
        Change::Applied(object) => vec![Apply(NodeMaintenance::clone(object))],
        Change::Gone(object) => vec![Delete(NodeMaintenance::clone(object))],
    }
}

/// In raw mode Ctrl-C is a key; it means the same.
fn is_ctrl_c(event: &Event) -> bool {
    matches!(event, Event::Key(KeyEvent { code: KeyCode::Char('c'), modifiers, .. })
        if modifiers.contains(KeyModifiers::CONTROL))
}

/// For the test that a panic leaves the terminal as it was: F12, if a variable asks for it, and never in a release.
fn panic_if_asked(event: &Event) {
    let asked = cfg!(debug_assertions) && std::env::var_os("KUBECTL_NM_PANIC_ON_F12").is_some();
    assert!(!(asked && matches!(event, Event::Key(KeyEvent { code: KeyCode::F(12), .. }))), "F12, as asked");
}
