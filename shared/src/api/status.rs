//! The status of a `NodeMaintenance`: what has been done and what stands in the way.
//!
//! The fields of the medik8s node-maintenance-operator keep their names, spelling included. Every field but
//! `lastUpdate` is always written, so that a merge patch leaves nothing stale behind.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many blocked pods a status lists at most; `podCounts.blocked` counts them all.
pub const MAX_BLOCKED_PODS: usize = 50;

/// How many migrating pods a status lists at most; `podCounts.migrating` counts them all.
pub const MAX_MIGRATING_PODS: usize = 50;

/// The observed state of a maintenance.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeMaintenanceStatus {
    /// Where the maintenance stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// Per cent of `evictionPods` that are gone, 0 to 100.
    pub drain_progress: i32,

    /// When this status last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update: Option<Time>,

    /// What went wrong last; empty when nothing is wrong.
    pub last_error: String,

    /// Names of the pods that are still to go.
    pub pending_pods: Vec<String>,

    /// The same pods with their namespaces.
    pub pending_pods_refs: Vec<PodReference>,

    /// Pods on the node when the maintenance began.
    #[serde(rename = "totalpods")]
    pub total_pods: i32,

    /// Pods to be moved when the maintenance began.
    pub eviction_pods: i32,

    /// Consecutive failures to extend the node's lease.
    pub error_on_lease_count: i32,

    /// `Cordoned`, `Drained` and `Degraded`.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// Pods that something refuses to let go, sorted by namespace and name; at most 50.
    #[schemars(length(max = 50))]
    pub blocked_pods: Vec<BlockedPod>,

    /// Virtual machines on their way to other nodes, sorted by namespace and name of their pods; at most 50. Absent
    /// where there are none.
    // Written as null then, by which a merge patch removes it.
    #[schemars(length(max = 50))]
    pub migrating_pods: Option<Vec<MigratingPod>>,

    /// How many pods are in which state.
    pub pod_counts: PodCounts,
}

/// Where a maintenance stands.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// It waits for its turn.
    Pending,
    /// The node is cordoned and pods are being moved.
    Running,
    /// Every pod that was to be moved is gone. The node stays in maintenance.
    Succeeded,
    /// It was given up; `lastError` says why.
    Failed,
}

impl Phase {
    /// The word in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }
}

/// A pod by name.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[serde(default)]
pub struct PodReference {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl std::fmt::Display for PodReference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A pod that does not go, and why.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct BlockedPod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The kind of obstacle.
    pub reason: BlockReason,
    /// The obstacle by name, with its numbers.
    pub message: String,
    /// Since when it has been in the way.
    pub since: Time,
    /// How many evictions have been refused.
    // A change of this number alone is written once a minute at most.
    pub attempts: i32,
}

impl BlockedPod {
    /// The pod by name.
    pub fn reference(&self) -> PodReference {
        PodReference { namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

/// A virtual machine that KubeVirt migrates to another node, by the pod that it leaves.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MigratingPod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The virtual machine, by its name.
    pub machine: String,
    /// The node that it leaves, once the migration has begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The node that it goes to, once the migration has begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// When the migration began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// The kind of obstacle that a pod meets.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockReason {
    /// A disruption budget allows no more disruptions.
    DisruptionBudget,
    /// Several disruption budgets match the pod, which the Eviction API refuses.
    MultipleDisruptionBudgets,
    /// An admission webhook refuses.
    AdmissionWebhook,
    /// A virtual machine that cannot be migrated.
    NotMigratable,
    /// A virtual machine whose last migration failed. KubeVirt tries again.
    MigrationFailed,
    /// The reconciler lacks the right to evict it.
    Forbidden,
    /// Its namespace is terminating, and evictions are refused there.
    NamespaceTerminating,
    /// The API server throttles or fails.
    ServerError,
    /// `spec.drain.force` is off and no controller would replace it.
    Unmanaged,
    /// `spec.drain.deleteEmptyDirData` is off and it has such a volume.
    LocalStorage,
    /// Its owner's pods come back to the node however often they are moved.
    ComesBack,
    /// Finalizers hold it past its grace period.
    Finalizers,
    /// Its node is not Ready, so nobody confirms its end.
    NodeNotReady,
    /// It has outlived its grace period by far.
    NotEnding,
    /// A reason that a newer reconciler writes.
    #[serde(other)]
    Unknown,
}

impl BlockReason {
    /// The word in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DisruptionBudget => "DisruptionBudget",
            Self::MultipleDisruptionBudgets => "MultipleDisruptionBudgets",
            Self::AdmissionWebhook => "AdmissionWebhook",
            Self::NotMigratable => "NotMigratable",
            Self::MigrationFailed => "MigrationFailed",
            Self::Forbidden => "Forbidden",
            Self::NamespaceTerminating => "NamespaceTerminating",
            Self::ServerError => "ServerError",
            Self::Unmanaged => "Unmanaged",
            Self::LocalStorage => "LocalStorage",
            Self::ComesBack => "ComesBack",
            Self::Finalizers => "Finalizers",
            Self::NodeNotReady => "NodeNotReady",
            Self::NotEnding => "NotEnding",
            Self::Unknown => "Unknown",
        }
    }
}

/// How many of the node's pods are in which state. Each pod is in one.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(default)]
pub struct PodCounts {
    /// An eviction is under way.
    pub evicting: i32,
    /// Ending, within its grace period.
    pub terminating: i32,
    /// Something refuses to let it go.
    pub blocked: i32,
    /// A virtual machine on its way to another node.
    pub migrating: i32,
    /// To be evicted, but not yet asked.
    pub waiting: i32,
    /// Stays: `DaemonSet` pods, mirror pods, pods that the selector leaves out.
    pub skipped: i32,
    /// Moved.
    pub gone: i32,
}
