//! Maintenances in the states that tests need.

use std::sync::Arc;

use crate::client::watch_stream::WatchChange;
use crate::maintenance::cache::MaintenanceCache;
use nm_shared::NodeMaintenance;
use serde_json::{Value, json};

/// An object named like its node, with uid `uid-<node>` and that status.
pub fn with_status(node: &str, status: Value) -> NodeMaintenance {
    let mut object = requested(node);
    object.status = serde_json::from_value(status).unwrap();
    object
}

/// A drain that has timed out after a minute, with this status.
pub fn timed_out(node: &str, mut status: Value) -> NodeMaintenance {
    status["phase"] = json!("Failed");
    status["conditions"] = json!([{"type": "Drained", "status": "False", "reason": "TimedOut",
        "message": "it took too long", "lastTransitionTime": "2026-01-02T03:05:05Z"}]);
    let mut object = with_status(node, status);
    object.spec.drain = Some(serde_json::from_value(json!({"timeoutSeconds": 60})).unwrap());
    object
}

/// An object that no reconciler has picked up.
pub fn requested(node: &str) -> NodeMaintenance {
    named(node, node, &format!("uid-{node}"))
}

/// An object for that node with a name and uid of its own.
pub fn named(name: &str, node: &str, uid: &str) -> NodeMaintenance {
    serde_json::from_value(json!({
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1",
        "kind": "NodeMaintenance",
        "metadata": {
            "name": name, "uid": uid, "generation": 1, "resourceVersion": "1",
            "creationTimestamp": "2026-01-02T03:04:05Z",
        },
        "spec": {"nodeName": node},
    }))
    .unwrap()
}

/// The object while it is being deleted.
pub fn stopping(mut object: NodeMaintenance) -> NodeMaintenance {
    object.metadata.deletion_timestamp = object.metadata.creation_timestamp.clone();
    object.metadata.finalizers = Some(vec![nm_shared::api::names::FINALIZER.to_owned()]);
    object
}

/// The facts about the budget in the API server's sentence, as the reconciler writes them.
pub fn budget(message: &str) -> Value {
    json!(nm_shared::cluster::disruption_budget::BudgetRefusal::from(message).budget)
}

/// A status in the middle of a drain with one blocked pod.
pub fn running(progress: i32, blocked: &[(&str, &str)]) -> Value {
    let pods: Vec<Value> = blocked
        .iter()
        .map(|(name, message)| {
            json!({
                "namespace": "shop", "name": name, "reason": "DisruptionBudget", "message": message,
                "since": "2026-01-02T03:04:05Z", "attempts": 3, "budget": budget(message),
            })
        })
        .collect();
    json!({
        "phase": "Running", "drainProgress": progress, "evictionPods": 10, "totalpods": 12,
        "blockedPods": pods,
        "podCounts": {"evicting": 2, "terminating": 1, "blocked": blocked.len(), "gone": 4, "staying": 2},
    })
}

/// A complete cache of these maintenances.
pub fn cache(objects: impl IntoIterator<Item = NodeMaintenance>) -> MaintenanceCache {
    let mut cache = MaintenanceCache::new(vec![]);
    cache.apply(&listed(objects));
    cache
}

/// A list of these maintenances, as a watch reports it.
pub fn listed(objects: impl IntoIterator<Item = NodeMaintenance>) -> WatchChange<NodeMaintenance> {
    WatchChange::Listed(objects.into_iter().map(Arc::new).collect())
}
