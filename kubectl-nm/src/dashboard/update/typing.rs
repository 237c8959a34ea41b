//! Keys in a line that is being typed.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::dashboard::model::dialog::Field;

/// Changes a line that is being typed.
pub(super) fn edit(field: &mut Field, key: KeyEvent) {
    let controlled = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('u') if controlled => field.clear(),
        KeyCode::Char('w') if controlled => field.back_word(),
        KeyCode::Char(c) if !controlled => field.add(c.encode_utf8(&mut [0; 4])),
        KeyCode::Backspace => field.back(),
        _ => {}
    }
}
