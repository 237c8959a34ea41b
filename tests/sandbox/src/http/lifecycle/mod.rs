//! Starting, stopping and breaking the server, and the watches that end with it.

pub(crate) mod fault_injection;
pub(crate) mod server_state;
pub(crate) mod watch_body;
