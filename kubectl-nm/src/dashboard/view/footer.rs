//! The last lines: what blocks most, why the selected row is blocked and what to do, and the keys.

use ratatui::layout::Rect;

use crate::dashboard::model::Model;
use crate::dashboard::model::fleet_row::FleetRow;
use crate::dashboard::view::pen::{Pen, line};
use crate::dashboard::view::theme::Tone;

/// What blocks most.
pub(super) fn draw_blockers(model: &Model, pen: &mut Pen<'_>, area: Rect) {
    let plural = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let blockers: Vec<String> = if let Some(open) = &model.open {
        let row = model.fleet.maintenance_of(&open.name).map(|object| FleetRow::of(object));
        let mut obstacles: Vec<(String, usize)> = row.into_iter().flat_map(|row| row.obstacles).collect();
        obstacles.sort_by_key(|(_, pods)| std::cmp::Reverse(*pods));
        obstacles.into_iter().map(|(obstacle, pods)| format!("{obstacle} {}", plural(pods, "pod"))).collect()
    } else {
        let blockers = model.fleet.blockers().iter();
        blockers.map(|blocker| format!("{} {}", blocker.obstacle, plural(blocker.nodes, "node"))).collect()
    };
    if !blockers.is_empty() {
        let x = pen.write(area, area.x + 1, "blockers: ", Tone::Quiet);
        pen.write(area, x, &blockers.join(", "), Tone::Plain);
    }
}

/// Why the selected row is blocked, and what to do.
pub(super) fn draw_why(model: &Model, pen: &mut Pen<'_>, area: Rect) {
    let Some((why, remedy)) = model.remedy() else { return };
    let (first, second) = (line(area, 0), line(area, 1));
    let x = pen.write(first, first.x + 1, "why> ", Tone::Bad);
    // The advice must not be cut off by a long message, which stands in the row too.
    pen.write(first, x, &format!("{} ({why})", remedy.advice), Tone::Plain);
    let x = pen.write(second, second.x + 1, "do>  ", Tone::Bad);
    pen.write(second, x, &remedy.command, Tone::Strong);
}

/// The keys, what is typed, a word in passing, or what is under way.
pub(super) fn draw(model: &Model, pen: &mut Pen<'_>, area: Rect) {
    if let Some((field, _)) = &model.typing {
        let x = pen.write(area, area.x + 1, "filter: ", Tone::Strong);
        let room = usize::from((area.x + area.width).saturating_sub(x));
        let x = pen.write(area, x, &field.shown(pen.glyphs.caret, pen.glyphs.more, room), Tone::Plain);
        pen.write(area, x + 2, "ns:x state:blocked node:worker-1* text  [Enter]keep [Esc]undo", Tone::Quiet);
        return;
    }
    if let Some(notice) = &model.notice {
        pen.write(area, area.x + 1, &notice.text, if notice.is_bad { Tone::Bad } else { Tone::Good });
        return;
    }
    if let Some(words) = model.under_way.last() {
        pen.write(area, area.x + 1, words, Tone::Busy);
        return;
    }
    let mut x = area.x + 1;
    for (key, what) in keys(model) {
        let width = u16::try_from(key.len() + what.len() + 3).unwrap_or(0);
        if x + width > area.x + area.width {
            continue;
        }
        x = pen.write(area, x, &format!("[{key}]"), Tone::Strong);
        x = pen.write(area, x, what, Tone::Plain) + 1;
    }
}

/// The keys that matter most, those without which one is lost first.
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
    }
    keys.push(("/", "filter"));
    if model.open.is_some() {
        keys.extend([("e", "events"), ("c", "copy"), ("y", "YAML")]);
    } else {
        keys.extend([("s", "sort"), ("f", "blocked"), ("y", "YAML")]);
        // Marks are for starting and stopping.
        if !model.options.readonly {
            keys.push(("Space", "mark"));
        }
    }
    keys.push(("p", if model.paused.is_some() { "go on" } else { "pause" }));
    keys
}
