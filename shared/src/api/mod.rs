//! The API: `NodeMaintenance` with its status and conditions, the API groups that serve it, and names in the cluster.

pub mod attached_volume;
pub mod condition;
pub mod crd;
pub mod departed_pods;
pub mod grant;
pub mod group;
pub mod hold;
pub mod latency_budget;
pub mod maintenance;
pub mod migration;
pub mod names;
pub mod pod_reference;
pub mod pod_selector;
pub mod pod_state;
pub mod returned_pod;
pub mod roll_state;
pub mod status;
pub mod surge;
pub mod suspension;
