//! Moving through rows and lines.

use crossterm::event::KeyEvent;
use jiff::SignedDuration;

use crate::config::action_table::Action;
use crate::config::key_map::KeyMap;
use crate::layout::ScreenLayout;
use crate::model::Model;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Motion {
    By(isize),
    Pages(isize),
    Top,
    Bottom,
}

impl Motion {
    pub(crate) fn of(action: Action) -> Option<Self> {
        Some(match action {
            Action::Down => Self::By(1),
            Action::Up => Self::By(-1),
            Action::PageDown => Self::Pages(1),
            Action::PageUp => Self::Pages(-1),
            Action::Top => Self::Top,
            Action::Bottom => Self::Bottom,
            _ => return None,
        })
    }

    pub(crate) fn of_key(keys: &KeyMap, key: KeyEvent) -> Option<Self> {
        Self::of(keys.action(key)?)
    }

    /// The line to which it leads, which may be past the end. A page has so many lines.
    pub(crate) fn target(self, line: usize, page: usize) -> usize {
        let page = isize::try_from(page.max(1)).unwrap_or(1);
        match self {
            Self::By(by) => line.saturating_add_signed(by),
            Self::Pages(pages) => line.saturating_add_signed(pages * page),
            Self::Top => 0,
            Self::Bottom => usize::MAX,
        }
    }
}

/// How long after the last key the selection returns to the first row, which needs attention most.
const RETURN_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// Returns to the first row once nobody has pressed a key for a while. A pane, a dialog and marks show that somebody is busy
/// with a row. In a replay, time passes faster or slower than for whoever looks at it.
pub(super) fn return_to_top(model: &mut Model) {
    let is_busy = model.dialog.is_some()
        || model.side.is_some()
        || model.output.is_some()
        || model.typing.is_some()
        || !model.marked().is_empty();
    let is_idle = model.now.duration_since(model.last_key) >= RETURN_AFTER;
    if is_idle && !is_busy && !model.options.is_replay() {
        model.rows_mut().go_to_top();
    }
}

pub(super) fn travel(model: &mut Model, motion: Motion) {
    let screen = ScreenLayout::whole(model);
    if let Some(side) = model.side.as_mut().filter(|side| side.has_focus) {
        side.top = motion.target(side.top, screen.side_rows());
        return;
    }
    let rows = model.rows_mut();
    match motion {
        Motion::Top => rows.go_to_top(),
        _ => rows.select(motion.target(rows.at(), screen.rows())),
    }
}
