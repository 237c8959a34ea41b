//! `kubectl nm explain`: why a node's maintenance makes no progress, and what to do about it.

use std::sync::Arc;

use clap::Args;
use jiff::Timestamp;
use nm_core::args::duration::age;
use nm_core::args::names;
use nm_core::client::all_groups;
use nm_core::client::cluster::Cluster;
use nm_core::client::nodes::{check_exist, unchecked};
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::explain::explanation::{Cause, abandoned, causes, unlisted};
use nm_core::interaction::progress;
use nm_core::maintenance::{self, Leadership, Reconcilers, State, name_unless_node, node, roll_name};
use nm_core::terminal::command_context::{nm_command, shell_quoted};
use nm_core::terminal::output::Output;
use nm_core::terminal::text::{Line, Style};
use nm_roll::record::{Halt, Roll};
use nm_shared::NodeMaintenance;
use nm_shared::gate::ownership::age_rank;

use crate::install::leadership;

const MAX_PODS: usize = 5;

const EXAMPLES: &str = "\
Examples:
  # Show what blocks the drain of a node, and the commands that unblock it
  kubectl nm explain node-1";

const EXIT_CODES: &str = "\
Exit codes: 0 nothing is blocked, 1 unknown, 3 blocked.";

/// Explain what blocks a node's maintenance and how to unblock it
#[derive(Args, Debug)]
#[command(before_help = EXAMPLES, after_help = EXIT_CODES)]
pub(crate) struct ExplainArgs {
    /// Name of the node
    #[arg(value_name = "NODE", value_parser = names::parse_node)]
    node: String,
}

pub(crate) async fn run(args: ExplainArgs, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let message = || format!("asking {} for maintenances", cluster.server());
    let (all, older) = progress::during(out, message, Box::pin(all_groups::shown(cluster))).await?;
    for warning in &older.warnings {
        out.message(warning);
    }
    let all: Vec<NodeMaintenance> = all.into_iter().map(|object| object.maintenance).collect();
    let mut found: Vec<_> = all.iter().filter(|object| node(object) == args.node).collect();
    found.sort_by_key(|object| age_rank(object));
    if found.is_empty() {
        if !check_exist(cluster, [&args.node]).await?.is_empty() {
            out.message(&unchecked(&args.node));
            return Ok(Exit::Error);
        }
        out.data(&Line::new(format!("node/{} is not in maintenance", args.node)))?;
        return Ok(Exit::Done);
    }
    let message = || format!("asking {} who leads", cluster.server());
    let reconcilers =
        progress::during(out, message, Box::pin(leadership::find(cluster, Timestamp::now()))).await;
    let mut is_blocked = false;
    for (at, object) in found.into_iter().enumerate() {
        if at > 0 {
            out.data(&Line::default())?;
        }
        let halt = halt_of_roll(object, &all);
        is_blocked |= explain(object, halt.as_ref(), &reconcilers, cluster.kubectl(), Timestamp::now(), out)?;
    }
    Ok(if is_blocked { Exit::Failed } else { Exit::Done })
}

/// Why the roll of a maintenance has halted; none if it has not, or if its records cannot be read.
pub(crate) fn halt_of_roll(object: &NodeMaintenance, all: &[NodeMaintenance]) -> Option<Halt> {
    let name = roll_name(object)?;
    let of_roll = all.iter().filter(|object| roll_name(object) == Some(name));
    let objects: Vec<_> = of_roll.cloned().map(Arc::new).collect();
    Roll::find(name, &objects).ok()??.record?.halt
}

