//! Glob patterns: `*` matches any text, `?` one character.

/// Whether `pattern` matches the whole of `text`.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut read) = (0, 0);
    // The last star, and how much of the text it has taken.
    let mut star: Option<(usize, usize)> = None;
    while let Some(next) = text.get(read) {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(wanted) if wanted == next || *wanted == '?' => {
                at += 1;
                read += 1;
            }
            _ => match &mut star {
                Some((place, taken)) => {
                    *taken += 1;
                    (at, read) = (*place + 1, *taken);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|left| *left == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_texts() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything", true),
            ("web-*", "web-7f", true),
            ("web-*", "my-web-7f", false),
            ("*-7f", "web-7f-7f", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("my-operator/*", "my-operator/0.1.0", true),
            ("node-0?", "node-01", true),
            ("node-0?", "node-0", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} on {text}");
        }
    }
}
