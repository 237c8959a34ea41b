//! What a plan depends on of the pods on other nodes: the resources that they use, and which workloads have Ready pods there.
//!
//! In a large cluster it would be most of the work of a plan to read all of these pods. So a plan of a few nodes reads only
//! the pods of as many nodes as have capacity, and of each workload as many pods as it takes to find a Ready one.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, ListParams};
use nm_shared::cluster::metadata::{self, TEMPLATE_HASH};
use nm_shared::cluster::node;
use nm_shared::cluster::node_fit;
use nm_shared::cluster::pod::{self, PodPhase};
use nm_shared::cluster::pod_requests::Resources;
use nm_shared::cluster::volumes::Volumes;
use nm_shared::forecast::capacity::{self, PodToPlace};
use nm_shared::forecast::outage::{NamespacedWorkload, ReadyPods};
use nm_shared::forecast::preemption::UsedCapacity;

use crate::client::cluster::Cluster;
use crate::client::list_pages::{self, list_pages};
use crate::error::Error;

/// How many requests are sent at the same time.
pub(super) const MAX_CONCURRENT: usize = 8;

/// On how many nodes capacity is looked for before all pods are listed.
const MAX_NODES: usize = 64;

/// How many pods of a workload are read at a time to find a Ready one.
const FEW_PODS: u32 = 50;

/// The labels of a pod that no other pod of its workload has.
pub(super) const OWN_LABELS: [&str; 3] = [
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
];

/// The labels that differ between the revisions of a workload.
const REVISION_LABELS: [&str; 2] = [TEMPLATE_HASH, "controller-revision-hash"];

/// What a plan depends on of the pods on other nodes.
#[derive(Debug, Default)]
pub(crate) struct PodsElsewhere {
    /// What the pods use, by node. A node whose pods were not read counts as full.
    pub(crate) used: BTreeMap<String, UsedCapacity>,
    /// The Ready pods of workloads. If only some pods were read, one of each workload that has pods on planned nodes.
    pub(crate) ready: ReadyPods,
}

/// How much of the pods on other nodes was read.
pub(super) enum ReadElsewhere {
    /// What the plan depends on.
    Enough(PodsElsewhere),
    /// What shows which pods fit, but not what their preemption means for workloads. No unread node can take the pods that do not
    /// fit, so unread nodes count as empty: pods that are preempted may fit there.
    WithoutVictims(PodsElsewhere),
    /// Too little, within the limit of requests.
    TooLittle,
}

/// The pods on planned nodes.
pub(super) type PlannedPods<'a> = &'a [(&'a str, &'a [Arc<Pod>])];

impl PodsElsewhere {
    pub(super) fn add(&mut self, node: &str, pod: &Pod) {
        self.ready.extend(ready_pod(pod));
        self.add_used(node, pod);
    }

    fn add_used(&mut self, node: &str, pod: &Pod) {
        if PodPhase::of(pod) != PodPhase::Finished {
            self.used.entry(node.to_owned()).or_default().add(pod);
        }
    }

