//! `kubectl nm start`: puts nodes into maintenance.
//!
//! All nodes are checked first, so that a typo in the last of ten names starts nothing. Then all objects are created
//! concurrently, and a refusal for one node does not affect the others.

use std::collections::BTreeMap;

use clap::{ArgGroup, Args, ValueEnum};
use jiff::Timestamp;
use kube::ResourceExt;
use nm_core::args::hook::parse_hook;
use nm_core::client::cluster::Cluster;
use nm_core::client::nodes::{NodeSelection, check_exist, unchecked};
use nm_core::error::exit::Exit;
use nm_core::error::{Change, Error};
use nm_core::format::{self, OutputFormat};
use nm_core::interaction::confirm::Question;
use nm_core::interaction::progress;
use nm_core::maintenance::roll::{RollRunners, RollStanding};
use nm_core::maintenance::start::{self, Existing, StartRequest, Started, Together, check_definition};
use nm_core::maintenance::{
    self, State, but_unselected, hooks_before_eviction, hooks_removed, name_unless_node, node, roll_name, uid,
};
use nm_core::plan::cost::{self, DrainCost};
use nm_core::terminal::command_context::shell_quoted;
use nm_core::terminal::output::Output;
use nm_core::terminal::text::{Line, Style};
use nm_core::watch::goal_tracker::{ExitCondition, Goal, GoalTracker, WaitTarget};
use nm_shared::{Hook, NodeMaintenance};

use crate::commands::status;
use crate::commands::watch;

const EXAMPLES: &str = "\
Examples:
  # Put a node into maintenance and return at once
  kubectl nm start node-1 --reason 'new kernel'

  # Drain two nodes at the same time, and fail after ten minutes
  kubectl nm start node-1 node-2 --yes --wait --timeout 10m

  # Start maintenance on every node of a zone, after a dry run
  kubectl nm start -l topology.kubernetes.io/zone=a --dry-run=server
  kubectl nm start -l topology.kubernetes.io/zone=a --watch

  # Evict only the pods that kubectl drain evicts by default
  kubectl nm start node-1 --force=false --delete-emptydir-data=false

  # Plan the maintenance of a pool, and start it node by node
  kubectl nm start -l pool=blue --suspend
  kubectl nm resume node-1

  # Write the objects as YAML, to keep them in git
  kubectl nm start -f nodes.txt --dry-run=client -o yaml";

const EXIT_CODES: &str = "\
Exit codes: 0 all nodes are in maintenance, 1 some are not, 2 usage error, or several nodes and not \
confirmed. With --wait: 0 drained, 3 failed, 4 stopped or replaced before the node was drained, \
124 timed out, 130 interrupted. Blocked pods are reported and do not end the wait.";

/// Put nodes into maintenance: cordon them and evict their pods
#[derive(Args, Debug)]
#[command(before_help = EXAMPLES, after_help = EXIT_CODES)]
#[command(group = ArgGroup::new("which").args(["nodes", "selector", "filename"]).required(true).multiple(true))]
#[expect(clippy::struct_excessive_bools, reason = "independent flags")]
pub(crate) struct StartArgs {
    #[command(flatten)]
    nodes: NodeSelection,

    /// Print what would be created and what the drain would harm, and create nothing; with server, the API server validates
    /// the objects too
    #[arg(long, value_name = "HOW", default_value = "none", default_missing_value = "client", num_args = 0..=1)]
    dry_run: DryRun,

    /// Do not ask for confirmation if there are several nodes, or if the drain would harm anything: print the report,
    /// and start
    #[arg(long, short = 'y')]
    yes: bool,

    /// Start without checking what the drain would harm
    #[arg(long)]
    no_plan: bool,

    /// Plan the maintenance for later: the scheduler prefers other nodes, and `kubectl nm resume` starts it
    #[arg(long, conflicts_with = "wait")]
    suspend: bool,

    /// Evict no pod before this hook is removed, by whoever its owner is; can be repeated. It is an annotation of the
    /// maintenance: `kubectl annotate nm NODE pre-drain.hook.kubectl-nm.dev/NAME-` removes it
    #[arg(long, value_name = "NAME=OWNER", value_parser = parse_hook)]
    hook: Vec<Hook>,

    /// Wait until all nodes are drained; with -v, report every pod
    #[arg(long)]
    wait: bool,

