//! The page that shows what kubectl prints: the command, its output, and how it ended.

use nm_core::terminal::text::counted;
use ratatui::layout::Rect;

use crate::config::action_table::Action;
use crate::layout::{OutputLayout, can_split};
use crate::model::Model;
use crate::model::panes::output::OutputPage;
use crate::view::canvas::{Canvas, line};
use crate::view::footer::{draw_key_line, draw_message};
use crate::view::theme::Tone;
use crate::wrapping::wrap;

fn keys(model: &Model) -> Vec<(String, &'static str)> {
    let map = &model.options.config.keys;
    let zoom = if model.has_whole_page { "below the rows" } else { "whole screen" };
    let zoom = can_split(model).then(|| (map.shortest(Action::Zoom), zoom));
    let keys = [
        (map.shortest(Action::Back), "back"),
        (map.up_and_down(), "scroll"),
        (map.ends(), "first, last"),
        (map.shortest(Action::Copy), "copy command"),
        (map.shortest(Action::Reconnect), "again"),
    ];
    keys.into_iter().chain(zoom).collect()
}

/// The line between the rows and the page below them.
pub(super) fn draw_edge(canvas: &mut Canvas<'_>, area: Rect) {
    let across = canvas.glyphs.frame[0].repeat(usize::from(area.width));
    canvas.write(area, area.x, &across, Tone::Accent);
}

pub(super) fn draw(model: &Model, page: &OutputPage, canvas: &mut Canvas<'_>, area: Rect) {
    let areas = OutputLayout::of(model, area);
    let command = wrap(&page.command, usize::from(areas.command.width.saturating_sub(2)));
    let command: Vec<_> = command.into_iter().map(|text| (text, Tone::Strong)).collect();
    canvas.write_lines(areas.command, 1, &command);
    let shown = page.shown();
    let lines = shown.iter().skip(page.top).take(areas.rows());
    let lines: Vec<_> =
        lines.map(|line| (line.text.clone(), if line.is_error { Tone::Bad } else { Tone::Plain })).collect();
    canvas.write_lines(areas.body, 1, &lines);
    if shown.is_empty() {
        let words = if page.ended.is_some() { "it printed nothing" } else { "waiting for its output" };
        canvas.write(line(areas.body, 1), areas.body.x + 1, words, Tone::Quiet);
    }
    draw_message(model.message(), canvas, areas.message);
    if areas.message.height == 0 && draw_message(model.message_instead_of_keys(), canvas, areas.footer) {
        return;
    }
    let (state, tone) = state(page, canvas);
    let last = (page.top + areas.rows()).min(shown.len());
    let cut = match page.dropped {
        0 => String::new(),
        dropped => format!("  {} before cut", counted(dropped, "line")),
    };
    let position = if shown.is_empty() {
        state
    } else {
        format!("{}-{last} of {}{cut}  {state}", page.top + 1, shown.len())
    };
    let width = areas.footer.width.saturating_sub(1);
    let start = canvas.write_right(Rect { width, ..areas.footer }, &position, tone);
    let keys = keys(model);
    let keys: Vec<(&str, &str)> = keys.iter().map(|(key, what)| (key.as_str(), *what)).collect();
    draw_key_line(&keys, canvas, Rect { width: start.saturating_sub(areas.footer.x + 1), ..areas.footer });
}

fn state(page: &OutputPage, canvas: &Canvas<'_>) -> (String, Tone) {
    match &page.ended {
        None => (format!("running {}", canvas.glyphs.live), Tone::Good),
        Some(Ok(())) => (String::from("ended"), Tone::Quiet),
        Some(Err(why)) => (page.denial().unwrap_or_else(|| why.to_string()), Tone::Bad),
    }
}
