//! How many nodes may be unavailable at once, and the queue of the maintenances that wait for that.
//!
//! The queue depends on few facts of each maintenance ([`GateMember`]) and of each node ([`GateNode`]), and is computed for
//! all maintenances together. Waiting maintenances begin in the order of their creation as far as the limit allows, so two
//! that are decided at the same time never both take the last place. A maintenance that cannot begin for another reason,
//! by its status, is not in the queue: it would only block the others.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node;

use crate::api::condition::{self, ConditionReason, ConditionType};
use crate::api::group::Group;
use crate::api::maintenance::NodeMaintenance;
use crate::api::status::{NodeMaintenanceStatus, QueuePosition};
use crate::cluster::node;
use crate::drain::node_patch;
use crate::gate::ownership::{self, AgeRank};

/// A status in which only the numbers of the queue have changed is written this long after the last one, and later where
/// many change together. Otherwise each step of the queue would rewrite the status of all who wait.
pub const POSITION_WRITE_INTERVAL: SignedDuration = SignedDuration::from_secs(30);

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

/// How a status shows a position in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShownPosition {
    /// As it is.
    Current,
    /// With other numbers, but for the same reason.
    OldNumbers,
    /// Not, or for another reason.
    Otherwise,
}

impl Queued {
    /// How `status` shows this position.
    pub fn shown_in(&self, status: &NodeMaintenanceStatus) -> ShownPosition {
        let Some(position) = status.queue.filter(|_| status_allows_queueing(status)) else {
            return ShownPosition::Otherwise;
        };
        if position == self.position && status.last_error == self.to_string() {
            return ShownPosition::Current;
        }
        let for_control_plane = Self { position, reason: QueueReason::ControlPlane };
        let shows_control_plane = status.last_error == for_control_plane.to_string();
        if shows_control_plane == (self.reason == QueueReason::ControlPlane) {
            ShownPosition::OldNumbers
        } else {
            ShownPosition::Otherwise
        }
    }
}

/// What the gate depends on of one maintenance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateMember {
    /// The name of its node.
    pub node: String,
    /// Its order by age.
    pub rank: AgeRank,
    /// Whether it has begun by its status, or was let through since.
    has_begun: bool,
    /// Whether its status was pruned, so that only an undo record shows whether it has begun.
    may_have_begun: bool,
    is_wanted: bool,
    may_be_queued: bool,
}

/// What the gate depends on of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct GateNode {
    is_ready: bool,
    is_control_plane: bool,
    is_cordoned: bool,
    has_record: bool,
    /// The uid of the maintenance that the undo record names.
    record_owner: Option<String>,
}

impl From<&Node> for GateNode {
    fn from(node: &Node) -> Self {
        Self {
            is_ready: node::is_ready(node),
            is_control_plane: node::is_control_plane(node),
            is_cordoned: Group::ALL.into_iter().any(|group| node_patch::is_cordoned(node, group)),
            has_record: node_patch::record_belongs_to(node, ""),
            record_owner: node_patch::record_owner(node),
        }
    }
}

impl GateMember {
    /// What the gate depends on of `maintenance`. `at_work` says whether it was let through although its status may not
    /// say so yet: a later one does not take its place, even if it sorts before it.
    pub fn new(maintenance: &NodeMaintenance, at_work: bool) -> Self {
        Self {
            node: maintenance.spec.node_name.clone(),
            rank: ownership::age_rank(maintenance),
            has_begun: at_work || ownership::has_begun(maintenance),
            may_have_begun: ownership::may_be_recovered(maintenance),
            is_wanted: maintenance.metadata.deletion_timestamp.is_none(),
            may_be_queued: may_be_queued(maintenance),
        }
    }

    /// Whether it has begun on its `node`, whose marks show this also where the status does not.
    pub fn has_begun(&self, node: Option<&GateNode>) -> bool {
        let is_marked = |node: &GateNode| {
            node.is_cordoned
                || (node.record_owner.is_some() && node.record_owner == self.rank.uid)
                || (self.may_have_begun && node.has_record)
        };
        self.has_begun || node.is_some_and(is_marked)
    }

