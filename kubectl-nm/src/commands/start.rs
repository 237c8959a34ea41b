//! `kubectl nm start`: puts nodes into maintenance.
//!
//! First everything is looked at, so that a typo in the last of ten names stops nothing halfway; then all objects are
//! created at once, and what the server refuses for one node keeps none of the others.

use std::cell::Cell;

use clap::{ArgGroup, Args, ValueEnum};
use futures::stream::{self, StreamExt};
use kube::ResourceExt;
use kube::core::Status;
use nm_shared::NodeMaintenance;

use crate::client::cluster::{Cluster, MAX_CONCURRENT_REQUESTS};
use crate::client::nodes::{NodeSelection, check_exist, unchecked};
use crate::client::watch_stream::news;
use crate::commands::status;
use crate::commands::watch;
use crate::error::Error;
use crate::error::exit::Exit;
use crate::format::{self, OutputFormat};
use crate::interaction::confirm::confirm;
use crate::interaction::progress;
use crate::maintenance::request::{Request, Step};
use crate::maintenance::{node, uid};
use crate::terminal::output::Output;
use crate::terminal::signals::interrupted;
use crate::terminal::text::{Line, Style};
use crate::watch::follow::follow;
use crate::watch::goal_tracker::{End, Outlook};
use crate::watch::wait::{Goal, Target};
use crate::watch::wait_reporter::{Vigil, Voice};

const EXAMPLES: &str = "\
Examples:
  # Put a node into maintenance and return at once
  kubectl nm start node-1 --reason 'new kernel'

  # Drain two nodes at the same time, and give up after ten minutes
  kubectl nm start node-1 node-2 --yes --wait --timeout 10m

  # Every node of a zone, after a look at what would be created
  kubectl nm start -l topology.kubernetes.io/zone=a --dry-run server
  kubectl nm start -l topology.kubernetes.io/zone=a --watch

  # As careful as kubectl drain is without its flags
  kubectl nm start node-1 --force=false --delete-emptydir-data=false

  # The objects, to keep them in git
  kubectl nm start -f nodes.txt --dry-run client -o yaml

Exit codes: 0 in maintenance, 1 some are not, 2 usage, or nobody confirmed more than one node.
With --wait: 0 drained, 3 failed, 4 stopped or replaced meanwhile, 124 timed out, 130 interrupted.
Blocked pods are told as they come and do not end the wait.";

/// Put nodes into maintenance: cordon them and move their pods away
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
#[command(group = ArgGroup::new("which").args(["nodes", "selector", "filename"]).required(true).multiple(true))]
pub(crate) struct StartArgs {
    #[command(flatten)]
    nodes: NodeSelection,

    /// Change nothing: only say what would be created, or have the server check it as well
    #[arg(long, value_name = "HOW", default_value = "none")]
    dry_run: DryRun,

    /// Do not ask before more than one node is put into maintenance
    #[arg(long, short = 'y')]
    yes: bool,

    /// Wait until all nodes are drained
    #[arg(long)]
    wait: bool,

    /// Follow them then, on a terminal in the dashboard; with --wait until all are drained
    #[arg(long, conflicts_with = "output")]
    watch: bool,

    /// Print the maintenances in this format: table, wide, json, yaml or name
    #[arg(long, short = 'o', value_name = "FORMAT", value_parser = format::parse,
        add = format::offered(format::parse))]
    output: Option<OutputFormat>,

    // Last, because what follows it would stand under its heading.
    #[command(flatten)]
    request: Request,
}

/// How much of a change is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DryRun {
    /// All of it
    None,
    /// Nothing is sent
    Client,
    /// The server checks it and keeps nothing
    Server,
}

/// Runs the command.
///
/// # Errors
///
/// When a node does not exist or cannot be put into maintenance, or the server refuses to be asked.
pub(crate) async fn run(args: StartArgs, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let looking = || format!("asking {} about nodes and maintenances", cluster.server());
    let look = async {
        let nodes = args.nodes.resolve(cluster).await?;
        let existing = cluster.maintenances().await?;
        let steps: Vec<(String, Step)> =
            nodes.into_iter().map(|node| (node.clone(), Step::towards(&node, &existing))).collect();
        let new = steps.iter().filter(|(_, step)| *step == Step::Create).map(|(node, _)| node);
        let hidden = if args.nodes.are_known() { Vec::new() } else { check_exist(cluster, new).await? };
        match steps.iter().find_map(|(node, step)| step.refusal(node)) {
            Some(refusal) => Err(refusal),
            None => Ok((steps, hidden)),
        }
    };
    let (steps, hidden) = progress::during(out, looking, look).await?;
    for node in hidden {
        out.talk(&unchecked(&node));
    }
    if let Some(warning) = args.request.drain.spec().and_then(|drain| drain.warning()) {
        out.talk(&Line::new(format!("warning: {warning}")));
    }
    if args.dry_run == DryRun::None {
        let new = steps.iter().filter(|(_, step)| *step == Step::Create).map(|(node, _)| node.clone());
        confirm("Put {} into maintenance and move their pods away", &new.collect::<Vec<_>>(), args.yes, out)?;
    }

    let (all, done) = (steps.len(), Cell::new(0));
    let beginning = || format!("{} of {all} nodes", done.get());
    let begin_all = stream::iter(steps)
        .map(async |(node, step)| {
            let begun = begin(cluster, &node, step, &args).await;
            done.set(done.get() + 1);
            (node, begun)
        })
        .buffered(MAX_CONCURRENT_REQUESTS)
        .collect::<Vec<(String, Result<Begun, Error>)>>();
    let (mut begun, mut failures) = (Vec::new(), Vec::new());
    for (node, result) in progress::during(out, beginning, begin_all).await {
        match result {
            Ok(this) => {
                if args.output.is_none() {
                    out.data(&this.line(&node, args.dry_run))?;
                }
                begun.push(this);
            }
            Err(error) => failures.push((node, error)),
        }
    }
    Error::print_all(&failures, out);
    if let Some(format) = args.output {
        let objects: Vec<NodeMaintenance> = begun.iter().map(|this| this.object.clone()).collect();
        status::print(&objects, all == 1, format, out)?;
        // What was asked for is printed; the rest is talk.
        out.end_data();
    }
    let reached =
        if args.dry_run == DryRun::None { attend(&args, &begun, cluster, out).await? } else { Exit::Done };
    Ok(if !failures.is_empty() && reached == Exit::Done { Exit::Error } else { reached })
}

