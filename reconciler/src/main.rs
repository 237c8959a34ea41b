//! `nm-reconciler`: puts nodes into maintenance and gives them back.

use std::process::ExitCode;

fn main() -> ExitCode {
    nm_reconciler::run(std::env::args_os())
}
