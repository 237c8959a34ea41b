//! Text for people: lines of styled spans that never contain control characters.
//!
//! Names, reasons and messages come from the API, where anyone who can create a pod can store an escape sequence. A
//! [`Line`] escapes control characters as it is built. The only escape sequences that reach a terminal are the colours
//! that [`Line::painted`] adds.

use std::fmt::{self, Write};

use crate::terminal::command_context;

/// Meaning of a text, which a colour shows on terminals with colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// No particular meaning, and no colour.
    Plain,
    /// As desired.
    Good,
    /// In progress.
    Busy,
    /// Needs attention.
    Bad,
    /// Less important, such as a time.
    Dim,
}

impl Style {
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
pub struct Line(Vec<(Style, String)>);

impl Line {
    /// A line of plain text.
    pub fn new(text: impl AsRef<str>) -> Self {
        Self::default().with(Style::Plain, text)
    }

    /// Appends plain text.
    #[must_use]
    pub fn and(self, text: impl AsRef<str>) -> Self {
        self.with(Style::Plain, text)
    }

    /// Appends text in a style.
    #[must_use]
    pub fn with(mut self, style: Style, text: impl AsRef<str>) -> Self {
        self.0.push((style, harmless(text.as_ref())));
        self
    }

    /// Appends the spans of another line.
    #[must_use]
    pub fn join(mut self, rest: Self) -> Self {
        self.0.extend(rest.0);
        self
    }

    /// The line with connection flags inserted into its commands in backticks.
    pub(crate) fn with_flags(&self, flags: &str) -> Self {
        let insert = |(style, text): &(Style, String)| (*style, command_context::with_flags(text, flags));
        Self(self.0.iter().map(insert).collect())
    }

    /// The line in several that fit so many columns, broken between words. Those after the first are indented.
    pub(crate) fn wrapped(&self, columns: usize) -> Vec<Self> {
        const INDENT: &str = "  ";
        let (mut lines, mut used, mut is_break) = (vec![Self::default()], 0, false);
        let words =
            self.0.iter().flat_map(|(style, text)| text.split_inclusive(' ').map(move |word| (*style, word)));
        for (style, word) in words {
            if is_break && used + word.trim_end().chars().count() > columns {
                lines.push(Self::new(INDENT));
                used = INDENT.len();
            }
            if let Some(Self(spans)) = lines.last_mut() {
                spans.push((style, word.to_owned()));
            }
            used += word.chars().count();
            is_break = word.ends_with(' ');
        }
        lines
    }

