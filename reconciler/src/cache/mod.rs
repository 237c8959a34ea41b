//! What the process remembers of the cluster between events, behind one lock ([`shared_state`]), and how an event triggers the
//! reconciles that it concerns.

pub(crate) mod budget_requests;
pub(crate) mod budgets;
pub(crate) mod common_parts;
pub(crate) mod compact_node;
pub(crate) mod eviction_scheduler;
pub(crate) mod evictions;
pub(crate) mod gate_facts;
pub(crate) mod index;
pub(crate) mod maintenances;
pub(crate) mod migrations;
pub(crate) mod nodes;
pub(crate) mod on_demand;
pub(crate) mod projected_node;
pub(crate) mod read_your_writes;
pub(crate) mod shared_state;
pub(crate) mod term_state;
pub(crate) mod volumes;
pub(crate) mod watched;
pub(crate) mod workloads;
