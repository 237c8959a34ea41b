//! A budget that can never allow an eviction as it is: what it demands, and what its workloads are.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use nm_shared::cluster::metadata;
use nm_shared::cluster::resource_quota::FullQuota;

use crate::explain::no_node_left::NoNodeLeft;
use crate::explain::owner::{Owner, OwnerKind, owner_of};

/// A budget that can never allow an eviction as it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NeverAllows {
    /// What its spec demands.
    pub demand: Demand,
    /// How many pods it expects.
    pub pods: i32,
    /// Whether its Deployments can replace its pods before they leave; none if they cannot.
    pub surge: Option<SurgeGrant>,
    /// A quota that allows none of its pods a replacement in addition, if they can be replaced before they leave.
    pub full_quota: Option<Box<FullQuota>>,
    /// Whether the maintenance lets it do that.
    pub is_surge_set: bool,
    /// Of several workloads, those with one pod.
    pub with_one_pod: BTreeSet<Owner>,
    /// Where its pods are replaced after an eviction.
    pub replaced: Replaced,
    /// What manages it or its pods, if that is no kind of Kubernetes itself: it may allow evictions by itself, once its data is
    /// safe, for example.
    pub manager: Option<Owner>,
    /// Whether its pods could be read.
    pub are_pods_seen: bool,
    /// What its pods need before it allows an eviction with another number; none if enough of them are Ready.
    pub needs_ready: Option<NeedsReady>,
    /// Why its pod cannot be replaced on another node, if that is known.
    pub no_node: Option<NoNodeLeft>,
    /// Whether there are nodes for pods that must be on different nodes.
    pub apart: Apart,
}

/// Where the owners of pods replace them after an eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Replaced {
    /// On a node that the scheduler chooses.
    Anywhere,
    /// On their node, to which their templates assign them.
    OnSameNode,
    /// Nowhere, because no controller replaces them.
    Nowhere,
}

/// Whether pods that must be on different nodes, or that need a port of the host, have nodes for their replacements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Apart {
    /// They need not, or as many nodes in service as there are pods can take them, or the nodes are not known.
    Enough,
    /// Fewer nodes in service than there are pods can take them.
    TooFewNodes,
    /// Each node in service that can take a replacement has a pod that keeps it away.
    AllTaken,
}

/// The pods of a budget that have to be Ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NeedsReady {
    /// How many.
    pub pods: i32,
    /// Whether those that are not Ready are only starting.
    pub are_starting: bool,
    /// Whether those that are not Ready are all on nodes that do not report: nobody may be able to make them Ready.
    pub are_silent: bool,
}

/// Whether nm-reconciler has the permissions for a surge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SurgeGrant {
    /// It has them.
    Granted,
    /// It lacks them.
    Missing,
    /// That could not be found out.
    Unknown,
}

/// What a budget demands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Demand {
    /// `minAvailable` as a number of pods.
    MinAvailable(i32),
    /// `minAvailable` in percent.
    MinAvailablePercent(String),
    /// `maxUnavailable`: a number of pods or percent.
    MaxUnavailable(String),
}

/// What the spec of a budget demands.
pub(super) fn demand(object: &PodDisruptionBudget) -> Demand {
    let spec = object.spec.clone().unwrap_or_default();
    let text = |value: IntOrString| match value {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(percent) => percent,
    };
    match (spec.min_available, spec.max_unavailable) {
        (Some(IntOrString::Int(number)), _) => Demand::MinAvailable(number),
        (Some(IntOrString::String(percent)), _) => Demand::MinAvailablePercent(percent),
        (None, Some(value)) => Demand::MaxUnavailable(text(value)),
        // The default of the API server.
        (None, None) => Demand::MinAvailable(1),
    }
}

/// What manages a budget or the pods that it guards, other than Kubernetes itself.
pub(super) fn manager(object: &PodDisruptionBudget, pods: &[Pod]) -> Option<Owner> {
    let owners = object.metadata.owner_references.as_deref().unwrap_or_default();
    let of_budget = metadata::controller(owners).map(|owner| Owner::of(owner, None));
    // The kinds of the core group, such as a ConfigMap, manage nothing.
    let is_other =
        |owner: &Owner| matches!(owner.kind(), OwnerKind::Other { group, .. } if !group.is_empty());
    of_budget.into_iter().chain(pods.iter().filter_map(owner_of)).find(is_other)
}

/// The Deployments that these pods are of, each with a pod; none if some are of something else.
pub(super) fn deployments(pods: &[Pod]) -> Option<BTreeMap<Owner, &Pod>> {
    let of_deployment = |pod| {
        let owner = owner_of(pod).filter(|owner| *owner.kind() == OwnerKind::Deployment)?;
        Some((owner, pod))
    };
    pods.iter().map(of_deployment).collect()
}

/// Of several workloads, those with one pod.
pub(super) fn with_one_pod(pods: &[Pod]) -> BTreeSet<Owner> {
    let mut counts: BTreeMap<Owner, usize> = BTreeMap::new();
    for owner in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).filter_map(owner_of) {
        *counts.entry(owner).or_default() += 1;
    }
    let are_several = counts.len() > 1;
    counts.into_iter().filter(|(_, pods)| are_several && *pods == 1).map(|(owner, _)| owner).collect()
}
