//! Start, stop and kill of the server, faults, and the watches that depend on them.

pub(crate) mod fault_injection;
pub(crate) mod server_state;
pub(crate) mod watch_body;
