//! `kubectl nm stop`: ends the maintenance of nodes, whatever the names of the objects are.

use std::time::Duration;

use clap::{ArgGroup, Args};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use nm_core::args::duration;
use nm_core::args::names::distinct;
use nm_core::client::all_groups;
use nm_core::client::cluster::{Cluster, Deletion};
use nm_core::client::nodes::{NodeSelection, not_in_maintenance, read_existing, unchecked};
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::interaction::confirm::Question;
use nm_core::interaction::progress;
use nm_core::leader::gap;
use nm_core::maintenance::ending::{NodeEnding, endings, keep_cordon};
use nm_core::maintenance::{name_unless_node, node, purpose_words, purposes, status};
use nm_core::terminal::output::Output;
use nm_core::terminal::text::{Line, Style};
use nm_core::watch::goal_tracker::{Goal, GoalTracker, WaitTarget};
use nm_roll::store;
use nm_shared::api::names::OUT_OF_SERVICE_TAINT;
use nm_shared::gate::ownership;
use nm_shared::{Group, GroupedMaintenance, NodeMaintenance};

use crate::commands::{stop_warnings, watch};

const EXAMPLES: &str = "\
Examples:
  # Return a node to service
  kubectl nm stop node-1

  # Return the nodes of a pool to service, and wait until this is done
  kubectl nm stop -l pool=blue --wait --timeout 1m

  # End the maintenance, and leave the node cordoned
  kubectl nm stop node-1 --keep-cordon --wait

  # Stop every maintenance without confirmation
  kubectl nm stop --all --yes";

const EXIT_CODES: &str = "\
Exit codes: 0 stopped or not in maintenance, 1 some are not stopped, 2 usage error, or not confirmed: more than one node or, on \
a terminal, a node of a roll. With --wait: 124 timed out, 130 interrupted.";

/// Stop the maintenance of nodes and return them to service
#[derive(Args, Debug)]
#[command(before_help = EXAMPLES, after_help = EXIT_CODES)]
#[command(group = ArgGroup::new("which").args(["nodes", "selector", "filename", "all"]).required(true).multiple(true))]
#[expect(clippy::struct_excessive_bools, reason = "one for each flag")]
pub(crate) struct StopArgs {
    #[command(flatten)]
    nodes: NodeSelection,

    /// All nodes in maintenance
    #[arg(long, conflicts_with_all = ["nodes", "selector", "filename"])]
    all: bool,

    /// Do not ask for confirmation before more than one node returns to service, or a node leaves its roll
    #[arg(long, short = 'y')]
    yes: bool,

    /// Leave the nodes cordoned, as after `kubectl cordon`; the other taints and the label of the maintenance are removed
    #[arg(long)]
    keep_cordon: bool,

    /// Wait until the nodes are back in service and the objects are gone
    #[arg(long)]
    wait: bool,

    /// Timeout of the wait, such as 30s or 1h30m; 0 means none
    #[arg(long, value_name = "DURATION", requires = "wait", value_parser = duration::parse)]
    timeout: Option<Duration>,
}

