//! Colours and signs.
//!
//! Every state has a word and a sign, so that nothing depends on colours. There is one accent: for titles, headings, keys and
//! the cursor.

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
    /// What belongs to the dashboard, and not to the cluster: headings, keys.
    Accent,
    /// The name of the program.
    Badge,
    /// Pods in this state, as in a bar.
    Pods(PodState),
}

/// An area that is set apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Surface {
    /// The first line.
    Title,
    /// The headings of a table or a pane.
    Heads,
    /// What blocks rows, and what to do.
    Advice,
    Selection,
}

struct Palette {
    good: Color,
    busy: Color,
    bad: Color,
    accent: Color,
    /// Text on the accent.
    on_accent: Color,
    /// Pods whose eviction was requested.
    requested: Color,
    /// The part of a bar for pods that wait.
    trough: Color,
}

impl ThemeName {
    const fn palette(self) -> Palette {
        match self {
            Self::Dark => Palette {
                good: Color::Green,
                busy: Color::Yellow,
                bad: Color::LightRed,
                accent: Color::Indexed(75),
                on_accent: Color::Indexed(16),
                requested: Color::Indexed(101),
                trough: Color::Indexed(239),
            },
            Self::Light => Palette {
                good: Color::Indexed(28),
                busy: Color::Indexed(94),
                bad: Color::Indexed(124),
                accent: Color::Indexed(25),
                on_accent: Color::Indexed(231),
                requested: Color::Indexed(180),
                trough: Color::Indexed(251),
            },
            // Safe for red-green colour blindness (blue, sky blue, orange and purple of Okabe and Ito).
            Self::ColourBlind => Palette {
                good: Color::Indexed(32),
                busy: Color::Indexed(117),
                bad: Color::Indexed(214),
                accent: Color::Indexed(175),
                on_accent: Color::Indexed(16),
                requested: Color::Indexed(146),
                trough: Color::Indexed(239),
            },
            Self::Mono => Palette {
                good: Color::Reset,
                busy: Color::Reset,
                bad: Color::Reset,
                accent: Color::Reset,
                on_accent: Color::Reset,
                requested: Color::Reset,
                trough: Color::Reset,
            },
        }
    }

    pub(crate) fn style(self, tone: Tone) -> Style {
        let plain = Style::new();
        let Palette { good, busy, bad, accent, on_accent, .. } = self.palette();
        match tone {
            Tone::Plain => plain,
            Tone::Strong => plain.add_modifier(Modifier::BOLD),
            Tone::Quiet => plain.add_modifier(Modifier::DIM),
            Tone::Good => plain.fg(good),
            Tone::Busy => plain.fg(busy),
            Tone::Bad => plain.fg(bad).add_modifier(Modifier::BOLD),
            Tone::Alarm => plain.fg(bad).add_modifier(Modifier::BOLD | Modifier::REVERSED),
            Tone::Accent if self == Self::Mono => plain.add_modifier(Modifier::BOLD),
            Tone::Accent => plain.fg(accent),
            Tone::Badge if self == Self::Mono => plain.add_modifier(Modifier::BOLD | Modifier::REVERSED),
            Tone::Badge => plain.fg(on_accent).bg(accent).add_modifier(Modifier::BOLD),
            Tone::Pods(state) => plain.fg(self.pods(state)),
        }
    }

    /// The colour of pods in a state. The part of those that wait looks empty.
    pub(crate) fn pods(self, state: PodState) -> Color {
        let Palette { good, busy, bad, accent, requested, trough, .. } = self.palette();
        match state {
            PodState::Gone => good,
            PodState::Terminating => busy,
            PodState::Migrating | PodState::Surging => accent,
            PodState::Evicting => requested,
            PodState::Blocked => bad,
            PodState::Waiting | PodState::Staying => trough,
        }
    }

