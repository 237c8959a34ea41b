//! The kubectl plugin `kubectl nm`.
//!
//! It creates, deletes and shows `NodeMaintenance` objects; a reconciler in the cluster does what they ask for. Begin
//! with [`run`]: it parses the command line (`cli`), connects as kubectl would (`connection`), and runs one of the
//! `commands`. These take their decisions in pure functions, make requests through `cluster`, wait with `follow` and
//! `vigil`, and print through `output` alone. Shells that complete a line that is being typed ask `completion`.

mod args;
mod cli;
mod client;
mod commands;
mod completion;
mod connection;
mod dashboard;
mod doctor;
mod error;
mod explain;
mod format;
mod gather;
mod install;
mod interaction;
mod maintenance;
mod plan;
mod terminal;
mod unknown_command;
mod watch;

/// For the benchmark in `benches/`.
#[doc(hidden)]
pub mod bench {
    pub use crate::dashboard::SimulatedDashboard;
}

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::cli::{Cli, Command};
use crate::client::cluster::Cluster;
use crate::error::Error;
use crate::error::exit::Exit;
use crate::terminal::output::{Colour, FirstAnswer, Output};

/// Runs the plugin with these arguments, the name of the program first, and says how it ended.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let begun = std::env::var_os("_");
    let command = args::invocation::called(arguments.first().map(OsString::as_os_str), begun.as_deref());
    if let Some(answer) = completion::answer(&arguments) {
        // A shell that has stopped listening needs no words.
        let _ = Output::of_this_process(Colour::Never, command).text(&answer);
        return Exit::Done.into();
    }
    match Cli::try_parse_from(&arguments) {
        Ok(cli) => execute(cli, command).into(),
        Err(mut said) => {
            let hint = unknown_command::hint(&mut said);
            let mut out = Output::of_this_process(cli::colour_on(&arguments), command);
            out.parser(&said);
            if let Some(hint) = hint {
                out.hint(&hint);
            }
            if said.use_stderr() { Exit::Usage.into() } else { Exit::Done.into() }
        }
    }
}

fn execute(cli: Cli, command: &'static str) -> Exit {
    let first = FirstAnswer::default();
    let mut out =
        Output::of_this_process(cli.color, command).leading(cli.connection.to_paste(), first.clone());
    let has_goal = cli.command.has_goal();
    let ended = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let ended = runtime.block_on(dispatch(cli, &first, &mut out));
            // A name server that does not answer holds a thread for as long as it likes; nobody waits for that one.
            runtime.shutdown_background();
            ended
        }
        Err(error) => Err(Error::Runtime(error)),
    };
    match ended {
        Ok(exit) => exit,
        // Whoever read our output has seen enough.
        Err(Error::Closed(closed)) if closed.is_quiet() => {
            if has_goal {
                Exit::Error
            } else {
                Exit::Done
            }
        }
        Err(error) => {
            error.tell(&mut out);
            error.exit()
        }
    }
}

async fn dispatch(cli: Cli, first: &FirstAnswer, out: &mut Output) -> Result<Exit, Error> {
    let namespace = cli.connection.namespace.as_deref().filter(|name| !name.is_empty());
    let cluster = async || Ok::<_, Error>(Cluster::from(connection::connect(&cli.connection, first).await?));
    match cli.command {
        Command::Start(args) => commands::start::run(args, &cluster().await?, out).await,
        Command::Stop(args) => commands::stop::run(args, &cluster().await?, out).await,
        Command::Status(args) => commands::status::run(args, &cluster().await?, out).await,
        Command::Plan(args) => commands::plan::run(args, &cluster().await?, out).await,
        Command::Explain(args) => commands::explain::run(args, &cluster().await?, out).await,
        Command::Watch(args) => match cluster().await {
            Ok(cluster) => commands::watch::run(args, &cluster, out).await,
            Err(error) => {
                commands::watch::fail(&args, out);
                Err(error)
            }
        },
        Command::Install(args) if !args.needs_cluster() => commands::install::rehearse(&args, namespace, out),
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
        Command::Version(args) if !args.needs_cluster() => commands::version::own(&args, out),
        Command::Version(args) => match cluster().await {
            Ok(cluster) => commands::version::run(args, &cluster, out).await,
            Err(error) => commands::version::own(&args, out).and(Err(error)),
        },
        Command::Completion(args) => commands::completion::run(&args, out),
        Command::Man(args) => commands::man::run(&args, Cli::command(), out),
    }
}
