//! What is true of every maintenance, whatever breaks: each invariant once, in words and in code, for all suites.
//!
//! An invariant is a function over a snapshot of the cluster or over the requests so far. It does no I/O and knows neither
//! the sandbox nor a client, so the model checker, the fault suites and the suites on real clusters use the same ones.
//!
//! **Safety**, at every moment:
//!
//! 1. *The undo record is truthful* ([`undo_record_is_truthful`]): a mark that a maintenance set is never recorded as having
//!    been there before, and a mark that was there before is never recorded as ours.
//! 2. *Marks of others are untouched* ([`others_are_untouched`]): labels, taints and annotations that no maintenance sets
//!    stay as their owners wrote them.
//! 3. *Only wanted pods are removed* ([`removal_is_wanted`]): the pod with the uid that was decided about, on a node whose
//!    maintenance has not ended. A replacement of the same name is another pod.
//! 4. *One removal at a time* ([`one_removal_at_a_time`]): no pod has two evictions in flight.
//! 5. *One writer* ([`one_writer`]): at most one replica writes at a time.
//! 6. *No pod is moved onto a node that is about to be drained*, hence no eviction before the cordon ([`cordoned_first`]).
//! 7. *The pods are counted before the first is evicted* ([`counted_first`]): a status is stored by then.
//!
//! **Liveness**, once harm stops and everything has settled:
//!
//! 8. *Every maintenance ends as its object says* ([`maintenance_has_settled`]): the one that has the node has drained it,
//!    another one of the same node has failed, and one that was deleted is gone.
//! 9. *A node without a maintenance is as it was* ([`node_is_as_before`]).
//!
//! "Before" is the moment before the first of the maintenances that follow each other without a gap. What people change by
//! hand on marks of a maintenance, while it lasts, is undone with it. If somebody removes the undo record, nothing knows any
//! more what was there before: the marks then count as ours, and the node becomes schedulable ([`NodeMarks::none`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use nm_shared::api::names::{
    AUTOSCALER_ANNOTATIONS, EXCLUDE_LABEL, LOAD_BALANCER_LABEL, PLANNED_TAINT, UNDO_ANNOTATION,
    UNSCHEDULABLE_TAINT,
};
use nm_shared::drain::node_patch::is_cordoned;
use nm_shared::gate::ownership;
use nm_shared::{Group, NodeMaintenance, Phase};
use serde_json::Value;

/// An invariant that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub invariant: &'static str,
    /// What contradicts it.
    pub facts: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "violated: {}: {}", self.invariant, self.facts)
    }
}

impl std::error::Error for Violation {}

/// Whether an invariant holds.
pub type Holds = Result<(), Violation>;

fn check(holds: bool, invariant: &'static str, facts: impl FnOnce() -> String) -> Holds {
    if holds { Ok(()) } else { Err(Violation { invariant, facts: facts() }) }
}

/// The marks on a node that a maintenance sets.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeMarks {
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// The taints of a cordon and of a maintenance, planned or begun, as `key:effect`.
    pub taints: BTreeSet<String>,
    /// The label that excludes the node from remediation.
    pub label: Option<String>,
    /// The label for load balancers and the annotations for autoscalers.
    pub neighbours: BTreeMap<String, String>,
}

impl NodeMarks {
    /// No marks: the node is in service.
    pub fn none() -> Self {
        Self::default()
    }

    /// The marks on `node`.
    pub fn of(node: &Node) -> Self {
        let spec = node.spec.as_ref();
        let labels = node.metadata.labels.as_ref();
        let all = labels.into_iter().chain(&node.metadata.annotations).flatten();
        Self {
            neighbours: all
                .filter(|(key, _)| is_of_neighbour(key))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
            unschedulable: spec.is_some_and(|spec| spec.unschedulable == Some(true)),
            taints: taints(node).filter(|taint| is_ours(taint)).map(id).collect(),
            label: labels.and_then(|labels| labels.get(EXCLUDE_LABEL)).cloned(),
        }
    }
}

