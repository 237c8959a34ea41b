//! Whether pods that are to be moved fit on the nodes that are left: an estimate.
//!
//! It looks at what pods request and what nodes have left, at taints, selectors and volumes, as `node_fit` does, and
//! puts the pods with the fewest nodes to choose from first, then the largest. A scheduler weighs more than that, and
//! other pods come and go meanwhile.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSelector, Pod};

use crate::api::status::PodReference;
use crate::cluster::node;
use crate::cluster::node_fit::{self, Unfit};
use crate::cluster::pod;
use crate::cluster::pod_requests::Resources;

/// A pod that another is to stand in for somewhere else.
#[derive(Debug, Clone)]
pub struct PodToPlace<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The nodes that its volumes can be reached from.
    pub volumes: Vec<&'a NodeSelector>,
}

/// Whether the pods fit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CapacityEstimate {
    /// How many fit.
    pub fit: usize,
    /// How many nodes are left for them.
    pub nodes: usize,
    /// Those that do not.
    pub misfits: Vec<UnplacedPods>,
    /// What was not looked at, and how many pods ask for it.
    pub left_out: BTreeMap<&'static str, usize>,
}

/// Pods that fit nowhere for the same reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnplacedPods {
    /// The pods.
    pub pods: Vec<PodReference>,
    /// How many nodes will not do for which reason.
    pub reasons: BTreeMap<Unfit, usize>,
}

/// A node and what it has left.
struct NodeCapacity<'a> {
    node: &'a Node,
    free: Resources,
}

/// Pods that are alike in all that is looked at.
struct PodGroup<'a> {
    pods: Vec<&'a PodToPlace<'a>>,
    wanted: Resources,
    /// The seats that it may take, by number.
    seats: Vec<usize>,
    /// Why it may not take the others.
    unfit: BTreeMap<Unfit, usize>,
}

/// Whether `movers` fit on `nodes`, of which `used` tells what runs on them already.
pub fn estimate<'a>(
    movers: &'a [PodToPlace<'a>],
    nodes: impl IntoIterator<Item = &'a Node>,
    used: &BTreeMap<String, Resources>,
) -> CapacityEstimate {
    let seat = |node: &'a Node| {
        let mut free = Resources::of_node(node);
        if let Some(used) = used.get(node::name(node)) {
            free.take(used);
        }
        NodeCapacity { node, free }
    };
    let mut seats: Vec<NodeCapacity<'_>> = nodes.into_iter().map(seat).collect();
    let mut estimate = CapacityEstimate { nodes: seats.len(), ..CapacityEstimate::default() };
    for aspect in movers.iter().flat_map(|mover| node_fit::left_out(mover.pod)) {
        *estimate.left_out.entry(aspect).or_default() += 1;
    }
    let mut kinds = kinds(movers, &seats);
    let size = |kind: &PodGroup<'_>| (kind.wanted.amount("cpu"), kind.wanted.amount("memory"));
    kinds.sort_by(|a, b| a.seats.len().cmp(&b.seats.len()).then_with(|| size(b).cmp(&size(a))));
    let mut misfits: BTreeMap<BTreeMap<Unfit, usize>, Vec<PodReference>> = BTreeMap::new();
    for kind in kinds {
        let left = place(&kind, &mut seats);
        estimate.fit += kind.pods.len() - left.len();
        if !left.is_empty() {
            misfits.entry(reasons(&kind, &seats)).or_default().extend(left);
        }
    }
    estimate.misfits = misfits
        .into_iter()
        .map(|(reasons, mut pods)| {
            pods.sort();
            UnplacedPods { pods, reasons }
        })
        .collect();
    estimate
}

fn kinds<'a>(movers: &'a [PodToPlace<'a>], seats: &[NodeCapacity<'_>]) -> Vec<PodGroup<'a>> {
    let mut kinds: BTreeMap<String, PodGroup<'a>> = BTreeMap::new();
    for mover in movers {
        let wanted = Resources::of_pod(mover.pod);
        let kind = kinds.entry(likeness(mover, &wanted)).or_insert_with(|| {
            let (mut fitting, mut unfit) = (Vec::new(), BTreeMap::new());
            for (at, seat) in seats.iter().enumerate() {
                match node_fit::check(mover.pod, &mover.volumes, seat.node) {
                    Ok(()) => fitting.push(at),
                    Err(why) => *unfit.entry(why).or_default() += 1,
                }
            }
            PodGroup { pods: Vec::new(), wanted, seats: fitting, unfit }
        });
        kind.pods.push(mover);
    }
    kinds.into_values().collect()
}

