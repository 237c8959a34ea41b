//! The layout of the screen for its size.
//!
//! The view draws with it and keys scroll with it, so that both agree. Where there is less space, parts of the screen
//! and columns are left out.

use ratatui::layout::{Constraint, Layout, Rect};

use crate::dashboard::model::Model;
use crate::dashboard::wrapping::wrap;

/// Below so many columns or rows, dialogs that change the cluster do not open.
const SMALL_BELOW: (u16, u16) = (40, 8);

/// From so many columns on, the side pane is beside the rows; below, it is under them.
const BESIDE_FROM: u16 = 120;

/// The areas of the screen. Areas that are not shown are empty.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScreenLayout {
    pub(crate) header: Rect,
    pub(crate) summary: Rect,
    /// What an ended drain has done and cost.
    pub(crate) outcome: Rect,
    pub(crate) banner: Rect,
    pub(crate) heads: Rect,
    pub(crate) body: Rect,
    pub(crate) side: Rect,
    pub(crate) volumes: Rect,
    pub(crate) blockers: Rect,
    pub(crate) why: Rect,
    /// Where a replay is.
    pub(crate) replay: Rect,
    pub(crate) footer: Rect,
}

impl ScreenLayout {
    pub(crate) fn whole(model: &Model) -> Self {
        let (width, height) = model.size;
        Self::of(model, Rect { x: 0, y: 0, width, height })
    }

    pub(crate) fn of(model: &Model, area: Rect) -> Self {
        let tall = area.height;
        let lines = |count: u16, shown: bool| Constraint::Length(if shown { count } else { 0 });
        let volumes = u16::try_from(model.attached_volumes().len()).unwrap_or(u16::MAX);
        let [header, summary, outcome, banner, rest, volumes, blockers, why, replay, footer] =
            Layout::vertical([
                Constraint::Length(1),
                Constraint::Length(if model.open.is_some() { 2 } else { 1 }),
                lines(u16::try_from(model.outcome().len()).unwrap_or(u16::MAX), tall >= 16),
                lines(1, tall >= 10 && model.banner().is_some()),
                Constraint::Fill(1),
                // The headings and the volumes, in a third of the screen at most.
                lines(volumes.saturating_add(1).min(tall / 3), tall >= 10 && volumes > 0),
                lines(1, tall >= 14 && !model.blockers().is_empty()),
                lines(2, tall >= 12 && model.remedy().is_some()),
                lines(1, model.replay.is_some()),
                Constraint::Length(1),
            ])
            .areas(area);
        let parts = if area.width >= BESIDE_FROM {
            Layout::horizontal([Constraint::Fill(11), Constraint::Fill(9)]).spacing(1)
        } else {
            Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)])
        };
        let [rows, side] = if model.side.is_some() { parts.areas(rest) } else { [rest, Rect::default()] };
        let [heads, body] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(rows);
        Self { header, summary, outcome, banner, heads, body, side, volumes, blockers, why, replay, footer }
    }

    pub(crate) fn rows(&self) -> usize {
        usize::from(self.body.height)
    }

    /// How many lines the side pane shows, without its title.
    pub(crate) fn side_rows(&self) -> usize {
        usize::from(self.side.height.saturating_sub(1))
    }
}

/// The areas of the page that shows what kubectl prints.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutputLayout {
    pub(crate) command: Rect,
    pub(crate) body: Rect,
    pub(crate) footer: Rect,
}

impl OutputLayout {
    pub(crate) fn whole(model: &Model) -> Self {
        let (width, height) = model.size;
        Self::of(model, Rect { x: 0, y: 0, width, height })
    }

    pub(crate) fn of(model: &Model, area: Rect) -> Self {
        let space = usize::from(area.width.saturating_sub(2));
        let command = model.output.as_ref().map_or(0, |page| wrap(&page.command, space).len());
        // The command in full, unless nothing else would fit.
        let command = u16::try_from(command).unwrap_or(u16::MAX).min(area.height / 3).max(1);
        let [command, body, footer] =
            Layout::vertical([Constraint::Length(command), Constraint::Fill(1), Constraint::Length(1)])
                .areas(area);
        Self { command, body, footer }
    }

    pub(crate) fn rows(&self) -> usize {
        usize::from(self.body.height)
    }

    /// How many columns a line has, beside a blank at both ends.
    pub(crate) fn columns(&self) -> usize {
        usize::from(self.body.width.saturating_sub(2))
    }
}

/// Whether the screen is too small to list what would happen.
pub(crate) fn is_small(model: &Model) -> bool {
    model.size.0 < SMALL_BELOW.0 || model.size.1 < SMALL_BELOW.1
}
