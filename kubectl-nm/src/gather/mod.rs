//! The support bundle: its archive, the logs in it, and what is redacted.

pub(crate) mod archive;
pub(crate) mod logs;
pub(crate) mod redact;
