//! Conversion of events between `v1`, which is stored, and `events.k8s.io/v1`.

use serde_json::{Map, Value, json};

use crate::model::status_error::FieldError;

/// Fields that differ only in their names: core first.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// A stored event as `events.k8s.io/v1`.
pub(crate) fn to_new(event: &Value) -> Value {
    let mut renamed =
        rename(event, |field| RENAMED.iter().find(|(old, _)| *old == field).map(|(_, new)| *new));
    renamed["apiVersion"] = json!("events.k8s.io/v1");
    for (field, default) in [
        ("deprecatedSource", json!({})),
        ("deprecatedFirstTimestamp", Value::Null),
        ("deprecatedLastTimestamp", Value::Null),
    ] {
        if renamed[field].is_null() {
            renamed[field] = default;
        }
    }
    renamed
}

/// An `events.k8s.io/v1` event as it is stored.
pub(crate) fn to_core(event: &Value) -> Value {
    let mut renamed =
        rename(event, |field| RENAMED.iter().find(|(_, new)| *new == field).map(|(old, _)| *old));
    renamed["apiVersion"] = json!("v1");
    renamed
}

/// The maximum length of some fields in bytes, in the order in which the API server checks them.
const LIMITS: [(&str, usize); 4] =
    [("reportingInstance", 128), ("action", 128), ("reason", 128), ("message", 1024)];

/// All errors in an event, in its stored form.
pub(crate) fn check(event: &Value) -> Vec<FieldError> {
    let mut errors = check_namespace(event);
    errors.extend(check_lengths(event));
    errors
}

/// Events with an `eventTime` are new-style events in either API. The length of others is not limited.
fn check_lengths(event: &Value) -> impl Iterator<Item = FieldError> {
    let limits = if event["eventTime"].is_null() { &[][..] } else { &LIMITS };
    limits.iter().filter_map(|(field, most)| {
        let is_longer = event[field].as_str().is_some_and(|text| text.len() > *most);
        let because = format!("can have at most {most} characters");
        // The message does not contain the value.
        is_longer.then(|| FieldError::invalid(*field, &json!(""), &because))
    })
}

/// An event is in the namespace of the object that it is about, or in `default` for cluster-scoped objects.
fn check_namespace(event: &Value) -> Vec<FieldError> {
    let about = &event["involvedObject"]["namespace"];
    let own = event["metadata"]["namespace"].as_str().unwrap_or_default();
    let fits = match about.as_str().unwrap_or_default() {
        // For core events, the API server also allows kube-system, which nothing here needs.
        "" => own == "default",
        namespace => own == namespace,
    };
    if fits {
        return Vec::new();
    }
    let shown = json!(about.as_str().unwrap_or_default());
    vec![FieldError::invalid("involvedObject.namespace", &shown, "does not match event.namespace")]
}

fn rename(event: &Value, name: impl Fn(&str) -> Option<&'static str>) -> Value {
    let fields = event.as_object().into_iter().flatten();
    let renamed: Map<String, Value> =
        fields.map(|(field, value)| (name(field).unwrap_or(field).to_owned(), value.clone())).collect();
    Value::Object(renamed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_survives_the_way_there_and_back() {
        let new = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "note": "n", "reason": "R",
            "regarding": {"kind": "Node", "name": "a"}, "reportingController": "c",
            "deprecatedSource": {"component": "x"}, "deprecatedFirstTimestamp": "t", "deprecatedLastTimestamp": "t"});
        let core = to_core(&new);
        assert_eq!(core["message"], "n");
        assert_eq!(core["involvedObject"]["name"], "a");
        assert_eq!(to_new(&core), new);
    }

    #[test]
    fn an_event_on_a_cluster_scoped_object_lives_in_default() {
        let event =
            |own: &str, about: Value| json!({"metadata": {"namespace": own}, "involvedObject": about});
        assert!(check(&event("default", json!({"name": "n"}))).is_empty());
        assert!(check(&event("a", json!({"namespace": "a"}))).is_empty());
        assert_eq!(check(&event("a", json!({"name": "n"}))).len(), 1);
        assert_eq!(check(&event("a", json!({"namespace": "b"}))).len(), 1);
    }

    #[test]
    fn a_note_of_more_than_1024_bytes_is_refused_in_the_servers_words() {
        let event = |note: &str, time: Value| {
            let about = json!({"kind": "Node", "name": "n"});
            let metadata = json!({"namespace": "default"});
            json!({"metadata": metadata, "involvedObject": about, "message": note, "eventTime": time})
        };
        let reported = |event: &Value| {
            let errors = check(event).into_iter();
            errors.map(|error| format!("{}: {}", error.field, error.message)).collect::<Vec<_>>()
        };
        let now = || json!("2026-01-01T00:00:00.000000Z");
        let refused = ["message: Invalid value: \"\": can have at most 1024 characters"];
        assert_eq!(reported(&event(&"x".repeat(1025), now())), refused);
        assert_eq!(reported(&event(&"\u{e9}".repeat(513), now())), refused, "bytes are counted");
        assert!(reported(&event(&"\u{e9}".repeat(512), now())).is_empty());
        assert!(reported(&event(&"x".repeat(5000), Value::Null)).is_empty(), "older events have no limit");
        let mut wordy = event("", now());
        wordy["reason"] = json!("R".repeat(129));
        assert_eq!(reported(&wordy), ["reason: Invalid value: \"\": can have at most 128 characters"]);
    }
}
