//! Evictions: who is evicted next, the requests, and what became of them.

pub(crate) mod cancel_evacuation;
pub(crate) mod eviction_request;
pub(crate) mod eviction_scheduler;
pub(crate) mod eviction_state;
pub(crate) mod evictor;
