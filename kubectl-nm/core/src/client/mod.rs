//! Requests to the API server.

pub mod all_groups;
pub mod cluster;
pub(crate) mod list_pages;
pub mod merged_watch;
pub mod nodes;
pub mod objects;
pub(crate) mod pod_limit;
pub mod pod_problem;
pub mod reconciler_deployment;
pub(crate) mod reconciler_grants;
pub mod unread;
pub mod watch_stream;
pub mod webhook_probe;
