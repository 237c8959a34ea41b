//! The in-cluster half of kubectl-nm.
//!
//! For every `NodeMaintenance`: [`observe`](observe) what is there, ask `nm-shared` what to do, [`apply`](apply) it.
//! Evictions run apart from that, in the [`evictor`](evictor), so that no reconcile waits for a pod and no node for
//! another. Of several replicas one leads and does all that ([`election`](election)). Files use only files below them;
//! [`program`](program) puts them together.

mod announcer;
mod api_requests;
mod apply;
mod call_off;
mod cluster_watches;
mod connections;
mod context;
mod control;
mod election;
mod eviction_request;
mod evictor;
mod failures;
mod fence;
mod flags;
mod follow;
mod known_budgets;
mod lease_watch;
mod ledger;
mod logging;
mod machine_watches;
mod maintenance_watch;
mod maintenances;
mod metrics;
mod node_conditions;
mod node_leases;
mod observe;
mod own_writes;
mod platform;
mod pod_watches;
mod probes;
mod program;
mod readiness;
mod reconcile;
mod served_groups;
mod server;
mod stage;
mod standalone;
mod stop;
mod surroundings;
mod tasks;
mod triggers;
mod turns;
mod webhook;
mod write_params;

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the program until it is told to stop. `args` begins with the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    program::run(args)
}
