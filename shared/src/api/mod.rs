//! The objects: `NodeMaintenance`, its status and conditions, the groups that serve it, and the names that clusters know it by.

pub mod condition;
pub mod crd;
pub mod dns_label;
pub mod grant;
pub mod group;
pub mod latency_budget;
pub mod maintenance;
pub mod names;
pub mod status;
