//! `nm-reconciler`: cordons and drains nodes for their `NodeMaintenance`, and returns them to service.

use std::process::ExitCode;

fn main() -> ExitCode {
    nm_reconciler::run(std::env::args_os())
}
