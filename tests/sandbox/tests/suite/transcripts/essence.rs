//! What two clusters agree on: everything but names that are drawn, times that pass and addresses.
//!
//! What is each cluster's own is replaced and not removed, so that it has to be there, and nowhere else. Only
//! `managedFields` go, of which the recordings have none.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

/// An object or an answer without what is one cluster's own.
pub(crate) fn essence(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            // The eviction dates it.
            let is_mark = value["type"] == "DisruptionTarget";
            let clock = if is_mark { "lastTransitionTime" } else { "" };
            let fields = fields.iter().filter(|(name, _)| *name != "managedFields");
            fields.map(|(name, value)| (name.clone(), field(name, value, clock))).collect()
        }
        Value::Array(items) => items.iter().map(essence).collect(),
        Value::String(text) => quoted_object(text).unwrap_or_else(|| json!(nameless(text))),
        other => other.clone(),
    }
}

/// One field; `clock` names one more that the server's clock sets.
fn field(name: &str, value: &Value, clock: &str) -> Value {
    match (name, value.as_str()) {
        ("resourceVersion", Some(text)) if text.parse::<u64>().is_ok() => json!("<version>"),
        // Times that a request brought have to come back as they were.
        ("creationTimestamp" | "deletionTimestamp" | "lastPhaseTransitionTime", Some(text))
            if is_time(text) =>
        {
            json!("<time>")
        }
        (_, Some(text)) if name == clock && is_time(text) => json!("<time>"),
        ("serverAddress", Some(_)) => json!("<address>"),
        // Opaque: that it is there, and that it can be used, is what matters.
        ("continue", Some(text)) => json!(!text.is_empty()),
        // The sandbox leaves out the descriptions of columns of built-in kinds.
        ("columnDefinitions", _) => value.as_array().into_iter().flatten().map(undescribed).collect(),
        ("cells", _) => value.as_array().into_iter().flatten().map(cell).collect(),
        _ => essence(value),
    }
}

/// The definition of a column without its description.
fn undescribed(column: &Value) -> Value {
    let fields = column.as_object().into_iter().flatten().filter(|(name, _)| *name != "description");
    fields.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// A cell, with ages alike.
fn cell(value: &Value) -> Value {
    let age = |text: &str| text.ends_with('s') && text[..text.len() - 1].bytes().all(|b| b.is_ascii_digit());
    match value.as_str() {
        Some(text) if age(text) => json!("<age>"),
        _ => value.clone(),
    }
}

fn is_time(text: &str) -> bool {
    text.parse::<jiff::Timestamp>().is_ok()
}

/// A complaint that quotes a whole object, taken apart: what stands before, the object, and what stands after it.
fn quoted_object(text: &str) -> Option<Value> {
    const MARK: &str = "Invalid value: ";
    let start = text.find(MARK)? + MARK.len();
    let mut read = serde_json::Deserializer::from_str(&text[start..]).into_iter::<String>();
    let object: Value = serde_json::from_str(&read.next()?.ok()?).ok()?;
    object.as_object()?;
    let end = start + read.byte_offset();
    Some(json!([nameless(&text[..start]), essence(&object), nameless(&text[end..])]))
}

/// A text without uids and without the ends of generated names.
fn nameless(text: &str) -> String {
    static OWN: LazyLock<[(Regex, &str); 2]> = LazyLock::new(|| {
        [
            (Regex::new("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").unwrap(), "<uid>"),
            (Regex::new("\\bnm-[a-z0-9]{5}\\b").unwrap(), "nm-<suffix>"),
        ]
    });
    OWN.iter().fold(text.to_owned(), |text, (own, name)| own.replace_all(&text, *name).into_owned())
}
