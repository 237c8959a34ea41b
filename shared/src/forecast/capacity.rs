//! An estimate whether evicted pods fit on the remaining nodes.
//!
//! It considers the requests of pods and the capacity of nodes, and taints, selectors and volumes as in `node_fit`. It
//! places the pods of the highest priority first, then those with the fewest possible nodes, then the largest. A scheduler
//! considers more, and other pods come and go meanwhile. A pod that fits on no node may fit instead of pods of lower priority
//! ([`preemption`]). These are placed by the same rules, without their volumes: where no suitable node has as much left, they
//! fit nowhere.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, NodeSelector, Pod};

use crate::api::pod_reference::PodReference;
use crate::cluster::node;
use crate::cluster::node_fit::{self, Unfit};
use crate::cluster::pod;
use crate::cluster::pod_requests::Resources;
use crate::forecast::preemption::{self, Preemption, RunningPod, UsedCapacity};

/// A pod that is to be replaced on another node.
#[derive(Debug, Clone)]
pub struct PodToPlace<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The nodes from which its volumes are accessible.
    pub volumes: Vec<&'a NodeSelector>,
}

/// The estimate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CapacityEstimate {
    /// The number of pods that fit.
    pub fit: usize,
    /// The number of nodes.
    pub nodes: usize,
    /// The number of those that are Ready and not cordoned.
    pub schedulable: usize,
    /// The pods that do not fit.
    pub unplaced: Vec<UnplacedPods>,
    /// The pods that fit only instead of others.
    pub preempting: Vec<Preemption>,
    /// The requirements that were not considered, and how many pods have them.
    pub left_out: BTreeMap<&'static str, usize>,
}

/// Pods that fit on no node for the same reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnplacedPods {
    /// The pods.
    pub pods: Vec<PodReference>,
    /// For each reason, how many nodes are unsuitable.
    pub reasons: BTreeMap<Unfit, usize>,
}

impl CapacityEstimate {
    /// Whether all pods fit without preempting others.
    pub fn is_enough(&self) -> bool {
        self.unplaced.is_empty() && self.preempting.is_empty()
    }
}

/// A node, its free resources and its pods.
struct NodeCapacity<'a> {
    node: &'a Node,
    free: Resources,
    pods: Vec<&'a RunningPod>,
}

impl NodeCapacity<'_> {
    fn takes_pods(&self) -> bool {
        node::is_ready(self.node) && !node::is_unschedulable(self.node)
    }
}

/// Pods with the same requirements.
struct PodGroup<'a> {
    pods: Vec<&'a PodToPlace<'a>>,
    priority: i32,
    wanted: Resources,
    /// The indexes of the suitable nodes.
    candidates: Vec<usize>,
    /// Why the other nodes are unsuitable.
    unfit: BTreeMap<Unfit, usize>,
}

/// Whether `pods` fit on `nodes`. `used`: what is in use on a node.
pub fn estimate<'a>(
    pods: &'a [PodToPlace<'a>],
    nodes: impl IntoIterator<Item = &'a Node>,
    used: impl Fn(&str) -> Option<&'a UsedCapacity>,
) -> CapacityEstimate {
    let with_free_resources = |node: &'a Node| {
        let (mut free, mut pods) = (Resources::of_node(node), Vec::new());
        if let Some(used) = used(node::name(node)) {
            free.subtract(&used.requested);
            pods.extend(&used.pods);
        }
        NodeCapacity { node, free, pods }
    };
    let mut nodes_left: Vec<NodeCapacity<'_>> = nodes.into_iter().map(with_free_resources).collect();
    let schedulable = nodes_left.iter().filter(|left| left.takes_pods()).count();
    let mut estimate =
        CapacityEstimate { nodes: nodes_left.len(), schedulable, ..CapacityEstimate::default() };
    for aspect in pods.iter().flat_map(|pod| node_fit::left_out(pod.pod)) {
        *estimate.left_out.entry(aspect).or_default() += 1;
    }
    let mut groups = groups(pods, &nodes_left);
    let size = |group: &PodGroup<'_>| (group.wanted.amount("cpu"), group.wanted.amount("memory"));
    groups.sort_by(|a, b| {
        let of_nodes = a.candidates.len().cmp(&b.candidates.len());
        b.priority.cmp(&a.priority).then(of_nodes).then_with(|| size(b).cmp(&size(a)))
    });
    let mut unplaced: BTreeMap<BTreeMap<Unfit, usize>, Vec<PodReference>> = BTreeMap::new();
    let mut victims: Vec<&RunningPod> = Vec::new();
    for group in groups {
        let left = place(&group, &mut nodes_left);
        let preempting = preempt(&left, &group, &mut nodes_left, &mut victims);
        let (_, unfit) = left.split_at(preempting.len());
        // The pods that others have preempted may leave enough capacity.
        estimate.preempting.extend(preempting.into_iter().filter(|found| !found.preempted.is_empty()));
        if !unfit.is_empty() {
            let pods = unplaced.entry(reasons(&group, &nodes_left)).or_default();
            pods.extend(unfit.iter().map(|pod| pod::reference_in(&pod.metadata)));
        }
    }
    let displaced = displaced(victims, nodes_left);
    for found in &mut estimate.preempting {
        found.displaced = found.preempted.iter().filter(|pod| displaced.contains(pod)).cloned().collect();
    }
    let left = unplaced.values().map(Vec::len).sum::<usize>() + estimate.preempting.len();
    estimate.fit = pods.len() - left;
    estimate.unplaced = unplaced
        .into_iter()
        .map(|(reasons, mut pods)| {
            pods.sort();
            UnplacedPods { pods, reasons }
        })
        .collect();
    estimate
}

