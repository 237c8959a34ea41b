//! A surge: whether a Deployment can replace a pod before the pod leaves, and how far it is.
//!
//! The replacement is made by a restart, as by `kubectl rollout restart`: the Deployment starts a pod of the new template
//! on another node, waits until it is available, and then terminates the old one itself. What was done is visible in the API, so
//! nothing has to be remembered: while the pod's `ReplicaSet` has an older revision than its Deployment, some restart is
//! replacing the pod, whoever requested it. Only a restart that was undone looks as if there had been none: the undo gives
//! the `ReplicaSet` a new revision, so the one in the status distinguishes the two, as long as the pod has to leave.
//!
//! Pods that share a `PersistentVolumeClaim` are not replaced first: the rollout would wait for a volume that the old pod
//! holds, even after the drain. Reading the access modes of claims would need one more permission.
//!
//! Pods that must be on different nodes are replaced first only if as many nodes as there are replicas may take the replacements.
//! With fewer, the last replacements would wait without end for nodes, and the pods that remain may be those that have to leave.
//! As many are enough, whichever pods the rollout terminates first: a replacement waits only once pods of the Deployment are on all
//! of these nodes, and then every replica is on one of them, so that none is on a node that is drained. Until the node returns,
//! one replacement may wait, while all replicas run. Other pods may take a node by its capacity, or by a port of the host that a
//! replacement needs. They are not considered: only the nodes in maintenance are known with their pods.
//!
//! Source of the rules: kubernetes `pkg/controller/deployment` (`rolling.go`, `util/deployment_util.go`), v1.36.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Display;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, RollingUpdateDeployment};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

use crate::api::group::Group;
use crate::api::names::RESTARTED_AT_ANNOTATION;
use crate::api::pod_reference::PodReference;
use crate::api::surge::{Replacement, RestartedReplicaSet, SurgeFacts, SurgeObstacle};
use crate::cluster::disruption_budget::resolve;
use crate::cluster::metadata;
use crate::cluster::node_fit::{self, CandidateNode};
use crate::cluster::pod::{self, DrainPod};
use crate::cluster::pod_exclusion;
use crate::cluster::resource_quota::FullQuota;
use crate::drain::eviction_outcome::AccessDenied;
use crate::drain::returning;

/// The annotation with the revision of a Deployment, and of each of its `ReplicaSet`s.
const REVISION_ANNOTATION: &str = "deployment.kubernetes.io/revision";

/// The namespace and name of a Deployment or `ReplicaSet`.
pub type WorkloadKey = PodReference;

/// What controls a pod, as far as it is known.
#[derive(Debug, Clone)]
pub enum WorkloadState {
    /// The API server denies reading it.
    Forbidden(AccessDenied),
    /// It is known.
    Known(Workload),
}

/// A `ReplicaSet` and its Deployment.
#[derive(Debug, Clone, Default)]
pub struct Workload {
    /// The revision of the `ReplicaSet`; none if it has none.
    pub revision: Option<i64>,
    /// Its Deployment; none if no Deployment controls it.
    pub deployment: Option<Arc<Deployment>>,
    /// The pods of the Deployment.
    pub pods: Vec<Arc<DrainPod>>,
    /// How many nodes may take its replacements, if that matters ([`nodes_for_replacements`]).
    pub nodes: Option<i32>,
    /// A quota that allows no additional pod, as far as a plan has read quotas. nm-reconciler reads none.
    pub quota: Option<FullQuota>,
}

/// A restart that the API server did not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestartRefusal {
    /// The reconciler lacks access.
    Forbidden(AccessDenied),
    /// Anything else, with a sentence.
    Refused(String),
}

/// How far the surge of a pod is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Surge {
    /// The Deployment has to be restarted.
    Required,
    /// A restart or another rollout is replacing the pod.
    Rolling,
    /// Another rollout, which leaves the pod as it is, has to end first.
    Waiting,
    /// It is not possible.
    Impossible(SurgeBlock),
}

/// What prevents a surge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SurgeBlock {
    /// The machine-readable reason.
    pub reason: SurgeObstacle,
    /// The human-readable reason, as the end of a sentence.
    pub message: String,
    /// Name of the Deployment, if there is one.
    pub deployment: Option<String>,
    /// The access that is missing.
    pub denied: Option<AccessDenied>,
}

