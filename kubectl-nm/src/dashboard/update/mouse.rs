//! The mouse: the wheel scrolls, a click selects a row, a second click opens it.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Position;

use crate::dashboard::layout::ScreenLayout;
use crate::dashboard::message::Effect;
use crate::dashboard::model::Model;
use crate::dashboard::model::dialog::Dialog;
use crate::dashboard::update::keys::enter;

/// How many rows a notch of the wheel scrolls.
const NOTCH: isize = 3;

pub(super) fn update(model: &mut Model, mouse: MouseEvent) -> Option<Effect> {
    let at = Position::new(mouse.column, mouse.row);
    match mouse.kind {
        MouseEventKind::ScrollDown => scroll(model, NOTCH, at),
        MouseEventKind::ScrollUp => scroll(model, -NOTCH, at),
        MouseEventKind::Down(MouseButton::Left) if model.dialog.is_none() => return click(model, at),
        _ => {}
    }
    None
}

fn scroll(model: &mut Model, by: isize, at: Position) {
    let over_side = ScreenLayout::whole(model).side.contains(at);
    match &mut model.dialog {
        Some(Dialog::Help(top)) => *top = top.saturating_add_signed(by),
        Some(_) => {}
        None if over_side => model.side_top = model.side_top.saturating_add_signed(by),
        None => {
            let rows = model.rows_mut();
            rows.select(rows.at().saturating_add_signed(by));
        }
    }
}

fn click(model: &mut Model, at: Position) -> Option<Effect> {
    let screen = ScreenLayout::whole(model);
    let (on_side, on_rows) = (screen.side.contains(at), screen.body.contains(at));
    if on_side || on_rows {
        model.side_has_focus = on_side;
    }
    if !on_rows {
        return None;
    }
    let index =
        model.rows().window(screen.rows()).start + usize::from((at.y - screen.body.y) / screen.row_height());
    if index >= model.rows().len() {
        return None;
    }
    if model.open.is_none() && index == model.rows().at() {
        return enter(model);
    }
    model.rows_mut().select(index);
    None
}
