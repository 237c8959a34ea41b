//! The filter language: `ns:shop !state:blocked node:worker-1* /cart-[0-9]+/`.
//!
//! All words have to match; one with `!` must not match. `ns:`, `node:`, `workload:` and `object:` take a prefix, or a
//! pattern with `*` and `?` for the whole name. `state:` takes a prefix of a state
//! ([`State::word`](nm_core::maintenance::State::word), [`PodState::word`](nm_shared::PodState::word)), `phase:` one
//! of a phase of the API, and `reason:` a part of a reason. Any other word is searched for in every column. Instead of each
//! of these, `/` begins a regular expression, which ends with another `/`. Case does not matter.

use memchr::memchr2_iter;
use nm_core::explain::owner::Owner;
use regex::{Regex, RegexBuilder};

/// The largest regular expression, in bytes of its compiled form: it is matched against every row.
const MAX_EXPRESSION: usize = 256 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Fields<'a> {
    /// The node, where rows have different nodes.
    pub(crate) node: Option<&'a str>,
    pub(crate) namespaces: Vec<&'a str>,
    pub(crate) state: &'a str,
    /// The phase of the maintenance, as the API has it.
    pub(crate) phase: &'a str,
    /// Why the maintenance was started, and why pods are blocked.
    pub(crate) reasons: Vec<&'a str>,
    /// The names of objects that the row is about.
    pub(crate) objects: Vec<&'a str>,
    pub(crate) workload: Option<&'a Owner>,
    pub(crate) texts: [&'a str; 4],
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    text: String,
    terms: Vec<Term>,
    problem: Option<FilterError>,
}

/// Why a filter leaves out a regular expression.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum FilterError {
    #[error("/{0}/ is too large")]
    TooLarge(String),
    #[error("/{expression}/: {}", last_line(.source))]
    Invalid { expression: String, source: regex::Error },
}

impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

#[derive(Debug, Clone)]
struct Term {
    key: Key,
    /// Whether rows that match are hidden.
    is_negated: bool,
    value: Value,
}

/// What a term looks for in a text.
#[derive(Debug, Clone)]
enum Value {
    /// A word anywhere in it, as most filters are: an expression takes longer for each row.
    Word(String),
    /// A regular expression, also for a prefix and a pattern.
    Expression(Regex),
}

impl Value {
    fn is_match(&self, text: &str) -> bool {
        match self {
            Self::Word(word) => contains(text.as_bytes(), word.as_bytes()),
            Self::Expression(expression) => expression.is_match(text),
        }
    }
}

/// Whether a text contains a word, whatever the case of ASCII letters.
fn contains(text: &[u8], word: &[u8]) -> bool {
    let Some((first, rest)) = word.split_first() else { return true };
    let mut starts = memchr2_iter(first.to_ascii_lowercase(), first.to_ascii_uppercase(), text);
    let follows = |at: usize| {
        text.get(at + 1..at + 1 + rest.len()).is_some_and(|found| found.eq_ignore_ascii_case(rest))
    };
    starts.any(follows)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Namespace,
    State,
    Node,
    Phase,
    Reason,
    Object,
    Workload,
    Anywhere,
}

/// The keys of the language, those with several names more than once.
const KEYS: [(&str, Key); 8] = [
    ("ns", Key::Namespace),
    ("namespace", Key::Namespace),
    ("state", Key::State),
    ("node", Key::Node),
    ("phase", Key::Phase),
    ("reason", Key::Reason),
    ("object", Key::Object),
    ("workload", Key::Workload),
];

