//! Colours and signs.
//!
//! Every state has a word and a sign, so that nothing depends on colours.

use nm_core::maintenance::State;
use nm_roll::record::Step;
use nm_shared::PodState;
use ratatui::style::{Color, Modifier, Style};

use crate::config::appearance::ThemeName;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Strong,
    Quiet,
    Good,
    /// In progress.
    Busy,
    Bad,
    /// Must not be overlooked.
    Alarm,
}

impl ThemeName {
    pub(crate) fn style(self, tone: Tone) -> Style {
        let plain = Style::new();
        let (good, busy, bad) = match self {
            Self::Dark => (Color::Green, Color::Yellow, Color::LightRed),
            Self::Light => (Color::Indexed(22), Color::Indexed(94), Color::Indexed(124)),
            // Safe for red-green colour blindness (blue, sky blue and orange of Okabe and Ito).
            Self::ColourBlind => (Color::Indexed(32), Color::Indexed(117), Color::Indexed(214)),
            Self::Mono => (Color::Reset, Color::Reset, Color::Reset),
        };
        match tone {
            Tone::Plain => plain,
            Tone::Strong => plain.add_modifier(Modifier::BOLD),
            Tone::Quiet => plain.add_modifier(Modifier::DIM),
            Tone::Good => plain.fg(good),
            Tone::Busy => plain.fg(busy),
            Tone::Bad => plain.fg(bad).add_modifier(Modifier::BOLD),
            Tone::Alarm => plain.fg(bad).add_modifier(Modifier::BOLD | Modifier::REVERSED),
        }
    }

    pub(crate) fn selection(self) -> Style {
        match self {
            Self::Dark | Self::ColourBlind => Style::new().bg(Color::Indexed(237)),
            Self::Light => Style::new().bg(Color::Indexed(253)),
            Self::Mono => Style::new().add_modifier(Modifier::REVERSED),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Glyphs {
    pub(crate) cursor: &'static str,
    /// The full part of a bar.
    pub(crate) full: &'static str,
    /// The empty part of a bar.
    pub(crate) empty: &'static str,
    /// Where text is cut.
    pub(crate) more: &'static str,
    pub(crate) live: &'static str,
    pub(crate) caret: &'static str,
    /// A frame: horizontal, vertical, and the corners clockwise from the upper left.
    pub(crate) frame: [&'static str; 6],
    pub(crate) done: &'static str,
}

const UNICODE: Glyphs = Glyphs {
    cursor: "▶",
    full: "█",
    empty: "░",
    more: "…",
    live: "●",
    caret: "▏",
    frame: ["─", "│", "┌", "┐", "┘", "└"],
    done: "✓",
};

const ASCII: Glyphs = Glyphs {
    cursor: ">",
    full: "#",
    empty: "-",
    more: "~",
    live: "*",
    caret: "_",
    frame: ["-", "|", "+", "+", "+", "+"],
    done: "+",
};

impl Glyphs {
    pub(crate) fn of(ascii: bool) -> &'static Self {
        if ascii { &ASCII } else { &UNICODE }
    }

    /// The sign and the tone of a node's state; none is a node without a maintenance.
    pub(crate) fn node(&self, state: Option<State>) -> (&'static str, Tone) {
        match state {
            Some(State::Blocked | State::Failed) => ("!", Tone::Bad),
            Some(State::Requested) => ("?", Tone::Busy),
            Some(State::Draining) => ("~", Tone::Busy),
            Some(State::Stopping) => ("<", Tone::Busy),
            Some(State::Paused) => (":", Tone::Busy),
            Some(State::Queued | State::Planned) => (".", Tone::Plain),
            Some(State::Drained) => (self.done, Tone::Good),
            None => ("-", Tone::Quiet),
        }
    }

    /// The sign and the tone of a node's step in a roll.
    pub(crate) fn step(step: Step) -> (&'static str, Tone) {
        match step {
            Step::Planned => (".", Tone::Plain),
            Step::Confirming => ("?", Tone::Bad),
            Step::Returning => ("<", Tone::Busy),
            _ => ("~", Tone::Busy),
        }
    }

    /// The sign and the tone of a pod's state; none is a pod on a node without a maintenance.
    pub(crate) fn pod(&self, state: Option<PodState>) -> (&'static str, Tone) {
        let Some(state) = state else { return (" ", Tone::Plain) };
        match state {
            PodState::Blocked => ("!", Tone::Bad),
            PodState::Terminating | PodState::Evicting => ("~", Tone::Busy),
            PodState::Migrating | PodState::Surging => (">", Tone::Busy),
            PodState::Waiting => (".", Tone::Plain),
            PodState::Gone => (self.done, Tone::Good),
            PodState::Staying => ("=", Tone::Quiet),
        }
    }
}
