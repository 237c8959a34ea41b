//! Reads what [`ClusterFacts`] contain, with the permissions of the user. Nothing here fails: what cannot be read is unseen.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::time::Duration;

use futures::future::join_all;
use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, ListParams};
use kube::core::{NamespaceResourceScope, Selector};
use kube::{Resource, ResourceExt};
use nm_shared::cluster::disruption_budget::Budget;
use nm_shared::cluster::metadata;
use nm_shared::cluster::volumes::{self, Volumes};
use nm_shared::{NodeMaintenance, PodReference};
use serde::de::DeserializeOwned;

use crate::client::cluster::Cluster;
use crate::client::list_pages::list_pages;
use crate::error::Error;
use crate::explain::cluster_facts::{
    ClusterFacts, FactsToRead, GuardedPods, IncompleteOwner, ReadPod, UnreadyNode, Unseen,
};
use crate::explain::first_cause::owner_of;
use crate::explain::obstacle::{Obstacle, PodWarning};
use crate::explain::pending_claim::{NO_PROVISIONER, NoVolume, PendingClaim};
use crate::maintenance::node;

/// How many budgets are read at most.
const MAX_BUDGETS: usize = 50;

/// How many budgets are read at the same time.
pub(super) const MAX_CONCURRENT: usize = 8;

/// How many pods of a budget are read. Of a larger workload, the rest is unseen.
pub(super) const MAX_PODS: u32 = 1000;

/// Of how many pods the events are read, and how many owners, of each budget.
pub(super) const MAX_DETAILS: usize = 3;

/// Of how many claims the volumes are read at most.
const MAX_CLAIMS: usize = 20;

/// How many events about an object, or about the pods of a namespace, are read at most.
pub(super) const MAX_EVENTS: u32 = 100;

/// How many nodes are read one by one at most. To read more, all nodes are listed, unless that fails.
const MAX_SINGLE_NODES: usize = 50;

/// How many pods of a node a response has at most: a whole pod takes about 20 KiB of memory.
const PAGE_SIZE: u32 = 200;

/// How long nodes are read one by one at most.
const MAX_SINGLE_READ: Duration = Duration::from_secs(30);

/// Of how many nodes the terminating pods are read at most.
const MAX_TERMINATING: usize = 100;

/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Reads what has to be known to explain these maintenances. `all` are the maintenances of the cluster.
pub async fn read<'a>(
    cluster: &Cluster,
    explained: impl IntoIterator<Item = &'a NodeMaintenance>,
    all: impl IntoIterator<Item = &'a NodeMaintenance>,
    now: Timestamp,
) -> ClusterFacts {
    let explained: Vec<&NodeMaintenance> = explained.into_iter().collect();
    let wanted = FactsToRead::of(explained.iter().copied());
    let (mut facts, nodes) = tokio::join!(
        Box::pin(read_wanted(cluster, &wanted, ClusterFacts::of_maintenances(all), now)),
        Box::pin(own_nodes(cluster, &explained))
    );
    for (name, node) in nodes {
        match node {
            Some(node) => facts.unready.extend(UnreadyNode::of(&node).map(|unready| (name, unready))),
            None => facts.deleted.extend([name]),
        }
    }
    facts
}

/// The nodes of these maintenances, as far as the user may read them; none of one that does not exist.
async fn own_nodes(cluster: &Cluster, explained: &[&NodeMaintenance]) -> Vec<(String, Option<Node>)> {
    let names: BTreeSet<&str> = explained.iter().map(|object| node(object)).collect();
    let nodes: Api<Node> = Api::all(cluster.client());
    let mut most = usize::MAX;
    if names.len() > MAX_SINGLE_NODES {
        match list(cluster, &nodes, "list nodes", ListParams::default()).await {
            Ok(all) => {
                let mut all: HashMap<String, Node> =
                    all.into_iter().map(|node| (node.name_any(), node)).collect();
                return names.into_iter().map(|name| (name.to_owned(), all.remove(name))).collect();
            }
            Err(Unseen::Forbidden(_)) => most = MAX_SINGLE_NODES,
            Err(Unseen::Failed(..)) => {}
        }
    }
    // Those that are not read count as existing and Ready.
    let read = stream::iter(names.into_iter().take(most)).map(async |name| {
        let asked = "get nodes";
        let request = cluster.request(asked, async || nodes.get_opt(name).await);
        Some((name.to_owned(), within_timeout(asked, request).await.ok()?))
    });
    let read = read.buffered(MAX_CONCURRENT).take_until(tokio::time::sleep(MAX_SINGLE_READ));
    read.filter_map(async |found| found).collect().await
}

