//! Labels of DNS (RFC 1123), of which names are made.

/// Whether a text is one, of whatever length: lower case letters, digits and `-`, with no `-` at either end.
pub fn is_label(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(is_plain) && text.ends_with(is_plain) && text.chars().all(|c| is_plain(c) || c == '-')
}
