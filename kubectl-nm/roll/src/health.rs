//! The health of nodes, and of what a drain disturbs: DaemonSet pods, workloads and disruption budgets.

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use nm_core::client::cluster::Cluster;
use nm_core::error::Error;
use nm_shared::cluster::disruption_budget::Budget;
use nm_shared::cluster::pod::{self, DrainPod};

use crate::health_round::{Round, Workloads, controller};
use crate::observed::{NodeView, is_checked};
use crate::record::{Baseline, DisturbedKind, DisturbedObject, Health, ProbedHealth, Roll, RollNode, Step};

pub use crate::health_round::if_permitted;

/// How many objects of a node are read at a time.
const MAX_CONCURRENT_READS: usize = 16;

/// How many nodes are probed at a time.
const MAX_CONCURRENT_NODES: usize = 4;

/// How many unhealthy objects a message names.
const MAX_NAMED: usize = 3;

/// The permissions that the checks need, as verb, API group and resource.
pub const PERMISSIONS: [(&str, &str, &str); 7] = [
    ("list", "", "pods"),
    ("list", "policy", "poddisruptionbudgets"),
    ("get", "policy", "poddisruptionbudgets"),
    ("get", "apps", "deployments"),
    ("get", "apps", "replicasets"),
    ("get", "apps", "statefulsets"),
    ("get", "apps", "daemonsets"),
];

/// What a check of a node has found.
pub(crate) struct NodeCheck {
    /// The health that the roll goes by. Without permission to read it, a DaemonSet counts as one that lacks a pod there, and a
    /// workload as healthy.
    pub(crate) health: Health,
    /// What is not healthy of what the drain of the node disturbed.
    pub(crate) ill: Vec<DisturbedObject>,
    /// The health as far as it was seen; none if nothing that was read is unhealthy, and something could not be read.
    pub(crate) seen: Option<Health>,
}

impl NodeCheck {
    /// `seen` is the health of what was read, and `is_complete` whether that is everything.
    fn new(health: Health, ill: Vec<DisturbedObject>, seen: Health, is_complete: bool) -> Self {
        let seen = Some(seen).filter(|seen| is_complete || *seen != Health::Healthy);
        Self { health, ill, seen }
    }
}

/// Reads the state of a node before its drain. What the user has no permission to read is left out. What was healthy before
/// the drains of other nodes that are under way counts as healthy: these drains may have disturbed it.
pub(crate) async fn baseline(
    round: &Round<'_>,
    node: &str,
    view: &NodeView,
    disturbed: &BTreeSet<&DisturbedObject>,
) -> Result<Baseline, Error> {
    let pods = round.pods(node).await?.unwrap_or_default();
    let mut found: BTreeSet<DisturbedObject> = stream::iter(pods.iter().filter(|pod| is_running(pod)))
        .map(async |pod| round.workload(pod).await)
        .buffered(MAX_CONCURRENT_READS)
        .try_collect::<Vec<_>>()
        .await?
        .into_iter()
        .flatten()
        .collect();
    found.extend(budgets(round, &pods).await?);
    let unready: BTreeSet<DisturbedObject> =
        pods.iter().filter(|pod| !is_ready(pod)).filter_map(daemon_set).collect();
    found.retain(|one| !unready.contains(one));
    let found: Vec<DisturbedObject> = found.into_iter().collect();
    let ill: BTreeSet<DisturbedObject> =
        problems(round, &found).await?.0.into_iter().map(|(one, _)| one).collect();
    let (healthy, unchecked): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|one| disturbed.contains(one) || !ill.contains(one));
    Ok(Baseline {
        pressure: view.pressure.iter().cloned().collect(),
        healthy,
        unchecked: unchecked.into_iter().chain(unready).take(Baseline::MAX_UNCHECKED).collect(),
    })
}

/// The health of a node of a roll that is [`Step::Checking`] or [`Step::Recovering`]. `ill` is what was not in the round before.
pub(crate) async fn of_node(
    round: &Round<'_>,
    node: &str,
    step: Step,
    healthy: &[DisturbedObject],
    ill: &[DisturbedObject],
) -> Result<NodeCheck, Error> {
    match step {
        Step::Checking => daemon_sets(round, node, healthy).await,
        _ => recovery(round, healthy, ill).await,
    }
}

/// Reads the health of the nodes of a roll, or of `only` one, for somebody who looks at it, unless a program checks it. A node is
/// left out if it cannot be read now, or if no problem was found in what the user may read of it and the rest is hidden.
pub async fn probe(cluster: &Cluster, roll: &Roll, only: Option<&str>, now: Timestamp) -> Vec<ProbedHealth> {
    if roll.record.as_ref().is_none_or(|record| is_checked(record, now)) {
        return Vec::new();
    }
    let round = Round::new(cluster, &Workloads::default());
    let is_wanted = |node: &&RollNode| only.is_none_or(|only| only == node.node());
    stream::iter(roll.checked_nodes().filter(is_wanted))
        .map(async |node| {
            let (name, step) = (node.node(), node.record.step);
            let found = of_node(&round, name, step, &node.record.baseline.healthy, &[]).await.ok()?;
            Some(ProbedHealth { node: name.to_owned(), step, health: found.seen? })
        })
        .buffered(MAX_CONCURRENT_NODES)
        .filter_map(async |probed| probed)
        .collect()
        .await
}

