//! The layout of the screen for its size.
//!
//! The view draws with it and keys scroll with it, so that both agree. Where there is less space, parts of the screen
//! and columns are left out.

use ratatui::layout::Rect;

use crate::dashboard::model::Model;

/// Below so many columns or rows, dialogs that change the cluster do not open.
const SMALL_BELOW: (u16, u16) = (40, 8);

/// The areas of the screen. Areas that are not shown are empty.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ScreenLayout {
    pub(crate) header: Rect,
    pub(crate) summary: Rect,
    pub(crate) banner: Rect,
    pub(crate) heads: Rect,
    pub(crate) body: Rect,
    pub(crate) blockers: Rect,
    pub(crate) why: Rect,
    pub(crate) footer: Rect,
}

impl ScreenLayout {
    pub(crate) fn whole(model: &Model) -> Self {
        let (width, height) = model.size;
        Self::of(model, Rect { x: 0, y: 0, width, height })
    }

    pub(crate) fn of(model: &Model, area: Rect) -> Self {
        let mut rest = area;
        let header = cut_top(&mut rest, 1);
        let tall = area.height;
        let summary = cut_top(&mut rest, if model.open.is_some() { 2 } else { 1 });
        let banner = cut_top(&mut rest, u16::from(tall >= 10 && model.banner().is_some()));
        let footer = cut_bottom(&mut rest, 1);
        let why = cut_bottom(&mut rest, if tall >= 12 && model.remedy().is_some() { 2 } else { 0 });
        let blockers = cut_bottom(&mut rest, u16::from(tall >= 14 && !model.blockers().is_empty()));
        let heads = cut_top(&mut rest, 1);
        Self { header, summary, banner, heads, body: rest, blockers, why, footer }
    }

    pub(crate) fn rows(&self) -> usize {
        usize::from(self.body.height)
    }
}

/// Whether the screen is too small to list what would happen.
pub(crate) fn is_small(model: &Model) -> bool {
    model.size.0 < SMALL_BELOW.0 || model.size.1 < SMALL_BELOW.1
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
