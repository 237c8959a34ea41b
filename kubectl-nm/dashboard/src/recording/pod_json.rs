//! A pod as the JSON of a pod again, with what decisions read and what a bug report may contain, and nothing else.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use nm_core::redact;
use nm_shared::api::names::{DOMAIN_ANNOTATION, MIRROR_ANNOTATION};
use nm_shared::cluster::pod::{ConditionStatus, DrainPod, PodPhase};
use serde_json::{Value, json};

/// Stands for any path at which plugins register.
const PLUGIN_REGISTRY: &str = "/plugins_registry";

pub(super) fn of(pod: &DrainPod) -> Value {
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
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata(pod),
        "spec": {"nodeName": pod.node, "priority": pod.priority, "tolerations": pod.tolerations},
        "status": {"phase": phase, "conditions": conditions},
    });
    let mut kept = redact::pod(&whole);
    // What is left of a volume here has no secrets.
    kept["spec"]["volumes"] = Value::Array(volumes);
    kept
}

fn metadata(pod: &DrainPod) -> ObjectMeta {
    let mirror = pod.is_mirror.then(|| (MIRROR_ANNOTATION.to_owned(), String::new()));
    let domain = pod.domain.as_ref().map(|domain| (DOMAIN_ANNOTATION.to_owned(), domain.to_string()));
    ObjectMeta {
        namespace: Some(pod.namespace.to_string()),
        name: Some(pod.name.to_string()),
        uid: Some(pod.uid.to_string()),
        labels: Some((*pod.labels).clone()),
        annotations: Some(mirror.into_iter().chain(domain).collect()),
        owner_references: pod.controller.as_deref().map(|controller| vec![controller.clone()]),
        finalizers: Some(pod.finalizers.to_vec()),
        deletion_timestamp: pod.deletion.map(|deletion| Time(deletion.deadline)),
        deletion_grace_period_seconds: pod.deletion.and_then(|deletion| deletion.grace_seconds),
        ..ObjectMeta::default()
    }
}