    /// The first style that is not plain, for places that show a line in one style.
    pub fn style(&self) -> Style {
        let styles = self.0.iter().map(|(style, _)| *style);
        styles.into_iter().find(|style| *style != Style::Plain).unwrap_or(Style::Plain)
    }

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

/// The text on one line, with control characters escaped so that they are visible.
pub fn harmless(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.trim_end_matches(['\n', '\r']).chars() {
        match c {
            '\n' | '\t' => safe.push(' '),
            '\r' => {}
            // As kubectl prints them: ^[ for escape.
            '\0'..='\x1f' | '\x7f' => safe.extend(['^', char::from(c as u8 ^ 0x40)]),
            _ if misleads(c) => safe.extend(c.escape_unicode()),
            _ => safe.push(c),
        }
    }
    safe
}

/// A JSON or YAML document with control characters escaped, which does not change its meaning.
///
/// Serializers escape the ASCII control characters. The others occur in JSON only inside quoted strings. YAML has strings
/// without quotes, where `\uXXXX` is plain text: the caller must quote these first.
pub(crate) fn harmless_document(document: &str) -> String {
    let mut safe = String::with_capacity(document.len());
    for c in document.chars() {
        if needs_escape(c) {
            // Four hexadecimal digits suffice for the basic plane.
            let _ = write!(safe, "\\u{:04x}", u32::from(c));
        } else {
            safe.push(c);
        }
    }
    safe
}

pub(crate) fn needs_escape(c: char) -> bool {
    c != '\n' && (c.is_control() || misleads(c))
}

/// Whether the character controls a terminal (C1) or reorders the text around it (bidirectional formatting).
fn misleads(c: char) -> bool {
    matches!(c, '\u{80}'..='\u{9f}' | '\u{61c}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

/// What a program prints, without colours and with blanks instead of tabs.
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            // A control sequence ends with a character from @ to ~.
            '\x1b' if rest.peek() == Some(&'[') => {
                rest.next();
                let _ = rest.find(|c| ('@'..='~').contains(c));
            }
            '\t' => plain.push_str(&" ".repeat(8 - plain.chars().count() % 8)),
            '\r' if rest.peek().is_none() => {}
            _ => plain.push(c),
        }
    }
    plain
}

/// `1 pod`, `2 pods`: the words of every number of things.
pub fn counted(count: impl TryInto<i64>, what: &str) -> String {
    let count = count.try_into().unwrap_or(i64::MAX);
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// How many names a sentence lists.
pub const MAX_NAMES: usize = 3;

/// The first names, and how many more there are.
pub fn first_names(names: &[String]) -> String {
    match names {
        names if names.len() <= MAX_NAMES => names.join(", "),
        names => format!("{} and {} more", names[..MAX_NAMES].join(", "), names.len() - MAX_NAMES),
    }
}

/// Whether the user's locale has characters beyond ASCII, from the environment.
///
/// The first of `LC_ALL`, `LC_CTYPE` and `LANG` that is set decides. If none is set, as on Windows, Unicode is assumed.
pub fn is_unicode_locale(variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name: &&str| variable(name).filter(|value| !value.is_empty());
    let Some(locale) = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set) else { return true };
    let name = locale.split('@').next().unwrap_or_default();
    match name.split_once('.') {
        Some((_, charset)) => ["utf-8", "utf8"].contains(&charset.to_lowercase().as_str()),
        None => !["C", "POSIX"].contains(&name),
    }
}

/// `1 node is` or `2 nodes are`, as a sentence begins.
pub fn are(nodes: usize) -> String {
    format!("{} {}", counted(nodes, "node"), if nodes == 1 { "is" } else { "are" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locale_determines_whether_unicode_is_used() {
        for (variables, is_unicode) in [
            (&[][..], true),
            (&[("LC_ALL", "C")], false),
            (&[("LC_ALL", "POSIX"), ("LANG", "en_US.UTF-8")], false),
            (&[("LC_ALL", ""), ("LANG", "en_US.UTF-8")], true),
            (&[("LC_CTYPE", "C.utf8"), ("LANG", "C")], true),
            (&[("LANG", "de_DE.ISO-8859-1@euro")], false),
            (&[("LANG", "de_DE.UTF-8@euro")], true),
            (&[("LANG", "de_DE")], true),
        ] {
            let value = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(is_unicode_locale(value), is_unicode, "{variables:?}");
        }
    }

    #[test]
    fn control_characters_are_escaped() {
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
    fn colours_apply_to_their_span_only() {
        let line = Line::new("n1 ").with(Style::Good, "Succeeded").and(" 100%");
        assert_eq!(line.painted(), "n1 \x1b[32mSucceeded\x1b[0m 100%");
        assert_eq!(line.to_string(), "n1 Succeeded 100%");
    }

    #[test]
    fn lines_are_broken_between_words_and_never_within_one() {
        let line = Line::new("no Ready ").with(Style::Bad, "pod").and(": Deployment shop/web");
        let shown = |columns| -> Vec<String> {
            line.wrapped(columns).iter().map(|line| line.to_string().trim_end().to_owned()).collect()
        };
        assert_eq!(shown(80), ["no Ready pod: Deployment shop/web"]);
        assert_eq!(shown(24), ["no Ready pod: Deployment", "  shop/web"]);
        assert_eq!(shown(4), ["no", "  Ready", "  pod:", "  Deployment", "  shop/web"]);
        assert_eq!(line.wrapped(10)[1].0.iter().filter(|(style, _)| *style == Style::Bad).count(), 1);
    }

    #[test]
    fn escaped_documents_keep_their_meaning() {
        let document = serde_json::to_string("a\u{9b}b\u{1b}c\u{202e}").unwrap();
        let safe = harmless_document(&document);
        assert!(safe.is_ascii());
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), "a\u{9b}b\u{1b}c\u{202e}");
    }
}
