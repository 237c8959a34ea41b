//! Names of nodes and namespaces on the command line.
//!
//! They become object names and parts of URLs, so invalid names are refused before any request.

use nm_shared::cluster::node::{is_dns_label, is_valid_name};
use strsim::damerau_levenshtein;

/// Longest name of a namespace: a DNS label.
const MAX_NAMESPACE_NAME: usize = 63;

/// How many suggestions to make at most. More candidates at the same distance are no help.
const MAX_SUGGESTIONS: usize = 3;

/// Parses the name of a node. `node/n1`, as `kubectl get nodes -o name` prints it, means `n1`.
///
/// # Errors
///
/// If the name is not valid for a node.
pub fn parse_node(text: &str) -> Result<String, String> {
    let name = ["node/", "nodes/", "no/"].iter().find_map(|kind| text.strip_prefix(kind)).unwrap_or(text);
    if is_valid_name(name) {
        Ok(name.to_owned())
    } else {
        Err(String::from("a node name consists of lowercase letters, digits, '-' and '.'"))
    }
}

/// Parses the name of a namespace. As in kubectl, an empty name means that none is given.
pub(crate) fn parse_namespace(text: &str) -> Result<String, String> {
    if text.is_empty() || (text.len() <= MAX_NAMESPACE_NAME && is_dns_label(text)) {
        Ok(text.to_owned())
    } else {
        Err(String::from(
            "a namespace name has at most 63 lowercase letters, digits and '-', and does not start or end with '-'",
        ))
    }
}

/// The names without duplicates, in their original order.
pub fn distinct(names: &[String]) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::with_capacity(names.len());
    for name in names {
        if !distinct.contains(name) {
            distinct.push(name.clone());
        }
    }
    distinct
}

/// The known names closest to a wrong one, if any is close.
pub fn closest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    // A letter that looks like the right digit is the most likely mistake.
    let distance = |name: &str| {
        let folded = damerau_levenshtein(&fold_lookalikes(wrong), &fold_lookalikes(name));
        (folded, damerau_levenshtein(wrong, name))
    };
    let max_distance = (wrong.chars().count() / 3).clamp(1, 3);
    let mut best: Option<((usize, usize), Vec<&str>)> = None;
    for name in known {
        let distance = distance(name);
        match &mut best {
            _ if distance.0 > max_distance => {}
            Some((least, names)) if *least == distance => names.push(name),
            Some((least, _)) if *least < distance => {}
            _ => best = Some((distance, vec![name])),
        }
    }
    best.map(|(_, names)| names).filter(|names| names.len() <= MAX_SUGGESTIONS).unwrap_or_default()
}

fn fold_lookalikes(name: &str) -> String {
    let fold = |c| match c {
        'o' => '0',
        'l' | 'i' => '1',
        c => c,
    };
    name.chars().map(fold).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_names_are_accepted_with_or_without_their_kind() {
        for (text, name) in [
            ("n1", "n1"),
            ("node/n1", "n1"),
            ("nodes/ip-10-0-0-1.eu.example", "ip-10-0-0-1.eu.example"),
            ("no/n1", "n1"),
        ] {
            assert_eq!(parse_node(text).as_deref(), Ok(name));
        }
    }

    #[test]
    fn invalid_node_names_are_refused() {
        for text in ["", "node/", "N1", "a/b", "../x", "-a", "a-", "a..b", "a b", "a\x1b", &"a".repeat(254)] {
            assert!(parse_node(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn invalid_namespace_names_are_refused() {
        for name in ["node-maintenance", "a", "0", "", &"a".repeat(63)] {
            assert_eq!(parse_namespace(name).as_deref(), Ok(name));
        }
        for name in ["Foo_x", "Foo", "a_b", "a.b", "-a", "a-", "a b", "ä", "a\n", &"a".repeat(64)] {
            assert!(parse_namespace(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn repeated_names_count_once() {
        let names = ["b", "a", "b"].map(String::from);
        assert_eq!(distinct(&names), ["b", "a"]);
    }

    #[test]
    fn the_closest_names_are_suggested_unless_many_are_as_close() {
        let pool: Vec<String> = (0..20).map(|n| format!("worker-{n:02}")).collect();
        let known = || pool.iter().map(String::as_str).chain(["control-plane", "a", "b"]);
        for (wrong, suggested) in [
            ("worker-o7", vec!["worker-07"]),
            ("workre-07", vec!["worker-07"]),
            ("worker07", vec!["worker-07"]),
            ("control-plan", vec!["control-plane"]),
            ("worker-20", vec!["worker-00", "worker-02", "worker-10"]),
            ("worker-99", vec!["worker-09", "worker-19"]),
            ("worker-x", vec![]),
            ("gpu-node", vec![]),
            ("", vec!["a", "b"]),
        ] {
            assert_eq!(closest(wrong, known()), suggested, "{wrong}");
        }
        assert!(closest("n1", []).is_empty());
    }
}