    pub(crate) fn surface(self, surface: Surface) -> Style {
        let (plain, on) = (Style::new(), |colour| Style::new().bg(Color::Indexed(colour)));
        match (self, surface) {
            (Self::Dark | Self::ColourBlind, Surface::Title) => on(237),
            (Self::Dark | Self::ColourBlind, Surface::Heads | Surface::Advice) => on(235),
            (Self::Dark | Self::ColourBlind, Surface::Selection) => on(238),
            (Self::Light, Surface::Title) => on(252),
            (Self::Light, Surface::Heads | Surface::Advice) => on(255),
            (Self::Light, Surface::Selection) => on(253),
            (Self::Mono, Surface::Title | Surface::Advice) => plain,
            (Self::Mono, Surface::Heads) => plain.add_modifier(Modifier::UNDERLINED),
            (Self::Mono, Surface::Selection) => plain.add_modifier(Modifier::REVERSED),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Glyphs {
    pub(crate) cursor: &'static str,
    /// The full part of a bar without states.
    pub(crate) full: &'static str,
    /// The empty part of such a bar.
    pub(crate) empty: &'static str,
    /// Where text is cut.
    pub(crate) more: &'static str,
    pub(crate) live: &'static str,
    pub(crate) caret: &'static str,
    /// A frame: horizontal, vertical, and the corners clockwise from the upper left.
    pub(crate) frame: [&'static str; 6],
    pub(crate) done: &'static str,
    pub(crate) blocked: &'static str,
    pub(crate) failed: &'static str,
    /// Leaves: a node that drains, a pod that terminates.
    pub(crate) leaving: &'static str,
    /// Requested, and not answered yet.
    pub(crate) requested: &'static str,
    pub(crate) waiting: &'static str,
    pub(crate) planned: &'static str,
    pub(crate) paused: &'static str,
    /// Returns to service.
    pub(crate) returning: &'static str,
    pub(crate) migrating: &'static str,
    pub(crate) surging: &'static str,
    pub(crate) idle: &'static str,
    /// What stands for pods of a colour.
    swatch: &'static str,
}

const UNICODE: Glyphs = Glyphs {
    cursor: "▶",
    full: "━",
    empty: "─",
    more: "…",
    live: "●",
    caret: "▏",
    frame: ["─", "│", "╭", "╮", "╯", "╰"],
    done: "✓",
    blocked: "⊘",
    failed: "✗",
    leaving: "↓",
    requested: "◌",
    waiting: "⋯",
    planned: "○",
    paused: "‖",
    returning: "↺",
    migrating: "→",
    surging: "↑",
    idle: "·",
    swatch: "■",
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
    blocked: "!",
    failed: "!",
    leaving: "~",
    requested: "?",
    waiting: ".",
    planned: ".",
    paused: ":",
    returning: "<",
    migrating: ">",
    surging: "^",
    idle: "-",
    swatch: "",
};

impl Glyphs {
    pub(crate) fn of(ascii: bool) -> &'static Self {
        if ascii { &ASCII } else { &UNICODE }
    }

    /// The sign and the tone of a node's state; none is a node without a maintenance.
    pub(crate) fn node(&self, state: Option<State>) -> (&'static str, Tone) {
        match state {
            Some(State::Blocked) => (self.blocked, Tone::Bad),
            Some(State::Failed) => (self.failed, Tone::Bad),
            Some(State::Requested) => (self.requested, Tone::Busy),
            Some(State::Draining) => (self.leaving, Tone::Busy),
            Some(State::Stopping) => (self.returning, Tone::Busy),
            Some(State::Paused) => (self.paused, Tone::Busy),
            Some(State::Queued) => (self.waiting, Tone::Plain),
            Some(State::Planned) => (self.planned, Tone::Plain),
            Some(State::Drained) => (self.done, Tone::Good),
            None => (self.idle, Tone::Quiet),
        }
    }

    /// The sign and the tone of a node's step in a roll.
    pub(crate) fn step(&self, step: Step) -> (&'static str, Tone) {
        match step {
            Step::Planned => (self.planned, Tone::Plain),
            Step::Confirming => ("?", Tone::Bad),
            Step::Returning => (self.returning, Tone::Busy),
            _ => (self.leaving, Tone::Busy),
        }
    }

    /// The sign and the tone of a pod's state; none is a pod on a node without a maintenance.
    pub(crate) fn pod(&self, state: Option<PodState>) -> (&'static str, Tone) {
        let Some(state) = state else { return (" ", Tone::Plain) };
        match state {
            PodState::Blocked => (self.blocked, Tone::Bad),
            PodState::Terminating => (self.leaving, Tone::Busy),
            PodState::Evicting => (self.requested, Tone::Busy),
            PodState::Migrating => (self.migrating, Tone::Accent),
            PodState::Surging => (self.surging, Tone::Accent),
            PodState::Waiting => (self.waiting, Tone::Plain),
            PodState::Gone => (self.done, Tone::Good),
            PodState::Staying => ("=", Tone::Quiet),
        }
    }

    /// What the signs mean, for the help.
    pub(crate) fn legend(&self) -> [String; 3] {
        let Self { blocked, failed, leaving, requested, waiting, planned, paused, returning, .. } = self;
        let Self { migrating, surging, done, idle, .. } = self;
        [
            format!(
                "{blocked} blocked   {failed} failed   {leaving} draining, terminating   {requested} requested"
            ),
            format!(
                "{waiting} waiting   {planned} planned   {paused} paused   {returning} stopping   {migrating} migrating"
            ),
            format!("{surging} surging   {done} drained, gone   = staying   {idle} not in maintenance"),
        ]
    }

    /// What the signs of a roll's nodes mean.
    pub(crate) fn legend_of_roll(&self) -> [String; 2] {
        let Self { blocked, leaving, returning, planned, done, idle, .. } = self;
        [
            format!(
                "{blocked} blocked or halted   ? to confirm   {leaving} under way   {returning} returning"
            ),
            format!("{planned} planned   {done} done   {idle} removed"),
        ]
    }

    /// What stands for pods in a state beside their number: a square in their colour, or else what a bar has for them.
    pub(crate) fn swatch(&self, state: PodState, theme: ThemeName) -> &'static str {
        if self.swatch.is_empty() || theme == ThemeName::Mono { self.pattern(state) } else { self.swatch }
    }

    /// What a cell of a bar has where colours do not show the state.
    pub(crate) fn pattern(&self, state: PodState) -> &'static str {
        let is_ascii = self.swatch.is_empty();
        match (state, is_ascii) {
            (PodState::Blocked, _) => "!",
            (PodState::Gone, true) => "#",
            (PodState::Terminating, true) => "=",
            (PodState::Migrating | PodState::Surging, true) => ">",
            (PodState::Evicting, true) => "+",
            (PodState::Waiting | PodState::Staying, true) => "-",
            (PodState::Gone, false) => "█",
            (PodState::Terminating, false) => "▓",
            (PodState::Migrating | PodState::Surging | PodState::Evicting, false) => "▒",
            (PodState::Waiting | PodState::Staying, false) => "░",
        }
    }
}
