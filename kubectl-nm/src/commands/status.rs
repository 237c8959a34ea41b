//! `kubectl nm status`: the maintenances and their current states.

use std::collections::BTreeSet;

use clap::Args;
use jiff::Timestamp;
use kube::ResourceExt;
use nm_core::args::duration::age;
use nm_core::client::all_groups;
use nm_core::client::cluster::Cluster;
use nm_core::client::nodes::{NodeSelection, check_exist};
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::format::{self, DataFormat, OutputFormat, list};
use nm_core::interaction::progress;
use nm_core::leader::gap;
use nm_core::maintenance::change_lines::blocked_lines;
use nm_core::maintenance::changes::{attached_volume, blocked_pod, returned_pod, surging_pod, waiting_pod};
use nm_core::maintenance::roll::{RollRunners, abandoned_line, halted_line, left_line, paused_line};
use nm_core::maintenance::slow_surge::SlowSurge;
use nm_core::maintenance::{
    State, attached_volumes, blocked_count, blocked_pods, degraded, drain_result, drain_times_out,
    error_without_details, hold, node, pending_pods, percent_gone, reason, roll_name, status, stop_progress,
    timeout_words, waiting_pods,
};
use nm_core::terminal::command_context::explain_command;
use nm_core::terminal::output::Output;
use nm_core::terminal::table;
use nm_core::terminal::text::{Line, Style, counted};
use nm_shared::{NodeMaintenance, NodeMaintenanceStatus, Suspension};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The results of drains are printed for so many maintenances at most.
const MAX_RESULTS: usize = 10;

/// Lines about what keeps nodes that are printed without -v: the table above has to stay in sight.
const MAX_DETAILS: usize = 50;

/// A hint names so many nodes at most. Without nodes, `explain` is about all that need somebody.
const MAX_HINTED: usize = 3;

/// How many remaining pods the table names. `-o json` has all.
const MAX_PENDING: usize = 2;

const EXAMPLES: &str = "\
Examples:
  # List all nodes in maintenance
  kubectl nm status

  # List those of a pool
  kubectl nm status -l pool=blue

  # Show one node with its reason, its roll and its remaining pods
  kubectl nm status node-1 -o wide

  # Print the object
  kubectl nm status node-1 -o json";

const EXIT_CODES: &str = "\
The state is Requested, Planned, Queued, Draining, Blocked, Paused, Drained, Failed or Stopping. A failed or drained \
maintenance that is paused has both words, as in Failed,Paused.
Exit codes: 0, or 1 if a given node is not in maintenance.";

/// Show the nodes in maintenance with their states and progress
#[derive(Args, Debug)]
#[command(before_help = EXAMPLES, after_help = EXIT_CODES)]
pub(crate) struct MaintenanceStatusArgs {
    #[command(flatten)]
    nodes: NodeSelection,

    /// Print the maintenances in this format
    #[arg(long, short = 'o', value_name = "FORMAT", default_value = "table",
        value_parser = format::formats(["table", "wide", "json", "yaml", "name"]))]
    output: OutputFormat,
}

pub(crate) async fn run(
    args: MaintenanceStatusArgs,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    let message = || format!("asking {} for maintenances", cluster.server());
    let shown = async {
        let nodes = args.nodes.resolve(cluster).await?;
        let (found, older) = all_groups::shown_raw(cluster).await?;
        Ok::<_, Error>((nodes, found, older))
    };
    let (nodes, mut found, older) = progress::during(out, message, Box::pin(shown)).await?;
    // Most nodes that labels select are not in maintenance.
    let are_named = !nodes.is_empty() && !args.nodes.are_known();
    for warning in &older.warnings {
        out.message(warning);
    }
    // The record of a roll may be in the maintenance of another node.
    let rolls = RollRunners::of(&found.iter().flat_map(NodeMaintenance::deserialize).collect::<Vec<_>>());
    found.retain(|object| {
        nodes.is_empty() || nodes.iter().any(|wanted| object["spec"]["nodeName"] == *wanted)
    });
    found.sort_by_cached_key(|object| {
        ["/spec/nodeName", "/metadata/name"].map(|field| object.pointer(field).map(Value::to_string))
    });
    match args.output {
        OutputFormat::Data(format) => in_form(&found, are_named && nodes.len() == 1, format, out)?,
        format @ (OutputFormat::Table | OutputFormat::Wide) => {
            let objects: Result<Vec<NodeMaintenance>, _> =
                found.iter().map(Deserialize::deserialize).collect();
            let objects = objects.map_err(|error| Error::Unshowable(error.to_string()))?;
            in_table(&objects, format == OutputFormat::Wide, out)?;
            if objects.is_empty() && !are_named {
                out.message(&Line::new("No maintenances found."));
            }
            for (roll, halt) in rolls.halts_of(&objects) {
                out.message(&halted_line(roll, halt, cluster.flags()));
            }
            for (roll, pause) in rolls.pauses_of(&objects) {
                out.message(&paused_line(roll, pause, cluster.flags()));
            }
            for roll in rolls.abandoned_of(&objects, Timestamp::now()) {
                out.message(&abandoned_line(roll, cluster.flags()));
            }
            for (roll, who) in rolls.left_of(&objects, Timestamp::now()) {
                out.message(&left_line(roll, who, cluster.flags()));
            }
            if objects.iter().any(is_served) {
                let message = || format!("asking {} who leads", cluster.server());
                let warning = gap::warning(cluster, objects.iter().any(is_requested));
                if let Some(warning) = progress::during(out, message, Box::pin(warning)).await {
                    out.message(&warning);
                }
            }
            if let Some(hint) = explain_hint(&objects, cluster.flags(), Timestamp::now()) {
                out.message(&hint);
            }
        }
    }
    let missing = if are_named { missing(&nodes, &found) } else { Vec::new() };
    if missing.is_empty() {
        return Ok(Exit::Done);
    }
    // If the node does not exist either, that is the error.
    check_exist(cluster, &missing).await?;
    Err(Error::NotInMaintenance(missing))
}

