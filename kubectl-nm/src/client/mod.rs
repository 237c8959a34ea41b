//! Requests to the API server.

pub(crate) mod all_groups;
pub(crate) mod cluster;
pub(crate) mod merged_watch;
pub(crate) mod nodes;
pub(crate) mod objects;
pub(crate) mod reconciler_deployment;
pub(crate) mod watch_stream;
pub(crate) mod webhook_probe;
