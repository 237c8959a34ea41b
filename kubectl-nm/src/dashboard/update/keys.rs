//! The keys of the two views.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::dashboard::message::Effect;
use crate::dashboard::model::dialog::Dialog;
use crate::dashboard::model::field::Field;
use crate::dashboard::model::filter::Filter;
use crate::dashboard::model::listing::{Row, Sort};
use crate::dashboard::model::{Model, OpenNode, Side};
use crate::dashboard::update::dialogs;
use crate::dashboard::update::motion::{motion, travel};

/// Handles a key while no dialog is open and no filter is being typed.
pub(super) fn press(model: &mut Model, key: KeyEvent) -> Vec<Effect> {
    if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
        return Vec::new();
    }
    if let Some(motion) = motion(key.code) {
        travel(model, motion);
        return Vec::new();
    }
    match key.code {
        KeyCode::Char('q') => return vec![Effect::Quit],
        KeyCode::Enter => return enter(model),
        KeyCode::Esc => return leave(model),
        KeyCode::Char('p') => return pause(model),
        KeyCode::Char('r') => {
            model.notify(String::from("reconnecting"));
            model.health.renew(model.paused.unwrap_or(model.now));
            return vec![Effect::Reconnect];
        }
        KeyCode::Char('c') => return copy(model),
        KeyCode::Char('/') => {
            model.typing = Some((Field::new(model.filter().text()), model.filter().clone()));
        }
        KeyCode::Char('s') => sort_by_next(model),
        KeyCode::Char('S') => match &mut model.open {
            Some(open) => open.pods.rows.reverse(),
            None => model.fleet.rows.reverse(),
        },
        KeyCode::Char('f') => match &mut model.open {
            Some(open) => open.pods.rows.toggle_blocked_only(),
            None => model.fleet.rows.toggle_blocked_only(),
        },
        KeyCode::Char(' ') => mark(model),
        KeyCode::Char('e') if model.open.is_none() => {
            model.notify(String::from("press Enter to open a node and see its events"));
        }
        KeyCode::Char('e') => toggle_side(model, Side::Events),
        KeyCode::Char('y') => toggle_side(model, Side::Document),
        KeyCode::Tab | KeyCode::BackTab => {
            model.side_has_focus = model.side.is_some() && !model.side_has_focus;
        }
        KeyCode::Char('n') => dialogs::open_start(model),
        KeyCode::Char('x') => dialogs::open_stop(model),
        KeyCode::Char('?') => model.dialog = Some(Dialog::Help(0)),
        _ => {}
    }
    Vec::new()
}

pub(super) fn enter(model: &mut Model) -> Vec<Effect> {
    let Some(row) = model.fleet.rows.selected().filter(|_| model.open.is_none()) else { return Vec::new() };
    let node = row.node.clone();
    model.open = Some(OpenNode::new(&node));
    // The filter being typed is the fleet's; it stays as it is.
    model.typing = None;
    close_side(model);
    vec![Effect::Open(node)]
}

/// Closes what was opened last.
fn leave(model: &mut Model) -> Vec<Effect> {
    if model.side.is_some() {
        close_side(model);
    } else if !model.filter().is_empty() || model.blocked_only() {
        if model.blocked_only() {
            match &mut model.open {
                Some(open) => open.pods.rows.toggle_blocked_only(),
                None => model.fleet.rows.toggle_blocked_only(),
            }
        }
        model.filter_by(Filter::default());
    } else if model.open.take().is_some() {
        model.health.close();
        return vec![Effect::Close];
    } else {
        model.fleet.marked.clear();
    }
    Vec::new()
}

fn pause(model: &mut Model) -> Vec<Effect> {
    if let Some(since) = model.paused.take() {
        model.fleet.resume();
        // Changes were dropped while paused: the view is that old until the watches have listed everything again.
        model.health.renew(since);
        return vec![Effect::Reconnect];
    }
    model.paused = Some(model.now);
    model.fleet.pause();
    Vec::new()
}

fn copy(model: &mut Model) -> Vec<Effect> {
    let Some(text) = model.copy_text() else { return Vec::new() };
    model.notify(format!("copied: {text}"));
    vec![Effect::Copy(text)]
}

fn sort_by_next(model: &mut Model) {
    let next = model.sorting().0.next();
    match &mut model.open {
        // Pods have no progress of their own.
        Some(open) => open.pods.rows.sort_by(if next == Sort::Progress { next.next() } else { next }),
        None => model.fleet.rows.sort_by(next),
    }
}

fn mark(model: &mut Model) {
    let Some(row) = model.fleet.rows.selected().filter(|_| model.open.is_none()) else { return };
    let key = row.key().to_owned();
    if !model.fleet.marked.remove(&key) {
        model.fleet.marked.insert(key);
    }
    model.fleet.rows.step(1);
}

fn toggle_side(model: &mut Model, side: Side) {
    if model.side == Some(side) {
        close_side(model);
    } else {
        model.side = Some(side);
        model.side_top = 0;
    }
}

fn close_side(model: &mut Model) {
    model.side = None;
    model.side_has_focus = false;
    model.side_top = 0;
}
