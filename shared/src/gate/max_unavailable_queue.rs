//! How many nodes may be unavailable at once, and the queue of the maintenances that wait for that.
//!
//! Each maintenance comes to the same result independently: waiting maintenances begin in the order of their creation as
//! far as the limit allows, so two that are decided at the same time never both take the last place. A maintenance that
//! cannot begin for another reason, by its status, is not in the queue: it would only block the others.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use k8s_openapi::api::core::v1::Node;

use crate::api::condition::{self, ConditionReason, ConditionType};
use crate::api::maintenance::NodeMaintenance;
use crate::api::status::{NodeMaintenanceStatus, QueuePosition};
use crate::cluster::node;
use crate::gate::ownership;

/// How many nodes may be unavailable at once: in maintenance or not Ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxUnavailable {
    /// A number of nodes.
    Nodes(usize),
    /// A percentage of all nodes, rounded down, but at least one node.
    Percent(usize),
}

impl MaxUnavailable {
    /// The limit for a cluster of `nodes` nodes.
    pub fn of(self, nodes: usize) -> usize {
        match self {
            Self::Nodes(limit) => limit,
            Self::Percent(percent) => (nodes * percent / 100).max(1),
        }
    }
}

/// An invalid limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a number of nodes of at least 1, or a percentage from 1% to 100%")]
pub struct InvalidLimit;

impl FromStr for MaxUnavailable {
    type Err = InvalidLimit;

    fn from_str(text: &str) -> Result<Self, InvalidLimit> {
        let number = |text: &str, most: usize| {
            let number = text.parse().ok().filter(|number| (1..=most).contains(number));
            number.ok_or(InvalidLimit)
        };
        match text.strip_suffix('%') {
            Some(percent) => number(percent, 100).map(Self::Percent),
            None => number(text, usize::MAX).map(Self::Nodes),
        }
    }
}

impl fmt::Display for MaxUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes(limit) => write!(f, "{limit}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// A maintenance in the queue, and what it waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    /// Its position.
    pub position: QueuePosition,
    /// Why it cannot begin now.
    pub reason: QueueReason,
}

/// Why a maintenance in the queue cannot begin now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueReason {
    /// Another control-plane node is in maintenance.
    ControlPlane,
    /// As many nodes as allowed are unavailable.
    Limit {
        /// How many nodes are unavailable.
        unavailable: usize,
        /// How many nodes there are.
        nodes: usize,
        /// How many may be unavailable, as it was specified.
        limit: MaxUnavailable,
    },
}

impl fmt::Display for Queued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let QueuePosition { position, length, .. } = self.position;
        write!(f, "position {position} of {length} in the queue: ")?;
        match self.reason {
            QueueReason::ControlPlane => f.write_str("only one control-plane node may be in maintenance"),
            QueueReason::Limit { unavailable, nodes, limit } => {
                write!(f, "{unavailable} of {nodes} nodes are unavailable and the limit is {limit}")
            }
        }
    }
}

