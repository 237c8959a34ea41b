//! Handlers: one file for each kind of request.

pub(crate) mod evacuation;
pub(crate) mod modify;
pub(crate) mod read;
pub(crate) mod reviews;
pub(crate) mod subresources;
pub(crate) mod token_request;
pub(crate) mod watch;
pub(crate) mod webhooks;
pub(crate) mod write;
pub(crate) mod write_checks;
