//! `kubectl nm roll`: drains a pool wave by wave, acts on each node, and returns it to service.

mod args;
mod begin;
mod control;
mod definition;
mod free;
mod history;
mod in_cluster;
mod logs;
mod needed;
mod resume;
mod run;
mod serve;
pub(crate) mod status;
mod watch;

use clap::{Arg, Args, Subcommand};
use nm_core::client::cluster::Cluster;
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::terminal::output::Output;
use nm_core::terminal::text::Line;
use nm_roll::in_cluster::runner_job::JOB_TEMPLATE;

use self::args::{AbortArgs, BeginArgs, LogsArgs, NameArgs, ResumeArgs, ServeArgs, StatusArgs, WatchArgs};

/// What a first roll needs.
const FIRST_EXAMPLES: &str = "\
Examples:
  # Show the waves, and what each drain would do
  kubectl nm roll -l pool=blue --run 'ssh {} sudo reboot' --expect-reboot --dry-run

  # Reboot a pool, at most two nodes at a time
  kubectl nm roll -l pool=blue --max-unavailable 2 --run 'ssh {} sudo reboot' --expect-reboot

  # See the rolls, and continue one that halted or was interrupted
  kubectl nm roll status
  kubectl nm roll resume kernel-6.12";

const FIRST_NOTES: &str = "\
`kubectl nm roll --help` has all flags, more examples, the steps of a node and the exit codes.";

const EXAMPLES: &str = "\
Examples:
  # Show the waves, and what each drain would do
  kubectl nm roll -l pool=blue --run 'ssh {} sudo reboot' --expect-reboot --dry-run

  # Reboot a pool, zone by zone and at most two nodes at a time, and wait for two minutes after each
  kubectl nm roll -l pool=blue --max-unavailable 2 --run 'ssh {} sudo reboot' --expect-reboot \\
    --soak 2m --reason 'kernel 6.12'

  # Start with one node, then three, then 10% of the nodes at a time, at night only
  kubectl nm roll -l pool=blue --waves 1,3,10% --job upgrade.yaml \\
    --window 'Sat,Sun 22:00-04:00 Europe/Berlin'

  # Drain node by node, and continue with each when you confirm
  kubectl nm roll node-1 node-2 --confirm

  # See the rolls, and continue one that halted or was interrupted, from any computer
  kubectl nm roll status
  kubectl nm roll resume kernel-6.12 --skip node-7";

const NOTES: &str = "\
Steps of a node:
  Planned      its maintenance is suspended, and its node is in service
  Preparing    with --before or --before-job: that command or Job runs (--action-timeout)
  Draining     its pods are evicted
  Confirming   with --confirm: the roll asks whether to continue
  Acting       the command or the Job of --run or --job runs (--action-timeout)
  Rejoining    waits until the node is Ready, and has rebooted (--expect-reboot, --return-timeout)
  Checking     waits until it is Ready for --min-ready, without new pressure, and its DaemonSet
               pods are Ready (--recovery-timeout)
  Finishing    with --after or --after-job: that command or Job runs (--action-timeout)
  Returning    the node returns to service (--return-timeout)
  Recovering   waits until workloads and budgets are as healthy as before (--recovery-timeout)
  Soaking      the roll waits, and the node has to stay Ready (--soak)

If a step fails or times out, the roll halts: no further node is started, commands and Jobs that run are waited for, and what \
is under way is left as it is. `kubectl nm roll resume NAME` tries the step again: a command that failed is run again, and a \
new Job replaces one that failed. The state of a roll is in its NodeMaintenance objects. After Ctrl-C, or if `kubectl nm roll` is \
killed, `resume` continues it from any computer; a command that was under way is run again. The output of commands is kept below \
~/.local/state/kubectl-nm/roll/NAME, or $XDG_STATE_HOME.

Exit codes: 0 done, 1 error, 2 usage error or not confirmed, 3 halted or not every node done, 4 taken over or \
aborted by another user, 130 interrupted.";

const ABORT_NOTES: &str = "\
A command or a Job that has started is not interrupted. If a program runs the roll, on a computer or in the cluster, it finishes \
the node and returns it to service. If no program runs the roll, if the roll has halted, or if the command or the \
Job fails, the node stays in maintenance: `kubectl nm stop NODE` returns it to service, and `kubectl nm roll resume \
NAME` finishes it first. \
`kubectl nm roll abort NAME --return` returns all nodes to service at once.

Exit codes: 0 aborted, even if nodes are still being finished or stay in maintenance, 1 error, 2 usage error or not confirmed.";

/// The flag means more to `start`.
const DRAIN_TIMEOUT: &str = "Time limit of each drain, such as 30s or 1h30m; 0, the default, means none. When it expires, \
    the maintenance fails and the roll halts";

/// Roll a pool: drain nodes wave by wave, and run a command on each
#[derive(Args, Debug)]
#[command(before_help = FIRST_EXAMPLES, before_long_help = EXAMPLES)]
#[command(after_help = FIRST_NOTES, after_long_help = NOTES)]
#[command(mut_args(|arg| if is_rare(&arg) { arg.hide_short_help(true) } else { arg }))]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(mut_arg("timeout", |arg| arg.help(DRAIN_TIMEOUT)))]
pub(crate) struct RollArgs {
    #[command(subcommand)]
    command: Option<RollCommand>,

    #[command(flatten)]
    begin: BeginArgs,
}

/// Whether only the long help has a flag: those of the drain and of the screen.
fn is_rare(arg: &Arg) -> bool {
    ["Drain", "Dashboard"].map(Some).contains(&arg.get_help_heading())
}

#[derive(Subcommand, Debug)]
enum RollCommand {
    /// Show the rolls, or the nodes of one roll. For a roll that has ended in the cluster, show its history
    Status(StatusArgs),
    /// Watch a roll that runs on another computer or in the cluster
    Watch(WatchArgs),
    /// Continue a roll that was interrupted, paused or halted
    Resume(ResumeArgs),
    /// Pause a roll: no further node, command or Job is started, and the drains under way are paused
    Pause(NameArgs),
    /// Abort a roll: delete planned maintenances, and return nodes to service unless their command or Job has started
    #[command(after_help = ABORT_NOTES)]
    Abort(AbortArgs),
    /// Print the lines of a roll in the cluster: the logs of the pods that run it
    Logs(LogsArgs),
    /// Print a Job that runs a command on a node, as a starting point for --job FILE
    JobTemplate,
    /// Run a roll as the Job in the cluster does
    #[command(hide = true)]
    Serve(ServeArgs),
}

impl RollArgs {
    /// Whether the exit code reports a goal.
    pub(crate) fn has_goal(&self) -> bool {
        matches!(self.command, None | Some(RollCommand::Resume(_) | RollCommand::Watch(_)))
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
        Some(RollCommand::Watch(args)) => watch::run(&args, cluster, out).await,
        Some(RollCommand::Resume(args)) => Box::pin(resume::resume(args, namespace, cluster, out)).await,
        Some(RollCommand::JobTemplate) => {
            JOB_TEMPLATE.lines().try_for_each(|line| out.data(&Line::new(line)))?;
            Ok(Exit::Done)
        }
        Some(RollCommand::Logs(args)) => logs::run(&args, cluster, out).await,
        Some(RollCommand::Serve(args)) => Box::pin(serve::serve(&args, cluster, out)).await,
        Some(RollCommand::Pause(args)) => control::pause(&args.name, cluster, out).await,
        Some(RollCommand::Abort(args)) => control::abort(&args, cluster, out).await,
    }
}
