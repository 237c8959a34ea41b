//! `nm-sandbox`: a cluster to try things on, from the command line.

mod demo;
mod kubeconfig_file;
mod output;
mod programs;
mod up;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

/// A Kubernetes cluster in one process, for trying kubectl-nm.
#[derive(Debug, Parser)]
#[command(name = "nm-sandbox", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a cluster until Ctrl-C, and print where it is
    Up(up::Up),
    /// See a node drained and given back, in half a minute
    Demo(demo::Demo),
}

/// Runs the program. Exit codes: 0 done, 1 an error, 2 wrong usage.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if let Some(ended) = programs::run(&arguments) {
        return ended;
    }
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    let outcome = match arguments.command {
        Command::Up(up) => in_runtime(up::run(up)),
        Command::Demo(demo) => in_runtime(demo::run(demo)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::say(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn in_runtime(task: impl Future<Output = std::io::Result<()>>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(task)
}

/// Help and the version are answers, and go to stdout; everything else is wrong usage.
fn usage(error: &clap::Error) -> ExitCode {
    // Nobody is left to tell when this cannot be printed.
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
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }
}
