//! Watches of the API server, and the caches they fill.

pub(crate) mod cluster_watches;
pub(crate) mod maintenance_watch;
pub(crate) mod node_leases;
pub(crate) mod platform;
pub(crate) mod pod_watches;
pub(crate) mod served_groups;
pub(crate) mod virtual_machine_watches;
pub(crate) mod watch_stream;
