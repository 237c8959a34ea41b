//! Questions, hints and progress messages: the conversation with the user.

pub(crate) mod confirm;
pub(crate) mod hint;
pub(crate) mod progress;