    /// Whether it goes before `other` if both begin together: the older one does, unless something else keeps it from
    /// beginning.
    pub fn goes_before(&self, other: &Self) -> bool {
        self.is_wanted && self.may_be_queued && self.rank < other.rank
    }
}

/// The maintenances that cannot begin now because of the limit, by uid.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Queue(HashMap<String, Queued>);

impl Queue {
    /// The queue of all maintenances of the cluster.
    ///
    /// A maintenance that is not in the queue by its status has the position that it would have if only it joined now.
    pub fn new<'a>(
        members: impl IntoIterator<Item = &'a GateMember>,
        nodes: &HashMap<String, GateNode>,
        limit: MaxUnavailable,
    ) -> Self {
        let (begun, mut waiting): (Vec<_>, Vec<_>) =
            members.into_iter().partition(|member| member.has_begun(nodes.get(&member.node)));
        let is_control_plane = |name: &str| nodes.get(name).is_some_and(|node| node.is_control_plane);
        let begun = || begun.iter().map(|member| member.node.as_str());
        let down = nodes.iter().filter(|(_, node)| !node.is_ready).map(|(name, _)| name.as_str());
        let mut unavailable: HashSet<&str> = down.chain(begun()).collect();
        let mut control_plane: HashSet<&str> = begun().filter(|name| is_control_plane(name)).collect();
        let allowed = limit.of(nodes.len());

        waiting.retain(|member| member.is_wanted && nodes.contains_key(&member.node));
        waiting.sort_by(|a, b| a.rank.cmp(&b.rank));
        let (mut length, mut found, mut seen) = (0, Vec::new(), HashSet::new());
        for member in waiting {
            let name = member.node.as_str();
            // The oldest maintenance has the node: the others are duplicates, whatever it waits for.
            let takes_place = seen.insert(name) && member.may_be_queued;
            let reason = if is_control_plane(name) && control_plane.iter().any(|other| *other != name) {
                QueueReason::ControlPlane
            } else if unavailable.contains(name) || unavailable.len() < allowed {
                if takes_place {
                    unavailable.insert(name);
                    control_plane.extend(is_control_plane(name).then_some(name));
                }
                continue;
            } else {
                QueueReason::Limit { unavailable: unavailable.len(), nodes: nodes.len(), limit }
            };
            found.push((member, reason, length + 1, takes_place));
            length += i32::from(takes_place);
        }
        let queued = found.into_iter().map(|(member, reason, position, takes_place)| {
            let length = length + i32::from(!takes_place);
            let position = QueuePosition { position, length, limit: count(allowed) };
            (member.rank.uid.clone().unwrap_or_default(), Queued { position, reason })
        });
        Self(queued.collect())
    }

    /// The position of the maintenance with this uid; none if it may begin.
    pub fn get(&self, uid: &str) -> Option<&Queued> {
        self.0.get(uid)
    }

    /// How many maintenances wait.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether every maintenance may begin.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn count(nodes: usize) -> i32 {
    i32::try_from(nodes).unwrap_or(i32::MAX)
}

/// Whether a maintenance that has not begun may be in the queue, by its status. One without a status may begin with its
/// next reconcile.
pub fn may_be_queued(maintenance: &NodeMaintenance) -> bool {
    maintenance.status.as_ref().is_none_or(status_allows_queueing)
}

