//! A node as far as the dashboard shows it.

use jiff::Timestamp;
use nm_shared::drain::cordon_owner::CordonOwner;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeMetadata {
    pub(crate) name: String,
    /// While the node has the cordon of a maintenance: whether it was schedulable before.
    pub(crate) was_schedulable: Option<bool>,
    pub(crate) control_plane: bool,
    /// What the metadata alone does not have; none while only metadata is watched.
    pub(crate) details: Option<NodeDetails>,
}

/// What the view of all nodes shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeDetails {
    pub(crate) readiness: NodeReadiness,
    /// Since when it has been Ready, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ready_since: Option<Timestamp>,
    /// Who keeps it from taking new pods.
    pub(crate) cordon: Option<CordonOwner>,
    /// Its pool, by the label of its provider.
    pub(crate) pool: Option<String>,
    pub(crate) zone: Option<String>,
    /// The version of its kubelet.
    pub(crate) version: String,
    /// Another one after each boot.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) boot_id: String,
    pub(crate) created: Option<Timestamp>,
}

/// The condition Ready. The order is that of attention.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum NodeReadiness {
    NotReady,
    /// The control plane has not heard of the node for a while, or the node has never reported the condition.
    #[default]
    Unknown,
    Ready,
}

impl NodeReadiness {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::NotReady => "NotReady",
            Self::Unknown => "Unknown",
            Self::Ready => "Ready",
        }
    }
}
