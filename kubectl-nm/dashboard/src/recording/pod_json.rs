//! A pod as the JSON of a pod again, with what decisions read and what a bug report may contain, and nothing else.

use nm_core::redact;
use nm_shared::cluster::pod::{ConditionStatus, DrainPod, PodPhase};
use serde_json::{Value, json};

/// Stands for any path at which plugins register.
const PLUGIN_REGISTRY: &str = "/plugins_registry";

pub(super) fn of(pod: &DrainPod) -> Value {
    let metadata = serde_json::to_value(&pod.metadata).unwrap_or_default();
    let mut volumes: Vec<Value> = pod
        .claims
        .iter()
        .map(|claim| json!({"name": "", "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    if pod.mounts_served_volume && volumes.is_empty() {
        volumes.push(json!({"name": "", "csi": {}}));
    }
    if pod.has_empty_dir {
        volumes.push(json!({"name": "", "emptyDir": {}}));
    }
    if pod.registers_plugin {
        volumes.push(json!({"name": "", "hostPath": {"path": PLUGIN_REGISTRY}}));
    }
    let phase = match pod.phase {
        PodPhase::Pending => Some("Pending"),
        PodPhase::Finished => Some("Succeeded"),
        PodPhase::Other => None,
    };
    let ready = pod.ready.map(|ready| match ready {
        ConditionStatus::True => "True",
        ConditionStatus::False => "False",
        ConditionStatus::Unknown => "Unknown",
    });
    let conditions: Vec<Value> =
        ready.iter().map(|ready| json!({"type": "Ready", "status": ready})).collect();
    let whole = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {"nodeName": pod.node, "priority": pod.priority, "tolerations": pod.tolerations},
        "status": {"phase": phase, "conditions": conditions},
    });
    let mut kept = redact::pod(&whole);
    // What is left of a volume here has no secrets.
    kept["spec"]["volumes"] = Value::Array(volumes);
    kept
}
