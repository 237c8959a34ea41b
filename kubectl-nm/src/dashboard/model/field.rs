//! A line of text that is being edited, with a cursor.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::text::Span;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Field {
    text: String,
    /// The byte offset of the cursor, always on a character boundary.
    at: usize,
}

impl Field {
    /// A field with this text, and the cursor at its end.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { at: text.len(), text }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Inserts typed or pasted text at the cursor. Line breaks become spaces; other control characters are dropped.
    pub(crate) fn add(&mut self, text: &str) {
        // Terminals send a pasted line break as they send Enter.
        let text = text.replace("\r\n", "\n");
        let text = text.chars().map(|c| if matches!(c, '\n' | '\r' | '\t') { ' ' } else { c });
        for c in text.filter(|c| !c.is_control()) {
            self.text.insert(self.at, c);
            self.at += c.len_utf8();
        }
    }

    /// Edits the text with the keys of a shell.
    pub(crate) fn press(&mut self, key: KeyEvent) {
        let controlled = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        match key.code {
            // Both together is how some terminals send characters typed with AltGr.
            KeyCode::Char(c) if controlled == alt => self.add(c.encode_utf8(&mut [0; 4])),
            KeyCode::Char(c) if controlled => self.press_control(c),
            KeyCode::Char('b') => self.left_word(),
            KeyCode::Char('f') => self.right_word(),
            KeyCode::Char('d') => self.delete_word(),
            KeyCode::Backspace if alt || controlled => self.back_word(),
            KeyCode::Backspace => self.back(),
            KeyCode::Delete => self.delete(),
            KeyCode::Left if alt || controlled => self.left_word(),
            KeyCode::Left => self.left(),
            KeyCode::Right if alt || controlled => self.right_word(),
            KeyCode::Right => self.right(),
            KeyCode::Home => self.home(),
            KeyCode::End => self.end(),
            _ => {}
        }
    }

    fn press_control(&mut self, c: char) {
        match c {
            'a' => self.home(),
            'b' => self.left(),
            'd' => self.delete(),
            'e' => self.end(),
            'f' => self.right(),
            'h' => self.back(),
            'k' => self.delete_all(),
            'u' => self.back_all(),
            'w' => self.back_word(),
            _ => {}
        }
    }

    /// Deletes the character before the cursor.
    fn back(&mut self) {
        self.cut(self.left_of(), self.at);
    }

    /// Deletes the character after the cursor.
    fn delete(&mut self) {
        self.cut(self.at, self.right_of());
    }

    /// Deletes the word before the cursor.
    fn back_word(&mut self) {
        self.cut(self.word_before(), self.at);
    }

    /// Deletes the word after the cursor.
    fn delete_word(&mut self) {
        self.cut(self.at, self.word_after());
    }

    /// Deletes everything before the cursor.
    fn back_all(&mut self) {
        self.cut(0, self.at);
    }

    /// Deletes everything after the cursor.
    fn delete_all(&mut self) {
        self.cut(self.at, self.text.len());
    }

    /// Moves the cursor one character to the left.
    fn left(&mut self) {
        self.at = self.left_of();
    }

    /// Moves the cursor one character to the right.
    fn right(&mut self) {
        self.at = self.right_of();
    }

    /// Moves the cursor to the beginning of the word.
    fn left_word(&mut self) {
        self.at = self.word_before();
    }

    /// Moves the cursor to the end of the word.
    fn right_word(&mut self) {
        self.at = self.word_after();
    }

    /// Moves the cursor to the beginning.
    fn home(&mut self) {
        self.at = 0;
    }

    /// Moves the cursor to the end.
    fn end(&mut self) {
        self.at = self.text.len();
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

    fn left_of(&self) -> usize {
        self.text[..self.at].char_indices().next_back().map_or(0, |(at, _)| at)
    }

    fn right_of(&self) -> usize {
        self.text[self.at..].chars().next().map_or(self.at, |c| self.at + c.len_utf8())
    }

    fn word_before(&self) -> usize {
        let before = self.text[..self.at].trim_end();
        before.rfind(' ').map_or(0, |at| at + 1)
    }

    fn word_after(&self) -> usize {
        let after = &self.text[self.at..];
        let blanks = after.len() - after.trim_start().len();
        after[blanks..].find(' ').map_or(self.text.len(), |end| self.at + blanks + end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_inserted_and_deleted_at_the_cursor() {
        let mut field = Field::default();
        field.add("new kernel\n6.12\x1b[31m");
        assert_eq!(field.text(), "new kernel 6.12[31m");
        field.back_word();
        assert_eq!(field.text(), "new kernel ");
        field.back();
        field.back_word();
        assert_eq!(field.text(), "new ");
        field.back_all();
        field.back();
        field.back_word();
        field.delete();
        field.delete_word();
        assert_eq!(field.text(), "");
    }

    #[test]
    fn the_caret_is_always_in_view() {
        let mut field = Field::new("0123456789");
        for (width, shown) in [(20, "0123456789|"), (11, "0123456789|"), (6, "<6789|"), (2, "<|"), (0, "<|")]
        {
            assert_eq!(field.shown("|", "<", width), shown, "{width}");
        }
        for _ in 0..3 {
            field.left();
        }
        assert_eq!(field.shown("|", "<", 8), "<3456|789");
        field.home();
        assert_eq!(field.shown("|", "<", 8), "|0123456789");
        assert_eq!(Field::new("日本語").shown("|", "<", 6), "<本語|");
    }
}