pub(crate) async fn run(args: StopArgs, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let message = || format!("asking {} about nodes and maintenances", cluster.server());
    let Found { maintenances, existing, idle, idle_nodes, hidden, warnings } =
        progress::during(out, message, Box::pin(find(&args, cluster))).await?;
    for warning in &warnings {
        out.message_with_commands(warning);
    }
    for node in &idle {
        out.data(&not_in_maintenance(node, &idle_nodes, cluster.kubectl()))?;
    }
    for node in hidden {
        out.message(&unchecked(&node));
    }
    if maintenances.is_empty() {
        if idle.is_empty() {
            out.message(&Line::new("No maintenances found."));
        }
        return Ok(Exit::Done);
    }
    let harms = stop_warnings::of_rolls(&existing, &maintenances, cluster.kubectl(), Timestamp::now());
    confirm(&args, &maintenances, &harms, cluster, out)?;

    let endings = progress::during(
        out,
        || String::from("reading the nodes"),
        endings(cluster, &maintenances, args.keep_cordon),
    )
    .await;
    keep_rolls(cluster, &maintenances, out).await;
    let stop = async |object: &GroupedMaintenance| match object.metadata.deletion_timestamp {
        // The node may be back in service already.
        Some(_) if args.keep_cordon && !ownership::keeps_cordon(object) => {
            Err(Error::AlreadyStopping(node(object).to_owned()))
        }
        Some(_) => Ok(Deletion::UnderWay),
        None => {
            if args.keep_cordon {
                keep_cordon(cluster, object).await?;
            }
            all_groups::delete(cluster, object).await
        }
    };
    let stop = async |object| (object, stop(object).await);
    let (mut targets, mut failures) = (Vec::new(), Vec::new());
    for (object, stopped) in progress::for_each(out, maintenances.iter(), "maintenances", stop).await {
        match stopped {
            Ok(deletion) => {
                out.data(&line(object, deletion, endings.get(node(object)).copied()))?;
                if args.keep_cordon && !status(object).has_begun() {
                    out.message(&Line::new(format!(
                        "warning: node/{} was not cordoned by its maintenance, which had not started",
                        node(object)
                    )));
                }
                if deletion == Deletion::UnderWay {
                    for warning in stop_warnings::of(object, cluster.kubectl()) {
                        out.message_with_commands(&warning);
                    }
                }
                targets
                    .extend((deletion == Deletion::UnderWay).then(|| WaitTarget::from(&object.maintenance)));
            }
            Err(error) => failures.push((node(object).to_owned(), error)),
        }
    }
    Error::print_all(&failures, out);
    // A wait says it by itself.
    if !targets.is_empty() && !args.wait {
        let message = || format!("asking {} who leads", cluster.server());
        let warning = progress::during(out, message, Box::pin(gap::warning(cluster, false))).await;
        if let Some(warning) = warning {
            out.message_with_commands(&warning);
        }
    }
    let exit = if args.wait && !targets.is_empty() {
        let timeout = args.timeout.filter(|timeout| !timeout.is_zero());
        let is_older = |group: &Group| maintenances.iter().any(|object| object.group == *group);
        let older: Vec<Group> =
            Group::ALL.into_iter().filter(|group| *group != Group::Medik8s && is_older(group)).collect();
        let cluster = cluster.with_older_groups(&older);
        let words = endings.into_iter().map(|(node, ending)| (node, ending.words().to_owned())).collect();
        let tracker = GoalTracker::for_targets(Goal::Stopped, targets);
        watch::wait(tracker, timeout, words, &cluster, out).await?
    } else {
        Exit::Done
    };
    Ok(if !failures.is_empty() && exit == Exit::Done { Exit::Error } else { exit })
}

/// Asks whether several maintenances end, or one whose roll then misses its node.
fn confirm(
    args: &StopArgs,
    maintenances: &[GroupedMaintenance],
    harms: &[Line],
    cluster: &Cluster,
    out: &mut Output,
) -> Result<(), Error> {
    let nodes: Vec<String> = maintenances.iter().map(|object| node(object).to_owned()).collect();
    let nodes = distinct(&nodes);
    let what = match (args.keep_cordon, nodes.len()) {
        (true, 1) => "End the maintenance of {} and leave it cordoned",
        (true, _) => "End the maintenance of {} and leave them cordoned",
        // Those that are planned are in service.
        (false, _) if maintenances.iter().any(|object| !status(object).has_begun()) => {
            "End the maintenance of {}"
        }
        (false, _) => "Return {} to service",
    };
    let reasons = purposes(maintenances.iter().map(|object| &**object));
    let reason = reasons.as_deref();
    let question =
        Question { what, cluster: cluster.context(), nodes: &nodes, reason, harms, ..Question::default() };
    question.ask_if_needed(args.yes, out)
}