    /// Watch the maintenances afterwards, as `kubectl nm watch` does; with --wait, until all nodes are drained
    #[arg(long, conflicts_with = "output")]
    watch: bool,

    /// Print the objects in this format
    #[arg(long, short = 'o', value_name = "FORMAT",
        value_parser = format::formats(["table", "wide", "json", "yaml", "name"]))]
    output: Option<OutputFormat>,

    // Last, because arguments after it would be under its help heading.
    #[command(flatten)]
    request: StartRequest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DryRun {
    /// No dry run: the objects are created
    None,
    /// The objects are not sent to the API server
    Client,
    /// The API server validates the objects and does not store them
    Server,
}

pub(crate) async fn run(args: StartArgs, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let message = || format!("asking {} about nodes and maintenances", cluster.server());
    let (nodes, hidden, rolls) = progress::during(out, message, check(&args, cluster)).await?;
    for node in hidden {
        out.message(&unchecked(&node));
    }
    if let Some(warning) = args.request.drain.spec().and_then(|drain| drain.warning()) {
        out.message(&Line::new(format!("warning: {warning}")));
    }
    let new: Vec<String> = new_nodes(&nodes).cloned().collect();
    confirm(&args, &new, cluster, out).await?;
    if let Some(first) = new.first().filter(|_| args.dry_run == DryRun::None) {
        match check_definition(cluster, &wanted(&args, first)).await {
            Err(error) if error.status().is_some() => {
                let exit = error.exit();
                Error::print_all(&[(first.clone(), error)], out);
                return Ok(exit);
            }
            checked => checked?,
        }
    }

    let count = nodes.len();
    let together = Together::of(if args.suspend { 0 } else { new.len() }, Timestamp::now());
    let start = async |(node, existing): (String, Existing)| {
        let started = start_node(cluster, &node, existing, &args, &together).await;
        let started = started.and_then(|started| check_existing(started, &args, &rolls, cluster));
        (node, started)
    };
    let (mut started, mut failures) = (Vec::new(), Vec::new());
    for (node, result) in progress::for_each(out, nodes.into_iter(), "nodes", start).await {
        match result {
            Ok(one) => {
                if args.output.is_none() {
                    // A wait and a watch report the state, and a wait what it waits for.
                    let is_silent = args.wait || args.dry_run != DryRun::None;
                    let existing = Some(&one).filter(|one| !one.created && !is_silent && !args.watch);
                    let state = existing.and_then(|one| standing_still(&one.object));
                    let line = line(&one, state, &node, &args, &rolls);
                    out.data(&line)?;
                    if let Some(delay) = delayed_by_hooks(&one.object, &node).filter(|_| !is_silent) {
                        out.message(&delay);
                    }
                    if let Some(State::Failed | State::Blocked) = state {
                        out.hint(&format!(
                            "`kubectl nm explain {}` shows why, and what continues the drain",
                            shell_quoted(&node)
                        ));
                    }
                }
                started.push(one);
            }
            Err(error) => failures.push((node, error)),
        }
    }
    Error::print_all(&failures, out);
    if let Some(format) = args.output {
        let objects: Vec<NodeMaintenance> = started.iter().map(|started| started.object.clone()).collect();
        status::print(&objects, count == 1, format, out)?;
        // Stdout is for the objects alone.
        out.end_data();
    }
    let exit = if args.dry_run == DryRun::None {
        Box::pin(watch(&args, &started, cluster, out)).await?
    } else {
        Exit::Done
    };
    Ok(if !failures.is_empty() && exit == Exit::Done { Exit::Error } else { exit })
}

/// Reports what the drains would harm, and asks whether they are to begin if that is needed. A dry run only reports.
async fn confirm(args: &StartArgs, new: &[String], cluster: &Cluster, out: &mut Output) -> Result<(), Error> {
    let is_confirmed = args.yes || args.dry_run != DryRun::None;
    let what = match new.len() {
        _ if args.suspend => "Plan the maintenance of {}",
        1 => "Put {} into maintenance and evict its pods",
        _ => "Put {} into maintenance and evict their pods",
    };
    let is_refused = new.len() > 1 && !is_confirmed && !out.can_ask();
    let cost = if is_refused { DrainCost::default() } else { cost_of(args, new, cluster).await };
    let (harms, slow, unknown) = (cost.harm_lines(), cost.slow_lines(), cost.unknown_line());
    let question = Question {
        what,
        cluster: cluster.context(),
        nodes: new,
        reason: args.request.reason(),
        harms: &harms,
        slow: &slow,
        unknown: unknown.as_ref(),
        is_late: cost.is_late(),
        ..Question::default()
    };
    question.ask_if_needed(is_confirmed, out)
}

