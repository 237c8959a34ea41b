//! What maintenances leave behind when nobody is there to end them: nodes with their marks, and objects that do not go.
//!
//! nm-reconciler serves three groups of maintenances, and its record on a node is the same for all: only the whole of them
//! tells whether a node is wanted in maintenance.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use nm_shared::api::names::{EXCLUDE_LABEL, FINALIZER, UNDO_ANNOTATION};
use nm_shared::{Group, Grouped};
use serde_json::Value;

use crate::doctor::finding::{Finding, Known, fail, ok, unknown, warn};
use crate::maintenance::node;

/// A maintenance is ended within seconds; after this time something holds it.
const ENDS_WITHIN: SignedDuration = SignedDuration::from_mins(5);

/// How many are named.
const NAMED: usize = 10;

/// Nodes that say they are in maintenance, for which there is no maintenance.
pub(crate) fn nodes(nodes: &Known<Vec<Value>>, maintenances: &Known<Vec<Grouped>>) -> Finding {
    const CHECK: &str = "nodes";
    let (nodes, maintenances) = match (nodes, maintenances) {
        (Err(why), _) | (_, Err(why)) => return unknown(CHECK, why),
        (Ok(nodes), Ok(maintenances)) => (nodes, maintenances),
    };
    let wanted: BTreeSet<&str> = maintenances.iter().map(|object| node(object)).collect();
    let is_recorded = |found: &Value| found["metadata"]["annotations"].get(UNDO_ANNOTATION).is_some();
    let left = nodes.iter().filter(|found| !wanted.contains(name(found)));
    let (recorded, others): (Vec<&Value>, Vec<&Value>) = left.partition(|found| is_recorded(found));
    let unrecorded: Vec<&Value> = others.into_iter().filter(|found| has_drain_taint(found)).collect();
    let (drained, marked): (Vec<&Value>, Vec<&Value>) =
        recorded.into_iter().partition(|found| has_drain_taint(found));
    let (cordoned, noted): (Vec<&Value>, Vec<&Value>) =
        marked.into_iter().partition(|found| found["spec"]["unschedulable"] == true);
    let told = |nodes: &[&Value], what: &str| {
        let named: Vec<&str> = nodes.iter().take(NAMED).map(|found| name(found)).collect();
        format!("{} {what}: {}", nodes.len(), named.join(", "))
    };
    if let Some(first) = drained.first() {
        let remedy = format!(
            "`kubectl nm start {0}` and then `kubectl nm stop {0}` gives it back as it was",
            name(first)
        );
        return warn(CHECK, told(&drained, "cordoned by a maintenance that is gone"), remedy);
    }
    if let Some(first) = unrecorded.first() {
        let remedy = format!(
            "unless another operator has the node: `kubectl uncordon {0} && kubectl taint node {0} {1}- && kubectl label node {0} {EXCLUDE_LABEL}-`",
            name(first),
            drain_taint(first).unwrap_or_default(),
        );
        return warn(CHECK, told(&unrecorded, "tainted for a maintenance that does not exist"), remedy);
    }
    if let Some(first) = cordoned.first() {
        // Without the taint nobody can tell whose the cordon is, and no maintenance would believe the note.
        let remedy = format!(
            "unless somebody wants it so: `kubectl uncordon {0} && kubectl annotate node {0} {UNDO_ANNOTATION}-`",
            name(first)
        );
        return warn(CHECK, told(&cordoned, "cordoned, with a note of a maintenance that is gone"), remedy);
    }
    if let Some(first) = noted.first() {
        let remedy = format!("`kubectl annotate node {} {UNDO_ANNOTATION}-`", name(first));
        return warn(CHECK, told(&noted, "with a note of a maintenance that is gone"), remedy);
    }
    ok(CHECK, "none is cordoned by a maintenance that is gone")
}

fn name(found: &Value) -> &str {
    found["metadata"]["name"].as_str().unwrap_or_default()
}

fn has_drain_taint(found: &Value) -> bool {
    drain_taint(found).is_some()
}

fn drain_taint(found: &Value) -> Option<&'static str> {
    let taints = || found["spec"]["taints"].as_array().into_iter().flatten();
    let ours = Group::ALL.iter().map(|group| group.drain_taint());
    ours.into_iter().find(|key| taints().any(|taint| taint["key"] == *key))
}

/// Maintenances that are being deleted and are not gone.
pub(crate) fn maintenances(maintenances: &Known<Vec<Grouped>>, are_served: bool, now: Timestamp) -> Finding {
    const CHECK: &str = "maintenances";
    let maintenances = match maintenances {
        Err(why) => return unknown(CHECK, why),
        Ok(maintenances) => maintenances,
    };
    let since = |object: &Grouped| object.metadata.deletion_timestamp.as_ref().map(|at| at.0);
    let ending: Vec<&Grouped> = maintenances.iter().filter(|object| since(object).is_some()).collect();
    let names = |objects: &[&Grouped]| {
        objects.iter().take(NAMED).map(|object| object.maintenance.name_any()).collect::<Vec<_>>().join(", ")
    };
    let ours = |object: &&&Grouped| object.maintenance.finalizers().iter().any(|one| one == FINALIZER);
    let waiting: Vec<&Grouped> = ending.iter().filter(ours).copied().collect();
    if !waiting.is_empty() && !are_served {
        return fail(
            CHECK,
            format!("{} wait to be ended, and nobody leads: {}", waiting.len(), names(&waiting)),
            "get nm-reconciler to run: it gives their nodes back. Do not take the finalizer off: the nodes would stay cordoned",
        );
    }
    let long: Vec<&Grouped> = ending
        .into_iter()
        .filter(|object| since(object).is_some_and(|at| now.duration_since(at) > ENDS_WITHIN))
        .collect();
    if let Some(first) = long.first() {
        let resource = if first.group == Group::default() { "nm".into() } else { first.group.definition() };
        return warn(
            CHECK,
            format!("{} have been ending for more than 5 minutes: {}", long.len(), names(&long)),
            format!(
                "`kubectl get {resource} {} -o yaml` shows whose finalizers hold it",
                first.maintenance.name_any()
            ),
        );
    }
    ok(CHECK, format!("{} there, none of which is stuck ending", maintenances.len()))
}
