//! The names of keys, as the help shows them: `q`, `Space`, `PgDn`, `Ctrl-C`.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

const NAMED: [(KeyCode, &str); 15] = [
    (KeyCode::Char(' '), "Space"),
    (KeyCode::Down, "Down"),
    (KeyCode::Up, "Up"),
    (KeyCode::Left, "Left"),
    (KeyCode::Right, "Right"),
    (KeyCode::PageDown, "PgDn"),
    (KeyCode::PageUp, "PgUp"),
    (KeyCode::Home, "Home"),
    (KeyCode::End, "End"),
    (KeyCode::Enter, "Enter"),
    (KeyCode::Esc, "Esc"),
    (KeyCode::Tab, "Tab"),
    (KeyCode::Backspace, "Backspace"),
    (KeyCode::Delete, "Delete"),
    (KeyCode::Insert, "Insert"),
];

/// The name of the key that was pressed; none for keys that cannot have an action.
pub(crate) fn key_name(key: KeyEvent) -> Option<String> {
    let named = NAMED.iter().find(|(code, _)| *code == key.code).map(|(_, name)| (*name).to_owned());
    let name = named.or_else(|| match key.code {
        // Tab the other way round does the same.
        KeyCode::BackTab => Some(String::from("Tab")),
        KeyCode::F(number) => Some(format!("F{number}")),
        KeyCode::Char(c) if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {
            Some(c.to_ascii_uppercase().to_string())
        }
        KeyCode::Char(c) => Some(c.to_string()),
        _ => None,
    })?;
    let control = if key.modifiers.contains(KeyModifiers::CONTROL) { "Ctrl-" } else { "" };
    let alt = if key.modifiers.contains(KeyModifiers::ALT) { "Alt-" } else { "" };
    Some(format!("{control}{alt}{name}"))
}

/// Whether a key that can be pressed has this name.
pub(crate) fn is_key_name(name: &str) -> bool {
    let (plain, is_modified) = [("Ctrl-Alt-", true), ("Ctrl-", true), ("Alt-", true)]
        .iter()
        .find_map(|(prefix, is)| Some((name.strip_prefix(prefix)?, *is)))
        .unwrap_or((name, false));
    let mut characters = plain.chars();
    let is_character = matches!((characters.next(), characters.next()), (Some(c), None)
        if !c.is_control() && c != ' ' && (!is_modified || !c.is_lowercase()));
    let is_function = plain.strip_prefix('F').and_then(|number| number.parse().ok());
    is_character
        || is_function.is_some_and(|number: u8| (1..=12).contains(&number))
        || NAMED.iter().any(|(_, known)| *known == plain)
}

/// The name of the key that a terminal sends instead, if it cannot distinguish the two.
pub(crate) fn sent_instead(name: &str) -> Option<String> {
    let (alt, letter) = match name.strip_prefix("Ctrl-Alt-") {
        Some(letter) => ("Alt-", letter),
        None => ("", name.strip_prefix("Ctrl-")?),
    };
    let same = [("I", "Tab"), ("M", "Enter"), ("[", "Esc")];
    let (_, key) = same.iter().find(|(same, _)| *same == letter)?;
    Some(format!("{alt}{key}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_key_has_are_recognised() {
        for name in ["q", "Q", "?", "é", "Space", "F12", "Ctrl-G", "Alt-F5", "Ctrl-Alt-X", "PgDn"] {
            assert!(is_key_name(name), "{name}");
        }
        for name in ["", " ", "qq", "F0", "F13", "Hyper-X", "Ctrl-", "ctrl-G", "Ctrl-g", "space"] {
            assert!(!is_key_name(name), "{name}");
        }
    }

    #[test]
    fn keys_have_the_names_of_the_help() {
        for (code, modifiers, name) in [
            (KeyCode::Char('q'), KeyModifiers::NONE, "q"),
            (KeyCode::Char('G'), KeyModifiers::SHIFT, "G"),
            (KeyCode::Char(' '), KeyModifiers::NONE, "Space"),
            (KeyCode::Char('c'), KeyModifiers::CONTROL, "Ctrl-C"),
            (KeyCode::Char('b'), KeyModifiers::ALT, "Alt-B"),
            (KeyCode::BackTab, KeyModifiers::SHIFT, "Tab"),
            (KeyCode::F(5), KeyModifiers::NONE, "F5"),
        ] {
            assert_eq!(key_name(KeyEvent::new(code, modifiers)).as_deref(), Some(name));
        }
    }
}
