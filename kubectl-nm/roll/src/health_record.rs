//! What is recorded of the health of nodes: before their drains, and as it was probed last.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use nm_core::maintenance::roll::Step;
use nm_shared::cluster::metadata;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The state of a node before its maintenance began. What was unhealthy then does not have to be healthy afterwards.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Baseline {
    /// Its conditions that reported pressure.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) pressure: Vec<String>,
    /// The healthy workloads and budgets of its pods, and each `DaemonSet` whose pod on it was Ready.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) healthy: Vec<DisturbedObject>,
    /// Its workloads and budgets that were not healthy, so that nothing checks them afterwards; at most 5.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unchecked: Vec<DisturbedObject>,
}

impl Baseline {
    /// How many unhealthy objects are recorded of a node or of a roll.
    pub(crate) const MAX_UNCHECKED: usize = 5;
}

/// A workload or a budget that a drain disturbs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DisturbedObject {
    pub(crate) kind: DisturbedKind,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum DisturbedKind {
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    PodDisruptionBudget,
}

impl DisturbedKind {
    const WORKLOADS: [Self; 4] = [Self::Deployment, Self::ReplicaSet, Self::StatefulSet, Self::DaemonSet];

    /// The kind of a workload; none if its health is not known, as that of a kind of another API group.
    pub(crate) fn of_workload(owner: &OwnerReference) -> Option<Self> {
        Self::WORKLOADS.into_iter().find(|kind| metadata::is_of(owner, "apps", kind.word()))
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::PodDisruptionBudget => "policy/v1",
            Self::Deployment | Self::ReplicaSet | Self::StatefulSet | Self::DaemonSet => "apps/v1",
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::ReplicaSet => "ReplicaSet",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
            Self::PodDisruptionBudget => "PodDisruptionBudget",
        }
    }
}

impl fmt::Display for DisturbedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.word(), self.namespace, self.name)
    }
}

impl DisturbedObject {
    /// The object with its name and kind only.
    pub(crate) fn reference(&self) -> Value {
        json!({
            "apiVersion": self.kind.api_version(),
            "kind": self.kind.word(),
            "metadata": {"namespace": self.namespace, "name": self.name},
        })
    }

    /// Why the object is not healthy; none if it is.
    pub(crate) fn problem(&self, object: &Value) -> Option<String> {
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
        (is < wanted || !is_processed).then(|| format!("{self} has {is} of {wanted} {what}"))
    }
}

/// The health of what is probed for a node: its DaemonSet pods while it is [`Step::Checking`], and what its drain disturbed
/// while it is [`Step::Recovering`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Health {
    /// All of it is healthy.
    Healthy,
    /// What is not healthy.
    Waiting(String),
}

/// The health of a node in a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbedHealth {
    pub(crate) node: String,
    pub(crate) step: Step,
    pub(crate) health: Health,
}
