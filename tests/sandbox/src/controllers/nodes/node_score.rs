//! Which of the nodes that a pod fits is best, as kube-scheduler scores them by default.
//!
//! Its plugins `TaintToleration` (weight 3), `NodeResourcesFit` with `LeastAllocated`, and
//! `NodeResourcesBalancedAllocation` (weight 1 each) give each node up to 100 points. Of equal nodes it takes any, and this
//! scheduler the one with the fewest pods.

use serde_json::Value;

use crate::controllers::nodes::node_fit;
use crate::controllers::nodes::node_loads::{Demand, NodeCapacity, NodeLoad};
use crate::model::resources::SCORED;

/// The most points of one plugin.
const MOST: i64 = 100;
/// The weight of the taints.
const TAINTS: i64 = 3;

/// The best of the nodes; the first of those that are equal.
pub(crate) fn best<'a>(
    pod: &Value,
    demand: &Demand,
    loads: impl Iterator<Item = NodeLoad<'a>>,
) -> Option<NodeLoad<'a>> {
    let loads: Vec<_> = loads.map(|load| (load, intolerable(pod, load.capacity))).collect();
    let most_intolerable = loads.iter().map(|(_, taints)| *taints).max()?;
    let requested = SCORED.map(|name| demand.requests.amount(name));
    let score = |load: NodeLoad<'a>, taints: i64| {
        let tolerated = if most_intolerable == 0 { MOST } else { MOST - MOST * taints / most_intolerable };
        TAINTS * tolerated + unallocated(demand.scored, load) + balance(requested, load)
    };
    let scored = loads.iter().map(|(load, taints)| (score(*load, *taints), *load));
    scored.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, load)| load)
}

/// The number of `PreferNoSchedule` taints that the pod does not tolerate.
fn intolerable(pod: &Value, node: &NodeCapacity) -> i64 {
    if node.preferences == 0 {
        return 0;
    }
    let taints = node_fit::preferences(&node.node).filter(|taint| !node_fit::tolerates(pod, taint));
    i64::try_from(taints.count()).unwrap_or(i64::MAX / MOST)
}

/// `LeastAllocated`: the part of CPU and memory that is free with the pod.
fn unallocated(wanted: [i64; 2], load: NodeLoad<'_>) -> i64 {
    let used = load.usage.map_or([0; 2], |usage| usage.demand.scored);
    let (mut points, mut resources) = (0, 0);
    for ((allocatable, used), wanted) in load.capacity.scored.into_iter().zip(used).zip(wanted) {
        if allocatable > 0 {
            let left = allocatable.saturating_sub(used.saturating_add(wanted)).max(0);
            points += left.saturating_mul(MOST) / allocatable;
            resources += 1;
        }
    }
    points / resources.max(1)
}

/// `NodeResourcesBalancedAllocation`: whether the pod makes the used parts of CPU and memory more alike. Nodes do not
/// differ for a pod that requests neither.
///
/// Since 1.36 the change counts, not only the result (kubernetes/kubernetes#135573).
fn balance(requested: [i64; 2], load: NodeLoad<'_>) -> i64 {
    if requested == [0; 2] {
        return 0;
    }
    let used = SCORED.map(|name| load.usage.map_or(0, |usage| usage.demand.requests.amount(name)));
    let with_pod = [used[0].saturating_add(requested[0]), used[1].saturating_add(requested[1])];
    let (before, after) = (evenness(load.capacity, used), evenness(load.capacity, with_pod));
    MOST / 2 + (MOST / 2 + after - before) / 2
}

