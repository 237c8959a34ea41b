//! The sandbox's program; everything is in `nm_sandbox::cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    nm_sandbox::cli::run(std::env::args_os())
}