impl SurgeBlock {
    /// A block without a Deployment.
    pub fn new(reason: SurgeObstacle, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), deployment: None, denied: None }
    }

    /// No Deployment controls the pod.
    pub fn no_deployment(pod: &DrainPod) -> Self {
        let owner = match pod::controller(pod) {
            Some(owner) => format!("{} {}", owner.kind, owner.name),
            None => "nothing".to_owned(),
        };
        let message = format!("only pods of a Deployment are replaced first, and {owner} controls this pod");
        Self::new(SurgeObstacle::NoDeployment, message)
    }

    /// What the status shows, until it is known again what controls the pod.
    pub fn before(facts: &SurgeFacts) -> Self {
        let deployment = facts.deployment.clone();
        let message =
            format!("Deployment {} is being read", deployment.as_deref().unwrap_or("of its ReplicaSet"));
        Self { deployment, ..Self::new(facts.reason, message) }
    }

    /// The API server did not accept the last restart of the Deployment.
    pub fn refused(deployment: &str, refusal: &RestartRefusal) -> Self {
        let block = match refusal {
            RestartRefusal::Forbidden(denied) => Self::forbidden(denied),
            RestartRefusal::Refused(why) => {
                let message = format!("the restart of Deployment {deployment} failed and is retried: {why}");
                Self::new(SurgeObstacle::Refused, message)
            }
        };
        Self { deployment: Some(deployment.to_owned()), ..block }
    }

    /// The API server denies reading or restarting the Deployment.
    pub fn forbidden(denied: &AccessDenied) -> Self {
        let message = denied.to_string();
        Self { denied: Some(denied.clone()), ..Self::new(SurgeObstacle::Forbidden, message) }
    }
}

/// Determines how far the surge of a pod is.
pub fn judge(pod: &DrainPod, workload: &Workload) -> Surge {
    let Some(deployment) = &workload.deployment else {
        return Surge::Impossible(SurgeBlock::no_deployment(pod));
    };
    let impossible = |(reason, message): (SurgeObstacle, String)| {
        let name = deployment.metadata.name.clone();
        Surge::Impossible(SurgeBlock { deployment: name, ..SurgeBlock::new(reason, message) })
    };
    if let Some(obstacle) = rollout_obstacle(deployment) {
        return impossible(obstacle);
    }
    if let Some(under_way) = rollout_under_way(workload.revision, deployment) {
        return under_way;
    }
    let kept_apart = || kept_apart_obstacle(deployment, workload.nodes?);
    let refused = || Some(creation_failed(deployment, workload.quota.as_ref()?));
    let obstacle = restart_obstacle(pod, deployment).or_else(kept_apart).or_else(refused);
    obstacle.map_or(Surge::Required, impossible)
}

/// What a rollout of the Deployment does to the pods of its `ReplicaSet` of this revision.
fn rollout_under_way(of_set: Option<i64>, deployment: &Deployment) -> Option<Surge> {
    let status = deployment.status.as_ref();
    let observed = status.and_then(|status| status.observed_generation);
    // Until it has been observed, which template is the current one is not known.
    if observed < deployment.metadata.generation || of_set != revision(&deployment.metadata) {
        return Some(Surge::Rolling);
    }
    let updated = status.and_then(|status| status.updated_replicas).unwrap_or(0);
    let all = status.and_then(|status| status.replicas).unwrap_or(0);
    let wanted = replicas(deployment);
    (updated != wanted || all != wanted).then_some(Surge::Waiting)
}

/// Why no rollout of a Deployment proceeds, whoever began it.
fn rollout_obstacle(deployment: &Deployment) -> Option<(SurgeObstacle, String)> {
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    if deployment.metadata.deletion_timestamp.is_some() {
        let message = format!("Deployment {name} is being deleted, and creates no more pods");
        return Some((SurgeObstacle::NoDeployment, message));
    }
    if deployment.spec.as_ref()?.paused == Some(true) {
        return Some((SurgeObstacle::Paused, format!("Deployment {name} is paused")));
    }
    if let Some(failure) = condition(deployment, "ReplicaFailure", "True") {
        return Some(creation_failed(deployment, failure.message.as_deref().unwrap_or_default()));
    }
    condition(deployment, "Progressing", "False").map(|_| {
        let message =
            format!("the rollout of Deployment {name} exceeded its deadline: its new pods show why");
        (SurgeObstacle::Stalled, message)
    })
}

