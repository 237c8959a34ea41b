//! The kubectl plugin `kubectl nm`.
//!
//! It creates, deletes and shows `NodeMaintenance` objects, which nm-reconciler reconciles in the cluster. [`run`] parses the
//! command line (`cli`), connects as kubectl does (`connection`), and runs one of the `commands`. Commands decide in pure
//! functions, send requests through `client`, follow maintenances with `watch` and print through `terminal::output` only.

mod cli;
mod commands;
mod completion;
mod doctor;
mod gather;
#[cfg(feature = "testing")]
pub mod in_process;
mod install;
mod unknown_command;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use nm_core::client::cluster::Cluster;
use nm_core::connection;
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::terminal::command_context::command_line;
use nm_core::terminal::output::{Colour, Output};

use crate::cli::{Cli, Command};

/// Runs the plugin with these arguments, the name of the program first, and returns its exit code.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if let Some(candidates) = completion::respond(&arguments, Cli::command) {
        // If the shell does not read them, nothing is left to do.
        let _ = Output::from_process(Colour::Never, String::new()).text(&candidates);
        return Exit::Done.into();
    }
    let arguments = cli::with_joined_values(arguments);
    match Cli::try_parse_from(cli::with_dry_run_values(arguments.clone())) {
        Ok(cli) => execute(cli, &arguments).into(),
        Err(mut error) => {
            let hint = unknown_command::hint(&mut error, &arguments);
            unknown_command::shorten_values(&mut error);
            let mut out = Output::from_process(cli::colour_flag(&arguments), String::new());
            out.parser_error(&error);
            if let Some(hint) = hint {
                out.hint(&hint);
            }
            if error.use_stderr() { Exit::Usage.into() } else { Exit::Done.into() }
        }
    }
}

fn execute(cli: Cli, arguments: &[OsString]) -> Exit {
    let out = Output::from_process(cli.color, cli.connection.to_paste());
    let mut out = out.with_command(command_line(arguments)).verbose(cli.connection.is_verbose());
    let has_goal = cli.command.has_goal();
    let result = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let result = runtime.block_on(dispatch(cli, &mut out));
            // A DNS lookup without response can block a thread, which is not awaited.
            runtime.shutdown_background();
            result
        }
        Err(error) => Err(Error::Runtime(error)),
    };
    match result {
        Ok(exit) => exit,
        // The reader of stdout went away.
        Err(Error::Stdout(error)) if error.is_broken_pipe() => {
            if has_goal {
                Exit::Error
            } else {
                Exit::Done
            }
        }
        Err(error) => {
            error.print(&mut out);
            error.exit()
        }
    }
}

async fn dispatch(cli: Cli, out: &mut Output) -> Result<Exit, Error> {
    let namespace = cli.connection.namespace.as_deref().filter(|name| !name.is_empty());
    let cluster = async || Ok::<_, Error>(Cluster::from(connection::connect(&cli.connection).await?));
    match cli.command {
        Command::Start(args) => {
            let cluster = cluster().await?;
            Box::pin(commands::start::run(args, &cluster, out)).await
        }
        Command::Stop(args) => commands::stop::run(args, &cluster().await?, out).await,
        Command::Pause(args) => commands::pause::run(args, true, &cluster().await?, out).await,
        Command::Resume(args) => commands::pause::run(args, false, &cluster().await?, out).await,
        Command::Roll(args) => {
            let cluster = cluster().await?;
            Box::pin(commands::roll::run(*args, namespace, &cluster, out)).await
        }
        Command::Status(args) => commands::status::run(args, &cluster().await?, out).await,
        Command::Plan(args) => commands::plan::run(args, &cluster().await?, out).await,
        Command::Explain(args) => commands::explain::run(args, &cluster().await?, out).await,
        Command::Watch(args) => match args.into_replay() {
            Ok(replay) => Box::pin(commands::replay::run(replay, out)).await,
            Err(args) => match cluster().await {
                Ok(cluster) => commands::watch::run(args, &cluster, out).await,
                Err(error) => {
                    commands::watch::fail(&args, out);
                    Err(error)
                }
            },
        },
        Command::Install(args) if !args.needs_cluster() => {
            commands::install::run_client_dry_run(&args, namespace, out)
        }
        Command::Install(args) => {
            let cluster = cluster().await?;
            Box::pin(commands::install::run(args, namespace, &cluster, out)).await
        }
        Command::Uninstall(args) => {
            let cluster = cluster().await?;
            Box::pin(commands::uninstall::run(args, namespace, &cluster, out)).await
        }
        Command::Doctor(args) => {
            let cluster = cluster().await?;
            Box::pin(commands::doctor::run(args, namespace, &cluster, out)).await
        }
        Command::Gather(args) => {
            let cluster = cluster().await?;
            Box::pin(commands::gather::run(args, namespace, &cluster, out)).await
        }
        Command::Version(args) if !args.needs_cluster() => commands::version::run_client(&args, out),
        Command::Version(args) => match cluster().await {
            Ok(cluster) => commands::version::run(args, &cluster, out).await,
            Err(error) => commands::version::run_client(&args, out).and(Err(error)),
        },
        Command::Completion(args) => commands::completion::run(&args, out),
        Command::Options => commands::options::run(&Cli::command(), out),
    }
}
