//! The `NodeMaintenance` object: the requested state.
//!
//! Creating one puts a node into maintenance, deleting it returns the node to service. `spec.drain` says how pods are
//! moved; its defaults are the behaviour of the medik8s node-maintenance-operator, whose API this is.

// Every `printcolumn` repeats its type, which the lint takes for a duplicate.
#![allow(clippy::duplicated_attributes)]
// The derive repeats the struct in a scope of its own.
#![allow(unreachable_pub)]

use std::borrow::Cow;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::pod_selector::PodSelector;
use crate::api::status::NodeMaintenanceStatus;

/// The maximum number of characters in `spec.reason`. A maintenance that is older than the limit may have more.
pub const MAX_REASON_LENGTH: usize = 1024;

/// The requested maintenance of a node.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "nodemaintenance.medik8s.io",
    version = "v1beta1",
    kind = "NodeMaintenance",
    plural = "nodemaintenances",
    shortname = "nm",
    status = "NodeMaintenanceStatus",
    selectable = ".spec.nodeName",
    derive = "PartialEq",
    doc = "Puts a node into maintenance while it exists: the node is cordoned and its pods are moved away.",
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.nodeName"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Progress",
        type_ = "integer",
        json_path = ".status.drainProgress",
        description = "Percentage of the pods to be moved that are gone"
    ),
    printcolumn(
        name = "Pods",
        type_ = "integer",
        json_path = ".status.evictionPods",
        description = "Number of pods to be moved",
        priority = 1
    ),
    printcolumn(
        name = "Gone",
        type_ = "integer",
        json_path = ".status.podCounts.gone",
        description = "Number of them that are gone",
        priority = 1
    ),
    printcolumn(
        name = "Blocked",
        type_ = "integer",
        json_path = ".status.podCounts.blocked",
        description = "Number of blocked pods"
    ),
    printcolumn(name = "Reason", type_ = "string", json_path = ".spec.reason", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct NodeMaintenanceSpec {
    /// Name of the node. It cannot be changed.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = ("self == oldSelf", "updating spec.nodeName isn't allowed"))]
    pub node_name: String,

    /// Why the node is in maintenance, for people. At most 1,024 characters.
    #[schemars(length(max = MAX_REASON_LENGTH))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// Whether the maintenance is suspended. One that is created suspended is planned: its node stays in service, and is
    /// only tainted so that the scheduler prefers other nodes. One that is suspended later is paused: its node stays
    /// cordoned, and no pod is evicted. It continues when this is false again.
    #[schemars(extend("default" = false))]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,

    /// How pods are moved away. The defaults are the behaviour of the medik8s node-maintenance-operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainSpec>,
}

impl NodeMaintenanceSpec {
    /// The reason as it is copied to other objects: empty if there is none, and cut if it is longer than allowed.
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
    /// Grace period of each pod in seconds; -1 is the pod's own terminationGracePeriodSeconds. 0 force-deletes pods:
    /// their containers may still run after the node is drained.
    #[schemars(range(min = -1))]
    pub grace_period_seconds: i64,

    /// Only pods with matching labels are moved; the others stay. Default: all pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<PodSelector>,

    /// Whether pods without a controller, which nothing replaces, are evicted too. If false, they block the drain.
    pub force: bool,

    /// Whether pods with emptyDir volumes are evicted, which deletes that data. If false, they block the drain.
    pub delete_empty_dir_data: bool,

    /// Seconds after which an unfinished drain is Failed; the node stays cordoned. 0: never.
    #[schemars(range(min = 0))]
    pub timeout_seconds: i64,

    /// Seconds after which the drain no longer waits for a terminating pod. 0: it always waits.
    #[schemars(range(min = 0))]
    pub skip_wait_for_delete_timeout_seconds: i64,

    /// Seconds after which a pod whose eviction has been refused continuously is deleted instead, bypassing disruption
    /// budgets. 0: never. This needs a permission that is not installed by default: run
    /// `kubectl nm install --grant pod-deletion`.
    #[schemars(range(min = 0))]
    pub delete_after_seconds: i64,

    /// The order in which pods are evicted.
    pub order: DrainOrder,

    /// After the last pod is gone, wait until no `VolumeAttachment` of the node remains, except for volumes of pods that
    /// stay. Absent: the node is drained once the pods are gone. This needs a permission that is not installed by
    /// default: run `kubectl nm install --grant volume-detach`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_for_volume_detach: Option<WaitForVolumeDetach>,

    /// Pods that are not evicted until they terminate on their own, so that their work is not lost. Default: none;
    /// every pod is evicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_for_completion: Option<CompletionSpec>,

    /// Whether a pod of a Deployment is replaced first if its disruption budget never allows its eviction: the
    /// Deployment is restarted, as by `kubectl rollout restart`, and terminates the pod once the replacement is Ready.
    /// This needs a permission that is not installed by default: run `kubectl nm install --grant surge`.
    pub surge: SurgePolicy,

    /// What happens to a pod that was put back on the node, because it tolerates the taints of the maintenance.
    pub returning_pods: ReturningPods,

    /// Whether load balancers outside of the cluster leave the node out before the first eviction. Absent: the node is left
    /// as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_balancers: Option<LoadBalancers>,

    /// Whether autoscalers may remove the node during its maintenance.
    pub autoscalers: Autoscalers,
}

/// What load balancers outside of the cluster do with the node.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancers {
    /// Whether they leave the node out: it has the label `node.kubernetes.io/exclude-from-external-load-balancers` for as
    /// long as the maintenance exists.
    pub exclude: bool,

    /// Seconds between the label, which the cordon sets, and the first eviction, in which they stop using the node.
    #[schemars(range(min = 0))]
    pub delay_seconds: i64,
}

