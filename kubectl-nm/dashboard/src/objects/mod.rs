//! What the dashboard keeps of the objects that it watches, and the state of the watches.

pub(crate) mod listed_node;
pub(crate) mod node_metadata;
pub(crate) mod node_pod;
pub(crate) mod replacement_pod;
pub(crate) mod replacements;
pub(crate) mod watch_state;
pub(crate) mod workload;
