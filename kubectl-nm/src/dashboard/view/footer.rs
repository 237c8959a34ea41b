//! The last lines: the most frequent blockers, why the selected row is blocked and what to do, and the keys.

use ratatui::layout::Rect;

use crate::dashboard::action_table::{ACTIONS, Action, ActionEntry, View};
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
    if model.notice.is_some() {
        return draw_notice(model, canvas, area);
    }
    if let Some(words) = model.pending_requests.last() {
        canvas.write(area, area.x + 1, words, Tone::Busy);
        return;
    }
    draw_key_line(&keys(model), canvas, area);
}

pub(super) fn draw_notice(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    if let Some(notice) = &model.notice {
        let tone = if notice.is_bad { Tone::Bad } else { Tone::Good };
        canvas.write(area, area.x + 1, &notice.text, tone);
    }
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
    let view = model.view();
    let offered = |entry: &&ActionEntry| {
        let is_offered = model.options.offers(entry);
        entry.views.contains(&view) && is_offered && !(entry.action == Action::Back && model.open.is_none())
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
                (Action::Describe | Action::EditBudget, View::Fleet | View::Nodes) => place + 12,
                (Action::Start, View::Pods | View::Tree) => place + 18,
                _ => place,
            };
            Some((place, *entry.keys.first()?, word))
        })
        .collect();
    shown.sort_by_key(|(place, ..)| *place);
    // A node has no other page.
    shown.retain(|(_, key, _)| model.open.is_none() || *key != "Tab");
    let mut keys: Vec<_> = shown.into_iter().map(|(_, key, word)| (key, word)).collect();
    if let Some(replay) = &model.replay {
        let goes_on = replay.is_paused || replay.has_ended();
        let arrows = if model.options.appearance.ascii { "<- ->" } else { "← →" };
        let of_replay =
            [("Space", if goes_on { "play" } else { "pause" }), (arrows, "10 s"), ("+ -", "speed")];
        keys.splice(2..2, of_replay);
    }
    keys
}
