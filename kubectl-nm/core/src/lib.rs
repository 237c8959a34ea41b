//! What the commands, rolls and dashboards of `kubectl nm` share.
//!
//! [`connection`] finds the server as kubectl does, and [`client`] sends requests and watches. [`maintenance`] is what people
//! see of `NodeMaintenance` objects, and [`leader`] whether anybody works on them; [`watch`] follows them, [`plan`] predicts a
//! drain, and [`explain`] says what blocks one. [`error`] is what commands end with, and [`terminal`] is the only way in which they print.

pub mod args;
pub mod client;
pub mod connection;
pub mod error;
pub mod explain;
pub mod format;
pub mod interaction;
pub mod leader;
pub mod maintenance;
pub mod plan;
pub mod redact;
pub mod terminal;
pub mod watch;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
