//! Nodes of a roll that are not done and have no maintenance any more.
//!
//! The maintenance of a node is garbage-collected with its `Node` object, which cloud controllers delete while a machine
//! reboots. Its records move to the record of the roll until the node returns.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use nm_shared::NodeMaintenance;
use serde::{Deserialize, Serialize};

/// A node whose `Node` object was deleted, and its maintenance with it. The roll waits for it to return.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AbsentNode {
    /// What its maintenance is created from again, with the record of the node.
    pub(crate) maintenance: NodeMaintenance,
}

/// A node that has left the roll and is not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftNode {
    /// Name of the node.
    pub node: String,
    /// Why it has left.
    pub why: Departure,
}

/// Why a node has left a roll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Departure {
    /// Somebody deleted its maintenance.
    MaintenanceDeleted,
    /// Its `Node` object was deleted before its maintenance began, and it has not returned in time.
    NodeDeleted,
}

/// Whether a node is one of these.
pub(crate) fn is_absent(node: &str, absent: &[AbsentNode]) -> bool {
    absent.iter().any(|other| other.node() == node)
}

impl Departure {
    /// The reason in words, for messages.
    pub fn words(self) -> &'static str {
        match self {
            Self::MaintenanceDeleted => "its maintenance was deleted",
            Self::NodeDeleted => "the node was deleted",
        }
    }
}

impl AbsentNode {
    /// A node that has lost this maintenance. The annotations of `dropped` are those of the roll as a whole.
    pub(super) fn of(maintenance: &NodeMaintenance, dropped: &[&str]) -> Self {
        let mut kept = NodeMaintenance::new(&maintenance.name_any(), maintenance.spec.clone());
        kept.metadata.labels.clone_from(&maintenance.metadata.labels);
        let annotations =
            maintenance.annotations().iter().filter(|(key, _)| !dropped.contains(&key.as_str()));
        kept.metadata.annotations =
            Some(annotations.map(|(key, value)| (key.clone(), value.clone())).collect());
        Self { maintenance: kept }
    }

    /// Name of the node.
    pub fn node(&self) -> &str {
        &self.maintenance.spec.node_name
    }
}

/// How long a node whose maintenance is gone may still look as if it existed. The watch of nodes may be behind that of
/// maintenances.
const NODE_WATCH_LAG: SignedDuration = SignedDuration::from_secs(2);

/// A maintenance as this program has last seen it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KnownMaintenance {
    pub(super) object: std::sync::Arc<NodeMaintenance>,
    /// Since when it is gone, or is being deleted; none while it exists.
    pub(super) lost: Option<Timestamp>,
}

impl KnownMaintenance {
    /// Whether somebody has deleted it although its node exists, and not the garbage collector.
    pub(super) fn is_deleted_alone(&self, uid_now: Option<&str>, now: Timestamp) -> bool {
        let is_lost = self.lost.is_some_and(|lost| now.duration_since(lost) >= NODE_WATCH_LAG);
        is_lost && !has_lost_node(&self.object, uid_now)
    }
}

/// Whether the `Node` object that a maintenance belongs to is gone: the node that has its name now has another uid, or there
/// is none. A maintenance without an owner is not deleted with its node.
pub(super) fn has_lost_node(maintenance: &NodeMaintenance, uid_now: Option<&str>) -> bool {
    let owners = maintenance.owner_references().iter();
    let mut nodes = owners.filter(|owner| owner.kind == "Node" && owner.api_version == "v1").peekable();
    nodes.peek().is_some() && nodes.all(|owner| Some(owner.uid.as_str()) != uid_now)
}
