//! The `NodeMaintenance` API and every decision about it.
//!
//! Nothing here does I/O or reads a clock: what needs the time takes `now`. The reconciler observes and acts, the
//! plugin shows; both ask this crate what it means.

pub mod maintenance;
pub mod names;
pub mod status;

pub use maintenance::{DrainOrder, DrainSpec, NodeMaintenance, NodeMaintenanceSpec};
pub use status::{BlockReason, BlockedPod, NodeMaintenanceStatus, Phase, PodCounts, PodReference};
