//! The archive for a bug report: its files, the logs in it, and what is redacted.

pub(crate) mod archive;
pub(crate) mod logs;
