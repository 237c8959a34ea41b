//! The keys of the two views.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::dashboard::message::Effect;
use crate::dashboard::model::dialog::Dialog;
use crate::dashboard::model::field::Field;
use crate::dashboard::model::filter::Filter;
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
            let filter = model.rows().filter().clone();
            model.typing = Some((Field::new(filter.text()), filter));
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
    Some(Effect::Open(node))
}

fn leave(model: &mut Model) -> Option<Effect> {
    if !model.rows().filter().is_empty() {
        model.rows_mut().filter_by(Filter::default());
    } else if model.open.take().is_some() {
        model.health.close();
        return Some(Effect::Close);
    }
    None
}
