//! Field selectors, such as `metadata.name=x,spec.nodeName!=y`, with the fields that each resource supports.

use serde_json::Value;

use crate::cluster::catalog::resource::Resource;
use crate::model::status_error::StatusError;

/// A field selector; the empty one matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector(Vec<Term>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    field: String,
    wanted: bool,
    value: String,
}

impl FieldSelector {
    /// Parses a selector for stored objects.
    ///
    /// # Errors
    /// 400 for a term without an operator or an unsupported field.
    pub(crate) fn parse(resource: &Resource, text: &str) -> Result<Self, StatusError> {
        let terms = terms(text).into_iter().filter(|term| !term.is_empty());
        terms
            .map(|term| {
                let (field, wanted, value) = split(term).ok_or_else(|| {
                    let because = format!("invalid selector: '{text}'; can't understand '{term}'");
                    StatusError::bad_request(because)
                })?;
                let value = unescaped(value).map_err(|because| {
                    StatusError::bad_request(format!("invalid field selector: {because}"))
                })?;
                let field = stored_field(resource, field);
                if !supported(resource, &field) {
                    return Err(StatusError::bad_request(unknown(resource, &field)));
                }
                Ok(Term { field, wanted, value })
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value that a field must have, for index lookups.
    pub(crate) fn exactly(&self, field: &str) -> Option<&str> {
        let term = self.0.iter().find(|term| term.field == field && term.wanted)?;
        Some(&term.value)
    }

    /// Whether it matches an object.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|term| (text_at(object, &term.field) == term.value) == term.wanted)
    }
}

/// The name that a selector requires.
pub(crate) fn only_name(text: &str) -> Option<&str> {
    let mut terms = text.split(',').filter_map(split);
    terms.find_map(|(field, wanted, value)| (wanted && field == "metadata.name").then_some(value))
}

/// The terms between unescaped commas.
fn terms(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// Splits a term at its first operator. Spaces belong to the operands.
fn split(term: &str) -> Option<(&str, bool, &str)> {
    let at = (0..term.len())
        .filter(|at| term.is_char_boundary(*at))
        .find(|at| term[*at..].starts_with('=') || term[*at..].starts_with("!="))?;
    let (field, rest) = term.split_at(at);
    let (wanted, operator) = match rest {
        rest if rest.starts_with("!=") => (false, 2),
        rest if rest.starts_with("==") => (true, 2),
        _ => (true, 1),
    };
    Some((field, wanted, &rest[operator..]))
}

/// Removes the backslashes of a value.
fn unescaped(value: &str) -> Result<String, String> {
    let mut plain = String::new();
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                other => {
                    let other = other.map(String::from).unwrap_or_default();
                    return Err(format!("invalid escape sequence: \\{other}"));
                }
            },
            ',' | '=' => return Err(format!("unescaped character in value: {}", u32::from(letter))),
            letter => plain.push(letter),
        }
    }
    Ok(plain)
}

/// The error for an unsupported field. Some resources have their own messages.
fn unknown(resource: &Resource, field: &str) -> String {
    match (resource.group(), resource.plural()) {
        ("batch", "jobs") => format!("field label {field:?} not supported for {}", resource.kind),
        ("", "pods" | "nodes" | "namespaces" | "secrets" | "events" | "services") | ("events.k8s.io", _) => {
            format!("field label not supported: {field}")
        }
        _ if resource.definition.is_some() => format!("field label not supported: {field}"),
        _ => {
            format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        }
    }
}

/// `events.k8s.io` names some fields differently from core events, which are stored.
fn stored_field(resource: &Resource, field: &str) -> String {
    if resource.group() != "events.k8s.io" {
        return field.to_owned();
    }
    match field {
        "reportingController" => "reportingComponent".to_owned(),
        _ => match field.strip_prefix("regarding.") {
            Some(rest) => format!("involvedObject.{rest}"),
            None => field.to_owned(),
        },
    }
}

fn supported(resource: &Resource, field: &str) -> bool {
    const EVENT: &[&str] = &[
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ];
    const POD: &[&str] = &[
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    ];
    // Resources without fields of their own accept `metadata.namespace` even if they are cluster-scoped.
    let plain = match (resource.group(), resource.plural()) {
        ("", "nodes" | "namespaces") => false,
        _ => resource.namespaced || resource.definition.is_none(),
    };
    if field == "metadata.name" || (field == "metadata.namespace" && plain) {
        return true;
    }
    if let Some(definition) = &resource.definition {
        return definition.selectable.iter().any(|known| known == field);
    }
    let known: &[&str] = match (resource.group(), resource.plural()) {
        ("", "pods") => POD,
        ("", "nodes") => &["spec.unschedulable"],
        ("", "namespaces") => &["status.phase"],
        ("", "secrets") => &["type"],
        ("" | "events.k8s.io", "events") => EVENT,
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("batch", "jobs") => &["status.successful"],
        _ => &[],
    };
    known.contains(&field)
}

/// The field as text; missing fields are empty, and missing booleans false.
fn text_at(object: &Value, field: &str) -> String {
    let value = match field {
        "source" => &object["source"]["component"],
        _ => field.split('.').fold(object, |value, key| &value[key]),
    };
    match value {
        Value::String(text) => text.clone(),
        Value::Null if matches!(field, "spec.unschedulable" | "spec.hostNetwork") => "false".into(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::catalog::resource::built_in;

    fn reported(plural: &str, text: &str) -> String {
        let known = built_in();
        let resource = known.iter().find(|resource| resource.plural() == plural).unwrap();
        FieldSelector::parse(resource, text).err().map_or_else(String::new, |refusal| refusal.message)
    }

    #[test]
    fn an_unsupported_field_selector_has_the_servers_error_message() {
        for (plural, selector, expected) in [
            ("pods", "spec.nodeName=,status.phase!=Running,metadata.name==a", ""),
            ("pods", r"metadata.name=a\,b", ""),
            ("pods", "spec.bogus=1", "field label not supported: spec.bogus"),
            ("pods", " metadata.name=a", "field label not supported:  metadata.name"),
            ("pods", "metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
            ("pods", "metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
            ("pods", r"metadata.name=a\x", r"invalid field selector: invalid escape sequence: \x"),
            ("jobs", "spec.bogus=1", "field label \"spec.bogus\" not supported for Job"),
            ("clusterroles", "metadata.namespace=a", ""),
            (
                "deployments",
                "spec.bogus=1",
                "\"spec.bogus\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            ),
        ] {
            assert_eq!(reported(plural, selector), expected, "{plural} {selector}");
        }
    }
}
