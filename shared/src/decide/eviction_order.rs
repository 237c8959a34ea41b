//! The order of a drain: which pods may leave now.
//!
//! With `PriorityAscending`, a storage plugin leaves after the pods that it serves. Only the plugin itself reports the name of
//! its driver, to the kubelet, and which driver serves a claim is in its `PersistentVolume`, which the reconciler has no
//! permission to read by default. So every plugin waits for all pods with volumes.

use crate::api::maintenance::{DrainOrder, DrainSpec};
use crate::cluster::pod::{self, DrainPod};
use crate::decide::cluster_state::ClusterState;
use crate::drain::plan::{DrainPlan, PlannedPod};
use crate::drain::virtual_machine::launcher_of;

/// Which pods may be evicted now by the order of the drain.
pub(super) struct EvictionOrder<'a> {
    observed: &'a ClusterState,
    /// The lowest priority of the remaining pods, if the order matters.
    lowest: Option<i32>,
    /// Whether plugins of the node are needed: the order matters, and pods remain that mount volumes which they may serve.
    needs_plugins: bool,
    /// Whether only the reconciler's own pod remains.
    only_own_pod: bool,
}

impl<'a> EvictionOrder<'a> {
    pub(super) fn new(plan: &DrainPlan, spec: &DrainSpec, observed: &'a ClusterState) -> Self {
        let others = || plan.pending().filter(|planned| !is_own(&planned.pod, observed));
        let is_ordered = spec.order == DrainOrder::PriorityAscending;
        let needs_plugins = is_ordered
            && others().any(|planned| planned.pod.mounts_served_volume && !planned.pod.registers_plugin);
        // KubeVirt gives a plugged disk no priority, and it leaves with its virtual machine.
        let is_disk = |pod: &DrainPod| {
            let on_node = plan.pods.iter().map(|planned| &*planned.pod);
            launcher_of(pod, on_node).is_some_and(|launcher| pod::uid(launcher) != pod::uid(pod))
        };
        let counts = |planned: &&PlannedPod| {
            is_ordered && !(needs_plugins && planned.pod.registers_plugin) && !is_disk(&planned.pod)
        };
        let lowest = others().filter(counts).map(|planned| planned.pod.priority).min();
        Self { observed, lowest, needs_plugins, only_own_pod: others().next().is_none() }
    }

    pub(super) fn allows(&self, pod: &DrainPod) -> bool {
        if is_own(pod, self.observed) {
            return self.only_own_pod;
        }
        let is_needed = self.needs_plugins && pod.registers_plugin;
        !is_needed && self.lowest.is_none_or(|lowest| pod.priority <= lowest)
    }

    /// How many pods leave before one that may not leave now. A plugin leaves after the last pod that mounts a volume, whatever
    /// its own priority.
    pub(super) fn ahead(&self, pod: &DrainPod, plan: &DrainPlan) -> usize {
        let is_needed = |pod: &DrainPod| self.needs_plugins && pod.registers_plugin;
        let counts = |other: &&DrainPod| !is_needed(other) && !is_own(other, self.observed);
        let others = || plan.pending().map(|planned| &*planned.pod).filter(counts);
        if is_needed(pod) {
            let last = others().filter(|other| other.mounts_served_volume).map(|other| other.priority).max();
            return others().filter(|other| Some(other.priority) <= last).count();
        }
        others().filter(|other| other.priority < pod.priority).count()
    }
}

fn is_own(pod: &DrainPod, observed: &ClusterState) -> bool {
    observed.own_pod.as_ref() == Some(&pod::reference(pod))
}
