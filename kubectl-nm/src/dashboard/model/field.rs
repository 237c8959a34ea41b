//! A line that is being typed, with a cursor in it.

use ratatui::text::Span;

/// A line that is being typed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Field {
    text: String,
    /// Where the cursor is, in bytes: always between two characters, or at an end.
    at: usize,
}

impl Field {
    /// With this in it, and the cursor at its end.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { at: text.len(), text }
    }

    /// What it says.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Adds typed or pasted text; line breaks become spaces, other controls are dropped.
    pub(crate) fn add(&mut self, text: &str) {
        // Terminals send pasted line breaks as they send Enter.
        let text = text.replace("\r\n", "\n");
        let text = text.chars().map(|c| if matches!(c, '\n' | '\r' | '\t') { ' ' } else { c });
        for c in text.filter(|c| !c.is_control()) {
            self.text.insert(self.at, c);
            self.at += c.len_utf8();
        }
    }

    /// Takes the character before the cursor back.
    pub(crate) fn back(&mut self) {
        self.cut(self.left_of(), self.at);
    }

    /// Takes the character after the cursor away.
    pub(crate) fn delete(&mut self) {
        self.cut(self.at, self.right_of());
    }

    /// Takes the word before the cursor back.
    pub(crate) fn back_word(&mut self) {
        self.cut(self.word_before(), self.at);
    }

    /// Takes the word after the cursor away.
    pub(crate) fn delete_word(&mut self) {
        self.cut(self.at, self.word_after());
    }

    /// Takes everything before the cursor back.
    pub(crate) fn back_all(&mut self) {
        self.cut(0, self.at);
    }

    /// Takes everything after the cursor away.
    pub(crate) fn delete_all(&mut self) {
        self.cut(self.at, self.text.len());
    }

    /// Goes one character to the left.
    pub(crate) fn left(&mut self) {
        self.at = self.left_of();
    }

    /// Goes one character to the right.
    pub(crate) fn right(&mut self) {
        self.at = self.right_of();
    }

    /// Goes to the beginning of the word.
    pub(crate) fn left_word(&mut self) {
        self.at = self.word_before();
    }

    /// Goes to the end of the word.
    pub(crate) fn right_word(&mut self) {
        self.at = self.word_after();
    }

    /// Goes to the beginning.
    pub(crate) fn home(&mut self) {
        self.at = 0;
    }

    /// Goes to the end.
    pub(crate) fn end(&mut self) {
        self.at = self.text.len();
    }

    /// The text with the caret at the cursor, from so far on that the caret is among the first `width` columns. `more`
    /// stands for what is left out before.
    pub(crate) fn shown(&self, caret: &str, more: &str, width: usize) -> String {
        let (before, after) = self.text.split_at(self.at);
        let columns = |text: &str| Span::raw(text).width();
        // Some of what follows stays in view.
        let room = width.saturating_sub(columns(caret) + columns(after).min(width / 4));
        if columns(before) <= room {
            return format!("{before}{caret}{after}");
        }
        let mut first = before.len();
        let mut left = room.saturating_sub(columns(more));
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
    fn fields_take_text_and_give_it_back() {
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
