//! The fields of a `NodeMaintenance` as the plugin reads them, with a default where an object lacks one.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use nm_shared::api::condition::{ConditionReason, ConditionType, find};
use nm_shared::{
    AttachedVolume, BlockReason, BlockedPod, NodeMaintenance, NodeMaintenanceStatus, Phase, PodCounts,
    WaitReason, WaitingPod,
};

use crate::terminal::shortened::beginning;

pub use nm_shared::api::names::ROLL_LABEL;

/// Seconds within which a reconciler picks a maintenance up. After that, something is probably wrong with it.
pub const PICKUP_TIMEOUT: i64 = 15;

/// Name of the node that the maintenance is for.
pub fn node(maintenance: &NodeMaintenance) -> &str {
    &maintenance.spec.node_name
}

/// ` (NodeMaintenance NAME)`, if the object is not named after its node.
pub fn name_unless_node(maintenance: &NodeMaintenance) -> String {
    let name = maintenance.name_any();
    if name == node(maintenance) { String::new() } else { format!(" (NodeMaintenance {name})") }
}

/// The reason for the maintenance, if it has one.
pub fn purpose(maintenance: &NodeMaintenance) -> Option<&str> {
    maintenance.spec.reason.as_deref().filter(|reason| !reason.trim().is_empty())
}

/// `disk swap`; with the nodes unless all have this reason: `disk swap (n1, n2); new kernel (n3)`. None if none has a reason.
pub fn purposes<'a>(maintenances: impl IntoIterator<Item = &'a NodeMaintenance>) -> Option<String> {
    let mut all = 0;
    let mut by_reason: Vec<(&str, Vec<&str>)> = Vec::new();
    for object in maintenances {
        all += 1;
        let Some(reason) = purpose(object) else { continue };
        let node = node(object);
        match by_reason.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, nodes)) => nodes.push(node),
            None => by_reason.push((reason, vec![node])),
        }
    }
    match by_reason.as_slice() {
        [] => None,
        [(reason, nodes)] if nodes.len() == all => Some((*reason).to_owned()),
        several => {
            let named = several.iter().map(|(reason, nodes)| format!("{reason} ({})", nodes.join(", ")));
            Some(named.collect::<Vec<_>>().join("; "))
        }
    }
}

/// ` (reason: disk swap)`, if the maintenance has a reason; of a long one, its beginning.
pub fn purpose_words(maintenance: &NodeMaintenance) -> String {
    purpose(maintenance).map(|reason| format!(" (reason: {})", beginning(reason))).unwrap_or_default()
}

/// The object's uid; the API server sets one on every object.
pub fn uid(maintenance: &NodeMaintenance) -> String {
    maintenance.uid().unwrap_or_default()
}

/// The namespace of the Jobs that run rolls, and of the Jobs that these rolls run on nodes. Whoever may create Jobs in it may do
/// what a roll may, so it is not the namespace of nm-reconciler.
pub const ROLLS_NAMESPACE: &str = "node-maintenance-rolls";

/// Finalizer by which a roll keeps a maintenance after its node has returned to service.
pub const ROLL_FINALIZER: &str = "kubectl-nm.dev/roll";

/// The owner of the hook with which a roll holds a drain until its `--before` action has ended.
pub fn roll_hook_owner(roll: &str) -> String {
    format!("roll/{roll}")
}

/// The name of the roll that a maintenance is part of.
pub fn roll_name(maintenance: &NodeMaintenance) -> Option<&str> {
    maintenance.metadata.labels.as_ref()?.get(ROLL_LABEL).map(String::as_str)
}

/// The condition of this type; `None` if the status does not contain it.
pub fn condition(maintenance: &NodeMaintenance, type_: ConditionType) -> Option<&Condition> {
    find(&status(maintenance).conditions, type_)
}

/// The time limit of its drain in seconds; 0 if it has none.
pub fn timeout_seconds(maintenance: &NodeMaintenance) -> i64 {
    maintenance.spec.drain.as_ref().map_or(0, |drain| drain.timeout_seconds)
}

/// Whether the time limit of its drain has passed, as its condition shows.
pub fn has_timed_out(maintenance: &NodeMaintenance) -> bool {
    let drained = condition(maintenance, ConditionType::Drained);
    drained.and_then(ConditionReason::of) == Some(ConditionReason::TimedOut)
}

/// The condition if it is True.
fn true_condition(maintenance: &NodeMaintenance, type_: ConditionType) -> Option<&Condition> {
    condition(maintenance, type_).filter(|condition| condition.status == "True")
}

