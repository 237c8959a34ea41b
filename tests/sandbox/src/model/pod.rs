//! Fields of pods and other objects.

use serde_json::Value;

use crate::model::condition;

/// `status.phase`, by default Pending.
pub(crate) fn phase(pod: &Value) -> &str {
    pod["status"]["phase"].as_str().unwrap_or("Pending")
}

/// Whether the pod has succeeded or failed.
pub(crate) fn is_finished(pod: &Value) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether the pod's Ready condition is true.
pub(crate) fn is_ready(pod: &Value) -> bool {
    condition::is_true(&pod["status"], "Ready")
}

/// Whether the object has a deletionTimestamp.
pub(crate) fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Whether the pod counts as a replica: neither finished nor terminating.
pub(crate) fn is_active(pod: &Value) -> bool {
    !is_finished(pod) && !is_terminating(pod)
}

/// The node of the pod.
pub(crate) fn node(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty())
}

/// `metadata.uid`.
pub(crate) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// `metadata.name`.
pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// `metadata.namespace`.
pub(crate) fn namespace(object: &Value) -> &str {
    object["metadata"]["namespace"].as_str().unwrap_or_default()
}

/// An annotation's value.
pub(crate) fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][name].as_str()
}

/// `metadata.ownerReferences`.
pub(crate) fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten()
}

/// The owner reference with `controller: true`.
pub(crate) fn controller(object: &Value) -> Option<&Value> {
    owners(object).find(|owner| owner["controller"] == true)
}
