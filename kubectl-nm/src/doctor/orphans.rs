//! What is left over if no reconciler ends a maintenance: changed nodes, and maintenances that are not deleted.
//!
//! nm-reconciler serves three API groups, and its undo record on a node is the same for all. So a node is in maintenance if
//! any group has a maintenance of it.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use nm_core::maintenance::{kept_by_roll, node};
use nm_shared::api::names::{EXCLUDE_LABEL, FINALIZER, PLANNED_TAINT, UNDO_ANNOTATION};
use nm_shared::gate::ownership;
use nm_shared::{Group, GroupedMaintenance};
use serde_json::Value;

use crate::doctor::finding::{Fetched, Finding, fail, ok, read, warn};

/// Stopping a maintenance takes seconds. After this time something blocks it.
const STOP_TIMEOUT: SignedDuration = SignedDuration::from_mins(5);

const MAX_NAMES: usize = 10;

/// Nodes that are marked as in maintenance, without a maintenance both before and after the nodes were read.
pub(crate) fn nodes(
    nodes: &Fetched<Vec<Value>>,
    earlier: &[GroupedMaintenance],
    maintenances: &Fetched<Vec<GroupedMaintenance>>,
) -> Fetched<Finding> {
    let (nodes, maintenances) = (read(nodes)?, read(maintenances)?);
    let in_maintenance: BTreeSet<&str> =
        earlier.iter().chain(maintenances).map(|object| node(object)).collect();
    let left = nodes.iter().filter(|found| !in_maintenance.contains(name(found)));
    let marked: Vec<(Mark, &Value)> = left.filter_map(|found| Some((Mark::of(found)?, found))).collect();
    // The worst kind first: one finding has one remedy.
    let Some((mark, first)) = marked.iter().min_by_key(|(mark, _)| *mark) else {
        return ok("none is cordoned by a deleted maintenance");
    };
    let alike: Vec<&str> =
        marked.iter().filter(|(other, _)| other == mark).map(|(_, found)| name(found)).collect();
    let first = name(first);
    let (what, remedy) = match mark {
        Mark::Drained => (
            "cordoned by a deleted maintenance",
            // A hook, because the pods that are on the node may have come to stay.
            format!(
                "`kubectl nm start {first} --hook keep=doctor`, which evicts nothing, and once it is cordoned, `kubectl nm stop \
                 {first}`, which restores its original state"
            ),
        ),
        Mark::Unrecorded(taint) => (
            "tainted without a maintenance",
            format!(
                "unless another operator uses the node: `kubectl uncordon {first} && kubectl taint node {first} {taint}- && \
                 kubectl label node {first} {EXCLUDE_LABEL}-`"
            ),
        ),
        Mark::Cordoned => (
            "cordoned, with the undo record of a deleted maintenance",
            format!(
                "unless it is cordoned on purpose: `kubectl uncordon {first} && \
                 kubectl annotate node {first} {UNDO_ANNOTATION}-`"
            ),
        ),
        Mark::Planned => (
            "tainted for a planned maintenance that was deleted",
            format!(
                "`kubectl taint node {first} {PLANNED_TAINT}- && kubectl annotate node {first} {UNDO_ANNOTATION}-`"
            ),
        ),
        Mark::Recorded => (
            "with the undo record of a deleted maintenance",
            format!("`kubectl annotate node {first} {UNDO_ANNOTATION}-`"),
        ),
    };
    let named = alike.iter().take(MAX_NAMES).copied().collect::<Vec<_>>().join(", ");
    warn(format!("{} {what}: {named}", alike.len()), remedy)
}

/// How a node is marked as in maintenance, the worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    /// With an undo record and a drain taint.
    Drained,
    /// With this drain taint alone.
    Unrecorded(&'static str),
    /// With an undo record, and cordoned. Without the taint, the cordon may not be nm-reconciler's, which then ignores the
    /// record.
    Cordoned,
    /// With an undo record, and the taint of a planned maintenance.
    Planned,
    /// With an undo record alone.
    Recorded,
}

