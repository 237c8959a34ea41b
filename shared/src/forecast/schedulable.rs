//! Which groups of nodes a drain leaves without a node for new pods: the cluster, zones and pools.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;

use crate::api::names::NO_SCHEDULE;
use crate::cluster::node;
use crate::cluster::node_pool;
use crate::cluster::temporary_taint::{is_of_condition, is_of_maintenance};

/// Nodes among which the replacement of a pod may have to be placed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeGroup {
    /// All nodes.
    Cluster,
    /// The nodes of the cluster that take pods without a toleration. Others are left.
    Untainted,
    /// The nodes of this zone.
    Zone(String),
    /// The nodes of this pool.
    Pool(String),
}

/// The groups of which no schedulable node is left. If that is the whole cluster, its zones and pools are left out, and a
/// group is left out if it had none before. So is a zone or pool of a single node, which no drain of that node can leave with
/// one: the pods that have to stay in it fit nowhere, which the estimate of the capacity shows.
///
/// `drains`: whether a node is cordoned by the drain. `is_taken`: whether another maintenance has, or will have, cordoned
/// it.
pub fn emptied(
    nodes: &[Node],
    drains: impl Fn(&str) -> bool,
    is_taken: impl Fn(&str) -> bool,
) -> Vec<NodeGroup> {
    // A pool may have a taint of its own, which its pods tolerate.
    let takes_pods =
        |node: &&Node| !node::is_unschedulable(node) && node::is_ready(node) && !is_taken(node::name(node));
    let is_emptied = |group: &[&Node]| {
        let mut before = group.iter().copied().filter(takes_pods).peekable();
        before.peek().is_some() && before.all(|node| drains(node::name(node)))
    };
    let ordinary: Vec<&Node> = nodes.iter().filter(|node| !keeps_pods_out(node)).collect();
    if is_emptied(&ordinary) {
        let is_left = |node: &Node| takes_pods(&node) && !drains(node::name(node));
        let group = if nodes.iter().any(is_left) { NodeGroup::Untainted } else { NodeGroup::Cluster };
        return vec![group];
    }
    let of_zone = |node: &Node| node_pool::zone(node.metadata.labels.as_ref()).map(str::to_owned);
    let of_pool = |node: &Node| node_pool::pool(node.metadata.labels.as_ref()).map(str::to_owned);
    let zones = emptied_by(&ordinary, of_zone, is_emptied).map(NodeGroup::Zone);
    let all: Vec<&Node> = nodes.iter().collect();
    let pools = emptied_by(&all, of_pool, is_emptied).map(NodeGroup::Pool);
    zones.chain(pools).collect()
}

fn emptied_by(
    nodes: &[&Node],
    label: impl Fn(&Node) -> Option<String>,
    is_emptied: impl Fn(&[&Node]) -> bool,
) -> impl Iterator<Item = String> {
    let values: BTreeSet<String> = nodes.iter().filter_map(|node| label(node)).collect();
    let is_emptied = |value: &String| {
        let group: Vec<&Node> =
            nodes.iter().copied().filter(|node| label(node).as_ref() == Some(value)).collect();
        group.len() > 1 && is_emptied(&group)
    };
    values.into_iter().filter(is_emptied).collect::<Vec<_>>().into_iter()
}

