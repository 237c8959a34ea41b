//! The `NodeMaintenance` object: what a person asks for.
//!
//! Creating one puts a node into maintenance, deleting it gives the node back. `spec.drain` says how pods are moved;
//! every default there is what the medik8s node-maintenance-operator does, whose objects these are.

// Every `printcolumn` names its type anew; the lint takes that for a repetition.
#![allow(clippy::duplicated_attributes)]
// The derive repeats the struct in a scope of its own.
#![allow(unreachable_pub)]

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::status::NodeMaintenanceStatus;

/// How many characters `spec.reason` has at most. A maintenance that is older than the limit may have more.
pub const MAX_REASON_LENGTH: usize = 1024;

/// The maintenance that is wanted for a node.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "nodemaintenance.medik8s.io",
    version = "v1beta1",
    kind = "NodeMaintenance",
    plural = "nodemaintenances",
    shortname = "nm",
    status = "NodeMaintenanceStatus",
    derive = "PartialEq",
    doc = "Puts a node into maintenance while it exists: the node is cordoned and its pods are moved away.",
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.nodeName"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Progress",
        type_ = "integer",
        json_path = ".status.drainProgress",
        description = "Per cent of the pods to move that are gone"
    ),
    printcolumn(
        name = "Pending",
        type_ = "string",
        json_path = ".status.pendingPods",
        description = "Pods that are still on the node",
        priority = 1
    ),
    printcolumn(
        name = "Blocked",
        type_ = "integer",
        json_path = ".status.podCounts.blocked",
        description = "Pods that something refuses to let go"
    ),
    printcolumn(name = "Reason", type_ = "string", json_path = ".spec.reason", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct NodeMaintenanceSpec {
    /// Name of the node. It cannot be changed.
    #[schemars(length(min = 1))]
    #[x_kube(validation = ("self == oldSelf", "updating spec.nodeName isn't allowed"))]
    pub node_name: String,

    /// Why, for whoever looks at the node next. At most 1,024 characters.
    #[schemars(length(max = MAX_REASON_LENGTH))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// How pods are moved away. Without it: as the medik8s node-maintenance-operator does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainSpec>,
}

impl NodeMaintenanceSpec {
    /// The reason as it is copied to other objects: empty without one, and cut where it is longer than allowed.
    pub fn short_reason(&self) -> Cow<'_, str> {
        let reason = self.reason.as_deref().unwrap_or_default();
        match reason.char_indices().nth(MAX_REASON_LENGTH) {
            None => Cow::Borrowed(reason),
            Some(_) => Cow::Owned(reason.chars().take(MAX_REASON_LENGTH - 1).chain(['\u{2026}']).collect()),
        }
    }
}

/// How pods are moved away.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct DrainSpec {
    /// Seconds that each pod may take to end; -1 leaves it to the pod's own terminationGracePeriodSeconds. 0 force-deletes
    /// pods: their containers may still run after the maintenance is drained.
    #[schemars(range(min = -1))]
    pub grace_period_seconds: i64,

    /// Only pods with matching labels are moved; the others stay. Without it: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,

    /// Whether pods that no controller would replace are evicted too. If not, they block the drain.
    pub force: bool,

    /// Whether pods with emptyDir volumes are evicted, which loses that data. If not, they block the drain.
    pub delete_empty_dir_data: bool,

    /// Seconds after which an unfinished drain is Failed; the node stays cordoned. 0: never.
    #[schemars(range(min = 0))]
    pub timeout_seconds: i64,

    /// Pods that have been terminating for more than this many seconds are no longer waited for. 0: wait.
    #[schemars(range(min = 0))]
    pub skip_wait_for_delete_timeout_seconds: i64,

    /// A pod that is refused for this many seconds without a break is deleted, past any disruption budget. 0: never.
    /// The reconciler needs the permission to delete pods for that: `kubectl nm install --grant pod-deletion`.
    #[schemars(range(min = 0))]
    pub delete_after_seconds: i64,

    /// Which pods go first.
    pub order: DrainOrder,
}

impl Default for DrainSpec {
    fn default() -> Self {
        Self {
            grace_period_seconds: -1,
            pod_selector: None,
            force: true,
            delete_empty_dir_data: true,
            timeout_seconds: 0,
            skip_wait_for_delete_timeout_seconds: 0,
            delete_after_seconds: 0,
            order: DrainOrder::None,
        }
    }
}

impl DrainSpec {
    /// What everybody should know who asks for this, whatever pods there are.
    pub fn warning(&self) -> Option<&'static str> {
        // The API server removes such a pod at once, and its kubelet learns of it afterwards.
        (self.grace_period_seconds == 0).then_some(
            "spec.drain.gracePeriodSeconds is 0: pods are force-deleted, and their containers may still run after the \
             maintenance is drained",
        )
    }
}

/// Which pods go first.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrainOrder {
    /// All at once.
    #[default]
    None,
    /// Pods of a lower priority are gone before those of the next begin.
    PriorityAscending,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_is_longer_than_allowed_is_cut_where_it_is_copied() {
        let short = |reason: Option<String>| {
            NodeMaintenanceSpec { reason, ..NodeMaintenanceSpec::default() }.short_reason().into_owned()
        };
        assert_eq!(short(None), "");
        let longest = "\u{e9}".repeat(MAX_REASON_LENGTH);
        assert_eq!(short(Some(longest.clone())), longest);
        let cut = short(Some(longest + "x"));
        assert!(cut.chars().count() == MAX_REASON_LENGTH && cut.ends_with("\u{e9}\u{2026}"), "{cut}");
    }
}
