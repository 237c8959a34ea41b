//! Watches of the API server, which fill the caches and trigger reconciles.

pub(crate) mod cluster_watches;
pub(crate) mod maintenance_watch;
pub(crate) mod migrations;
pub(crate) mod node_leases;
pub(crate) mod node_watches;
pub(crate) mod queue_updates;
pub(crate) mod served_groups;
pub(crate) mod volume_attachments;
pub(crate) mod watch_stream;
pub(crate) mod workload_watches;
