//! The command line.

use std::ffi::OsString;

use clap::{Arg, Parser, Subcommand};
use nm_core::connection::ConnectionFlags;
use nm_core::terminal::output::Colour;

use crate::commands::completion::CompletionArgs;
use crate::commands::doctor::DoctorArgs;
use crate::commands::explain::ExplainArgs;
use crate::commands::gather::GatherArgs;
use crate::commands::install::InstallArgs;
use crate::commands::options::{OPTIONS_EXAMPLES, OPTIONS_EXIT_CODES};
use crate::commands::pause::{PAUSE_EXAMPLES, PAUSE_NOTES, PauseArgs, RESUME_EXAMPLES, RESUME_NOTES};
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
`kubectl nm COMMAND --help` has examples, `kubectl nm options` the common flags.";

/// The help of a command: its examples come first, as in kubectl.
const COMMAND_HELP: &str = "\
{about-with-newline}
{before-help}{usage-heading} {usage}

{all-args}{after-help}

Use `kubectl nm options` for the flags of the connection.";

/// Drain nodes for maintenance and return them to service
#[derive(Parser, Debug)]
#[command(
    name = "kubectl-nm",
    bin_name = "kubectl nm",
    override_usage = "kubectl nm COMMAND [FLAGS]",
    version
)]
#[command(args_override_self = true, help_template = HELP, max_term_width = 110)]
#[command(mut_args(only_in_options), mut_subcommands(with_command_help))]
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
    #[command(before_help = PAUSE_EXAMPLES, after_help = PAUSE_NOTES)]
    Pause(PauseArgs),
    /// Resume paused maintenances, and start planned ones
    #[command(before_help = RESUME_EXAMPLES, after_help = RESUME_NOTES)]
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
    /// Print the flags that every command takes
    #[command(hide = true, before_help = OPTIONS_EXAMPLES, after_help = OPTIONS_EXIT_CODES)]
    Options,
}

/// The flags of every command have a page of their own.
fn only_in_options(arg: Arg) -> Arg {
    let is_global = arg.is_global_set();
    // A flag with `hide` would not be completed.
    arg.hide_short_help(is_global).hide_long_help(is_global)
}

fn with_command_help(command: clap::Command) -> clap::Command {
    command.help_template(COMMAND_HELP).mut_subcommands(with_command_help)
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

/// The command line with a value for each `--dry-run` that has none, although a word follows: in `start --dry-run node-1`
/// the word is the name of a node.
pub(crate) fn with_dry_run_values(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    const FLAG: &str = "--dry-run";
    let mut words: Vec<OsString> = arguments.into_iter().collect();
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    // The flag of `roll` has no value.
    if words.iter().find(|word| *word == "start" || *word == "roll").is_none_or(|word| word != "start") {
        return words;
    }
    for at in 0..end {
        let next = words[..end].get(at + 1).and_then(|word| word.to_str());
        let is_value = next.is_some_and(|next| ["none", "client", "server"].contains(&next));
        if words[at] == FLAG && !is_value {
            words[at] = OsString::from("--dry-run=client");
        }
    }
    words
}

/// The arguments with levels of `-v` and negative values as the parser takes them. As in kubectl, `-v 6` and `-v6` have a level.
/// Alone, `-v` has none, and what follows it is another argument, such as the name of a node. The parser would take the `-5s` of
/// `--timeout -5s` for a flag.
pub(crate) fn with_joined_values(arguments: Vec<OsString>) -> Vec<OsString> {
    let mut joined: Vec<OsString> = Vec::with_capacity(arguments.len());
    let (mut is_after_flag, mut are_flags_over) = (false, false);
    let level = |text: &str| text.parse::<i32>().ok();
    let is_negative = |text: &str| {
        text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    };
    let takes_value =
        |word: &mut OsString| word.to_str().is_some_and(|word| word.starts_with("--") && !word.contains('='));
    for argument in arguments {
        let next = match argument.to_str() {
            Some(text) if is_after_flag && level(text).is_some() => {
                joined.pop();
                format!("--v={text}").into()
            }
            Some(text)
                if !are_flags_over
                    && is_negative(text)
                    && let Some(mut flag) = joined.pop_if(takes_value) =>
            {
                flag.push(format!("={text}"));
                flag
            }
            Some(text) if !are_flags_over => match text.strip_prefix("-v").and_then(level) {
                Some(level) => format!("--v={level}").into(),
                None => argument.clone(),
            },
            _ => argument.clone(),
        };
        are_flags_over |= argument == "--";
        is_after_flag = !are_flags_over && (argument == "-v" || argument == "--v");
        joined.push(next);
    }
    joined
}

/// The value of `--color` on a command line that could not be parsed.
pub(crate) fn colour_flag(line: &[OsString]) -> Colour {
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
