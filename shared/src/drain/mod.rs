//! The rules of a drain: which pods to evict, what the answer to an eviction means, and how to cordon and uncordon a node.

pub mod blocker;
pub mod budget_allowance;
pub mod budget_motion;
pub mod completion;
pub mod cordon_backoff;
pub mod cordon_owner;
pub mod evacuation;
pub mod eviction_attempts;
pub mod eviction_outcome;
pub mod migration;
pub mod node_conditions;
mod node_marks;
pub mod node_patch;
pub mod plan;
pub mod pod_state;
pub mod returning;
pub mod steady_time;
pub mod surge;
pub mod transitions;
mod undo_record;
pub mod virtual_machine;
pub mod volume_detach;
