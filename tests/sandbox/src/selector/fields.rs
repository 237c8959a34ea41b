//! Field selectors: `metadata.name=x,spec.nodeName!=y`, over the few fields that each resource selects by.

use serde_json::Value;

use crate::refusal::Refusal;
use crate::resource::Resource;

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
    /// Reads a selector for objects as they are stored.
    ///
    /// # Errors
    /// 400 for a term without an operator and for a field that the resource does not select by.
    pub(crate) fn parse(resource: &Resource, text: &str) -> Result<Self, Refusal> {
        let terms = text.split(',').filter(|term| !term.is_empty());
        terms
            .map(|term| {
                let (field, wanted, value) = split(term).ok_or_else(|| {
                    let because = format!("invalid selector: '{term}'; can't understand '{term}'");
                    Refusal::bad_request(because)
                })?;
                let field = stored_field(resource, field);
                if !supported(resource, &field) {
                    return Err(Refusal::bad_request(format!("field label not supported: {field}")));
                }
                let value = value.to_owned();
                Ok(Term { field, wanted, value })
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The one value that a field must have, for lookups by index.
    pub(crate) fn exactly(&self, field: &str) -> Option<&str> {
        let term = self.0.iter().find(|term| term.field == field && term.wanted)?;
        Some(&term.value)
    }

    /// Whether it matches an object.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|term| (text_at(object, &term.field) == term.value) == term.wanted)
    }
}

/// The one name that a selector chooses, whatever it is of.
pub(crate) fn only_name(text: &str) -> Option<&str> {
    let mut terms = text.split(',').filter_map(split);
    terms.find_map(|(field, wanted, value)| (wanted && field == "metadata.name").then_some(value))
}

fn split(term: &str) -> Option<(&str, bool, &str)> {
    for (operator, wanted) in [("!=", false), ("==", true), ("=", true)] {
        if let Some((field, value)) = term.split_once(operator) {
            return Some((field.trim(), wanted, value.trim()));
        }
    }
    None
}

/// `events.k8s.io` calls some fields otherwise than the core group, in whose shape events are stored.
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
        "status.nominatedNodeName",
    ];
    if field == "metadata.name" || (field == "metadata.namespace" && resource.namespaced) {
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
        ("apps", "replicasets") => &["status.replicas"],
        ("batch", "jobs") => &["status.successful"],
        _ => &[],
    };
    known.contains(&field)
}

/// The field as text; what is missing is empty, and flags are false.
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
