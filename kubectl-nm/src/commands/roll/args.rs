//! The arguments of `kubectl nm roll` and its commands.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgGroup, Args};
use nm_core::args::duration;
use nm_core::args::names::parse_node;
use nm_core::client::nodes::NodeSelection;
use nm_core::format::{self, OutputFormat};
use nm_core::maintenance::roll_window::Window;
use nm_core::maintenance::start::StartRequest;
use nm_core::terminal::command_context::shell_quoted;
use nm_core::terminal::output::Output;
use nm_dashboard::AppearanceFlags;
use nm_roll::error::RollError;
use nm_roll::job;
use nm_roll::report::LineFormat;
use nm_roll::settings::NodeAction;
use nm_roll::waves::WaveSizes;
use nm_shared::gate::max_unavailable_queue::MaxUnavailable;

use super::needed::NeedFlags;

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("which").args(["nodes", "selector", "filename"]).required(true).multiple(true))]
#[command(group = ArgGroup::new("action").args(["run", "job", "confirm", "expect_reboot"]).required(true).multiple(true))]
#[expect(clippy::struct_excessive_bools, reason = "independent flags")]
pub(super) struct BeginArgs {
    #[command(flatten)]
    pub(super) nodes: NodeSelection,

    /// Name of the roll, for `roll status`, `resume`, `pause` and `abort`. The default is the time, as in
    /// roll-20260131-220000
    #[arg(long, value_parser = parse_name)]
    pub(super) name: Option<String>,

    // A doc comment would have to put backticks around the variable.
    #[arg(
        help = "Run this command on this computer for each drained node. {} and $NM_NODE are the node's name; $KUBECONFIG \
        is the file of --kubeconfig. The command gets no terminal. If it fails or is interrupted, `roll resume` runs it \
        again"
    )]
    #[arg(long, value_name = "COMMAND", value_parser = parse_command, conflicts_with = "job", help_heading = "Action")]
    pub(super) run: Option<String>,

    // A doc comment would have to put backticks around the variable.
    #[arg(
        help = "Run this Job on each drained node. {} in its command and arguments, and $NM_NODE, are the node's name"
    )]
    #[arg(long, value_name = "FILE", help_heading = "Action")]
    pub(super) job: Option<PathBuf>,

    #[command(flatten)]
    pub(super) around: AroundArgs,

    /// Ask after each drain whether to continue with the node. This needs a terminal
    #[arg(long, help_heading = "Action")]
    pub(super) confirm: bool,

    /// Wait until each node has rebooted: until its bootID has changed. The command may then exit with code 255,
    /// which ssh returns when it loses its connection, and the Job may fail, because the reboot terminates its pod
    #[arg(long, help_heading = "Action")]
    pub(super) expect_reboot: bool,

    #[command(flatten)]
    pub(super) needs: NeedFlags,

    /// How many nodes may be under way at once: a number, or a percentage of the nodes. The default is 1, or with
    /// --waves the whole wave
    #[arg(long, value_name = "N|N%", help_heading = "Order and pace")]
    pub(super) max_unavailable: Option<MaxUnavailable>,

    /// Sizes of the waves, such as 1,3,10%; the last size repeats. Without this flag, each topology zone is a wave. A
    /// wave contains nodes of one zone only, and is done before the next one starts. Control-plane nodes are last, one
    /// at a time
    #[arg(long, value_name = "SIZES", help_heading = "Order and pace")]
    pub(super) waves: Option<WaveSizes>,

    /// Start nodes only in this window, such as 'Sat,Sun 22:00-04:00 Europe/Berlin', and only if the remaining time is
    /// at least that of the slowest node so far. May be repeated
    #[arg(long, value_name = "WINDOW", help_heading = "Order and pace")]
    pub(super) window: Vec<Window>,

    /// Wait this long after a node has returned to service and is healthy, before the next one starts
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse, help_heading = "Order and pace")]
    pub(super) soak: Duration,

    /// Minimum time for which a node must be Ready before it returns to service
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse, help_heading = "Limits", hide_short_help = true)]
    pub(super) min_ready: Duration,

    /// Halt the roll if a command or a Job takes longer
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = duration::parse, help_heading = "Limits", hide_short_help = true)]
    pub(super) action_timeout: Duration,

    /// Halt the roll if a step exceeds this time: starting the drain (a Queued node waits without a limit), becoming Ready
    /// after the command or Job (with --expect-reboot, after the reboot), or returning to service
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = duration::parse, help_heading = "Limits", hide_short_help = true)]
    pub(super) return_timeout: Duration,

    /// Halt the roll if a node, or a workload affected by its drain, is not healthy within this time
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse, help_heading = "Limits", hide_short_help = true)]
    pub(super) recovery_timeout: Duration,

    /// Halt the roll if a pod blocks a drain for longer; the default is never
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, help_heading = "Limits", hide_short_help = true)]
    pub(super) halt_on_blocked: Option<Duration>,

    /// Let a Job in the cluster run the roll, so that it goes on without this computer. `kubectl nm install --grant roll`
    /// sets this up. --run is not possible then
    #[arg(long, help_heading = "In the cluster")]
    pub(super) in_cluster: bool,

    /// With --in-cluster, the image that contains /kubectl-nm; the default is the image of nm-reconciler
    #[arg(
        long,
        value_name = "IMAGE",
        requires = "in_cluster",
        help_heading = "In the cluster",
        hide_short_help = true
    )]
    pub(super) runner_image: Option<String>,

    /// Print the waves and what each drain would do, and change nothing
    #[arg(long)]
    pub(super) dry_run: bool,

    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    pub(super) yes: bool,

    /// Do not check before the start what the drains would harm
    #[arg(long, conflicts_with = "dry_run", hide_short_help = true)]
    pub(super) no_plan: bool,

    #[command(flatten)]
    pub(super) output: OutputArgs,

    // Last, because arguments after it would be under its help heading.
    #[command(flatten)]
    pub(super) request: StartRequest,
}