/// Adds what is wanted to facts of which only the maintenances are known.
pub async fn read_wanted(
    cluster: &Cluster,
    wanted: &FactsToRead,
    mut facts: ClusterFacts,
    now: Timestamp,
) -> ClusterFacts {
    let budgets = wanted.budgets.iter().take(MAX_BUDGETS).cloned();
    let budgets = stream::iter(budgets).map(async |budget| {
        let guarded = guarded_pods(cluster, &budget, now).await;
        (budget, guarded)
    });
    let nodes = wanted.nodes.iter().take(MAX_TERMINATING).cloned();
    let terminating = stream::iter(nodes).map(async |node| {
        let pods = terminating_on(cluster, &node).await;
        (node, pods)
    });
    let replacements = stream::iter(wanted.replacements.iter().cloned()).map(async |name| {
        let read = replacement(cluster, &name).await;
        (name, read)
    });
    let (budgets, terminating, replacements): (Vec<_>, Vec<_>, Vec<_>) = tokio::join!(
        budgets.buffered(MAX_CONCURRENT).collect(),
        terminating.buffered(MAX_CONCURRENT).collect(),
        replacements.buffered(MAX_CONCURRENT).collect()
    );
    facts.budgets = budgets.into_iter().collect();
    facts.terminating = terminating.into_iter().collect();
    facts.replacements = replacements.into_iter().collect();
    if needs_nodes(&facts) {
        read_nodes(cluster, &mut facts).await;
    }
    facts
}

/// Reads all nodes, unless they are known, and the volumes of the pods that are known now, to see which nodes suit a pod.
pub(super) async fn read_nodes(cluster: &Cluster, facts: &mut ClusterFacts) {
    let nodes: Api<Node> = Api::all(cluster.client());
    let known = facts.nodes.take();
    let nodes = async {
        match known {
            Some(known) => known,
            None => list(cluster, &nodes, "list nodes", ListParams::default()).await,
        }
    };
    let (nodes, volumes) = tokio::join!(nodes, volumes(cluster, facts));
    (facts.nodes, facts.volumes) = (Some(nodes), volumes);
}

/// The volumes of the pods for which it matters, those on nodes in maintenance first. What may not be read is left out.
async fn volumes(cluster: &Cluster, facts: &ClusterFacts) -> Volumes {
    let mut pods: Vec<&Pod> = facts.pods().collect();
    let stays = |pod: &Pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        node.is_some_and(|node| !facts.in_maintenance.contains(node))
    };
    pods.sort_by_key(|pod| stays(pod));
    let mut seen = BTreeSet::new();
    let claims = pods.into_iter().flat_map(|pod| {
        let namespace = pod.namespace().unwrap_or_default();
        volumes::claims(pod)
            .map(move |claim| PodReference { namespace: namespace.clone(), name: claim.to_owned() })
    });
    let claims = claims.filter(|claim| seen.insert(claim.clone())).take(MAX_CLAIMS);
    let claims: Vec<PodReference> = claims.collect();
    let read = stream::iter(claims).map(async |claim| volume(cluster, &claim).await);
    let read: Vec<Option<PersistentVolume>> = read.buffered(MAX_CONCURRENT).collect().await;
    Volumes::new(read.into_iter().flatten())
}

/// The volume of a claim; none if it has none, or without access.
async fn volume(cluster: &Cluster, claim: &PodReference) -> Option<PersistentVolume> {
    let claim = get::<PersistentVolumeClaim>(cluster, "persistentvolumeclaims", claim).await.ok()??;
    let name = claim.spec?.volume_name?;
    let (volumes, asked): (Api<PersistentVolume>, _) = (Api::all(cluster.client()), "get persistentvolumes");
    within_timeout(asked, cluster.request(asked, async || volumes.get_opt(&name).await)).await.ok()?
}

