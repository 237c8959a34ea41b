//! `kubectl get pods`

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::http::response::table::cell::{Table, age, or, text, wide};

pub(crate) static PODS: Table = Table {
    name_last: false,
    columns: &[
        text("Ready"),
        text("Status"),
        text("Restarts"),
        text("Age"),
        wide("IP"),
        wide("Node"),
        wide("Nominated Node"),
        wide("Readiness Gates"),
    ],
    cells,
};

fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let status = &pod["status"];
    let statuses = || status["containerStatuses"].as_array().into_iter().flatten();
    let containers = pod["spec"]["containers"].as_array().map_or(0, Vec::len);
    let ready = statuses().filter(|container| container["ready"] == true).count();
    let restarts: i64 = statuses().filter_map(|container| container["restartCount"].as_i64()).sum();
    vec![
        json!(format!("{ready}/{containers}")),
        json!(reason(pod)),
        json!(restarts.to_string()),
        age(pod, now),
        or(&status["podIP"], "<none>"),
        or(&pod["spec"]["nodeName"], "<none>"),
        or(&status["nominatedNodeName"], "<none>"),
        json!(gates(pod)),
    ]
}

/// The phase, or a more specific reason.
fn reason(pod: &Value) -> String {
    let status = &pod["status"];
    let phase = status["phase"].as_str().unwrap_or("Unknown");
    let mut reason = status["reason"].as_str().unwrap_or(phase).to_owned();
    for container in status["containerStatuses"].as_array().into_iter().flatten() {
        let state = &container["state"];
        let reported = state["waiting"]["reason"].as_str().or(state["terminated"]["reason"].as_str());
        if let Some(reported) = reported {
            reported.clone_into(&mut reason);
        }
    }
    if pod["metadata"]["deletionTimestamp"].is_null() || matches!(phase, "Succeeded" | "Failed") {
        return reason;
    }
    if status["reason"] == "NodeLost" { "Unknown".into() } else { "Terminating".into() }
}

fn gates(pod: &Value) -> String {
    let Some(gates) = pod["spec"]["readinessGates"].as_array().filter(|gates| !gates.is_empty()) else {
        return "<none>".into();
    };
    let conditions = || pod["status"]["conditions"].as_array().into_iter().flatten();
    let met = gates.iter().filter(|gate| {
        conditions()
            .any(|condition| condition["type"] == gate["conditionType"] && condition["status"] == "True")
    });
    format!("{}/{}", met.count(), gates.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_pod_is_shown_as_terminating_in_every_phase() {
        let going = json!({"metadata": {"deletionTimestamp": "t"}, "status": {"phase": "Running"}});
        assert_eq!(reason(&going), "Terminating");
        assert_eq!(reason(&json!({"status": {"phase": "Pending"}})), "Pending");
        let waiting = json!({"status": {"phase": "Pending",
            "containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}});
        assert_eq!(reason(&waiting), "ContainerCreating");
    }
}