/// Where to find out why pods do not leave, and what is down meanwhile: no status shows that, and finding it out takes several
/// requests. None unless pods are blocked, a drain has failed, or a surge takes long: nobody has to act on a drain that is under way.
fn explain_hint(objects: &[NodeMaintenance], flags: &str, now: Timestamp) -> Option<Line> {
    let is_slow =
        |object: &NodeMaintenance| SlowSurge::of(object).is_some_and(|surge| surge.words(now).is_some());
    let is_stuck = |object: &&NodeMaintenance| {
        blocked_count(object) > 0 || State::of(object) == State::Failed || is_slow(object)
    };
    let nodes: BTreeSet<&str> = objects.iter().filter(is_stuck).map(node).collect();
    nodes.first()?;
    let whose = if nodes.len() == 1 { "its drain has" } else { "their drains have" };
    let names = if nodes.len() > MAX_HINTED { BTreeSet::new() } else { nodes };
    let explain = explain_command(names, flags);
    Some(Line::new(format!(
        "hint: `{explain}` shows why, and which workloads {whose} left without a ready pod"
    )))
}

/// Whether nothing has worked on it: a reconciler that is not seen, because it leads without a lease, would have.
fn is_requested(object: &NodeMaintenance) -> bool {
    State::of(object) == State::Requested
}

/// Whether a reconciler has to do something for a maintenance.
fn is_served(object: &NodeMaintenance) -> bool {
    match State::of(object) {
        State::Requested
        | State::Queued
        | State::Draining
        | State::Blocked
        | State::Failed
        | State::Stopping => true,
        State::Planned | State::Paused | State::Drained => false,
    }
}

fn missing(nodes: &[String], found: &[Value]) -> Vec<String> {
    let is_idle = |name: &&String| !found.iter().any(|object| object["spec"]["nodeName"] == **name);
    nodes.iter().filter(is_idle).cloned().collect()
}

/// Prints maintenances; `alone` if one was requested by name.
pub(crate) fn print(
    objects: &[NodeMaintenance],
    alone: bool,
    format: OutputFormat,
    out: &mut Output,
) -> Result<(), Error> {
    match format {
        OutputFormat::Data(format) => in_form(objects, alone, format, out),
        OutputFormat::Table | OutputFormat::Wide => in_table(objects, format == OutputFormat::Wide, out),
    }
}

fn in_table(objects: &[NodeMaintenance], wide: bool, out: &mut Output) -> Result<(), Error> {
    if objects.is_empty() {
        return Ok(());
    }
    for line in table(objects, wide, Timestamp::now()) {
        out.data(&line)?;
    }
    if objects.len() <= MAX_RESULTS {
        for (object, result) in objects.iter().filter_map(|object| Some((object, drain_result(object)?))) {
            let line = Line::new(format!("node/{}: ", node(object)));
            out.wrapped_message(&line.and(why_failed(object)).and(result));
        }
        for (object, at) in objects.iter().filter_map(|object| Some((object, drain_times_out(object)?))) {
            out.message(&Line::new(format!("node/{}: the drain times out at {at}", node(object))));
        }
    }
    let is_verbose = out.is_verbose();
    let mut details: Vec<Line> = objects.iter().flat_map(|object| details(object, is_verbose)).collect();
    let left_out = details.split_off(if is_verbose { details.len() } else { MAX_DETAILS.min(details.len()) });
    for line in &details {
        out.wrapped_message(line);
    }
    if !left_out.is_empty() {
        let lines = counted(left_out.len(), "more line");
        out.message(&Line::new(format!("{lines} about pods and volumes left out; -v shows all")));
    }
    Ok(())
}

/// Why a drain has failed, before its result. The blocked pods have lines of their own.
fn why_failed(object: &NodeMaintenance) -> String {
    if State::of(object) != State::Failed {
        return String::new();
    }
    match timeout_words(object).unwrap_or_else(|| reason(object).to_owned()) {
        why if why.is_empty() => why,
        why => format!("{why}; "),
    }
}