/// 100 if the same part of CPU and memory is used, and 50 if all of one and nothing of the other is.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "parts of a whole")]
fn evenness(node: &NodeCapacity, used: [i64; 2]) -> i64 {
    let [cpu, memory] = node.scored;
    if cpu <= 0 || memory <= 0 {
        return MOST;
    }
    let part = |used: i64, allocatable: i64| (used as f64 / allocatable as f64).min(1.0);
    let deviation = (part(used[0], cpu) - part(used[1], memory)).abs() / 2.0;
    ((1.0 - deviation) * MOST as f64) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::store::{Key, Object};
    use crate::controllers::nodes::node_loads::NodeLoads;
    use serde_json::json;

    fn node(name: &str, taints: usize, cpu: &str, memory: &str) -> Value {
        let taints: Vec<Value> = (0..taints)
            .map(|number| json!({"key": format!("k{number}"), "effect": "PreferNoSchedule"}))
            .collect();
        json!({"metadata": {"name": name}, "spec": {"taints": taints},
            "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110"}}})
    }

    fn pod(cpu: &str, memory: &str) -> Value {
        json!({"spec": {"containers": [{"resources": {"requests": {"cpu": cpu, "memory": memory}}}]}})
    }

    /// Places `pods` on nodes, and returns the best node for another.
    fn chosen(nodes: &[Value], pods: &[(&str, Value)], another: &Value) -> String {
        let mut loads = NodeLoads::default();
        for node in nodes {
            let name = node["metadata"]["name"].as_str().unwrap();
            loads.set_node(name, Some(Object::new(node.clone())));
        }
        for (number, (node, pod)) in pods.iter().enumerate() {
            loads.place(&Key::new("ns", number.to_string()), Some(*node), || Demand::of(pod));
        }
        let best = best(another, &Demand::of(another), loads.emptiest_first()).unwrap();
        best.capacity.node["metadata"]["name"].as_str().unwrap().to_owned()
    }

    #[test]
    fn a_taint_that_repels_pods_outweighs_how_full_a_node_is() {
        let nodes = [node("a", 1, "8", "32Gi"), node("b", 0, "8", "32Gi")];
        let full = [("b", pod("7", "28Gi"))];
        assert_eq!(chosen(&nodes, &full, &pod("1", "1Gi")), "b");
        let mut tolerant = pod("1", "1Gi");
        tolerant["spec"]["tolerations"] = json!([{"key": "k0", "operator": "Exists"}]);
        assert_eq!(chosen(&nodes, &full, &tolerant), "a");
        tolerant["spec"]["tolerations"][0]["effect"] = json!("NoSchedule");
        assert_eq!(chosen(&nodes, &full, &tolerant), "b");
    }

    #[test]
    fn of_tainted_nodes_the_one_with_fewer_taints_is_better() {
        let nodes = [node("a", 2, "8", "32Gi"), node("b", 1, "8", "32Gi")];
        assert_eq!(chosen(&nodes, &[("b", pod("2", "8Gi"))], &pod("1", "4Gi")), "b");
    }

    #[test]
    fn the_node_with_the_most_left_is_best() {
        let nodes = [node("a", 0, "4", "16Gi"), node("b", 0, "8", "32Gi")];
        assert_eq!(chosen(&nodes, &[], &pod("1", "4Gi")), "b");
        assert_eq!(chosen(&nodes, &[("b", pod("6", "24Gi"))], &pod("1", "4Gi")), "a");
    }

    #[test]
    fn a_pod_goes_where_it_evens_out_cpu_and_memory() {
        let nodes = [node("a", 0, "10", "10Gi"), node("b", 0, "10", "10Gi")];
        let pods = [("a", pod("6", "2Gi")), ("b", pod("2", "6Gi"))];
        assert_eq!(chosen(&nodes, &pods, &pod("100m", "3Gi")), "a");
        assert_eq!(chosen(&nodes, &pods, &pod("3", "100Mi")), "b");
    }

    #[test]
    fn pods_without_requests_spread_by_their_number() {
        let nodes = [node("a", 0, "8", "32Gi"), node("b", 0, "8", "32Gi")];
        assert_eq!(chosen(&nodes, &[], &json!({})), "a");
        let small = json!({"spec": {"containers": [{}]}});
        assert_eq!(chosen(&nodes, &[("a", small.clone())], &small), "b");
        assert_eq!(chosen(&nodes, &[("a", small.clone()), ("b", small.clone())], &small), "a");
    }
}
