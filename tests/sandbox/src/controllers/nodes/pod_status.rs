//! The pod status that a kubelet writes.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::model::clock::metav1_time;
use crate::model::{condition, pod};

/// The pod runs on `node`; `number` determines its address unless it has one. Containers that have ended are restarted.
pub(crate) fn run(pod: &mut Value, node: &Value, number: u32, ready: bool, now: Timestamp) {
    let since = metav1_time(now);
    let begin = if has_ended_container(pod) { None } else { pod["status"]["startTime"].as_str() };
    let running = json!({"running": {"startedAt": begin.unwrap_or(&since)}});
    let containers = containers(pod, ready, &running);
    let status = &mut pod["status"];
    status["phase"] = json!("Running");
    if !status["podIP"].is_string() {
        let address = address(number);
        status["podIPs"] = json!([{"ip": address}]);
        status["podIP"] = json!(address);
    }
    started(status, node, containers, ready, now);
}

/// The kubelet of `node` has started the pod: its containers have these statuses, and all are `ready` or not.
fn started(status: &mut Value, node: &Value, containers: Value, ready: bool, now: Timestamp) {
    if let Some(host) = internal_address(node) {
        status["hostIP"] = json!(host);
        status["hostIPs"] = json!([{"ip": host}]);
    }
    if !status["startTime"].is_string() {
        status["startTime"] = json!(metav1_time(now));
    }
    status["containerStatuses"] = containers;
    for kind in ["PodReadyToStartContainers", "Initialized", "PodScheduled"] {
        set(status, kind, true, now);
    }
    set(status, "ContainersReady", ready, now);
    set(status, "Ready", ready, now);
}

/// Why the containers of a pod do not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartFailure {
    /// Their images cannot be pulled.
    Image,
    /// They exit with this code.
    Exit(i64),
}

impl StartFailure {
    fn reason(self) -> &'static str {
        match self {
            Self::Image => "ImagePullBackOff",
            Self::Exit(_) => "CrashLoopBackOff",
        }
    }
}

/// Whether the status of the pod shows this failure.
pub(crate) fn shows(pod: &Value, failure: StartFailure) -> bool {
    let statuses = pod["status"]["containerStatuses"].as_array();
    let shown = |status: &Value| status["state"]["waiting"]["reason"] == failure.reason();
    statuses.is_some_and(|statuses| !statuses.is_empty() && statuses.iter().all(shown))
}

/// The containers of the pod do not run on `node`: they wait until the kubelet tries again.
pub(crate) fn fail_to_start(pod: &mut Value, node: &Value, failure: StartFailure, now: Timestamp) {
    let since = metav1_time(now);
    let id = format!("{}_{}({})", pod::name(pod), pod::namespace(pod), pod::uid(pod));
    let specs = pod["spec"]["containers"].as_array().into_iter().flatten();
    let status = |container: &Value| {
        let (name, image) = (&container["name"], &container["image"]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (restarts, last, message) = match failure {
            StartFailure::Image => (0, json!({}), format!("Back-off pulling image \"{}\"", text(image))),
            StartFailure::Exit(code) => {
                let ended = json!({"terminated": {"exitCode": code, "reason": exit_reason(code), "startedAt": since,
                    "finishedAt": since}});
                (1, ended, format!("back-off 10s restarting failed container={} pod={id}", text(name)))
            }
        };
        json!({
            "name": name, "image": image, "imageID": "", "restartCount": restarts, "ready": false, "started": false,
            "state": {"waiting": {"reason": failure.reason(), "message": message}}, "lastState": last,
        })
    };
    let containers: Value = specs.map(status).collect();
    let status = &mut pod["status"];
    status["phase"] = json!(if failure == StartFailure::Image { "Pending" } else { "Running" });
    started(status, node, containers, false, now);
}

/// The pod has succeeded.
pub(crate) fn succeed(pod: &mut Value, now: Timestamp) {
    exit(pod, 0, now);
}

/// The containers of the pod have exited with this code, and are not restarted.
pub(crate) fn exit(pod: &mut Value, code: i64, now: Timestamp) {
    let ended = json!({"terminated": {
        "exitCode": code, "reason": exit_reason(code), "finishedAt": metav1_time(now),
        "startedAt": pod["status"]["startTime"],
    }});
    let containers = containers(pod, false, &ended);
    finish(pod, if code == 0 { "Succeeded" } else { "Failed" }, containers, now);
}

fn exit_reason(code: i64) -> &'static str {
    if code == 0 { "Completed" } else { "Error" }
}

/// The node has restarted: the containers of a running pod have ended. A pod that never restarts them has failed, and
/// any other gets a new address.
pub(crate) fn interrupt(pod: &mut Value, now: Timestamp) {
    if pod::phase(pod) != "Running" {
        return;
    }
    let ended = json!({"terminated": {
        "exitCode": 255, "reason": "Unknown", "finishedAt": metav1_time(now),
        "startedAt": pod["status"]["startTime"],
    }});
    let containers = containers(pod, false, &ended);
    if pod["spec"]["restartPolicy"] == "Never" {
        finish(pod, "Failed", containers, now);
        return;
    }
    let status = &mut pod["status"];
    if let Some(status) = status.as_object_mut() {
        status.retain(|field, _| field != "podIP" && field != "podIPs");
    }
    status["containerStatuses"] = containers;
    for kind in ["PodReadyToStartContainers", "ContainersReady", "Ready"] {
        set(status, kind, false, now);
    }
}

/// The node lifecycle controller has lost the pod's node: the pod is not Ready, as far as anybody knows.
pub(crate) fn lose_node(pod: &mut Value, now: Timestamp) {
    if pod::is_ready(pod) {
        let condition = json!({"type": "Ready", "status": "False", "lastProbeTime": null});
        condition::set(&mut pod["status"], condition, now);
    }
}

/// Whether a container of the pod has ended.
pub(crate) fn has_ended_container(pod: &Value) -> bool {
    let statuses = pod["status"]["containerStatuses"].as_array();
    statuses.into_iter().flatten().any(has_ended)
}

fn has_ended(container: &Value) -> bool {
    !container["state"]["terminated"].is_null()
}

fn finish(pod: &mut Value, phase: &str, containers: Value, now: Timestamp) {
    let status = &mut pod["status"];
    status["phase"] = json!(phase);
    status["containerStatuses"] = containers;
    set(status, "ContainersReady", false, now);
    set(status, "Ready", false, now);
}

/// The statuses of containers in this state. One that had ended and runs now has been restarted.
fn containers(pod: &Value, ready: bool, state: &Value) -> Value {
    let before = pod["status"]["containerStatuses"].as_array();
    let running = !state["running"].is_null();
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let status = |container: &Value| {
        let known =
            before.and_then(|statuses| statuses.iter().find(|known| known["name"] == container["name"]));
        let restarts = known.and_then(|known| known["restartCount"].as_i64()).unwrap_or(0);
        let restarted = known.filter(|known| running && has_ended(known));
        let kept = known.map_or(json!({}), |known| known["lastState"].clone());
        let was_running =
            known.map(|known| &known["state"]).filter(|was| running && !was["running"].is_null());
        json!({
            "name": container["name"], "image": container["image"], "imageID": "",
            "restartCount": restarts + i64::from(restarted.is_some()),
            "ready": ready, "started": running, "state": was_running.unwrap_or(state),
            "lastState": restarted.map_or(kept, |known| known["state"].clone()),
        })
    };
    containers.map(status).collect()
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