fn groups<'a>(pods: &'a [PodToPlace<'a>], nodes_left: &[NodeCapacity<'_>]) -> Vec<PodGroup<'a>> {
    let mut groups: BTreeMap<String, PodGroup<'a>> = BTreeMap::new();
    for pod in pods {
        let wanted = Resources::of_pod(pod.pod);
        let group = groups.entry(requirements(pod)).or_insert_with(|| {
            let (mut fitting, mut unfit) = (Vec::new(), BTreeMap::new());
            for (at, capacity) in nodes_left.iter().enumerate() {
                match node_fit::check(pod.pod, &pod.volumes, capacity.node) {
                    Ok(()) => fitting.push(at),
                    Err(why) => *unfit.entry(why).or_default() += 1,
                }
            }
            let priority = preemption::priority(pod.pod);
            PodGroup { pods: Vec::new(), priority, wanted, candidates: fitting, unfit }
        });
        group.pods.push(pod);
    }
    groups.into_values().collect()
}

/// A key that is equal for pods with the same requirements.
pub fn requirements(pod: &PodToPlace<'_>) -> String {
    let wanted = Resources::of_pod(pod.pod);
    let spec = pod.pod.spec.as_ref();
    let affinity = spec.and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
    let tolerations = spec.and_then(|spec| spec.tolerations.as_ref());
    let selector = spec.and_then(|spec| spec.node_selector.as_ref());
    let priority = (preemption::priority(pod.pod), preemption::may_preempt(pod.pod));
    format!("{wanted:?} {affinity:?} {tolerations:?} {selector:?} {priority:?} {:?}", pod.volumes)
}

/// Places each pod on the first node with enough capacity, and returns the pods that do not fit. Within a group, capacity only
/// shrinks, so a node that was too full for one pod is too full for the next.
fn place<'a>(group: &PodGroup<'a>, nodes_left: &mut [NodeCapacity<'_>]) -> Vec<&'a Pod> {
    let mut open = group.candidates.iter().copied().peekable();
    let mut left = Vec::new();
    for pod in &group.pods {
        while open.next_if(|at| nodes_left[*at].free.short_of(&group.wanted).is_some()).is_some() {}
        match open.peek() {
            Some(at) => nodes_left[*at].free.subtract(&group.wanted),
            None => left.push(pod.pod),
        }
    }
    left
}

/// Places the pods of a group that are left on nodes instead of pods of lower priority, and returns the first ones, which fit
/// then. Each goes where that costs the least. The pods of lower priority are added to `preempted`.
fn preempt<'a>(
    left: &[&Pod],
    group: &PodGroup<'_>,
    nodes_left: &mut [NodeCapacity<'a>],
    preempted: &mut Vec<&'a RunningPod>,
) -> Vec<Preemption> {
    if !left.first().is_some_and(|pod| preemption::may_preempt(pod)) {
        return Vec::new();
    }
    // A preemption changes one node, so the others are not searched again.
    let on_node = |at: usize, capacity: &NodeCapacity<'a>| {
        let victims = preemption::victims(group.priority, &group.wanted, &capacity.pods, &capacity.free)?;
        Some(((preemption::cost(&victims), at), victims))
    };
    let of_nodes = group.candidates.iter().filter_map(|at| on_node(*at, &nodes_left[*at]));
    let mut cheapest: BTreeMap<_, _> = of_nodes.collect();
    let place_next = |pod: &&Pod| {
        let ((_, at), victims) = cheapest.pop_first()?;
        let capacity = &mut nodes_left[at];
        for victim in &victims {
            capacity.free.add(&victim.requested);
        }
        capacity.free.subtract(&group.wanted);
        capacity.pods.retain(|other| !victims.iter().any(|victim| std::ptr::eq(*victim, *other)));
        cheapest.extend(on_node(at, capacity));
        preempted.extend(&victims);
        Some(Preemption {
            pod: pod::reference_in(&pod.metadata),
            node: node::name(capacity.node).to_owned(),
            preempted: victims.iter().map(|victim| victim.pod.clone()).collect(),
            displaced: Vec::new(),
        })
    };
    left.iter().map_while(place_next).collect()
}

