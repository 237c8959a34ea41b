//! The invariants of one node over all its versions: what a maintenance found is recorded and restored, and marks of others
//! stay.
//!
//! Each version is a write of people, whose resourceVersions are known, or of somebody else: the reconciler, the
//! controller that taints nodes, which are cordoned or whose kubelet does not report, and the kubelet.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use nm_shared::api::names::{PLANNED_TAINT, UNDO_ANNOTATION, UNSCHEDULABLE_TAINT};
use nm_tests::invariants::{
    NodeMarks, Violation, node_is_as_before, others_are_untouched, undo_record_is_truthful,
};
use serde_json::Value;

use crate::history::Version;

/// The taints of a node whose kubelet does not report.
const LOST: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// The node without what its controller writes of its kubelet.
fn whatever_its_kubelet(node: &Node) -> Node {
    let mut node = node.clone();
    if let Some(taints) = node.spec.as_mut().and_then(|spec| spec.taints.as_mut()) {
        taints.retain(|taint| !LOST.contains(&taint.key.as_str()));
    }
    node
}

/// The undo record of a node in maintenance. A plan and what is left of an old record do not count.
fn record(node: &Node) -> Option<&String> {
    let text = node.metadata.annotations.as_ref()?.get(UNDO_ANNOTATION)?;
    let over = |record: Value| record["restored"] == true || record["planned"] == true;
    (!serde_json::from_str(text).is_ok_and(over)).then_some(text)
}

/// Whether the node has the undo record of a maintenance that has begun.
pub(crate) fn has_record(node: &Node) -> bool {
    record(node).is_some()
}

/// Whether the node has the undo record of a plan.
pub(crate) fn is_planned(node: &Node) -> bool {
    let text = node.metadata.annotations.as_ref().and_then(|all| all.get(UNDO_ANNOTATION));
    let record = text.and_then(|text| serde_json::from_str::<Value>(text).ok());
    record.is_some_and(|record| record["planned"] == true)
}

/// The marks without the taint of a plan, which no node has before its maintenance.
fn marks(node: &Node) -> NodeMarks {
    let mut marks = NodeMarks::of(node);
    marks.taints.retain(|taint| !taint.starts_with(PLANNED_TAINT));
    marks
}

/// The marks that only maintenances and people change: a controller taints cordoned nodes.
fn own_marks(node: &Node) -> NodeMarks {
    let mut marks = marks(node);
    marks.taints.retain(|taint| !taint.starts_with(UNSCHEDULABLE_TAINT));
    marks
}

/// Whether the node is in maintenance, by its versions so far.
enum State {
    InService,
    InMaintenance {
        /// The marks that it had before: none if somebody removed the record, so that all marks count as ours.
        before: NodeMarks,
    },
    /// Versions are missing.
    Unknown,
}

/// What a node was through.
#[derive(Debug, Default)]
pub(crate) struct Story {
    /// How many times a maintenance began on it, or several one after the other.
    pub(crate) maintenances: usize,
    /// Why it is still in maintenance, by its last version.
    pub(crate) in_maintenance: Option<String>,
    pub(crate) violations: Vec<String>,
}

/// Checks the versions of a node. People wrote those with the resourceVersions `by_people`.
pub(crate) fn check(versions: &[Version<Node>], by_people: &HashSet<String>) -> Story {
    let mut story = Story::default();
    let mut state = State::InService;
    let mut last: Option<&Node> = None;
    for version in versions {
        let Some(node) = &version.object else {
            (state, last) = (State::Unknown, None);
            continue;
        };
        let earlier = last.replace(node);
        let Some(earlier) = earlier.filter(|_| !version.is_after_gap) else {
            state = if has_record(node) { State::Unknown } else { State::InService };
            continue;
        };
        let is_by_people = node.resource_version().is_some_and(|version| by_people.contains(&version));
        let mut add = |result: Result<(), Violation>| {
            let rv = node.resource_version().unwrap_or_default();
            let at = |it: Violation| format!("{} at resourceVersion {rv}: {it}", node.name_any());
            story.violations.extend(result.err().map(at));
        };
        if !is_by_people {
            add(others_are_untouched(&whatever_its_kubelet(node), &whatever_its_kubelet(earlier)));
        }
        state = match state {
            State::InService | State::Unknown if has_record(node) => {
                let is_known = matches!(state, State::InService);
                story.maintenances += 1;
                let before = marks(earlier);
                if is_known {
                    add(undo_record_is_truthful(node, &before));
                    State::InMaintenance { before }
                } else {
                    State::Unknown
                }
            }
            State::InService => {
                if !is_by_people && own_marks(node) != own_marks(earlier) {
                    add(Err(Violation {
                        invariant: "marks of others are untouched",
                        facts: format!(
                            "{:?} after {:?}, without a record",
                            own_marks(node),
                            own_marks(earlier)
                        ),
                    }));
                }
                State::InService
            }
            State::Unknown => State::InService,
            State::InMaintenance { before } => match (has_record(node), is_by_people) {
                (true, _) => {
                    add(undo_record_is_truthful(node, &before));
                    State::InMaintenance { before }
                }
                (false, true) if has_record(earlier) => State::InMaintenance { before: NodeMarks::none() },
                (false, false) if has_record(earlier) => {
                    add(is_restored(node, &before));
                    State::InService
                }
                (false, false) if own_marks(node) == NodeMarks::none() => {
                    add(is_restored(node, &before));
                    State::InService
                }
                (false, _) => State::InMaintenance { before },
            },
        };
    }
    if let (State::InMaintenance { before }, Some(node)) = (state, last) {
        let marks = NodeMarks::of(node);
        story.in_maintenance = Some(format!("{}: {marks:?} instead of {before:?}", node.name_any()));
    }
    story
}