/// Whether the scheduler finds no node for a pod.
pub(super) fn is_unschedulable(pod: &Pod) -> bool {
    matches!(Obstacle::of(pod, &[], Timestamp::UNIX_EPOCH), Some(Obstacle::Unschedulable(_)))
}

/// Whether a pod fits no node, or whether it matters if another one would.
fn needs_nodes(facts: &ClusterFacts) -> bool {
    let guarded = facts.budgets.values().filter_map(|guarded| guarded.pods.as_ref().ok()).flatten();
    let replacements = facts.replacements.values().flatten().flatten().map(|read| &read.pod);
    let mut pods = guarded.chain(replacements);
    let mut budgets = facts.budgets.values().filter_map(|guarded| guarded.budget.as_ref().ok()?.as_ref());
    pods.any(is_unschedulable)
        || budgets.any(|budget| {
            let expected = budget.status.as_ref().map(|status| status.expected_pods);
            expected.is_some_and(|pods| pods > 0) && Budget::from(budget).is_unsatisfiable()
        })
}

/// A pod that replaces another one, with the warnings about it if they show more.
async fn replacement(cluster: &Cluster, name: &PodReference) -> Result<Option<ReadPod>, Unseen> {
    let Some(pod) = get::<Pod>(cluster, "pods", name).await? else { return Ok(None) };
    let warnings = match Obstacle::of(&pod, &[], Timestamp::UNIX_EPOCH) {
        Some(obstacle) if has_more(&obstacle) => warnings_about(cluster, &pod).await,
        _ => Vec::new(),
    };
    Ok(Some(ReadPod { pod, warnings }))
}

async fn guarded_pods(cluster: &Cluster, budget: &PodReference, now: Timestamp) -> GuardedPods {
    let namespace = &budget.namespace;
    let object = get::<PodDisruptionBudget>(cluster, "poddisruptionbudgets.policy", budget).await;
    let mut guarded = GuardedPods {
        budget: object,
        pods: Ok(Vec::new()),
        incomplete_owners: Vec::new(),
        warnings: HashMap::new(),
    };
    let Ok(Some(object)) = &guarded.budget else { return guarded };
    // Without a selector, it guards none.
    let selector = object.spec.as_ref().and_then(|spec| spec.selector.clone());
    let Some(selector) = selector.and_then(|selector| Selector::try_from(selector).ok()) else {
        return guarded;
    };
    let pods: Api<Pod> = Api::namespaced(cluster.client(), namespace);
    let selected = ListParams::default().labels_from(&selector).limit(MAX_PODS);
    guarded.pods = list(cluster, &pods, "list pods", selected).await;
    let Ok(pods) = &guarded.pods else { return guarded };
    let unready: Vec<&Pod> = pods
        .iter()
        .filter(|pod| Obstacle::of(pod, &[], now).is_some_and(|obstacle| has_more(&obstacle)))
        .take(MAX_DETAILS)
        .collect();
    let owners = controllers(pods);
    let warnings = join_all(
        unready.iter().map(async |pod| (pod.uid().unwrap_or_default(), warnings_about(cluster, pod).await)),
    );
    let owners = join_all(owners.iter().map(|owner| incomplete(cluster, namespace, owner)));
    let (warnings, owners) = tokio::join!(warnings, owners);
    guarded.warnings = warnings.into_iter().collect();
    guarded.incomplete_owners = owners.into_iter().flatten().collect();
    guarded
}

/// Whether events or claims show more of what keeps a pod from being Ready.
fn has_more(obstacle: &Obstacle) -> bool {
    use Obstacle::{FirstProbe, ReadinessProbe, Starting};
    is_unscheduled(obstacle) || matches!(obstacle, Starting | FirstProbe { .. } | ReadinessProbe { .. })
}

fn is_unscheduled(obstacle: &Obstacle) -> bool {
    matches!(obstacle, Obstacle::Unschedulable(_) | Obstacle::Unscheduled)
}

