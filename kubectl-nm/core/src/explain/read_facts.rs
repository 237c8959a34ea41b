//! Reads what [`ClusterFacts`] contain, with the permissions of the user. Nothing here fails: what cannot be read is unseen.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use futures::future::join_all;
use futures::stream::{self, StreamExt};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, ResourceQuota};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use kube::core::Selector;
use nm_shared::cluster::disruption_budget::Budget;
use nm_shared::cluster::metadata;
use nm_shared::cluster::node::{Readiness, readiness};
use nm_shared::cluster::pod::DrainPod;
use nm_shared::cluster::resource_quota::{self, FullQuota};
use nm_shared::cluster::volumes::{self, Volumes};
use nm_shared::drain::surge;
use nm_shared::{Grant, NodeMaintenance, PodReference};

use crate::client::cluster::Cluster;
use crate::client::list_pages::list_pages;
use crate::client::reconciler_grants;
use crate::explain::bounded_requests::{MAX_CONCURRENT, MAX_PODS, get, list, within_timeout};
use crate::explain::cluster_facts::{
    ClusterFacts, FactsToRead, GuardedPods, IncompleteOwner, ReadPod, UnreadyNode, Unseen,
};
use crate::explain::granted;
use crate::explain::obstacle::{Obstacle, starting_since};
use crate::explain::owner::{Owner, job_of, owner_of};
use crate::explain::read_rollouts;
use crate::explain::read_warnings::{MAX_DETAILS, add_volumes, is_unscheduled, warnings, warnings_about};
use crate::explain::unsatisfiable_budget::deployments;
use crate::maintenance::node;

/// How many budgets are read at most.
const MAX_BUDGETS: usize = 100;

/// Of how many claims the volumes are read at most at once.
const MAX_CLAIMS: usize = 20;

/// How many nodes are read one by one at most. To read more, all nodes are listed, unless that fails.
const MAX_SINGLE_NODES: usize = 50;

/// How many of the pods that drains leave to terminate on their own are read at most.
const MAX_AWAITED: usize = 50;

/// How many of the pods that their emptyDir data keeps are read at most.
const MAX_KEPT: usize = 50;

/// How many pods of a node a response has at most: a whole pod takes about 20 KiB of memory.
const PAGE_SIZE: u32 = 200;

/// How long nodes are read one by one at most.
const MAX_SINGLE_READ: Duration = Duration::from_secs(30);

/// How long a pod may be starting before it is read whether its node reports.
const START: SignedDuration = SignedDuration::from_secs(20);

/// How many nodes of pods that have been starting for long are read at most.
const MAX_LATE: usize = 20;

/// Of how many nodes the terminating pods are read at most.
const MAX_TERMINATING: usize = 100;

/// Reads what has to be known to explain these maintenances. `all` are the maintenances of the cluster.
pub async fn read<'a>(
    cluster: &Cluster,
    explained: impl IntoIterator<Item = &'a NodeMaintenance>,
    all: impl IntoIterator<Item = &'a NodeMaintenance>,
    now: Timestamp,
) -> ClusterFacts {
    let explained: Vec<&NodeMaintenance> = explained.into_iter().collect();
    let wanted = FactsToRead::of(explained.iter().copied());
    let known = ClusterFacts::of_maintenances(all);
    let halts = known.rolls.halts_of(explained.iter().copied());
    let halted: BTreeSet<String> = halts.values().map(|halt| halt.node.clone()).collect();
    let own = explained.iter().map(|object| node(object)).chain(halted.iter().map(String::as_str));
    let own: BTreeSet<&str> = own.filter(|node| !node.is_empty()).collect();
    let (mut facts, nodes) =
        tokio::join!(Box::pin(read_wanted(cluster, &wanted, known, now)), Box::pin(own_nodes(cluster, &own)));
    for (name, node) in nodes {
        match node {
            Some(node) => {
                facts.unready.extend(UnreadyNode::of(&node).map(|unready| (name.clone(), unready)));
                if let Readiness::Ready(Some(since)) = readiness(&node) {
                    facts.ready_since.insert(name.clone(), since);
                }
                facts.halted.extend(halted.contains(&name).then_some((name, node)));
            }
            None => facts.deleted.extend([name]),
        }
    }
    if explained.len() > 1 {
        facts.unread_budgets.extend(wanted.budgets.into_iter().skip(MAX_BUDGETS));
    }
    facts
}

