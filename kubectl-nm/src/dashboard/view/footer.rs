//! The last lines: the most frequent blockers, why the selected row is blocked and what to do, and the keys.

use ratatui::layout::Rect;

use crate::dashboard::model::Model;
use crate::dashboard::view::canvas::{Canvas, line};
use crate::dashboard::view::theme::Tone;

pub(super) fn draw_blockers(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let blockers = model.blockers();
    if !blockers.is_empty() {
        let x = canvas.write(area, area.x + 1, "blockers: ", Tone::Quiet);
        canvas.write(area, x, &blockers.join(", "), Tone::Plain);
    }
}

pub(super) fn draw_why(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let Some((why, remedy)) = model.remedy() else { return };
    let (first, second) = (line(area, 0), line(area, 1));
    let x = canvas.write(first, first.x + 1, "why> ", Tone::Bad);
    // The advice comes first: a long message would cut it off, and is in the row as well.
    canvas.write(first, x, &format!("{} ({why})", remedy.advice), Tone::Plain);
    let x = canvas.write(second, second.x + 1, "do>  ", Tone::Bad);
    canvas.write(second, x, &remedy.command, Tone::Strong);
}

pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    if let Some((field, _)) = &model.typing {
        let x = canvas.write(area, area.x + 1, "filter: ", Tone::Strong);
        let width = usize::from((area.x + area.width).saturating_sub(x));
        let x =
            canvas.write(area, x, &field.shown(canvas.glyphs.caret, canvas.glyphs.more, width), Tone::Plain);
        canvas.write(
            area,
            x + 2,
            "ns:x state:blocked node:worker-1* text  [Enter] keep  [Esc] undo",
            Tone::Quiet,
        );
        return;
    }
    if let Some(notice) = &model.notice {
        canvas.write(area, area.x + 1, &notice.text, if notice.is_bad { Tone::Bad } else { Tone::Good });
        return;
    }
    if let Some(words) = model.pending_requests.last() {
        canvas.write(area, area.x + 1, words, Tone::Busy);
        return;
    }
    draw_key_line(&keys(model), canvas, area);
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
        x = canvas.write(area, x, &format!("[{key}]"), Tone::Strong) + gap;
        x = canvas.write(area, x, what, Tone::Plain) + after;
    }
}

/// The keys, those that matter most first.
fn keys(model: &Model) -> Vec<(&'static str, &'static str)> {
    let mut keys = vec![("q", "quit"), ("?", "help")];
    if model.open.is_some() {
        keys.push(("Esc", "back"));
    } else {
        keys.push(("Enter", "open"));
    }
    if !model.options.readonly {
        keys.push(("n", "start"));
        keys.push(("x", "stop"));
        keys.push(("p", "pause"));
    }
    keys.push(("/", "filter"));
    if model.open.is_none() {
        keys.push(("Tab", if model.shows_nodes() { "maintenances" } else { "all nodes" }));
    }
    if model.open.is_some() {
        keys.extend([("w", "where"), ("e", "events"), ("c", "copy"), ("y", "YAML")]);
    } else {
        let only = if model.shows_nodes() { "unavailable" } else { "blocked" };
        keys.extend([("s", "sort"), ("f", only), ("y", "YAML")]);
        // Marks only serve starting and stopping.
        if !model.options.readonly {
            keys.push(("Space", "mark"));
        }
    }
    keys
}
