//! `NodeMaintenance` objects as people see them: states, headlines, changes, and the requests that create and delete them.
//!
//! Objects may come from this project's reconciler or from the medik8s node-maintenance-operator, whose statuses have
//! neither conditions nor pod counts: everything here works with both.

pub mod cache;
pub mod change_lines;
pub mod changes;
pub mod creator;
pub mod departures;
pub mod ending;
pub(crate) mod fields;
pub mod headline;
pub mod new_settings;
pub(crate) mod node_in_service;
pub mod roll;
pub mod roll_job;
pub mod roll_window;
pub mod slow_surge;
pub mod start;
pub(crate) mod state;
pub mod suspend;

pub use fields::{
    PICKUP_TIMEOUT, ROLL_FINALIZER, ROLL_LABEL, ROLLS_NAMESPACE, attached_volumes, blocked_count,
    blocked_pods, blocking, condition, cordoned_since, degraded, error_without_details, has_timed_out,
    is_refused, name_unless_node, node, pending_pods, purpose, purpose_words, purposes, roll_hook_owner,
    roll_name, status, timeout_seconds, uid, waiting_for, waiting_pods,
};
pub use headline::{
    but_unselected, came_later, drain_began, drain_ended, drain_result, drain_times_out, drained_again_since,
    headline, hold, hooks_before_eviction, hooks_removed, is_ending, is_held_by_hooks, kept_by_roll,
    percent_gone, pods_gone, pods_in_all, reason, stop_progress, time_limit_end, timeout_words,
};
pub use state::State;
