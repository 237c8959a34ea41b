//! The mouse, and the size of the window.

use crossterm::event::{Event, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};

use crate::dashboard::message::Effect;
use crate::dashboard::message::Message;
use crate::dashboard::model::Model;
use crate::dashboard::model::Options;
use crate::dashboard::model::dialog::Dialog;
use crate::dashboard::model::listing::Rows;
use crate::dashboard::tests::painted::text;
use crate::dashboard::tests::scenes::{fleet, node, options, send, type_in};

fn mouse(model: &mut Model, kind: MouseEventKind, (column, row): (u16, u16)) -> Vec<Effect> {
    send(model, Message::Input(Event::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE })))
}

/// Clicks on this text, wherever it is on the screen.
fn click(model: &mut Model, on: &str) -> Vec<Effect> {
    let text = text(model);
    let row = text.lines().position(|line| line.contains(on)).unwrap();
    let line = text.lines().nth(row).unwrap();
    let column = line[..line.find(on).unwrap()].chars().count();
    let at = (u16::try_from(column).unwrap(), u16::try_from(row).unwrap());
    mouse(model, MouseEventKind::Down(MouseButton::Left), at)
}

/// Clicks on the selected row.
pub(super) fn click_selected(model: &mut Model) -> Vec<Effect> {
    let node = model.fleet.rows.selected().unwrap().node.clone();
    click(model, &node)
}

#[test]
fn a_click_selects_a_row_and_a_second_click_opens_it() {
    for (width, height) in [(120, 30), (45, 20)] {
        let mut model = fleet(Options { size: (width, height), ..options() });
        assert_eq!(click(&mut model, "worker-33"), []);
        assert_eq!(model.fleet.rows.selected().unwrap().node, "worker-33");
        assert_eq!(click(&mut model, "worker-33"), [Effect::Open("worker-33".into())]);
        let mut model = node(Options { size: (width, height), ..options() });
        assert_eq!(click(&mut model, "pay/ledger-1"), []);
        assert_eq!(model.open.as_ref().unwrap().pods.rows.selected().unwrap().id.name, "ledger-1");
    }
}

#[test]
fn clicks_outside_the_rows_do_nothing() {
    let mut model = fleet(options());
    for on in ["nm watch", "NODE", "[q]"] {
        assert_eq!(click(&mut model, on), []);
    }
    assert_eq!(mouse(&mut model, MouseEventKind::Down(MouseButton::Left), (5, 20)), []);
    assert_eq!(model.fleet.rows.at(), 0);
    type_in(&mut model, "?");
    assert_eq!(mouse(&mut model, MouseEventKind::Down(MouseButton::Left), (5, 4)), []);
    assert!(model.dialog.is_some());
}

#[test]
fn the_wheel_scrolls_what_is_under_it() {
    let mut model = node(options());
    mouse(&mut model, MouseEventKind::ScrollDown, (5, 9));
    assert_eq!(model.open.as_ref().unwrap().pods.rows.at(), 3);
    mouse(&mut model, MouseEventKind::ScrollUp, (5, 9));
    type_in(&mut model, "y");
    mouse(&mut model, MouseEventKind::ScrollDown, (110, 9));
    assert_eq!((model.side_top, model.open.as_ref().unwrap().pods.rows.at()), (3, 0));
    mouse(&mut model, MouseEventKind::Down(MouseButton::Left), (110, 9));
    assert!(model.side_has_focus);
}

#[test]
fn the_wheel_scrolls_the_help_and_no_other_dialog() {
    let mut model = fleet(options());
    type_in(&mut model, "?");
    mouse(&mut model, MouseEventKind::ScrollDown, (5, 9));
    assert_eq!(model.dialog, Some(Dialog::Help(3)));
    type_in(&mut model, "qx");
    mouse(&mut model, MouseEventKind::ScrollDown, (5, 9));
    assert_eq!(model.fleet.rows.at(), 0);
}

#[test]
fn a_resize_keeps_the_selection_visible() {
    let mut model = fleet(options());
    type_in(&mut model, "G");
    for size in [(120, 12), (45, 12), (200, 50), (80, 9)] {
        model.size = (0, 0);
        send(&mut model, Message::Input(Event::Resize(size.0, size.1)));
        assert_eq!(model.size, size);
        assert!(text(&model).contains("worker-03"), "{size:?}\n{}", text(&model));
    }
}

#[test]
fn every_size_can_be_drawn() {
    for make in [fleet as fn(Options) -> Model, node] {
        for keys in ["", "e", "y", "?", "x", "n", "  x", "/a"] {
            let mut model = make(options());
            type_in(&mut model, keys);
            for width in [1, 2, 5, 39, 40, 49, 50, 79, 119, 120, 300] {
                for height in [1, 2, 7, 8, 9, 11, 13, 20, 60] {
                    send(&mut model, Message::Input(Event::Resize(width, height)));
                    text(&model);
                }
            }
        }
    }
}
