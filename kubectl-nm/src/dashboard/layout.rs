//! The layout of the screen for its size.
//!
//! The view draws with it and clicks are resolved with it, so that both agree. A wide screen shows a table. Below
//! [`CARDS_BELOW`] columns each row is a card of two lines, and below [`LINE_BELOW`] a single line sums everything up.

use ratatui::layout::Rect;

use crate::dashboard::model::{Model, Side};

/// Below so many columns, rows are cards.
const CARDS_BELOW: u16 = 50;

/// Below so many columns or rows, everything is one line.
const LINE_BELOW: (u16, u16) = (40, 8);

/// From so many columns on, the side pane is beside the rows; below, it is under them.
const BESIDE_FROM: u16 = 120;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Everything in one line.
    #[default]
    Line,
    /// Two lines per row.
    Cards,
    /// One line per row, in columns.
    Table,
}

/// The areas of the screen. Areas that are not shown are empty.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ScreenLayout {
    pub(crate) shape: Shape,
    /// Context, node and freshness.
    pub(crate) header: Rect,
    /// Progress, in sum.
    pub(crate) summary: Rect,
    /// Pods per second.
    pub(crate) sparkline: Rect,
    /// A notice about the whole view.
    pub(crate) banner: Rect,
    pub(crate) heads: Rect,
    /// The rows.
    pub(crate) body: Rect,
    pub(crate) side: Rect,
    pub(crate) blockers: Rect,
    /// Why the selected row is blocked, and what to do.
    pub(crate) why: Rect,
    /// The keys, the filter being typed, or a notice.
    pub(crate) footer: Rect,
}

impl ScreenLayout {
    pub(crate) fn whole(model: &Model) -> Self {
        let (width, height) = model.size;
        Self::of(model, Rect { x: 0, y: 0, width, height })
    }

    pub(crate) fn of(model: &Model, area: Rect) -> Self {
        let shape = match (area.width, area.height) {
            (width, height) if width < LINE_BELOW.0 || height < LINE_BELOW.1 => Shape::Line,
            (width, _) if width < CARDS_BELOW => Shape::Cards,
            _ => Shape::Table,
        };
        let mut rest = area;
        let header = cut_top(&mut rest, 1);
        if shape == Shape::Line {
            return Self { shape, header, ..Self::default() };
        }
        let (tall, node_open) = (area.height, model.open.is_some());
        let is_node_table = node_open && shape == Shape::Table;
        let summary = cut_top(&mut rest, if is_node_table { 2 } else { 1 });
        let sparkline = cut_top(&mut rest, u16::from(is_node_table && tall >= 20));
        let banner = cut_top(&mut rest, u16::from(tall >= 10 && model.banner().is_some()));
        let footer = cut_bottom(&mut rest, 1);
        let why = cut_bottom(&mut rest, if tall >= 12 && model.remedy().is_some() { 2 } else { 0 });
        let blockers = cut_bottom(&mut rest, u16::from(tall >= 14 && !model.blockers().is_empty()));
        let side = match model.side {
            None => Rect::default(),
            Some(side) if area.width >= BESIDE_FROM => {
                let width = if side == Side::Document { rest.width * 2 / 5 } else { rest.width * 9 / 20 };
                let x = rest.x + rest.width - width;
                // One column stays free between them.
                rest.width -= width + 1;
                Rect { x, width, ..rest }
            }
            Some(_) => {
                let height = rest.height / 2;
                cut_bottom(&mut rest, height)
            }
        };
        let heads = cut_top(&mut rest, u16::from(shape == Shape::Table));
        Self { shape, header, summary, sparkline, banner, heads, body: rest, side, blockers, why, footer }
    }

    pub(crate) fn row_height(&self) -> u16 {
        if self.shape == Shape::Cards { 2 } else { 1 }
    }

    pub(crate) fn rows(&self) -> usize {
        usize::from(self.body.height / self.row_height())
    }

    /// How many lines the side pane shows, without its title.
    pub(crate) fn side_rows(&self) -> usize {
        usize::from(self.side.height.saturating_sub(1))
    }
}

/// Cuts so many lines off an area.
fn cut_top(area: &mut Rect, height: u16) -> Rect {
    let height = height.min(area.height);
    let slice = Rect { height, ..*area };
    *area = Rect { y: area.y + height, height: area.height - height, ..*area };
    slice
}

fn cut_bottom(area: &mut Rect, height: u16) -> Rect {
    let height = height.min(area.height);
    area.height -= height;
    Rect { y: area.y + area.height, height, ..*area }
}
