//! Confirmation prompts and progress messages.

pub mod confirm;
pub mod progress;