/// What the drains would cost, unless none begins.
async fn cost_of(args: &StartArgs, nodes: &[String], cluster: &Cluster) -> DrainCost {
    if args.no_plan || args.suspend || nodes.is_empty() {
        return DrainCost::default();
    }
    let drain = args.request.drain.spec();
    Box::pin(cost::assess(nodes.to_vec(), drain, cluster, Timestamp::now(), cost::TIME_LIMIT)).await
}

/// Checks that every node exists and can be put into maintenance. Returns what exists for each, the nodes that the user may not
/// read, and the rolls.
async fn check(
    args: &StartArgs,
    cluster: &Cluster,
) -> Result<(Vec<(String, Existing)>, Vec<String>, RollRunners), Error> {
    let nodes = args.nodes.resolve(cluster).await?;
    let all = cluster.maintenances().await?;
    let rolls = RollRunners::of(&all);
    let nodes: Vec<(String, Existing)> =
        nodes.into_iter().map(|node| (node.clone(), Existing::find(&node, &all))).collect();
    let hidden =
        if args.nodes.are_known() { Vec::new() } else { check_exist(cluster, new_nodes(&nodes)).await? };
    let now = Timestamp::now();
    match nodes.iter().find_map(|(node, existing)| existing.refusal(node, &rolls, now)) {
        Some(refusal) => Err(refusal),
        None => Ok((nodes, hidden, rolls)),
    }
}

fn new_nodes(nodes: &[(String, Existing)]) -> impl Iterator<Item = &String> {
    nodes.iter().filter(|(_, existing)| *existing == Existing::Nothing).map(|(node, _)| node)
}

async fn watch(
    args: &StartArgs,
    started: &[Started],
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    if started.is_empty() {
        return Ok(Exit::Done);
    }
    let timeout = args.request.drain.timeout().filter(|_| args.wait);
    let tracker = tracker(args, started, timeout.is_some());
    if args.watch {
        return watch::watch_with_defaults(tracker, timeout, cluster, out).await;
    }
    if !args.wait {
        return Ok(Exit::Done);
    }
    watch::wait(tracker, timeout, BTreeMap::new(), cluster, out).await
}

/// Only new maintenances have the timeout of the wait; existing ones have their own, if any.
fn tracker(args: &StartArgs, started: &[Started], has_timeout: bool) -> GoalTracker {
    if !args.wait {
        let nodes = started.iter().map(|started| node(&started.object).to_owned()).collect();
        return GoalTracker::new(nodes, ExitCondition::Never);
    }
    let same_timeout = started.iter().filter(|started| has_timeout && started.created);
    let targets = started.iter().map(|started| WaitTarget::from(&started.object)).collect();
    GoalTracker::for_targets(Goal::Drained, targets)
        .with_same_timeout(same_timeout.map(|started| uid(&started.object)).collect())
}

/// The state of a maintenance whose drain is not under way, or does not proceed.
fn standing_still(object: &NodeMaintenance) -> Option<State> {
    let state = State::of(object);
    matches!(state, State::Failed | State::Blocked | State::Paused | State::Drained).then_some(state)
}

fn line(started: &Started, state: Option<State>, node: &str, args: &StartArgs, rolls: &RollRunners) -> Line {
    let line = Line::new(format!("node/{node} "));
    if !started.created {
        let line = line.and("is already in maintenance").and(name_unless_node(&started.object));
        let (line, comma) = match state {
            Some(state) => (line.and(": ").with(state.style(), state.word()), ","),
            None => (line, ""),
        };
        let line = match roll_name(&started.object) {
            Some(roll) => line.and(format!("{comma} as part of roll {roll}, {}", returned_by(roll, rolls))),
            None => line,
        };
        return line.and(but_unselected(maintenance::status(&started.object)));
    }
    let words = if args.suspend { "maintenance planned" } else { "maintenance started" };
    let line = line.with(Style::Good, words);
    match args.dry_run {
        DryRun::None => line,
        DryRun::Client => line.and(" (dry run)"),
        DryRun::Server => line.and(" (server dry run)"),
    }
}