/// Those of the preempted pods that fit on no node after all others have been placed.
fn displaced(victims: Vec<&RunningPod>, mut nodes_left: Vec<NodeCapacity<'_>>) -> BTreeSet<PodReference> {
    let with_candidates = |victim| {
        let suits =
            |(at, left): (usize, &NodeCapacity<'_>)| RunningPod::suits(victim, left.node).then_some(at);
        (victim, nodes_left.iter().enumerate().filter_map(suits).collect::<Vec<usize>>())
    };
    let mut victims: Vec<(&RunningPod, Vec<usize>)> = victims.into_iter().map(with_candidates).collect();
    victims.sort_by_key(|(victim, candidates)| (Reverse(victim.priority), candidates.len()));
    let fits_nowhere = |(victim, candidates): &(&RunningPod, Vec<usize>)| {
        let has_capacity = |at: &&usize| nodes_left[**at].free.short_of(&victim.requested).is_none();
        match candidates.iter().find(has_capacity) {
            Some(at) => {
                nodes_left[*at].free.subtract(&victim.requested);
                false
            }
            None => true,
        }
    };
    victims.into_iter().filter(fits_nowhere).map(|(victim, _)| victim.pod.clone()).collect()
}

fn reasons(group: &PodGroup<'_>, nodes_left: &[NodeCapacity<'_>]) -> BTreeMap<Unfit, usize> {
    let mut reasons = group.unfit.clone();
    for at in &group.candidates {
        if let Some(resource) = nodes_left[*at].free.short_of(&group.wanted) {
            *reasons.entry(Unfit::Short(resource.to_owned())).or_default() += 1;
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node(name: &str, cpu: &str, taints: &Value) -> Node {
        let allocatable = json!({"cpu": cpu, "memory": "8Gi", "pods": "4"});
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"name": name}}, "spec": {"taints": taints},
            "status": {"allocatable": allocatable},
        }))
        .unwrap()
    }

    fn pod(name: &str, cpu: &str, selector: &Value) -> Pod {
        let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
        serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": name},
            "spec": {"containers": [container], "nodeSelector": selector},
        }))
        .unwrap()
    }

    fn with(name: &str, cpu: &str, priority: i32, policy: Option<&str>) -> Pod {
        let mut pod = pod(name, cpu, &json!({}));
        let spec = pod.spec.as_mut().unwrap();
        (spec.priority, spec.preemption_policy) = (Some(priority), policy.map(str::to_owned));
        pod
    }

    fn tried(pods: &[Pod], nodes: &[Node], used: &[(&str, &Pod)]) -> CapacityEstimate {
        let pods: Vec<PodToPlace<'_>> =
            pods.iter().map(|pod| PodToPlace { pod, volumes: Vec::new() }).collect();
        let mut all: BTreeMap<String, UsedCapacity> = BTreeMap::new();
        for (node, pod) in used {
            all.entry((*node).to_owned()).or_default().add(pod);
        }
        estimate(&pods, nodes, |node| all.get(node))
    }

    fn unplaced(estimate: &CapacityEstimate) -> Vec<(Vec<String>, Vec<String>)> {
        let shown = |unplaced: &UnplacedPods| {
            let pods = unplaced.pods.iter().map(ToString::to_string).collect();
            let reasons = unplaced.reasons.iter().map(|(why, nodes)| format!("{nodes} {why}")).collect();
            (pods, reasons)
        };
        estimate.unplaced.iter().map(shown).collect()
    }

    #[test]
    fn running_pods_use_capacity() {
        let nodes = [node("n1", "4", &json!([])), node("n2", "4", &json!([]))];
        let pods: Vec<Pod> = ["a", "b", "c"].map(|name| pod(name, "2", &json!({}))).to_vec();
        let busy = pod("busy", "3", &json!({}));
        assert_eq!(tried(&pods, &nodes, &[]).fit, 3);
        let full = tried(&pods, &nodes, &[("n1", &busy)]);
        assert_eq!((full.fit, full.nodes), (2, 2));
        assert_eq!(unplaced(&full), [(vec!["shop/c".to_owned()], vec!["2 short of cpu".to_owned()])]);
        assert_eq!(
            tried(&[], &nodes, &[]),
            CapacityEstimate { nodes: 2, schedulable: 2, ..CapacityEstimate::default() }
        );
    }

    #[test]
    fn pods_with_the_fewest_nodes_are_placed_first_and_then_the_largest() {
        let nodes = [node("n1", "4", &json!([])), node("n2", "4", &json!([]))];
        let bound = pod("z-bound", "4", &json!({"name": "n1"}));
        let pods = [pod("a", "1", &json!({})), pod("b", "3", &json!({})), bound];
        assert_eq!(tried(&pods, &nodes, &[]).unplaced, []);
    }

    #[test]
    fn each_unsuitable_node_has_a_reason() {
        let taints = json!([{"key": "k", "effect": "NoSchedule"}]);
        let nodes = [node("n1", "4", &taints), node("n2", "1", &json!([])), node("n3", "1", &json!([]))];
        let pods = [pod("big", "2", &json!({})), pod("picky", "1", &json!({"name": "n9"}))];
        let found = tried(&pods, &nodes, &[]);
        assert_eq!(found.fit, 0);
        let reasons = |pod: &str, why: &[&str]| {
            (vec![pod.to_owned()], why.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(
            unplaced(&found),
            [
                reasons("shop/big", &["1 tainted k:NoSchedule", "2 short of cpu"]),
                reasons("shop/picky", &["3 not selected"])
            ]
        );
    }

    #[test]
    fn a_pod_of_higher_priority_fits_instead_of_others() {
        let nodes = [node("n1", "4", &json!([])), node("n2", "4", &json!([]))];
        let running = [
            ("n1", with("middle", "4", 50, None)),
            ("n2", with("small", "1", 10, None)),
            ("n2", with("large", "3", 20, None)),
            ("n2", with("none", "0", 20, None)),
        ];
        let used: Vec<(&str, &Pod)> = running.iter().map(|(node, pod)| (*node, pod)).collect();
        let found = |pods: &[Pod]| {
            let found = tried(pods, &nodes, &used);
            assert_eq!(found.fit + found.preempting.len() + unplaced(&found).len(), pods.len());
            let shown = |found: &Preemption| {
                let names: Vec<&str> = found.preempted.iter().map(|pod| pod.name.as_str()).collect();
                format!("{} on {} instead of {}", found.pod.name, found.node, names.join(", "))
            };
            found.preempting.iter().map(shown).collect::<Vec<_>>()
        };
        let high = |name: &str, cpu: &str| with(name, cpu, 100, None);
        assert_eq!(found(&[high("a", "1")]), ["a on n2 instead of small"]);
        assert_eq!(found(&[high("a", "2")]), ["a on n2 instead of large"]);
        assert_eq!(
            found(&[high("a", "4"), high("b", "4")]),
            ["a on n2 instead of large, small", "b on n1 instead of middle"]
        );
        // As many of the same priority, and the others of lower ones.
        let sums = [
            ("n1", with("a1", "2", 20, None)),
            ("n1", with("a2", "2", 20, None)),
            ("n2", with("b1", "2", 20, None)),
            ("n2", with("b2", "2", 0, None)),
        ];
        let used: Vec<(&str, &Pod)> = sums.iter().map(|(node, pod)| (*node, pod)).collect();
        let sums = tried(&[high("a", "4")], &nodes, &used);
        assert_eq!(sums.preempting.iter().map(|found| found.node.as_str()).collect::<Vec<_>>(), ["n2"]);
        // Where a pod of 3 cores had to go, the next one needs none.
        let three = ["a", "b", "c"].map(|name| high(name, "1"));
        assert_eq!(found(&three), ["a on n2 instead of small", "b on n2 instead of large"]);
        let none: [&str; 0] = [];
        for pods in [
            [high("a", "5")],
            [with("a", "1", 100, Some("Never"))],
            [with("a", "1", 10, None)],
            [pod("a", "1", &json!({}))],
        ] {
            assert_eq!(found(&pods), none, "{pods:?}");
        }
    }

    #[test]
    fn a_preempted_pod_fits_nowhere_if_no_schedulable_node_has_as_much_left() {
        let high = [with("high", "3", 100, None)];
        let low = with("low", "2", 0, None);
        let displaced = |others: &[Node], used: &[(&str, &Pod)]| {
            let nodes = [&[node("n1", "4", &json!([]))], others].concat();
            let used = [&[("n1", &low)], used].concat();
            let mut found = tried(&high, &nodes, &used).preempting;
            assert_eq!(found.len(), 1);
            found.remove(0).displaced.len()
        };
        assert_eq!(displaced(&[], &[]), 1);
        let other = || node("n2", "4", &json!([]));
        let busy = |cpu: &str| with("busy", cpu, 200, None);
        assert_eq!(displaced(&[other()], &[("n2", &busy("2"))]), 0);
        assert_eq!(displaced(&[other()], &[("n2", &busy("3"))]), 1);
        let mut cordoned = other();
        cordoned.spec.as_mut().unwrap().unschedulable = Some(true);
        cordoned.spec.as_mut().unwrap().taints =
            serde_json::from_value(json!([{"key": "k", "effect": "NoSchedule"}])).unwrap();
        assert_eq!(displaced(&[cordoned], &[]), 1);
    }

    #[test]
    fn a_preempted_pod_fits_nowhere_if_no_node_suits_it_that_has_as_much_left() {
        let high = [with("high", "3", 100, None)];
        let taints = |effect: &str| json!([{"key": "gpu", "effect": effect}]);
        let displaced = |spec: &Value, taints: &Value| {
            let mut low = serde_json::to_value(with("low", "2", 0, None)).unwrap();
            low["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            let low: Pod = serde_json::from_value(low).unwrap();
            let mut nodes = [node("n1", "4", &json!([])), node("n2", "4", taints)];
            // The pods of the drain do not fit on the other node.
            let busy = with("busy", "2", 200, None);
            nodes[0].metadata.labels.as_mut().unwrap().insert("pool".to_owned(), "blue".to_owned());
            let found = tried(&high, &nodes, &[("n1", &low), ("n2", &busy)]).preempting;
            assert_eq!(found.len(), 1, "{spec}");
            found[0].displaced.len()
        };
        let none = json!([]);
        let affinity = |pool: &str| {
            let term = json!({"matchExpressions": [{"key": "pool", "operator": pool, "values": ["blue"]}]});
            json!({"affinity": {"nodeAffinity":
                {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}})
        };
        let by_default = json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists",
            "effect": "NoExecute", "tolerationSeconds": 300}]);
        for (spec, taints, expected) in [
            (json!({}), &none, 0),
            (json!({"tolerations": by_default}), &none, 0),
            (json!({"nodeSelector": {"pool": "blue"}}), &none, 1),
            (json!({"nodeSelector": {"name": "n2"}}), &none, 0),
            (affinity("In"), &none, 1),
            (affinity("NotIn"), &none, 0),
            (json!({}), &taints("NoSchedule"), 1),
            (json!({}), &taints("PreferNoSchedule"), 0),
            (json!({"tolerations": [{"key": "gpu", "operator": "Exists"}]}), &taints("NoSchedule"), 0),
        ] {
            assert_eq!(displaced(&spec, taints), expected, "{spec} {taints}");
        }
    }

    #[test]
    fn pods_of_higher_priority_are_placed_first() {
        let nodes = [node("n1", "4", &json!([]))];
        let running = with("running", "2", 10, None);
        for policy in [None, Some("Never")] {
            let pods = [with("low", "2", 0, None), with("high", "1", 100, policy)];
            let found = tried(&pods, &nodes, &[("n1", &running)]);
            assert_eq!((found.fit, &found.preempting), (1, &Vec::new()));
            assert_eq!(unplaced(&found), [(vec!["shop/low".to_owned()], vec!["1 short of cpu".to_owned()])]);
        }
    }

    #[test]
    fn a_node_has_a_maximum_number_of_pods() {
        let pods: Vec<Pod> = (0..6).map(|at| pod(&format!("p{at}"), "0", &json!({}))).collect();
        let found = tried(&pods, &[node("n1", "4", &json!([]))], &[]);
        assert_eq!(found.fit, 4);
        assert_eq!(unplaced(&found)[0].1, ["1 full"]);
    }
}