    /// Reads what a plan of these nodes depends on, as far as that takes no more requests than `limit`, the pods fit on a few
    /// nodes, and they do not preempt others, whose workloads matter then.
    pub(super) async fn read(
        planned: PlannedPods<'_>,
        nodes: Option<&[Node]>,
        volumes: &Volumes,
        cluster: &Cluster,
        limit: usize,
    ) -> Result<ReadElsewhere, Error> {
        let is_planned: HashSet<&str> = planned.iter().map(|(node, _)| *node).collect();
        let pods = || planned.iter().flat_map(|(_, pods)| pods.iter());
        let mut workloads: BTreeMap<NamespacedWorkload, &Pod> = BTreeMap::new();
        for pod in pods().filter(|pod| serves(pod)) {
            if let Some((workload, _)) = ready_pod(pod) {
                workloads.entry(workload).or_insert(pod);
            }
        }
        if workloads.len() > limit {
            return Ok(ReadElsewhere::TooLittle);
        }
        let requests = limit - workloads.len();
        let elsewhere =
            Self { ready: ready_elsewhere(&workloads, &is_planned, cluster).await?, ..Self::default() };
        let to_place = |pod: &&Arc<Pod>| {
            let is_replaced =
                controller(pod).is_some_and(|owner| owner.kind != "DaemonSet" && owner.kind != "Node");
            is_replaced && PodPhase::of(pod) != PodPhase::Finished
        };
        let to_place: Vec<PodToPlace<'_>> = pods()
            .filter(to_place)
            .map(|pod| PodToPlace { pod, volumes: volumes.node_selectors(pod) })
            .collect();
        let others = nodes.unwrap_or_default().iter().filter(|other| !is_planned.contains(node::name(other)));
        elsewhere.find_capacity(&to_place, others.collect(), cluster, requests.min(MAX_NODES)).await
    }

