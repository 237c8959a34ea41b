//! The first line: the cluster, the node, and how fresh the view is.

use jiff::Timestamp;
use ratatui::layout::Rect;

use crate::dashboard::message::WatchState;
use crate::dashboard::model::fleet_row::IDLE;
use crate::dashboard::view::canvas::Canvas;
use crate::dashboard::view::theme::Tone;
use crate::terminal::text::counted;

use crate::args::duration::age;
use crate::dashboard::model::Model;

pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let (freshness_word, tone) = freshness_word(model, canvas);
    let start =
        canvas.write_right(Rect { width: area.width.saturating_sub(1), ..area }, &freshness_word, tone);
    let area = Rect { width: start.saturating_sub(area.x), ..area };
    let mut x = canvas.write(area, area.x + 1, "nm watch", Tone::Strong);
    if area.width >= 60 || model.open.is_none() {
        x = canvas.write(area, x + 2, &format!("ctx:{}", model.options.context), Tone::Plain);
    }
    if let Some(open) = &model.open {
        x = canvas.write(area, x + 2, &open.name, Tone::Strong);
        let row = model.open_row();
        let (state, word) = row.as_ref().map_or((None, IDLE), |row| (row.state, row.state_word()));
        let (glyph, tone) = canvas.glyphs.node(state);
        x = canvas.write(area, x + 2, &format!("{glyph}{word}"), tone);
        if let Some(seconds) = row.and_then(|row| row.seconds(model.now)) {
            x = canvas.write(area, x + 1, &age(seconds), Tone::Plain);
        }
        x = filtered(model, canvas, area, x, "pod");
    } else {
        x = filtered(model, canvas, area, x, "node");
    }
    if model.options.readonly {
        canvas.write_whole(area, x + 2, "read-only", Tone::Quiet);
    }
}

fn filtered(model: &Model, canvas: &mut Canvas<'_>, area: Rect, x: u16, what: &str) -> u16 {
    let (shown, total) = (model.rows().len(), counted(model.rows().total(), what));
    let filter = model.rows().filter();
    if filter.is_empty() {
        let shows_total = model.open.is_none() && model.fleet.complete;
        return if shows_total { canvas.write(area, x + 2, &total, Tone::Plain) } else { x };
    }
    let x = canvas.write(area, x + 2, &format!("{shown} of {total}:"), Tone::Strong);
    canvas.write(area, x + 1, filter.text().trim(), Tone::Busy)
}

/// How fresh the view is, in a word.
fn freshness_word(model: &Model, canvas: &Canvas<'_>) -> (String, Tone) {
    age_word(model.freshness(), model.now)
        .unwrap_or_else(|| (format!("live {}", canvas.glyphs.live), Tone::Good))
}

/// How old something is; nothing if it is live.
pub(super) fn age_word(freshness: &WatchState, now: Timestamp) -> Option<(String, Tone)> {
    match freshness {
        WatchState::Live => None,
        WatchState::Connecting => Some((String::from("connecting"), Tone::Busy)),
        WatchState::Forbidden(_) => Some((String::from("FORBIDDEN"), Tone::Alarm)),
        WatchState::Lost { since, .. } => {
            Some((format!("STALE {}", age(now.duration_since(*since).as_secs())), Tone::Alarm))
        }
    }
}
