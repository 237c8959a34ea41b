//! `nm-sandbox`: a simulated cluster with both programs of this project, to try them without a real one.
//!
//! [`demo`] shows one maintenance, or the roll of a pool, from start to end; [`up`] runs a cluster until Ctrl-C, and [`reboot`] reboots one of its
//! nodes. The cluster itself is the crate
//! `kube-sandbox`, which knows nothing about maintenances: this program installs their CRD.

mod demo;
mod kubeconfig_file;
mod output;
mod programs;
mod reboot;
mod up;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

/// A simulated Kubernetes cluster for trying kubectl-nm
#[derive(Debug, Parser)]
#[command(name = "nm-sandbox", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a cluster until Ctrl-C, and print the path of its kubeconfig
    Up(up::Up),
    /// Watch a node drain and return to service, or a pool of nodes reboot
    Demo(demo::Demo),
    /// Reboot a node of a running cluster
    Reboot(reboot::Reboot),
}

/// Exit codes: 0 success, 1 error, 2 wrong usage.
fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if let Some(code) = programs::run(&arguments) {
        return code;
    }
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    let outcome = match arguments.command {
        Command::Up(up) => block_on(up::run(up)),
        Command::Demo(demo) => block_on(demo::run(demo)),
        Command::Reboot(reboot) => block_on(reboot::run(reboot)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::message(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn block_on(task: impl Future<Output = std::io::Result<()>>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(task)
}

/// Prints help and the version to stdout, and usage errors to stderr.
fn usage(error: &clap::Error) -> ExitCode {
    // There is nowhere left to report that printing failed.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ => ExitCode::from(2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_valid() {
        Arguments::command().debug_assert();
    }
}
