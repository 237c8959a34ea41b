//! The `NodeMaintenance` API and every decision about it.
//!
//! Nothing here does I/O or reads a clock: what needs the time takes `now`. The reconciler observes and acts, the
//! plugin shows; both ask this crate what it means.

pub mod admission;
pub mod admission_review;
pub mod attempt;
pub mod budget;
pub mod budgets;
pub mod condition;
pub mod cordon_backoff;
pub mod crd;
pub mod decide;
pub mod decision;
pub mod dns_label;
pub mod drain_plan;
pub mod drain_status;
pub mod eviction_outcome;
pub mod forecast;
pub mod grant;
pub mod group;
pub mod leader_lease;
pub mod line;
pub mod machine;
pub mod maintenance;
pub mod milestones;
pub mod names;
pub mod node;
pub mod node_conditions;
pub mod node_fit;
pub mod node_lease;
pub mod node_patch;
pub mod observed;
pub mod ownership;
pub mod pod;
pub mod pod_requests;
pub mod pod_state;
pub mod progress;
pub mod prospect;
pub mod quantity;
pub mod queue;
pub mod quorum;
pub mod reservation;
pub mod returns;
pub mod room;
pub mod selector;
pub mod serving_certificate;
pub mod status;
pub mod steady_time;
pub mod turn;
pub mod volumes;

pub use grant::Grant;
pub use group::{Group, Grouped};
pub use maintenance::{DrainOrder, DrainSpec, NodeMaintenance, NodeMaintenanceSpec};
pub use status::{
    BlockReason, BlockedPod, MigratingPod, NodeMaintenanceStatus, Phase, PodCounts, PodReference,
};
