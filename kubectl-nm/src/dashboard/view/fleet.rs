//! The rows of the fleet, as a table or as cards.

use ratatui::layout::Rect;

use crate::args::duration::age;
use crate::dashboard::layout::{ScreenLayout, Shape};
use crate::dashboard::model::Model;
use crate::dashboard::model::fleet_row::FleetRow;
use crate::dashboard::model::listing::{Row, Rows};
use crate::dashboard::model::watch_health::Freshness;
use crate::dashboard::view::canvas::{Canvas, cell, line, wrapped};
use crate::dashboard::view::columns::{Column, GAP, fit};
use crate::dashboard::view::theme::Tone;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FleetColumn {
    Node,
    State,
    Bar,
    Percent,
    Pods,
    Blocked,
    Time,
    Why,
}

const COLUMNS: [Column<FleetColumn>; 8] = [
    Column::new(FleetColumn::Node, "NODE", 12, 0, 9),
    Column::new(FleetColumn::State, "STATE", 10, 0, 8),
    Column::new(FleetColumn::Bar, "PROGRESS", 12, 0, 1),
    Column::new(FleetColumn::Percent, "%", 4, 0, 6),
    Column::new(FleetColumn::Pods, "PODS", 9, 0, 3),
    Column::new(FleetColumn::Blocked, "BLK", 3, 0, 7),
    Column::new(FleetColumn::Time, "T+", 6, 0, 2),
    Column::new(FleetColumn::Why, "WHY", 16, 1, 5),
];

/// From so many columns on, the reason gets more space.
const WORDS_FROM: u16 = 70;

pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>, screen: &ScreenLayout) {
    let rows = &model.fleet.rows;
    if rows.len() == 0 {
        nothing(model, canvas, screen.body);
        return;
    }
    // The cursor and the mark come before the first column.
    let width = screen.heads.width.saturating_sub(2);
    let longest = rows.all().map(|row| row.node.len()).max().unwrap_or(0);
    let mut columns = COLUMNS;
    columns[0].width = u16::try_from(longest).unwrap_or(u16::MAX).clamp(4, (width / 3).max(4));
    columns[COLUMNS.len() - 1].width = if width >= WORDS_FROM { 28 } else { 16 };
    let columns = fit(&columns, width);
    let mut x = screen.heads.x + 2;
    for column in &columns {
        canvas.write(cell(screen.heads, x, column.width), x, column.head, Tone::Quiet);
        x += column.width + GAP;
    }
    for (row, index) in (0u16..).zip(rows.window(screen.rows())) {
        let Some(entry) = rows.nth(index) else { continue };
        let area = Rect { height: screen.row_height(), ..line(screen.body, row * screen.row_height()) };
        let selected = index == rows.at();
        if selected {
            canvas.write(area, area.x, canvas.glyphs.cursor, Tone::Strong);
        }
        if model.fleet.marked.contains(entry.key()) {
            canvas.write(area, area.x + 1, canvas.glyphs.mark, Tone::Strong);
        }
        match screen.shape {
            Shape::Cards => card(model, canvas, area, entry),
            _ => table_row(model, canvas, area, &columns, entry),
        }
        if selected {
            canvas.select(area);
        }
    }
}

fn table_row(
    model: &Model,
    canvas: &mut Canvas<'_>,
    area: Rect,
    columns: &[Column<FleetColumn>],
    row: &FleetRow,
) {
    let mut x = area.x + 2;
    for column in columns {
        let (text, tone) = value(model, canvas, column, row);
        canvas.write(cell(area, x, column.width), x, &text, tone);
        x += column.width + GAP;
    }
}

fn value(model: &Model, canvas: &Canvas<'_>, column: &Column<FleetColumn>, row: &FleetRow) -> (String, Tone) {
    let (glyph, tone) = canvas.glyphs.node(row.state);
    let in_maintenance = row.state.is_some();
    let text = match column.what {
        FleetColumn::Node => return (row.node.clone(), Tone::Strong),
        FleetColumn::State => return (format!("{glyph}{}", row.state_word()), tone),
        FleetColumn::Blocked if row.blocked > 0 => return (format!("{:>3}", row.blocked), Tone::Bad),
        FleetColumn::Why => {
            let tone = if row.is_blocked() { Tone::Plain } else { Tone::Quiet };
            return (row.why(model.now).to_owned(), tone);
        }
        _ if !in_maintenance => String::from("-"),
        FleetColumn::Percent if row.pods == 0 && !row.has_started() => String::from("   -"),
        FleetColumn::Pods if row.pods == 0 && !row.has_started() => String::from("-"),
        FleetColumn::Bar => format!("[{}]", canvas.bar(row.progress(), column.width - 2)),
        FleetColumn::Percent => format!("{:>3}%", row.percent),
        FleetColumn::Pods => format!("{}/{}", row.gone, row.pods),
        FleetColumn::Blocked => String::from("  -"),
        FleetColumn::Time => row.seconds(model.now).map_or_else(|| String::from("-"), age),
    };
    (text, Tone::Plain)
}

fn card(model: &Model, canvas: &mut Canvas<'_>, area: Rect, row: &FleetRow) {
    let (glyph, tone) = canvas.glyphs.node(row.state);
    let first = line(area, 0);
    let mut right = first.x + first.width;
    if row.state.is_some() && (row.pods > 0 || row.has_started()) {
        let far = format!("{}% {}/{}", row.percent, row.gone, row.pods);
        right = canvas.write_right(first, &far, Tone::Plain);
    }
    let first = Rect { width: right.saturating_sub(first.x + 1), ..first };
    let x = canvas.write(first, first.x + 2, &format!("{glyph}{}", row.state_word()), tone);
    canvas.write(first, x + 1, &row.node, Tone::Strong);
    let second = line(area, 1);
    let x = match row.seconds(model.now) {
        Some(seconds) => canvas.write(second, second.x + 4, &age(seconds), Tone::Quiet),
        None => second.x + 3,
    };
    canvas.write(second, x + 1, row.why(model.now), Tone::Plain);
}

/// Draws why there is no row.
fn nothing(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let lines: Vec<(String, Tone)> = match model.freshness() {
        Freshness::Forbidden(why) => {
            let mut lines = vec![(String::from("You have no permission to list maintenances:"), Tone::Bad)];
            lines.extend(
                wrapped(why, area.width.saturating_sub(4)).into_iter().map(|line| (line, Tone::Plain)),
            );
            lines.push((String::new(), Tone::Plain));
            lines.push((format!("{} auth can-i --list", model.options.kubectl), Tone::Strong));
            lines.push((String::from("lists your permissions. [r] tries again"), Tone::Plain));
            lines
        }
        Freshness::Connecting => vec![(format!("Connecting to {}", model.options.context), Tone::Plain)],
        _ if model.fleet.rows.total() > 0 => vec![
            (format!("None of {} rows matches the filter.", model.fleet.rows.total()), Tone::Plain),
            (String::from("[Esc] clears the filter"), Tone::Quiet),
        ],
        _ => {
            let mut lines = vec![(String::from("No node is in maintenance."), Tone::Plain)];
            if !model.options.readonly {
                lines.push((String::from("[n] puts nodes into maintenance"), Tone::Quiet));
            }
            lines
        }
    };
    for (row, (text, tone)) in (1u16..).zip(&lines) {
        let line = line(area, row);
        canvas.write(line, line.x + 3, text, *tone);
    }
}
