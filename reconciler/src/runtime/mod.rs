//! Tasks, the leader's runtime, backoff and shutdown.

pub(crate) mod backoff;
pub(crate) mod leader_runtime;
pub(crate) mod shutdown;
pub(crate) mod tasks;
