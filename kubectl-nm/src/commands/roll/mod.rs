//! `kubectl nm roll`: drains a pool wave by wave, acts on each node, and returns it to service.

mod begin;
mod control;
mod run;
mod status;

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use nm_shared::gate::max_unavailable_queue::MaxUnavailable;

use crate::args::duration;
use crate::args::names::parse_node;
use crate::client::cluster::Cluster;
use crate::client::nodes::NodeSelection;
use crate::error::Error;
use crate::error::exit::Exit;
use crate::format::{self, OutputFormat};
use crate::maintenance::start::StartRequest;
use crate::roll::report::LineFormat;
use crate::roll::waves::WaveSizes;
use crate::roll::window::Window;
use crate::terminal::output::Output;

const EXAMPLES: &str = "\
Examples:
  # Show the waves, and what each drain would do
  kubectl nm roll -l pool=blue --run 'ssh {} sudo reboot' --expect-reboot --dry-run

  # Reboot a pool, two nodes at a time, with two minutes between a node and the next
  kubectl nm roll -l pool=blue --max-unavailable 2 --run 'ssh {} sudo reboot' --expect-reboot \\
    --soak 2m --reason 'kernel 6.12'

  # Begin with one node, then three, then 10% of the nodes at a time, at night only
  kubectl nm roll -l pool=blue --waves 1,3,10% --job upgrade.yaml \\
    --window 'Sat,Sun 22:00-04:00 Europe/Berlin'

  # Drain node by node, and go on when you have confirmed each
  kubectl nm roll node-1 node-2 --confirm

  # See the rolls, and continue one that halted or was interrupted, from any machine
  kubectl nm roll status
  kubectl nm roll resume kernel-6.12 --skip node-7

Steps of a node:
  Planned      its maintenance is suspended, and its node is in service
  Draining     its pods are evicted
  Confirming   with --confirm: the roll asks whether to go on
  Acting       the command or the Job runs (--action-timeout)
  Rejoining    waits until the node is Ready, and has rebooted (--expect-reboot, --return-timeout)
  Checking     Ready for --min-ready, no new pressure, DaemonSet pods Ready (--recovery-timeout)
  Returning    the node returns to service
  Recovering   workloads and budgets as healthy as before the drain (--recovery-timeout)
  Soaking      the roll waits (--soak)

If a step fails or times out, the roll halts: no further node begins, and what is under way is left as it is. The state of \
a roll is in its NodeMaintenance objects. After Ctrl-C, or if this program dies, `kubectl nm roll resume NAME` continues it \
from any machine; a command that was under way is run again. The output of commands is kept below \
~/.local/state/kubectl-nm/roll/NAME, or $XDG_STATE_HOME.

Exit codes: 0 done, 1 error, 2 usage error or not confirmed, 3 halted, 4 taken over by somebody else, 130 interrupted.";

/// The flag means more to `start`.
const DRAIN_TIMEOUT: &str = "Time limit of each drain, such as 30s or 1h30m; 0, the default, means none. When it expires, \
    the maintenance fails and the roll halts";

/// Roll a pool: drain its nodes wave by wave, act on each, and return it to service
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(mut_arg("timeout", |arg| arg.help(DRAIN_TIMEOUT)))]
pub(crate) struct RollArgs {
    #[command(subcommand)]
    command: Option<RollCommand>,

    #[command(flatten)]
    begin: BeginArgs,
}

#[derive(Subcommand, Debug)]
enum RollCommand {
    /// Show the rolls, or the nodes of one
    Status(StatusArgs),
    /// Continue a roll that was interrupted, paused or halted
    Resume(ResumeArgs),
    /// Let no further node begin, and pause the drains under way
    Pause(NameArgs),
    /// End a roll: return the nodes to service whose action has not begun, and delete what is planned
    Abort(AbortArgs),
}

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("which").args(["nodes", "selector", "filename"]).required(true).multiple(true))]
#[command(group = ArgGroup::new("action").args(["run", "job", "confirm", "expect_reboot"]).required(true).multiple(true))]
#[expect(clippy::struct_excessive_bools, reason = "independent flags")]
struct BeginArgs {
    #[command(flatten)]
    nodes: NodeSelection,

    /// Name of the roll, for status, resume, pause and abort. The default is made of the time: roll-20260131-220000
    #[arg(long, value_parser = parse_name)]
    name: Option<String>,

