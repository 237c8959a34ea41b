//! How many nodes may be unavailable at once, and the queue of the maintenances that wait for that.
//!
//! The queue depends on few facts of each maintenance ([`GateMember`]) and of each node ([`GateNode`]), and is computed for
//! all maintenances together. Waiting maintenances start in the order of their creation as far as the limit allows, so two
//! that are decided at the same time never both take the last place. A maintenance that cannot begin for another reason,
//! by its status, is not in the queue: it would only block the others. Neither is a planned one. A paused one has begun and
//! counts as unavailable. A deleted maintenance that only the finalizers of others keep, such as the finalizer of a roll, does not count: its
//! node is in service.

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
use crate::gate::etcd::EtcdRole;
use crate::gate::ownership::{self, AgeRank};

/// A status in which only the numbers of the queue have changed is written this long after the last one, and later where
/// many change together. Otherwise each step of the queue would rewrite the status of all who wait.
pub const POSITION_WRITE_INTERVAL: SignedDuration = SignedDuration::from_secs(30);

/// The number of nodes that may be unavailable at once: in maintenance or not Ready.
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
    /// The position of the maintenance.
    pub position: QueuePosition,
    /// Why it cannot begin now.
    pub reason: QueueReason,
}

/// Why a maintenance in the queue cannot begin now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueReason {
    /// Another control-plane node, or another member of etcd, is in maintenance.
    ControlPlane,
    /// As many nodes as allowed are unavailable.
    Limit {
        /// The number of unavailable nodes.
        unavailable: usize,
        /// The number of all nodes.
        nodes: usize,
        /// The limit of unavailable nodes, as it was specified.
        limit: MaxUnavailable,
    },
}

impl fmt::Display for Queued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let QueuePosition { position, length, .. } = self.position;
        write!(f, "position {position} of {length} in the queue: ")?;
        match self.reason {
            QueueReason::ControlPlane => {
                f.write_str("only one control-plane node or member of etcd may be in maintenance")
            }
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
    /// The order of the maintenance by age.
    pub rank: AgeRank,
    begun: Begun,
    is_wanted: bool,
    may_be_queued: bool,
}

/// Whether a maintenance has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begun {
    /// The status shows it, or the maintenance was let through since.
    Yes,
    /// The status was pruned: only an undo record on the node shows it.
    ByRecord,
    /// The status does not show it.
    No,
}

/// What the gate depends on of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct GateNode {
    is_ready: bool,
    is_control_plane: bool,
    has_etcd_role: bool,
    is_arbiter: bool,
    is_cordoned: bool,
    has_record: bool,
    /// The uid of the maintenance that the undo record names.
    record_owner: Option<String>,
}

/// What a node is, of which only one may be in maintenance at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GuardedRole {
    is_control_plane: bool,
    is_etcd_member: bool,
}

impl GuardedRole {
    /// The role of a node; none if it has no such role.
    fn of(node: &GateNode, etcd: EtcdRole) -> Option<Self> {
        let GateNode { is_control_plane, has_etcd_role, is_arbiter, .. } = *node;
        let is_etcd_member = etcd.is_member_with(is_control_plane, has_etcd_role, is_arbiter);
        (is_control_plane || is_etcd_member).then_some(Self { is_control_plane, is_etcd_member })
    }

    fn overlaps(self, other: Self) -> bool {
        (self.is_control_plane && other.is_control_plane) || (self.is_etcd_member && other.is_etcd_member)
    }
}

impl GateNode {
    /// Whether it is cordoned for a maintenance.
    pub fn is_cordoned(&self) -> bool {
        self.is_cordoned
    }
}

impl From<&Node> for GateNode {
    fn from(node: &Node) -> Self {
        Self {
            is_ready: node::is_ready(node),
            is_control_plane: node::is_control_plane(node),
            has_etcd_role: node::has_etcd_role(node),
            is_arbiter: node::is_arbiter(node),
            is_cordoned: Group::ALL.into_iter().any(|group| node_patch::is_cordoned(node, group)),
            has_record: node_patch::record_belongs_to(node, ""),
            record_owner: node_patch::record_owner(node),
        }
    }
}