/// Whether each DaemonSet whose pod on the node was Ready has a Ready pod there again, unless it was deleted or does not
/// select the node any more.
async fn daemon_sets(round: &Round<'_>, node: &str, healthy: &[DisturbedObject]) -> Result<NodeCheck, Error> {
    let sets = healthy.iter().filter(|one| one.kind == DisturbedKind::DaemonSet);
    if sets.clone().next().is_none() {
        return Ok(NodeCheck::new(Health::Healthy, Vec::new(), Health::Healthy, true));
    }
    let listed = round.pods(node).await?;
    let (is_listed, pods) = (listed.is_some(), listed.unwrap_or_default());
    let ready: BTreeSet<DisturbedObject> =
        pods.iter().filter(|pod| is_ready(pod)).filter_map(daemon_set).collect();
    let present: BTreeSet<DisturbedObject> = pods.iter().filter_map(daemon_set).collect();
    let unready: Vec<(&DisturbedObject, Option<bool>)> =
        stream::iter(sets.filter(|set| !ready.contains(set)))
            .map(async |set| {
                let is_wanted =
                    if present.contains(set) { Some(true) } else { round.lacks_pods(set).await? };
                Ok::<_, Error>((set, is_wanted))
            })
            .buffered(MAX_CONCURRENT_READS)
            .try_collect()
            .await?;
    let words = |(set, _): &(&DisturbedObject, Option<bool>)| {
        format!("the pod of DaemonSet {}/{} is not Ready", set.namespace, set.name)
    };
    let health_if = |counts: &dyn Fn(Option<bool>) -> bool| {
        health(unready.iter().filter(|(_, is_wanted)| counts(*is_wanted)).map(words))
    };
    let is_complete = is_listed && unready.iter().all(|(_, is_wanted)| is_wanted.is_some());
    Ok(NodeCheck::new(
        health_if(&|is_wanted| is_wanted != Some(false)),
        Vec::new(),
        health_if(&|is_wanted| is_listed && is_wanted == Some(true)),
        is_complete,
    ))
}

/// Whether what the drain of a node disturbed is healthy again. While what was `ill` in the round before is not healthy, the rest
/// is not read: it counts in the round in which all of it is healthy.
async fn recovery(
    round: &Round<'_>,
    disturbed: &[DisturbedObject],
    ill: &[DisturbedObject],
) -> Result<NodeCheck, Error> {
    let (mut found, mut is_complete) = problems(round, ill).await?;
    if found.is_empty() {
        (found, is_complete) = problems(round, disturbed).await?;
    }
    let (ill, problems): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    let health = health(problems.into_iter());
    Ok(NodeCheck::new(health.clone(), ill, health, is_complete))
}

/// Those of the objects that are not healthy, and why; and whether the user has permission to read all of them.
async fn problems(
    round: &Round<'_>,
    objects: &[DisturbedObject],
) -> Result<(Vec<(DisturbedObject, String)>, bool), Error> {
    // The pod of the node counts, not its DaemonSet.
    let checked = objects.iter().filter(|one| one.kind != DisturbedKind::DaemonSet);
    let read: Vec<(&DisturbedObject, Option<Health>)> = stream::iter(checked)
        .map(async |one| Ok::<_, Error>((one, round.health(one).await?)))
        .buffered(MAX_CONCURRENT_READS)
        .try_collect()
        .await?;
    let is_complete = read.iter().all(|(_, health)| health.is_some());
    let problem = |(one, health): (&DisturbedObject, Option<Health>)| match health? {
        Health::Waiting(why) => Some((one.clone(), why)),
        Health::Healthy => None,
    };
    Ok((read.into_iter().filter_map(problem).collect(), is_complete))
}

/// Healthy without problems; otherwise the first of them.
fn health(problems: impl Iterator<Item = String>) -> Health {
    let mut problems: Vec<String> = problems.collect();
    if problems.is_empty() {
        return Health::Healthy;
    }
    let more = problems.len().saturating_sub(MAX_NAMED);
    problems.truncate(MAX_NAMED);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    Health::Waiting(problems.join(", ") + &more)
}

fn daemon_set(pod: &Pod) -> Option<DisturbedObject> {
    let owner = controller(pod.owner_references(), &pod.namespace().unwrap_or_default());
    owner.map(|(owner, _)| owner).filter(|owner| owner.kind == DisturbedKind::DaemonSet)
}

/// The budgets that guard pods.
async fn budgets(round: &Round<'_>, pods: &[Pod]) -> Result<Vec<DisturbedObject>, Error> {
    let mut by_namespace: BTreeMap<String, Vec<DrainPod>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| is_running(pod)) {
        by_namespace.entry(pod.namespace().unwrap_or_default()).or_default().push(DrainPod::from(pod));
    }
    let mut found = Vec::new();
    for (namespace, pods) in by_namespace {
        let all = round.budgets(&namespace).await?;
        let guarding = all.iter().filter(|budget| {
            let budget = Budget::from(*budget);
            pods.iter().any(|pod| budget.guards(pod))
        });
        found.extend(guarding.map(|budget| DisturbedObject {
            kind: DisturbedKind::PodDisruptionBudget,
            namespace: namespace.clone(),
            name: budget.name_any(),
        }));
    }
    Ok(found)
}

fn is_running(pod: &Pod) -> bool {
    !pod::is_finished(&DrainPod::from(pod))
}

fn is_ready(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && pod::is_ready(&DrainPod::from(pod))
}

#[cfg(test)]
#[path = "health_tests.rs"]
mod tests;
