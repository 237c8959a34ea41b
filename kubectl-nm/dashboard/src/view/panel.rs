//! The panel: the pods of the selected node, what blocks them and the last events, where the rows leave space for it. Below the
//! pods of an open node, it has the events about it.

use nm_core::terminal::text::counted;
use ratatui::layout::{Constraint, Layout, Rect};

use crate::config::action_table::Action;
use crate::config::columns::ListName;
use crate::layout::ScreenLayout;
use crate::model::fleet::fleet_row::FleetRow;
use crate::model::lists::listing::Rows;
use crate::model::{Model, OpenNode};
use crate::view::canvas::{Canvas, line};
use crate::view::theme::{Surface, Tone};
use crate::view::{node, side, table};

pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>, screen: &ScreenLayout) {
    let mut area = screen.panel;
    if area.height == 0 {
        return;
    }
    if screen.has_panel_beside() {
        let down = canvas.glyphs.frame[1];
        for row in area.rows() {
            canvas.write(row, row.x, down, Tone::Quiet);
        }
        area = Rect { x: area.x + 1, width: area.width.saturating_sub(1), ..area };
    }
    match (&model.open, model.panel_row()) {
        (Some(open), _) => draw_events(model, open, canvas, area),
        (None, Some(row)) => draw_node(model, row, canvas, area),
        (None, None) => {}
    }
}

/// Draws the heading of a part of the panel. Returns the column after it.
fn head(canvas: &mut Canvas<'_>, area: Rect, text: &str) -> u16 {
    let area = line(area, 0);
    canvas.fill(area, Surface::Heads);
    canvas.write(area, area.x + 1, text, Tone::Accent)
}

fn draw_node(model: &Model, row: &FleetRow, canvas: &mut Canvas<'_>, area: Rect) {
    let known = model.background.known(&row.node);
    let title = line(area, 0);
    let x = head(canvas, area, &row.node);
    let (glyph, tone) = canvas.glyphs.node(row.state);
    let mut x = canvas.write(title, x + 2, &format!("{glyph} {}", row.state_word()), tone);
    if !row.reason.is_empty() {
        x = canvas.write(title, x + 2, &row.reason, Tone::Plain);
    }
    canvas.write_whole(title, x + 2, &format!("{} opens", model.hint(Action::Open)), Tone::Quiet);
    let body = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    let events = match known.map_or(0, |known| known.events.latest().len()) {
        0 => 0,
        events => u16::try_from(events + 1).unwrap_or(u16::MAX).min(body.height / 3),
    };
    // Blocked pods go before what to do about them, and the line that counts the others.
    let pods = u16::try_from(row.blocked).unwrap_or(u16::MAX).saturating_add(1);
    let most = (body.height / 3).min(body.height.saturating_sub(events).saturating_sub(pods)).max(1);
    let causes = model.cause_lines(row, usize::from(body.width.saturating_sub(2)), most.into());
    let causes: Vec<(String, Tone)> =
        causes.into_iter().map(|(text, kind)| (text, side::tone(kind))).collect();
    let height = u16::try_from(causes.len()).unwrap_or(u16::MAX);
    let [causes_area, pods, events] =
        Layout::vertical([Constraint::Length(height), Constraint::Fill(1), Constraint::Length(events)])
            .areas(body);
    canvas.write_lines(causes_area, 1, &causes);
    if let Some(known) = known {
        draw_pods(model, known, canvas, pods);
        draw_events(model, known, canvas, events);
    }
}

/// The pods that need attention most; the last line counts those that do not fit.
fn draw_pods(model: &Model, known: &OpenNode, canvas: &mut Canvas<'_>, area: Rect) {
    let rows = &known.pods.rows;
    let columns =
        node::columns(known.pods.longest, model.options.config.columns.of(ListName::Pods), area.width);
    let height = usize::from(area.height);
    let shown = if rows.len() > height { height.saturating_sub(1) } else { height };
    for (area, row) in area.rows().zip((0..shown).filter_map(|at| rows.nth(at))) {
        table::draw_row(row, &columns, node::INDENT, model, canvas, area);
    }
    let left = rows.len().saturating_sub(shown);
    if let Some(last) = area.rows().next_back().filter(|_| left > 0) {
        canvas.write(last, last.x + node::INDENT, &format!("and {}", counted(left, "more pod")), Tone::Quiet);
    }
}

/// The last events about a node and its maintenance.
fn draw_events(model: &Model, known: &OpenNode, canvas: &mut Canvas<'_>, area: Rect) {
    if area.height == 0 {
        return;
    }
    head(canvas, area, "EVENTS");
    let lines: Vec<(String, Tone)> =
        model.event_lines(known).into_iter().map(|(text, kind)| (text, side::tone(kind))).collect();
    let body = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    canvas.write_lines(body, 1, &lines);
}