fn creation_failed(deployment: &Deployment, why: impl Display) -> (SurgeObstacle, String) {
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    (SurgeObstacle::CreationFailed, format!("Deployment {name} cannot create a pod: {why}"))
}

/// Why a Deployment would not replace a pod before it leaves, or would not do so now.
pub fn obstacle(pod: &DrainPod, deployment: &Deployment) -> Option<(SurgeObstacle, String)> {
    rollout_obstacle(deployment).or_else(|| restart_obstacle(pod, deployment))
}

/// Why the restart of a Deployment would not replace a pod before it leaves.
fn restart_obstacle(pod: &DrainPod, deployment: &Deployment) -> Option<(SurgeObstacle, String)> {
    spec_obstacle(deployment).or_else(|| {
        let name = deployment.metadata.name.as_deref().unwrap_or_default();
        let template = deployment.spec.as_ref()?.template.spec.as_ref();
        let names_node = template.is_some_and(|template| template.node_name.is_some());
        let sets = match () {
            () if names_node => "sets nodeName",
            () if tolerates_drain(pod) => "tolerates the taints of the node",
            () => return None,
        };
        let message =
            format!("the replacement may start on the same node: the template of Deployment {name} {sets}");
        Some((SurgeObstacle::MayReturn, message))
    })
}

/// The same, if the spec of the Deployment alone is the reason.
fn spec_obstacle(deployment: &Deployment) -> Option<(SurgeObstacle, String)> {
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    let spec = deployment.spec.as_ref()?;
    // First, because no other strategy helps then.
    let template = spec.template.spec.as_ref();
    let mut volumes = template.into_iter().flat_map(|template| template.volumes.iter().flatten());
    if let Some(claim) = volumes.find_map(|volume| volume.persistent_volume_claim.as_ref()) {
        let message = format!(
            "the pods of Deployment {name} share the claim {}, which a replacement on another node may not be able to mount \
             while the pod has it",
            claim.claim_name
        );
        return Some((SurgeObstacle::SharedVolume, message));
    }
    let strategy = spec.strategy.as_ref();
    if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate") {
        let message = format!(
            "the strategy of Deployment {name} is Recreate, which terminates a pod before it creates another"
        );
        return Some((SurgeObstacle::Recreate, message));
    }
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.clone()).unwrap_or_default();
    let (surge, unavailable) = limits(&rolling, replicas(deployment));
    if surge == 0 {
        let message = format!("Deployment {name} may have no additional pod: its maxSurge is 0");
        return Some((SurgeObstacle::NoSurge, message));
    }
    (unavailable > 0).then(|| {
        let message = format!(
            "a restart of Deployment {name} may terminate {unavailable} of its pods before their replacements are \
             Ready: set its maxUnavailable to 0"
        );
        (SurgeObstacle::Unavailable, message)
    })
}

fn kept_apart_obstacle(deployment: &Deployment, nodes: i32) -> Option<(SurgeObstacle, String)> {
    let (name, wanted) = (deployment.metadata.name.as_deref().unwrap_or_default(), replicas(deployment));
    has_too_few_nodes(nodes, wanted).then(|| {
        let message = format!(
            "the {wanted} pods of Deployment {name} must be on different nodes, and only {nodes} other {} their replacements",
            if nodes == 1 { "node can take one of" } else { "nodes can take" },
        );
        (SurgeObstacle::KeptApart, message)
    })
}

/// Whether so many nodes cannot take that many replacements, no two of which may be on one node. Without a node, something else
/// keeps them off.
pub fn has_too_few_nodes(nodes: i32, replicas: i32) -> bool {
    (1..replicas).contains(&nodes)
}

