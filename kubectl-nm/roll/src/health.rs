//! The health of nodes, and of what a drain disturbs: DaemonSet pods, workloads and disruption budgets.

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use nm_core::client::cluster::Cluster;
use nm_core::client::objects;
use nm_core::error::Error;
use nm_shared::cluster::disruption_budget::Budget;
use nm_shared::cluster::metadata;
use nm_shared::cluster::pod::{self, DrainPod};
use serde_json::{Value, json};

use crate::observed::NodeView;
use crate::record::{Baseline, DisturbedKind, DisturbedObject, Health};

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

impl DisturbedKind {
    const WORKLOADS: [Self; 4] = [Self::Deployment, Self::ReplicaSet, Self::StatefulSet, Self::DaemonSet];

    /// The kind of a workload; none if its health is not known, as that of a kind of another API group.
    fn of_workload(owner: &OwnerReference) -> Option<Self> {
        Self::WORKLOADS.into_iter().find(|kind| metadata::is_of(owner, "apps", kind.word()))
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::PodDisruptionBudget => "policy/v1",
            Self::Deployment | Self::ReplicaSet | Self::StatefulSet | Self::DaemonSet => "apps/v1",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::ReplicaSet => "ReplicaSet",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
            Self::PodDisruptionBudget => "PodDisruptionBudget",
        }
    }
}

impl DisturbedObject {
    /// The object with its name and kind only.
    fn reference(&self) -> Value {
        json!({
            "apiVersion": self.kind.api_version(),
            "kind": self.kind.word(),
            "metadata": {"namespace": self.namespace, "name": self.name},
        })
    }

    /// Why the object is not healthy; none if it is.
    fn problem(&self, object: &Value) -> Option<String> {
        let number =
            |path: &str, otherwise: i64| object.pointer(path).and_then(Value::as_i64).unwrap_or(otherwise);
        let status = |field: &str| number(&format!("/status/{field}"), 0);
        let (is, wanted, what) = match self.kind {
            DisturbedKind::Deployment | DisturbedKind::ReplicaSet => {
                (status("availableReplicas"), number("/spec/replicas", 1), "replicas available")
            }
            DisturbedKind::StatefulSet => {
                (status("readyReplicas"), number("/spec/replicas", 1), "replicas ready")
            }
            DisturbedKind::PodDisruptionBudget => {
                (status("currentHealthy"), status("desiredHealthy"), "pods healthy")
            }
            // The pod of the node counts, not the DaemonSet.
            DisturbedKind::DaemonSet => return None,
        };
        let is_processed = status("observedGeneration") >= number("/metadata/generation", 0);
        (is < wanted || !is_processed).then(|| {
            format!("{} {}/{} has {is} of {wanted} {what}", self.kind.word(), self.namespace, self.name)
        })
    }
}

/// Reads the state of a node before its drain. What the user has no permission to read is left out. What was healthy before
/// the drains of other nodes that are under way counts as healthy: these drains may have disturbed it.
pub(crate) async fn baseline(
    cluster: &Cluster,
    node: &str,
    view: &NodeView,
    disturbed: &BTreeSet<&DisturbedObject>,
) -> Result<Baseline, Error> {
    let pods = pods(cluster, node).await?;
    let mut found: BTreeSet<DisturbedObject> = stream::iter(pods.iter().filter(|pod| is_running(pod)))
        .map(async |pod| workload(cluster, pod).await)
        .buffered(MAX_CONCURRENT_READS)
        .try_collect::<Vec<_>>()
        .await?
        .into_iter()
        .flatten()
        .collect();
    found.extend(budgets(cluster, &pods).await?);
    let unready: BTreeSet<DisturbedObject> =
        pods.iter().filter(|pod| !is_ready(pod)).filter_map(daemon_set).collect();
    let checked: Vec<(DisturbedObject, Option<String>)> = stream::iter(found)
        .map(async |one| {
            let problem = problem(cluster, &one).await?;
            Ok::<_, Error>((one, problem))
        })
        .buffered(MAX_CONCURRENT_READS)
        .try_collect()
        .await?;
    let is_healthy = |(one, problem): &(DisturbedObject, Option<String>)| {
        (problem.is_none() || disturbed.contains(one)) && !unready.contains(one)
    };
    Ok(Baseline {
        pressure: view.pressure.iter().cloned().collect(),
        healthy: checked.into_iter().filter(is_healthy).map(|(one, _)| one).collect(),
    })
}

