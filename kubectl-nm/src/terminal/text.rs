//! Text for people: lines made of styled spans that can never carry a control character.
//!
//! Names, reasons and messages come from the API, where anyone who may create a pod may put an escape sequence. A
//! [`Line`] makes what it is given harmless as it is built, so that whatever is printed from one is safe, and the
//! only escape sequences that reach a terminal are the colours added in [`Line::painted`].

use std::fmt;

/// What a span of text means; the colour follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Nothing special.
    Plain,
    /// As wished.
    Good,
    /// Under way.
    Busy,
    /// Needs somebody's attention.
    Bad,
    /// Beside the point, such as a time.
    Dim,
}

impl Style {
    /// The terminal sequence that begins it, if any.
    fn sequence(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Good => Some("\x1b[32m"),
            Self::Busy => Some("\x1b[33m"),
            Self::Bad => Some("\x1b[31m"),
            Self::Dim => Some("\x1b[2m"),
        }
    }
}

/// One line of text without control characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line(Vec<(Style, String)>);

impl Line {
    /// A line of plain text.
    pub(crate) fn new(text: impl AsRef<str>) -> Self {
        Self::default().with(Style::Plain, text)
    }

    /// This line with more plain text at its end.
    pub(crate) fn and(self, text: impl AsRef<str>) -> Self {
        self.with(Style::Plain, text)
    }

    /// This line with more text at its end.
    pub(crate) fn with(mut self, style: Style, text: impl AsRef<str>) -> Self {
        self.0.push((style, harmless(text.as_ref())));
        self
    }

    /// This line with another at its end.
    pub(crate) fn join(mut self, rest: Self) -> Self {
        self.0.extend(rest.0);
        self
    }

    /// Its parts and what they mean, for those who draw.
    pub(crate) fn spans(&self) -> impl Iterator<Item = (Style, &str)> {
        self.0.iter().map(|(style, text)| (*style, text.as_str()))
    }

    /// The text with colours for a terminal.
    pub(crate) fn painted(&self) -> String {
        let mut painted = String::new();
        for (style, text) in &self.0 {
            match style.sequence() {
                Some(begin) if !text.trim().is_empty() => {
                    painted.push_str(begin);
                    painted.push_str(text);
                    painted.push_str("\x1b[0m");
                }
                _ => painted.push_str(text),
            }
        }
        painted
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(_, text)| f.write_str(text))
    }
}

/// The text on one line, with everything visible that a terminal would obey.
pub(crate) fn harmless(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.trim_end_matches(['\n', '\r']).chars() {
        match c {
            '\n' | '\t' => safe.push(' '),
            '\r' => {}
            // As kubectl writes them: ^[ for escape.
            '\0'..='\x1f' | '\x7f' => safe.extend(['^', char::from(c as u8 ^ 0x40)]),
            _ if misleads(c) => safe.extend(c.escape_unicode()),
            _ => safe.push(c),
        }
    }
    safe
}

/// A JSON or YAML document with everything escaped that a terminal would obey, which leaves its meaning as it was.
///
/// Serializers escape the ASCII control characters themselves; these are those they leave, which in JSON can only stand
/// inside quoted strings. YAML has strings without quotes, where `\uXXXX` means nothing: those have to be quoted before.
pub(crate) fn harmless_document(document: &str) -> String {
    let mut safe = String::with_capacity(document.len());
    for c in document.chars() {
        if is_escaped(c) {
            safe.extend(escaped(c));
        } else {
            safe.push(c);
        }
    }
    safe
}

/// Whether a document may not have the character as it is.
pub(crate) fn is_escaped(c: char) -> bool {
    c != '\n' && (c.is_control() || misleads(c))
}

/// The character as `\u` and four hexadecimal digits, which do for the basic plane.
pub(crate) fn escaped(c: char) -> impl Iterator<Item = char> {
    let digits =
        (0..4).rev().filter_map(move |digit| char::from_digit(u32::from(c) >> (4 * digit) & 0xf, 16));
    ['\\', 'u'].into_iter().chain(digits)
}

/// Whether the character steers a terminal (C1 controls) or reorders what is around it (bidirectional formatting).
fn misleads(c: char) -> bool {
    matches!(c, '\u{80}'..='\u{9f}' | '\u{61c}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_survives() {
        for (given, shown) in [
            ("plain ünïcode 日本", "plain ünïcode 日本"),
            ("red \x1b[31m", "red ^[[31m"),
            ("bell \x07, del \x7f, nul \0", "bell ^G, del ^?, nul ^@"),
            ("one\ntwo\tthree\r\n", "one two three"),
            ("c1 \u{9b}31m", "c1 \\u{9b}31m"),
            ("\u{202e}drowssap", "\\u{202e}drowssap"),
            ("arabic letter mark \u{61c}", "arabic letter mark \\u{61c}"),
        ] {
            assert_eq!(Line::new(given).to_string(), shown);
            assert_eq!(Line::default().with(Style::Bad, given).to_string(), shown);
        }
    }

    #[test]
    fn colours_surround_their_span_only() {
        let line = Line::new("n1 ").with(Style::Good, "Succeeded").and(" 100%");
        assert_eq!(line.painted(), "n1 \x1b[32mSucceeded\x1b[0m 100%");
        assert_eq!(line.to_string(), "n1 Succeeded 100%");
    }

    #[test]
    fn documents_keep_their_meaning() {
        let document = serde_json::to_string("a\u{9b}b\u{1b}c\u{202e}").unwrap();
        let safe = harmless_document(&document);
        assert!(safe.is_ascii());
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), "a\u{9b}b\u{1b}c\u{202e}");
    }
}
