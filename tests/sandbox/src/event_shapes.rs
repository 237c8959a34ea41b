//! Events in the two shapes of one thing: `v1` as it is stored, and `events.k8s.io/v1`.

use serde_json::{Map, Value, json};

use crate::refusal::FieldError;

/// Fields that differ in name alone: core first.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// A stored event as `events.k8s.io/v1` shows it.
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

/// An event lives with the object that it is about, and in `default` for objects outside namespaces.
pub(crate) fn check(event: &Value) -> Vec<FieldError> {
    let about = &event["involvedObject"]["namespace"];
    let own = event["metadata"]["namespace"].as_str().unwrap_or_default();
    let fits = match about.as_str().unwrap_or_default() {
        // The core shape lets kube-system through as well; nothing here needs that.
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
}