impl Mark {
    fn of(node: &Value) -> Option<Self> {
        let taints = || node["spec"]["taints"].as_array().into_iter().flatten();
        let ours = Group::ALL.map(Group::drain_taint);
        let taint = ours.into_iter().find(|key| taints().any(|taint| taint["key"] == *key));
        let is_recorded = node["metadata"]["annotations"].get(UNDO_ANNOTATION).is_some();
        match taint {
            Some(_) if is_recorded => Some(Self::Drained),
            Some(taint) => Some(Self::Unrecorded(taint)),
            None if !is_recorded => None,
            None if taints().any(|taint| taint["key"] == PLANNED_TAINT) => Some(Self::Planned),
            None if node["spec"]["unschedulable"] == true => Some(Self::Cordoned),
            None => Some(Self::Recorded),
        }
    }
}

fn name(found: &Value) -> &str {
    found["metadata"]["name"].as_str().unwrap_or_default()
}

/// Maintenances that stay in deletion.
pub(crate) fn maintenances(
    maintenances: &Fetched<Vec<GroupedMaintenance>>,
    is_served: bool,
    now: Timestamp,
) -> Fetched<Finding> {
    let maintenances = read(maintenances)?;
    let since = |object: &GroupedMaintenance| object.metadata.deletion_timestamp.as_ref().map(|at| at.0);
    let names = |objects: &[&GroupedMaintenance]| {
        let names = objects.iter().take(MAX_NAMES).map(|object| object.maintenance.name_any());
        names.collect::<Vec<_>>().join(", ")
    };
    let is_waiting = |object: &&GroupedMaintenance| {
        let mut finalizers = object.maintenance.finalizers().iter();
        since(object).is_some() && finalizers.any(|one| one == FINALIZER)
    };
    let waiting: Vec<&GroupedMaintenance> = maintenances.iter().filter(is_waiting).collect();
    if !waiting.is_empty() && !is_served {
        return fail(
            format!(
                "{} {} to be stopped, and there is no leader: {}",
                waiting.len(),
                if waiting.len() == 1 { "waits" } else { "wait" },
                names(&waiting)
            ),
            "start nm-reconciler, which returns the nodes to service. Do not remove the finalizer: the nodes would stay cordoned",
        );
    }
    let is_late = |object: &&GroupedMaintenance| {
        // A roll keeps it for as long as it soaks.
        kept_by_roll(object).is_none()
            && since(object).is_some_and(|at| now.duration_since(at) > STOP_TIMEOUT)
    };
    let late: Vec<&GroupedMaintenance> = maintenances.iter().filter(is_late).collect();
    if let Some(first) = late.first() {
        let resource = if first.group == Group::default() { "nm".into() } else { first.group.definition() };
        let name = first.maintenance.name_any();
        return warn(
            format!("{} have been stopping for more than 5 minutes: {}", late.len(), names(&late)),
            format!("`kubectl get {resource} {name} -o yaml` shows the finalizers that block it"),
        );
    }
    let unowned: Vec<&GroupedMaintenance> =
        maintenances.iter().filter(|object| ownership::node_uid(object).is_some()).collect();
    let unowned = match unowned.as_slice() {
        [] => String::new(),
        unowned => format!(
            "; {} outlive their nodes, because the API server forbids owner references on them: {}",
            unowned.len(),
            names(unowned)
        ),
    };
    let total = format!("{} in total, none of which is blocked while stopping{unowned}", maintenances.len());
    let kept: Vec<&GroupedMaintenance> =
        maintenances.iter().filter(|object| kept_by_roll(object).is_some()).collect();
    // It ends with its roll, and whether somebody runs that is not known here.
    ok(match kept.first().and_then(|first| kept_by_roll(first)) {
        Some(roll) => format!(
            "{total}; {} kept by a roll after the node returned to service: {}; `kubectl nm roll status {roll}` shows who \
             runs it",
            kept.len(),
            names(&kept)
        ),
        None => total,
    })
}
