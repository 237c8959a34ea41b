//! The `kubectl-nm` program; all of it is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    kubectl_nm::run(std::env::args_os())
}