impl Default for LoadBalancers {
    fn default() -> Self {
        Self { exclude: false, delay_seconds: 30 }
    }
}

/// Whether autoscalers may remove a node in maintenance.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Autoscalers {
    /// They may.
    #[default]
    Ignore,
    /// They do not: for as long as the maintenance exists, the node has the annotations
    /// `cluster-autoscaler.kubernetes.io/scale-down-disabled` and `karpenter.sh/do-not-disrupt` with the value `true`.
    Protect,
}

/// The pods that are left to terminate on their own, and for how long.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct CompletionSpec {
    /// The pods to wait for. Default: the pods of all Jobs (`batch/v1`), because the owner of a Job, such as a `CronJob`, does
    /// not declare whether the work continues where it stopped. To evict the pods of Jobs that can continue elsewhere,
    /// select only the pods to wait for. An empty selector matches all pods. A pod that runs a roll
    /// (`kubectl-nm.dev/roll-runner`) is not waited for: it completes only after the drain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<PodSelector>,

    /// Seconds after the cordon, without pauses, after which the pods are evicted like any other. 0: never.
    #[schemars(range(min = 0))]
    pub timeout_seconds: i64,
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
            wait_for_volume_detach: None,
            wait_for_completion: None,
            surge: SurgePolicy::Never,
            returning_pods: ReturningPods::Stay,
            load_balancers: None,
            autoscalers: Autoscalers::Ignore,
        }
    }
}

impl DrainSpec {
    /// Whether load balancers leave the node out.
    pub fn excludes_from_load_balancers(&self) -> bool {
        self.load_balancers.is_some_and(|balancers| balancers.exclude)
    }

    /// A warning about these settings that does not depend on the pods of a node.
    pub fn warning(&self) -> Option<&'static str> {
        // The API server removes such a pod at once, and its kubelet learns of it afterwards.
        (self.grace_period_seconds == 0).then_some(
            "spec.drain.gracePeriodSeconds is 0: pods are force-deleted, and their containers may still run after the \
             node is drained",
        )
    }
}

/// The order in which pods are evicted.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrainOrder {
    /// All at once.
    #[default]
    None,
    /// By priority class: all pods of a lower priority are gone before the first of a higher one is evicted. A pod that
    /// registers a plugin with the kubelet, as a CSI driver does, is evicted after the pods that mount volumes.
    PriorityAscending,
}

/// How long a drain waits for volumes to be detached.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct WaitForVolumeDetach {
    /// Seconds to wait after the last pod is gone, independent of `timeoutSeconds` of the drain. 0: without a limit.
    #[schemars(range(min = 0))]
    pub timeout_seconds: i64,

    /// What happens to the maintenance if volumes are still attached after that time.
    pub on_timeout: OnDetachTimeout,
}

/// What happens to a maintenance whose volumes are not detached in time.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDetachTimeout {
    /// It succeeds, and the condition Degraded warns of the volumes.
    #[default]
    Succeed,
    /// It fails. It succeeds once the volumes are detached.
    Fail,
}

/// When a pod is replaced before it leaves.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SurgePolicy {
    /// Never: pods are only evicted.
    #[default]
    Never,
    /// For pods whose disruption budget allows no disruption even when all of its pods are healthy.
    WhenBlocked,
}

/// What happens to a pod that its owner put back on the node in place of another one.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReturningPods {
    /// It stays, and the drain does not wait for it.
    #[default]
    Stay,
    /// It is evicted again. After the third time it blocks the drain.
    Wait,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copied_reason_is_cut_to_the_maximum_length() {
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
