//! Which pods the scheduler preempts for a pod of higher priority that fits on no node otherwise.
//!
//! Source: `pkg/scheduler/framework/preemption` in kubernetes. Of the pods of lower priority on a node, as many stay as there is
//! capacity for, those of higher priority first. The scheduler also prefers nodes on which no budget is violated. Budgets and
//! affinity between pods are not considered here.

use std::cmp::Reverse;

use k8s_openapi::api::core::v1::{Affinity, Node, Pod, PodSpec, Toleration};

use crate::api::pod_reference::PodReference;
use crate::cluster::node_fit;
use crate::cluster::pod;
use crate::cluster::pod_requests::Resources;

/// What the pods on a node use.
#[derive(Debug, Clone, Default)]
pub struct UsedCapacity {
    /// What they request together.
    pub requested: Resources,
    pub(super) pods: Vec<RunningPod>,
}

/// A pod as far as another one may preempt it.
#[derive(Debug, Clone)]
pub(super) struct RunningPod {
    pub(super) pod: PodReference,
    pub(super) requested: Resources,
    pub(super) priority: i32,
    /// What decides which nodes suit the pod; none if that is nothing of its own.
    placement: Option<Box<PodSpec>>,
}

impl RunningPod {
    /// Whether the pod may run on a node, regardless of its capacity. Its volumes are not known.
    pub(super) fn suits(&self, node: &Node) -> bool {
        let unrestricted = PodSpec::default();
        node_fit::check_spec(self.placement.as_deref().unwrap_or(&unrestricted), &[], node).is_ok()
    }
}

/// A pod that fits only instead of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preemption {
    /// The pod.
    pub pod: PodReference,
    /// The node that it fits.
    pub node: String,
    /// The pods there that are preempted.
    pub preempted: Vec<PodReference>,
    /// Those of them that no node suits which has the resources after that.
    pub displaced: Vec<PodReference>,
}

impl UsedCapacity {
    /// What is used on a node that takes no more pods, because its pods were not read.
    pub fn of_full(node: &Node) -> Self {
        Self { requested: Resources::pods_of_node(node), pods: Vec::new() }
    }

    /// Adds a pod.
    pub fn add(&mut self, pod: &Pod) {
        let requested = Resources::of_pod(pod);
        self.requested.add(&requested);
        self.pods.push(RunningPod {
            pod: pod::reference_in(&pod.metadata),
            priority: priority(pod),
            requested,
            placement: pod.spec.as_ref().and_then(placement),
        });
    }
}

/// What [`node_fit`] checks of a pod, without the rest: there may be a hundred thousand pods. None if nothing is set.
fn placement(spec: &PodSpec) -> Option<Box<PodSpec>> {
    // Of the taints that every pod tolerates for a while, a Ready node has none.
    let is_own = |toleration: &&Toleration| {
        let key = toleration.key.as_deref();
        !matches!(key, Some("node.kubernetes.io/not-ready" | "node.kubernetes.io/unreachable"))
    };
    let tolerations: Vec<Toleration> = spec.tolerations.iter().flatten().filter(is_own).cloned().collect();
    let node_selector = spec.node_selector.clone().filter(|labels| !labels.is_empty());
    let node_affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.clone());
    if tolerations.is_empty() && node_selector.is_none() && node_affinity.is_none() {
        return None;
    }
    let affinity = node_affinity.map(|nodes| Affinity { node_affinity: Some(nodes), ..Affinity::default() });
    let tolerations = Some(tolerations);
    Some(Box::new(PodSpec { node_selector, affinity, tolerations, ..PodSpec::default() }))
}

/// The value of the priority class of a pod; 0 without one.
pub(super) fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
}

/// Whether a pod may preempt others.
pub(super) fn may_preempt(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.preemption_policy.as_deref()) != Some("Never")
}

/// The pods of those on a node that a pod of this priority preempts, which requests `wanted`, where so much is `free`; none if it
/// does not fit even then.
pub(super) fn victims<'a>(
    priority: i32,
    wanted: &Resources,
    on_node: &[&'a RunningPod],
    free: &Resources,
) -> Option<Vec<&'a RunningPod>> {
    let mut lower: Vec<&RunningPod> =
        on_node.iter().copied().filter(|other| other.priority < priority).collect();
    if lower.is_empty() {
        return free.short_of(wanted).is_none().then_some(lower);
    }
    lower.sort_by_key(|other| Reverse(other.priority));
    let mut free = free.clone();
    for other in &lower {
        free.add(&other.requested);
    }
    if free.short_of(wanted).is_some() {
        return None;
    }
    lower.retain(|other| {
        free.subtract(&other.requested);
        let is_victim = free.short_of(wanted).is_some();
        if is_victim {
            free.add(&other.requested);
        }
        is_victim
    });
    Some(lower)
}

/// The costs of preempting these pods, as the scheduler compares them: the highest priority, then the sum of the priorities, none
/// of which counts as negative, so that fewer pods cost less.
pub(super) fn cost(victims: &[&RunningPod]) -> (Option<i32>, i64) {
    let above_lowest = |pod: &&RunningPod| i64::from(pod.priority) - i64::from(i32::MIN);
    (victims.iter().map(|pod| pod.priority).max(), victims.iter().map(above_lowest).sum())
}