    /// Adds the pods of as many nodes as it takes to place all pods that fit somewhere.
    async fn find_capacity(
        mut self,
        to_place: &[PodToPlace<'_>],
        mut unread: Vec<&Node>,
        cluster: &Cluster,
        limit: usize,
    ) -> Result<ReadElsewhere, Error> {
        let mut read: Vec<&Node> = Vec::new();
        loop {
            let estimate = capacity::estimate(to_place, read.iter().copied(), |node| self.used.get(node));
            let unplaced = one_of_each_kind(to_place, &estimate);
            let could_take = |node: &&Node| unplaced.iter().any(|pod| fits_on_empty(pod, node));
            let next: Vec<&Node> = unread.iter().copied().filter(could_take).take(MAX_CONCURRENT).collect();
            if next.is_empty() && !estimate.preempting.is_empty() {
                return Ok(ReadElsewhere::WithoutVictims(self));
            }
            if next.is_empty() {
                break;
            }
            if read.len() + next.len() > limit {
                return Ok(ReadElsewhere::TooLittle);
            }
            let pods = stream::iter(&next).map(|node| of_node(node::name(node), cluster));
            let pods: Vec<Vec<Pod>> = pods.buffered(MAX_CONCURRENT).try_collect().await?;
            for (node, pods) in next.iter().zip(pods) {
                for pod in &pods {
                    self.add_used(node::name(node), pod);
                }
            }
            unread.retain(|other| !next.iter().any(|node| node::name(node) == node::name(other)));
            read.extend(next);
        }
        let full = unread.into_iter().map(|node| (node::name(node).to_owned(), UsedCapacity::of_full(node)));
        self.used.extend(full);
        Ok(ReadElsewhere::Enough(self))
    }
}

/// The pods of a node.
pub(super) async fn of_node(node: &str, cluster: &Cluster) -> Result<Vec<Pod>, Error> {
    let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    list_pages(&Api::all(cluster.client()), cluster, "list pods", on_node, Vec::push).await
}

/// The workload and the name of a pod that is Ready and not terminating.
pub(crate) fn ready_pod(pod: &Pod) -> Option<(NamespacedWorkload, String)> {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let is_ready =
        conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    if !is_ready || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let workload = NamespacedWorkload { namespace, workload: metadata::workload(&pod.metadata)? };
    Some((workload, pod.metadata.name.clone().unwrap_or_default()))
}

fn controller(pod: &Pod) -> Option<&OwnerReference> {
    metadata::controller(pod.metadata.owner_references.as_deref()?)
}

/// Whether it matters that other pods of the workload are Ready.
fn serves(pod: &Pod) -> bool {
    controller(pod).is_some_and(|owner| owner.kind != "DaemonSet" && !metadata::is_of(owner, "batch", "Job"))
}

/// A Ready pod on another node of each of these workloads that has one. One of the pods of each is known.
///
/// Most are found by the labels that the pods of a workload share. Labels may differ between its pods, as those of the primary
/// of a database do, so the namespaces of the others are listed until each has a Ready pod.
async fn ready_elsewhere(
    workloads: &BTreeMap<NamespacedWorkload, &Pod>,
    is_planned: &HashSet<&str>,
    cluster: &Cluster,
) -> Result<ReadyPods, Error> {
    let alike = async |(workload, pod): (&NamespacedWorkload, &&Pod)| {
        let wanted = BTreeSet::from([workload]);
        read_ready(&workload.namespace, alike(pod), &wanted, is_planned, cluster).await
    };
    let found = stream::iter(workloads).map(alike).buffered(MAX_CONCURRENT).try_collect::<Vec<_>>().await?;
    let mut ready = ReadyPods::default();
    for found in found {
        ready.add(found);
    }
    let mut missing: BTreeMap<&str, BTreeSet<&NamespacedWorkload>> = BTreeMap::new();
    for workload in workloads.keys().filter(|workload| !ready.contains(workload)) {
        missing.entry(&workload.namespace).or_default().insert(workload);
    }
    let whole = async |(namespace, wanted): (&str, BTreeSet<&NamespacedWorkload>)| {
        read_ready(namespace, ListParams::default(), &wanted, is_planned, cluster).await
    };
    let found = stream::iter(missing).map(whole).buffered(MAX_CONCURRENT).try_collect::<Vec<_>>().await?;
    for found in found {
        ready.add(found);
    }
    Ok(ready)
}

/// Selects the pods with the labels of `pod`, but for those that distinguish the pods and the revisions of a workload.
fn alike(pod: &Pod) -> ListParams {
    let mut labels = pod.metadata.labels.clone().unwrap_or_default();
    labels.retain(|label, _| !OWN_LABELS.iter().chain(&REVISION_LABELS).any(|other| other == label));
    let labels: Vec<String> = labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
    ListParams::default().labels(&labels.join(",")).limit(FEW_PODS)
}

/// Lists pods until each of the wanted workloads has a Ready one on another node, and returns these.
async fn read_ready(
    namespace: &str,
    selected: ListParams,
    wanted: &BTreeSet<&NamespacedWorkload>,
    is_planned: &HashSet<&str>,
    cluster: &Cluster,
) -> Result<ReadyPods, Error> {
    let pods: Api<Pod> = Api::namespaced(cluster.client(), namespace);
    let add = |found: &mut ReadyPods, pod: Pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let is_elsewhere = node.is_some_and(|node| !is_planned.contains(node));
        found.extend(ready_pod(&pod).filter(|(workload, _)| is_elsewhere && wanted.contains(workload)));
    };
    let are_all_found = |found: &ReadyPods| found.workloads() == wanted.len();
    list_pages::until(&pods, cluster, "list pods", selected, add, are_all_found).await
}

/// Of the pods that were not placed on free resources, one of those with the same requirements.
fn one_of_each_kind<'a>(
    pods: &'a [PodToPlace<'a>],
    estimate: &capacity::CapacityEstimate,
) -> Vec<&'a PodToPlace<'a>> {
    let unplaced = estimate.unplaced.iter().flat_map(|group| &group.pods);
    let unplaced: HashSet<_> =
        unplaced.chain(estimate.preempting.iter().map(|preemption| &preemption.pod)).collect();
    let mut known = HashSet::new();
    let unplaced = pods.iter().filter(|pod| unplaced.contains(&pod::reference_in(&pod.pod.metadata)));
    unplaced.filter(|pod| known.insert(capacity::requirements(pod))).collect()
}

/// Whether a pod would fit if the node had no pods.
fn fits_on_empty(pod: &PodToPlace<'_>, node: &Node) -> bool {
    node_fit::check(pod.pod, &pod.volumes, node).is_ok()
        && Resources::of_node(node).short_of(&Resources::of_pod(pod.pod)).is_none()
}
