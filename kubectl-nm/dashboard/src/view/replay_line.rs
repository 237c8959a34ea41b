//! The line of a replay: the position in the recording, the recorded time and the speed.

use jiff::{SignedDuration, Timestamp};
use ratatui::layout::Rect;

use crate::model::Model;
use crate::model::replay::ReplayStatus;
use crate::view::canvas::Canvas;
use crate::view::theme::Tone;

/// The widest bar.
const WIDEST: u16 = 60;

/// Below so many columns, a bar shows nothing.
const NARROWEST: u16 = 8;

/// From so many columns on, the line has the date as well.
const DATE_FROM: u16 = 100;

pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let Some(replay) = &model.replay else { return };
    let (word, tone) = match replay {
        ReplayStatus { is_seeking: true, .. } => ("seeking", Tone::Busy),
        replay if replay.has_ended() => ("ended", Tone::Strong),
        ReplayStatus { is_paused: true, .. } => ("paused", Tone::Alarm),
        _ => ("playing", Tone::Good),
    };
    let x = canvas.write(area, area.x + 1, word, tone);
    let x = canvas.write(area, x + 1, &format!("{}x", replay.speed), Tone::Strong);
    let position = format!("{} / {}", clock(replay.position()), clock(replay.length()));
    let x = canvas.write(area, x + 2, &position, Tone::Plain);
    let time = time(replay.at, area.width >= DATE_FROM);
    let needed = u16::try_from(time.len() + 3).unwrap_or(u16::MAX);
    if area.width < x.saturating_add(needed) {
        return;
    }
    let start = canvas.write_right(Rect { width: area.width.saturating_sub(1), ..area }, &time, Tone::Plain);
    let space = start.saturating_sub(x).saturating_sub(4);
    if space >= NARROWEST {
        let bar = canvas.bar((replay.permille(), 1000), space.min(WIDEST));
        canvas.write(area, x + 2, &bar, Tone::Quiet);
    }
}

/// `5:07`, `1:05:07`
fn clock(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

fn time(at: Timestamp, with_date: bool) -> String {
    at.strftime(if with_date { "%Y-%m-%d %H:%M:%SZ" } else { "%H:%M:%SZ" }).to_string()
}
