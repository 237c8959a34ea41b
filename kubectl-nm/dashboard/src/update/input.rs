//! Input from the terminal. It goes to the dialog if one is open, else to the filter being typed, else to the view.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::message::Effect;
use crate::model::Model;
use crate::model::lists::filter::Filter;
use crate::update::{dialogs, keys, output};

pub(super) fn update(model: &mut Model, event: Event) -> Option<Effect> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => return press(model, key),
        Event::Paste(text) => return paste(model, &text),
        Event::Resize(width, height) => model.size = (width, height),
        _ => {}
    }
    None
}

fn press(model: &mut Model, key: KeyEvent) -> Option<Effect> {
    model.last_key = model.now;
    model.notice.take_if(|notice| notice.is_bad);
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        match key.code {
            KeyCode::Char('c') => return Some(Effect::Quit),
            KeyCode::Char('z') => return Some(Effect::Suspend),
            _ => {}
        }
    }
    if model.output.is_some() {
        return output::press(model, key);
    }
    if model.dialog.is_some() {
        return dialogs::press(model, key);
    }
    let Some((mut field, before)) = model.typing.take() else { return keys::press(model, key) };
    match key.code {
        KeyCode::Enter => keys::check_filter(model),
        KeyCode::Esc => model.rearrange(|view| view.filter = before),
        _ => {
            field.press(key);
            model.rearrange(|view| view.filter = Filter::new(field.text()));
            model.typing = Some((field, before));
        }
    }
    None
}

fn paste(model: &mut Model, text: &str) -> Option<Effect> {
    if let Some((field, _)) = &mut model.typing {
        field.add(text);
        let filter = Filter::new(field.text());
        model.rearrange(|view| view.filter = filter);
        None
    } else {
        dialogs::paste(model, text)
    }
}
