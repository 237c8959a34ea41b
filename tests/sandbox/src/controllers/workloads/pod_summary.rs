//! The fields of a pod that controllers remember.
//!
//! They remember every pod of a large cluster, so they do not keep whole pods.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::model::{condition, pod};

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
    /// When it became Ready or unready.
    pub(crate) readiness_changed: Option<Timestamp>,
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
        let time = |text: &Value| text.as_str().and_then(|time| time.parse().ok());
        let readiness = condition::find(&pod["status"], "Ready");
        Self {
            bound: pod::node(pod).is_some(),
            running: pod::phase(pod) == "Running",
            finished: pod::is_finished(pod),
            ready: pod::is_ready(pod),
            terminating: pod::is_terminating(pod),
            readiness_changed: readiness.and_then(|readiness| time(&readiness["lastTransitionTime"])),
            born: time(&pod["metadata"]["creationTimestamp"]),
            labels: shared(&pod["metadata"]["labels"], sibling.map(|sibling| &sibling.labels)),
            controller: shared(controller, sibling.map(|sibling| &sibling.controller)),
        }
    }

    /// From when on it counts as available, if it stays Ready; none if it is not Ready.
    pub(crate) fn available_at(&self, min_ready: SignedDuration) -> Option<Timestamp> {
        let since = self.readiness_changed.unwrap_or(Timestamp::MIN);
        self.ready.then(|| since.saturating_add(min_ready).unwrap_or(Timestamp::MAX))
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
