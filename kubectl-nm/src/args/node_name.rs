//! Node names on the command line.
//!
//! They become object names and parts of URLs, so anything that is not a name is refused before it goes anywhere.

/// Reads a node's name; `node/n1`, as `kubectl get nodes -o name` prints it, is as good as `n1`.
///
/// # Errors
///
/// When it cannot be the name of a node.
pub(crate) fn parse(text: &str) -> Result<String, String> {
    let name = ["node/", "nodes/", "no/"].iter().find_map(|kind| text.strip_prefix(kind)).unwrap_or(text);
    let label = |part: &str| {
        !part.is_empty()
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    if name.len() <= 253 && name.split('.').all(label) {
        Ok(name.to_owned())
    } else {
        Err(String::from("a node's name consists of lower case letters, digits, '-' and '.'"))
    }
}

/// The names in the order given, each once.
pub(crate) fn distinct(names: &[String]) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::with_capacity(names.len());
    for name in names {
        if !distinct.contains(name) {
            distinct.push(name.clone());
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_with_or_without_their_kind() {
        for (text, name) in [
            ("n1", "n1"),
            ("node/n1", "n1"),
            ("nodes/ip-10-0-0-1.eu.example", "ip-10-0-0-1.eu.example"),
            ("no/n1", "n1"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(name));
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for text in ["", "node/", "N1", "a/b", "../x", "-a", "a-", "a..b", "a b", "a\x1b", &"a".repeat(254)] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn repeated_names_count_once() {
        let names = ["b", "a", "b"].map(String::from);
        assert_eq!(distinct(&names), ["b", "a"]);
    }
}
