//! `NodeMaintenance` objects: create them, delete them, and wait for their status.

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use nm_shared::api::condition::{ConditionType, find, is_true};
use nm_shared::{
    BlockReason, BlockedPod, NodeMaintenance, NodeMaintenanceSpec, NodeMaintenanceStatus, Phase, Suspension,
    WaitReason, WaitingPod,
};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::wait::wait_until;
use crate::workload::parse;

/// A maintenance of `node` with default settings.
pub fn maintenance(name: &str, node: &str) -> NodeMaintenance {
    let spec = NodeMaintenanceSpec { node_name: node.to_owned(), ..NodeMaintenanceSpec::default() };
    NodeMaintenance::new(name, spec)
}

/// Creates a maintenance of `node`.
pub async fn start(cluster: &Cluster, name: &str, node: &str) -> NodeMaintenance {
    let maintenance = maintenance(name, node);
    cluster.maintenances().create(&PostParams::default(), &maintenance).await.unwrap()
}

/// Creates a maintenance of `node` with this `spec.drain`.
pub async fn start_with_drain(cluster: &Cluster, name: &str, node: &str, drain: Value) -> NodeMaintenance {
    let maintenance = NodeMaintenance::new(name, parse(json!({"nodeName": node, "drain": drain})));
    cluster.maintenances().create(&PostParams::default(), &maintenance).await.unwrap()
}

/// Creates a suspended maintenance of `node`.
pub async fn plan(cluster: &Cluster, name: &str, node: &str) -> NodeMaintenance {
    let mut planned = maintenance(name, node);
    planned.spec.suspend = true;
    cluster.maintenances().create(&PostParams::default(), &planned).await.unwrap()
}

/// Sets or clears `spec.suspend` of a maintenance.
pub async fn suspend(cluster: &Cluster, name: &str, suspend: bool) {
    let patch = Patch::Merge(json!({"spec": {"suspend": suspend}}));
    cluster.maintenances().patch(name, &PatchParams::default(), &patch).await.unwrap();
}

/// The status of a maintenance, once it shows that the maintenance is planned, paused or neither.
pub async fn until_suspension(
    cluster: &Cluster,
    name: &str,
    suspension: Option<Suspension>,
) -> NodeMaintenanceStatus {
    until_status(cluster, name, &format!("suspension {suspension:?}"), |status| {
        status.phase.is_some() && Suspension::in_status(status) == suspension
    })
    .await
}

/// Creates a maintenance of `node` as a dry run: the API server validates it and calls webhooks, but stores nothing.
///
/// # Errors
/// Whatever the API server answers.
pub async fn create_dry_run(cluster: &Cluster, node: &str) -> kube::Result<NodeMaintenance> {
    let params = PostParams { dry_run: true, ..PostParams::default() };
    cluster.maintenances().create(&params, &maintenance("e2e-dry-run", node)).await
}

/// Merges fields into `spec.drain` of a maintenance.
pub async fn patch_drain(cluster: &Cluster, name: &str, drain: Value) {
    let patch = Patch::Merge(json!({"spec": {"drain": drain}}));
    cluster.maintenances().patch(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Deletes a maintenance and waits until it is gone.
pub async fn stop(cluster: &Cluster, name: &str) {
    cluster.maintenances().delete(name, &DeleteParams::default()).await.unwrap();
    until_gone(cluster, name).await;
}

/// Waits until a maintenance is gone.
pub async fn until_gone(cluster: &Cluster, name: &str) {
    wait_until(&cluster.maintenances(), name, "gone", |found| found.is_none()).await;
}

/// The status of a maintenance, once `condition` is true for it.
pub async fn until_status(
    cluster: &Cluster,
    name: &str,
    what: &str,
    condition: impl Fn(&NodeMaintenanceStatus) -> bool,
) -> NodeMaintenanceStatus {
    let wanted = |found: Option<&NodeMaintenance>| {
        found.and_then(|found| found.status.as_ref()).is_some_and(&condition)
    };
    wait_until(&cluster.maintenances(), name, what, wanted).await.unwrap().status.unwrap()
}

/// The status of a maintenance, once it is in this phase.
pub async fn until_phase(cluster: &Cluster, name: &str, phase: Phase) -> NodeMaintenanceStatus {
    until_status(cluster, name, phase.as_str(), |status| status.phase == Some(phase)).await
}

/// The status of a maintenance, once all its conditions are about this generation of its spec.
pub async fn until_observed(cluster: &Cluster, name: &str, generation: i64) -> NodeMaintenanceStatus {
    let what = format!("generation {generation} is observed");
    until_status(cluster, name, &what, |status| {
        status.conditions.iter().all(|condition| condition.observed_generation == Some(generation))
    })
    .await
}

/// The maintenance, once its node is drained.
pub async fn until_drained(cluster: &Cluster, name: &str) -> NodeMaintenance {
    let drained = |found: Option<&NodeMaintenance>| {
        let status = found.and_then(|found| found.status.as_ref());
        status.is_some_and(|status| {
            status.phase == Some(Phase::Succeeded) && is_true(&status.conditions, ConditionType::Drained)
        })
    };
    wait_until(&cluster.maintenances(), name, "drained", drained).await.unwrap()
}

/// Waits until the node is drained, and checks that the status reports no error and no blocked pod any more.
pub async fn until_drained_without_errors(cluster: &Cluster, name: &str) {
    let status = until_drained(cluster, name).await.status.unwrap();
    assert_eq!((status.last_error.as_str(), status.blocked_pods.len()), ("", 0));
    let all = status.eviction_pods;
    let condition = find(&status.conditions, ConditionType::Drained).unwrap();
    let are = if all == 1 { "pod is" } else { "pods are" };
    assert_eq!(condition.message, format!("{all} of {all} {are} gone"));
    assert!(!is_true(&status.conditions, ConditionType::Degraded), "{status:#?}");
}

/// The first pod that waits for the turn of its budget.
pub async fn until_waiting(cluster: &Cluster, name: &str) -> WaitingPod {
    let turn = |status: &NodeMaintenanceStatus| {
        let mut waiting = status.waiting_pods.iter().flatten();
        waiting.find(|pod| pod.reason == WaitReason::BudgetTurn).cloned()
    };
    let status = until_status(cluster, name, "a pod waits for its budget", |status| turn(status).is_some());
    turn(&status.await).unwrap()
}

/// The first pod that is blocked for this reason. `blockedPods`, `lastError` and the condition `Drained` must all report
/// it with the same message.
pub async fn until_blocked(cluster: &Cluster, name: &str, reason: BlockReason) -> BlockedPod {
    let is_it = |pod: &&BlockedPod| pod.reason == reason;
    let what = format!("a pod is blocked by {}", reason.as_str());
    let status =
        until_status(cluster, name, &what, |status| status.blocked_pods.iter().any(|pod| is_it(&pod))).await;
    let pod = status.blocked_pods.iter().find(is_it).unwrap().clone();
    let named = format!("{}/{} ({})", pod.namespace, pod.name, pod.reason.as_str());
    assert!(status.last_error.contains(&named), "{named} in {status:#?}");
    let condition = find(&status.conditions, ConditionType::Drained).unwrap();
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "Blocked"));
    assert!(condition.message.ends_with("blocked: see status.blockedPods"), "{condition:?}");
    let (message, written) = (serde_json::json!(pod.message), serde_json::json!(status));
    let alike = status.blocked_pods.iter().filter(|other| other.message == pod.message).count();
    assert_eq!(written.to_string().matches(&message.to_string()).count(), alike, "{status:#?}");
    pod
}