impl Filter {
    /// Parses a filter. Every text is a filter: a word that is not `key:value` is searched for as it is, and a regular
    /// expression that is invalid is left out and reported by [`Self::problem`].
    pub(crate) fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        let mut filter = Self { text, ..Self::default() };
        for word in words(&filter.text) {
            match term(&word) {
                Ok(term) => filter.terms.extend(term),
                Err(problem) => filter.problem = Some(problem),
            }
        }
        filter
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// What is wrong with it.
    pub(crate) fn problem(&self) -> Option<&FilterError> {
        self.problem.as_ref()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub(crate) fn matches(&self, fields: &Fields<'_>) -> bool {
        self.terms.iter().all(|term| term.matches(fields))
    }
}

impl Term {
    fn matches(&self, fields: &Fields<'_>) -> bool {
        let any = |texts: &[&str]| texts.iter().any(|text| self.value.is_match(text));
        let found = match self.key {
            Key::Namespace => any(&fields.namespaces),
            Key::State => any(&[fields.state]),
            Key::Phase => any(&[fields.phase]),
            Key::Reason => any(&fields.reasons),
            Key::Object => any(&fields.objects),
            // Both `sts/cart` and `cart` name it.
            Key::Workload => fields.workload.is_some_and(|owner| any(&[owner.text(), owner.name()])),
            // Where all rows are of one node, its name does not select among them.
            Key::Node => match fields.node {
                Some(node) => any(&[node]),
                None => return true,
            },
            Key::Anywhere => {
                let texts = fields.texts.iter().chain(&fields.namespaces).chain(fields.node.as_ref());
                let more = fields.reasons.iter().chain(&fields.objects).chain([&fields.state]);
                texts.chain(more).any(|text| self.value.is_match(text))
            }
        };
        found != self.is_negated
    }
}

/// The words of a filter. A regular expression may have blanks in it.
pub(crate) fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let blank = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let begins = expression_start(rest).filter(|at| *at < blank);
        let end = begins.and_then(|at| Some(at + 1 + closing(&rest[at + 1..])?)).unwrap_or(blank);
        words.push(rest[..end].to_owned());
        rest = rest[end..].trim_start();
    }
    words
}

/// Where the slash of a regular expression is, if the first word has one.
fn expression_start(text: &str) -> Option<usize> {
    let negation = usize::from(text.starts_with('!'));
    let word = &text[negation..];
    let key = KEYS.iter().find(|(name, _)| word.strip_prefix(name).is_some_and(|rest| rest.starts_with(':')));
    let at = negation + key.map_or(0, |(name, _)| name.len() + 1);
    text[at..].starts_with('/').then_some(at)
}

/// The end of a regular expression: after the first slash that a blank or the end follows.
fn closing(text: &str) -> Option<usize> {
    let ends = |at: &usize| text[at + 1..].chars().next().is_none_or(char::is_whitespace);
    text.match_indices('/').map(|(at, _)| at).find(ends).map(|at| at + 1)
}

/// One word of a filter; none for a key without a value, which is still being typed.
fn term(word: &str) -> Result<Option<Term>, FilterError> {
    let (is_negated, word) = word.strip_prefix('!').map_or((false, word), |rest| (true, rest));
    let keyed = word.split_once(':').and_then(|(name, value)| {
        let (_, key) = KEYS.iter().find(|(known, _)| *known == name)?;
        Some((*key, value))
    });
    let (key, value) = keyed.unwrap_or((Key::Anywhere, word));
    if value.is_empty() {
        return Ok(None);
    }
    let expression = value.strip_prefix('/').map(|rest| rest.strip_suffix('/').unwrap_or(rest));
    let value = match (expression, key) {
        (Some(""), _) => return Ok(None),
        (Some(expression), _) => Value::Expression(compiled(expression)?),
        (None, Key::Namespace | Key::Node | Key::Object | Key::Workload) => {
            Value::Expression(name_expression(value)?)
        }
        (None, Key::State | Key::Phase) => {
            Value::Expression(compiled(&format!("^{}", regex::escape(value)))?)
        }
        (None, Key::Reason | Key::Anywhere) if value.is_ascii() => Value::Word(value.to_owned()),
        (None, Key::Reason | Key::Anywhere) => Value::Expression(compiled(&regex::escape(value))?),
    };
    Ok(Some(Term { key, is_negated, value }))
}