/// What is done before the drain of a node, and before it returns. The flags are the same when a roll is resumed.
#[derive(Args, Debug, Default)]
pub(super) struct AroundArgs {
    /// Run this command for each cordoned node before its first eviction, in the same way as the command of --run
    #[arg(long, value_name = "COMMAND", value_parser = parse_command, conflicts_with = "before_job", help_heading = "Action", hide_short_help = true)]
    pub(super) before: Option<String>,

    /// Run this Job on each node before its first eviction, when it is cordoned
    #[arg(long, value_name = "FILE", help_heading = "Action", hide_short_help = true)]
    pub(super) before_job: Option<PathBuf>,

    /// Run this command for each Ready node before it returns to service, in the same way as the command of --run
    #[arg(long, value_name = "COMMAND", value_parser = parse_command, conflicts_with = "after_job", help_heading = "Action", hide_short_help = true)]
    pub(super) after: Option<String>,

    /// Run this Job on each node before it returns to service, when it is Ready
    #[arg(long, value_name = "FILE", help_heading = "Action", hide_short_help = true)]
    pub(super) after_job: Option<PathBuf>,
}

impl AroundArgs {
    /// The flag as `resume` has it, where it only confirms; other flags as they are.
    fn confirming(arg: Arg) -> Arg {
        let help = match arg.get_id().as_str() {
            "before" => "Confirm the command of --before, by repeating it",
            "before_job" => "Confirm the Job of --before-job, by naming its file again",
            "after" => "Confirm the command of --after, by repeating it",
            "after_job" => "Confirm the Job of --after-job, by naming its file again",
            _ => return arg,
        };
        arg.help(help).help_heading(None::<&str>)
    }
}

/// What the flags say is done with each node.
pub(super) struct GivenActions {
    pub(super) before: Option<NodeAction>,
    pub(super) action: Option<NodeAction>,
    pub(super) after: Option<NodeAction>,
}

impl GivenActions {
    pub(super) fn all(&self) -> impl Iterator<Item = &NodeAction> {
        [&self.before, &self.action, &self.after].into_iter().flatten()
    }

    /// Reads the files of the Jobs.
    pub(super) fn read(
        around: &AroundArgs,
        run: Option<&String>,
        job: Option<&PathBuf>,
        namespace: Option<&str>,
    ) -> Result<Self, RollError> {
        let read = |command: Option<&String>, file: Option<&PathBuf>| {
            let job = file.map(|file| job::read(file, namespace)).transpose()?;
            Ok::<_, RollError>(command.cloned().map(NodeAction::Run).or(job.map(NodeAction::Job)))
        };
        Ok(Self {
            before: read(around.before.as_ref(), around.before_job.as_ref())?,
            action: read(run, job)?,
            after: read(around.after.as_ref(), around.after_job.as_ref())?,
        })
    }
}

#[derive(Args, Debug)]
pub(super) struct OutputArgs {
    /// Output format while the roll runs; the default is the dashboard on a terminal, otherwise lines
    #[arg(long, short = 'o', value_name = "FORMAT")]
    pub(super) output: Option<RollFormat>,

