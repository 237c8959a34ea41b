//! The fields of a pod that controllers remember.
//!
//! They remember every pod of a large cluster, so they do not keep whole pods.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::model::pod;

/// The summary of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts, as a pod's status gives them")]
pub(crate) struct PodSummary {
    /// Whether it is bound to a node.
    pub(crate) bound: bool,
    /// Whether its phase is Running.
    pub(crate) running: bool,
    /// Whether it has succeeded or failed.
    pub(crate) finished: bool,
    /// Whether it is Ready.
    pub(crate) ready: bool,
    /// Whether it is terminating.
    pub(crate) terminating: bool,
    /// When it was created.
    pub(crate) born: Option<Timestamp>,
    /// Its labels.
    pub(crate) labels: Arc<Value>,
    /// The owner reference of its controller, or null.
    pub(crate) controller: Arc<Value>,
}

impl PodSummary {
    /// The summary of a pod. It shares its labels and owner with a sibling where they are equal.
    pub(crate) fn of(pod: &Value, sibling: Option<&Self>) -> Self {
        let shared = |value: &Value, kept: Option<&Arc<Value>>| match kept {
            Some(kept) if **kept == *value => kept.clone(),
            _ => Arc::new(value.clone()),
        };
        let controller = pod::controller(pod).unwrap_or(&Value::Null);
        let born = pod["metadata"]["creationTimestamp"].as_str();
        Self {
            bound: pod::node(pod).is_some(),
            running: pod::phase(pod) == "Running",
            finished: pod::is_finished(pod),
            ready: pod::is_ready(pod),
            terminating: pod::is_terminating(pod),
            born: born.and_then(|born| born.parse().ok()),
            labels: shared(&pod["metadata"]["labels"], sibling.map(|sibling| &sibling.labels)),
            controller: shared(controller, sibling.map(|sibling| &sibling.controller)),
        }
    }

    /// Whether the pod counts as a replica: neither finished nor terminating.
    pub(crate) fn is_active(&self) -> bool {
        !self.finished && !self.terminating
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn siblings_share_what_they_have_in_common() {
        let pod = |app: &str| json!({"metadata": {"labels": {"app": app}}});
        let first = PodSummary::of(&pod("a"), None);
        assert!(Arc::ptr_eq(&PodSummary::of(&pod("a"), Some(&first)).labels, &first.labels));
        assert_eq!(*PodSummary::of(&pod("b"), Some(&first)).labels, json!({"app": "b"}));
    }
}
