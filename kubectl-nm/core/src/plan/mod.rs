//! What a drain would do, without changing anything.
//!
//! [`cluster_snapshot`] reads what the user may read; [`eviction_dry_run`] lets the API server judge each eviction without
//! carrying it out. [`report`] combines both with the decisions of `nm-shared`, which the reconciler takes too, and
//! [`text`] and [`document`] show the result.

pub mod cluster_snapshot;
pub mod document;
pub(crate) mod eviction_dry_run;
pub(crate) mod max_unavailable;
pub mod planning;
pub mod report;
pub mod surge_workloads;
pub mod text;
pub(crate) mod volume_detach;