impl GateMember {
    /// What the gate depends on of `maintenance`. `at_work` is whether it was let through although its status may not
    /// show that yet: a later one does not take its place, even if it sorts before it.
    pub fn new(maintenance: &NodeMaintenance, at_work: bool) -> Self {
        let is_wanted = maintenance.metadata.deletion_timestamp.is_none();
        Self {
            node: maintenance.spec.node_name.clone(),
            rank: ownership::age_rank(maintenance),
            begun: if ownership::is_released(maintenance) {
                Begun::No
            } else if at_work || ownership::has_begun(maintenance) {
                Begun::Yes
            } else if ownership::may_be_recovered(maintenance) {
                Begun::ByRecord
            } else {
                Begun::No
            },
            is_wanted,
            may_be_queued: may_be_queued(maintenance),
        }
    }

    /// Whether it has begun on its `node`, whose marks show this also where the status does not.
    pub fn has_begun(&self, node: Option<&GateNode>) -> bool {
        let is_marked = |node: &GateNode| {
            node.is_cordoned
                || (node.record_owner.is_some() && node.record_owner == self.rank.uid)
                || (self.begun == Begun::ByRecord && node.has_record)
        };
        self.begun == Begun::Yes || node.is_some_and(is_marked)
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
        let etcd = EtcdRole::new(nodes.values().any(|node| node.has_etcd_role));
        let guarded = |name: &str| nodes.get(name).and_then(|node| GuardedRole::of(node, etcd));
        let begun = || begun.iter().map(|member| member.node.as_str());
        let down = nodes.iter().filter(|(_, node)| !node.is_ready).map(|(name, _)| name.as_str());
        let mut unavailable: HashSet<&str> = down.chain(begun()).collect();
        let mut taken: Vec<(&str, GuardedRole)> =
            begun().filter_map(|name| guarded(name).map(|role| (name, role))).collect();
        let allowed = limit.of(nodes.len());

        waiting.retain(|member| member.is_wanted && nodes.contains_key(&member.node));
        waiting.sort_by(|a, b| a.rank.cmp(&b.rank));
        let (mut length, mut found, mut seen) = (0, Vec::new(), HashSet::new());
        for member in waiting {
            let name = member.node.as_str();
            // The oldest maintenance has the node: the others are duplicates, whatever it waits for.
            let takes_place = seen.insert(name) && member.may_be_queued;
            let role = guarded(name);
            let is_alike = |(other, theirs): &(&str, GuardedRole)| {
                *other != name && role.is_some_and(|role| role.overlaps(*theirs))
            };
            let reason = if taken.iter().any(is_alike) {
                QueueReason::ControlPlane
            } else if unavailable.contains(name) || unavailable.len() < allowed {
                if takes_place {
                    unavailable.insert(name);
                    taken.extend(role.map(|role| (name, role)));
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

    /// The number of waiting maintenances.
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
/// next reconcile, and so may one that is no longer suspended.
pub fn may_be_queued(maintenance: &NodeMaintenance) -> bool {
    !maintenance.spec.suspend && maintenance.status.as_ref().is_none_or(status_allows_queueing)
}

/// What a maintenance waits for is the reason of its condition `Drained`. Without that condition it may be in the queue.
fn status_allows_queueing(status: &NodeMaintenanceStatus) -> bool {
    let drained = condition::find(&status.conditions, ConditionType::Drained);
    let reasons = [ConditionReason::MaxUnavailable, ConditionReason::Planned];
    drained.is_none_or(|drained| ConditionReason::of(drained).is_some_and(|reason| reasons.contains(&reason)))
}

#[cfg(test)]
#[path = "max_unavailable_queue_tests.rs"]
mod tests;
