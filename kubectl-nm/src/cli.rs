//! The command line.

use clap::{Parser, Subcommand};
use nm_core::connection::ConnectionFlags;
use nm_core::terminal::output::Colour;

use crate::commands::completion::CompletionArgs;
use crate::commands::doctor::DoctorArgs;
use crate::commands::explain::ExplainArgs;
use crate::commands::gather::GatherArgs;
use crate::commands::install::InstallArgs;
use crate::commands::pause::{PAUSE_EXAMPLES, PauseArgs, RESUME_EXAMPLES};
use crate::commands::plan::PlanArgs;
use crate::commands::roll::RollArgs;
use crate::commands::start::StartArgs;
use crate::commands::status::MaintenanceStatusArgs;
use crate::commands::stop::StopArgs;
use crate::commands::uninstall::UninstallArgs;
use crate::commands::version::VersionArgs;
use crate::commands::watch::WatchArgs;

/// The top-level help. It fits a terminal of 24 lines and 80 columns, with the prompt below it.
const HELP: &str = "\
{about}
{usage-heading} {usage}

{subcommands}

Examples:
  kubectl nm start node-1 --reason 'new kernel' --wait
Run `kubectl nm COMMAND --help` for flags, examples and exit codes.";

/// Drain nodes for maintenance and return them to service
#[derive(Parser, Debug)]
#[command(
    name = "kubectl-nm",
    bin_name = "kubectl nm",
    override_usage = "kubectl nm COMMAND [FLAGS]",
    version
)]
#[command(args_override_self = true, help_template = HELP, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    // A doc comment would have to put backticks around the variable.
    #[arg(help = "When to use colour; auto respects NO_COLOR and TERM=dumb")]
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Colour,

    #[command(flatten)]
    pub(crate) connection: ConnectionFlags,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Start(StartArgs),
    Stop(StopArgs),
    /// Pause maintenances: evict no more pods, keep the nodes cordoned
    #[command(after_help = PAUSE_EXAMPLES)]
    Pause(PauseArgs),
    /// Resume paused maintenances, and begin planned ones
    #[command(after_help = RESUME_EXAMPLES)]
    Resume(PauseArgs),
    Roll(Box<RollArgs>),
    Status(MaintenanceStatusArgs),
    Plan(PlanArgs),
    Explain(ExplainArgs),
    Watch(WatchArgs),
    Install(InstallArgs),
    Uninstall(UninstallArgs),
    Doctor(DoctorArgs),
    Gather(GatherArgs),
    Version(VersionArgs),
    Completion(CompletionArgs),
}

impl Command {
    /// Whether the exit code reports a goal, which is not reached if stdout is closed early.
    pub(crate) fn has_goal(&self) -> bool {
        match self {
            Self::Start(_) | Self::Stop(_) | Self::Install(_) | Self::Uninstall(_) => true,
            Self::Watch(args) => args.has_goal(),
            Self::Roll(args) => args.has_goal(),
            _ => false,
        }
    }
}

/// The value of `--color` on a command line that could not be parsed.
pub(crate) fn colour_flag(line: &[std::ffi::OsString]) -> Colour {
    let words: Vec<&str> = line.iter().filter_map(|word| word.to_str()).collect();
    let value = words.iter().enumerate().find_map(|(at, word)| match *word {
        "--color" => words.get(at + 1).copied(),
        word => word.strip_prefix("--color="),
    });
    match value {
        Some("always") => Colour::Always,
        Some("never") => Colour::Never,
        _ => Colour::Auto,
    }
}

#[cfg(test)]
#[path = "cli_tests.rs"]
mod tests;
