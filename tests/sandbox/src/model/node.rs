//! The conditions of a node, as its kubelet and the node lifecycle controller write them.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::model::clock::metav1_time;
use crate::model::condition;

/// The annotation that reboots a node: how long the node is down, such as `5s`, or [`NEVER`].
pub const REBOOT: &str = "kube-sandbox.dev/reboot";
/// The value of [`REBOOT`] for a node that does not return.
pub const NEVER: &str = "never";

const READY: &str = "Ready";
/// The conditions of a healthy node other than `Ready`: type, reason and message.
const PRESSURE: [(&str, &str, &str); 3] = [
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
];

/// Whether the node is Ready.
pub(crate) fn is_ready(node: &Value) -> bool {
    condition::is_true(&node["status"], READY)
}

/// The kubelet reports that the node is Ready.
pub(crate) fn report_ready(node: &mut Value, now: Timestamp) {
    report(node, "True", "KubeletReady", "kubelet is posting ready status", now);
}

/// The kubelet has started and is not ready for pods yet: the network needs the pods of its plugin first.
pub(crate) fn report_starting(node: &mut Value, now: Timestamp) {
    let message = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady \
        message:Network plugin returns error: cni plugin not initialized";
    report(node, "False", "KubeletNotReady", message, now);
}

/// The node lifecycle controller missed the heartbeats of the kubelet. `lastHeartbeatTime` stays the last one of the
/// kubelet.
pub(crate) fn miss_heartbeats(node: &mut Value, now: Timestamp) {
    for kind in PRESSURE.map(|(kind, ..)| kind).into_iter().chain([READY]) {
        let heartbeat =
            condition::find(&node["status"], kind).map(|known| known["lastHeartbeatTime"].clone());
        let mut condition = json!({"type": kind, "status": "Unknown", "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status."});
        if let Some(heartbeat) = heartbeat.filter(Value::is_string) {
            condition["lastHeartbeatTime"] = heartbeat;
        }
        set(node, condition, now);
    }
}

fn report(node: &mut Value, ready: &str, reason: &str, message: &str, now: Timestamp) {
    let others = PRESSURE.map(|(kind, reason, message)| (kind, "False", reason, message));
    for (kind, status, reason, message) in others.into_iter().chain([(READY, ready, reason, message)]) {
        let condition = json!({"type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": metav1_time(now)});
        set(node, condition, now);
    }
}

/// Sets the Ready condition, or another one that the node already has.
fn set(node: &mut Value, condition: Value, now: Timestamp) {
    let kind = condition["type"].as_str().unwrap_or_default();
    if kind == READY || condition::find(&node["status"], kind).is_some() {
        condition::set(&mut node["status"], condition, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_heartbeats_leave_the_last_heartbeat_and_a_report_renews_it() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut node = json!({"status": {"conditions": [{"type": "DiskPressure", "status": "False"}]}});
        report_ready(&mut node, at(1));
        miss_heartbeats(&mut node, at(2));
        let ready = condition::find(&node["status"], "Ready").unwrap();
        assert_eq!((&ready["status"], &ready["reason"]), (&json!("Unknown"), &json!("NodeStatusUnknown")));
        assert_eq!(ready["lastHeartbeatTime"], metav1_time(at(1)));
        assert_eq!(ready["lastTransitionTime"], metav1_time(at(2)));
        assert_eq!(condition::find(&node["status"], "DiskPressure").unwrap()["status"], "Unknown");
        report_starting(&mut node, at(3));
        let ready = condition::find(&node["status"], "Ready").unwrap();
        assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("KubeletNotReady")));
        assert_eq!(ready["lastHeartbeatTime"], metav1_time(at(3)));
        assert_eq!(condition::find(&node["status"], "DiskPressure").unwrap()["status"], "False");
        assert!(condition::find(&node["status"], "MemoryPressure").is_none(), "the node never had it");
    }
}
