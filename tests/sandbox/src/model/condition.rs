//! Conditions in an object's status. `lastTransitionTime` changes only when the condition's status changes.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::model::clock::metav1_time;

/// The condition with this type.
pub(crate) fn find<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = status["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)
}

/// Whether the condition with this type is `True`.
pub(crate) fn is_true(status: &Value, kind: &str) -> bool {
    find(status, kind).is_some_and(|condition| condition["status"] == "True")
}

/// Adds a condition, or replaces the one with the same type.
pub(crate) fn set(status: &mut Value, mut condition: Value, now: Timestamp) {
    if !status.is_object() {
        *status = json!({});
    }
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(conditions) = status["conditions"].as_array_mut() else {
        return;
    };
    let existing = conditions.iter_mut().find(|existing| existing["type"] == condition["type"]);
    condition["lastTransitionTime"] = match &existing {
        Some(existing)
            if existing["status"] == condition["status"] && existing["lastTransitionTime"].is_string() =>
        {
            existing["lastTransitionTime"].clone()
        }
        _ => json!(metav1_time(now)),
    };
    match existing {
        Some(existing) => *existing = condition,
        None => conditions.push(condition),
    }
}

/// Removes the condition with this type.
pub(crate) fn remove(status: &mut Value, kind: &str) {
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.retain(|condition| condition["type"] != kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_keeps_its_clock_until_its_status_changes() {
        let (early, late) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
        let mut status = Value::Null;
        set(&mut status, json!({"type": "Ready", "status": "False"}), early);
        set(&mut status, json!({"type": "Ready", "status": "False", "reason": "Why"}), late);
        let condition = find(&status, "Ready").unwrap();
        assert_eq!(condition["lastTransitionTime"], metav1_time(early));
        assert_eq!(condition["reason"], "Why");
        set(&mut status, json!({"type": "Ready", "status": "True"}), late);
        let condition = find(&status, "Ready").unwrap();
        assert_eq!(condition["lastTransitionTime"], metav1_time(late));
        assert!(is_true(&status, "Ready"));
    }
}
