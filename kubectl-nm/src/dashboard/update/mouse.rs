//! The mouse: the wheel scrolls, a click selects a row, a second click opens it.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Position;

use crate::dashboard::layout::ScreenLayout;
use crate::dashboard::message::Effect;
use crate::dashboard::model::Model;
use crate::dashboard::model::dialog::Dialog;
use crate::dashboard::update::keys::enter;
use crate::dashboard::update::motion::{Motion, scroll_side};

/// How many rows a notch of the wheel scrolls.
const NOTCH: isize = 3;

pub(super) fn update(model: &mut Model, mouse: MouseEvent) -> Vec<Effect> {
    match mouse.kind {
        MouseEventKind::ScrollDown => wheel(model, NOTCH, mouse),
        MouseEventKind::ScrollUp => wheel(model, -NOTCH, mouse),
        MouseEventKind::Down(MouseButton::Left) if model.dialog.is_none() => return click(model, mouse),
        _ => {}
    }
    Vec::new()
}

fn wheel(model: &mut Model, by: isize, mouse: MouseEvent) {
    let over_side = ScreenLayout::whole(model).side.contains(Position::new(mouse.column, mouse.row));
    match &mut model.dialog {
        Some(Dialog::Help(top)) => *top = top.saturating_add_signed(by),
        Some(_) => {}
        None if over_side => scroll_side(model, Motion::By(by), 1),
        None => match &mut model.open {
            Some(open) => open.pods.rows.step(by),
            None => model.fleet.rows.step(by),
        },
    }
}

fn click(model: &mut Model, mouse: MouseEvent) -> Vec<Effect> {
    let (screen, at) = (ScreenLayout::whole(model), Position::new(mouse.column, mouse.row));
    if screen.side.contains(at) {
        model.side_has_focus = true;
        return Vec::new();
    }
    if !screen.body.contains(at) {
        return Vec::new();
    }
    model.side_has_focus = false;
    let row = usize::from((at.y - screen.body.y) / screen.row_height());
    if let Some(open) = &mut model.open {
        let index = open.pods.rows.window(screen.rows()).start + row;
        if index < open.pods.rows.len() {
            open.pods.rows.select(index);
        }
        return Vec::new();
    }
    let rows = &mut model.fleet.rows;
    let index = rows.window(screen.rows()).start + row;
    if index >= rows.len() {
        return Vec::new();
    }
    if index == rows.at() {
        return enter(model);
    }
    rows.select(index);
    Vec::new()
}
