//! The layout of the screen for its size.
//!
//! The view draws with it and clicks are resolved with it, so that both agree. A wide screen shows a table. Below
//! [`CARDS_BELOW`] columns each row is a card of two lines, and below [`LINE_BELOW`] a single line sums everything up.

use ratatui::layout::Rect;

use crate::dashboard::model::fleet_row::FleetRow;
use crate::dashboard::model::listing::Row;
use crate::dashboard::model::watch_health::Freshness;
use crate::dashboard::model::{Model, Side};
use crate::maintenance::State;

/// Below so many columns, rows are cards.
const CARDS_BELOW: u16 = 50;

/// Below so many columns or rows, everything is one line.
const LINE_BELOW: (u16, u16) = (40, 8);

/// From so many columns on, the side pane is beside the rows; below, it is under them.
const BESIDE_FROM: u16 = 120;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Everything in one line.
    Line,
    /// Two lines per row.
    Cards,
    /// One line per row, in columns.
    Table,
}

/// The areas of the screen. Areas that are not shown are empty.
#[derive(Debug, Clone, Copy)]
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
    /// The column headers.
    pub(crate) heads: Rect,
    /// The rows.
    pub(crate) body: Rect,
    pub(crate) side: Rect,
    /// The most frequent blockers.
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
        let none = Rect { height: 0, ..area };
        if shape == Shape::Line {
            let header = Rect { height: area.height.min(1), ..area };
            return Self {
                shape,
                header,
                summary: none,
                sparkline: none,
                banner: none,
                heads: none,
                body: none,
                side: Rect { width: 0, ..none },
                blockers: none,
                why: none,
                footer: none,
            };
        }
        let (tall, node_open) = (area.height, model.open.is_some());
        let mut cut = Cut(area);
        let header = cut.top(1);
        let summary = cut.top(match (node_open, shape) {
            (true, Shape::Table) => 2,
            _ => 1,
        });
        let sparkline = cut.top(u16::from(node_open && tall >= 20 && shape == Shape::Table));
        let banner = cut.top(u16::from(has_banner(model) && tall >= 10));
        let footer = cut.bottom(1);
        let has_remedy = model.remedy().is_some();
        let why = cut.bottom(if has_remedy && tall >= 12 { 2 } else { 0 });
        let blockers = cut.bottom(u16::from(has_blockers(model) && tall >= 14));
        let (rows, side) = match model.side {
            None => (cut.0, Rect { width: 0, height: 0, ..cut.0 }),
            Some(_) if area.width >= BESIDE_FROM => beside(cut.0, model.side),
            Some(_) => under(cut.0),
        };
        let mut cut = Cut(rows);
        let heads = cut.top(u16::from(shape == Shape::Table));
        Self { shape, header, summary, sparkline, banner, heads, body: cut.0, side, blockers, why, footer }
    }

    pub(crate) fn row_height(&self) -> u16 {
        if self.shape == Shape::Cards { 2 } else { 1 }
    }

    /// How many rows are visible.
    pub(crate) fn rows(&self) -> usize {
        usize::from(self.body.height / self.row_height())
    }

    /// How many lines the side pane shows, without its title.
    pub(crate) fn side_rows(&self) -> usize {
        usize::from(self.side.height.saturating_sub(1))
    }
}

/// The rest of an area after slices are cut off.
struct Cut(Rect);

impl Cut {
    fn top(&mut self, height: u16) -> Rect {
        let height = height.min(self.0.height);
        let slice = Rect { height, ..self.0 };
        self.0 = Rect { y: self.0.y + height, height: self.0.height - height, ..self.0 };
        slice
    }

    fn bottom(&mut self, height: u16) -> Rect {
        let height = height.min(self.0.height);
        self.0 = Rect { height: self.0.height - height, ..self.0 };
        Rect { y: self.0.y + self.0.height, height, ..self.0 }
    }
}

fn beside(area: Rect, side: Option<Side>) -> (Rect, Rect) {
    let width = if side == Some(Side::Document) { area.width * 2 / 5 } else { area.width * 9 / 20 };
    let rows = Rect { width: area.width - width - 1, ..area };
    (rows, Rect { x: area.x + rows.width + 1, width, ..area })
}

fn under(area: Rect) -> (Rect, Rect) {
    let height = area.height / 2;
    let rows = Rect { height: area.height - height, ..area };
    (rows, Rect { y: area.y + rows.height, height, ..area })
}

fn has_banner(model: &Model) -> bool {
    match model.freshness() {
        Freshness::Stale { .. } => return true,
        Freshness::Forbidden(_) if model.is_stale() => return true,
        Freshness::Live | Freshness::Connecting | Freshness::Forbidden(_) => {}
    }
    let Some(open) = &model.open else { return false };
    let Some(maintenance) = model.fleet.maintenance_of(&open.name) else { return true };
    let row = FleetRow::of(maintenance);
    let explains = !matches!(row.state, Some(State::Blocked | State::Draining | State::Drained));
    open.pods.hidden || (explains && !row.why(model.now).is_empty())
}

fn has_blockers(model: &Model) -> bool {
    match &model.open {
        Some(open) => {
            let row = model.fleet.maintenance_of(&open.name);
            row.and_then(|object| object.status.as_ref()).is_some_and(|status| status.blocked_pods.len() > 1)
        }
        None => !model.fleet.blockers().is_empty() && model.fleet.rows.all().any(Row::is_blocked),
    }
}
