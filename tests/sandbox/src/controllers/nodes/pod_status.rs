//! The pod status that a kubelet writes.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::model::clock::metav1_time;
use crate::model::condition;

/// The pod runs on `node`; `number` determines its address unless it has one.
pub(crate) fn run(pod: &mut Value, node: &Value, number: u32, ready: bool, now: Timestamp) {
    let since = metav1_time(now);
    let containers = containers(
        pod,
        ready,
        &json!({"running": {"startedAt": pod["status"]["startTime"].as_str().unwrap_or(&since)}}),
    );
    let host = internal_address(node);
    let status = &mut pod["status"];
    status["phase"] = json!("Running");
    if !status["podIP"].is_string() {
        let address = address(number);
        status["podIPs"] = json!([{"ip": address}]);
        status["podIP"] = json!(address);
    }
    if let Some(host) = host {
        status["hostIP"] = json!(host);
        status["hostIPs"] = json!([{"ip": host}]);
    }
    if !status["startTime"].is_string() {
        status["startTime"] = json!(since);
    }
    status["containerStatuses"] = containers;
    for kind in ["PodReadyToStartContainers", "Initialized", "PodScheduled"] {
        set(status, kind, true, now);
    }
    set(status, "ContainersReady", ready, now);
    set(status, "Ready", ready, now);
}

/// The pod has succeeded.
pub(crate) fn succeed(pod: &mut Value, now: Timestamp) {
    let ended = json!({"terminated": {
        "exitCode": 0, "reason": "Completed", "finishedAt": metav1_time(now),
        "startedAt": pod["status"]["startTime"],
    }});
    let containers = containers(pod, false, &ended);
    let status = &mut pod["status"];
    status["phase"] = json!("Succeeded");
    status["containerStatuses"] = containers;
    set(status, "ContainersReady", false, now);
    set(status, "Ready", false, now);
}

fn containers(pod: &Value, ready: bool, state: &Value) -> Value {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let running = !state["running"].is_null();
    containers
        .map(|container| {
            json!({
                "name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0,
                "ready": ready, "started": running, "state": state, "lastState": {},
            })
        })
        .collect()
}

fn set(status: &mut Value, kind: &str, holds: bool, now: Timestamp) {
    let holds = if holds { "True" } else { "False" };
    let mut condition = json!({"type": kind, "status": holds, "lastProbeTime": null});
    if holds == "False" {
        condition["reason"] = json!("ContainersNotReady");
    }
    condition::set(status, condition, now);
}

/// An address in 10.0.0.0/8 for the pod with this number.
fn address(number: u32) -> String {
    let [_, a, b, c] = number.to_be_bytes();
    format!("10.{a}.{b}.{c}")
}

fn internal_address(node: &Value) -> Option<String> {
    let addresses = node["status"]["addresses"].as_array()?;
    let internal = addresses.iter().find(|address| address["type"] == "InternalIP")?;
    internal["address"].as_str().map(str::to_owned)
}
