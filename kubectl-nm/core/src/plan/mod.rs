//! What a drain would do, without changing anything.
//!
//! [`cluster_snapshot`] reads what the user may read; [`eviction_dry_run`] lets the API server judge each eviction without
//! carrying it out. [`report`] combines both with the decisions of `nm-shared`, which the reconciler takes too, and
//! [`text`] and [`document`] show the result, and [`harm`] what of it is said before a drain begins.

pub mod cluster_snapshot;
pub mod cost;
pub mod deleted_claims;
mod denied;
pub mod document;
mod endless_pods;
pub(crate) mod eviction_dry_run;
mod failing_jobs;
mod growing_budgets;
pub mod harm;
mod harm_wording;
pub(crate) mod max_unavailable;
pub mod planning;
pub(crate) mod pods_elsewhere;
mod pods_of_budgets;
pub mod report;
mod returning_pods;
pub mod slow_pods;
pub(crate) mod snapshot_pods;
pub(crate) mod surge_workloads;
pub mod text;
pub(crate) mod time_limit;
pub(crate) mod volume_detach;
