//! Pods that their owners put back on the node: they tolerate the cordon, and stay.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::pod_reference::PodReference;

/// A pod that its owner put back on the node in place of another one, and that stays.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ReturnedPod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The workload whose pod template has the toleration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<WorkloadReference>,
    /// Since when it has counted as returned.
    pub since: Time,
    /// Whether its owner had no pod on the node when the node was cordoned, as far as that is known: it replaces none of the pods that
    /// had to leave.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub came_later: bool,
}

impl ReturnedPod {
    /// The pod by name.
    pub fn reference(&self) -> PodReference {
        PodReference { namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

/// The workload of a pod: what controls it, or the Deployment of the `ReplicaSet` that does.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadReference {
    /// API group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
}
