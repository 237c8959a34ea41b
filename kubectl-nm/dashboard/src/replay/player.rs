//! The clock of a replay, and the model as it was at its time.
//!
//! What is shown at a time does not depend on how the replay got there. Every message up to then has gone through `update`,
//! in its order; going back begins again from a copy of the model from before, which is then looked at in the same way.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use nm_core::watch::goal_tracker::{ExitCondition, GoalTracker};

use crate::message::{Effect, Message};
use crate::model::replay::ReplayStatus;
use crate::model::{Model, Options, RecordingMode};
use crate::objects::replacements::ReplacementChange;
use crate::objects::watch_state::WatchState;
use crate::recording::error::RecordingError;
use crate::recording::recording_file::{Due, Place, RecordingFile};
use crate::replay::pace::Pace;
use crate::update;

/// How many copies of the model are kept to go back to.
const MAX_CHECKPOINTS: usize = 16;

/// How many messages are between two copies at first. It doubles whenever there would be too many copies.
const FIRST_INTERVAL: u64 = 1000;

/// How many messages are applied before the time is checked.
const BATCH: u64 = 32;

/// A replay: a recording, a clock, and the model at the time of the clock.
pub struct Player {
    file: RecordingFile,
    /// What is shown.
    pub model: Model,
    /// What is shown next, after going back: a copy from before, on its way to the time of the clock.
    ahead: Option<Model>,
    pub(crate) pace: Pace,
    start: Timestamp,
    end: Timestamp,
    /// Everything up to this time is in the model.
    at: Timestamp,
    /// Where the clock is; behind it, messages are still to be applied.
    target: Timestamp,
    /// The message that is next, if it was read.
    next: Option<Due>,
    checkpoints: Vec<Checkpoint>,
    interval: u64,
    since_checkpoint: u64,
    /// Why the recording cannot be read any further.
    failure: Option<RecordingError>,
}

/// The model after a message.
struct Checkpoint {
    at: Timestamp,
    place: Place,
    model: Model,
}

impl Player {
    /// A replay from the beginning. The time and the context of the options are those of the recording.
    pub fn new(file: RecordingFile, options: Options, pace: Pace) -> Self {
        let start = file.header().started;
        let end = file.end().max(start);
        let context = file.header().context.clone();
        let options =
            Options { now: start, context, readonly: true, recording: RecordingMode::Replay, ..options };
        let tracker = GoalTracker::new(options.nodes.clone(), ExitCondition::Never);
        let mut model = Model::new(options, tracker);
        if let Some(node) = model.opened().map(str::to_owned) {
            model.open_node(&node);
        }
        let checkpoints = vec![Checkpoint { at: start, place: file.place(), model: model.clone() }];
        let mut player = Self {
            file,
            model,
            ahead: None,
            pace,
            start,
            end,
            at: start,
            target: start,
            next: None,
            checkpoints,
            interval: FIRST_INTERVAL,
            since_checkpoint: 0,
            failure: None,
        };
        player.show();
        player
    }

    /// Why the replay ended before the end of the recording; `None` if it did not.
    pub fn into_failure(self) -> Option<RecordingError> {
        self.failure
    }

    /// Whether the last line of the recording is incomplete, and left out.
    pub fn is_cut(&self) -> bool {
        self.file.is_cut()
    }

    /// Whether messages up to the time of the clock are still to be applied.
    pub(crate) fn is_seeking(&self) -> bool {
        self.at < self.target
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.at >= self.end && !self.is_seeking()
    }

    /// Lets the clock go on for this time.
    pub(crate) fn pass(&mut self, elapsed: Duration) {
        if !self.is_seeking() {
            self.seek_to(self.later(self.at, self.pace.recorded(elapsed)));
        }
    }

    /// Sets the clock forward by this, or back.
    pub(crate) fn seek_by(&mut self, by: SignedDuration) {
        self.seek_to(self.later(self.target, by));
    }

    /// Sets the clock to jump to 0%, 10%, ... 90% of the recording.
    pub(crate) fn seek_to_tenth(&mut self, tenth: u32) {
        let length = self.end.duration_since(self.start);
        self.seek_to(self.later(self.start, length / 10 * i32::try_from(tenth).unwrap_or(10)));
    }

    pub(crate) fn seek_to_start(&mut self) {
        self.seek_to(self.start);
    }

    pub(crate) fn seek_to_end(&mut self) {
        self.seek_to(self.end);
    }

    /// A time in the recording.
    fn later(&self, time: Timestamp, by: SignedDuration) -> Timestamp {
        let later = time.saturating_add(by).unwrap_or(if by.is_negative() { self.start } else { self.end });
        later.clamp(self.start, self.end)
    }

    fn seek_to(&mut self, target: Timestamp) {
        self.target = target;
        if target >= self.at {
            return;
        }
        let Some(from) = self.checkpoints.iter().rfind(|checkpoint| checkpoint.at <= target) else { return };
        if let Err(error) = self.file.go_to(from.place) {
            self.fail(error);
            return;
        }
        (self.at, self.next, self.failure) = (from.at, None, None);
        self.since_checkpoint = 0;
        self.ahead = Some(from.model.clone());
    }

