//! The first line: where we are, and how fresh what is shown is.

use jiff::Timestamp;
use ratatui::layout::Rect;

use crate::dashboard::model::fleet_row::{FleetRow, NodeState};
use crate::dashboard::model::watch_health::Freshness;
use crate::dashboard::view::pen::Pen;
use crate::dashboard::view::theme::Tone;

use crate::args::duration::age;
use crate::dashboard::model::Model;

/// The header.
pub(super) fn draw(model: &Model, pen: &mut Pen<'_>, area: Rect) {
    let (link, tone) = link(model, pen);
    let begin = pen.write_right(Rect { width: area.width.saturating_sub(1), ..area }, &link, tone);
    let area = Rect { width: begin.saturating_sub(area.x), ..area };
    let mut x = pen.write(area, area.x + 1, "nm watch", Tone::Strong);
    if area.width >= 60 || model.open.is_none() {
        x = pen.write(area, x + 2, &format!("ctx:{}", model.options.context), Tone::Plain);
    }
    if let Some(open) = &model.open {
        x = pen.write(area, x + 2, &open.name, Tone::Strong);
        let row = model.fleet.maintenance_of(&open.name).map(|object| FleetRow::of(object));
        let state = row.as_ref().map_or(NodeState::Idle, |row| row.state);
        let (glyph, tone) = pen.glyphs.node(state);
        x = pen.write(area, x + 2, &format!("{glyph}{}", state.word()), tone);
        if let Some(seconds) = row.and_then(|row| row.seconds(model.now)) {
            x = pen.write(area, x + 1, &age(seconds), Tone::Plain);
        }
        x = filtered(model, pen, area, x, (open.pods.rows.len(), open.pods.rows.total()), "pods");
    } else {
        let rows = &model.fleet.rows;
        x = filtered(model, pen, area, x, (rows.len(), rows.total()), "nodes");
        if !model.fleet.marked.is_empty() {
            x = pen.write(area, x + 2, &format!("{} marked", model.fleet.marked.len()), Tone::Strong);
        }
    }
    let room = usize::from((area.x + area.width).saturating_sub(x + 2));
    pen.write_right(area, &details(model, room), Tone::Quiet);
}

/// What else there is to know, as far as there is room: what one may do is worth more than the order of rows, and that
/// more than when anything changed.
fn details(model: &Model, room: usize) -> String {
    let readonly = model.options.readonly.then(|| String::from("read-only"));
    let (sort, reversed) = model.sorting();
    let sort = format!("sort:{}{}", if reversed { "-" } else { "" }, sort.word());
    let changed =
        model.links.heard().map(|at| format!("changed {} ago", age(model.now.duration_since(at).as_secs())));
    let (readonly, sort) = (readonly.as_slice(), [sort]);
    let details =
        [[&sort, changed.as_slice(), readonly].concat(), [&sort, readonly].concat(), readonly.to_vec()];
    let lines = details.iter().map(|details| format!("{}  ", details.join("  ")));
    lines.into_iter().find(|line| line.len() <= room).unwrap_or_default()
}

/// How many rows there are, and what keeps others from being shown.
fn filtered(
    model: &Model,
    pen: &mut Pen<'_>,
    area: Rect,
    x: u16,
    (shown, total): (usize, usize),
    what: &str,
) -> u16 {
    let what = if total == 1 { what.trim_end_matches('s') } else { what };
    let filter = model.filter();
    let mut filters = Vec::new();
    if model.blocked_only() {
        filters.push(String::from("blocked only"));
    }
    if !filter.is_empty() {
        filters.push(filter.text().trim().to_owned());
    }
    if filters.is_empty() {
        return if model.open.is_some() || model.links.heard().is_none() {
            x
        } else {
            pen.write(area, x + 2, &format!("{total} {what}"), Tone::Plain)
        };
    }
    let x = pen.write(area, x + 2, &format!("{shown} of {total} {what}:"), Tone::Strong);
    pen.write(area, x + 1, &filters.join(" "), Tone::Busy)
}

/// Everything in one line, the worst first.
pub(super) fn draw_line(model: &Model, pen: &mut Pen<'_>, area: Rect) {
    let mut x = area.x;
    let (link, tone) = link(model, pen);
    if tone == Tone::Alarm || model.is_old() {
        x = pen.write(area, x, &link, tone) + 1;
    }
    if let Some(notice) = &model.notice {
        pen.write(area, x, &notice.text, if notice.is_bad { Tone::Bad } else { Tone::Good });
        return;
    }
    if let Some(open) = &model.open {
        x = pen.write(area, x, &open.name, Tone::Strong);
        let Some(row) = model.fleet.maintenance_of(&open.name).map(|object| FleetRow::of(object)) else {
            pen.write(area, x + 1, "not in maintenance", Tone::Plain);
            return;
        };
        let (glyph, tone) = pen.glyphs.node(row.state);
        x = pen.write(area, x + 1, &format!("{glyph}{}", row.state.word()), tone);
        if row.blocked > 0 {
            x = pen.write(area, x + 1, &row.blocked.to_string(), tone);
        }
        pen.write(area, x + 1, &format!("{}% {}/{}", row.percent, row.gone, row.pods), Tone::Plain);
        return;
    }
    let mut nothing = true;
    for state in NodeState::ALL {
        let count = model.fleet.rows.all().filter(|row| row.state == state).count();
        if count > 0 {
            let (glyph, tone) = pen.glyphs.node(state);
            let text = format!("{glyph}{count} {}", state.word().to_lowercase());
            x = pen.write_whole(area, x, &text, tone).map_or(x, |end| end + 1);
            nothing = false;
        }
    }
    if nothing {
        let words = match model.freshness() {
            Freshness::Live | Freshness::Stale { .. } => "no maintenances",
            Freshness::Connecting | Freshness::Forbidden(_) => link.as_str(),
        };
        pen.write(area, x, words, Tone::Plain);
    }
}

/// How fresh it is, in a word.
fn link(model: &Model, pen: &Pen<'_>) -> (String, Tone) {
    let freshness = model.freshness();
    if let (Some(since), false) = (model.paused, matches!(freshness, Freshness::Stale { .. })) {
        return (format!("PAUSED {}", age(model.now.duration_since(since).as_secs())), Tone::Alarm);
    }
    age_word(&freshness, model.now).unwrap_or_else(|| (format!("live {}", pen.glyphs.live), Tone::Good))
}

/// How old something is that is not live.
pub(super) fn age_word(freshness: &Freshness<'_>, now: Timestamp) -> Option<(String, Tone)> {
    match freshness {
        Freshness::Live => None,
        Freshness::Connecting => Some((String::from("connecting"), Tone::Busy)),
        Freshness::Forbidden(_) => Some((String::from("FORBIDDEN"), Tone::Alarm)),
        Freshness::Stale { since, .. } => {
            Some((format!("STALE {}", age(now.duration_since(*since).as_secs())), Tone::Alarm))
        }
    }
}
