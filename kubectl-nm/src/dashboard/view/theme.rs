//! What things look like: tones of text, and glyphs.
//!
//! Every state has a word and a glyph of its own, so that no theme, and no terminal, has to show colours.

use ratatui::style::{Color, Modifier, Style};

use crate::dashboard::model::fleet_row::NodeState;
use crate::dashboard::model::pod_row::Place;
use crate::dashboard::options::ThemeName;

/// What a piece of text means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Nothing special.
    Plain,
    /// A name that one looks for.
    Strong,
    /// Beside the point.
    Quiet,
    /// As wished.
    Good,
    /// Under way.
    Busy,
    /// Needs somebody's attention.
    Bad,
    /// Must not be overlooked.
    Alarm,
}

/// A way to show tones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Theme(pub(crate) ThemeName);

impl Theme {
    /// How a tone looks.
    pub(crate) fn style(self, tone: Tone) -> Style {
        let plain = Style::new();
        let (good, busy, bad) = match self.0 {
            ThemeName::Dark => (Color::Green, Color::Yellow, Color::LightRed),
            ThemeName::Light => (Color::Indexed(22), Color::Indexed(94), Color::Indexed(124)),
            // Told apart by people who do not tell red from green (Okabe and Ito's blue, sky blue and orange).
            ThemeName::ColourBlind => (Color::Indexed(32), Color::Indexed(117), Color::Indexed(214)),
            ThemeName::Mono => (Color::Reset, Color::Reset, Color::Reset),
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

    /// What is laid over the selected row.
    pub(crate) fn selection(self) -> Style {
        match self.0 {
            ThemeName::Dark | ThemeName::ColourBlind => Style::new().bg(Color::Indexed(237)),
            ThemeName::Light => Style::new().bg(Color::Indexed(253)),
            ThemeName::Mono => Style::new().add_modifier(Modifier::REVERSED),
        }
    }
}

/// The characters that pictures are made of.
#[derive(Debug)]
pub(crate) struct Glyphs {
    /// The selected row.
    pub(crate) cursor: &'static str,
    /// A marked row.
    pub(crate) mark: &'static str,
    /// Done, in a bar.
    pub(crate) full: &'static str,
    /// To do, in a bar.
    pub(crate) empty: &'static str,
    /// Where text was cut.
    pub(crate) more: &'static str,
    /// A live connection.
    pub(crate) live: &'static str,
    /// Where text is typed.
    pub(crate) caret: &'static str,
    /// Sides of a frame: horizontal, vertical, and the corners from the upper left, clockwise.
    pub(crate) frame: [&'static str; 6],
    /// Steps of a sparkline.
    pub(crate) sparks: [&'static str; 8],
    done: &'static str,
}

const UNICODE: Glyphs = Glyphs {
    cursor: "▶",
    mark: "*",
    full: "█",
    empty: "░",
    more: "…",
    live: "●",
    caret: "▏",
    frame: ["─", "│", "┌", "┐", "┘", "└"],
    sparks: ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"],
    done: "✓",
};

const ASCII: Glyphs = Glyphs {
    cursor: ">",
    mark: "*",
    full: "#",
    empty: "-",
    more: "~",
    live: "*",
    caret: "_",
    frame: ["-", "|", "+", "+", "+", "+"],
    sparks: ["_", ".", ":", "-", "=", "+", "*", "#"],
    done: "v",
};

impl Glyphs {
    /// Those for a terminal.
    pub(crate) fn of(ascii: bool) -> &'static Self {
        if ascii { &ASCII } else { &UNICODE }
    }

    /// How the state of a node looks.
    pub(crate) fn node(&self, state: NodeState) -> (&'static str, Tone) {
        match state {
            NodeState::Blocked | NodeState::Failed => ("!", Tone::Bad),
            NodeState::Requested => ("?", Tone::Busy),
            NodeState::Draining => ("~", Tone::Busy),
            NodeState::Stopping => ("<", Tone::Busy),
            NodeState::Queued => (".", Tone::Plain),
            NodeState::Done => (self.done, Tone::Good),
            NodeState::Idle => ("-", Tone::Quiet),
        }
    }

    /// How the place of a pod looks.
    pub(crate) fn pod(&self, place: Place) -> (&'static str, Tone) {
        match place {
            Place::Blocked => ("!", Tone::Bad),
            Place::Ending | Place::Evicting => ("~", Tone::Busy),
            Place::Migrating => (">", Tone::Busy),
            Place::Waiting | Place::ToGo | Place::Running => (".", Tone::Plain),
            Place::Gone => (self.done, Tone::Good),
            Place::Stays => ("=", Tone::Quiet),
        }
    }
}
