//! Typed views of the cluster: nodes, pods, disruption budgets, leases, selectors, quantities and refusals of requests.

pub mod admission_webhook;
pub mod budget_headway;
pub mod disruption_budget;
pub mod leader_lease;
pub mod metadata;
pub mod node;
pub mod node_fit;
pub mod node_lease;
pub mod node_pool;
pub mod pod;
pub mod pod_exclusion;
pub mod pod_requests;
pub mod quantity;
pub mod refusal;
pub mod resource_quota;
pub mod selector;
pub mod temporary_taint;
pub mod topology_spread;
pub mod volume_attachment;
pub mod volumes;