    #[command(flatten)]
    pub(super) appearance: AppearanceFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum RollFormat {
    /// One line of text per change
    Lines,
    /// One JSON object per change
    Json,
}

impl OutputArgs {
    /// The format of lines; none for the dashboard.
    pub(super) fn lines(&self, out: &Output) -> Option<LineFormat> {
        match self.output {
            Some(RollFormat::Json) => Some(LineFormat::Json),
            None if out.is_on_terminal() => None,
            Some(RollFormat::Lines) | None => Some(LineFormat::Text),
        }
    }
}

#[derive(Args, Debug)]
pub(super) struct StatusArgs {
    /// Name of the roll; without it, all rolls are listed
    #[arg(value_parser = parse_name)]
    pub(super) name: Option<String>,

    /// Print the rolls in this format
    #[arg(long, short = 'o', value_name = "FORMAT", default_value = "table",
        value_parser = format::formats(["table", "json", "yaml"]))]
    pub(super) output: OutputFormat,
}

#[derive(Args, Debug)]
pub(super) struct NameArgs {
    /// Name of the roll
    #[arg(value_parser = parse_name)]
    pub(super) name: String,
}

#[derive(Args, Debug)]
pub(super) struct WatchArgs {
    #[command(flatten)]
    pub(super) roll: NameArgs,

    #[command(flatten)]
    pub(super) output: OutputArgs,
}

#[derive(Args, Debug)]
pub(super) struct LogsArgs {
    #[command(flatten)]
    pub(super) roll: NameArgs,

    /// Print new lines as they arrive, until the Job has ended
    #[arg(long, short = 'f')]
    pub(super) follow: bool,
}

#[derive(Args, Debug)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    pub(super) roll: NameArgs,

    /// Digest of the settings that were confirmed
    #[arg(long, value_name = "DIGEST")]
    pub(super) settings: String,
}

#[derive(Args, Debug)]
#[command(mut_args(|arg| AroundArgs::confirming(arg)))]
pub(super) struct ResumeArgs {
    #[command(flatten)]
    pub(super) roll: NameArgs,

    /// Return this node to service as it is, and continue without it. May be repeated
    #[arg(long, value_name = "NODE", value_parser = parse_node)]
    pub(super) skip: Vec<String>,

    /// Confirm the command that the roll runs on this computer, by repeating it. Without this flag, you are asked to
    /// confirm it
    #[arg(long, value_name = "COMMAND")]
    pub(super) run: Option<String>,

    /// Confirm the Job that the roll creates, by naming its file again. Without this flag, you are asked to confirm it
    #[arg(long, value_name = "FILE", conflicts_with = "run")]
    pub(super) job: Option<PathBuf>,

    #[command(flatten)]
    pub(super) around: AroundArgs,

    /// Do not ask for confirmation: run the commands and create the Jobs that the objects of the roll contain
    #[arg(long, short = 'y')]
    pub(super) yes: bool,

    /// New time limit for each unfinished drain, measured from now, such as 30m; 0 means no limit. A drain that timed
    /// out continues
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(super) timeout: Option<Duration>,

    /// Take over the roll from the program that runs it, which then exits. Without this flag, `resume` waits for up to
    /// a minute to make sure that nobody runs the roll
    #[arg(long)]
    pub(super) take_over: bool,

    /// Run a roll that was started with --in-cluster on this computer. The Job in the cluster then ends
    #[arg(long)]
    pub(super) here: bool,

    /// The image for the Job of a roll that was started with --in-cluster. A Job with another image is replaced. The default is
    /// the Job as it is, or the image of nm-reconciler for a new one
    #[arg(long, value_name = "IMAGE", conflicts_with = "here")]
    pub(super) runner_image: Option<String>,

    #[command(flatten)]
    pub(super) output: OutputArgs,
}

impl ResumeArgs {
    /// The command that confirms the actions of the roll, and otherwise does the same.
    pub(super) fn confirmed_command(&self) -> String {
        let value = |flag: &str, value: &str| format!("{flag} {}", shell_quoted(value));
        let skips = self.skip.iter().map(|node| value("--skip", node));
        let timeout = self.timeout.map(|timeout| value("--timeout", &duration::show(timeout)));
        let image = self.runner_image.as_ref().map(|image| value("--runner-image", image));
        let set = [("--take-over", self.take_over), ("--here", self.here), ("--yes", true)];
        let set = set.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag.to_owned());
        let command = format!("kubectl nm roll resume {}", shell_quoted(&self.roll.name));
        let words = [command].into_iter().chain(skips).chain(timeout).chain(image).chain(set);
        words.collect::<Vec<_>>().join(" ")
    }
}

#[derive(Args, Debug)]
pub(super) struct AbortArgs {
    #[command(flatten)]
    pub(super) roll: NameArgs,

    /// Return all nodes to service, including those whose command or Job has started
    #[arg(long = "return")]
    pub(super) return_all: bool,

    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    pub(super) yes: bool,
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