/// The undo record says of every mark exactly whether it was there `before`. A node without a record says nothing, and one
/// whose record is only a remainder (`restored`) has been returned to service.
///
/// # Errors
/// The mark that is recorded wrongly.
pub fn undo_record_is_truthful(node: &Node, before: &NodeMarks) -> Holds {
    const INVARIANT: &str = "the undo record is truthful";
    let Some(text) = node.metadata.annotations.as_ref().and_then(|all| all.get(UNDO_ANNOTATION)) else {
        return Ok(());
    };
    let facts = || format!("record {text}, but before there was {before:?}");
    // A record that somebody has broken counts as one that reverts everything.
    let Ok(record) = serde_json::from_str::<Value>(text) else { return Ok(()) };
    if record["restored"] == true {
        return Ok(());
    }
    // A maintenance that is only planned adds a taint and leaves the node schedulable.
    let is_planned = record["planned"] == true;
    check(is_planned || record["madeUnschedulable"] != before.unschedulable, INVARIANT, facts)?;
    let added: BTreeSet<&str> =
        record["addedTaints"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    check(!before.taints.iter().any(|taint| added.contains(taint.as_str())), INVARIANT, facts)?;
    let recorded_or_before = |taint: &String| added.contains(taint.as_str()) || before.taints.contains(taint);
    check(NodeMarks::of(node).taints.iter().all(recorded_or_before), INVARIANT, facts)?;
    for recorded in [&record["labelsBefore"], &record["annotationsBefore"]] {
        for (key, value) in recorded.as_object().into_iter().flatten().filter(|(key, _)| is_of_neighbour(key))
        {
            check(value.as_str() == before.neighbours.get(key).map(String::as_str), INVARIANT, facts)?;
        }
    }
    match record["labelsBefore"].get(EXCLUDE_LABEL) {
        Some(label) => check(label.as_str() == before.label.as_deref(), INVARIANT, facts),
        None => Ok(()),
    }
}

/// The labels, taints and annotations that no maintenance sets are those of `expected`, a node as their owners wrote it.
///
/// # Errors
/// The difference.
pub fn others_are_untouched(node: &Node, expected: &Node) -> Holds {
    check(others(node) == others(expected), "marks of others are untouched", || {
        format!("{:?} instead of {:?}", others(node), others(expected))
    })
}

type Others = (BTreeMap<String, String>, BTreeMap<String, String>, BTreeSet<String>);

fn others(node: &Node) -> Others {
    let mut labels = node.metadata.labels.clone().unwrap_or_default();
    labels.retain(|key, _| key != EXCLUDE_LABEL && !is_of_neighbour(key));
    let mut annotations = node.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| key != UNDO_ANNOTATION && !is_of_neighbour(key));
    (labels, annotations, taints(node).filter(|taint| !is_ours(taint)).map(id).collect())
}

/// Whether a label or annotation is one that load balancers or autoscalers read.
fn is_of_neighbour(key: &str) -> bool {
    key == LOAD_BALANCER_LABEL || AUTOSCALER_ANNOTATIONS.contains(&key)
}

/// The removal of a pod, by eviction or deletion, as it took effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// The uid in its precondition.
    pub precondition: Option<String>,
    /// The uid of the pod that had the name at that moment.
    pub pod: String,
    /// Whether the pod's node had a maintenance. One that is being deleted has not ended before the object is gone.
    pub in_maintenance: bool,
}

/// A pod is removed only with its own uid as precondition, and only while its node is in maintenance.
///
/// # Errors
/// The removal.
pub fn removal_is_wanted(removal: &Removal) -> Holds {
    let is_right = removal.precondition.as_deref() == Some(removal.pod.as_str()) && removal.in_maintenance;
    check(is_right, "only wanted pods are removed", || format!("{removal:?}"))
}