    /// Applies what is due, for this long at most. The model is ready to be shown afterwards.
    pub(crate) fn work(&mut self, budget: Duration) {
        let started = Instant::now();
        let mut applied = 0;
        while let Some(due) = self.next_due() {
            self.apply(due);
            applied += 1;
            if applied % BATCH == 0 && started.elapsed() >= budget {
                self.show();
                return;
            }
        }
        self.at = self.target;
        self.tick(self.at);
        if let Some(ahead) = self.ahead.take() {
            let seen = std::mem::replace(&mut self.model, ahead);
            self.model.look_like(seen);
        }
        self.show();
    }

    /// The model to which messages are applied.
    fn applied(&mut self) -> &mut Model {
        self.ahead.as_mut().unwrap_or(&mut self.model)
    }

    /// The next message, if its time has come.
    fn next_due(&mut self) -> Option<Due> {
        if self.next.is_none() && self.failure.is_none() {
            match self.file.next() {
                Ok(next) => self.next = next,
                Err(error) => self.fail(error),
            }
        }
        let is_due = self.next.as_ref().is_some_and(|due| due.time <= self.target);
        self.next.take_if(|_| is_due)
    }

    /// Ends the recording here.
    fn fail(&mut self, error: RecordingError) {
        self.model.show_error(error.to_string());
        (self.end, self.target) = (self.at, self.at);
        self.failure = Some(error);
    }

    fn apply(&mut self, due: Due) {
        self.at = due.time.max(self.at);
        self.tick(self.at);
        if let Some(message) = due.message {
            update::absorb(self.applied(), message);
        }
        self.since_checkpoint += 1;
        if self.since_checkpoint >= self.interval {
            self.remember();
        }
    }

    /// Lets the model know the time, once a second as the dashboard does.
    fn tick(&mut self, time: Timestamp) {
        let passed = time.duration_since(self.start).as_secs();
        let now = self.later(self.start, SignedDuration::from_secs(passed));
        let model = self.applied();
        if now > model.now {
            update::absorb(model, Message::Tick(now));
        }
    }

    fn remember(&mut self) {
        self.since_checkpoint = 0;
        if self.checkpoints.last().is_some_and(|last| last.at >= self.at) {
            return;
        }
        if self.checkpoints.len() >= MAX_CHECKPOINTS {
            let mut is_kept = false;
            self.checkpoints.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
            self.interval *= 2;
        }
        let (at, place) = (self.at, self.file.place());
        let model = self.applied().clone();
        self.checkpoints.push(Checkpoint { at, place, model });
    }

    /// Passes input to the model. Returns an effect that concerns the terminal.
    pub(crate) fn input(&mut self, input: crossterm::event::Event) -> Option<Effect> {
        let effect = update::update(&mut self.model, Message::Input(input));
        let effect = effect.and_then(|effect| self.carry_out(effect));
        self.show();
        effect
    }

    /// Brings the model to the state in which it is drawn.
    fn show(&mut self) {
        self.model.replay = Some(ReplayStatus {
            at: self.at,
            start: self.start,
            end: self.end,
            speed: self.pace.speed,
            is_paused: self.pace.is_paused,
            is_seeking: self.is_seeking(),
        });
        // What is missing for a tree is known only after it was built.
        for _ in 0..2 {
            if let Some(effect) = update::show(&mut self.model) {
                self.carry_out(effect);
            }
        }
    }

    /// Carries out an effect, unless it needs a cluster. Returns it if it concerns the terminal.
    fn carry_out(&mut self, effect: Effect) -> Option<Effect> {
        match effect {
            Effect::WatchReplacements(scopes) => {
                let node = self.model.opened()?.to_owned();
                for scope in scopes {
                    if self.model.open.as_ref().is_some_and(|open| !open.tree.knows(&scope)) {
                        let change = ReplacementChange::State(WatchState::Unrecorded);
                        let message = Message::Replacements { node: node.clone(), scope, change };
                        update::absorb(&mut self.model, message);
                    }
                }
                None
            }
            Effect::Copy(_) | Effect::Suspend | Effect::Quit => Some(effect),
            // What was watched is in the recording, or it is not.
            Effect::Open(_)
            | Effect::Close
            | Effect::Follow(_)
            | Effect::WatchWholeNodes
            | Effect::CountPods(_)
            | Effect::ReadCauses { .. }
            | Effect::ReadOutages(_)
            | Effect::CancelPlan
            | Effect::StopReading => None,
            Effect::Plan(_)
            | Effect::CheckPlan(_)
            | Effect::LookUp { .. }
            | Effect::Read { .. }
            | Effect::Reconnect
            | Effect::Send { .. }
            | Effect::End(_) => {
                self.model.show_error(String::from("not possible in a replay"));
                None
            }
        }
    }
}

#[cfg(test)]
#[path = "player_tests.rs"]
mod tests;