/// The position of `maintenance` in the queue; none if it may begin.
///
/// `all` are the maintenances of the cluster, including this one. `at_work` says which have begun although their status
/// may not say so yet: a later one does not take their place, even if it sorts before them.
pub fn position<'a>(
    maintenance: &NodeMaintenance,
    all: impl IntoIterator<Item = &'a NodeMaintenance>,
    at_work: impl Fn(&NodeMaintenance) -> bool,
    nodes: &[impl AsRef<Node>],
    limit: MaxUnavailable,
) -> Option<Queued> {
    let has_begun = |maintenance: &NodeMaintenance| ownership::has_begun(maintenance) || at_work(maintenance);
    if has_begun(maintenance) {
        return None;
    }
    let all: Vec<&NodeMaintenance> = all.into_iter().collect();
    let node = |name: &str| nodes.iter().map(AsRef::as_ref).find(|node| node::name(node) == name);
    let is_control_plane = |name: &str| node(name).is_some_and(node::is_control_plane);
    let begun = || all.iter().filter(|other| has_begun(other)).map(|other| other.spec.node_name.as_str());
    let down = nodes.iter().map(AsRef::as_ref).filter(|node| !node::is_ready(node)).map(node::name);
    let mut unavailable: HashSet<&str> = down.chain(begun()).collect();
    let mut control_plane: HashSet<&str> = begun().filter(|name| is_control_plane(name)).collect();
    let allowed = limit.of(nodes.len());

    let mut waiting: Vec<&NodeMaintenance> =
        all.iter().copied().filter(|other| is_wanted(other) && !has_begun(other)).collect();
    waiting.sort_by_key(|other| ownership::age_rank(other));
    let is_this = |other: &NodeMaintenance| other.metadata.uid == maintenance.metadata.uid;
    let (mut length, mut found, mut seen) = (0, None, HashSet::new());
    for other in waiting.into_iter().filter(|other| node(&other.spec.node_name).is_some()) {
        let name = other.spec.node_name.as_str();
        // The oldest maintenance has the node: the others are duplicates, whatever it waits for.
        let is_oldest = seen.insert(name);
        if !(is_this(other) || (is_oldest && may_be_queued(other))) {
            continue;
        }
        let reason = if is_control_plane(name) && control_plane.iter().any(|other| *other != name) {
            QueueReason::ControlPlane
        } else if unavailable.contains(name) || unavailable.len() < allowed {
            if is_this(other) {
                return None;
            }
            unavailable.insert(name);
            control_plane.extend(is_control_plane(name).then_some(name));
            continue;
        } else {
            QueueReason::Limit { unavailable: unavailable.len(), nodes: nodes.len(), limit }
        };
        length += 1;
        if is_this(other) {
            found = Some((length, reason));
        }
    }
    let (position, reason) = found?;
    Some(Queued { position: QueuePosition { position, length, limit: count(allowed) }, reason })
}

fn count(nodes: usize) -> i32 {
    i32::try_from(nodes).unwrap_or(i32::MAX)
}

/// Whether a maintenance that has not begun may be in the queue, by its status. One without a status may begin with its
/// next reconcile.
pub fn may_be_queued(maintenance: &NodeMaintenance) -> bool {
    maintenance.status.as_ref().is_none_or(status_allows_queueing)
}

/// Whether a change of status may let others in the queue begin: the maintenance was at work or in the queue, and is no
/// longer.
pub fn frees_a_place(before: Option<&NodeMaintenanceStatus>, after: &NodeMaintenanceStatus) -> bool {
    let counts = |status: &NodeMaintenanceStatus| {
        status_allows_queueing(status) || condition::is_true(&status.conditions, ConditionType::Cordoned)
    };
    before.is_none_or(counts) && !counts(after)
}

/// What a maintenance waits for is the reason of its condition `Drained`. Without that condition it may be in the queue.
fn status_allows_queueing(status: &NodeMaintenanceStatus) -> bool {
    let drained = condition::find(&status.conditions, ConditionType::Drained);
    drained.is_none_or(|drained| drained.reason == ConditionReason::MaxUnavailable.as_str())
}

