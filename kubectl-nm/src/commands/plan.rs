//! `kubectl nm plan`: a preview of a maintenance. Nothing is changed.

use std::cell::RefCell;
use std::collections::HashMap;

use clap::{ArgGroup, Args};
use jiff::Timestamp;
use nm_core::args::drain_flags::DrainFlags;
use nm_core::args::hook::parse_hook;
use nm_core::client::cluster::Cluster;
use nm_core::client::nodes::{NodeSelection, check_exist};
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::format::{self, OutputFormat};
use nm_core::interaction::progress;
use nm_core::plan::document::document;
use nm_core::plan::planning::Planning;
use nm_core::plan::text;
use nm_core::terminal::output::Output;
use nm_shared::Hook;
use nm_shared::drain::eviction_outcome::EvictionOutcome;

const EXAMPLES: &str = "\
Examples:
  # Show what would happen to each pod, and what would be blocked
  kubectl nm plan node-1

  # Plan all nodes of a pool together: they share budgets and the capacity of other nodes
  kubectl nm plan -l pool=blue

  # Plan with different drain settings
  kubectl nm plan node-1 --force=false --delete-emptydir-data=false

  # Plan a drain that deletes pods whose eviction is refused for ten minutes
  kubectl nm plan node-1 --delete-after 10m

  # Plan a drain that waits for a hook before its first eviction
  kubectl nm plan node-1 --hook primary=dba-team

  # Print the pods that would be blocked
  kubectl nm plan node-1 -o json | jq -r '.pods[] | select(.outcome == \"blocked\") | .name'";

const EXIT_CODES: &str = "\
Each pod is evicted as a server-side dry run, so that budgets and webhooks answer as in a real drain. Anything that you \
have no permission to read is listed as unknown. --timeout and --order \
affect only when pods are evicted. They are accepted without effect, so that the arguments of `start` work here.

Exit codes: 0 nothing would be blocked and all pods fit on other nodes without preemption, 1 unknown, \
2 usage error, 3 blocked, or not enough capacity on other nodes without preemption.";

/// Preview what a maintenance would do, pod by pod
#[derive(Args, Debug)]
#[command(before_help = EXAMPLES, after_help = EXIT_CODES)]
#[command(group = ArgGroup::new("which").args(["nodes", "selector", "filename"]).required(true).multiple(true))]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    nodes: NodeSelection,

    /// Print the plan in this format
    #[arg(long, short = 'o', value_name = "FORMAT", default_value = "table",
        value_parser = format::formats(["table", "json", "yaml"]))]
    output: OutputFormat,

    /// A hook that the maintenance would have, as with `start`; can be repeated
    #[arg(long, value_name = "NAME=OWNER", value_parser = parse_hook)]
    hook: Vec<Hook>,

    // Last, because arguments after them would be under their help heading.
    #[command(flatten)]
    drain: DrainFlags,

    #[command(flatten)]
    _started: StartFlags,
}

/// The arguments of `start` that a plan does not depend on.
#[derive(Args, Debug)]
#[command(next_help_heading = "Accepted without effect, so that the arguments of start work here")]
#[expect(clippy::struct_excessive_bools, reason = "one for each flag")]
struct StartFlags {
    /// The reason for the maintenance
    #[arg(long, short = 'r', hide_short_help = true)]
    reason: Option<String>,

    /// Skip the confirmation
    #[arg(long, short = 'y', hide_short_help = true)]
    yes: bool,

    /// Start without a plan
    #[arg(long, hide_short_help = true)]
    no_plan: bool,

    /// Start the maintenance only when it is resumed
    #[arg(long, hide_short_help = true)]
    suspend: bool,

    /// Wait until all nodes are drained
    #[arg(long, hide_short_help = true)]
    wait: bool,

    /// Watch the maintenances
    #[arg(long, hide_short_help = true)]
    watch: bool,

    /// A plan never changes anything
    #[arg(long, value_name = "HOW", hide_short_help = true, default_missing_value = "client", num_args = 0..=1, value_parser = ["none", "client", "server"])]
    dry_run: Option<String>,
}

pub(crate) async fn run(args: PlanArgs, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let message = || format!("asking {} about nodes and pods", cluster.server());
    let read = async {
        let nodes = args.nodes.resolve(cluster).await?;
        if !args.nodes.are_known() {
            check_exist(cluster, &nodes).await?;
        }
        Planning::read(nodes, args.drain.spec(), cluster, Timestamp::now()).await
    };
    let planning = progress::during(out, message, read).await?;
    let report = planning.report(&answers(&planning, cluster, out).await?).with_hooks(&args.hook);
    match &args.output {
        OutputFormat::Data(format) => format.print(&document(&report), out)?,
        OutputFormat::Table | OutputFormat::Wide => {
            for line in text::lines(&report) {
                out.data_with_commands(&line)?;
            }
        }
    }
    Ok(match report.blocks() {
        Some(true) => Exit::Failed,
        _ if report.lacks_capacity() => Exit::Failed,
        None => Exit::Error,
        Some(false) => Exit::Done,
    })
}

/// The API server's answers to the evictions of a plan, by the pods' uids.
pub(super) async fn answers(
    planning: &Planning,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<HashMap<String, EvictionOutcome>, Error> {
    let (all, answers) = (planning.to_evict().len(), RefCell::new(HashMap::new()));
    let message = || format!("{} of {all} evictions dry-run", answers.borrow().len());
    progress::during(out, message, planning.dry_run(cluster, &answers)).await?;
    Ok(answers.into_inner())
}
