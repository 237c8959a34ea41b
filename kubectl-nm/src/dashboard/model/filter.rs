//! The filter language: `ns:shop state:blocked node:worker-1* cart`.
//!
//! Words are joined by "and". `ns:` and `node:` take the beginning of a name, or a pattern with `*` and `?` for the
//! whole of it; `state:` takes the beginning of a state; any other word is looked for everywhere. Case does not matter.

/// What a row offers to a filter.
#[derive(Debug, Default)]
pub(crate) struct Fields<'a> {
    /// The node, where rows differ in it.
    pub(crate) node: Option<&'a str>,
    /// The namespaces that it has to do with.
    pub(crate) namespaces: Vec<&'a str>,
    /// The word for its state.
    pub(crate) state: &'a str,
    /// Everything else that can be read in it.
    pub(crate) texts: [&'a str; 4],
}

/// A filter as it was typed, and what it means.
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
    /// Reads a filter. Every text is one: what is no `key:value` is looked for as it stands.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        let terms = text.split_whitespace().filter_map(term).collect();
        Self { text, terms }
    }

    /// As it was typed.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether it lets everything pass.
    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether a row passes.
    pub(crate) fn passes(&self, fields: &Fields<'_>) -> bool {
        self.terms.iter().all(|term| match term {
            Term::Namespace(pattern) => fields.namespaces.iter().any(|namespace| fits(pattern, namespace)),
            Term::State(beginning) => begins(fields.state, beginning),
            Term::Node(pattern) => fields.node.is_none_or(|node| fits(pattern, node)),
            Term::Anywhere(word) => {
                let texts = fields.texts.iter().chain(&fields.namespaces).chain(fields.node.as_ref());
                texts.copied().any(|text| contains(text, word)) || contains(fields.state, word)
            }
        })
    }
}

/// One word of a filter; none for a key whose value is yet to be typed.
fn term(word: &str) -> Option<Term> {
    let (make, value): (fn(String) -> Term, &str) = match word.split_once(':') {
        Some(("ns" | "namespace", value)) => (Term::Namespace, value),
        Some(("state", value)) => (Term::State, value),
        Some(("node", value)) => (Term::Node, value),
        _ => (Term::Anywhere, word),
    };
    (!value.is_empty()).then(|| make(value.to_owned()))
}

/// Whether a name fits a pattern, or begins so if it is none.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    if is_pattern(pattern) { matches(pattern.as_bytes(), name.as_bytes()) } else { begins(name, pattern) }
}

/// Whether it has wildcards.
pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// Matches `*` and `?` in time linear in both, but for going back to the last `*`.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
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

fn begins(text: &str, beginning: &str) -> bool {
    let (text, beginning) = (text.as_bytes(), beginning.as_bytes());
    text.len() >= beginning.len() && text[..beginning.len()].eq_ignore_ascii_case(beginning)
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
            state: "BLOCKED",
            texts: ["cart-0", "sts/cart", "", "The disruption budget cart"],
        }
    }

    #[test]
    fn every_word_of_a_filter_must_hold() {
        for (filter, passes) in [
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
            ("state:done", false),
            ("node:worker-1*", true),
            ("node:worker-1", true),
            ("node:worker-2*", false),
            ("node:*r-*2", true),
            ("ns:shop state:blocked node:worker-1* cart", true),
            ("ns:shop state:blocked node:worker-1* nothing", false),
            ("ns:", true),
            ("other:key", false),
        ] {
            assert_eq!(Filter::new(filter).passes(&fields()), passes, "{filter}");
        }
    }

    #[test]
    fn a_row_without_a_node_of_its_own_is_not_filtered_by_node() {
        assert!(Filter::new("node:x").passes(&Fields { node: None, ..fields() }));
    }

    #[test]
    fn a_filter_is_shown_as_it_was_typed() {
        assert_eq!(Filter::new("ns:a  b ").text(), "ns:a  b ");
        assert!(Filter::new(" ns: ").is_empty());
    }
}