/// Whether a taint that stays keeps out pods that tolerate nothing. A node that is cordoned or not Ready now still belongs to its zone.
fn keeps_pods_out(node: &Node) -> bool {
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.any(|taint| {
        let is_temporary = is_of_maintenance(&taint.key) || is_of_condition(&taint.key);
        !is_temporary && matches!(taint.effect.as_str(), NO_SCHEDULE | "NoExecute")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::names::{DRAIN_TAINT, UNSCHEDULABLE_TAINT};

    const ZONE: &str = "topology.kubernetes.io/zone";

    fn node(name: &str, labels: &Value, spec: &Value) -> Node {
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        let node = json!({"metadata": {"name": name, "labels": labels}, "spec": spec,
            "status": {"conditions": conditions}});
        serde_json::from_value(node).unwrap()
    }

    fn of_zones(zones: &[(&str, &str)]) -> Vec<Node> {
        zones.iter().map(|(name, zone)| node(name, &json!({ZONE: zone}), &json!({}))).collect()
    }

    /// What the drain of these nodes empties, while others are in maintenance.
    fn drained(nodes: &[Node], drained: &[&str], taken: &[&str]) -> Vec<NodeGroup> {
        emptied(nodes, |name| drained.contains(&name), |name| taken.contains(&name))
    }

    #[test]
    fn the_last_nodes_of_a_cluster_and_of_a_zone_are_found() {
        let nodes = of_zones(&[("a1", "a"), ("a2", "a"), ("b1", "b")]);
        let zone = |name: &str| vec![NodeGroup::Zone(name.to_owned())];
        for (drain, taken, expected) in [
            (&["a1"][..], &[][..], vec![]),
            (&["a1", "a2"], &[], zone("a")),
            (&["a1"], &["a2"], zone("a")),
            (&["b1"], &[], vec![]),
            (&["a1", "a2", "b1"], &[], vec![NodeGroup::Cluster]),
            (&["b1"], &["a1", "a2"], vec![NodeGroup::Cluster]),
            (&[], &["a1", "a2"], vec![]),
        ] {
            assert_eq!(drained(&nodes, drain, taken), expected, "{drain:?} {taken:?}");
        }
    }

    #[test]
    fn a_node_that_was_cordoned_before_still_belongs_to_its_zone() {
        let of_zone = |name: &str, zone: &str, taint: &str| {
            let taints = json!([{"key": taint, "effect": "NoSchedule"}]);
            let is_cordoned = taint != "node.kubernetes.io/not-ready";
            node(name, &json!({ZONE: zone}), &json!({"unschedulable": is_cordoned, "taints": taints}))
        };
        for taint in [DRAIN_TAINT, UNSCHEDULABLE_TAINT, "node.kubernetes.io/not-ready"] {
            let mut a2 = of_zone("a2", "a", taint);
            if taint == "node.kubernetes.io/not-ready" {
                let conditions = json!([{"type": "Ready", "status": "Unknown"}]);
                a2.status = serde_json::from_value(json!({"conditions": conditions})).unwrap();
            }
            let nodes = [of_zones(&[("a1", "a"), ("b1", "b")]), vec![a2]].concat();
            assert_eq!(drained(&nodes, &["a1"], &[]), [NodeGroup::Zone("a".into())], "{taint}");
        }
        let nodes = [of_zones(&[("a1", "a"), ("b1", "b")]), vec![of_zone("a2", "a", "role")]].concat();
        assert_eq!(drained(&nodes, &["a1"], &[]), [], "pods that tolerate nothing never had more");
    }

    #[test]
    fn what_takes_no_pods_does_not_count() {
        let control_plane = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
        let mut lost = node("w3", &json!({}), &json!({}));
        let conditions = json!([{"type": "Ready", "status": "Unknown"}]);
        lost.status = serde_json::from_value(json!({"conditions": conditions})).unwrap();
        let nodes = [
            node("cp", &json!({}), &control_plane),
            node("w1", &json!({}), &json!({})),
            node("w2", &json!({}), &json!({"unschedulable": true})),
            lost,
        ];
        assert_eq!(drained(&nodes, &["w1"], &[]), [NodeGroup::Untainted]);
        assert_eq!(drained(&nodes, &["w1", "cp"], &[]), [NodeGroup::Cluster]);
        assert_eq!(drained(&nodes, &["cp", "w2"], &[]), [], "they took none before");
    }

    #[test]
    fn a_pool_with_a_taint_of_its_own_is_found() {
        let tainted = json!({"taints": [{"key": "gpu", "effect": "NoSchedule"}]});
        let nodes = [
            node("g1", &json!({"pool": "gpu"}), &tainted),
            node("g2", &json!({"pool": "gpu"}), &tainted),
            node("w1", &json!({"pool": "web"}), &json!({})),
            node("w2", &json!({"pool": "web"}), &json!({})),
        ];
        assert_eq!(drained(&nodes, &["g1", "w1"], &[]), []);
        assert_eq!(drained(&nodes, &["g1", "g2"], &[]), [NodeGroup::Pool("gpu".into())]);
        assert_eq!(drained(&nodes, &["w1", "w2"], &[]), [NodeGroup::Untainted]);
    }
}