/// Since when the maintenance has its node cordoned, even if something else keeps uncordoning it; none if it has not begun.
pub fn cordoned_since(maintenance: &NodeMaintenance) -> Option<Timestamp> {
    status(maintenance).begun_at()
}

/// The condition `Degraded` if it is True, unless it only repeats what `blockedPods` reports of single pods.
pub fn degraded(maintenance: &NodeMaintenance) -> Option<&Condition> {
    let degraded = true_condition(maintenance, ConditionType::Degraded)?;
    let status = status(maintenance);
    let is_about_pods = ConditionReason::of(degraded) == Some(ConditionReason::MissingAccess)
        && status.forbidden.is_none()
        && status.blocked_pods.iter().any(|pod| pod.reason == BlockReason::Forbidden);
    (!is_about_pods).then_some(degraded)
}

/// The status; an empty one if the object has none yet.
pub fn status(maintenance: &NodeMaintenance) -> &NodeMaintenanceStatus {
    static EMPTY: std::sync::LazyLock<NodeMaintenanceStatus> =
        std::sync::LazyLock::new(NodeMaintenanceStatus::default);
    maintenance.status.as_ref().unwrap_or(&EMPTY)
}

/// The pods that block the drain. Once the maintenance is being deleted, nothing is drained, and nothing blocks.
pub fn blocked_pods(maintenance: &NodeMaintenance) -> &[BlockedPod] {
    if drains(maintenance) { &status(maintenance).blocked_pods } else { &[] }
}

/// How many pods block the drain: those of [`blocked_pods`], and others that the status does not list.
pub fn blocked_count(maintenance: &NodeMaintenance) -> i32 {
    if drains(maintenance) { status(maintenance).pod_counts.blocked } else { 0 }
}

/// `pod shop/cart-0: no (and 2 more)`: a pod that blocks the drain, and how many others do.
pub fn blocking(pod: &BlockedPod, maintenance: &NodeMaintenance) -> String {
    let more = match blocked_count(maintenance) {
        ..=1 => String::new(),
        all => format!(" (and {} more)", all - 1),
    };
    format!("pod {}/{}: {}{more}", pod.namespace, pod.name, pod.message)
}

/// The pods that the drain evicts later.
pub fn waiting_pods(maintenance: &NodeMaintenance) -> &[WaitingPod] {
    let waiting = status(maintenance).waiting_pods.as_deref().filter(|_| drains(maintenance));
    waiting.unwrap_or_default()
}

/// Whether the eviction of a pod is refused: also if no request is sent, because a budget would refuse it.
pub fn is_refused(pod: &BlockedPod) -> bool {
    pod.attempts > 0 || pod.facts.budget.is_some()
}

/// The pods that waited for this reason when the status was written, even if the drain has failed since.
pub fn waiting_for(maintenance: &NodeMaintenance, reason: WaitReason) -> impl Iterator<Item = &WaitingPod> {
    status(maintenance).waiting_pods.iter().flatten().filter(move |pod| pod.reason == reason)
}

fn drains(maintenance: &NodeMaintenance) -> bool {
    maintenance.metadata.deletion_timestamp.is_none()
}

/// The error of a drain whose status has no details about it: the definition in the cluster prunes them, or the medik8s operator
/// has written the status. None if there is no error, or if the status has details.
pub fn error_without_details(maintenance: &NodeMaintenance) -> Option<&str> {
    let status = status(maintenance);
    let has_details = !status.conditions.is_empty() || status.pod_counts != PodCounts::default();
    let is_draining =
        status.phase == Some(Phase::Running) && maintenance.metadata.deletion_timestamp.is_none();
    Some(status.last_error.as_str()).filter(|error| is_draining && !has_details && !error.is_empty())
}

/// The names of the pods that still have to go, with their namespaces where the status has them.
pub fn pending_pods(status: &NodeMaintenanceStatus) -> Vec<String> {
    if status.pending_pods_refs.is_empty() {
        status.pending_pods.clone()
    } else {
        status.pending_pods_refs.iter().map(ToString::to_string).collect()
    }
}

/// The volumes that are still attached to the node, if the maintenance waits for them.
pub fn attached_volumes(maintenance: &NodeMaintenance) -> &[AttachedVolume] {
    status(maintenance).attached_volumes.as_deref().unwrap_or_default()
}

/// How many pods still have to go. Where the status has no counts, the length of the list of pending pods.
pub(crate) fn pods_to_go(status: &NodeMaintenanceStatus) -> i32 {
    let counted = status.pod_counts.pending();
    if counted > 0 { counted } else { i32::try_from(status.pending_pods.len()).unwrap_or(i32::MAX) }
}
