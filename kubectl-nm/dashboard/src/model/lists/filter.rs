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

/// A field that a filter searches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilterField {
    /// The node, where rows have different nodes.
    Node,
    Namespace,
    State,
    /// The phase of the maintenance, as the API has it.
    Phase,
    /// Why the maintenance was started, and why pods are blocked.
    Reason,
    /// The names of objects that the row is about.
    Object,
    /// The workload, by name and with its kind.
    Workload,
    /// The name of a pod with its namespace, as it is printed: `shop/cart-0`.
    Path,
    /// Any other text.
    Text,
}

/// What a word without a key is searched for in.
const ANYWHERE: [FilterField; 6] = [
    FilterField::Text,
    FilterField::Namespace,
    FilterField::Node,
    FilterField::Reason,
    FilterField::Object,
    FilterField::State,
];

/// A row that filters search. For each key, that is done for each of thousands of rows, so nothing is collected.
pub(crate) trait Searchable {
    /// Whether one of the texts of a field matches.
    fn any(&self, field: FilterField, is_match: &dyn Fn(&str) -> bool) -> bool;

    /// Whether the row has this field. Where all rows are of one node, neither its name nor its phase selects among them.
    fn has(&self, _field: FilterField) -> bool {
        true
    }
}

/// Whether a workload matches: both `sts/cart` and `cart` name it.
pub(crate) fn any_of_workload(owner: Option<&Owner>, is_match: &dyn Fn(&str) -> bool) -> bool {
    owner.is_some_and(|owner| is_match(owner.text()) || is_match(owner.name()))
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

/// Why a filter does probably not select what it was written for.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum FilterDoubt {
    #[error("there is no key {key}, so {word} is searched for as text")]
    Key { key: String, word: String },
    #[error("no state begins with {0}")]
    State(String),
    #[error("{0} hides no pods: all are of this node")]
    OneNode(String),
}

impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

#[derive(Debug, Clone)]
struct Term {
    /// None for a word that is searched for anywhere.
    key: Option<FilterField>,
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

