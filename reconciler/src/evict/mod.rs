//! Evictions: which is sent next, the requests, and their outcomes.

pub(crate) mod end_evacuations;
pub(crate) mod eviction_request;
pub(crate) mod eviction_scheduler;
pub(crate) mod eviction_state;
pub(crate) mod evictor;