fn is_restored(node: &Node, before: &NodeMarks) -> Result<(), Violation> {
    let mut node = node.clone();
    // The taint of another plan is no mark of this maintenance.
    if let Some(taints) = node.spec.as_mut().and_then(|spec| spec.taints.as_mut()) {
        taints.retain(|taint| taint.key != PLANNED_TAINT);
    }
    // A new plan may have its record already.
    if record(&node).is_none()
        && let Some(annotations) = &mut node.metadata.annotations
    {
        annotations.remove(UNDO_ANNOTATION);
    }
    node_is_as_before(&node, before)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    /// The versions of a node: whether people wrote it, whether it is cordoned and what its record says of that.
    fn story(versions: &[(bool, bool, Option<bool>)]) -> Story {
        let mut by_people = HashSet::new();
        let version = |(index, (by_person, cordoned, record_made)): (usize, &(bool, bool, Option<bool>))| {
            let record =
                |made| json!({"madeUnschedulable": made, "addedTaints": [], "labelsBefore": {}}).to_string();
            let annotations = record_made.map_or(json!({}), |made| json!({UNDO_ANNOTATION: record(made)}));
            if *by_person {
                by_people.insert(index.to_string());
            }
            let node = serde_json::from_value(json!({
                "metadata": {"name": "n", "resourceVersion": index.to_string(), "annotations": annotations},
                "spec": {"unschedulable": cordoned},
            }));
            Version { at: Timestamp::UNIX_EPOCH, object: Some(node.unwrap()), is_after_gap: index == 0 }
        };
        let versions: Vec<Version<Node>> = versions.iter().enumerate().map(version).collect();
        check(&versions, &by_people)
    }

    const FREE: (bool, bool, Option<bool>) = (false, false, None);
    const BEGUN: (bool, bool, Option<bool>) = (false, true, Some(true));

    #[test]
    fn a_node_that_returns_to_its_state_is_fine() {
        let check = |versions: &[(bool, bool, Option<bool>)]| {
            let story = story(versions);
            assert_eq!((story.violations, story.in_maintenance), (Vec::new(), None), "{versions:?}");
        };
        check(&[FREE, BEGUN, FREE]);
        // Somebody had cordoned it.
        check(&[FREE, (true, true, None), (false, true, Some(false)), (false, true, None)]);
        // Somebody removes the record, and the node is returned with or without another one.
        check(&[FREE, BEGUN, (true, true, None), FREE]);
        check(&[FREE, BEGUN, (true, true, None), BEGUN, FREE]);
    }

    #[test]
    fn a_wrong_record_and_a_wrong_return_are_found() {
        let check = |versions: &[(bool, bool, Option<bool>)], why: &str| {
            assert_eq!(story(versions).violations.len(), 1, "{why}");
        };
        check(&[FREE, (false, true, Some(false))], "our own cordon is recorded as there before");
        check(&[FREE, BEGUN, (false, true, None)], "the node stays cordoned");
        check(&[FREE, (false, true, None)], "a cordon without a record");
        let by_hand = (true, true, None);
        check(&[FREE, by_hand, (false, true, Some(false)), FREE], "the cordon of somebody else is lifted");
        let stripped = story(&[FREE, BEGUN, (true, true, None)]);
        assert!(stripped.in_maintenance.is_some(), "somebody removed the record, and the marks are left");
    }
}