/// Adds the budgets that keep pods on the nodes of the other maintenances, if a pod is unschedulable: such a node takes it only if
/// these pods leave it room, so its return to service may not help.
pub async fn add_neighbours<'a>(
    facts: &mut ClusterFacts,
    others: impl IntoIterator<Item = &'a NodeMaintenance>,
    cluster: &Cluster,
    now: Timestamp,
) {
    if !facts.pods().any(is_unschedulable) {
        return;
    }
    let known = facts.budgets.len();
    let budgets = FactsToRead::of(others).budgets;
    let new = budgets.into_iter().filter(|budget| !facts.budgets.contains_key(budget));
    let new: Vec<PodReference> = new.take(MAX_BUDGETS.saturating_sub(known)).collect();
    facts.budgets.extend(guarded_by(cluster, new, now).await);
}

/// The pods of these budgets.
async fn guarded_by(
    cluster: &Cluster,
    budgets: impl IntoIterator<Item = PodReference>,
    now: Timestamp,
) -> Vec<(PodReference, GuardedPods)> {
    let read = stream::iter(budgets).map(async |budget| {
        let guarded = guarded_pods(cluster, &budget, now).await;
        (budget, guarded)
    });
    read.buffered(MAX_CONCURRENT).collect().await
}

/// These nodes, as far as the user may read them; none of one that does not exist.
async fn own_nodes(cluster: &Cluster, names: &BTreeSet<&str>) -> Vec<(String, Option<Node>)> {
    let nodes: Api<Node> = Api::all(cluster.client());
    let mut most = usize::MAX;
    if names.len() > MAX_SINGLE_NODES {
        match list(cluster, &nodes, "list nodes", ListParams::default()).await {
            Ok(all) => {
                let mut all: HashMap<String, Node> =
                    all.into_iter().map(|node| (node.name_any(), node)).collect();
                return names.iter().map(|name| ((*name).to_owned(), all.remove(*name))).collect();
            }
            Err(Unseen::Forbidden(_)) => most = MAX_SINGLE_NODES,
            Err(Unseen::Failed(..)) => {}
        }
    }
    // Those that are not read count as existing and Ready.
    let read = stream::iter(names.iter().copied().take(most)).map(async |name| {
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
    let nodes = wanted.nodes.iter().take(MAX_TERMINATING).cloned();
    let terminating = stream::iter(nodes).map(async |node| {
        let pods = terminating_on(cluster, &node).await;
        (node, pods)
    });
    // Of pods without a controller, less depends on what they show.
    let kept = wanted.kept.iter().chain(&wanted.bare);
    let kept = kept.filter(|pod| !wanted.replacements.contains(pod)).take(MAX_KEPT);
    let replacements = stream::iter(wanted.replacements.iter().chain(kept).cloned()).map(async |name| {
        let read = replacement(cluster, &name).await;
        (name, read)
    });
    let awaited = stream::iter(wanted.awaited.iter().take(MAX_AWAITED).cloned()).map(async |name| {
        let read = replacement(cluster, &name).await.ok().flatten();
        Some((name, read?))
    });
    let rollouts = stream::iter(wanted.rollouts.iter().cloned()).map(async |name| {
        let read = read_rollouts::pods_of(cluster, &name, now).await;
        (name, read)
    });
    // What cannot be found out is said once nm-reconciler has tried.
    let is_deletion_denied =
        async { wanted.pod_deletion && read_grant(cluster, Grant::PodDeletion).await == Some(false) };
    let (granted, is_deletion_denied, budgets, terminating, replacements, awaited, rollouts): (
        _,
        _,
        Vec<_>,
        Vec<_>,
        Vec<_>,
        Vec<_>,
        Vec<_>,
    ) = tokio::join!(
        granted::read(cluster, &wanted.denied),
        is_deletion_denied,
        guarded_by(cluster, budgets, now),
        terminating.buffered(MAX_CONCURRENT).collect(),
        replacements.buffered(MAX_CONCURRENT).collect(),
        awaited.buffered(MAX_CONCURRENT).collect(),
        rollouts.buffered(MAX_CONCURRENT).collect()
    );
    facts.budgets = budgets.into_iter().collect();
    facts.terminating = terminating.into_iter().collect();
    facts.replacements = replacements.into_iter().collect();
    facts.awaited = awaited.into_iter().flatten().collect();
    facts.awaited_jobs = read_jobs(cluster, &facts.awaited).await;
    facts.rollouts = rollouts.into_iter().collect();
    (facts.granted, facts.is_deletion_denied) = (granted, is_deletion_denied);
    add_volumes(cluster, &mut facts, now).await;
    if facts.budgets.values().any(|guarded| guarded.may_surge) {
        facts.is_surge_granted = read_grant(cluster, Grant::Surge).await;
    }
    if wanted.has_unplaced || needs_nodes(&facts, now) {
        read_nodes(cluster, &mut facts).await;
    }
    read_late_nodes(cluster, &mut facts, now).await;
    facts
}

/// The Jobs of these pods. What may not be read is left out.
async fn read_jobs(cluster: &Cluster, pods: &BTreeMap<PodReference, ReadPod>) -> BTreeMap<PodReference, Job> {
    let names: BTreeSet<PodReference> = pods.values().filter_map(|read| job_of(&read.pod)).collect();
    let read = stream::iter(names).map(async |name| {
        let job = get::<Job>(cluster, "jobs.batch", &name).await.ok().flatten();
        Some((name, job?))
    });
    read.buffered(MAX_CONCURRENT).filter_map(async |found| found).collect().await
}

/// Whether nm-reconciler has the permissions of a grant; none if that is not known.
async fn read_grant(cluster: &Cluster, grant: Grant) -> Option<bool> {
    let asked = "create subjectaccessreviews.authorization.k8s.io";
    within_timeout(asked, reconciler_grants::read(cluster, grant)).await.ok().flatten()
}

/// Reads all nodes, and the volumes of the pods that are known now, unless they have been read, to see which nodes suit a pod.
pub(super) async fn read_nodes(cluster: &Cluster, facts: &mut ClusterFacts) {
    let nodes: Api<Node> = Api::all(cluster.client());
    let known = facts.nodes.take();
    let nodes = async {
        match known {
            Some(known) => known,
            None => list(cluster, &nodes, "list nodes", ListParams::default()).await,
        }
    };
    let claims = unread_claims(facts);
    let (nodes, volumes) = tokio::join!(nodes, volumes(cluster, &claims));
    facts.nodes = Some(nodes);
    facts.volumes.add(volumes);
    facts.claims.extend(claims);
}

/// The first claims of the pods for which it matters that were not read, those of pods on nodes in maintenance first.
fn unread_claims(facts: &ClusterFacts) -> Vec<PodReference> {
    let mut pods: Vec<&Pod> = facts.pods().collect();
    let stays = |pod: &Pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        node.is_some_and(|node| !facts.in_maintenance.contains(node))
    };
    pods.sort_by_key(|pod| stays(pod));
    let mut seen = facts.claims.clone();
    let claims = pods.into_iter().flat_map(|pod| {
        let namespace = pod.namespace().unwrap_or_default();
        volumes::claims(pod)
            .map(move |claim| PodReference { namespace: namespace.clone(), name: claim.to_owned() })
    });
    claims.filter(|claim| seen.insert(claim.clone())).take(MAX_CLAIMS).collect()
}

/// The volumes of these claims. What may not be read is left out.
async fn volumes(cluster: &Cluster, claims: &[PodReference]) -> Volumes {
    let read = stream::iter(claims).map(async |claim| volume(cluster, claim).await);
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
fn is_unschedulable(pod: &Pod) -> bool {
    matches!(Obstacle::of(pod, &[], Timestamp::UNIX_EPOCH), Some(Obstacle::Unschedulable(_)))
}

/// Whether a pod depends on what nodes show, or whether it matters if another node would suit one.
fn needs_nodes(facts: &ClusterFacts, now: Timestamp) -> bool {
    let mut budgets = facts.budgets.values().filter_map(|guarded| guarded.budget.as_ref().ok()?.as_ref());
    facts.pods().any(|pod| depends_on_nodes(pod, now)) || budgets.any(is_unsatisfiable)
}

/// Whether a pod fits no node, or whether its node may be off, as the pod should have terminated by now.
pub(super) fn depends_on_nodes(pod: &Pod, now: Timestamp) -> bool {
    let is_overdue = || pod.metadata.deletion_timestamp.as_ref().is_some_and(|deadline| deadline.0 < now);
    is_unschedulable(pod) || is_overdue()
}

/// Reads whether the nodes report of pods that have been starting for long, unless that is known.
pub(super) async fn read_late_nodes(cluster: &Cluster, facts: &mut ClusterFacts, now: Timestamp) {
    let is_late = |pod: &&Pod| {
        starting_since(pod).is_some_and(|since| now.duration_since(since) > START)
            && Obstacle::of(pod, &[], now).is_some_and(|seen| seen.is_start())
    };
    let late = facts.pods().filter(is_late).filter_map(|pod| pod.spec.as_ref()?.node_name.clone());
    let known = matches!(facts.nodes, Some(Ok(_)));
    let names: BTreeSet<String> = late.filter(|_| !known).collect();
    let names: BTreeSet<&str> = names.iter().map(String::as_str).take(MAX_LATE).collect();
    for (name, node) in own_nodes(cluster, &names).await {
        facts.unready.extend(node.as_ref().and_then(UnreadyNode::of).map(|unready| (name, unready)));
    }
}

/// Whether a budget that has pods can never allow an eviction.
fn is_unsatisfiable(budget: &PodDisruptionBudget) -> bool {
    let expected = budget.status.as_ref().map(|status| status.expected_pods);
    expected.is_some_and(|pods| pods > 0) && Budget::from(budget).is_unsatisfiable()
}

/// A pod that replaces another one, or is waited for, with the warnings about it if they show more.
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
        may_surge: false,
        full_quota: None,
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
    let surge = async {
        let may_surge = is_unsatisfiable(object) && may_surge(cluster, namespace, pods).await;
        (may_surge, if may_surge { full_quota(cluster, namespace, pods).await } else { None })
    };
    let (warnings, owners, (may_surge, full_quota)) = tokio::join!(warnings, owners, surge);
    (guarded.may_surge, guarded.full_quota) = (may_surge, full_quota);
    guarded.warnings = warnings.into_iter().collect();
    guarded.incomplete_owners = owners.into_iter().flatten().collect();
    guarded
}

/// Whether these pods are of a few Deployments that nothing is known to keep from replacing them before they leave.
async fn may_surge(cluster: &Cluster, namespace: &str, pods: &[Pod]) -> bool {
    let Some(deployments) = deployments(pods).filter(|found| (1..=MAX_DETAILS).contains(&found.len())) else {
        return false;
    };
    let can = async |(owner, pod): (Owner, &Pod)| {
        let name = PodReference { namespace: namespace.to_owned(), name: owner.name().to_owned() };
        match get::<Deployment>(cluster, "deployments.apps", &name).await {
            Ok(Some(deployment)) => surge::obstacle(&DrainPod::from(pod), &deployment).is_none(),
            Ok(None) => false,
            Err(_) => true,
        }
    };
    join_all(deployments.into_iter().map(can)).await.into_iter().all(|can| can)
}

/// A quota of the namespace that does not allow one of these pods a replacement in addition.
async fn full_quota(cluster: &Cluster, namespace: &str, pods: &[Pod]) -> Option<FullQuota> {
    let quotas: Api<ResourceQuota> = Api::namespaced(cluster.client(), namespace);
    let quotas = list(cluster, &quotas, "list resourcequotas", ListParams::default()).await.ok()?;
    pods.iter().find_map(|pod| resource_quota::refusing(&quotas, pod))
}

/// Whether events or claims show more of what keeps a pod from being Ready.
fn has_more(obstacle: &Obstacle) -> bool {
    use Obstacle::{FirstProbe, ReadinessProbe, Starting};
    is_unscheduled(obstacle) || matches!(obstacle, Starting | FirstProbe { .. } | ReadinessProbe { .. })
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
    let namespace = namespace.to_owned();
    (missing > 0).then_some(IncompleteOwner { namespace, owner: owner_of(pod)?, missing, message })
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
