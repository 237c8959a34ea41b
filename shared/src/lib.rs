//! The `NodeMaintenance` API and every decision about it.
//!
//! Nothing here does I/O or reads a clock: functions that need the time take `now`. The reconciler observes the cluster
//! and applies decisions, the plugin displays them.

pub mod admission;
pub mod api;
pub mod cluster;
pub mod decide;
pub mod drain;
pub mod forecast;
pub mod gate;

pub use api::attached_volume::{AttachedVolume, ClaimReference};
pub use api::departed_pods::DepartedPods;
pub use api::grant::Grant;
pub use api::group::{Group, GroupedMaintenance};
pub use api::hold::{Hold, Hook};
pub use api::maintenance::{
    Autoscalers, CompletionSpec, DrainOrder, DrainSpec, LoadBalancers, NodeMaintenance, NodeMaintenanceSpec,
    OnDetachTimeout, ReturningPods, SurgePolicy, WaitForVolumeDetach,
};
pub use api::migration::{MigratingPod, MigrationFacts};
pub use api::pod_reference::PodReference;
pub use api::pod_state::{PodCounts, PodState};
pub use api::returned_pod::{ReturnedPod, WorkloadReference};
pub use api::status::{
    BlockFacts, BlockReason, BlockedPod, BudgetFacts, ForbiddenAccess, NodeMaintenanceStatus, Phase,
    PolicyFacts, QueuePosition, SurgingPod, WaitReason, WaitingPod,
};
pub use api::surge::{Replacement, SurgeFacts, SurgeObstacle};
pub use api::suspension::Suspension;
