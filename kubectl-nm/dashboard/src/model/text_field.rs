//! A line of text that is being edited, with a cursor.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::text::Span;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Field {
    text: String,
    /// The byte offset of the cursor, always on a character boundary.
    at: usize,
    /// Whether the text is a suggestion, which typed text replaces.
    is_suggestion: bool,
}

impl Field {
    /// A field with this text, and the cursor at its end.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { at: text.len(), text, is_suggestion: false }
    }

    /// A field with a text that typing replaces, like a selection, until it is edited. A separator continues it.
    pub(crate) fn suggested(text: impl Into<String>) -> Self {
        Self { is_suggestion: true, ..Self::new(text) }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.text.len()
    }

    /// Inserts typed or pasted text at the cursor. Line breaks become spaces; other control characters are dropped.
    pub(crate) fn add(&mut self, text: &str) {
        let continues = text.starts_with([' ', ',', '\n', '\r', '\t']);
        if std::mem::take(&mut self.is_suggestion) && !continues {
            self.cut(0, self.text.len());
        }
        // Terminals send a pasted line break as they send Enter.
        let text = text.replace("\r\n", "\n");
        let text = text.chars().map(|c| if matches!(c, '\n' | '\r' | '\t') { ' ' } else { c });
        for c in text.filter(|c| !c.is_control()) {
            self.text.insert(self.at, c);
            self.at += c.len_utf8();
        }
    }

    pub(crate) fn press(&mut self, key: KeyEvent) {
        use KeyCode::{Backspace, Char, Delete, End, Home, Left, Right};
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        let (at, end) = (self.at, self.text.len());
        match (key.code, control, alt) {
            // Both together is how some terminals send characters typed with AltGr.
            (Char(c), false, false) | (Char(c), true, true) => self.add(c.encode_utf8(&mut [0; 4])),
            (Home, ..) | (Char('a'), true, _) => self.at = 0,
            (End, ..) | (Char('e'), true, _) => self.at = end,
            (Left, true, _) | (Left | Char('b'), _, true) => self.at = self.word_start(),
            (Left, ..) | (Char('b'), true, _) => self.at = self.left(),
            (Right, true, _) | (Right | Char('f'), _, true) => self.at = self.word_end(),
            (Right, ..) | (Char('f'), true, _) => self.at = self.right(),
            (Backspace | Char('w'), true, _) | (Backspace, _, true) => self.cut(self.word_start(), at),
            (Backspace, ..) | (Char('h'), true, _) => self.cut(self.left(), at),
            (Delete, ..) | (Char('d'), true, _) => self.cut(at, self.right()),
            (Char('d'), _, true) => self.cut(at, self.word_end()),
            (Char('k'), true, _) => self.cut(at, end),
            (Char('u'), true, _) => self.cut(0, at),
            _ => return,
        }
        self.is_suggestion = false;
    }

    /// The text with the caret at the cursor, scrolled so that the caret is among the first `width` columns. `more`
    /// stands for what is cut off at the left.
    pub(crate) fn shown(&self, caret: &str, more: &str, width: usize) -> String {
        let (before, after) = self.text.split_at(self.at);
        let columns = |text: &str| Span::raw(text).width();
        // Keep some of the text after the cursor in view.
        let space = width.saturating_sub(columns(caret) + columns(after).min(width / 4));
        if columns(before) <= space {
            return format!("{before}{caret}{after}");
        }
        let mut first = before.len();
        let mut left = space.saturating_sub(columns(more));
        for (at, c) in before.char_indices().rev() {
            let Some(rest) = left.checked_sub(columns(c.encode_utf8(&mut [0; 4]))) else { break };
            (left, first) = (rest, at);
        }
        format!("{more}{}{caret}{after}", &before[first..])
    }

    fn cut(&mut self, from: usize, to: usize) {
        self.text.replace_range(from..to, "");
        self.at = from;
    }

    fn left(&self) -> usize {
        self.text[..self.at].char_indices().next_back().map_or(0, |(at, _)| at)
    }

    fn right(&self) -> usize {
        self.text[self.at..].chars().next().map_or(self.at, |c| self.at + c.len_utf8())
    }

    fn word_start(&self) -> usize {
        let before = self.text[..self.at].trim_end();
        before.rfind(' ').map_or(0, |at| at + 1)
    }

    fn word_end(&self) -> usize {
        let after = &self.text[self.at..];
        let blanks = after.len() - after.trim_start().len();
        after[blanks..].find(' ').map_or(self.text.len(), |end| self.at + blanks + end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(field: &mut Field, code: KeyCode, modifiers: KeyModifiers) {
        field.press(KeyEvent::new(code, modifiers));
    }

    #[test]
    fn text_is_inserted_and_deleted_at_the_cursor() {
        let mut field = Field::default();
        field.add("new kernel\n6.12\x1b[31m");
        assert_eq!(field.text(), "new kernel 6.12[31m");
        press(&mut field, KeyCode::Char('w'), KeyModifiers::CONTROL);
        assert_eq!(field.text(), "new kernel ");
        press(&mut field, KeyCode::Backspace, KeyModifiers::NONE);
        press(&mut field, KeyCode::Backspace, KeyModifiers::ALT);
        assert_eq!(field.text(), "new ");
        press(&mut field, KeyCode::Char('u'), KeyModifiers::CONTROL);
        for (code, modifiers) in [
            (KeyCode::Backspace, KeyModifiers::NONE),
            (KeyCode::Backspace, KeyModifiers::CONTROL),
            (KeyCode::Delete, KeyModifiers::NONE),
            (KeyCode::Char('d'), KeyModifiers::ALT),
        ] {
            press(&mut field, code, modifiers);
            assert_eq!(field.text(), "");
        }
    }

    #[test]
    fn typed_text_replaces_a_suggestion_until_it_is_edited() {
        for (keys, expected) in [
            (&[KeyCode::Char('x'), KeyCode::Char('y')][..], "xy"),
            (&[KeyCode::Char(' '), KeyCode::Char('x')], "node-01 x"),
            (&[KeyCode::Backspace, KeyCode::Char('2')], "node-02"),
            (&[KeyCode::Home, KeyCode::Char('x')], "xnode-01"),
            (&[KeyCode::End, KeyCode::Char('x')], "node-01x"),
            (&[KeyCode::Tab], "node-01"),
        ] {
            let mut field = Field::suggested("node-01");
            for key in keys {
                press(&mut field, *key, KeyModifiers::NONE);
            }
            assert_eq!(field.text(), expected, "{keys:?}");
        }
        let mut pasted = Field::suggested("node-01");
        pasted.add("node-02");
        assert_eq!(pasted.text(), "node-02");
    }

    #[test]
    fn the_caret_is_always_in_view() {
        let mut field = Field::new("0123456789");
        for (width, shown) in [(20, "0123456789|"), (11, "0123456789|"), (6, "<6789|"), (2, "<|"), (0, "<|")]
        {
            assert_eq!(field.shown("|", "<", width), shown, "{width}");
        }
        for _ in 0..3 {
            press(&mut field, KeyCode::Left, KeyModifiers::NONE);
        }
        assert_eq!(field.shown("|", "<", 8), "<3456|789");
        press(&mut field, KeyCode::Home, KeyModifiers::NONE);
        assert_eq!(field.shown("|", "<", 8), "|0123456789");
        assert_eq!(Field::new("日本語").shown("|", "<", 6), "<本語|");
    }
}