fn compiled(expression: &str) -> Result<Regex, FilterError> {
    let built = RegexBuilder::new(expression).case_insensitive(true).size_limit(MAX_EXPRESSION).build();
    built.map_err(|source| match source {
        regex::Error::CompiledTooBig(_) => FilterError::TooLarge(expression.to_owned()),
        source => FilterError::Invalid { expression: expression.to_owned(), source },
    })
}

/// The reason for which an expression is invalid: the others of several lines show where.
fn last_line(error: &regex::Error) -> String {
    let text = error.to_string();
    text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// What names match a pattern; if it has no wildcards, those that begin with it.
pub(crate) fn name_expression(pattern: &str) -> Result<Regex, FilterError> {
    let literal = regex::escape(pattern);
    if !is_pattern(pattern) {
        return compiled(&format!("^{literal}"));
    }
    compiled(&format!("^(?s:{})$", literal.replace(r"\*", ".*").replace(r"\?", ".")))
}

pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    fn fields() -> Fields<'static> {
        static CART: LazyLock<Option<Owner>> = LazyLock::new(|| Owner::recorded("sts/cart"));
        Fields {
            node: Some("worker-12"),
            namespaces: vec!["shop", "db"],
            state: "Blocked",
            phase: "Running",
            reasons: vec!["new kernel", "DisruptionBudget"],
            objects: vec!["cart-0", "cart-guard"],
            workload: CART.as_ref(),
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
            ("phase:run", true),
            ("phase:failed", false),
            ("reason:kernel", true),
            ("reason:budget", true),
            ("reason:webhook", false),
            ("object:cart-g", true),
            ("object:*-0", true),
            ("object:guard", false),
            ("workload:cart", true),
            ("workload:sts/*", true),
            ("workload:deploy/cart", false),
        ] {
            assert_eq!(Filter::new(filter).matches(&fields()), matches, "{filter}");
        }
    }

    #[test]
    fn an_exclamation_mark_hides_what_matches() {
        for (filter, matches) in [
            ("!cart", false),
            ("!nothing", true),
            ("!ns:web", true),
            ("ns:shop !state:blocked", false),
            ("!reason:budget", false),
            ("!workload:web", true),
            ("!", true),
            ("!ns:", true),
        ] {
            assert_eq!(Filter::new(filter).matches(&fields()), matches, "{filter}");
        }
    }

    #[test]
    fn slashes_enclose_a_regular_expression() {
        for (filter, matches) in [
            ("/cart-[0-9]+/", true),
            ("/CART-[1-9]/", false),
            ("!/cart-[0-9]+/", false),
            ("node:/-1[0-3]$/", true),
            ("!node:/-1[0-3]$/", false),
            ("ns:/^(shop|web)$/ cart", true),
            ("/disruption budget/", true),
            ("/budget disruption/ cart", false),
            ("workload:/^sts/cart$/", true),
            ("/", true),
            ("//", true),
            ("/not closed yet", false),
            ("/cart", true),
        ] {
            let parsed = Filter::new(filter);
            assert!(parsed.problem().is_none(), "{filter}");
            assert_eq!(parsed.matches(&fields()), matches, "{filter}");
        }
    }

    #[test]
    fn a_bad_expression_is_reported_and_left_out() {
        for (filter, problem) in [
            ("/a(/", "unclosed group"),
            ("cart /[/", "unclosed character class"),
            ("/x{1000}{1000}/", "too large"),
        ] {
            let parsed = Filter::new(filter);
            let shown = parsed.problem().unwrap().to_string();
            assert!(shown.contains(problem), "{shown}");
            assert!(parsed.matches(&fields()), "{filter}");
        }
    }

    #[test]
    fn rows_without_a_node_match_any_node_filter() {
        assert!(Filter::new("node:x").matches(&Fields { node: None, ..fields() }));
        assert!(Filter::new("!node:x").matches(&Fields { node: None, ..fields() }));
    }

    #[test]
    fn a_filter_is_shown_as_typed() {
        assert_eq!(Filter::new("ns:a  b ").text(), "ns:a  b ");
        assert!(Filter::new(" ns: ").is_empty());
    }
}
