//! Label selectors as users write them: `app=web,tier in (a, b),!canary`.
//!
//! The syntax is the same as in kubectl; the result is the type in the API.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// How many characters of an invalid part are repeated.
const MAX_QUOTED: usize = 80;

/// Parses a label selector. The empty one selects everything.
///
/// # Errors
///
/// Names the part that is invalid.
pub fn parse(text: &str) -> Result<LabelSelector, String> {
    let (mut equal, mut other) = (BTreeMap::new(), Vec::new());
    for part in parts(text)?.into_iter().map(str::trim) {
        let requirement = requirement(part)?;
        match (requirement.operator.as_str(), requirement.values.as_deref()) {
            // With two different values a key selects nothing, which only expressions can express.
            ("In", Some([value])) if !equal.contains_key(&requirement.key) => {
                equal.insert(requirement.key, value.clone());
            }
            _ => other.push(requirement),
        }
    }
    Ok(LabelSelector {
        match_labels: (!equal.is_empty()).then_some(equal),
        match_expressions: (!other.is_empty()).then_some(other),
    })
}

/// Splits at commas outside parentheses.
fn parts(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut begin, mut inside) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            '(' if !inside => inside = true,
            ')' if inside => inside = false,
            '(' | ')' => return Err(format!("{} has a parenthesis too many", quoted(text))),
            ',' if !inside => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(format!("{} lacks a parenthesis", quoted(text)));
    }
    if !text.trim().is_empty() {
        parts.push(&text[begin..]);
    }
    Ok(parts)
}

fn requirement(part: &str) -> Result<LabelSelectorRequirement, String> {
    let unreadable =
        || format!("{} selects no labels; app=web, app!=web, app in (a,b), app and !app do", quoted(part));
    let made = |key: &str, operator: &str, values: Option<Vec<&str>>| {
        let (key, values) =
            (key.trim(), values.map(|values| values.into_iter().map(str::trim).collect::<Vec<_>>()));
        let fits = is_key(key) && values.iter().flatten().all(|value| is_value(value));
        let values = values.map(|values| values.into_iter().map(String::from).collect());
        let requirement =
            LabelSelectorRequirement { key: key.to_owned(), operator: operator.to_owned(), values };
        if fits { Ok(requirement) } else { Err(unreadable()) }
    };
    if let Some((head, values)) = part.strip_suffix(')').and_then(|part| part.split_once('(')) {
        let values = Some(values.split(',').collect());
        return match head.split_whitespace().collect::<Vec<_>>().as_slice() {
            [key, "in"] => made(key, "In", values),
            [key, "notin"] => made(key, "NotIn", values),
            _ => Err(unreadable()),
        };
    }
    if let Some((key, value)) = part.split_once("!=") {
        return made(key, "NotIn", Some(vec![value]));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return made(key, "In", Some(vec![value]));
    }
    match part.strip_prefix('!') {
        Some(key) => made(key, "DoesNotExist", None),
        None => made(part, "Exists", None),
    }
}

/// A part in quotes; of a long one, its beginning.
fn quoted(part: &str) -> String {
    match part.char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => format!("\"{}...\"", &part[..end]),
        None => format!("\"{part}\""),
    }
}

/// Whether a text is a valid label key: letters, digits and `-_.`, with an optional prefix and slash.
fn is_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    !name.is_empty()
        && is_value(name)
        && prefix.is_none_or(|prefix| !prefix.is_empty() && is_qualified(prefix))
}

/// Whether a label may have this value.
pub fn is_value(value: &str) -> bool {
    value.len() <= 63 && is_qualified(value)
}

fn is_qualified(value: &str) -> bool {
    let ends = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && ends(value.chars().next())
        && ends(value.chars().next_back())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn selectors_read_as_in_kubectl() {
        let expression = |key, operator, values: &[&str]| match values {
            [] => json!({"key": key, "operator": operator}),
            values => json!({"key": key, "operator": operator, "values": values}),
        };
        for (text, selector) in [
            ("", json!({})),
            ("app=web", json!({"matchLabels": {"app": "web"}})),
            ("app==web, tier = a", json!({"matchLabels": {"app": "web", "tier": "a"}})),
            ("app=", json!({"matchLabels": {"app": ""}})),
            ("app!=web", json!({"matchExpressions": [expression("app", "NotIn", &["web"])]})),
            ("tier in (a, b)", json!({"matchExpressions": [expression("tier", "In", &["a", "b"])]})),
            ("tier notin (a)", json!({"matchExpressions": [expression("tier", "NotIn", &["a"])]})),
            ("x.io/a", json!({"matchExpressions": [expression("x.io/a", "Exists", &[])]})),
            (
                "!a,b=c",
                json!({"matchLabels": {"b": "c"},
                "matchExpressions": [expression("a", "DoesNotExist", &[])]}),
            ),
            (
                "a=b,a=c",
                json!({"matchLabels": {"a": "b"}, "matchExpressions": [expression("a", "In", &["c"])]}),
            ),
        ] {
            let parsed: Value = serde_json::to_value(parse(text).unwrap()).unwrap();
            assert_eq!(parsed, selector, "{text}");
        }
    }

    #[test]
    fn an_invalid_selector_is_refused_with_the_invalid_part() {
        for (text, complaint) in [
            ("a=b,", "\"\" selects no labels"),
            ("a b", "\"a b\" selects no labels"),
            ("a=b=c", "\"a=b=c\" selects no labels"),
            ("a in b", "\"a in b\" selects no labels"),
            ("a within (b)", "\"a within (b)\" selects no labels"),
            ("a in (b", "\"a in (b\" lacks a parenthesis"),
            ("a in (b))", "\"a in (b))\" has a parenthesis too many"),
            ("=b", "\"=b\" selects no labels"),
            ("a/b/c", "\"a/b/c\" selects no labels"),
            ("a=-b", "\"a=-b\" selects no labels"),
            ("a>1", "\"a>1\" selects no labels"),
        ] {
            let said = parse(text).unwrap_err();
            assert!(said.starts_with(complaint), "{said}");
        }
        for long in [format!("a={}", "x".repeat(9_000)), format!("a in ({}", "x".repeat(9_000))] {
            let said = parse(&long).unwrap_err();
            assert!(said.len() < 200 && said.contains("xxx...\""), "{said}");
        }
    }
}
