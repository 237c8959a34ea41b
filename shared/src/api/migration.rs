//! Facts in a status about virtual machines that KubeVirt migrates to other nodes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A virtual machine that KubeVirt migrates to another node, by the pod that it leaves behind. Also a pod with a disk that
/// leaves with its virtual machine, and a virtual machine that is arriving and leaves in its turn.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MigratingPod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Name of the virtual machine.
    pub machine: String,
    /// The node that it leaves, once the migration has begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The node that it goes to, once the migration has begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// When the migration began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Time since which KubeVirt could have started the migration, because no other one is under way. After two minutes
    /// the pod is blocked, unless another time is set. Absent once the migration has started, and while it waits for
    /// others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<Time>,
    /// Its `VirtualMachineInstanceMigration`, if there is one and nm-reconciler may read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration: Option<MigrationFacts>,
    /// Whether the virtual machine stays on the node if the maintenance ends now. Absent if it leaves nevertheless: its
    /// migration has begun, or nm-reconciler may not delete it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stays_on_stop: bool,
}

/// A `VirtualMachineInstanceMigration` in the pod's namespace.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct MigrationFacts {
    /// Name.
    pub name: String,
    /// Its phase, as KubeVirt writes it: `Pending`, `Scheduling` and so on. Empty before KubeVirt has seen it.
    pub phase: String,
    /// Number of consecutive failed migrations of the virtual machine before this one.
    #[serde(skip_serializing_if = "is_zero")]
    pub failures: i32,
    /// When KubeVirt begins this one at the earliest, because others have failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn is_zero(count: &i32) -> bool {
    *count == 0
}
