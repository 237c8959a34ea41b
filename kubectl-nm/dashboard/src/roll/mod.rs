//! The dashboard of `kubectl nm roll`: the state in [`model`], drawn by [`view`], with the keys and the screen of a terminal.

mod explained;
pub(super) mod model;
mod opened;
mod outputs;
pub(super) mod row;
pub(super) mod view;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crossterm::event::EventStream;
use futures::future::LocalBoxFuture;
use futures::stream::{BoxStream, FuturesUnordered};
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use nm_core::client::cluster::Cluster;
use nm_core::error::Error;
use nm_core::explain::cluster_facts::ClusterFacts;
use nm_core::explain::read_facts;
use nm_core::terminal::text::Line;
use nm_roll::command::NodeOutputLine;
use nm_roll::view::{RollInput, RollReporter, RollView};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval};

use self::model::{RollEffect, RollModel};
use crate::config::appearance::Appearance;
use crate::config::key_map::KeyMap;
use crate::message::Message;
use crate::screen::redraw::Redraw;
use crate::screen::signals::{self, Signal};
use crate::screen::terminal::Screen;
use crate::tasks::leader;

/// How often times on the screen are updated.
const TICK_INTERVAL: Duration = Duration::from_secs(1);

/// How many messages of other programs may be queued.
const MESSAGE_QUEUE: usize = 16;

/// Shows a roll full-screen. Dropping it releases the screen.
pub struct RollDashboard {
    model: RollModel,
    screen: Screen,
    inputs: EventStream,
    signals: BoxStream<'static, Signal>,
    /// What other programs wrote to standard error.
    messages: mpsc::Receiver<String>,
    cluster: Cluster,
    /// The read for the explained node, with its name.
    causes: FuturesUnordered<LocalBoxFuture<'static, (String, Box<ClusterFacts>)>>,
    /// What reads whether a reconciler leads, and its messages.
    leader: (LocalBoxFuture<'static, ()>, mpsc::Receiver<Message>),
    ticks: Interval,
    redraw: Redraw,
}

impl RollDashboard {
    /// Takes the screen, for the roll of this name, whose commands have their output in a folder. The last
    /// line shows the notice until a key is pressed.
    ///
    /// # Errors
    ///
    /// If the terminal cannot be used ([`Error::Screen`]).
    pub fn open(
        name: &str,
        appearance: Appearance,
        keys: KeyMap,
        log_folder: Option<PathBuf>,
        notice: Option<String>,
        cluster: Cluster,
    ) -> Result<Self, Error> {
        let (to, messages) = mpsc::channel(MESSAGE_QUEUE);
        let signals = signals::listen().map_err(Error::Screen)?;
        let screen = Screen::take(to).map_err(Error::Screen)?;
        let size = screen.size().map_err(Error::Screen)?;
        let mut ticks = interval(TICK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut redraw = Redraw::default();
        redraw.now();
        let mut model = RollModel::new(name, appearance, keys, size, Timestamp::now());
        model.log_folder = log_folder;
        if let Some(notice) = notice {
            model.notify(notice);
        }
        cluster.kubectl().clone_into(&mut model.kubectl);
        let (inputs, causes) = (EventStream::new(), FuturesUnordered::new());
        let (to, from) = mpsc::channel(MESSAGE_QUEUE);
        let leader = (leader::watch(cluster.clone(), to).fuse().boxed_local(), from);
        Ok(Self { model, screen, inputs, signals, messages, cluster, causes, leader, ticks, redraw })
    }

    /// The same for a roll that another program runs: leaving does not end anything.
    #[must_use]
    pub fn of_another_program(mut self) -> Self {
        self.model.only_shows = true;
        self
    }

    /// Releases the screen. Returns what stays on the terminal.
    pub fn close(self) -> Vec<Line> {
        drop(self.screen);
        self.model.last_lines()
    }

    fn read_causes(&mut self, node: String) {
        let Some((maintenance, all)) = self.model.maintenances_of(&node) else { return };
        let cluster = self.cluster.clone();
        let read = async move {
            let all = all.iter().map(AsRef::as_ref);
            let facts = read_facts::read(&cluster, [&*maintenance], all, Timestamp::now()).await;
            (node, Box::new(facts))
        };
        self.causes = FuturesUnordered::new();
        self.causes.push(read.boxed_local());
    }

    /// Shows what changes on the terminal until there is an input. Nothing is lost when the future is dropped.
    async fn input(&mut self) -> io::Result<RollInput> {
        loop {
            if self.redraw.is_due() {
                self.screen.draw(|frame| view::draw(&self.model, frame))?;
                self.redraw.done();
            }
            tokio::select! {
                biased;
                Some(signal) = self.signals.next() => {
                    match signal {
                        Signal::End | Signal::Interrupt => return Ok(RollInput::Leave),
                        Signal::Stop => self.screen.suspend()?,
                        Signal::Continue => self.screen.retake()?,
                    }
                    self.redraw.now();
                }
                event = self.inputs.next() => {
                    // Without a terminal, nobody sees the roll.
                    let Some(Ok(event)) = event else { return Ok(RollInput::Leave) };
                    self.redraw.now();
                    match self.model.react(&event) {
                        Some(RollEffect::Input(input)) => return Ok(input),
                        Some(RollEffect::Suspend) => self.screen.suspend()?,
                        Some(RollEffect::ReadCauses(node)) => self.read_causes(node),
                        None => {}
                    }
                }
                () = self.redraw.wait() => {}
                Some(text) = self.messages.recv() => {
                    self.model.notify(text);
                    self.redraw.soon();
                }
                Some((node, facts)) = self.causes.next() => {
                    self.model.learn(&node, facts);
                    self.redraw.soon();
                }
                () = &mut self.leader.0 => {}
                Some(message) = self.leader.1.recv() => {
                    if let Message::Leader(gap) = message {
                        self.model.leader_gap = gap;
                        self.redraw.soon();
                    }
                }
                _ = self.ticks.tick() => {
                    if let Some(RollEffect::ReadCauses(node)) = self.model.tick(Timestamp::now()) {
                        self.read_causes(node);
                    }
                    self.redraw.soon();
                }
            }
        }
    }
}

impl RollReporter for RollDashboard {
    fn show(&mut self, view: &RollView) -> Result<(), Error> {
        self.model.show(view);
        self.redraw.soon();
        Ok(())
    }

    fn output(&mut self, line: &NodeOutputLine) -> Result<(), Error> {
        self.model.output(line);
        self.redraw.soon();
        Ok(())
    }

    fn ask(&mut self, node: &str) -> Result<(), Error> {
        self.model.asked = Some(node.to_owned());
        self.redraw.soon();
        Ok(())
    }

    fn show_error(&mut self, error: &Error) {
        self.model.fail(error.to_string());
        self.redraw.soon();
    }

    fn next_input(&mut self) -> LocalBoxFuture<'_, Result<RollInput, Error>> {
        async { self.input().await.map_err(Error::Screen) }.boxed_local()
    }
}
