//! The rows of a view as a table. Of the columns that do not fit a width the least important are dropped, and
//! the others share the space that is left.

use nm_shared::PodCounts;
use ratatui::layout::Rect;

use crate::layout::ScreenLayout;
use crate::model::Model;
use crate::model::lists::listing::{Listing, Row, Rows};
use crate::view::canvas::{Canvas, line};
use crate::view::theme::{Surface, Tone};

pub(super) trait DrawnRow: Row {
    type Cell: Copy;
    fn cell(&self, column: &Column<Self::Cell>, model: &Model, canvas: &Canvas<'_>) -> (String, Tone);
    /// The pods of a column that shows them as a bar.
    fn bar(&self, _: &Column<Self::Cell>) -> Option<PodCounts> {
        None
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Column<T> {
    pub(crate) what: T,
    pub(crate) head: &'static str,
    /// The heading where there is space for it, if [`Self::head`] is a short one.
    pub(crate) full_head: Option<&'static str>,
    pub(crate) width: u16,
    /// Its share of the space that is left; 0 keeps the minimum.
    pub(crate) growth: u16,
    /// Columns with the lowest priority are dropped first.
    pub(crate) priority: u8,
}

impl<T> Column<T> {
    pub(crate) const fn new(what: T, head: &'static str, width: u16, growth: u16, priority: u8) -> Self
    where
        T: Copy,
    {
        Self { what, head, full_head: None, width, growth, priority }
    }

    pub(crate) const fn in_full(self, full_head: &'static str) -> Self
    where
        T: Copy,
    {
        Self { full_head: Some(full_head), ..self }
    }
}

const MARK: &str = "*";

const GAP: u16 = 1;

/// The columns with these names, in this order.
pub(super) fn chosen<T: Copy>(columns: &[(&str, Column<T>)], names: &[&str]) -> Vec<Column<T>> {
    let of_name = |name: &&str| columns.iter().find(|(known, _)| known == name).map(|(_, column)| *column);
    names.iter().filter_map(of_name).collect()
}

/// Draws the visible rows of a listing in columns that fit. The cursor and marks are in the first `indent` columns.
pub(super) fn draw<R: DrawnRow>(
    rows: &Listing<R>,
    columns: &[Column<R::Cell>],
    indent: u16,
    model: &Model,
    canvas: &mut Canvas<'_>,
    screen: &ScreenLayout,
) {
    draw_heads(columns, indent, canvas, screen.heads);
    let shown = rows.window(screen.rows());
    if shown.len() < rows.len() {
        let position = format!(" {}-{} of {} ", shown.start + 1, shown.end, rows.len());
        draw_position(&position, columns, indent, canvas, screen.heads);
    }
    for (at, index) in (0u16..).zip(shown) {
        let Some(row) = rows.nth(index) else { continue };
        let area = line(screen.body, at);
        if index == rows.at() {
            canvas.fill(area, Surface::Selection);
            canvas.write(area, area.x, canvas.glyphs.cursor, Tone::Accent);
        }
        if model.marked().contains(row.key()) {
            canvas.write(area, area.x + 1, MARK, Tone::Strong);
        }
        draw_row(row, columns, indent, model, canvas, area);
    }
}

/// Draws a row on one line.
pub(super) fn draw_row<R: DrawnRow>(
    row: &R,
    columns: &[Column<R::Cell>],
    indent: u16,
    model: &Model,
    canvas: &mut Canvas<'_>,
    line: Rect,
) {
    draw_cells(columns, indent, canvas, line, |column, canvas| row.cell(column, model, canvas));
    let mut x = line.x + indent;
    for column in columns {
        if let Some(counts) = row.bar(column) {
            let cell = cell(line, x, column.width);
            canvas.pod_bar(cell, x, column.width, &counts);
        }
        x += column.width + GAP;
    }
}

/// Draws the headings of a table.
pub(crate) fn draw_heads<T>(columns: &[Column<T>], indent: u16, canvas: &mut Canvas<'_>, line: Rect) {
    canvas.fill(line, Surface::Heads);
    draw_cells(columns, indent, canvas, line, |column, _| (column.head.to_owned(), Tone::Accent));
}

/// Draws which rows are on the screen at the end of the headings, unless a heading is there.
fn draw_position<T>(text: &str, columns: &[Column<T>], indent: u16, canvas: &mut Canvas<'_>, heads: Rect) {
    let before: u16 = columns.iter().rev().skip(1).map(|column| column.width + GAP).sum();
    let head = columns.last().map_or("", |column| column.head);
    let end = indent + before + u16::try_from(head.len()).unwrap_or(u16::MAX);
    if usize::from(heads.width.saturating_sub(end)) >= text.len() {
        canvas.write_right(heads, text, Tone::Quiet);
    }
}

/// Draws one line of a table.
pub(crate) fn draw_cells<T>(
    columns: &[Column<T>],
    indent: u16,
    canvas: &mut Canvas<'_>,
    line: Rect,
    text: impl Fn(&Column<T>, &Canvas<'_>) -> (String, Tone),
) {
    let mut x = line.x + indent;
    for column in columns {
        let (text, tone) = text(column, canvas);
        canvas.write(cell(line, x, column.width), x, &text, tone);
        x += column.width + GAP;
    }
}

fn cell(line: Rect, x: u16, width: u16) -> Rect {
    let end = (line.x + line.width).min(x.saturating_add(width));
    Rect { x, width: end.saturating_sub(x), ..line }
}

/// The columns that fit, with their widths.
pub(crate) fn fit<T: Copy>(columns: &[Column<T>], width: u16) -> Vec<Column<T>> {
    let mut kept: Vec<Column<T>> = columns.to_vec();
    let needed = |kept: &[Column<T>]| kept.iter().map(|column| column.width + GAP).sum::<u16>();
    while needed(&kept) > width + GAP && kept.len() > 1 {
        let least = kept.iter().map(|column| column.priority).min();
        kept.retain(|column| Some(column.priority) != least);
    }
    let mut left = (width + GAP).saturating_sub(needed(&kept));
    for column in &mut kept {
        let Some(full_head) = column.full_head else { continue };
        let more = u16::try_from(full_head.len()).unwrap_or(u16::MAX).saturating_sub(column.width);
        if more <= left {
            (column.head, column.width) = (full_head, column.width + more);
            left -= more;
        }
    }
    let shares: u16 = kept.iter().map(|column| column.growth).sum();
    let mut given = 0;
    for column in kept.iter_mut().filter(|column| column.growth > 0) {
        let more = u32::from(left) * u32::from(column.growth) / u32::from(shares);
        let more = u16::try_from(more).unwrap_or(left);
        column.width += more;
        given += more;
    }
    // The last growing column gets the remainder of the division.
    if let Some(last) = kept.iter_mut().rfind(|column| column.growth > 0) {
        last.width += left - given;
    }
    kept
}

/// Gives what a column has beyond so many columns of the screen to another one.
pub(super) fn give_rest<T: Copy + PartialEq>(columns: &mut [Column<T>], from: T, needed: usize, to: T) {
    let place = |what| columns.iter().position(|column| column.what == what);
    let (Some(from), Some(to)) = (place(from), place(to)) else { return };
    let rest = columns[from].width.saturating_sub(u16::try_from(needed).unwrap_or(u16::MAX));
    // Its heading stays whole.
    let rest = rest.min(columns[from].width.saturating_sub(heading(&columns[from])));
    columns[from].width -= rest;
    columns[to].width += rest;
}

/// How many columns of the screen a heading needs.
fn heading<T>(column: &Column<T>) -> u16 {
    u16::try_from(column.head.len()).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn column(what: char, width: u16, growth: u16, priority: u8) -> Column<char> {
        Column { what, head: "", full_head: None, width, growth, priority }
    }

    #[test]
    fn the_lowest_priority_is_dropped_first_and_the_rest_share_the_space() {
        let columns = [column('a', 10, 1, 9), column('b', 5, 0, 5), column('c', 10, 2, 1)];
        for (width, expected) in
            [(27, "a10 b5 c10"), (30, "a11 b5 c12"), (26, "a20 b5"), (16, "a10 b5"), (15, "a15"), (4, "a10")]
        {
            let fitted: Vec<String> = fit(&columns, width)
                .iter()
                .map(|column| format!("{}{}", column.what, column.width))
                .collect();
            assert_eq!(fitted.join(" "), expected, "{width}");
        }
    }

    #[test]
    fn full_headings_get_space_before_columns_grow() {
        let columns = [column('a', 10, 1, 9), Column::new('b', "BLK", 3, 0, 5).in_full("BLOCKED")];
        for (width, expected) in
            [(14, "a10 BLK3"), (17, "a13 BLK3"), (18, "a10 BLOCKED7"), (20, "a12 BLOCKED7")]
        {
            let fitted = fit(&columns, width);
            let [a, b] = &fitted[..] else { panic!("{fitted:?}") };
            assert_eq!(format!("a{} {}{}", a.width, b.head, b.width), expected, "{width}");
        }
    }
}