    // A doc comment would have to put backticks around the variable.
    #[arg(
        help = "Run this command on this machine for each drained node. {} and $NM_NODE are the node's name. It \
        gets no terminal, and may be run again if this program is interrupted"
    )]
    #[arg(long, value_name = "COMMAND", value_parser = parse_command, conflicts_with = "job")]
    run: Option<String>,

    // A doc comment would have to put backticks around the variable.
    #[arg(
        help = "Run this Job on each drained node. {} in its command and arguments, and $NM_NODE, are the node's name"
    )]
    #[arg(long, value_name = "FILE")]
    job: Option<PathBuf>,

    /// Ask after each drain whether to go on with the node. This needs a terminal
    #[arg(long)]
    confirm: bool,

    /// Each node has to reboot (its bootID changes). A command may then end with exit code 255, as ssh does
    #[arg(long)]
    expect_reboot: bool,

    /// How many nodes may be under way at once: a number, or a percentage of the nodes. The default is 1, or with
    /// --waves the whole wave
    #[arg(long, value_name = "N|N%")]
    max_unavailable: Option<MaxUnavailable>,

    /// Sizes of the waves, such as 1,3,10%; the last one repeats. Without it, each topology zone is a wave. A wave has nodes
    /// of one zone only and is done before the next one begins. Control-plane nodes are last, one by one
    #[arg(long, value_name = "SIZES")]
    waves: Option<WaveSizes>,

    /// Begin nodes only in this window, such as 'Sat,Sun 22:00-04:00 Europe/Berlin', and only if the slowest node so far
    /// would still fit. May be repeated
    #[arg(long, value_name = "WINDOW")]
    window: Vec<Window>,

    /// Wait this long after a node is in service and healthy, before another one takes its place
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    soak: Duration,

    /// How long a node has to be Ready before it returns to service
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    min_ready: Duration,

    /// Halt if the command or the Job takes longer
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = duration::parse)]
    action_timeout: Duration,

    /// Halt if a node takes longer to be back and Ready
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = duration::parse)]
    return_timeout: Duration,

    /// Halt if a node, or what its drain disturbed, takes longer to be healthy
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse)]
    recovery_timeout: Duration,

    /// Halt if a pod blocks a drain for longer; the default is never
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    halt_on_blocked: Option<Duration>,

    /// Print the waves and what each drain would do, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    yes: bool,

    #[command(flatten)]
    output: OutputArgs,

    // Last, because arguments after it would be under its help heading.
    #[command(flatten)]
    request: StartRequest,
}

#[derive(Args, Debug)]
struct OutputArgs {
    /// Output format while the roll runs
    #[arg(long, short = 'o', value_name = "FORMAT", default_value = "lines")]
    output: RollFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum RollFormat {
    /// One line of text per change
    Lines,
    /// One JSON object per change
    Json,
}

impl From<RollFormat> for LineFormat {
    fn from(format: RollFormat) -> Self {
        match format {
            RollFormat::Lines => Self::Text,
            RollFormat::Json => Self::Json,
        }
    }
}

#[derive(Args, Debug)]
struct StatusArgs {
    /// Name of the roll; without it, all rolls are listed
    #[arg(value_parser = parse_name)]
    name: Option<String>,

    /// Print it in this format
    #[arg(long, short = 'o', value_name = "FORMAT", default_value = "table",
        value_parser = format::formats(["table", "json", "yaml"]))]
    output: OutputFormat,
}

#[derive(Args, Debug)]
struct NameArgs {
    /// Name of the roll
    #[arg(value_parser = parse_name)]
    name: String,
}

#[derive(Args, Debug)]
struct ResumeArgs {
    #[command(flatten)]
    roll: NameArgs,

    /// Go on without this node, and return it to service as it is. May be repeated
    #[arg(long, value_name = "NODE", value_parser = parse_node)]
    skip: Vec<String>,

    /// Confirm that the roll runs this command on this machine; it has to be the command of the roll
    #[arg(long, value_name = "COMMAND")]
    run: Option<String>,

    /// Confirm that the roll creates this Job; it has to be the Job of the roll
    #[arg(long, value_name = "FILE", conflicts_with = "run")]
    job: Option<PathBuf>,

    /// Take the roll over from the program that runs it. That program ends
    #[arg(long)]
    take_over: bool,

    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Args, Debug)]
struct AbortArgs {
    #[command(flatten)]
    roll: NameArgs,

    /// Return the nodes whose action has begun to service, too
    #[arg(long = "return")]
    return_all: bool,

    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    yes: bool,
}

impl RollArgs {
    /// Whether the exit code reports a goal.
    pub(crate) fn has_goal(&self) -> bool {
        matches!(self.command, None | Some(RollCommand::Resume(_)))
    }
}

pub(crate) async fn run(
    args: RollArgs,
    namespace: Option<&str>,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    match args.command {
        None => Box::pin(begin::run(args.begin, namespace, cluster, out)).await,
        Some(RollCommand::Status(args)) => status::run(&args, cluster, out).await,
        Some(RollCommand::Resume(args)) => control::resume(args, namespace, cluster, out).await,
        Some(RollCommand::Pause(args)) => control::pause(&args.name, cluster, out).await,
        Some(RollCommand::Abort(args)) => control::abort(&args, cluster, out).await,
    }
}

/// Parses a command. An empty one is more often a variable that is not set.
fn parse_command(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err(String::from("the command is empty")) } else { Ok(text.to_owned()) }
}

/// The most characters of a roll's name, so that it fits into a label and the name of a Job.
const MAX_NAME: usize = 40;

/// Parses the name of a roll, which becomes a label and part of names.
fn parse_name(text: &str) -> Result<String, String> {
    if nm_shared::cluster::node::is_valid_name(text) && text.len() <= MAX_NAME {
        return Ok(text.to_owned());
    }
    Err(format!("a name has at most {MAX_NAME} lower-case letters, digits, - and ., such as kernel-6.12"))
}