/// A node is cordoned before its first pod is evicted.
///
/// # Errors
/// The marks of the node at the eviction.
pub fn cordoned_first(node: &Node) -> Holds {
    check(is_cordoned(node, Group::Medik8s), "no pod is evicted before the cordon", || {
        format!("{:?}", NodeMarks::of(node))
    })
}

/// The first status of a maintenance is stored before its first eviction, because it counts the pods.
///
/// # Errors
/// Whose eviction it was.
pub fn counted_first(has_status: bool, whose: &str) -> Holds {
    check(has_status, "the pods are counted before the first is evicted", || whose.to_owned())
}

/// A request and the time that it took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimedRequest {
    /// What must not overlap: the uid of the pod for removals, the replica for writes.
    pub key: String,
    /// When the server received it.
    pub began: Timestamp,
    /// When it was answered, or the connection was lost.
    pub ended: Timestamp,
}

/// No pod has two removals in flight; the key is the pod's uid.
///
/// # Errors
/// Two requests for the same pod that overlap.
pub fn one_removal_at_a_time(removals: &[TimedRequest]) -> Holds {
    let mut latest: HashMap<&str, &TimedRequest> = HashMap::new();
    for request in sorted(removals) {
        if let Some(before) = latest.insert(&request.key, request) {
            let facts = || format!("{before:?} and {request:?}");
            check(before.ended <= request.began, "one removal at a time", facts)?;
        }
    }
    Ok(())
}

/// The writes of one replica end before those of another begin, and a replica that lost its term writes nothing more in
/// it; the key is the term.
///
/// # Errors
/// A write of a term between those of another one.
pub fn one_writer(writes: &[TimedRequest]) -> Holds {
    let mut over: BTreeSet<&str> = BTreeSet::new();
    let mut current: Option<&TimedRequest> = None;
    for request in sorted(writes) {
        if let Some(before) = current.filter(|before| before.key != request.key) {
            over.insert(&before.key);
        }
        let facts = || format!("{request:?} after {current:?}");
        check(!over.contains(request.key.as_str()), "one writer", facts)?;
        current = Some(request);
    }
    Ok(())
}

fn sorted(requests: &[TimedRequest]) -> Vec<&TimedRequest> {
    let mut sorted: Vec<&TimedRequest> = requests.iter().collect();
    sorted.sort_by_key(|request| request.began);
    sorted
}

/// Of the maintenances of one node, none of which is being deleted by then, the oldest has drained the node, which is
/// cordoned and has no pod left that has to leave, and each other one has failed. Those that were deleted are gone.
///
/// # Errors
/// The first maintenance that has not ended as its object says.
pub fn maintenance_has_settled(node: Option<&Node>, all: &[&NodeMaintenance], pending_pods: usize) -> Holds {
    const INVARIANT: &str = "every maintenance ends as its object says";
    let holder = all.iter().min_by_key(|maintenance| ownership::age_rank(maintenance));
    for maintenance in all {
        let facts = |what: &str| format!("{what}: {:?} {:?}", maintenance.metadata, maintenance.status);
        check(maintenance.metadata.deletion_timestamp.is_none(), INVARIANT, || {
            facts("deleted and not gone")
        })?;
        let has_node = holder.is_some_and(|holder| holder.metadata.uid == maintenance.metadata.uid);
        let wanted = if has_node && node.is_some() { Phase::Succeeded } else { Phase::Failed };
        let phase = maintenance.status.as_ref().and_then(|status| status.phase);
        check(phase == Some(wanted), INVARIANT, || facts("wrong phase"))?;
    }
    if let (Some(node), Some(holder)) = (node, holder) {
        let facts = || format!("{:?}, {pending_pods} pods left, {:?}", NodeMarks::of(node), holder.status);
        check(is_cordoned(node, Group::Medik8s) && pending_pods == 0, INVARIANT, facts)?;
    }
    Ok(())
}

