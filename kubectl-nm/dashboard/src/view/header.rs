//! The first line: the cluster, the node, and how fresh the view is.

use jiff::Timestamp;
use nm_core::args::duration::age;
use nm_core::terminal::text::counted;
use ratatui::layout::Rect;

use crate::elapsed::elapsed;
use crate::model::Model;
use crate::model::fleet::fleet_row::IDLE;
use crate::model::lists::listing::Arrangement;
use crate::objects::watch_state::WatchState;
use crate::view::canvas::Canvas;
use crate::view::theme::{Surface, Tone};

pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    canvas.fill(area, Surface::Title);
    let (freshness_word, tone) = freshness_word(model, canvas);
    let start =
        canvas.write_right(Rect { width: area.width.saturating_sub(1), ..area }, &freshness_word, tone);
    let area = Rect { width: start.saturating_sub(area.x), ..area };
    let beside = area;
    // What is cut does not touch the word.
    let area = Rect { width: area.width.saturating_sub(1), ..area };
    let mut x = canvas.write(area, area.x, " nm watch ", Tone::Badge).saturating_sub(1);
    if area.width >= 60 || model.open.is_none() {
        x = canvas.write(area, x + 2, &format!("ctx:{}", model.options.context), Tone::Plain);
    }
    if let Some(open) = &model.open {
        x = canvas.write(area, x + 2, &open.name, Tone::Strong);
        let row = model.open_row();
        let (state, word) = row.as_ref().map_or((None, IDLE), |row| (row.state, row.state_word()));
        let (glyph, tone) = canvas.glyphs.node(state);
        x = canvas.write(area, x + 2, &format!("{glyph} {word}"), tone);
        if let Some(seconds) = row.and_then(|row| row.seconds_in_state(model.now)) {
            x = canvas.write(area, x + 1, &elapsed(seconds), Tone::Plain);
        }
        x = filtered(model, canvas, area, x, if open.tree.is_shown { "row" } else { "pod" });
    } else {
        if model.shows_nodes() {
            x = canvas.write(area, x + 2, "all nodes", Tone::Strong);
        }
        x = filtered(model, canvas, area, x, "node");
        if !model.marked().is_empty() {
            x = canvas.write(area, x + 2, &format!("{} marked", model.marked().len()), Tone::Strong);
        }
    }
    let width = usize::from((beside.x + beside.width).saturating_sub(x + 2));
    canvas.write_right(beside, &details(model, width), Tone::Quiet);
}

/// Details, as far as there is space: whether changes are recorded or not possible before the sort order before the time of the last change.
fn details(model: &Model, width: usize) -> String {
    let mode = if model.options.is_recording() {
        Some("recording")
    } else {
        // A replay shows that it is one.
        (model.options.readonly && !model.options.is_replay()).then_some("read-only")
    };
    let readonly = mode.map(String::from);
    let Arrangement { sort, reversed, .. } = model.arrangement();
    let sort = format!("sort:{}{}", if *reversed { "-" } else { "" }, sort.word());
    let changed = model
        .health
        .last_change
        .map(|at| format!("changed {} ago", age(model.now.duration_since(at).as_secs())));
    let (readonly, sort) = (readonly.as_slice(), [sort]);
    let details =
        [[&sort, changed.as_slice(), readonly].concat(), [&sort, readonly].concat(), readonly.to_vec()];
    let lines = details.iter().map(|details| format!("{}  ", details.join("  ")));
    lines.into_iter().find(|line| line.len() <= width).unwrap_or_default()
}

fn filtered(model: &Model, canvas: &mut Canvas<'_>, area: Rect, x: u16, what: &str) -> u16 {
    let (shown, total) = (model.rows().len(), counted(model.rows().total(), what));
    let Arrangement { filter, blocked_only, .. } = model.arrangement();
    let mut filters = Vec::new();
    if *blocked_only {
        filters.push(if model.shows_nodes() { "unavailable only" } else { "blocked only" });
    }
    if !filter.is_empty() {
        filters.push(filter.text().trim());
    }
    if filters.is_empty() {
        return if model.open.is_some() || model.health.last_change.is_none() {
            x
        } else {
            canvas.write(area, x + 2, &total, Tone::Plain)
        };
    }
    let x = canvas.write(area, x + 2, &format!("{shown} of {total}:"), Tone::Strong);
    canvas.write(area, x + 1, &filters.join(" "), Tone::Busy)
}

/// How fresh the view is, in a word.
fn freshness_word(model: &Model, canvas: &Canvas<'_>) -> (String, Tone) {
    let current = if model.options.is_replay() {
        (String::from("replay"), Tone::Strong)
    } else {
        (format!("live {}", canvas.glyphs.live), Tone::Good)
    };
    age_word(model.freshness(), model.now).unwrap_or(current)
}

/// How old data is that may be out of date: `data 12s old`.
pub(crate) fn data_age(since: Timestamp, now: Timestamp) -> String {
    format!("data {} old", age(now.duration_since(since).as_secs()))
}

/// How old something is; nothing if it is live.
pub(super) fn age_word(freshness: &WatchState, now: Timestamp) -> Option<(String, Tone)> {
    match freshness {
        WatchState::Live => None,
        WatchState::Connecting => Some((String::from("connecting"), Tone::Busy)),
        WatchState::Unrecorded => Some((String::from("not recorded"), Tone::Busy)),
        WatchState::Forbidden(_) => Some((String::from("FORBIDDEN"), Tone::Alarm)),
        WatchState::Lost { since, .. } => Some((data_age(*since, now), Tone::Alarm)),
    }
}
