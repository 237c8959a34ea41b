//! Evictions: which is sent next, the requests, and their outcomes.

pub(crate) mod cancel_evacuation;
pub(crate) mod eviction_request;
pub(crate) mod eviction_scheduler;
pub(crate) mod eviction_state;
pub(crate) mod evictor;
