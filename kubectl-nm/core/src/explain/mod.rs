//! Why a maintenance makes no progress, and how to fix each cause.

mod budget_causes;
pub mod cause;
mod cause_wording;
pub mod cluster_facts;
pub mod explanation;
pub mod first_cause;
pub mod no_node_left;
pub mod node_causes;
pub mod obstacle;
pub mod owner;
pub mod pending_claim;
pub mod read_facts;
pub mod remedy;
mod returned_pods;
mod surge_causes;

#[cfg(test)]
mod situations_tests;
