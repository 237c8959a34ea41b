//! Tasks, the leader's runtime, and shutdown.

pub(crate) mod leader_runtime;
pub(crate) mod shutdown;
pub(crate) mod tasks;
