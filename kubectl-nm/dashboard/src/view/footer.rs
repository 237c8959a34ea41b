//! The last lines: the most frequent blockers, why the selected row is blocked and what to do, and the keys.

use ratatui::layout::Rect;

use crate::config::action_table::{ACTIONS, Action, ActionEntry, View};
use crate::layout::{BLOCKERS_LABEL, REMEDY_LABEL, ScreenLayout, blockers_text, remedy_lines};
use crate::model::{Model, Notice};
use crate::view::canvas::{Canvas, line};
use crate::view::theme::{Surface, Tone};

pub(super) fn draw_blockers(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    if let Some(text) = blockers_text(model) {
        canvas.fill(area, Surface::Advice);
        canvas.write_wrapped(area, &text, Tone::Plain);
        canvas.write(line(area, 0), area.x + 1, BLOCKERS_LABEL, Tone::Quiet);
    }
}

pub(super) fn draw_why(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    // Of the whole screen, as the layout counts them.
    let (width, height) = model.size;
    let (why, command) = remedy_lines(model, Rect { x: 0, y: 0, width, height });
    canvas.fill(area, Surface::Advice);
    let mut rows = area.rows();
    for (label, lines, tone) in [("why> ", why, Tone::Plain), ("do>  ", command, Tone::Strong)] {
        for (at, text) in lines.iter().enumerate() {
            let Some(row) = rows.next() else { return };
            if at == 0 {
                canvas.write(row, row.x + 1, label, Tone::Accent);
            }
            canvas.write(row, row.x + 1 + REMEDY_LABEL, text, tone);
        }
    }
}

const FILTER_HINT: &str =
    "ns:x !state:blocked reason:kernel workload:x object:x /expression/ text  [Enter] keep  [Esc] undo";

pub(super) fn draw(
    model: &Model,
    canvas: &mut Canvas<'_>,
    ScreenLayout { message, footer: area, .. }: ScreenLayout,
) {
    draw_message(model.message(), canvas, message);
    if let Some((field, _)) = &model.typing {
        let x = canvas.write(area, area.x + 1, "filter: ", Tone::Strong);
        let width = usize::from((area.x + area.width).saturating_sub(x));
        let x =
            canvas.write(area, x, &field.shown(canvas.glyphs.caret, canvas.glyphs.more, width), Tone::Plain);
        match model.arrangement().filter.problem() {
            Some(problem) => canvas.write(area, x + 2, &problem.to_string(), Tone::Bad),
            None => canvas.write(area, x + 2, FILTER_HINT, Tone::Quiet),
        };
        return;
    }
    if message.height == 0 && draw_message(model.message_instead_of_keys(), canvas, area) {
        return;
    }
    let keys = keys(model);
    let keys: Vec<(&str, &str)> = keys.iter().map(|(key, what)| (key.as_str(), *what)).collect();
    draw_key_line(&keys, canvas, area);
}

/// Draws a message, and whether it is about a request that is under way. Returns whether there is one.
pub(super) fn draw_message(message: Option<(&Notice, bool)>, canvas: &mut Canvas<'_>, area: Rect) -> bool {
    let Some((notice, is_pending)) = message else { return false };
    let tone = match (is_pending, notice.is_bad) {
        (true, _) => Tone::Busy,
        (_, true) => Tone::Bad,
        _ => Tone::Good,
    };
    canvas.write_wrapped(area, &notice.text, tone);
    true
}

/// Draws keys and what they do, those that fit. A space comes between the two where all of them fit with it.
pub(crate) fn draw_key_line(keys: &[(&str, &str)], canvas: &mut Canvas<'_>, area: Rect) {
    let needed: usize = keys.iter().map(|(key, what)| key.len() + what.len() + 5).sum();
    let (gap, after) = if needed <= usize::from(area.width) { (1, 2) } else { (0, 1) };
    let mut x = area.x + 1;
    for (key, what) in keys {
        let width = u16::try_from(key.len() + what.len() + 3).unwrap_or(0);
        if x + width + gap > area.x + area.width {
            continue;
        }
        x = canvas.write(area, x, &format!("[{key}]"), Tone::Accent) + gap;
        x = canvas.write(area, x, what, Tone::Plain) + after;
    }
}

/// The keys, those that matter most first.
fn keys(model: &Model) -> Vec<(String, &'static str)> {
    let view = model.view();
    let offered = |entry: &&ActionEntry| {
        // In an open node, Enter shows what [v] shows.
        let is_spare = match entry.action {
            Action::Back => model.open.is_none(),
            Action::Open => model.open.is_some(),
            _ => false,
        };
        entry.views.contains(&view) && model.options.offers(entry) && !is_spare
    };
    let mut shown: Vec<_> = ACTIONS
        .iter()
        .filter(offered)
        .filter_map(|entry| {
            let (place, word) = entry.footer?;
            let word = match (entry.action, view) {
                (Action::Switch, View::Nodes) => "maintenances",
                (Action::Attention, View::Nodes) => "unavailable",
                _ => word,
            };
            // What is done most comes first: with pods in their view, and with maintenances in a list.
            let place = match (entry.action, view) {
                (Action::Describe, View::Fleet | View::Nodes) => place + 12,
                (Action::Start, View::Pods | View::Tree) => place + 18,
                _ => place,
            };
            Some((place, entry.action, model.options.config.keys.keys(entry.action).first()?.clone(), word))
        })
        .collect();
    shown.sort_by_key(|(place, ..)| *place);
    // A node has no other page.
    shown.retain(|(_, action, ..)| model.open.is_none() || *action != Action::Switch);
    let mut keys: Vec<_> = shown.into_iter().map(|(.., key, word)| (key, word)).collect();
    if let Some(replay) = &model.replay {
        let goes_on = replay.is_paused || replay.has_ended();
        let arrows = if model.options.appearance.ascii { "<- ->" } else { "← →" };
        let of_replay =
            [("Space", if goes_on { "play" } else { "pause" }), (arrows, "10 s"), ("+ -", "speed")];
        keys.splice(2..2, of_replay.map(|(key, word)| (key.to_owned(), word)));
    }
    keys
}
