//! Values as a program in Go writes them: what scripts that read kubectl expect.

use serde_json::{Number, Value};

use crate::terminal::text::escaped;

/// A value as a template prints it: plain where it is simple, JSON where it has parts.
pub(super) fn print(value: &Value) -> String {
    match value {
        Value::Null => String::from("null"),
        Value::Array(_) | Value::Object(_) => json(value),
        simple => sprint(simple),
    }
}

/// A value as `fmt.Sprint` writes it, which is how it stands in a column.
pub(crate) fn sprint(value: &Value) -> String {
    match value {
        Value::Null => String::from("<nil>"),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => number_text(number),
        Value::String(text) => text.clone(),
        Value::Array(elements) => {
            format!("[{}]", elements.iter().map(sprint).collect::<Vec<_>>().join(" "))
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(key, _)| *key);
            let members = members.iter().map(|(key, value)| format!("{key}:{}", sprint(value)));
            format!("map[{}]", members.collect::<Vec<_>>().join(" "))
        }
    }
}

/// What Go calls the type of a value that was read from JSON.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// JSON on one line, as Go writes it: with sorted keys, and without characters that HTML gives a meaning.
fn json(value: &Value) -> String {
    match value {
        Value::Array(elements) => format!("[{}]", elements.iter().map(json).collect::<Vec<_>>().join(",")),
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(key, _)| *key);
            let members = members.iter().map(|(key, value)| format!("{}:{}", quoted(key), json(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
        Value::String(text) => quoted(text),
        Value::Number(number) => number_text(number),
        Value::Null | Value::Bool(_) => value.to_string(),
    }
}

fn quoted(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in Value::from(text).to_string().chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => safe.extend(escaped(c)),
            _ => safe.push(c),
        }
    }
    safe
}

/// Whole numbers as they are; others as `%v` writes them: the shortest digits, with an exponent where there are many.
fn number_text(number: &Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else { return number.to_string() };
    let size = float.abs();
    if float == 0.0 || (1e-4..1e21).contains(&size) {
        return float.to_string();
    }
    let text = format!("{float:e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => text,
    }
}
