//! Whether nodes could begin if they were put into maintenance now, one after another in the given order: the gates of
//! the reconciler, for maintenances that do not exist yet.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::maintenance::{NodeMaintenance, NodeMaintenanceSpec};
use crate::cluster::node;
use crate::gate::Gate;
use crate::gate::etcd::Etcd;
use crate::gate::max_unavailable_queue::{GateMember, GateNode, MaxUnavailable, Queue};
use crate::gate::ownership;
use crate::gate::quorum;

/// What would keep each `planned` node from beginning. Nodes that are in maintenance already are left out.
///
/// `etcd` is where etcd runs, and what guards it.
pub fn gates(
    planned: &[String],
    nodes: &[Node],
    existing: &[NodeMaintenance],
    etcd: &Etcd,
    limit: Option<MaxUnavailable>,
    now: Timestamp,
) -> Vec<(String, Gate)> {
    let has_one = |name: &str| existing.iter().any(|other| other.spec.node_name == name);
    let new: Vec<NodeMaintenance> = planned
        .iter()
        .filter(|name| !has_one(name))
        .enumerate()
        .map(|(at, name)| planned_maintenance(name, at, now))
        .collect();
    let members: Vec<GateMember> =
        existing.iter().chain(&new).map(|maintenance| GateMember::new(maintenance, false)).collect();
    let gate_nodes = nodes.iter().map(|node| (node::name(node).to_owned(), GateNode::from(node))).collect();
    let queue = limit.map(|limit| Queue::new(&members, &gate_nodes, limit));
    let gate = |(at, this): (usize, &NodeMaintenance)| {
        let name = this.spec.node_name.as_str();
        let earlier = &new[..at];
        let is_active = |other: &str| {
            existing.iter().any(|found| found.spec.node_name == other && !ownership::is_planned(found))
        };
        let goes_first =
            |other: &str| is_active(other) || earlier.iter().any(|earlier| earlier.spec.node_name == other);
        let quorum = nodes
            .iter()
            .find(|node| node::name(node) == name)
            .and_then(|node| quorum::violation(node, nodes, goes_first, etcd));
        let queue = queue.as_ref().and_then(|queue| queue.get(ownership::uid(this)).cloned());
        (name.to_owned(), Gate { quorum, queue })
    };
    new.iter().enumerate().map(gate).collect()
}

/// The maintenance that would be created `at` this place in the order.
fn planned_maintenance(name: &str, at: usize, now: Timestamp) -> NodeMaintenance {
    let spec = NodeMaintenanceSpec { node_name: name.to_owned(), ..NodeMaintenanceSpec::default() };
    let mut planned_maintenance = NodeMaintenance::new(name, spec);
    let later = SignedDuration::from_nanos(i64::try_from(at).unwrap_or(i64::MAX));
    planned_maintenance.metadata.uid = Some(format!("planned/{name}"));
    planned_maintenance.metadata.creation_timestamp = now.saturating_add(later).ok().map(Time);
    planned_maintenance
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(name: &str) -> Node {
        let labels = if name.starts_with("cp") {
            json!({"node-role.kubernetes.io/control-plane": ""})
        } else {
            json!({})
        };
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        serde_json::from_value(
            json!({"metadata": {"name": name, "labels": labels}, "status": {"conditions": conditions}}),
        )
        .unwrap()
    }

    fn begun(name: &str) -> NodeMaintenance {
        let mut begun = planned_maintenance(name, 0, Timestamp::UNIX_EPOCH);
        begun.status = serde_json::from_value(
            json!({"conditions": [{"type": "Cordoned", "status": "True", "reason": "",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
        )
        .unwrap();
        begun
    }

    /// The nodes that would wait in the queue, and those whose maintenance would violate the quorum.
    fn waiting(planned: &[&str], existing: &[&str], limit: Option<usize>) -> (Vec<String>, Vec<String>) {
        let nodes = ["w2", "w1", "w3", "cp1", "cp2", "cp3"].map(node);
        let planned: Vec<String> = planned.iter().map(ToString::to_string).collect();
        let existing: Vec<NodeMaintenance> = existing.iter().map(|name| begun(name)).collect();
        let limit = limit.map(MaxUnavailable::Nodes);
        let gates = gates(
            &planned,
            &nodes,
            &existing,
            &Etcd::OnNodes,
            limit,
            "2026-01-02T00:00:00Z".parse().unwrap(),
        );
        let names = |held: fn(&Gate) -> bool| {
            gates.iter().filter(|(_, gate)| held(gate)).map(|(name, _)| name.clone()).collect()
        };
        (names(|gate| gate.queue.is_some()), names(|gate| gate.quorum.is_some()))
    }

    #[test]
    fn nodes_beyond_the_limit_wait_in_the_given_order() {
        let none: (Vec<String>, Vec<String>) = (vec![], vec![]);
        assert_eq!(waiting(&["w2", "w1", "w3"], &[], None), none);
        assert_eq!(waiting(&["w2", "w1", "w3"], &[], Some(2)), (vec!["w3".into()], vec![]));
        assert_eq!(waiting(&["w2", "w1"], &["w3"], Some(2)), (vec!["w1".into()], vec![]));
        assert_eq!(waiting(&["w3"], &["w3"], Some(1)), none);
        assert_eq!(waiting(&["nobody"], &[], Some(1)), none);
    }

    #[test]
    fn the_second_control_plane_node_of_three_violates_the_quorum() {
        assert_eq!(waiting(&["cp1"], &[], None), (vec![], vec![]));
        assert_eq!(waiting(&["cp2", "cp1"], &[], None), (vec![], vec!["cp1".into()]));
        assert_eq!(waiting(&["cp1"], &["cp3"], None), (vec![], vec!["cp1".into()]));
    }
}
