//! Evictions: the requests and their answers.

pub(crate) mod end_evacuations;
pub(crate) mod eviction_request;
pub(crate) mod evictor;
