//! Breaks long lines, so that nothing of them is cut.

use ratatui::text::Span;

/// The text in lines of that many columns at most, broken between words where that is possible. Lines after the first begin
/// with as many blanks as the first one.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    // A string has no more columns than bytes, and counting bytes is cheap.
    if text.len() <= width || columns(text) <= width {
        return vec![text.to_owned()];
    }
    let width = width.max(1);
    let indent = text.len() - text.trim_start_matches(' ').len();
    let indent = if indent * 2 > width { 0 } else { indent };
    let mut lines: Vec<String> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let margin = if lines.is_empty() { 0 } else { indent };
        let fits = fitting(rest, width - margin);
        // A break inside of the indentation would make a blank line.
        let begin = if lines.is_empty() { indent } else { 0 };
        let at = if fits == rest.len() || rest[fits..].starts_with(' ') {
            fits
        } else {
            rest[..fits].rfind(' ').filter(|at| *at > begin).unwrap_or(fits)
        };
        lines.push(format!("{}{}", " ".repeat(margin), &rest[..at]).trim_end().to_owned());
        rest = rest[at..].trim_start_matches(' ');
    }
    lines
}

/// The same in so many lines at most. What does not fit is in the last one, whose end is cut where it is drawn.
pub(crate) fn wrap_to(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut lines = wrap(text, width);
    if lines.len() > most && most > 0 {
        let rest = lines.split_off(most - 1).join(" ");
        lines.push(rest);
    }
    lines
}

/// How many bytes of the text fit in so many columns; at least one character.
fn fitting(text: &str, width: usize) -> usize {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += if c.is_ascii() { 1 } else { columns(c.encode_utf8(&mut [0; 4])) };
        if used > width && at > 0 {
            return at;
        }
    }
    text.len()
}

fn columns(text: &str) -> usize {
    Span::raw(text).width()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words_and_words_that_are_too_long_anywhere() {
        for (text, width, lines) in [
            ("", 4, &[""][..]),
            ("abcd", 4, &["abcd"]),
            ("ab cd ef", 5, &["ab cd", "ef"]),
            ("ab cd ef", 4, &["ab", "cd", "ef"]),
            ("abcdefgh i", 3, &["abc", "def", "gh", "i"]),
            ("  key: a long value", 12, &["  key: a", "  long value"]),
            ("        deep", 6, &["", "deep"]),
            ("日本語 日本", 6, &["日本語", "日本"]),
            ("日本語", 1, &["日", "本", "語"]),
        ] {
            assert_eq!(wrap(text, width), lines, "{text} {width}");
        }
    }
}
