//! Why a maintenance makes no progress, and how to fix each cause.

mod bounded_requests;
mod budget_causes;
pub mod cause;
mod cause_wording;
pub mod cluster_facts;
pub mod completion;
pub mod deletions;
mod endless_pods;
mod excluded_nodes;
pub mod explanation;
mod failed_jobs;
mod finalizers;
pub mod first_cause;
mod granted;
pub mod lasting_outages;
pub mod local_storage;
mod never_allows;
pub mod no_node_left;
mod no_node_wording;
pub mod node_causes;
pub mod obstacle;
pub mod obstacle_wording;
pub mod outage;
pub mod outage_causes;
pub mod outage_watch;
pub mod owner;
pub mod pending_claim;
pub mod preemption;
mod probe_delay;
pub mod read_facts;
pub mod read_outages;
mod read_rollouts;
mod read_warnings;
mod recount;
pub mod remedy;
mod returned_pods;
pub mod roll_causes;
mod surge_causes;
mod told_alone;
pub mod unsatisfiable_budget;
mod ways_back;

#[cfg(test)]
mod situations_tests;