/// A node without a maintenance has exactly the marks of `before`, and no undo record that claims otherwise.
///
/// # Errors
/// The difference.
pub fn node_is_as_before(node: &Node, before: &NodeMarks) -> Holds {
    const INVARIANT: &str = "a node without a maintenance is as it was";
    let found = NodeMarks::of(node);
    check(found == *before, INVARIANT, || format!("{found:?} instead of {before:?}"))?;
    let record = node.metadata.annotations.as_ref().and_then(|all| all.get(UNDO_ANNOTATION));
    let is_over =
        |text: &String| serde_json::from_str::<Value>(text).is_ok_and(|record| record["restored"] == true);
    check(record.is_none_or(is_over), INVARIANT, || format!("the record {record:?} is left"))
}

fn taints(node: &Node) -> impl Iterator<Item = &Taint> {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten())
}

fn is_ours(taint: &Taint) -> bool {
    [UNSCHEDULABLE_TAINT, PLANNED_TAINT].contains(&taint.key.as_str())
        || Group::ALL.iter().any(|group| taint.key == group.drain_taint())
}

fn id(taint: &Taint) -> String {
    format!("{}:{}", taint.key, taint.effect)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(marks: &Value) -> Node {
        serde_json::from_value(marks.clone()).unwrap()
    }

    fn at(key: &str, began: i64, ended: i64) -> TimedRequest {
        let at = |second| Timestamp::from_second(second).unwrap();
        TimedRequest { key: key.to_owned(), began: at(began), ended: at(ended) }
    }

    #[test]
    fn a_mark_that_was_set_by_a_maintenance_is_not_recorded_as_there_before() {
        let record = |made: bool| {
            json!({"madeUnschedulable": made, "addedTaints": [], "labelsBefore": {}}).to_string()
        };
        let cordoned = |made| {
            node(
                &json!({"metadata": {"annotations": {UNDO_ANNOTATION: record(made)}}, "spec": {"unschedulable": true}}),
            )
        };
        assert!(undo_record_is_truthful(&cordoned(true), &NodeMarks::none()).is_ok());
        assert!(undo_record_is_truthful(&cordoned(false), &NodeMarks::none()).is_err());
        let before = NodeMarks { unschedulable: true, ..NodeMarks::none() };
        assert!(undo_record_is_truthful(&cordoned(false), &before).is_ok());
        assert!(undo_record_is_truthful(&cordoned(true), &before).is_err());
        let taint = json!({"taints": [{"key": "medik8s.io/drain", "effect": "NoSchedule"}]});
        let tainted =
            node(&json!({"metadata": {"annotations": {UNDO_ANNOTATION: record(true)}}, "spec": taint}));
        assert!(
            undo_record_is_truthful(&tainted, &NodeMarks::none()).is_err(),
            "a taint that is not recorded"
        );
    }

    #[test]
    fn what_others_set_is_compared_and_our_marks_are_not() {
        let expected = node(&json!({"metadata": {"labels": {"a": "b"}}}));
        let ours = node(
            &json!({"metadata": {"labels": {"a": "b", EXCLUDE_LABEL: "true"}}, "spec": {"unschedulable": true}}),
        );
        assert!(others_are_untouched(&ours, &expected).is_ok());
        assert!(others_are_untouched(&node(&json!({})), &expected).is_err());
        assert!(node_is_as_before(&ours, &NodeMarks::none()).is_err());
        assert!(node_is_as_before(&ours, &NodeMarks::of(&ours)).is_ok());
    }

    #[test]
    fn removals_of_one_pod_and_terms_do_not_overlap() {
        assert!(one_removal_at_a_time(&[at("a", 1, 3), at("b", 2, 4), at("a", 3, 5)]).is_ok());
        assert!(one_removal_at_a_time(&[at("a", 2, 4), at("a", 1, 3)]).is_err());
        assert!(one_writer(&[at("a", 1, 2), at("a", 3, 4), at("b", 5, 6)]).is_ok());
        assert!(one_writer(&[at("a", 1, 2), at("b", 3, 4), at("a", 5, 6)]).is_err());
    }
}