/// Whether each DaemonSet whose pod on the node was Ready has a Ready pod there again, unless it was deleted or does not
/// select the node any more.
pub(crate) async fn daemon_sets(
    cluster: &Cluster,
    node: &str,
    healthy: &[DisturbedObject],
) -> Result<Health, Error> {
    let sets = healthy.iter().filter(|one| one.kind == DisturbedKind::DaemonSet);
    if sets.clone().next().is_none() {
        return Ok(Health::Healthy);
    }
    let pods = pods(cluster, node).await?;
    let ready: BTreeSet<DisturbedObject> =
        pods.iter().filter(|pod| is_ready(pod)).filter_map(daemon_set).collect();
    let present: BTreeSet<DisturbedObject> = pods.iter().filter_map(daemon_set).collect();
    let unready: Vec<&DisturbedObject> = stream::iter(sets.filter(|set| !ready.contains(set)))
        .map(async |set| {
            let is_wanted = present.contains(set) || lacks_pods(cluster, set).await?;
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
async fn lacks_pods(cluster: &Cluster, set: &DisturbedObject) -> Result<bool, Error> {
    let Some(found) = if_permitted(objects::get(cluster, &set.reference()).await)? else { return Ok(true) };
    Ok(found.is_some_and(|set| {
        let number = |path: &str| set.pointer(path).and_then(Value::as_i64).unwrap_or(0);
        let is_processed = number("/status/observedGeneration") >= number("/metadata/generation");
        let scheduled = number("/status/currentNumberScheduled");
        !is_processed || scheduled < number("/status/desiredNumberScheduled")
    }))
}

/// Whether what the drain of a node disturbed is healthy again.
pub(crate) async fn recovery(cluster: &Cluster, disturbed: &[DisturbedObject]) -> Result<Health, Error> {
    let problems: Vec<Option<String>> = stream::iter(disturbed)
        .map(async |one| problem(cluster, one).await)
        .buffered(MAX_CONCURRENT_READS)
        .try_collect()
        .await?;
    Ok(health(problems.into_iter().flatten()))
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

async fn problem(cluster: &Cluster, one: &DisturbedObject) -> Result<Option<String>, Error> {
    if one.kind == DisturbedKind::DaemonSet {
        return Ok(None);
    }
    // What was deleted meanwhile, and what the user may not read any more, cannot recover.
    let found = if_permitted(objects::get(cluster, &one.reference()).await)?.flatten();
    Ok(found.and_then(|object| one.problem(&object)))
}

async fn pods(cluster: &Cluster, node: &str) -> Result<Vec<Pod>, Error> {
    let which = ListParams::default().fields(&format!("spec.nodeName={node}"));
    Ok(if_permitted(cluster.list(&Api::<Pod>::all(cluster.client()), "pods", &which).await)?
        .unwrap_or_default())
}

/// The workload of a pod: that of its ReplicaSet, if that has one.
async fn workload(cluster: &Cluster, pod: &Pod) -> Result<Option<DisturbedObject>, Error> {
    let Some(owner) = controller(pod.owner_references(), &pod.namespace().unwrap_or_default()) else {
        return Ok(None);
    };
    if owner.kind != DisturbedKind::ReplicaSet {
        return Ok(Some(owner));
    }
    let Some(set) = if_permitted(objects::get(cluster, &owner.reference()).await)?.flatten() else {
        return Ok(None);
    };
    let owners = serde_json::from_value(set["metadata"]["ownerReferences"].clone()).unwrap_or(Vec::new());
    Ok(controller(&owners, &owner.namespace).or(Some(owner)))
}

fn daemon_set(pod: &Pod) -> Option<DisturbedObject> {
    let owner = controller(pod.owner_references(), &pod.namespace().unwrap_or_default());
    owner.filter(|owner| owner.kind == DisturbedKind::DaemonSet)
}

fn controller(owners: &[OwnerReference], namespace: &str) -> Option<DisturbedObject> {
    let owner = metadata::controller(owners)?;
    let kind = DisturbedKind::of_workload(owner)?;
    Some(DisturbedObject { kind, namespace: namespace.to_owned(), name: owner.name.clone() })
}

/// The budgets that guard pods.
async fn budgets(cluster: &Cluster, pods: &[Pod]) -> Result<Vec<DisturbedObject>, Error> {
    let mut by_namespace: BTreeMap<String, Vec<DrainPod>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| is_running(pod)) {
        by_namespace.entry(pod.namespace().unwrap_or_default()).or_default().push(DrainPod::from(pod));
    }
    let mut found = Vec::new();
    for (namespace, pods) in by_namespace {
        let api: Api<PodDisruptionBudget> = Api::namespaced(cluster.client(), &namespace);
        let listed = cluster.list(&api, "poddisruptionbudgets.policy", &ListParams::default()).await;
        let guarding = if_permitted(listed)?.unwrap_or_default().into_iter().filter(|budget| {
            let budget = Budget::from(budget);
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

/// None if the user has no permission to read it.
///
/// # Errors
///
/// If the read failed for a reason other than missing permission.
pub fn if_permitted<T>(read: Result<T, Error>) -> Result<Option<T>, Error> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.is_forbidden() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[path = "health_tests.rs"]
mod tests;
