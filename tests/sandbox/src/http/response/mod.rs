//! What goes back to the client.

pub(crate) mod answer;
pub(crate) mod continue_token;
pub(crate) mod representation;
pub(crate) mod table;