/// Whether its roll may return a node to service.
fn returned_by(roll: &str, rolls: &RollRunners) -> &'static str {
    match rolls.standing(roll, Timestamp::now()) {
        Some(RollStanding::Paused) => "which is paused, and may return it to service once it continues",
        Some(RollStanding::Halted) => "which has halted, and may return it to service once it continues",
        Some(RollStanding::Abandoned) => {
            "which nobody runs now, and which may return it to service once it continues"
        }
        Some(RollStanding::Over) => "which was aborted, and does not return it to service",
        Some(RollStanding::Running(_) | RollStanding::Ending(_)) | None => {
            "which may return it to service at any time"
        }
    }
}

/// The hooks that delay the first eviction.
fn delayed_by_hooks(object: &NodeMaintenance, node: &str) -> Option<Line> {
    let removed = hooks_removed(&hooks_before_eviction(object))?;
    Some(Line::new(format!("node/{node}: no pod is evicted until {removed}")))
}

fn wanted(args: &StartArgs, node: &str) -> NodeMaintenance {
    let mut wanted = NodeMaintenance::new(node, args.request.spec(node));
    wanted.spec.suspend = args.suspend;
    wanted.annotations_mut().extend(args.hook.iter().map(|hook| (hook.annotation(), hook.owner.clone())));
    wanted
}

async fn start_node(
    cluster: &Cluster,
    node: &str,
    existing: Existing,
    args: &StartArgs,
    together: &Together,
) -> Result<Started, Error> {
    if let Existing::Maintenance(object) = existing {
        return Ok(Started { object: *object, created: false });
    }
    let mut wanted = wanted(args, node);
    together.announce(&mut wanted);
    if args.dry_run == DryRun::Client {
        return Ok(Started { object: wanted, created: true });
    }
    start::start(cluster, &wanted, args.dry_run == DryRun::Server).await
}

/// The maintenance, if it is new or has the requested spec.
fn check_existing(
    started: Started,
    args: &StartArgs,
    rolls: &RollRunners,
    cluster: &Cluster,
) -> Result<Started, Error> {
    let Started { object, created: false } = started else { return Ok(started) };
    check_spec(&object, args, cluster).map_err(|differs| match roll_name(&object) {
        // Its roll resumes the maintenance when its turn comes, and acts on the node once it is drained.
        Some(roll) => rolls.refusal(node(&object), roll, Timestamp::now()),
        None => differs,
    })?;
    let object = match args.dry_run {
        // Without the metadata and the status that the cluster added.
        DryRun::Client => NodeMaintenance::new(&object.name_any(), object.spec),
        DryRun::None | DryRun::Server => object,
    };
    Ok(Started { object, created: false })
}

/// That the drain has passed the time at which it would wait for a new hook; none if it has not.
fn late_hook(object: &NodeMaintenance) -> Vec<String> {
    let is_late = maintenance::status(object).has_begun() && maintenance::hold(object).is_none();
    let late = || String::from("a drain that has started evictions does not wait for a new hook");
    is_late.then(late).into_iter().collect()
}

/// Whether a maintenance has the requested spec. With `--wait`, the timeout is that of the wait and not compared.
fn check_spec(object: &NodeMaintenance, args: &StartArgs, cluster: &Cluster) -> Result<(), Error> {
    let request = if args.wait { args.request.without_timeout() } else { args.request.clone() };
    request.check(object, cluster.kubectl())?;
    let annotations = object.annotations();
    if let Some(missing) = args.hook.iter().find(|hook| !annotations.contains_key(&hook.annotation())) {
        let name = object.name_any();
        let (name, owner) = (shell_quoted(&name), shell_quoted(&missing.owner));
        return Err(Error::Differs {
            node: node(object).to_owned(),
            differences: format!("it has no hook {}", missing.name),
            remedy: format!("{} annotate nm {name} {}={owner}", cluster.kubectl(), missing.annotation()),
            change: Change::Settings,
            effects: late_hook(object),
        });
    }
    if object.spec.suspend != args.suspend {
        let (differences, command) =
            if args.suspend { ("it is not suspended", "pause") } else { ("it is suspended", "resume") };
        return Err(Error::Differs {
            node: node(object).to_owned(),
            differences: differences.to_owned(),
            remedy: format!("kubectl nm {command} {}{}", node(object), cluster.flags()),
            change: Change::Settings,
            effects: Vec::new(),
        });
    }
    Ok(())
}

#[cfg(test)]
#[path = "start_tests.rs"]
mod tests;
