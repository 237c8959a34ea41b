//! Which of the nodes that a pod fits is best, as kube-scheduler scores them by default.
//!
//! Its plugins `TaintToleration` (weight 3), `NodeResourcesFit` with `LeastAllocated`, and
//! `NodeResourcesBalancedAllocation` (weight 1 each) give each node up to 100 points. Of equal nodes it takes any, and this
//! scheduler the one with the fewest pods.

use serde_json::Value;

use crate::controllers::nodes::node_fit;
use crate::controllers::nodes::node_loads::{Demand, NodeLoad, Usage};

/// The most points of one plugin.
const MOST: i64 = 100;
/// The weight of the taints.
const TAINTS: i64 = 3;
const SCORED: [&str; 2] = ["cpu", "memory"];

/// The best of the nodes; the first of those that are equal.
pub(crate) fn best<'a>(
    pod: &Value,
    demand: &Demand,
    nodes: impl Iterator<Item = (&'a NodeLoad, Option<&'a Usage>)>,
) -> Option<&'a NodeLoad> {
    let nodes: Vec<_> = nodes.map(|(load, usage)| (load, usage, intolerable(pod, load))).collect();
    let most_intolerable = nodes.iter().map(|(.., taints)| *taints).max()?;
    let score = |usage: Option<&Usage>, load: &NodeLoad, taints: i64| {
        let tolerated = if most_intolerable == 0 { MOST } else { MOST - MOST * taints / most_intolerable };
        TAINTS * tolerated + unallocated(demand, load, usage) + balance(demand, load, usage)
    };
    let scored = nodes.iter().map(|(load, usage, taints)| (score(*usage, load, *taints), *load));
    scored.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, load)| load)
}

/// The number of `PreferNoSchedule` taints that the pod does not tolerate.
fn intolerable(pod: &Value, load: &NodeLoad) -> i64 {
    if load.preferences == 0 {
        return 0;
    }
    let taints = node_fit::preferences(&load.node).filter(|taint| !node_fit::tolerates(pod, taint));
    i64::try_from(taints.count()).unwrap_or(i64::MAX / MOST)
}

/// `LeastAllocated`: the part of CPU and memory that is free with the pod.
fn unallocated(demand: &Demand, load: &NodeLoad, usage: Option<&Usage>) -> i64 {
    let (mut points, mut resources) = (0, 0);
    for (at, name) in SCORED.into_iter().enumerate() {
        let allocatable = load.allocatable.amount(name);
        if allocatable > 0 {
            let used = demand.scored[at] + usage.map_or(0, |usage| usage.demand.scored[at]);
            let part = i128::from((allocatable - used).max(0)) * i128::from(MOST) / i128::from(allocatable);
            points += i64::try_from(part).unwrap_or(MOST);
            resources += 1;
        }
    }
    points / resources.max(1)
}

/// `NodeResourcesBalancedAllocation`: whether the pod makes the used parts of CPU and memory more alike. Nodes do not
/// differ for a pod that requests neither.
///
/// Since 1.36 the change counts, not only the result (kubernetes/kubernetes#135573).
fn balance(demand: &Demand, load: &NodeLoad, usage: Option<&Usage>) -> i64 {
    if SCORED.iter().all(|name| demand.requests.amount(name) == 0) {
        return 0;
    }
    let used = SCORED.map(|name| usage.map_or(0, |usage| usage.demand.requests.amount(name)));
    let [cpu, memory] = SCORED.map(|name| demand.requests.amount(name));
    let before = evenness(load, used);
    let after = evenness(load, [used[0].saturating_add(cpu), used[1].saturating_add(memory)]);
    MOST / 2 + (MOST / 2 + after - before) / 2
}

/// 100 if the same part of CPU and memory is used, and 50 if all of one and nothing of the other is.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "parts of a whole")]
fn evenness(load: &NodeLoad, used: [i64; 2]) -> i64 {
    let parts: Vec<f64> = SCORED
        .into_iter()
        .zip(used)
        .map(|(name, used)| (load.allocatable.amount(name), used))
        .filter(|(allocatable, _)| *allocatable > 0)
        .map(|(allocatable, used)| (used as f64 / allocatable as f64).min(1.0))
        .collect();
    let deviation = match parts[..] {
        [cpu, memory] => (cpu - memory).abs() / 2.0,
        _ => 0.0,
    };
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
        let candidates = loads.emptiest_first().map(|load| (load, loads.usage(load)));
        let best = best(another, &Demand::of(another), candidates).unwrap();
        best.node["metadata"]["name"].as_str().unwrap().to_owned()
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