/// Lets the rolls of these maintenances keep their state, which one of these may have.
async fn keep_rolls(cluster: &Cluster, stopped: &[GroupedMaintenance], out: &mut Output) {
    for unkept in store::keep_records(cluster, stopped.iter().map(|object| &object.maintenance)).await {
        out.message(&Line::new(format!("warning: {unkept}")));
    }
}

#[derive(Default)]
struct Found {
    /// The maintenances to stop, ordered by node.
    maintenances: Vec<GroupedMaintenance>,
    /// All maintenances of the cluster.
    existing: Vec<GroupedMaintenance>,
    /// The named nodes that are not in maintenance.
    idle: Vec<String>,
    /// Those of them that the user may read.
    idle_nodes: Vec<Node>,
    /// Those of them that the user may not read.
    hidden: Vec<String>,
    warnings: Vec<Line>,
}

async fn find(args: &StopArgs, cluster: &Cluster) -> Result<Found, Error> {
    if args.all {
        let (mut maintenances, older) = all_groups::shown(cluster).await?;
        maintenances.sort_by_cached_key(|object| node(object).to_owned());
        let existing = maintenances.clone();
        return Ok(Found { maintenances, existing, warnings: older.warnings, ..Found::default() });
    }
    let nodes = args.nodes.resolve(cluster).await?;
    let (existing, older) = all_groups::shown(cluster).await?;
    let (maintenances, warnings) = (of_nodes(&nodes, &existing), older.warnings);
    // Most nodes that labels select are not in maintenance.
    if args.nodes.are_known() {
        return Ok(Found { maintenances, existing, warnings, ..Found::default() });
    }
    let is_idle = |name: &String| !maintenances.iter().any(|object| node(object) == name);
    let idle: Vec<String> = nodes.into_iter().filter(is_idle).collect();
    let (idle_nodes, hidden) = read_existing(cluster, &idle).await?;
    Ok(Found { maintenances, existing, idle, idle_nodes, hidden, warnings })
}

fn of_nodes(nodes: &[String], existing: &[GroupedMaintenance]) -> Vec<GroupedMaintenance> {
    let of_node = |name| existing.iter().filter(move |object| node(object) == name).cloned();
    nodes.iter().flat_map(of_node).collect()
}

fn line(object: &NodeMaintenance, deletion: Deletion, ending: Option<NodeEnding>) -> Line {
    let line = Line::new(format!("node/{} ", node(object)));
    let line = match deletion {
        Deletion::Gone | Deletion::Replaced => line.with(Style::Good, "maintenance stopped"),
        Deletion::UnderWay if object.metadata.deletion_timestamp.is_some() => {
            line.with(Style::Busy, "maintenance is already stopping")
        }
        Deletion::UnderWay => line.with(Style::Busy, "maintenance is stopping"),
    };
    // Somebody else may have started it for work that is not done.
    let line = line.and(name_unless_node(object)).and(purpose_words(object));
    if deletion == Deletion::Replaced {
        return line.and(", and another one was started");
    }
    match ending {
        Some(NodeEnding::CordonedBefore | NodeEnding::CordonKept) if deletion == Deletion::UnderWay => {
            let words = ending.map_or("", NodeEnding::words);
            line.and(": the node ").and(words)
        }
        Some(NodeEnding::NotReady) if deletion == Deletion::UnderWay => {
            line.and(": the node will be uncordoned, but it is not Ready")
        }
        Some(NodeEnding::OutOfService { is_ready }) if deletion == Deletion::UnderWay => {
            let unready = if is_ready { "" } else { "it is not Ready, and " };
            line.and(format!(
                ": the node will be uncordoned, but {unready}its taint {OUT_OF_SERVICE_TAINT} keeps pods away until somebody \
                 removes it"
            ))
        }
        _ => line,
    }
}

#[cfg(test)]
#[path = "stop_tests.rs"]
mod tests;
