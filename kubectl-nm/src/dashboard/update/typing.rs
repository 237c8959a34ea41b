//! Keys in a line that is being typed.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::dashboard::model::field::Field;

/// Changes a line that is being typed, by the keys that shells have for it.
pub(super) fn edit(field: &mut Field, key: KeyEvent) {
    let controlled = key.modifiers.contains(KeyModifiers::CONTROL);
    let alt = key.modifiers.contains(KeyModifiers::ALT);
    match key.code {
        // Both together is how some terminals send characters that are typed with AltGr.
        KeyCode::Char(c) if controlled == alt => field.add(c.encode_utf8(&mut [0; 4])),
        KeyCode::Char(c) if controlled => with_control(field, c),
        KeyCode::Char('b') => field.left_word(),
        KeyCode::Char('f') => field.right_word(),
        KeyCode::Char('d') => field.delete_word(),
        KeyCode::Backspace if alt || controlled => field.back_word(),
        KeyCode::Backspace => field.back(),
        KeyCode::Delete => field.delete(),
        KeyCode::Left if alt || controlled => field.left_word(),
        KeyCode::Left => field.left(),
        KeyCode::Right if alt || controlled => field.right_word(),
        KeyCode::Right => field.right(),
        KeyCode::Home => field.home(),
        KeyCode::End => field.end(),
        _ => {}
    }
}

fn with_control(field: &mut Field, c: char) {
    match c {
        'a' => field.home(),
        'b' => field.left(),
        'd' => field.delete(),
        'e' => field.end(),
        'f' => field.right(),
        'h' => field.back(),
        'k' => field.delete_all(),
        'u' => field.back_all(),
        'w' => field.back_word(),
        _ => {}
    }
}
