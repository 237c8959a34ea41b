//! What is left over if no reconciler ends a maintenance: changed nodes, and maintenances that are not deleted.
//!
//! nm-reconciler serves three API groups, and its undo record on a node is the same for all. So a node is in maintenance if
//! any group has a maintenance of it.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use nm_shared::api::names::{EXCLUDE_LABEL, FINALIZER, UNDO_ANNOTATION};
use nm_shared::{Group, Grouped};
use serde_json::Value;

use crate::doctor::finding::{Fetched, Finding, fail, ok, unknown, warn};
use crate::maintenance::node;

/// Stopping a maintenance takes seconds. After this time something blocks it.
const STOP_TIMEOUT: SignedDuration = SignedDuration::from_mins(5);

const MAX_NAMES: usize = 10;

/// Nodes that are marked as in maintenance, without a maintenance.
pub(crate) fn nodes(nodes: &Fetched<Vec<Value>>, maintenances: &Fetched<Vec<Grouped>>) -> Finding {
    const CHECK: &str = "nodes";
    let (nodes, maintenances) = match (nodes, maintenances) {
        (Err(why), _) | (_, Err(why)) => return unknown(CHECK, why),
        (Ok(nodes), Ok(maintenances)) => (nodes, maintenances),
    };
    let in_maintenance: BTreeSet<&str> = maintenances.iter().map(|object| node(object)).collect();
    let is_recorded = |found: &Value| found["metadata"]["annotations"].get(UNDO_ANNOTATION).is_some();
    let left = nodes.iter().filter(|found| !in_maintenance.contains(name(found)));
    let (recorded, others): (Vec<&Value>, Vec<&Value>) = left.partition(|found| is_recorded(found));
    let unrecorded: Vec<&Value> = others.into_iter().filter(|found| has_drain_taint(found)).collect();
    let (drained, marked): (Vec<&Value>, Vec<&Value>) =
        recorded.into_iter().partition(|found| has_drain_taint(found));
    let (cordoned, recorded_only): (Vec<&Value>, Vec<&Value>) =
        marked.into_iter().partition(|found| found["spec"]["unschedulable"] == true);
    let list = |nodes: &[&Value], what: &str| {
        let named: Vec<&str> = nodes.iter().take(MAX_NAMES).map(|found| name(found)).collect();
        format!("{} {what}: {}", nodes.len(), named.join(", "))
    };
    if let Some(first) = drained.first() {
        let remedy = format!(
            "`kubectl nm start {0}` and then `kubectl nm stop {0}` restores its original state",
            name(first)
        );
        return warn(CHECK, list(&drained, "cordoned by a deleted maintenance"), remedy);
    }
    if let Some(first) = unrecorded.first() {
        let remedy = format!(
            "unless another operator uses the node: `kubectl uncordon {0} && kubectl taint node {0} {1}- && kubectl label node {0} {EXCLUDE_LABEL}-`",
            name(first),
            drain_taint(first).unwrap_or_default(),
        );
        return warn(CHECK, list(&unrecorded, "tainted without a maintenance"), remedy);
    }
    if let Some(first) = cordoned.first() {
        // Without the taint, the cordon may not be nm-reconciler's, which then ignores the undo record.
        let remedy = format!(
            "unless it is cordoned on purpose: `kubectl uncordon {0} && kubectl annotate node {0} {UNDO_ANNOTATION}-`",
            name(first)
        );
        return warn(
            CHECK,
            list(&cordoned, "cordoned, with the undo record of a deleted maintenance"),
            remedy,
        );
    }
    if let Some(first) = recorded_only.first() {
        let remedy = format!("`kubectl annotate node {} {UNDO_ANNOTATION}-`", name(first));
        return warn(CHECK, list(&recorded_only, "with the undo record of a deleted maintenance"), remedy);
    }
    ok(CHECK, "none is cordoned by a deleted maintenance")
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

/// Maintenances that stay in deletion.
pub(crate) fn maintenances(maintenances: &Fetched<Vec<Grouped>>, is_served: bool, now: Timestamp) -> Finding {
    const CHECK: &str = "maintenances";
    let maintenances = match maintenances {
        Err(why) => return unknown(CHECK, why),
        Ok(maintenances) => maintenances,
    };
    let since = |object: &Grouped| object.metadata.deletion_timestamp.as_ref().map(|at| at.0);
    let ending: Vec<&Grouped> = maintenances.iter().filter(|object| since(object).is_some()).collect();
    let names = |objects: &[&Grouped]| {
        objects
            .iter()
            .take(MAX_NAMES)
            .map(|object| object.maintenance.name_any())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let ours = |object: &&&Grouped| object.maintenance.finalizers().iter().any(|one| one == FINALIZER);
    let waiting: Vec<&Grouped> = ending.iter().filter(ours).copied().collect();
    if !waiting.is_empty() && !is_served {
        return fail(
            CHECK,
            format!("{} wait to be stopped, and there is no leader: {}", waiting.len(), names(&waiting)),
            "start nm-reconciler, which returns the nodes to service. Do not remove the finalizer: the nodes would stay cordoned",
        );
    }
    let long: Vec<&Grouped> = ending
        .into_iter()
        .filter(|object| since(object).is_some_and(|at| now.duration_since(at) > STOP_TIMEOUT))
        .collect();
    if let Some(first) = long.first() {
        let resource = if first.group == Group::default() { "nm".into() } else { first.group.definition() };
        return warn(
            CHECK,
            format!("{} have been stopping for more than 5 minutes: {}", long.len(), names(&long)),
            format!(
                "`kubectl get {resource} {} -o yaml` shows the finalizers that block it",
                first.maintenance.name_any()
            ),
        );
    }
    ok(CHECK, format!("{} in total, none of which is stuck stopping", maintenances.len()))
}
