//! `additionalPrinterColumns`, with the JSON paths that are used in practice.

use serde_json::{Value, json};

/// One column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    /// Heading.
    pub(crate) name: String,
    /// `string`, `integer`, `date`, …
    pub(crate) kind: String,
    /// `OpenAPI` format, or empty.
    pub(crate) format: String,
    /// Description.
    pub(crate) description: String,
    /// Above 0 only in wide output.
    pub(crate) priority: i64,
    path: Vec<JsonPathStep>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum JsonPathStep {
    Field(String),
    Index(usize),
    All,
    /// `[?(@.field=="value")]`
    Where(String, String),
}

/// The columns of a version; name and age if it has none.
pub(crate) fn read(columns: &Value) -> Vec<Column> {
    let Some(columns) = columns.as_array().filter(|columns| !columns.is_empty()) else {
        let age = json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"});
        return vec![column(&age)];
    };
    columns.iter().map(column).collect()
}

fn column(column: &Value) -> Column {
    let text = |field: &str| column[field].as_str().unwrap_or_default().to_owned();
    let path = text("jsonPath");
    let description = match text("description") {
        none if none.is_empty() => {
            format!("Custom resource definition column (in JSONPath format): {path}")
        }
        some => some,
    };
    Column {
        name: text("name"),
        kind: text("type"),
        format: text("format"),
        description,
        priority: column["priority"].as_i64().unwrap_or_default(),
        path: steps(&path),
    }
}

/// The value of the column; null if there is none.
pub(crate) fn cell(column: &Column, object: &Value) -> Value {
    let mut found = vec![object];
    for step in &column.path {
        found = found.into_iter().flat_map(|value| follow(step, value)).collect();
    }
    match found.as_slice() {
        [] => Value::Null,
        [Value::String(text)] => json!(text),
        [value] if column.kind != "string" || value.is_null() => (*value).clone(),
        [value] => json!(value.to_string()),
        [first, ..] => (*first).clone(),
    }
}

fn follow<'a>(step: &JsonPathStep, value: &'a Value) -> Vec<&'a Value> {
    match step {
        JsonPathStep::Field(name) => value.get(name).into_iter().collect(),
        JsonPathStep::Index(index) => value.get(index).into_iter().collect(),
        JsonPathStep::All => match value {
            Value::Array(items) => items.iter().collect(),
            Value::Object(fields) => fields.values().collect(),
            _ => Vec::new(),
        },
        JsonPathStep::Where(field, wanted) => {
            value.as_array().into_iter().flatten().filter(|item| item[field] == **wanted).collect()
        }
    }
}

fn steps(path: &str) -> Vec<JsonPathStep> {
    let mut rest = path.trim().trim_start_matches('{').trim_end_matches('}').trim_start_matches('$');
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix('[') {
            let end = closing(inside);
            steps.extend(bracket(&inside[..end]));
            rest = inside.get(end + 1..).unwrap_or_default();
        } else {
            rest = rest.trim_start_matches('.');
            let (name, after) = identifier(rest);
            match name.as_str() {
                "" => {}
                "*" => steps.push(JsonPathStep::All),
                _ => steps.push(JsonPathStep::Field(name)),
            }
            if after.len() == rest.len() {
                break;
            }
            rest = after;
        }
    }
    steps
}

/// A name up to the next `.` or `[`; a backslash escapes the next character.
fn identifier(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '.' | '[' => return (name, &text[at..]),
            '\\' => name.extend(characters.next().map(|(_, next)| next)),
            other => name.push(other),
        }
    }
    (name, "")
}

fn closing(text: &str) -> usize {
    let mut quote = None;
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (None, ']') => return at,
            (None, '"' | '\'') => quote = Some(character),
            (Some(open), close) if open == close => quote = None,
            _ => {}
        }
    }
    text.len()
}

fn bracket(text: &str) -> Option<JsonPathStep> {
    let unquoted = |text: &str| text.trim().trim_matches(['"', '\'']).to_owned();
    if text == "*" {
        return Some(JsonPathStep::All);
    }
    if let Ok(index) = text.parse() {
        return Some(JsonPathStep::Index(index));
    }
    if let Some(condition) = text.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        let (field, value) = condition.split_once("==")?;
        let field = field.trim().trim_start_matches("@.").to_owned();
        return Some(JsonPathStep::Where(field, unquoted(value)));
    }
    let name = unquoted(text).replace("\\.", ".");
    Some(JsonPathStep::Field(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_reach_what_they_name() {
        let object = json!({"spec": {"nodeName": "n", "count": 3},
            "metadata": {"labels": {"a.b/c": "label"}},
            "status": {"conditions": [{"type": "A", "status": "x"}, {"type": "Ready", "status": "True"}]}});
        for (path, expected) in [
            (".spec.nodeName", json!("n")),
            ("{.spec.nodeName}", json!("n")),
            (".spec.absent", Value::Null),
            (".spec.count", json!("3")),
            (".status.conditions[?(@.type==\"Ready\")].status", json!("True")),
            (".status.conditions[?(@.type=='Ready')].status", json!("True")),
            (".status.conditions[0].type", json!("A")),
            (".status.conditions[*].type", json!("A")),
            (".metadata.labels.a\\.b/c", json!("label")),
            (".metadata.labels['a.b/c']", json!("label")),
        ] {
            let read = column(&json!({"name": "C", "type": "string", "jsonPath": path}));
            assert_eq!(cell(&read, &object), expected, "{path}");
        }
    }
}