/// Waits for what has begun, or shows it, as far as that is asked for.
async fn attend(
    args: &StartArgs,
    begun: &[Begun],
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    if begun.is_empty() {
        return Ok(Exit::Done);
    }
    let timeout = args.request.drain.timeout().filter(|_| args.wait);
    let outlook = outlook(args, begun, timeout.is_some());
    if args.watch {
        return watch::show_these(outlook, timeout, cluster, out).await;
    }
    if !args.wait {
        return Ok(Exit::Done);
    }
    let mut vigil = Vigil::of(out, Voice::Progress, outlook, cluster.flags()).with_live_lines();
    follow(news(cluster), timeout, interrupted(), |moment| vigil.react(moment)).await
}

/// What is waited for, or only watched. What is new has the time limit of the wait; what was there has its own, if any.
fn outlook(args: &StartArgs, begun: &[Begun], is_limited: bool) -> Outlook {
    if !args.wait {
        let nodes = begun.iter().map(|this| node(&this.object).to_owned()).collect();
        return Outlook::over(nodes, End::Never);
    }
    let limited = begun.iter().filter(|this| is_limited && this.created);
    let targets = begun.iter().map(|this| Target::from(&this.object)).collect();
    Outlook::for_targets(Goal::Drained, targets).limiting(limited.map(|this| uid(&this.object)).collect())
}

/// A node that is in maintenance, or would be.
#[derive(Debug, PartialEq)]
struct Begun {
    object: NodeMaintenance,
    created: bool,
}

impl Begun {
    fn line(&self, node: &str, dry_run: DryRun) -> Line {
        let line = Line::new(format!("node/{node} "));
        let name = self.object.name_any();
        let line = match self.created {
            true => line.with(Style::Good, "maintenance started"),
            false if name == node => line.and("is in maintenance already"),
            false => line.and(format!("is in maintenance already, by the NodeMaintenance {name}")),
        };
        match dry_run {
            DryRun::Client if self.created => line.and(" (dry run)"),
            DryRun::Server if self.created => line.and(" (server dry run)"),
            _ => line,
        }
    }
}

async fn begin(cluster: &Cluster, node: &str, step: Step, args: &StartArgs) -> Result<Begun, Error> {
    if let Step::Present(object) = step {
        return present(*object, args, cluster);
    }
    let wanted = NodeMaintenance::new(node, args.request.spec(node));
    if args.dry_run == DryRun::Client {
        return Ok(Begun { object: wanted, created: true });
    }
    let refused = match cluster.create(&wanted, args.dry_run == DryRun::Server).await {
        Ok(object) => return Ok(Begun { object, created: true }),
        Err(error) => error,
    };
    if !refused.status().is_some_and(Status::is_already_exists) {
        return Err(refused);
    }
    // Somebody was faster; what they made may do.
    let theirs: Vec<NodeMaintenance> = cluster.maintenance(node).await?.into_iter().collect();
    match Step::towards(node, &theirs) {
        Step::Present(object) => present(*object, args, cluster),
        step => Err(step.refusal(node).unwrap_or(refused)),
    }
}

/// A maintenance that there is already, if it is as asked for. How long is waited for it is not how long its drain may take.
fn present(object: NodeMaintenance, args: &StartArgs, cluster: &Cluster) -> Result<Begun, Error> {
    let request = if args.wait { args.request.without_timeout() } else { args.request.clone() };
    request.check(&object, cluster.kubectl())?;
    let object = match args.dry_run {
        // What is kept elsewhere is what somebody asked for, and not what came of it.
        DryRun::Client => NodeMaintenance::new(&object.name_any(), object.spec),
        DryRun::None | DryRun::Server => object,
    };
    Ok(Begun { object, created: false })
}

#[cfg(test)]
#[path = "start_tests.rs"]
mod tests;
