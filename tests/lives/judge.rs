//! What each node has to be, from everything that was written to it.
//!
//! Before a maintenance marks a node, the node is as people left it. What they change on the marks of a maintenance, while it
//! lasts, is undone with it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube_sandbox::store::Change;
use nm_shared::Group;
use nm_shared::api::names::{PLANNED_TAINT, UNDO_ANNOTATION, UNSCHEDULABLE_TAINT};
use nm_shared::drain::node_patch;
use nm_tests::invariants::{
    NodeMarks, Violation, node_is_as_before, others_are_untouched, undo_record_is_truthful,
};
use serde_json::Value;

use crate::history::node_of;

/// What is known of a node.
struct Known {
    /// The marks of people.
    before: NodeMarks,
    /// Whether the marks of a maintenance are on it.
    is_marked: bool,
    /// Whether nobody can know any more what was there before: people have removed the record and the taint.
    is_unknown: bool,
    /// The last version that was recorded.
    version: Option<String>,
}

/// What the changes have shown.
pub(crate) struct Verdict {
    pub(crate) violations: Vec<String>,
    /// How often a node was returned to service.
    pub(crate) returned: usize,
    /// What each node has to be without a maintenance; none if nothing knows it.
    pub(crate) before: BTreeMap<String, Option<NodeMarks>>,
}

/// Judges all changes of nodes. The revisions of people are `by_person`.
pub(crate) fn judge(
    changes: &[Change],
    by_person: &[u64],
    at_first: &BTreeMap<String, NodeMarks>,
) -> Verdict {
    let known = at_first.iter().map(|(name, marks)| (name.clone(), Known::new(marks.clone())));
    let mut nodes: BTreeMap<String, Known> = known.collect();
    let (mut violations, mut returned) = (Vec::new(), 0);
    for change in changes {
        let (before, after) =
            (change.before.as_ref().map(|it| node_of(it)), change.after.as_ref().map(|it| node_of(it)));
        let Some(name) = after.as_ref().or(before.as_ref()).and_then(|node| node.metadata.name.clone())
        else {
            continue;
        };
        match (before, after) {
            (_, None) => {
                nodes.remove(&name);
            }
            (None, Some(after)) => {
                nodes.insert(name, Known::new(NodeMarks::of(&after)));
            }
            (Some(before), Some(after)) => {
                let known = nodes.entry(name).or_insert_with(|| Known::new(NodeMarks::of(&before)));
                // History that was dropped is not recorded.
                known.is_unknown |=
                    known.version.is_some() && known.version != before.metadata.resource_version;
                known.version.clone_from(&after.metadata.resource_version);
                if by_person.contains(&change.revision) {
                    known.changed_by_person(&before, &after);
                } else if is_by_reconciler(&before, &after) {
                    returned += usize::from(known.is_marked && !is_recorded(&after));
                    let result = known.changed_by_reconciler(&before, &after);
                    violations.extend(
                        result.err().map(|violation| format!("revision {}: {violation}", change.revision)),
                    );
                } else {
                    known.follow(&after);
                }
            }
        }
    }
    let before = nodes.into_iter().map(|(name, known)| (name, (!known.is_unknown).then_some(known.before)));
    Verdict { violations, returned, before: before.collect() }
}

impl Known {
    fn new(before: NodeMarks) -> Self {
        Self { before, is_marked: false, is_unknown: false, version: None }
    }

    /// Nodes in service are as people left them, also if a maintenance is planned.
    fn follow(&mut self, after: &Node) {
        if !self.is_marked || record(after).is_some_and(|record| record["planned"] == true) {
            self.before = NodeMarks::of(after);
            self.before.taints.retain(|taint| !taint.starts_with(PLANNED_TAINT));
        }
    }

    fn changed_by_person(&mut self, before: &Node, after: &Node) {
        self.follow(after);
        let (was, is) = (record_in_force(before), record_in_force(after));
        if self.is_marked && was.is_some() && is.is_none() {
            // A plan has changed nothing that can be told from what was there.
            self.is_unknown |= was.is_some_and(|record| record["planned"] == true);
            self.before = NodeMarks::none();
        }
        let has_evidence = is_recorded(after) || node_patch::has_drain_taint(after, Group::Medik8s);
        self.is_unknown |= self.is_marked && !has_evidence;
    }

    fn changed_by_reconciler(&mut self, before: &Node, after: &Node) -> Result<(), Violation> {
        others_are_untouched(after, before)?;
        if is_recorded(after) {
            self.is_marked = true;
            return if self.is_unknown { Ok(()) } else { undo_record_is_truthful(after, &self.before) };
        }
        if !std::mem::take(&mut self.is_marked) {
            return Ok(());
        }
        if std::mem::take(&mut self.is_unknown) {
            self.before = NodeMarks::of(after);
            return Ok(());
        }
        node_is_as_before(after, &self.before)
    }
}

fn record(node: &Node) -> Option<Value> {
    serde_json::from_str(node.metadata.annotations.as_ref()?.get(UNDO_ANNOTATION)?).ok()
}

fn record_in_force(node: &Node) -> Option<Value> {
    record(node).filter(|record| record["restored"] != true)
}

fn is_recorded(node: &Node) -> bool {
    record_in_force(node).is_some()
}

/// Controllers change the taint of a cordon, and the status.
fn is_by_reconciler(before: &Node, after: &Node) -> bool {
    let marks = |node: &Node| {
        let mut marks = NodeMarks::of(node);
        marks.taints.retain(|taint| !taint.starts_with(UNSCHEDULABLE_TAINT));
        (marks, record(node))
    };
    marks(before) != marks(after)
}
