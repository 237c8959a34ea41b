//! Label selectors, such as `a=b`, `a!=b`, `a in (b,c)`, `a notin (b)`, `a`, `!a`, `a>1`, with the API server's error
//! messages.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::vec::IntoIter;

use serde_json::Value;

use crate::model::names;

/// A label selector; the empty one matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LabelQuery(Vec<QueryRequirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct QueryRequirement {
    key: String,
    operator: QueryOperator,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum QueryOperator {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    Absent,
    Above(i64),
    Below(i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Symbol(&'static str),
}

impl LabelQuery {
    /// Parses a selector. The error is a message for people.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut tokens = tokens(text).into_iter().peekable();
        let mut requirements = Vec::new();
        let begins = |token: Option<&Token>| matches!(token, Some(Token::Word(_) | Token::Symbol("!")));
        while let Some(next) = tokens.peek() {
            if !begins(Some(next)) {
                let found = shown(tokens.next());
                return Err(format!("found '{found}', expected: !, identifier, or 'end of string'"));
            }
            let requirement = requirement(&mut tokens);
            requirements.push(requirement.map_err(|error| format!("unable to parse requirement: {error}"))?);
            match tokens.next() {
                None => break,
                Some(Token::Symbol(",")) if begins(tokens.peek()) => {}
                Some(Token::Symbol(",")) => {
                    return Err(format!("found '{}', expected: identifier after ','", shown(tokens.next())));
                }
                other => return Err(format!("found '{}', expected: ',' or 'end of string'", shown(other))),
            }
        }
        Ok(Self(requirements))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it matches `metadata.labels`.
    pub(crate) fn matches(&self, labels: &Value) -> bool {
        self.0.iter().all(|requirement| {
            let value = labels[&requirement.key].as_str();
            let number = value.and_then(|value| value.parse::<i64>().ok());
            match &requirement.operator {
                QueryOperator::In(values) => value.is_some_and(|value| values.contains(value)),
                QueryOperator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                QueryOperator::Exists => value.is_some(),
                QueryOperator::Absent => value.is_none(),
                QueryOperator::Above(limit) => number.is_some_and(|number| number > *limit),
                QueryOperator::Below(limit) => number.is_some_and(|number| number < *limit),
            }
        })
    }
}

fn requirement(tokens: &mut Peekable<IntoIter<Token>>) -> Result<QueryRequirement, String> {
    let absent = tokens.next_if_eq(&Token::Symbol("!")).is_some();
    let key = match tokens.next() {
        Some(Token::Word(key)) => key,
        other => return Err(format!("found '{}', expected: identifier", shown(other))),
    };
    let odd = names::qualified(&key);
    if !odd.is_empty() {
        return Err(format!("<nil>: Invalid value: {key:?}: {}", odd.join("; ")));
    }
    if absent {
        let operator = QueryOperator::Absent;
        return Ok(QueryRequirement { key, operator });
    }
    let operator = match tokens.peek() {
        None | Some(Token::Symbol(",")) => QueryOperator::Exists,
        Some(_) => match tokens.next() {
            Some(Token::Symbol("=" | "==")) => QueryOperator::In([exact(tokens)?].into()),
            Some(Token::Symbol("!=")) => QueryOperator::NotIn([exact(tokens)?].into()),
            Some(Token::Symbol(">")) => QueryOperator::Above(number(&exact(tokens)?)?),
            Some(Token::Symbol("<")) => QueryOperator::Below(number(&exact(tokens)?)?),
            Some(Token::Word(word)) if word == "in" => QueryOperator::In(set(tokens)?),
            Some(Token::Word(word)) if word == "notin" => QueryOperator::NotIn(set(tokens)?),
            other => {
                let found = shown(other);
                return Err(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt"));
            }
        },
    };
    if let QueryOperator::In(values) | QueryOperator::NotIn(values) = &operator {
        for (index, value) in values.iter().enumerate() {
            let odd = names::value(value);
            if !odd.is_empty() {
                return Err(format!("values[{index}][{key}]: Invalid value: {value:?}: {}", odd.join("; ")));
            }
        }
    }
    Ok(QueryRequirement { key, operator })
}

fn exact(tokens: &mut Peekable<IntoIter<Token>>) -> Result<String, String> {
    match tokens.peek() {
        None | Some(Token::Symbol(",")) => Ok(String::new()),
        Some(_) => match tokens.next() {
            Some(Token::Word(word)) => Ok(word),
            other => Err(format!("found '{}', expected: identifier", shown(other))),
        },
    }
}

fn set(tokens: &mut Peekable<IntoIter<Token>>) -> Result<BTreeSet<String>, String> {
    if tokens.next_if_eq(&Token::Symbol("(")).is_none() {
        return Err(format!("found '{}' expected: '('", shown(tokens.next())));
    }
    if !matches!(tokens.peek(), Some(Token::Word(_) | Token::Symbol("," | ")"))) {
        return Err(format!("found '{}', expected: ',', ')' or identifier", shown(tokens.next())));
    }
    let mut values = BTreeSet::new();
    let mut pending = String::new();
    loop {
        match tokens.next() {
            Some(Token::Word(word)) => {
                pending = word;
                if !matches!(tokens.peek(), Some(Token::Symbol("," | ")"))) {
                    return Err(format!("found '{}', expected: ',' or ')'", shown(tokens.next())));
                }
            }
            Some(Token::Symbol(",")) => _ = values.insert(std::mem::take(&mut pending)),
            Some(Token::Symbol(")")) => {
                values.insert(pending);
                return Ok(values);
            }
            other => return Err(format!("found '{}', expected: ',', or identifier", shown(other))),
        }
    }
}

fn number(text: &str) -> Result<i64, String> {
    let because = "for 'Gt', 'Lt' operators, the value must be an integer";
    text.parse().map_err(|_| format!("values[0]: Invalid value: {text:?}: {because}"))
}

fn shown(token: Option<Token>) -> String {
    match token {
        Some(Token::Word(word)) => word,
        Some(Token::Symbol(symbol)) => symbol.to_owned(),
        None => String::new(),
    }
}

fn tokens(text: &str) -> Vec<Token> {
    const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];
    let mut rest = text.trim_start();
    let mut found = Vec::new();
    while !rest.is_empty() {
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            found.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
        } else {
            let end = rest.find(|c: char| c.is_whitespace() || "=!(),><".contains(c)).unwrap_or(rest.len());
            found.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn matches(selector: &str, labels: &Value) -> bool {
        LabelQuery::parse(selector).unwrap().matches(labels)
    }

    #[test]
    fn each_operator_chooses_as_the_api_says() {
        let labels = json!({"zone": "a", "rank": "3", "empty": ""});
        for selector in [
            "",
            "zone",
            "zone=a",
            "zone==a",
            "zone!=b",
            "absent!=b",
            "!absent",
            "zone in (a,b)",
            "zone notin (c)",
            "absent notin (c)",
            "rank>2",
            "rank<4",
            "empty=",
            "zone in (a, b),!absent",
        ] {
            assert!(matches(selector, &labels), "{selector}");
        }
        for selector in
            ["zone=b", "absent", "!zone", "zone in (b)", "zone notin (a)", "rank>3", "zone=a,absent"]
        {
            assert!(!matches(selector, &labels), "{selector}");
        }
    }

    #[test]
    fn a_malformed_selector_is_told_in_the_servers_words() {
        for (selector, expected) in [
            ("a===b", "unable to parse requirement: found '=', expected: identifier"),
            ("a in b", "unable to parse requirement: found 'b' expected: '('"),
            ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
            ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("!", "unable to parse requirement: found '', expected: identifier"),
            (
                "a>x",
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value \
                 must be an integer",
            ),
            (
                "/a=b",
                "unable to parse requirement: <nil>: Invalid value: \"/a\": prefix part must be non-empty",
            ),
            ("=b", "found '=', expected: !, identifier, or 'end of string'"),
            ("a=b,", "found '', expected: identifier after ','"),
            ("a=b,,c", "found ',', expected: identifier after ','"),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ] {
            assert_eq!(LabelQuery::parse(selector).unwrap_err(), expected, "{selector}");
        }
        let odd = LabelQuery::parse("a in (b,$)").unwrap_err();
        assert!(
            odd.starts_with("unable to parse requirement: values[0][a]: Invalid value: \"$\": a valid label")
        );
    }
}