/// Whether no two pods of a Deployment may be on one node.
pub fn keeps_pods_apart(deployment: &Deployment) -> bool {
    let template = deployment.spec.as_ref().map(|spec| &spec.template);
    let namespace = deployment.metadata.namespace.as_deref();
    template.is_some_and(|template| pod_exclusion::keeps_apart(template, namespace))
}

/// How many nodes may take the replacements of a Deployment that keeps its pods apart ([`keeps_pods_apart`]), or its number of
/// replicas, if more may. `nodes` are all nodes but those that are drained. None if it would not be restarted anyway: nodes are
/// looked at only where [`judge`] needs them, because there may be thousands.
pub fn nodes_for_replacements<'a, N: CandidateNode + 'a>(
    workload: &Workload,
    nodes: impl IntoIterator<Item = &'a N>,
) -> Option<i32> {
    let deployment = workload.deployment.as_deref()?;
    let template = deployment.spec.as_ref()?.template.spec.as_ref()?;
    let is_restarted = rollout_obstacle(deployment).is_none()
        && rollout_under_way(workload.revision, deployment).is_none()
        && spec_obstacle(deployment).is_none();
    // A Deployment with claims is not restarted, so no volume binds the replacements to nodes.
    let is_fit = |node: &&N| node_fit::check_spec(template, &[], *node).is_ok();
    let enough = usize::try_from(replicas(deployment)).ok().filter(|_| is_restarted)?;
    i32::try_from(nodes.into_iter().filter(is_fit).take(enough).count()).ok()
}

/// Whether a pod that replaces this one may be on the cordoned node again. It would be replaced without end.
fn tolerates_drain(pod: &DrainPod) -> bool {
    Group::ALL.iter().any(|group| returning::tolerates_cordon(pod, group.drain_taint()))
}

fn condition<'a>(deployment: &'a Deployment, kind: &str, status: &str) -> Option<&'a DeploymentCondition> {
    let mut conditions = deployment.status.as_ref()?.conditions.as_ref()?.iter();
    conditions.find(|condition| condition.type_ == kind && condition.status == status)
}

/// How many pods there may be beyond `replicas` during a rollout, and how many may be unavailable. The API server fills in
/// the defaults, which are 25% each; a surge is rounded up and what may be unavailable down.
fn limits(rolling: &RollingUpdateDeployment, replicas: i32) -> (i32, i32) {
    let default = || IntOrString::String("25%".to_owned());
    let surge = rolling.max_surge.clone().unwrap_or_else(default);
    let unavailable = rolling.max_unavailable.clone().unwrap_or_else(default);
    (resolve(&surge, replicas, true), resolve(&unavailable, replicas, false))
}

