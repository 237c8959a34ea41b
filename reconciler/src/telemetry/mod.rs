//! Metrics, readiness checks and the HTTP endpoints that serve them.

pub(crate) mod metrics;
pub(crate) mod probes;
pub(crate) mod readiness;
