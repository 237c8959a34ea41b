//! Moving through rows and lines.

use crossterm::event::KeyCode;

use crate::dashboard::layout::ScreenLayout;
use crate::dashboard::model::Model;

/// A movement through rows or lines.
#[derive(Debug, Clone, Copy)]
pub(super) enum Motion {
    /// So many rows up or down.
    By(isize),
    /// So many pages up or down.
    Pages(isize),
    /// To the first row.
    Top,
    /// To the last row.
    Bottom,
}

/// The movement of a key, if it has one.
pub(super) fn motion(code: KeyCode) -> Option<Motion> {
    Some(match code {
        KeyCode::Down | KeyCode::Char('j') => Motion::By(1),
        KeyCode::Up | KeyCode::Char('k') => Motion::By(-1),
        KeyCode::PageDown => Motion::Pages(1),
        KeyCode::PageUp => Motion::Pages(-1),
        KeyCode::Home | KeyCode::Char('g') => Motion::Top,
        KeyCode::End | KeyCode::Char('G') => Motion::Bottom,
        _ => return None,
    })
}

/// Moves through the rows, or through the side pane if it has the focus.
pub(super) fn travel(model: &mut Model, motion: Motion) {
    let screen = ScreenLayout::whole(model);
    if model.side_has_focus {
        let page = screen.side_rows();
        scroll_side(model, motion, page);
        return;
    }
    let page = isize::try_from(screen.rows().max(1)).unwrap_or(1);
    match (&mut model.open, motion) {
        (Some(open), Motion::By(by)) => open.pods.rows.step(by),
        (None, Motion::By(by)) => model.fleet.rows.step(by),
        (Some(open), Motion::Pages(pages)) => open.pods.rows.step(pages * page),
        (None, Motion::Pages(pages)) => model.fleet.rows.step(pages * page),
        (Some(open), Motion::Top) => open.pods.rows.go_to_top(),
        (None, Motion::Top) => model.fleet.rows.go_to_top(),
        (Some(open), Motion::Bottom) => open.pods.rows.select(usize::MAX),
        (None, Motion::Bottom) => model.fleet.rows.select(usize::MAX),
    }
}

/// Scrolls the side pane.
pub(super) fn scroll_side(model: &mut Model, motion: Motion, page: usize) {
    let page = isize::try_from(page.max(1)).unwrap_or(1);
    model.side_top = match motion {
        Motion::By(by) => model.side_top.saturating_add_signed(by),
        Motion::Pages(pages) => model.side_top.saturating_add_signed(pages * page),
        Motion::Top => 0,
        Motion::Bottom => usize::MAX,
    };
}