/// The number of pods that a Deployment wants.
pub fn replicas(deployment: &Deployment) -> i32 {
    deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// The revision in the annotations of a Deployment or `ReplicaSet`.
pub fn revision(metadata: &ObjectMeta) -> Option<i64> {
    metadata.annotations.as_ref()?.get(REVISION_ANNOTATION)?.parse().ok()
}

/// The name of the Deployment that controls a `ReplicaSet`.
pub fn deployment_of(set: &ObjectMeta) -> Option<&str> {
    let owner = metadata::controller(set.owner_references.as_deref().unwrap_or_default())?;
    metadata::is_of(owner, "apps", "Deployment").then_some(owner.name.as_str())
}

/// The `ReplicaSet` that controls a pod.
pub fn replica_set_of(pod: &DrainPod) -> Option<WorkloadKey> {
    let owner = pod::controller(pod).filter(|owner| metadata::is_of(owner, "apps", "ReplicaSet"))?;
    let namespace = pod::names(pod).namespace.to_owned();
    Some(WorkloadKey { namespace, name: owner.name.clone() })
}

/// The replacements of pods of one Deployment: pods of its other `ReplicaSet`s, each for one of `pods`. The name beside a pod
/// is that of its replacement so far, which it keeps unless that is Ready and another one is not: then the Ready one was for a
/// pod that has left, here or on another node. For the same reason, none of several pods gets one that is Ready already.
pub fn replacements(pods: &[(&DrainPod, Option<&str>)], workload: &Workload) -> Vec<Option<Replacement>> {
    let own: HashSet<_> = pods.iter().filter_map(|(pod, _)| replica_set_of(pod)).collect();
    let is_other = |other: &&Arc<DrainPod>| {
        replica_set_of(other).is_some_and(|set| !own.contains(&set))
            && pod::deadline(other).is_none()
            && !pod::is_finished(other)
    };
    let others = workload.pods.iter().filter(is_other).map(|other| (pod::names(other).name, &**other));
    let mut others: BTreeMap<&str, &DrainPod> = others.collect();
    let mut keep = |before: Option<&str>, is_ready: bool| {
        let name =
            before.filter(|name| others.get(name).is_some_and(|pod| pod::is_ready(pod) == is_ready))?;
        others.remove(name)
    };
    let mut named: Vec<_> = pods.iter().map(|(_, before)| keep(*before, false)).collect();
    let mut of_ready: Vec<_> = pods.iter().map(|(_, before)| keep(*before, true)).collect();
    let (ready, starting): (Vec<_>, Vec<_>) = others.into_values().partition(|pod| pod::is_ready(pod));
    let mut starting = starting.into_iter();
    for (unnamed, kept) in named.iter_mut().zip(&mut of_ready).filter(|(pod, _)| pod.is_none()) {
        *unnamed = starting.next().or_else(|| kept.take());
    }
    if let [unnamed @ None] = named.as_mut_slice() {
        *unnamed = ready.into_iter().next();
    }
    named.into_iter().map(|pod| pod.map(replacement)).collect()
}

fn replacement(pod: &DrainPod) -> Replacement {
    Replacement {
        name: pod::names(pod).name.to_owned(),
        node: Some(pod.node.to_string()).filter(|node| !node.is_empty()),
        ready: pod::is_ready(pod),
    }
}

/// A restart of a Deployment.
#[derive(Debug, Clone, PartialEq)]
pub struct Restart {
    /// The Deployment.
    pub deployment: WorkloadKey,
    /// The `ReplicaSet` whose pods it replaces.
    pub replica_set: RestartedReplicaSet,
    /// A merge patch with a resourceVersion: of several restarts that were decided at once, one succeeds.
    pub patch: Value,
}

impl Restart {
    /// The restart of a Deployment as it was observed, which replaces the pods of its current `ReplicaSet`; none if it is
    /// incomplete.
    pub fn of(deployment: &Deployment, replica_set: &WorkloadKey, now: Timestamp) -> Option<Self> {
        let metadata = &deployment.metadata;
        // More precise than kubectl, so that it differs from a restart in the same second.
        let annotations = json!({RESTARTED_AT_ANNOTATION: now.to_string()});
        let patch = json!({
            "metadata": {"resourceVersion": metadata.resource_version.as_ref()?, "uid": metadata.uid.as_ref()?},
            "spec": {"template": {"metadata": {"annotations": annotations}}},
        });
        let key = WorkloadKey { namespace: metadata.namespace.clone()?, name: metadata.name.clone()? };
        let WorkloadKey { namespace, name } = replica_set.clone();
        let replica_set = RestartedReplicaSet { namespace, name, revision: revision(metadata)? };
        Some(Self { deployment: key, replica_set, patch })
    }

    /// What prevented the restart although the API server accepted it with this answer: a mutating webhook, for example,
    /// which removes the annotation. The Deployment then has the same template as before.
    pub fn undone_by(&self, answer: &Deployment) -> Option<RestartRefusal> {
        let requested = &self.patch["spec"]["template"]["metadata"]["annotations"][RESTARTED_AT_ANNOTATION];
        let template = answer.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
        let accepted =
            template.and_then(|template| template.annotations.as_ref()?.get(RESTARTED_AT_ANNOTATION));
        (accepted.map(String::as_str) != requested.as_str()).then(|| {
            let message = format!(
                "the API server stored the restart without the annotation {RESTARTED_AT_ANNOTATION}: a mutating \
                 webhook, for example, removed or replaced it"
            );
            RestartRefusal::Refused(message)
        })
    }
}

#[cfg(test)]
#[path = "surge_tests.rs"]
mod tests;