    /// Whether it may match more than a namespace or a name, which have no slash.
    fn may_span_columns(&self) -> bool {
        match self {
            Self::Word(word) => word.contains('/'),
            Self::Expression(_) => true,
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

/// The keys of the language, those with several names more than once.
const KEYS: [(&str, FilterField); 8] = [
    ("ns", FilterField::Namespace),
    ("namespace", FilterField::Namespace),
    ("state", FilterField::State),
    ("node", FilterField::Node),
    ("phase", FilterField::Phase),
    ("reason", FilterField::Reason),
    ("object", FilterField::Object),
    ("workload", FilterField::Workload),
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

    /// The first word that is valid but cannot be meant: with a key, or a state, that there is not, or with a key that hides
    /// nothing among the pods of one node: one of `same`.
    pub(crate) fn doubt(
        &self,
        begins_a_state: impl Fn(&str) -> bool,
        same: &[FilterField],
    ) -> Option<FilterDoubt> {
        let doubt = |word: String| {
            let (_, word) = negated(&word);
            match (keyed(word), word.split_once(':')) {
                (Some((FilterField::State, state)), _) if !state.starts_with('/') => {
                    (!begins_a_state(state)).then(|| FilterDoubt::State(state.to_owned()))
                }
                (Some((field, value)), _) if same.contains(&field) && !value.is_empty() => {
                    Some(FilterDoubt::OneNode(word.to_owned()))
                }
                (None, Some((key, value))) if !value.is_empty() && is_letters(key) => {
                    Some(FilterDoubt::Key { key: key.to_owned(), word: word.to_owned() })
                }
                _ => None,
            }
        };
        words(&self.text).into_iter().find_map(doubt)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub(crate) fn matches(&self, row: &impl Searchable) -> bool {
        self.terms.iter().all(|term| term.matches(row))
    }
}

impl Term {
    fn matches(&self, row: &impl Searchable) -> bool {
        let is_match = |text: &str| self.value.is_match(text);
        let found = match self.key {
            Some(field) if !row.has(field) => return true,
            Some(field) => row.any(field, &is_match),
            None => {
                ANYWHERE.into_iter().any(|field| row.any(field, &is_match))
                    || self.value.may_span_columns() && row.any(FilterField::Path, &is_match)
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
    let value = keyed(word).map_or(word, |(_, value)| value);
    value.starts_with('/').then_some(text.len() - value.len())
}

/// The key and the value of a word that has a key of the language.
fn keyed(word: &str) -> Option<(FilterField, &str)> {
    let (name, value) = word.split_once(':')?;
    let (_, field) = KEYS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name))?;
    Some((*field, value))
}

/// The word that is left without its `!`, and whether it has one.
fn negated(word: &str) -> (bool, &str) {
    word.strip_prefix('!').map_or((false, word), |rest| (true, rest))
}

fn is_letters(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// The end of a regular expression: after the first slash that a blank or the end follows.
fn closing(text: &str) -> Option<usize> {
    let ends = |at: &usize| text[at + 1..].chars().next().is_none_or(char::is_whitespace);
    text.match_indices('/').map(|(at, _)| at).find(ends).map(|at| at + 1)
}

/// One word of a filter; none for a key without a value, which is still being typed.
fn term(word: &str) -> Result<Option<Term>, FilterError> {
    let (is_negated, word) = negated(word);
    let (key, value) = keyed(word).map_or((None, word), |(key, value)| (Some(key), value));
    if value.is_empty() {
        return Ok(None);
    }
    let expression = value.strip_prefix('/').map(|rest| rest.strip_suffix('/').unwrap_or(rest));
    let value = match (expression, key) {
        (Some(""), _) => return Ok(None),
        (Some(expression), _) => Value::Expression(compiled(expression)?),
        (
            None,
            Some(FilterField::Namespace | FilterField::Node | FilterField::Object | FilterField::Workload),
        ) => Value::Expression(name_expression(value)?),
        (None, Some(FilterField::State | FilterField::Phase)) => {
            Value::Expression(compiled(&format!("^{}", regex::escape(value)))?)
        }
        (None, _) if value.is_ascii() => Value::Word(value.to_owned()),
        (None, _) => Value::Expression(compiled(&regex::escape(value))?),
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
    use super::*;

    struct TestRow {
        node: Option<&'static str>,
    }

    impl Searchable for TestRow {
        fn any(&self, field: FilterField, is_match: &dyn Fn(&str) -> bool) -> bool {
            let any = |texts: &[&str]| texts.iter().any(|text| is_match(text));
            match field {
                FilterField::Node => self.node.is_some_and(is_match),
                FilterField::Namespace => any(&["shop", "db"]),
                FilterField::State => is_match("Blocked"),
                FilterField::Phase => is_match("Running"),
                FilterField::Reason => any(&["new kernel", "DisruptionBudget"]),
                FilterField::Object => any(&["cart-0", "cart-guard"]),
                FilterField::Workload => any_of_workload(Owner::recorded("sts/cart").as_ref(), is_match),
                FilterField::Path => is_match("shop/cart-0"),
                FilterField::Text => any(&["cart-0", "sts/cart", "", "The disruption budget cart"]),
            }
        }

        fn has(&self, field: FilterField) -> bool {
            !matches!(field, FilterField::Node | FilterField::Phase) || self.node.is_some()
        }
    }

    fn row() -> TestRow {
        TestRow { node: Some("worker-12") }
    }

    #[test]
    fn every_word_of_a_filter_must_match() {
        for (filter, matches) in [
            ("", true),
            ("  ", true),
            ("cart", true),
            ("CART budget", true),
            ("nothing", false),
            ("shop/cart", true),
            ("SHOP/cart-0", true),
            ("shop/sts", false),
            ("/^shop.cart/", true),
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
            ("STATE:blocked", true),
            ("Node:/-1[0-3]$/", true),
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
            assert_eq!(Filter::new(filter).matches(&row()), matches, "{filter}");
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
            assert_eq!(Filter::new(filter).matches(&row()), matches, "{filter}");
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
            assert_eq!(parsed.matches(&row()), matches, "{filter}");
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
            assert!(parsed.matches(&row()), "{filter}");
        }
    }

    #[test]
    fn rows_without_a_node_match_any_filter_for_nodes() {
        for filter in ["node:x", "!node:x", "phase:failed", "!phase:failed"] {
            assert!(Filter::new(filter).matches(&TestRow { node: None }), "{filter}");
        }
    }

    #[test]
    fn a_filter_is_shown_as_typed() {
        assert_eq!(Filter::new("ns:a  b ").text(), "ns:a  b ");
        assert!(Filter::new(" ns: ").is_empty());
    }
}
