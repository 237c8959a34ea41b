//! The status of a `NodeMaintenance`: what has been done and what blocks it.
//!
//! The fields of the medik8s node-maintenance-operator keep their names, spelling included. Every field but
//! `lastUpdate` is always written, so that a merge patch leaves nothing stale behind: an absent one is written as null.
//!
//! Each sentence is stored once: why a pod is blocked in `blockedPods`, everything else that is wrong in `lastError`.
//! Facts beside the sentences are typed, so that no program parses them. All of them are optional: a status that was
//! written before they existed, or that an older definition pruned, does not have them.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::attached_volume::AttachedVolume;
use crate::api::condition::{self, ConditionReason, ConditionType};
use crate::api::departed_pods::DepartedPods;
use crate::api::hold::Hold;
use crate::api::migration::{MigratingPod, MigrationFacts};
use crate::api::pod_reference::PodReference;
use crate::api::pod_state::PodCounts;
use crate::api::returned_pod::ReturnedPod;
use crate::api::surge::{Replacement, RestartedReplicaSet, SurgeFacts};

/// How many blocked pods a status lists at most; `podCounts.blocked` counts them all.
pub const MAX_BLOCKED_PODS: usize = 50;

/// How many migrating pods a status lists at most; `podCounts.migrating` counts them all.
pub const MAX_MIGRATING_PODS: usize = 50;

/// How many attached volumes a status lists at most.
pub const MAX_ATTACHED_VOLUMES: usize = 50;

/// How many waiting pods a status lists at most; `podCounts.waiting` counts them all.
pub const MAX_WAITING_PODS: usize = 50;
/// How many surging pods a status lists at most. The others wait until these are gone.
pub const MAX_SURGING_PODS: usize = 50;

/// How many restarted `ReplicaSet`s a status lists at most. The pods of others are not replaced first until one is gone.
pub const MAX_RESTARTED_REPLICA_SETS: usize = 50;

/// How many returned pods a status lists at most; `podCounts.staying` counts them all, and the other pods that stay.
pub const MAX_RETURNED_PODS: usize = 50;

/// The observed state of a maintenance.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeMaintenanceStatus {
    /// The phase of the maintenance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// Percentage of `evictionPods` that are gone, 0 to 100.
    pub drain_progress: i32,

    /// When this status last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update: Option<Time>,

    /// The last error; empty when there is none. While pods are blocked it only names the first of them: `blockedPods`
    /// has the details, unless the installed definition prunes it.
    pub last_error: String,

    /// Names of the pods that are still to be moved.
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

    /// `Cordoned`, `Drained` and `Degraded`, and `Suspended` once the maintenance has been suspended. With
    /// `waitForVolumeDetach` also `VolumesDetached`, once the last pod is gone.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,

    /// Pods whose eviction or termination is blocked, sorted by namespace and name; at most 50.
    #[schemars(length(max = 50))]
    pub blocked_pods: Vec<BlockedPod>,

    /// Virtual machines that are migrating to other nodes, sorted by namespace and name of their pods; at most 50.
    /// Absent if there are none.
    #[schemars(length(max = 50))]
    pub migrating_pods: Option<Vec<MigratingPod>>,

    /// Volumes that are still attached to the node after the last pod is gone, sorted by name; at most 50. Only with
    /// `spec.drain.waitForVolumeDetach`. Absent if there are none.
    #[schemars(length(max = 50))]
    pub attached_volumes: Option<Vec<AttachedVolume>>,

    /// Pods that are not evicted yet for a known reason: they may terminate on their own (`waitForCompletion`), their
    /// disruption budget allows their eviction once evicted pods have been replaced, or others are evicted first (`order`).
    /// Sorted by namespace and name; at most 50. Absent if there are none.
    #[schemars(length(max = 50))]
    pub waiting_pods: Option<Vec<WaitingPod>>,
    /// Pods that their Deployments replace first (`spec.drain.surge`), sorted by namespace and name; at most 50. Absent if
    /// there are none.
    #[schemars(length(max = 50))]
    pub surging_pods: Option<Vec<SurgingPod>>,
    /// The `ReplicaSet`s of pods on the node whose Deployments were restarted for this maintenance, so that none is restarted
    /// twice; at most 50. Absent if there are none.
    #[schemars(length(max = 50))]
    pub restarted_replica_sets: Option<Vec<RestartedReplicaSet>>,

    /// Pods that stay because their owners put them back on the node and they tolerate its taints
    /// (`spec.drain.returningPods`), sorted by namespace and name; at most 50. Absent if there are none.
    #[schemars(length(max = 50))]
    pub returned_pods: Option<Vec<ReturnedPod>>,

    /// Seconds for which the maintenance was paused between the cordon of its node and the time when the node was first
    /// drained, excluding the current pause (see the condition `Suspended`). During such a pause, the `timeoutSeconds` of the
    /// drain and of `waitForCompletion` do not run. Absent if the maintenance was never paused.
    #[schemars(range(min = 0))]
    pub paused_seconds: Option<i64>,

    /// When the node was first cordoned. Absent unless something else has uncordoned it during the maintenance and kept it
    /// uncordoned; otherwise the condition `Cordoned` shows the time.
    pub cordoned_since: Option<Time>,

    /// When the node was first drained. Absent unless it is no longer drained, or was not for a while: pods came later, or
    /// something else uncordoned it. Otherwise the condition `Drained` shows the time.
    pub first_drained: Option<Time>,

    /// The position in the queue, while the maintenance waits because too many nodes are unavailable. Absent otherwise. Its
    /// numbers, and those in `lastError`, may be up to 30 s old; the maintenance begins as soon as it may.
    pub queue: Option<QueuePosition>,

    /// The access that the reconciler lacks for the maintenance as a whole. Absent if it lacks none; what it lacks for
    /// single pods is in `blockedPods`.
    pub forbidden: Option<ForbiddenAccess>,

    /// What the maintenance waits for before its first eviction or, while it is being deleted, before it returns the node.
    /// Absent if it waits for nothing.
    pub hold: Option<Hold>,

    /// What became of pods other than that they moved to another node. Absent before the maintenance begins.
    pub departed_pods: Option<DepartedPods>,

    /// Number of running pods that stay because `podSelector` does not match them, without static pods, and without pods of
    /// `DaemonSet`s and of the Jobs of rolls. Absent if there are none.
    #[schemars(range(min = 0))]
    pub unselected_pods: Option<i32>,

    /// Number of pods in each state.
    pub pod_counts: PodCounts,
}