/// The same for pods that are alike in all that is looked at.
fn likeness(mover: &PodToPlace<'_>, wanted: &Resources) -> String {
    let spec = mover.pod.spec.as_ref();
    let affinity = spec.and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
    let tolerations = spec.and_then(|spec| spec.tolerations.as_ref());
    let selector = spec.and_then(|spec| spec.node_selector.as_ref());
    format!("{wanted:?} {affinity:?} {tolerations:?} {selector:?} {:?}", mover.volumes)
}

/// Puts pods on the first seat that has room for one, and returns those that are left. Room only shrinks, so a seat
/// that was too full for one is too full for the next.
fn place(kind: &PodGroup<'_>, seats: &mut [NodeCapacity<'_>]) -> Vec<PodReference> {
    let mut open = kind.seats.iter().copied().peekable();
    let mut left = Vec::new();
    for mover in &kind.pods {
        while open.next_if(|at| seats[*at].free.short_of(&kind.wanted).is_some()).is_some() {}
        match open.peek() {
            Some(at) => seats[*at].free.take(&kind.wanted),
            None => left.push(pod::reference(mover.pod)),
        }
    }
    left
}

fn reasons(kind: &PodGroup<'_>, seats: &[NodeCapacity<'_>]) -> BTreeMap<Unfit, usize> {
    let mut reasons = kind.unfit.clone();
    for at in &kind.seats {
        if let Some(resource) = seats[*at].free.short_of(&kind.wanted) {
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
        let room = json!({"cpu": cpu, "memory": "8Gi", "pods": "4"});
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"name": name}}, "spec": {"taints": taints},
            "status": {"allocatable": room},
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

    fn tried(pods: &[Pod], nodes: &[Node], used: &[(&str, &Pod)]) -> CapacityEstimate {
        let movers: Vec<PodToPlace<'_>> =
            pods.iter().map(|pod| PodToPlace { pod, volumes: Vec::new() }).collect();
        let used = used.iter().map(|(node, pod)| ((*node).to_owned(), Resources::of_pod(pod))).collect();
        estimate(&movers, nodes, &used)
    }

    fn misfits(estimate: &CapacityEstimate) -> Vec<(Vec<String>, Vec<String>)> {
        let shown = |misfits: &UnplacedPods| {
            let pods = misfits.pods.iter().map(ToString::to_string).collect();
            let reasons = misfits.reasons.iter().map(|(why, nodes)| format!("{nodes} {why}")).collect();
            (pods, reasons)
        };
        estimate.misfits.iter().map(shown).collect()
    }

    #[test]
    fn what_runs_there_already_takes_room() {
        let nodes = [node("n1", "4", &json!([])), node("n2", "4", &json!([]))];
        let pods: Vec<Pod> = ["a", "b", "c"].map(|name| pod(name, "2", &json!({}))).to_vec();
        let busy = pod("busy", "3", &json!({}));
        assert_eq!(tried(&pods, &nodes, &[]).fit, 3);
        let full = tried(&pods, &nodes, &[("n1", &busy)]);
        assert_eq!((full.fit, full.nodes), (2, 2));
        assert_eq!(misfits(&full), [(vec!["shop/c".to_owned()], vec!["2 short of cpu".to_owned()])]);
        assert_eq!(tried(&[], &nodes, &[]), CapacityEstimate { nodes: 2, ..CapacityEstimate::default() });
    }

    #[test]
    fn whoever_has_no_choice_chooses_first_and_then_the_largest() {
        let nodes = [node("n1", "4", &json!([])), node("n2", "4", &json!([]))];
        let bound = pod("z-bound", "4", &json!({"name": "n1"}));
        let pods = [pod("a", "1", &json!({})), pod("b", "3", &json!({})), bound];
        assert_eq!(tried(&pods, &nodes, &[]).misfits, []);
    }

    #[test]
    fn each_node_says_why_it_will_not_do() {
        let taints = json!([{"key": "k", "effect": "NoSchedule"}]);
        let nodes = [node("n1", "4", &taints), node("n2", "1", &json!([])), node("n3", "1", &json!([]))];
        let pods = [pod("big", "2", &json!({})), pod("picky", "1", &json!({"name": "n9"}))];
        let found = tried(&pods, &nodes, &[]);
        assert_eq!(found.fit, 0);
        let reasons = |pod: &str, why: &[&str]| {
            (vec![pod.to_owned()], why.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(
            misfits(&found),
            [
                reasons("shop/big", &["1 tainted k:NoSchedule", "2 short of cpu"]),
                reasons("shop/picky", &["3 not selected"])
            ]
        );
    }

    #[test]
    fn a_node_takes_only_so_many_pods_whatever_they_request() {
        let pods: Vec<Pod> = (0..6).map(|at| pod(&format!("p{at}"), "0", &json!({}))).collect();
        let found = tried(&pods, &[node("n1", "4", &json!([]))], &[]);
        assert_eq!(found.fit, 4);
        assert_eq!(misfits(&found)[0].1, ["1 full"]);
    }
}
