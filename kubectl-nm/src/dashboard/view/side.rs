//! The side pane: events about the open node, or the maintenance as YAML.

use ratatui::layout::Rect;

use crate::args::duration::age;
use crate::dashboard::message::{WatchKind, WatchState};
use crate::dashboard::model::{Model, OpenNode, SideContent};
use crate::dashboard::view::canvas::{Canvas, line};
use crate::dashboard::view::header::age_word;
use crate::dashboard::view::theme::Tone;

pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let Some(side) = model.side else { return };
    let visible = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    let rows = usize::from(visible.height);
    let (title, kind, lines) = match (side.shows, &model.open) {
        (SideContent::Document, _) => {
            let lines = model.document.lines.iter().map(|line| (line.clone(), Tone::Plain));
            ("YAML", WatchKind::Maintenances, lines.skip(side.top).take(rows).collect())
        }
        (SideContent::Events, Some(open)) => {
            ("EVENTS", WatchKind::Events, events(model, open, side.top, rows))
        }
        (SideContent::Events, None) => return,
    };
    let head = line(area, 0);
    let across = canvas.glyphs.frame[0].repeat(usize::from(head.width));
    canvas.write(head, head.x, &across, Tone::Quiet);
    let hint = if side.has_focus { "[j k] scroll  [Tab] back" } else { "[Tab] scroll" };
    let tone = if side.has_focus { Tone::Alarm } else { Tone::Strong };
    let x = canvas.write(head, head.x + 1, &format!(" {title} "), tone);
    let x = canvas.write(head, x + 1, &format!(" {hint} "), Tone::Quiet);
    if let Some((age, tone)) = age_word(model.health.of(kind), model.now) {
        canvas.write(head, x + 1, &format!(" {age} "), tone);
    }
    canvas.write_lines(visible, 1, &lines);
}

fn events(model: &Model, open: &OpenNode, top: usize, rows: usize) -> Vec<(String, Tone)> {
    let shown = open.events.latest().iter().skip(top).take(rows);
    let lines: Vec<(String, Tone)> = shown
        .map(|event| {
            let ago =
                event.at.map_or_else(|| String::from("-"), |at| age(model.now.duration_since(at).as_secs()));
            let times = if event.count > 1 { format!(" (x{})", event.count) } else { String::new() };
            let sign = if event.is_warning { "!" } else { " " };
            let tone = if event.is_warning { Tone::Bad } else { Tone::Plain };
            (format!("{ago:>5} {sign}{}{times}: {}", event.reason, event.note), tone)
        })
        .collect();
    if !lines.is_empty() {
        return lines;
    }
    let words = match model.health.of(WatchKind::Events) {
        WatchState::Forbidden(why) => {
            return vec![
                (String::from("You have no permission to list events:"), Tone::Bad),
                (why.clone(), Tone::Plain),
            ];
        }
        WatchState::Connecting => "loading events",
        WatchState::Unrecorded => "the events were not recorded",
        WatchState::Lost { error, .. } => error,
        WatchState::Live => "no recent events",
    };
    vec![(words.to_owned(), Tone::Quiet)]
}
