//! The keys of the two views.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::dashboard::message::Effect;
use crate::dashboard::model::dialog::Dialog;
use crate::dashboard::model::field::Field;
use crate::dashboard::model::filter::Filter;
use crate::dashboard::model::listing::{Arrangement, Row, Rows, Sort};
use crate::dashboard::model::{Model, OpenNode};
use crate::dashboard::update::dialogs;
use crate::dashboard::update::motion::{Motion, travel};

/// Handles a key while no dialog is open and no filter is being typed.
pub(super) fn press(model: &mut Model, key: KeyEvent) -> Option<Effect> {
    if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
        return None;
    }
    if let Some(motion) = Motion::of_key(key.code) {
        travel(model, motion);
        return None;
    }
    match key.code {
        KeyCode::Char('q') => return Some(Effect::Quit),
        KeyCode::Enter => return enter(model),
        KeyCode::Esc => return leave(model),
        KeyCode::Char('r') => {
            model.notify(String::from("reconnecting"));
            model.health.renew(model.now);
            return Some(Effect::Reconnect);
        }
        KeyCode::Char('c') => {
            let text = model.copy_text()?;
            model.notify(format!("copied: {text}"));
            return Some(Effect::Copy(text));
        }
        KeyCode::Char('/') => {
            let filter = model.arrangement().filter.clone();
            model.typing = Some((Field::new(filter.text()), filter));
        }
        KeyCode::Char('s') => {
            let next = model.arrangement().sort.next();
            // Pods have no progress of their own.
            let skips = model.open.is_some() && next == Sort::Progress;
            model.rearrange(|view| view.sort = if skips { next.next() } else { next });
        }
        KeyCode::Char('f') => model.rearrange(|view| view.blocked_only = !view.blocked_only),
        KeyCode::Char(' ') => mark(model),
        KeyCode::Char('e') if model.open.is_none() => {
            model.notify(String::from("press Enter to open a node and see its events"));
        }
        KeyCode::Char('e') => show_events(model, !model.shows_events),
        KeyCode::Tab | KeyCode::BackTab => {
            model.events_have_focus = model.shows_events && !model.events_have_focus;
        }
        KeyCode::Char('n') => dialogs::open_start(model),
        KeyCode::Char('x') => dialogs::open_stop(model),
        KeyCode::Char('?') => model.dialog = Some(Dialog::Help(0)),
        _ => {}
    }
    None
}

fn enter(model: &mut Model) -> Option<Effect> {
    let row = model.fleet.rows.selected().filter(|_| model.open.is_none())?;
    let node = row.node.clone();
    model.open = Some(OpenNode::new(&node));
    // The filter being typed is the fleet's; it stays as it is.
    model.typing = None;
    show_events(model, false);
    Some(Effect::Open(node))
}

fn leave(model: &mut Model) -> Option<Effect> {
    let Arrangement { filter, blocked_only, .. } = model.arrangement();
    if model.shows_events {
        show_events(model, false);
    } else if !filter.is_empty() || *blocked_only {
        model.rearrange(|view| (view.filter, view.blocked_only) = (Filter::default(), false));
    } else if model.open.take().is_some() {
        model.health.close();
        return Some(Effect::Close);
    } else {
        model.fleet.marked.clear();
    }
    None
}

fn mark(model: &mut Model) {
    let Some(row) = model.fleet.rows.selected().filter(|_| model.open.is_none()) else { return };
    let key = row.key().to_owned();
    if !model.fleet.marked.remove(&key) {
        model.fleet.marked.insert(key);
    }
    model.fleet.rows.select(model.fleet.rows.at() + 1);
}

fn show_events(model: &mut Model, shown: bool) {
    (model.shows_events, model.events_have_focus, model.events_top) = (shown, false, 0);
}
