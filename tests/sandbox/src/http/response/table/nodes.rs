//! `kubectl get nodes`

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::http::response::table::cell::{Table, age, or, text, wide};

pub(crate) static NODES: Table = Table {
    name_last: false,
    columns: &[
        text("Status"),
        text("Roles"),
        text("Age"),
        text("Version"),
        wide("Internal-IP"),
        wide("External-IP"),
        wide("OS-Image"),
        wide("Kernel-Version"),
        wide("Container-Runtime"),
    ],
    cells,
};

fn cells(node: &Value, now: Timestamp) -> Vec<Value> {
    let info = &node["status"]["nodeInfo"];
    vec![
        json!(status(node)),
        json!(roles(node)),
        age(node, now),
        or(&info["kubeletVersion"], ""),
        address(node, "InternalIP"),
        address(node, "ExternalIP"),
        or(&info["osImage"], "<unknown>"),
        or(&info["kernelVersion"], "<unknown>"),
        or(&info["containerRuntimeVersion"], "<unknown>"),
    ]
}

fn status(node: &Value) -> String {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready");
    let ready = match ready.and_then(|condition| condition["status"].as_str()) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let cordoned = node["spec"]["unschedulable"] == true;
    if cordoned { format!("{ready},SchedulingDisabled") } else { ready.to_owned() }
}

fn roles(node: &Value) -> String {
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let mut roles: Vec<&str> = labels
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) if !role.is_empty() => Some(role),
            _ if key == "kubernetes.io/role" => value.as_str(),
            _ => None,
        })
        .collect();
    roles.sort_unstable();
    if roles.is_empty() { "<none>".into() } else { roles.join(",") }
}

fn address(node: &Value, kind: &str) -> Value {
    let addresses = node["status"]["addresses"].as_array().into_iter().flatten();
    let found = addresses.into_iter().find(|address| address["type"] == kind);
    or(found.map_or(&Value::Null, |address| &address["address"]), "<none>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cordoned_node_says_so() {
        let node = json!({"spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!(status(&node), "Ready,SchedulingDisabled");
        assert_eq!(status(&json!({})), "Unknown");
    }
}
