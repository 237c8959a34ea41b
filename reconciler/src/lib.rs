//! The in-cluster part of kubectl-nm.
//!
//! For every `NodeMaintenance` the controller [observes](controller::observe) the cluster, lets `nm-shared` decide, and
//! [applies](controller::apply) the decision. The [evictor](evict::evictor) runs beside it, so that no reconcile waits for
//! a pod and no node for another. One of several replicas [leads](leader::election) and does all this for a
//! [term](leader_term). Folders import only from those below them; [`program`] puts everything together.

mod cache;
mod client;
mod config;
mod controller;
mod evict;
pub mod in_process;
mod leader;
mod leader_term;
mod program;
mod runtime;
mod server;
mod telemetry;
mod watch;
mod webhook;

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the program until shutdown. `args` begins with the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    program::run(args)
}
