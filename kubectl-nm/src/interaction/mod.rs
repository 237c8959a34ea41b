//! Confirmation prompts and progress messages.

pub(crate) mod confirm;
pub(crate) mod progress;
