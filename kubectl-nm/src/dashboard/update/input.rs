//! Input from the terminal. It goes to the dialog if one is open, else to the filter being typed, else to the view.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::dashboard::message::Effect;
use crate::dashboard::model::Model;
use crate::dashboard::model::filter::Filter;
use crate::dashboard::update::dialogs;
use crate::dashboard::update::keys;
use crate::dashboard::update::mouse;

pub(super) fn update(model: &mut Model, event: Event) -> Vec<Effect> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => press(model, key),
        Event::Mouse(mouse) => mouse::update(model, mouse),
        Event::Paste(text) => {
            paste(model, &text);
            Vec::new()
        }
        Event::Resize(width, height) => {
            model.size = (width, height);
            Vec::new()
        }
        _ => Vec::new(),
    }
}

fn press(model: &mut Model, key: KeyEvent) -> Vec<Effect> {
    model.notice.take_if(|notice| notice.is_bad);
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        match key.code {
            KeyCode::Char('c') => return vec![Effect::Quit],
            KeyCode::Char('z') => return vec![Effect::Suspend],
            _ => {}
        }
    }
    if model.dialog.is_some() {
        return dialogs::press(model, key);
    }
    if let Some((mut field, before)) = model.typing.take() {
        match key.code {
            KeyCode::Enter => {}
            KeyCode::Esc => model.filter_by(before),
            _ => {
                field.press(key);
                model.filter_by(Filter::new(field.text()));
                model.typing = Some((field, before));
            }
        }
        return Vec::new();
    }
    keys::press(model, key)
}

fn paste(model: &mut Model, text: &str) {
    if let Some((field, _)) = &mut model.typing {
        field.add(text);
        let filter = Filter::new(field.text());
        model.filter_by(filter);
    } else {
        dialogs::paste(model, text);
    }
}