impl NodeMaintenanceStatus {
    /// Whether the maintenance has begun: its node is cordoned, or would be if nothing else kept uncordoning it.
    pub fn has_begun(&self) -> bool {
        condition::find(&self.conditions, ConditionType::Cordoned).is_some_and(|cordoned| {
            cordoned.status == "True"
                || ConditionReason::of(cordoned) == Some(ConditionReason::CordonContested)
        })
    }

    /// When the node was first drained; none if it has not been.
    pub fn first_drained_at(&self) -> Option<Timestamp> {
        let drained = || condition::true_since(&self.conditions, ConditionType::Drained);
        self.first_drained.as_ref().map(|first| first.0).or_else(drained)
    }

    /// When the node was first cordoned; none if the maintenance has not started.
    pub fn begun_at(&self) -> Option<Timestamp> {
        let cordoned = condition::find(&self.conditions, ConditionType::Cordoned)?;
        let since = self.cordoned_since.as_ref().unwrap_or(&cordoned.last_transition_time);
        self.has_begun().then_some(since.0)
    }
}

/// The phase of a maintenance.
#[derive(
    Serialize,
    Deserialize,
    JsonSchema,
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    strum::IntoStaticStr,
)]
pub enum Phase {
    /// It waits: for the node's lease, for etcd's quorum or in the queue. Or it is planned.
    Pending,
    /// The node is cordoned and pods are being moved, unless the maintenance is paused.
    Running,
    /// Every pod that was to be moved is gone. The node stays in maintenance.
    Succeeded,
    /// It failed; `lastError` says why.
    Failed,
}

impl Phase {
    /// The value in the status.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A pod that cannot be moved, and why.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct BlockedPod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Machine-readable reason why the pod is blocked.
    pub reason: BlockReason,
    /// Human-readable message that explains why the pod is blocked.
    pub message: String,
    /// Time since which it has been blocked for this reason. Of a refused eviction, the time of the first refusal without interruption,
    /// even if the pod was waiting for its turn then.
    pub since: Time,
    /// Number of refused evictions.
    // A change of this number alone is written once a minute at most.
    pub attempts: i32,
    /// The facts in the message.
    #[serde(flatten)]
    pub facts: BlockFacts,
}

/// The facts in the message of a blocked pod, as far as they are known.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct BlockFacts {
    /// The disruption budget that allows no eviction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetFacts>,
    /// The disruption budgets, if several select the pod, sorted by name; at most 10.
    #[schemars(length(max = 10))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<BudgetFacts>,
    /// Name of the admission webhook that refuses, or that the API server cannot call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
    /// The admission policy that refuses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyFacts>,
    /// Finalizers that keep the pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// The access that the reconciler lacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forbidden: Option<ForbiddenAccess>,
    /// Why its Deployment does not replace it first, if `spec.drain.surge` asks for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub surge: Option<SurgeFacts>,
    /// Name of the node that causes the block: the pod's node if it is not Ready, or the target of a failed migration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The migration of its virtual machine that does not begin, or that follows one that failed. Only if nm-reconciler may
    /// read migrations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration: Option<MigrationFacts>,
}

/// A disruption budget in the pod's namespace and its numbers, as far as they are known.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetFacts {
    /// Name of the budget.
    pub name: String,
    /// Number of healthy pods that the budget requires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_healthy: Option<i32>,
    /// Current number of healthy pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_healthy: Option<i32>,
    /// Number of disruptions that the budget allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disruptions_allowed: Option<i32>,
    /// Number of pods that the budget counts. If it requires as many, it can never allow a disruption.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_pods: Option<i32>,
}

