//! Unreachable nodes: nobody learns when their pods terminate.
//!
//! What the node lifecycle controller would write after missed heartbeats is written at once: the Ready condition is
//! `Unknown`, and the pods are not Ready. The sandbox's kubelets do nothing on a node that is not Ready.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::cluster::catalog::resource::{NODES, PODS};
use crate::cluster::registry::{self, Effect, Part};
use crate::cluster::store::{Collection, Key, Object, State};
use crate::model::condition;
use crate::model::status_error::StatusError;

/// Makes a node unreachable.
pub(crate) fn begin(cluster: &Cluster, name: &str) -> Result<(), StatusError> {
    let now = cluster.clock.now();
    cluster.store.write(|state| {
        for kind in ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"] {
            let condition = json!({"type": kind, "status": "Unknown", "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status."});
            change(cluster, state, &NODES, &Key::cluster(name), &condition, now)?;
        }
        let pods: Vec<Object> = state.on_node(&PODS, name).collect();
        for pod in pods.iter().filter(|pod| condition::is_true(&pod["status"], "Ready")) {
            let condition = json!({"type": "Ready", "status": "False", "lastProbeTime": null});
            change(cluster, state, &PODS, &Key::of(pod), &condition, now)?;
        }
        Ok(())
    })
}

/// Makes a node reachable again.
pub(crate) fn end(cluster: &Cluster, name: &str) -> Result<(), StatusError> {
    let now = cluster.clock.now();
    cluster.store.write(|state| {
        for (kind, reason, message) in [
            ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            ("Ready", "KubeletReady", "kubelet is posting ready status"),
        ] {
            let status = if kind == "Ready" { "True" } else { "False" };
            let condition = json!({"type": kind, "status": status, "reason": reason, "message": message});
            change(cluster, state, &NODES, &Key::cluster(name), &condition, now)?;
        }
        Ok(())
    })
}

/// Sets a condition that the object already has.
fn change(
    cluster: &Cluster,
    state: &mut State,
    collection: &Collection,
    key: &Key,
    condition: &Value,
    now: Timestamp,
) -> Result<(), StatusError> {
    let missing = || StatusError::not_found(&collection.group, &collection.plural, &key.name);
    let resource = cluster.catalog.of(collection).ok_or_else(missing)?;
    let object = state.get(collection, key).ok_or_else(missing)?;
    let kind = condition["type"].as_str().unwrap_or_default();
    if kind != "Ready" && condition::find(&object["status"], kind).is_none() {
        return Ok(());
    }
    let mut next = Value::clone(&object);
    let mut condition = condition.clone();
    if let Some(received) = condition::find(&object["status"], kind).map(|old| &old["lastHeartbeatTime"])
        && received.is_string()
    {
        // `lastHeartbeatTime` stays the last one of the kubelet.
        condition["lastHeartbeatTime"] = received.clone();
    }
    condition::set(&mut next["status"], condition, now);
    registry::update(state, &resource, &next, Part::Status, Effect::Real).map(|_| ())
}
