//! Values on the command line: nodes, namespaces, durations, drain flags.

pub(crate) mod boolean;
pub(crate) mod drain_flags;
pub(crate) mod duration;
pub(crate) mod image_name;
pub(crate) mod invocation;
pub(crate) mod namespace_name;
pub(crate) mod node_name;
pub(crate) mod suggestion;
