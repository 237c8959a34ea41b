//! The `NodeMaintenance` API and every decision about it.
//!
//! Nothing here does I/O or reads a clock: what needs the time takes `now`. The reconciler observes and acts, the
//! plugin shows; both ask this crate what it means.

pub mod admission;
pub mod api;
pub mod cluster;
pub mod decide;
pub mod drain;
pub mod forecast;
pub mod gate;

pub use api::grant::Grant;
pub use api::group::{Group, Grouped};
pub use api::maintenance::{DrainOrder, DrainSpec, NodeMaintenance, NodeMaintenanceSpec};
pub use api::status::{
    BlockReason, BlockedPod, MigratingPod, NodeMaintenanceStatus, Phase, PodCounts, PodReference,
};
