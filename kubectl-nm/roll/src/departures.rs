//! Which nodes have left a roll, and which will return.
//!
//! A maintenance that disappears was deleted by somebody, so that its node leaves the roll, or was garbage-collected with its
//! `Node` object. Its owner reference to the node tells the two apart.

use std::borrow::Cow;
use std::sync::Arc;

use nm_core::maintenance::status;

use crate::absence::{AbsentNode, Departure, KnownMaintenance, LeftNode, has_lost_node, is_absent};
use crate::observed::Observed;
use crate::record::{Roll, RollNode, RollRecord, SETTINGS, STATE, Step};

/// For how many absent nodes a roll waits; any further one that it has not begun leaves it. The record of each has about a
/// kilobyte, and all of them are in one annotation.
const MAX_AWAITED: usize = 50;

/// A roll with its absent nodes.
pub(super) struct Departures<'a> {
    pub(super) roll: Cow<'a, Roll>,
    /// Whether it is not known yet why some node has no maintenance.
    pub(super) are_pending: bool,
}

/// Notes in the next record which nodes are absent, which have returned and which have left.
pub(super) fn note<'a>(roll: &'a Roll, observed: &Observed, next: &mut RollRecord) -> Departures<'a> {
    let has_maintenance = |name: &str| roll.node(name).is_some_and(|node| !node.is_leaving());
    let is_accounted_for =
        |next: &RollRecord, name: &str| has_maintenance(name) || is_accounted_for(next, name);
    next.absent.retain(|absent| !has_maintenance(absent.node()));
    let is_aborted = observed.aborted.is_some() || next.aborted.is_some();
    let mut are_pending = false;
    for (name, known) in observed.known.iter().filter(|(_, known)| known.lost.is_some()) {
        next.gone.note(name, status(&known.object).pod_counts.gone.into());
        if is_accounted_for(next, name) {
            continue;
        }
        let uid_now = observed.nodes.get(name).map(|view| view.uid.as_str());
        if has_lost_node(&known.object, uid_now) {
            let absent = AbsentNode::of(&known.object, &[STATE, SETTINGS]);
            let is_worked_on = of_absent(&absent).is_some_and(|node| node.is_worked_on());
            if is_worked_on || next.absent.len() < MAX_AWAITED {
                next.absent.push(absent);
            } else {
                next.left.push(LeftNode { node: name.clone(), why: Departure::NodeDeleted });
            }
        } else if is_aborted {
            // The nodes that are not finished leave it anyway.
        } else if roll.node(name).is_some() || !known.is_deleted_alone(uid_now, observed.now) {
            are_pending = true;
        } else {
            next.left.push(LeftNode { node: name.clone(), why: Departure::MaintenanceDeleted });
        }
    }
    // Their maintenances were deleted while no program ran the roll.
    let unseen = next.nodes.iter().filter(|name| !observed.known.contains_key(*name));
    let unseen: Vec<String> = unseen.filter(|name| !is_accounted_for(next, name)).cloned().collect();
    let left = unseen.into_iter().filter(|name| roll.node(name).is_none());
    next.left.extend(left.map(|node| LeftNode { node, why: Departure::MaintenanceDeleted }));
    if is_aborted {
        // Only nodes whose action has begun are finished.
        next.absent.retain(|absent| of_absent(absent).is_some_and(|node| node.is_worked_on()));
    }
    Departures { roll: with_absent(roll, next), are_pending }
}

/// How many nodes were under way and have lost their maintenances, while it is not known yet whether their `Node` objects are gone as
/// well: those are absent then, and still under way.
pub(super) fn unexplained(roll: &Roll, observed: &Observed, next: &RollRecord) -> usize {
    let is_unexplained = |(name, known): &(&String, &KnownMaintenance)| {
        let uid_now = observed.nodes.get(*name).map(|view| view.uid.as_str());
        let was_under_way =
            || RollNode::of(&known.object).is_ok_and(|node| node.record.step != Step::Planned);
        known.lost.is_some()
            && roll.node(name).is_none()
            && !is_accounted_for(next, name)
            && !known.is_deleted_alone(uid_now, observed.now)
            && was_under_way()
    };
    observed.known.iter().filter(is_unexplained).count()
}

/// Whether the record has what becomes of a node.
fn is_accounted_for(record: &RollRecord, name: &str) -> bool {
    let is = |list: &[String]| list.iter().any(|other| other == name);
    is(&record.released)
        || is(&record.skipped)
        || record.left.iter().any(|left| left.node == name)
        || is_absent(name, &record.absent)
}

/// The roll with its absent nodes in their places.
fn with_absent<'a>(roll: &'a Roll, next: &RollRecord) -> Cow<'a, Roll> {
    if next.absent.is_empty() {
        return Cow::Borrowed(roll);
    }
    let mut whole = roll.clone();
    whole.nodes.retain(|node| !is_absent(node.node(), &next.absent));
    whole.nodes.extend(next.absent.iter().filter_map(of_absent));
    whole.nodes.sort_by_key(|node| node.record.position);
    Cow::Owned(whole)
}

/// The node as it was when its maintenance disappeared.
fn of_absent(absent: &AbsentNode) -> Option<RollNode> {
    RollNode::of(&Arc::new(absent.maintenance.clone())).ok()
}
