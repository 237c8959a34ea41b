//! A worker node, as its kubelet registers it.

use serde_json::{Value, json};
use uuid::Uuid;

/// How many pods a node can run.
pub const ROOM: usize = 110;

/// The node's name: `node-01` in a cluster of up to 99, wider where there are more.
pub fn node_name(number: usize, of: usize) -> String {
    let width = of.to_string().len().max(2);
    format!("node-{number:0width$}")
}

/// A Ready node in one of three zones.
pub fn node(number: usize, of: usize) -> Value {
    let name = node_name(number, of);
    let zone = ["a", "b", "c"][number % 3];
    let room = json!({"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": ROOM.to_string()});
    json!({
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/region": "sandbox", "topology.kubernetes.io/zone": format!("sandbox-{zone}"),
        }},
        "spec": {},
        "status": {
            "capacity": room, "allocatable": room,
            "addresses": [
                {"type": "InternalIP", "address": format!("172.{}.{}.{}", 16 + number / 65_536, number / 256 % 256, number % 256)},
                {"type": "Hostname", "address": name},
            ],
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "True", "KubeletReady"),
            ],
            "nodeInfo": {
                "machineID": "", "systemUUID": "", "bootID": Uuid::new_v4().to_string(), "kernelVersion": "6.12.0",
                "osImage": "Sandbox",
                "containerRuntimeVersion": "sandbox://1", "kubeletVersion": "v1.36.2", "kubeProxyVersion": "",
                "operatingSystem": "linux", "architecture": "amd64",
            },
        },
    })
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": ""})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_as_their_numbers_do() {
        assert_eq!(node_name(1, 6), "node-01");
        assert_eq!(node_name(42, 5_000), "node-0042");
    }
}