/// Prints what blocks a maintenance, and returns whether something does that does not pass by itself.
pub(crate) fn explain(
    object: &NodeMaintenance,
    halt: Option<&Halt>,
    reconcilers: &Reconcilers,
    kubectl: &str,
    now: Timestamp,
    out: &mut Output,
) -> Result<bool, Error> {
    let state = State::of(object);
    let mut causes = causes(object, reconcilers, kubectl, now);
    causes.splice(0..0, abandoned(object, reconcilers.leadership, kubectl, now));
    causes.splice(0..0, roll_name(object).zip(halt).map(|(roll, halt)| halted(roll, halt, kubectl)));
    // The reason why it is queued or failed is among the causes.
    let headline = match state {
        State::Queued | State::Failed => Line::default().with(state.style(), state.word()),
        _ => maintenance::headline(object),
    };
    out.data(&Line::new(format!("node/{}: ", node(object))).join(headline).and(name_unless_node(object)))?;
    if let Some(roll) = roll_name(object) {
        out.data(&Line::new(format!("It is part of roll {roll}.")))?;
    }
    if causes.is_empty() {
        let outlook = match (state, reconcilers.leadership) {
            (State::Drained, _) => "",
            (_, Leadership::Held) => ": the maintenance continues on its own",
            _ => ": the maintenance continues as long as nm-reconciler runs",
        };
        out.data(&Line::new(format!("Nothing is blocked{outlook}.")))?;
    }
    for cause in &causes {
        out.data(&Line::default())?;
        for line in paragraph(cause, now) {
            out.data(&line)?;
        }
    }
    let more = unlisted(object);
    if more > 0 {
        out.data(&Line::default())?;
        out.data(&Line::new(format!("{more} more pods are blocked; the status does not list them.")))?;
    }
    Ok(causes.iter().any(|cause| !cause.passes))
}

/// The cause that the roll of the node has halted.
fn halted(roll: &str, halt: &Halt, kubectl: &str) -> Cause {
    let roll = shell_quoted(roll);
    let skip = Some(halt.node.as_str()).filter(|node| !node.is_empty());
    let skip = skip.map(|node| format!("resume {roll} --skip {}", shell_quoted(node)));
    let commands = [Some(format!("resume {roll}")), skip, Some(format!("abort {roll}"))];
    Cause {
        what: vec![format!("Roll {roll} halted: {}.", halt.message)],
        since: Timestamp::from_second(halt.at.as_second()).ok(),
        advice: String::from(
            "Once this is fixed, continue the roll; or continue without the node, or abort the roll",
        ),
        commands: commands
            .into_iter()
            .flatten()
            .map(|rest| nm_command(kubectl, &format!("roll {rest}")))
            .collect(),
        ..Cause::default()
    }
}

fn paragraph(cause: &Cause, now: Timestamp) -> Vec<Line> {
    let style = if cause.passes { Style::Busy } else { Style::Bad };
    let mut lines: Vec<Line> = cause.what.iter().map(|what| Line::default().with(style, what)).collect();
    lines.extend(extent(cause, now).map(|extent| Line::new(format!("  {extent}"))));
    lines.push(Line::new(format!("  {}:", cause.advice)));
    lines.extend(cause.commands.iter().map(|command| Line::new(format!("    {command}"))));
    lines
}

/// The pods, since when, and how often they were refused: `Blocks shop/cart-0 for 3m, since 2026-01-02T03:04:05Z; 3 evictions were
/// refused.`
fn extent(cause: &Cause, now: Timestamp) -> Option<String> {
    let since =
        cause.since.map(|since| format!("for {}, since {since}", age(now.duration_since(since).as_secs())));
    let named = cause.pods.iter().take(MAX_PODS).cloned().collect::<Vec<_>>().join(", ");
    let more = match cause.pods.len().saturating_sub(MAX_PODS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let refused = match cause.refusals {
        0 => String::new(),
        1 => String::from("; 1 eviction was refused"),
        refusals => format!("; {refusals} evictions were refused"),
    };
    let verb = match (cause.stays, cause.passes) {
        (true, _) => "Staying:",
        (_, true) => "Waits for",
        (_, false) => "Blocks",
    };
    match (since, named.as_str()) {
        (None, "") => None,
        (Some(since), "") => Some(format!("Lasting {since}.")),
        (None, named) => Some(format!("{verb} {named}{more}{refused}.")),
        (Some(since), named) => Some(format!("{verb} {named}{more} {since}{refused}.")),
    }
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