/// An admission policy of the API server, such as a `ValidatingAdmissionPolicy`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyFacts {
    /// Name of the policy.
    pub name: String,
    /// Name of its binding. Absent if the policy itself is faulty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<String>,
}

/// Access that the API server denies.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct ForbiddenAccess {
    /// The user whom the API server refuses.
    pub user: String,
    /// The verb.
    pub verb: String,
    /// The resource, with its subresource if any: `pods/eviction`.
    pub resource: String,
}

/// A position in the queue of maintenances that wait because too many nodes are unavailable.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct QueuePosition {
    /// The position, from 1.
    pub position: i32,
    /// Number of maintenances in the queue.
    pub length: i32,
    /// Number of nodes that may be unavailable at once.
    pub limit: i32,
}

impl BlockedPod {
    /// The pod by name.
    pub fn reference(&self) -> PodReference {
        PodReference { namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

/// A pod that is not evicted yet, and why. What is under way ends the wait.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WaitingPod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Machine-readable reason why the pod waits.
    pub reason: WaitReason,
    /// Since when it has waited for this reason.
    pub since: Time,
    /// Time at which the pod is evicted if it has not terminated (`Completing`). Absent without a timeout, while the
    /// maintenance is paused, and if the drain times out earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// The disruption budget that it waits for (`BudgetTurn`), if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetFacts>,
    /// Number of pods of the node that are evicted before it: of those that wait for the same budget (`BudgetTurn`), or by the
    /// order of the drain (`Order`).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ahead: i32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde wants")]
const fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// Why a pod waits.
#[derive(
    Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr,
)]
pub enum WaitReason {
    /// It may terminate on its own (`waitForCompletion`).
    Completing,
    /// Its disruption budget allows its eviction once evicted pods have been replaced.
    BudgetTurn,
    /// Other pods of the node leave first (`order`).
    Order,
    /// It is the pod of the leading nm-reconciler, which is evicted after all others of the node.
    EvictedLast,
    /// A reason that only a newer version knows.
    #[serde(other)]
    Unknown,
}

impl WaitReason {
    /// The value in the status.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl WaitingPod {
    /// The pod by name.
    pub fn reference(&self) -> PodReference {
        PodReference { namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

/// A pod whose Deployment creates a replacement before the pod leaves.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SurgingPod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Name of the Deployment.
    pub deployment: String,
    /// Whether its Deployment was restarted for it. Absent while another rollout is under way.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restarted: bool,
    /// The pod that replaces it, once there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replacement: Option<Replacement>,
    /// Since when it has been surging.
    pub since: Time,
}

impl SurgingPod {
    /// The pod by name.
    pub fn reference(&self) -> PodReference {
        PodReference { namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

impl MigratingPod {
    /// The pod by name.
    pub fn reference(&self) -> PodReference {
        PodReference { namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

/// Why a pod is blocked.
#[derive(
    Serialize,
    Deserialize,
    JsonSchema,
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    strum::IntoStaticStr,
)]
pub enum BlockReason {
    /// A disruption budget allows no more disruptions.
    DisruptionBudget,
    /// Several disruption budgets match the pod, which the Eviction API refuses.
    MultipleDisruptionBudgets,
    /// An admission webhook refuses.
    AdmissionWebhook,
    /// An admission policy refuses, or another admission plugin of the API server.
    AdmissionPolicy,
    /// It runs a virtual machine that cannot be migrated.
    NotMigratable,
    /// It runs a virtual machine whose last migration failed. KubeVirt tries again.
    MigrationFailed,
    /// It runs a virtual machine that KubeVirt is to migrate, but no migration has started for some time.
    MigrationNotStarted,
    /// The reconciler lacks the access to evict or delete it.
    Forbidden,
    /// Its namespace is terminating, and evictions are refused there.
    NamespaceTerminating,
    /// The API server throttles or fails.
    ServerError,
    /// `spec.drain.force` is off and no controller would replace it.
    Unmanaged,
    /// `spec.drain.deleteEmptyDirData` is off and it has such a volume.
    LocalStorage,
    /// It keeps returning: its owner recreates it on the node however often it is evicted.
    KeepsReturning,
    /// Finalizers keep it past its grace period.
    Finalizers,
    /// Its node is not Ready, so no kubelet confirms that it has terminated.
    NodeNotReady,
    /// It is still there long after its grace period.
    NotEnding,
    /// A reason that only a newer version knows.
    #[serde(other)]
    Unknown,
}

impl BlockReason {
    /// The value in the status.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A text with at most `max_bytes` bytes, cut between two characters. A cut text ends in an ellipsis.
pub(crate) fn truncated(text: String, max_bytes: usize) -> String {
    const ELLIPSIS: &str = "…";
    if text.len() <= max_bytes {
        return text;
    }
    let fits = |end: &usize| text.is_char_boundary(*end);
    let end = (0..=max_bytes - ELLIPSIS.len()).rev().find(fits).unwrap_or_default();
    format!("{}{ELLIPSIS}", text[..end].trim_end())
}
