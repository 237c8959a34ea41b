//! Tasks, the leader's runtime, the clock, backoff and shutdown.

pub(crate) mod backoff;
pub(crate) mod clock;
pub(crate) mod last_failure;
pub(crate) mod leader_runtime;
pub(crate) mod shutdown;
pub(crate) mod tasks;
#[cfg(test)]
pub(crate) mod thread_time;
