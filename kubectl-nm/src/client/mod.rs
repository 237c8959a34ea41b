//! Requests to the API server and what their errors mean.

pub(crate) mod client_error;
pub(crate) mod cluster;
pub(crate) mod every_group;
pub(crate) mod nodes;
pub(crate) mod objects;
pub(crate) mod reconciler_settings;
pub(crate) mod watch_stream;
pub(crate) mod webhook_probe;
