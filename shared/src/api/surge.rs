//! Facts in a status about pods that their Deployments replace first (`spec.drain.surge`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A pod that replaces another one.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Replacement {
    /// Name.
    pub name: String,
    /// Its node, once it is scheduled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Whether it is Ready.
    pub ready: bool,
}

/// Why a surge does not help a pod that its budget blocks.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct SurgeFacts {
    /// Machine-readable reason why the pod is not replaced first.
    pub reason: SurgeObstacle,
    /// Name of its Deployment, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment: Option<String>,
}

/// Why a surge does not help.
#[derive(
    Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, strum::IntoStaticStr,
)]
pub enum SurgeObstacle {
    /// No Deployment controls the pod.
    NoDeployment,
    /// The strategy of its Deployment is `Recreate`.
    Recreate,
    /// Its Deployment may have no additional pod: `maxSurge` is 0.
    NoSurge,
    /// A restart may terminate pods before their replacements are Ready: `maxUnavailable` allows that.
    Unavailable,
    /// Its Deployment is paused.
    Paused,
    /// Its Deployment cannot create the replacement, for example because of a quota.
    CreationFailed,
    /// The restart of its Deployment exceeded its deadline.
    Stalled,
    /// Someone undid the restart of its Deployment.
    RolledBack,
    /// Its pods share a claim, which a replacement on another node may not be able to mount at the same time.
    SharedVolume,
    /// Its replacement may be on the node as well: the template of its Deployment tolerates the taints, or names the node.
    MayReturn,
    /// Its pods must be on different nodes, and fewer other nodes than it has pods can take replacements.
    KeptApart,
    /// The reconciler lacks the access to read or restart Deployments.
    Forbidden,
    /// The API server refuses the restart of its Deployment.
    Refused,
    /// A reason that only a newer version knows.
    #[default]
    #[serde(other)]
    Unknown,
}

impl SurgeObstacle {
    /// The value in the status.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A `ReplicaSet` whose Deployment was restarted.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RestartedReplicaSet {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Its revision when the restart was requested. If the restart is undone, it gets a new one.
    pub revision: i64,
}
