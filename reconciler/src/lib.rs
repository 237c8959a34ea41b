//! The in-cluster half of kubectl-nm.
//!
//! For every `NodeMaintenance`: [`observe`](observe) what is there, ask `nm-shared` what to do, [`apply`](apply) it.
//! Evictions run apart from that, in the [`evictor`](evictor), so that no reconcile waits for a pod and no node for
//! another. Of several replicas one leads and does all that ([`election`](election)). Files use only files below them;
//! [`program`](program) puts them together.

mod cache;
mod client;
mod config;
mod controller;
mod evict;
mod leader;
mod program;
mod runtime;
mod server;
mod telemetry;
mod watch;
mod webhook;

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the program until it is told to stop. `args` begins with the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    program::run(args)
}
