//! The command line.

use clap::{Parser, Subcommand};

use crate::commands::{start::StartArgs, status::StatusArgs, stop::StopArgs, watch::WatchArgs};
use crate::connection::ConnectionFlags;
use crate::output::Colour;

const ABOUT: &str = "\
Put nodes into maintenance and see how it goes.

A node in maintenance is cordoned and its pods are moved away through the Eviction API; when the
maintenance is stopped, the node is given back exactly as it was. A maintenance is an object of
the cluster (NodeMaintenance), so it goes on when this program has ended.";

const EXAMPLES: &str = "\
Examples:
  kubectl nm start node-1 --reason 'new kernel' --wait
  kubectl nm status
  kubectl nm watch
  kubectl nm stop node-1

Exit codes: 0 goal reached or nothing to do, 1 error, 2 usage, 3 failed,
4 deleted or replaced while waiting, 124 timed out, 130 interrupted.";

/// Put nodes into maintenance and see how it goes
#[derive(Parser, Debug)]
#[command(name = "kubectl-nm", bin_name = "kubectl nm", version)]
#[command(long_about = ABOUT, args_override_self = true, after_help = EXAMPLES, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    // A doc comment would have to put backticks around the variable.
    #[arg(help = "When to colour; auto respects NO_COLOR and TERM=dumb")]
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Colour,

    #[command(flatten)]
    pub(crate) connection: ConnectionFlags,
}

/// The verbs.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Start(StartArgs),
    Stop(StopArgs),
    Status(StatusArgs),
    Watch(WatchArgs),
}

impl Command {
    /// Whether its exit code speaks of a goal, which a reader who goes away leaves unreached.
    pub(crate) fn has_goal(&self) -> bool {
        match self {
            Self::Start(_) | Self::Stop(_) => true,
            Self::Status(_) => false,
            Self::Watch(args) => args.has_goal(),
        }
    }
}

/// What `--color` says on a command line that could not be parsed as a whole.
pub(crate) fn colour_on(line: &[std::ffi::OsString]) -> Colour {
    let words: Vec<&str> = line.iter().filter_map(|word| word.to_str()).collect();
    let said = words.iter().enumerate().find_map(|(at, word)| match *word {
        "--color" => words.get(at + 1).copied(),
        word => word.strip_prefix("--color="),
    });
    match said {
        Some("always") => Colour::Always,
        Some("never") => Colour::Never,
        _ => Colour::Auto,
    }
}

#[cfg(test)]
#[path = "cli_tests.rs"]
mod tests;
