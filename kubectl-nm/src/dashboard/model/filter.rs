//! The filter language: `ns:shop state:blocked node:worker-1* cart`.
//!
//! All words have to match. `ns:` and `node:` take a prefix, or a pattern with `*` and `?` for the whole name. `state:`
//! takes a prefix of a state ([`State::word`](crate::maintenance::State::word),
//! [`PodState::word`](crate::maintenance::PodState::word)). Any other word is searched for in every column. Case does
//! not matter.

#[derive(Debug, Default)]
pub(crate) struct Fields<'a> {
    /// The node, where rows have different nodes.
    pub(crate) node: Option<&'a str>,
    pub(crate) namespaces: Vec<&'a str>,
    pub(crate) state: &'a str,
    pub(crate) texts: [&'a str; 4],
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    text: String,
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Term {
    Namespace(String),
    State(String),
    Node(String),
    Anywhere(String),
}

impl Filter {
    /// Parses a filter. Every text is a valid filter: a word that is not `key:value` is searched for as it is.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        let terms = text.split_whitespace().filter_map(term).collect();
        Self { text, terms }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub(crate) fn matches(&self, fields: &Fields<'_>) -> bool {
        self.terms.iter().all(|term| match term {
            Term::Namespace(pattern) => {
                fields.namespaces.iter().any(|namespace| name_matches(pattern, namespace))
            }
            Term::State(prefix) => has_prefix(fields.state, prefix),
            Term::Node(pattern) => fields.node.is_none_or(|node| name_matches(pattern, node)),
            Term::Anywhere(word) => {
                let texts = fields.texts.iter().chain(&fields.namespaces).chain(fields.node.as_ref());
                texts.copied().any(|text| contains(text, word)) || contains(fields.state, word)
            }
        })
    }
}

/// Whether a filter selects a row with this node, namespace, state and text.
pub(crate) fn is_selected(filter: &str, [node, namespace, state, text]: [&str; 4]) -> bool {
    let fields = Fields { node: Some(node), namespaces: vec![namespace], state, texts: [text, "", "", ""] };
    Filter::new(filter).matches(&fields)
}

/// One word of a filter; none for a key without a value, which is still being typed.
fn term(word: &str) -> Option<Term> {
    let (make, value): (fn(String) -> Term, &str) = match word.split_once(':') {
        Some(("ns" | "namespace", value)) => (Term::Namespace, value),
        Some(("state", value)) => (Term::State, value),
        Some(("node", value)) => (Term::Node, value),
        _ => (Term::Anywhere, word),
    };
    (!value.is_empty()).then(|| make(value.to_owned()))
}

/// Whether a name matches a pattern; if it has no wildcards, whether it begins with it.
pub(crate) fn name_matches(pattern: &str, name: &str) -> bool {
    if is_pattern(pattern) { glob(pattern.as_bytes(), name.as_bytes()) } else { has_prefix(name, pattern) }
}

pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// Matches `*` and `?`, going back to the last `*` on a mismatch.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, n));
                p += 1;
            }
            Some(c) if *c == b'?' || c.eq_ignore_ascii_case(&name[n]) => {
                p += 1;
                n += 1;
            }
            _ => match &mut star {
                Some((after, from)) => {
                    *from += 1;
                    (p, n) = (*after, *from);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

fn has_prefix(text: &str, prefix: &str) -> bool {
    let (text, prefix) = (text.as_bytes(), prefix.as_bytes());
    text.len() >= prefix.len() && text[..prefix.len()].eq_ignore_ascii_case(prefix)
}

fn contains(text: &str, word: &str) -> bool {
    let word = word.as_bytes();
    text.as_bytes().windows(word.len()).any(|window| window.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> Fields<'static> {
        Fields {
            node: Some("worker-12"),
            namespaces: vec!["shop", "db"],
            state: "Blocked",
            texts: ["cart-0", "sts/cart", "", "The disruption budget cart"],
        }
    }

    #[test]
    fn every_word_of_a_filter_must_match() {
        for (filter, matches) in [
            ("", true),
            ("  ", true),
            ("cart", true),
            ("CART budget", true),
            ("nothing", false),
            ("ns:shop", true),
            ("ns:sh", true),
            ("namespace:db", true),
            ("ns:hop", false),
            ("ns:*op", true),
            ("ns:s?op", true),
            ("ns:s?p", false),
            ("state:blocked", true),
            ("state:bl", true),
            ("state:drained", false),
            ("node:worker-1*", true),
            ("node:worker-1", true),
            ("node:worker-2*", false),
            ("node:*r-*2", true),
            ("ns:shop state:blocked node:worker-1* cart", true),
            ("ns:shop state:blocked node:worker-1* nothing", false),
            ("ns:", true),
            ("other:key", false),
        ] {
            assert_eq!(Filter::new(filter).matches(&fields()), matches, "{filter}");
        }
    }

    #[test]
    fn rows_without_a_node_match_any_node_filter() {
        assert!(Filter::new("node:x").matches(&Fields { node: None, ..fields() }));
    }

    #[test]
    fn a_filter_is_shown_as_typed() {
        assert_eq!(Filter::new("ns:a  b ").text(), "ns:a  b ");
        assert!(Filter::new(" ns: ").is_empty());
    }
}
