//! Errors, times, and functions that read and check objects. No state.

pub mod clock;
pub(crate) mod condition;
pub mod duration;
pub(crate) mod event_versions;
pub(crate) mod label_selector;
pub(crate) mod micro_time;
pub(crate) mod names;
pub(crate) mod node;
pub(crate) mod percent_encoding;
pub(crate) mod pod;
pub(crate) mod rbac;
pub(crate) mod resources;
pub mod status_error;
pub mod volume;