/// What a maintenance waits for is the reason of its condition `Drained`. Without that condition it may be in the queue.
fn status_allows_queueing(status: &NodeMaintenanceStatus) -> bool {
    let drained = condition::find(&status.conditions, ConditionType::Drained);
    drained.is_none_or(|drained| drained.reason == ConditionReason::MaxUnavailable.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names::UNDO_ANNOTATION;
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

    /// The position of `maintenance` among `all`.
    fn position<'a>(
        maintenance: &NodeMaintenance,
        all: impl IntoIterator<Item = &'a NodeMaintenance>,
        at_work: impl Fn(&NodeMaintenance) -> bool,
        nodes: &[Arc<Node>],
        limit: MaxUnavailable,
    ) -> Option<Queued> {
        let members: Vec<GateMember> =
            all.into_iter().map(|other| GateMember::new(other, at_work(other))).collect();
        let nodes = nodes.iter().map(|node| (node::name(node).to_owned(), GateNode::from(&**node))).collect();
        Queue::new(&members, &nodes, limit).get(ownership::uid(maintenance)).cloned()
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
    fn a_change_that_moves_no_one_in_the_queue_changes_no_member() {
        let member = |text: &str| GateMember::new(&maintenance(text, 0), false);
        for (before, after, expected) in [
            ("a", "a:LeaseHeld", true),
            ("a", "a:MaxUnavailable", false),
            ("a", "a+", true),
            ("a:MaxUnavailable", "a:QuorumAtRisk", true),
            ("a:QuorumAtRisk", "a:LeaseHeld", false),
            ("a:LeaseHeld", "a:MaxUnavailable", true),
            ("a+", "a:LeaseLost", true),
            ("a", "a:DuplicateMaintenance", true),
        ] {
            assert_eq!(member(before) != member(after), expected, "{before} {after}");
        }
        let mut drained = maintenance("a+", 0);
        drained.status.as_mut().unwrap().drain_progress = 50;
        assert_eq!(GateMember::new(&drained, true), member("a+"));
    }

    #[test]
    fn a_node_with_marks_or_an_undo_record_is_taken_whatever_the_status_says() {
        let uid = "a 0";
        let with_record = |owner: &str| {
            let record = json!({"maintenance": owner, "madeUnschedulable": true}).to_string();
            let metadata = json!({"name": "a", "annotations": {UNDO_ANNOTATION: record}});
            Arc::new(serde_json::from_value::<Node>(json!({ "metadata": metadata })).unwrap())
        };
        let (first, second) = (maintenance("a", 0), maintenance("b", 1));
        let check = |record: &str, expected: (bool, bool)| {
            let nodes = [with_record(record), node("b", "True"), node("c", "False")];
            let waits = |of: &NodeMaintenance| {
                position(of, [&first, &second], |_| false, &nodes, MaxUnavailable::Nodes(1)).is_some()
            };
            assert_eq!((waits(&first), waits(&second)), expected, "{record}");
        };
        check(uid, (false, true));
        check("another", (true, true));
    }

    #[test]
    fn a_status_shows_a_position_with_the_same_reason_and_perhaps_old_numbers() {
        let limit =
            |unavailable| QueueReason::Limit { unavailable, nodes: 9, limit: MaxUnavailable::Nodes(1) };
        let queued =
            |position, reason| Queued { position: QueuePosition { position, length: 9, limit: 1 }, reason };
        let status = |shown: &Queued| {
            let mut status = maintenance("a:MaxUnavailable", 0).status.unwrap();
            (status.queue, status.last_error) = (Some(shown.position), shown.to_string());
            status
        };
        let check = |shown: Queued, current: Queued, expected: ShownPosition| {
            assert_eq!(current.shown_in(&status(&shown)), expected, "{shown} {current}");
        };
        check(queued(2, limit(1)), queued(2, limit(1)), ShownPosition::Current);
        check(queued(2, limit(1)), queued(1, limit(1)), ShownPosition::OldNumbers);
        check(queued(2, limit(1)), queued(2, limit(3)), ShownPosition::OldNumbers);
        check(queued(2, limit(1)), queued(2, QueueReason::ControlPlane), ShownPosition::Otherwise);
        check(queued(2, QueueReason::ControlPlane), queued(2, limit(1)), ShownPosition::Otherwise);
        check(
            queued(2, QueueReason::ControlPlane),
            queued(1, QueueReason::ControlPlane),
            ShownPosition::OldNumbers,
        );
        let other = maintenance("a:LeaseHeld", 0).status.unwrap();
        assert_eq!(queued(2, limit(1)).shown_in(&other), ShownPosition::Otherwise);
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