fn is_wanted(maintenance: &NodeMaintenance) -> bool {
    maintenance.metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    fn node(name: &str, ready: &str) -> Arc<Node> {
        let labels = if name.starts_with("cp") {
            json!({"node-role.kubernetes.io/control-plane": ""})
        } else {
            json!({})
        };
        let conditions = json!([{"type": "Ready", "status": ready}]);
        let node =
            json!({"metadata": {"name": name, "labels": labels}, "status": {"conditions": conditions}});
        Arc::new(serde_json::from_value(node).unwrap())
    }

    /// A maintenance of the node of the same name, created at that second. With a `+` it has begun; after a `:` is the
    /// reason for which it waits.
    fn maintenance(text: &str, second: usize) -> NodeMaintenance {
        let (text, reason) = text.split_once(':').unwrap_or((text, ""));
        let name = text.trim_end_matches('+');
        let at = format!("2026-01-01T00:00:{second:02}Z");
        let condition = |type_: &str, status: &str, reason: &str| json!({"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": at});
        let conditions = match (text.ends_with('+'), reason) {
            (true, _) => vec![condition("Cordoned", "True", ""), condition("Drained", "False", "Evicting")],
            (false, "") => vec![],
            (false, reason) => {
                vec![condition("Cordoned", "False", reason), condition("Drained", "False", reason)]
            }
        };
        serde_json::from_value(json!({
            "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
            "metadata": {"name": name, "uid": format!("{name} {second}"), "creationTimestamp": at},
            "spec": {"nodeName": name}, "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    /// Checks why each of these maintenances, oldest first, waits.
    fn check(maintenances: &[&str], limit: &str, expected: &[Option<&str>]) {
        let names = ["a", "b", "c", "d", "e", "f", "cp1", "cp2"];
        let mut nodes: Vec<Arc<Node>> = names.map(|name| node(name, "True")).to_vec();
        nodes.extend([node("down1", "False"), node("cp3", "Unknown")]);
        let all: Vec<NodeMaintenance> =
            maintenances.iter().enumerate().map(|(second, text)| maintenance(text, second)).collect();
        let limit = limit.parse().unwrap();
        for (maintenance, expected) in all.iter().zip(expected) {
            let found = position(maintenance, all.iter().rev(), |_| false, &nodes, limit);
            assert_eq!(
                found.map(|queued| queued.to_string()).as_deref(),
                *expected,
                "{maintenances:?}: {:?}",
                maintenance.metadata.name
            );
        }
    }

    /// The sentence of a maintenance in the queue while `unavailable` of 10 nodes are unavailable.
    fn queued(position: &str, unavailable: usize, limit: &str) -> String {
        format!(
            "position {position} in the queue: {unavailable} of 10 nodes are unavailable and the limit is {limit}"
        )
    }

    #[test]
    fn nodes_that_are_not_ready_count_and_maintenances_wait_in_the_order_of_their_creation() {
        let (first, second) = (queued("1 of 2", 4, "4"), queued("2 of 2", 4, "4"));
        check(&["a", "b", "c", "d"], "4", &[None, None, Some(&first), Some(&second)]);
        check(&["a+", "b+", "c", "d"], "40%", &[None, None, Some(&queued("1 of 2", 4, "40%"))]);
        check(&["a+", "b+", "down1", "c"], "4", &[None, None, None, Some(&queued("1 of 1", 4, "4"))]);
        check(&["a", "no-such-node", "b", "c"], "5", &[None, None, None, None]);
    }

    #[test]
    fn a_position_has_the_length_of_the_queue_and_the_limit_in_nodes() {
        let nodes = ["a", "b", "c", "d"].map(|name| node(name, "True"));
        let all = ["a", "b", "c"].map(|name| maintenance(name, 0));
        let half = "50%".parse().unwrap();
        let found = position(&all[2], &all, |_| false, &nodes, half).unwrap();
        assert_eq!(found.position, QueuePosition { position: 1, length: 1, limit: 2 });
    }

    #[test]
    fn control_plane_nodes_begin_one_at_a_time_and_block_no_others() {
        let one = Some("position 1 of 1 in the queue: only one control-plane node may be in maintenance");
        check(&["cp1+", "cp2", "a"], "9", &[None, one, None]);
        check(&["cp1", "cp2", "a"], "9", &[None, one, None]);
        check(&["cp1+", "cp3", "a"], "9", &[None, one, None]);
        check(&["cp3", "cp1", "a"], "9", &[None, one, None]);
    }

    #[test]
    fn a_maintenance_that_waits_for_something_else_takes_no_place_in_the_queue() {
        let only = queued("1 of 1", 3, "3");
        for held in ["LeaseHeld", "QuorumAtRisk", "LeaseLost", "DuplicateMaintenance", "MissingRights"] {
            check(&[&format!("a:{held}"), "b", "c"], "3", &[None, None, Some(&only)]);
        }
        let (first, second) = (queued("1 of 2", 3, "3"), queued("2 of 2", 3, "3"));
        check(&["a:MaxUnavailable", "b", "c"], "3", &[None, Some(&first), Some(&second)]);
    }

    #[test]
    fn a_duplicate_takes_no_place_in_the_queue() {
        let at = |position: &str| Some(queued(position, 3, "3"));
        let expected = [None, at("1 of 2"), at("2 of 3"), at("2 of 2")];
        check(&["a+", "b", "b", "c"], "3", &expected.each_ref().map(Option::as_deref));
        check(&["a:LeaseHeld", "a", "b"], "3", &[None, None, None]);
    }

    #[test]
    fn a_maintenance_that_leaves_the_queue_or_stops_working_frees_a_place() {
        let status = |text: &str| maintenance(text, 0).status.unwrap();
        for (before, after, expected) in [
            ("a", "a:LeaseHeld", true),
            ("a", "a:MaxUnavailable", false),
            ("a", "a+", false),
            ("a:MaxUnavailable", "a:QuorumAtRisk", true),
            ("a:QuorumAtRisk", "a:LeaseHeld", false),
            ("a:LeaseHeld", "a:MaxUnavailable", false),
            ("a+", "a:LeaseLost", true),
        ] {
            assert_eq!(frees_a_place(Some(&status(before)), &status(after)), expected, "{before} {after}");
        }
        assert!(frees_a_place(None, &status("a:DuplicateMaintenance")));
    }

    #[test]
    fn a_stopping_maintenance_keeps_its_place_until_it_is_gone_unless_it_never_began() {
        let mut ending = maintenance("a+", 0);
        ending.metadata.deletion_timestamp = ending.metadata.creation_timestamp.clone();
        let waiting = maintenance("b", 1);
        let nodes = [node("a", "True"), node("b", "True")];
        let one = MaxUnavailable::Nodes(1);
        assert!(position(&waiting, [&ending, &waiting], |_| false, &nodes, one).is_some());
        let mut withdrawn = maintenance("a", 0);
        withdrawn.metadata.deletion_timestamp = withdrawn.metadata.creation_timestamp.clone();
        assert_eq!(position(&waiting, [&withdrawn, &waiting], |_| false, &nodes, one), None);
    }

    #[test]
    fn a_maintenance_at_work_keeps_its_place_if_another_of_an_earlier_name_is_created_in_the_same_second() {
        let (late, early) = (maintenance("b", 0), maintenance("a", 0));
        let nodes = [node("a", "True"), node("b", "True")];
        let position_of = |of: &NodeMaintenance, at_work: &str| {
            let is_at_work = |other: &NodeMaintenance| other.metadata.name.as_deref() == Some(at_work);
            position(of, [&late, &early], is_at_work, &nodes, MaxUnavailable::Nodes(1))
        };
        assert_eq!((position_of(&late, "b"), position_of(&early, "b").is_some()), (None, true));
        assert_eq!((position_of(&late, "").is_some(), position_of(&early, "")), (true, None));
    }

    #[test]
    fn a_limit_is_a_number_or_a_percentage_of_nodes() {
        for (text, expected) in [("3", Some(3)), ("25%", Some(2)), ("1%", Some(1)), ("100%", Some(10))] {
            assert_eq!(text.parse::<MaxUnavailable>().ok().map(|limit| limit.of(10)), expected, "{text}");
            assert_eq!(text.parse::<MaxUnavailable>().unwrap().to_string(), text);
        }
        for bad in ["", "0", "-1", "0%", "101%", "a", "1.5", "%"] {
            assert_eq!(bad.parse::<MaxUnavailable>(), Err(InvalidLimit), "{bad}");
        }
    }
}