/// The warnings about a pod. One that is not scheduled may have claims without a volume.
pub(super) async fn warnings_about(cluster: &Cluster, pod: &Pod) -> Vec<PodWarning> {
    let namespace = pod.namespace().unwrap_or_default();
    let obstacle = Obstacle::of(pod, &[], Timestamp::UNIX_EPOCH);
    if !obstacle.as_ref().is_some_and(is_unscheduled) {
        return warnings(cluster, &namespace, &pod.uid().unwrap_or_default()).await;
    }
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims = volumes.filter_map(|volume| {
        let of_template = || Some(format!("{}-{}", pod.name_any(), volume.name));
        let name = volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.clone());
        let name = name.or_else(|| volume.ephemeral.as_ref().and_then(|_| of_template()))?;
        Some(PodReference { namespace: namespace.clone(), name })
    });
    let claims = join_all(claims.take(MAX_DETAILS).map(|claim| pending_claim(cluster, claim))).await;
    let warning = |claim| PodWarning { claim: Some(claim), ..PodWarning::default() };
    claims.into_iter().flatten().map(warning).collect()
}

/// Why a claim has no volume; none if it has one, or if that is not known.
async fn pending_claim(cluster: &Cluster, claim: PodReference) -> Option<PendingClaim> {
    let found = get::<PersistentVolumeClaim>(cluster, "persistentvolumeclaims", &claim).await.ok()?;
    let Some(found) = found else {
        return Some(PendingClaim { claim, class: None, why: NoVolume::NoClaim });
    };
    if found.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Pending") {
        return None;
    }
    let class = found.spec.as_ref().and_then(|spec| spec.storage_class_name.clone());
    let class = class.filter(|name| !name.is_empty());
    let with = |why: NoVolume| Some(PendingClaim { claim: claim.clone(), class: class.clone(), why });
    if let Some(name) = &class {
        let classes: Api<StorageClass> = Api::all(cluster.client());
        let asked = "get storageclasses.storage.k8s.io";
        let request = cluster.request(asked, async || classes.get_opt(name).await);
        match within_timeout(asked, request).await {
            Ok(None) => return with(NoVolume::NoClass),
            Ok(Some(class)) if class.provisioner == NO_PROVISIONER => return with(NoVolume::NoProvisioner),
            _ => {}
        }
    }
    let about = format!("involvedObject.uid={}", found.uid().unwrap_or_default());
    let event = events(cluster, &claim.namespace, &about).await.pop()?;
    let message = event.message.unwrap_or_default();
    match event.reason.as_deref() {
        // The pod has to be scheduled first.
        Some("WaitForFirstConsumer" | "WaitForPodScheduled") => None,
        Some("Provisioning" | "ExternalProvisioning" | "ExternalProvisioner") => {
            with(NoVolume::Awaited(found.creation_timestamp()?.0, message))
        }
        _ => with(NoVolume::Failed(message)),
    }
}

/// The controllers of pods, each with a pod of it.
fn controllers(pods: &[Pod]) -> Vec<(OwnerReference, &Pod)> {
    let mut seen = BTreeSet::new();
    let controller = |pod: &Pod| metadata::controller(pod.metadata.owner_references.as_deref()?).cloned();
    let owners = pods.iter().filter_map(|pod| Some((controller(pod)?, pod)));
    owners.filter(|(owner, _)| seen.insert(owner.uid.clone())).take(MAX_DETAILS).collect()
}

/// The owner, if it cannot create all of its pods. A `ReplicaSet` reports that as a condition, a `StatefulSet` as an event.
async fn incomplete(
    cluster: &Cluster,
    namespace: &str,
    (owner, pod): &(OwnerReference, &Pod),
) -> Option<IncompleteOwner> {
    let name = PodReference { namespace: namespace.to_owned(), name: owner.name.clone() };
    let (missing, message) = if metadata::is_of(owner, "apps", "ReplicaSet") {
        let set = get::<ReplicaSet>(cluster, "replicasets.apps", &name).await.ok()??;
        let status = set.status.unwrap_or_default();
        let mut conditions = status.conditions.into_iter().flatten();
        let failure =
            conditions.find(|condition| condition.type_ == "ReplicaFailure" && condition.status == "True")?;
        (set.spec?.replicas? - status.replicas, failure.message.unwrap_or_default())
    } else if metadata::is_of(owner, "apps", "StatefulSet") {
        let set = get::<StatefulSet>(cluster, "statefulsets.apps", &name).await.ok()??;
        let missing = set.spec?.replicas? - set.status.unwrap_or_default().replicas;
        if missing <= 0 {
            return None;
        }
        let warnings = warnings(cluster, namespace, &owner.uid).await;
        let failure = warnings.into_iter().rev().find(|warning| warning.reason == "FailedCreate")?;
        (missing, failure.message)
    } else {
        return None;
    };
    (missing > 0).then_some(IncompleteOwner { owner: owner_of(pod)?, missing, message })
}

