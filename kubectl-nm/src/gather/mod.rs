//! The support bundle: what goes in, and what is redacted.

pub(crate) mod archive;
pub(crate) mod logs;
pub(crate) mod redact;
