//! Table headings, and cells that several kinds share.

use jiff::Timestamp;
use serde_json::{Value, json};

/// The table of a built-in kind: its columns besides the name, and their cells.
pub(crate) struct Table {
    /// The first column of events is the time, and the name is shown in wide output.
    pub(crate) name_last: bool,
    pub(crate) columns: &'static [Heading],
    pub(crate) cells: fn(&Value, Timestamp) -> Vec<Value>,
}

/// A heading, its type, and whether it is shown only in wide output.
pub(crate) type Heading = (&'static str, &'static str, bool);

/// Shown always.
pub(crate) const fn text(name: &'static str) -> Heading {
    (name, "string", false)
}

/// A number that is shown always.
pub(crate) const fn count(name: &'static str) -> Heading {
    (name, "integer", false)
}

/// Shown in wide output.
pub(crate) const fn wide(name: &'static str) -> Heading {
    (name, "string", true)
}

/// The age of an object.
pub(crate) fn age(object: &Value, now: Timestamp) -> Value {
    match object["metadata"]["creationTimestamp"].as_str() {
        Some(created) => json!(since(created, now)),
        None => json!("<unknown>"),
    }
}

/// The age as kubectl prints it: two units for short ages, one for long ones.
pub(crate) fn since(time: &str, now: Timestamp) -> String {
    let Ok(time) = time.parse::<Timestamp>() else {
        return "<invalid>".into();
    };
    span(now.duration_since(time).as_secs())
}

fn span(seconds: i64) -> String {
    let (minute, hour, day, year) = (60, 3600, 86_400, 365 * 86_400);
    let two = |first: i64, unit: &str, rest: i64, smaller: &str| match rest {
        0 => format!("{first}{unit}"),
        rest => format!("{first}{unit}{rest}{smaller}"),
    };
    match seconds {
        ..-1 => "<invalid>".into(),
        -1..=0 => "0s".into(),
        1..120 => format!("{seconds}s"),
        120..600 => two(seconds / minute, "m", seconds % minute, "s"),
        600..10_800 => format!("{}m", seconds / minute),
        10_800..28_800 => two(seconds / hour, "h", seconds % hour / minute, "m"),
        28_800..172_800 => format!("{}h", seconds / hour),
        172_800..691_200 => two(seconds / day, "d", seconds % day / hour, "h"),
        691_200..63_072_000 => format!("{}d", seconds / day),
        63_072_000..252_288_000 => two(seconds / year, "y", seconds % year / day, "d"),
        _ => format!("{}y", seconds / year),
    }
}

/// A text, or a placeholder.
pub(crate) fn or(value: &Value, none: &str) -> Value {
    match value.as_str() {
        Some(text) if !text.is_empty() => json!(text),
        _ => json!(none),
    }
}

/// A number, or zero.
pub(crate) fn number(value: &Value) -> Value {
    json!(value.as_i64().unwrap_or_default())
}

/// A label selector as text.
pub(crate) fn selector(selector: &Value) -> Value {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let mut terms: Vec<String> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let values = expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let values = values.collect::<Vec<_>>().join(",");
        terms.push(match expression["operator"].as_str() {
            Some("In") => format!("{key} in ({values})"),
            Some("NotIn") => format!("{key} notin ({values})"),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    if terms.is_empty() { json!("<none>") } else { json!(terms.join(",")) }
}

/// The names and images of a pod template's containers.
pub(crate) fn containers(template: &Value) -> (Value, Value) {
    let listed = |field: &str| {
        let containers = template["spec"]["containers"].as_array().into_iter().flatten();
        let values: Vec<&str> = containers.filter_map(|container| container[field].as_str()).collect();
        json!(values.join(","))
    };
    (listed("name"), listed("image"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_told_in_the_units_that_matter() {
        for (seconds, expected) in [
            (0, "0s"),
            (7, "7s"),
            (119, "119s"),
            (120, "2m"),
            (330, "5m30s"),
            (660, "11m"),
            (10_860, "3h1m"),
            (86_400, "24h"),
            (180_000, "2d2h"),
            (864_000, "10d"),
            (-30, "<invalid>"),
        ] {
            assert_eq!(span(seconds), expected);
        }
    }
}
