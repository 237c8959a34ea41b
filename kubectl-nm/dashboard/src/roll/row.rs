//! A node of a roll, as its row shows it.

use jiff::SignedDuration;
use nm_core::maintenance::State;
use nm_core::maintenance::departures::{Departures, departure_words};
use nm_roll::decide::NodeProgress;
use nm_roll::record::{RollNode, RollRecord, Step};
use nm_roll::view::RollView;

/// A node of the roll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RollRow {
    /// As it was seen last.
    pub(crate) progress: NodeProgress,
    pub(crate) state: RowState,
    /// The working time of the roll when its maintenance began, in milliseconds.
    began_millis: Option<i64>,
    /// What became of the pods that are gone, if its drain reports that.
    departures: Option<Departures>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowState {
    Planned,
    UnderWay,
    /// Pods block its drain.
    Blocked,
    /// It halted the roll.
    Halted,
    /// Done, in this time since its maintenance began. The time while nobody ran the roll, and while it was paused or halted,
    /// does not count.
    Done(Option<SignedDuration>),
    /// Its maintenance was deleted before it was done.
    Removed,
}

impl RowState {
    pub(crate) fn has_left(self) -> bool {
        matches!(self, Self::Done(_) | Self::Removed)
    }
}

impl RollRow {
    /// The step that the roll shows, or what became of the node.
    pub(crate) fn step_word(&self) -> &'static str {
        match self.state {
            RowState::Done(_) => "Done",
            RowState::Removed => "Removed",
            _ => self.progress.step.word(),
        }
    }

    pub(crate) fn of(progress: &NodeProgress, node: Option<&RollNode>, record: &RollRecord) -> Self {
        let is_blocked = progress.step == Step::Draining
            && node.is_some_and(|node| State::of(&node.object) == State::Blocked);
        let state = match &record.halt {
            Some(halt) if halt.node == progress.node => RowState::Halted,
            _ if is_blocked => RowState::Blocked,
            _ if progress.step == Step::Planned => RowState::Planned,
            _ => RowState::UnderWay,
        };
        let begun = node.filter(|node| node.record.began.is_some());
        let departures = node.and_then(RollNode::departures);
        let began_millis = begun.map(|node| node.record.began_millis);
        Self { progress: progress.clone(), state, began_millis, departures }
    }

    /// The pods that are gone, in words.
    pub(crate) fn pod_words(&self) -> String {
        departure_words(self.progress.pods.0, &self.departures.unwrap_or_default(), "")
    }

    /// The row of a node that is no longer part of the roll.
    pub(crate) fn left(mut self, view: &RollView) -> Self {
        if !self.state.has_left() {
            let record = view.record;
            (self.state, self.progress.detail) = if record.released.contains(&self.progress.node) {
                let took = |began| SignedDuration::from_millis(record.worked_millis.saturating_sub(began));
                (RowState::Done(self.began_millis.map(took)), String::new())
            } else {
                (RowState::Removed, view.departure(&self.progress.node))
            };
        }
        self
    }
}
