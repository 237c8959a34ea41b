//! The health of nodes, and of what a drain disturbs: DaemonSet pods, workloads and disruption budgets.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use nm_core::client::cluster::Cluster;
use nm_core::error::Error;
use nm_shared::cluster::disruption_budget::Budget;
use nm_shared::cluster::pod::{self, DrainPod};
use serde_json::Value;

use crate::health_round::{Round, Workloads, controller};
use crate::observed::{NodeView, is_checked};
use crate::record::{Baseline, DisturbedKind, DisturbedObject, Health, ProbedHealth, Roll, Step};

pub use crate::health_round::if_permitted;

const MAX_CONCURRENT_READS: usize = 16;

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

/// Reads the state of a node before its drain. What the user has no permission to read is left out. What was healthy before
/// the drains of other nodes that are under way counts as healthy: these drains may have disturbed it.
pub(crate) async fn baseline(
    round: &Round<'_>,
    node: &str,
    view: &NodeView,
    disturbed: &BTreeSet<&DisturbedObject>,
) -> Result<Baseline, Error> {
    let pods = round.pods(node).await?;
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
        problems(round, &found).await?.into_iter().map(|(one, _)| one).collect();
    Ok(Baseline {
        pressure: view.pressure.iter().cloned().collect(),
        healthy: found.into_iter().filter(|one| disturbed.contains(one) || !ill.contains(one)).collect(),
    })
}

/// The health of a node of a roll that is [`Step::Checking`] or [`Step::Recovering`], and what is not healthy of what its drain
/// disturbed. `ill` is what was not in the round before.
pub(crate) async fn of_node(
    round: &Round<'_>,
    node: &str,
    step: Step,
    healthy: &[DisturbedObject],
    ill: &[DisturbedObject],
) -> Result<(Health, Vec<DisturbedObject>), Error> {
    match step {
        Step::Checking => Ok((daemon_sets(round, node, healthy).await?, Vec::new())),
        _ => recovery(round, healthy, ill).await,
    }
}

/// Reads the health of the nodes of a roll for somebody who looks at it, unless a program checks it. What the user may not read, or
/// what cannot be read now, is left out.
pub async fn probe(cluster: &Cluster, roll: &Roll, now: Timestamp) -> Vec<ProbedHealth> {
    if roll.record.as_ref().is_none_or(|record| is_checked(record, now)) {
        return Vec::new();
    }
    let probed = roll.checked_nodes().map(async |node| {
        let (name, step) = (node.node(), node.record.step);
        let round = Round::new(cluster, &Workloads::default());
        let (health, _) = of_node(&round, name, step, &node.record.baseline.healthy, &[]).await.ok()?;
        let is_seen = !round.lacks_permission();
        is_seen.then(|| ProbedHealth { node: name.to_owned(), step, health })
    });
    join_all(probed).await.into_iter().flatten().collect()
}

/// Whether each DaemonSet whose pod on the node was Ready has a Ready pod there again, unless it was deleted or does not
/// select the node any more.
pub(crate) async fn daemon_sets(
    round: &Round<'_>,
    node: &str,
    healthy: &[DisturbedObject],
) -> Result<Health, Error> {
    let sets = healthy.iter().filter(|one| one.kind == DisturbedKind::DaemonSet);
    if sets.clone().next().is_none() {
        return Ok(Health::Healthy);
    }
    let pods = round.pods(node).await?;
    let ready: BTreeSet<DisturbedObject> =
        pods.iter().filter(|pod| is_ready(pod)).filter_map(daemon_set).collect();
    let present: BTreeSet<DisturbedObject> = pods.iter().filter_map(daemon_set).collect();
    let unready: Vec<&DisturbedObject> = stream::iter(sets.filter(|set| !ready.contains(set)))
        .map(async |set| {
            let is_wanted = present.contains(set) || lacks_pods(round, set).await?;
            Ok::<_, Error>(is_wanted.then_some(set))
        })
        .buffered(MAX_CONCURRENT_READS)
        .try_filter_map(async |set| Ok(set))
        .try_collect()
        .await?;
    Ok(health(
        unready.iter().map(|set| format!("the pod of DaemonSet {}/{} is not Ready", set.namespace, set.name)),
    ))
}

/// Whether a DaemonSet exists that lacks pods on nodes that it selects. Without permission to read it, it may.
async fn lacks_pods(round: &Round<'_>, set: &DisturbedObject) -> Result<bool, Error> {
    let Some(found) = round.if_permitted(round.object(set).await)? else { return Ok(true) };
    Ok(found.is_some_and(|set| {
        let number = |path: &str| set.pointer(path).and_then(Value::as_i64).unwrap_or(0);
        let is_processed = number("/status/observedGeneration") >= number("/metadata/generation");
        let scheduled = number("/status/currentNumberScheduled");
        !is_processed || scheduled < number("/status/desiredNumberScheduled")
    }))
}

/// Whether what the drain of a node disturbed is healthy again, and what is not. While what was `ill` in the round before is not
/// healthy, the rest is not read: it counts in the round in which all of it is healthy.
pub(crate) async fn recovery(
    round: &Round<'_>,
    disturbed: &[DisturbedObject],
    ill: &[DisturbedObject],
) -> Result<(Health, Vec<DisturbedObject>), Error> {
    let mut found = problems(round, ill).await?;
    if found.is_empty() {
        found = problems(round, disturbed).await?;
    }
    let (ill, problems): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    Ok((health(problems.into_iter()), ill))
}

/// Those of the objects that are not healthy, and why.
async fn problems(
    round: &Round<'_>,
    objects: &[DisturbedObject],
) -> Result<Vec<(DisturbedObject, String)>, Error> {
    // The pod of the node counts, not its DaemonSet.
    let checked = objects.iter().filter(|one| one.kind != DisturbedKind::DaemonSet);
    stream::iter(checked)
        .map(async |one| Ok::<_, Error>(round.problem(one).await?.map(|problem| (one.clone(), problem))))
        .buffered(MAX_CONCURRENT_READS)
        .try_filter_map(async |found| Ok(found))
        .try_collect()
        .await
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