/// What keeps the node of a maintenance, line by line: pods that are blocked alike have one line, unless each is asked for.
fn details(object: &NodeMaintenance, is_verbose: bool) -> Vec<Line> {
    let status = status(object);
    let mut lines: Vec<Line> = status.surging_pods.iter().flatten().map(surging_pod).collect();
    if let Some(error) = error_without_details(object) {
        lines.push(Line::default().with(Style::Bad, "error").and(": ").and(error));
    } else if let Some(degraded) = degraded(object) {
        lines.push(Line::default().with(Style::Bad, &degraded.message));
    }
    let held = hold(object).filter(|_| State::of(object) != State::Failed);
    lines.extend(held.map(|hold| match State::of(object) {
        State::Stopping => Line::new(stop_progress(object)),
        _ => Line::new(format!("waiting for {hold}")),
    }));
    // Of those that wait for their turn, there may be hundreds.
    let is_held_up = State::of(object) == State::Queued && status.queue.is_none();
    lines.extend(Some(reason(object)).filter(|why| is_held_up && !why.is_empty()).map(Line::new));
    if is_verbose {
        lines.extend(blocked_pods(object).iter().map(blocked_pod));
    } else {
        lines.extend(blocked_lines(blocked_pods(object).iter().collect()));
    }
    lines.extend(attached_volumes(object).iter().map(attached_volume));
    // A drain that has failed evicts no pod: none waits.
    let is_waiting = State::of(object) != State::Failed;
    lines.extend(waiting_pods(object).iter().filter(|_| is_waiting).map(waiting_pod));
    lines.extend(status.returned_pods.iter().flatten().map(returned_pod));
    lines.into_iter().map(|line| Line::new(format!("node/{}: ", node(object))).join(line)).collect()
}

/// Prints the one requested object, or a List.
pub(super) fn in_form(
    objects: &[impl Serialize],
    alone: bool,
    format: DataFormat,
    out: &mut Output,
) -> Result<(), Error> {
    let items: Result<Vec<_>, _> = objects.iter().map(serde_json::to_value).collect();
    match items.map_err(|error| Error::Unshowable(error.to_string()))?.as_slice() {
        [only] if alone => format.print(only, out),
        // The error reports that the one requested object does not exist.
        [] if alone => Ok(()),
        items => format.print(&list(items), out),
    }
}

fn table(objects: &[NodeMaintenance], wide: bool, now: Timestamp) -> Vec<Line> {
    let mut headers = vec!["NODE", "STATE", "PROGRESS", "BLOCKED", "AGE"];
    if wide {
        headers.extend(["NAME", "ROLL", "PENDING", "REASON"]);
    }
    let rows: Vec<Vec<(Style, String)>> = objects.iter().map(|object| row(object, wide, now)).collect();
    table::lines(&headers, &rows)
}

fn row(object: &NodeMaintenance, wide: bool, now: Timestamp) -> Vec<(Style, String)> {
    let (state, status) = (State::of(object), status(object));
    let blocked = match (blocked_count(object), error_without_details(object)) {
        (0, Some(_)) => (Style::Bad, String::from("<unknown>")),
        (0, None) => (Style::Plain, String::from("0")),
        (blocked, _) => (Style::Bad, blocked.to_string()),
    };
    let created = object.metadata.creation_timestamp.as_ref();
    let plain = |text: String| (Style::Plain, if text.is_empty() { String::from("<none>") } else { text });
    let mut row = vec![
        plain(node(object).to_owned()),
        (state.style(), state_words(object)),
        plain(status.phase.map(|_| format!("{}%", percent_gone(status))).unwrap_or_default()),
        blocked,
        plain(
            created.map_or_else(|| String::from("<unknown>"), |at| age(now.duration_since(at.0).as_secs())),
        ),
    ];
    if wide {
        row.push(plain(object.name_any()));
        row.push(plain(roll_name(object).unwrap_or_default().to_owned()));
        row.push(plain(pending(status)));
        row.push(plain(object.spec.reason.clone().unwrap_or_default()));
    }
    row
}

/// `Failed,Paused`: the state, and that the maintenance is paused if another state takes precedence. As kubectl joins the words
/// about a node.
fn state_words(object: &NodeMaintenance) -> String {
    let state = State::of(object);
    let is_paused = Suspension::in_status(status(object)) == Some(Suspension::Paused);
    if is_paused && matches!(state, State::Failed | State::Drained) {
        format!("{},{}", state.word(), State::Paused.word())
    } else {
        state.word().to_owned()
    }
}

/// The first of the remaining pods, as kubectl cuts its lists: `shop/cart-0,shop/cart-1 + 9 more...`.
fn pending(status: &NodeMaintenanceStatus) -> String {
    let pods = pending_pods(status);
    match pods.len() {
        ..=MAX_PENDING => pods.join(","),
        all => format!("{} + {} more...", pods[..MAX_PENDING].join(","), all - MAX_PENDING),
    }
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