/// The warnings about an object, the newest last. None without access, because they only add to what pods show.
async fn warnings(cluster: &Cluster, namespace: &str, uid: &str) -> Vec<PodWarning> {
    let found = events(cluster, namespace, &format!("type=Warning,involvedObject.uid={uid}")).await;
    let warning = |event: Event| PodWarning {
        first: event.first_timestamp.as_ref().map(|at| at.0),
        reason: event.reason.unwrap_or_default(),
        message: event.message.unwrap_or_default().trim().to_owned(),
        claim: None,
    };
    found.into_iter().map(warning).collect()
}

/// The events that these fields select, the newest last. None without access.
async fn events(cluster: &Cluster, namespace: &str, fields: &str) -> Vec<Event> {
    let mut found = some_events(cluster, namespace, fields).await.unwrap_or_default().0;
    let at = |event: &Event| {
        let seen = event.last_timestamp.as_ref().map(|at| at.0);
        seen.or_else(|| event.event_time.as_ref().map(|at| at.0))
    };
    found.sort_by_key(at);
    found
}

/// Up to [`MAX_EVENTS`] events that these fields select, and whether there are more.
pub(super) async fn some_events(
    cluster: &Cluster,
    namespace: &str,
    fields: &str,
) -> Result<(Vec<Event>, bool), Unseen> {
    let events: Api<Event> = Api::namespaced(cluster.client(), namespace);
    let which = ListParams::default().fields(fields).limit(MAX_EVENTS);
    page(cluster, &events, "list events", which).await
}

/// The pods that are terminating on a node. A node may have thousands of others: they are dropped page by page.
async fn terminating_on(cluster: &Cluster, node: &str) -> Result<Vec<Pod>, Unseen> {
    let on_node = ListParams::default().fields(&format!("spec.nodeName={node}")).limit(PAGE_SIZE);
    let add = |terminating: &mut Vec<Pod>, pod: Pod| {
        if pod.metadata.deletion_timestamp.is_some() {
            terminating.push(pod);
        }
    };
    let what = "list pods";
    within_timeout(what, list_pages(&Api::all(cluster.client()), cluster, what, on_node, add)).await
}

async fn get<K>(cluster: &Cluster, resource: &str, name: &PodReference) -> Result<Option<K>, Unseen>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(cluster.client(), &name.namespace);
    let asked = format!("get {resource}");
    within_timeout(&asked, cluster.request(&asked, async || api.get_opt(&name.name).await)).await
}

pub(super) async fn list<K>(
    cluster: &Cluster,
    api: &Api<K>,
    asked: &str,
    which: ListParams,
) -> Result<Vec<K>, Unseen>
where
    K: Clone + Debug + DeserializeOwned,
{
    let is_limited = which.limit.is_some();
    let (items, is_cut) = page(cluster, api, asked, which).await?;
    if is_limited && is_cut && asked == "list pods" {
        return Err(Unseen::Failed(asked.to_owned(), format!("there are more than {MAX_PODS}")));
    }
    Ok(items)
}

/// The objects of a list up to its limit, and whether there are more.
pub(super) async fn page<K>(
    cluster: &Cluster,
    api: &Api<K>,
    asked: &str,
    which: ListParams,
) -> Result<(Vec<K>, bool), Unseen>
where
    K: Clone + Debug + DeserializeOwned,
{
    let list = within_timeout(asked, cluster.request(asked, async || api.list(&which).await)).await?;
    let is_cut = list.metadata.continue_.as_deref().is_some_and(|token| !token.is_empty());
    Ok((list.items, is_cut))
}

async fn within_timeout<T>(
    asked: &str,
    request: impl Future<Output = Result<T, Error>>,
) -> Result<T, Unseen> {
    let failed = |why: String| Unseen::Failed(asked.to_owned(), why);
    match tokio::time::timeout(TIMEOUT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) if error.is_forbidden() => Err(Unseen::Forbidden(asked.to_owned())),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed(format!("no answer within {} s", TIMEOUT.as_secs()))),
    }
}
