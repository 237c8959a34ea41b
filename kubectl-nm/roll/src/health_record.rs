//! What is recorded of the health of nodes: before their drains, and as it was probed last.

use nm_core::maintenance::roll::Step;
use serde::{Deserialize, Serialize};

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
}

/// A workload or a budget that a drain disturbs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct DisturbedObject {
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
