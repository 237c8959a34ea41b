//! `kubectl nm explain`: why maintenances make no progress, and what to do about it.

use std::collections::BTreeMap;

use clap::Args;
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use nm_core::args::duration::age;
use nm_core::args::names;
use nm_core::client::all_groups;
use nm_core::client::cluster::Cluster;
use nm_core::client::nodes::{not_in_maintenance, read_existing, unchecked};
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::explain::cause::{Cause, CommonGround, Outlook, left_out_words};
use nm_core::explain::cluster_facts::ClusterFacts;
use nm_core::explain::explanation::{all_causes, unlisted};
use nm_core::explain::first_cause::FirstCause;
use nm_core::explain::outage_causes::command_for_more;
use nm_core::explain::roll_causes::{part_of_roll, roll_command};
use nm_core::explain::{read_facts, read_outages};
use nm_core::interaction::progress;
use nm_core::leader::{Leadership, Reconcilers};
use nm_core::maintenance::roll::RollRunners;
use nm_core::maintenance::{self, State, hold, name_unless_node, node, pending_pods, roll_name, status};
use nm_core::terminal::command_context::confirmed;
use nm_core::terminal::output::Output;
use nm_core::terminal::text::{Line, Style, counted, first_names};
use nm_roll::halted::{HaltedRoll, find_rolls};
use nm_roll::in_cluster::starting::starting_jobs;
use nm_roll::job;
use nm_shared::gate::ownership::age_rank;
use nm_shared::{NodeMaintenance, WaitingPod};

use super::explain_common::{CommonCause, ONE_BY_ONE};
use super::explain_rolls::{self, halted_rolls};
use crate::install::leadership;

const MAX_PODS: usize = 5;

/// A pod that waits for longer than this may wait for something that is stuck.
const USUAL_TURN: SignedDuration = SignedDuration::from_secs(10);

/// How to see what is left out of a cause of one node.
const ONCE_DONE: &str = "explain the node again once these are dealt with";

const EXAMPLES: &str = "\
Examples:
  # Show what blocks the drain of a node, and the commands that unblock it
  kubectl nm explain node-1

  # Show what blocks any maintenance
  kubectl nm explain";

const EXIT_CODES: &str = "\
Exit codes: 0 nothing is blocked, 1 unknown, 3 blocked.";

/// Explain what blocks the maintenance of nodes and how to unblock it
#[derive(Args, Debug)]
#[command(before_help = EXAMPLES, after_help = EXIT_CODES)]
pub(crate) struct ExplainArgs {
    /// Names of the nodes; without one, all whose maintenance is blocked or failed
    #[arg(value_name = "NODE", value_parser = names::parse_node)]
    nodes: Vec<String>,
}

/// What the explanation of a maintenance depends on, besides the object.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) reconcilers: &'a Reconcilers,
    pub(crate) facts: &'a ClusterFacts,
    pub(crate) kubectl: &'a str,
    pub(crate) now: Timestamp,
}

pub(crate) async fn run(args: ExplainArgs, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let message = || format!("asking {} for maintenances", cluster.server());
    let (all, older) = progress::during(out, message, Box::pin(all_groups::shown(cluster))).await?;
    for warning in &older.warnings {
        out.message(warning);
    }
    let all: Vec<NodeMaintenance> = all.into_iter().map(|object| object.maintenance).collect();
    let nodes = names::distinct(&args.nodes);
    let mut found: Vec<&NodeMaintenance> = all
        .iter()
        .filter(|object| nodes.is_empty() || nodes.iter().any(|name| name == node(object)))
        .collect();
    found.sort_by_key(|object| (node(object).to_owned(), age_rank(object)));
    let idle: Vec<&String> =
        nodes.iter().filter(|name| !found.iter().any(|object| node(object) == *name)).collect();
    let (idle_nodes, unknown) = read_existing(cluster, idle.iter().copied()).await?;
    for name in &unknown {
        out.message(&unchecked(name));
    }
    for name in idle.into_iter().filter(|name| !unknown.contains(name)) {
        out.data(&not_in_maintenance(name, &idle_nodes, cluster.kubectl()))?;
    }
    let mut exit = if unknown.is_empty() { Exit::Done } else { Exit::Error };
    let mut explained = 0;
    if !found.is_empty() {
        let message = || format!("asking {} who leads", cluster.server());
        let find = Box::pin(leadership::find(cluster, Timestamp::now()));
        let reconcilers = progress::during(out, message, find).await;
        let message = || format!("asking {} for causes", cluster.server());
        // Of several, the facts only matter to those that pods keep, or whose node may have been deleted.
        let asked = Timestamp::now();
        let runners = RollRunners::of(&all);
        let halts = runners.halts_of(found.iter().copied());
        let rolls = find_rolls(&found.iter().filter_map(|object| roll_name(object)).collect(), &all);
        let has_halted = |object: &NodeMaintenance| halts.values().any(|halt| halt.node == node(object));
        let is_wanted =
            |object: &&NodeMaintenance| !nodes.is_empty() || needs_facts(object, asked) || has_halted(object);
        let wanted = found.iter().copied().filter(is_wanted);
        let read = async {
            let mut facts = read_facts::read(cluster, wanted, &all, Timestamp::now()).await;
            read_outages::add(&mut facts, found.iter().copied(), cluster, Timestamp::now()).await;
            let others = all.iter().filter(|object| !found.iter().any(|it| node(it) == node(object)));
            read_facts::add_neighbours(&mut facts, others, cluster, Timestamp::now()).await;
            facts.roll_jobs = starting_jobs(rolls.values(), cluster).await;
            let problems = join_all(rolls.values().map(|roll| job::problems(cluster, roll))).await;
            facts.job_problems = problems.into_iter().flatten().collect();
            // Of all maintenances, planned ones are left out unless something else is to be said of them.
            if !nodes.is_empty() {
                facts.turns = explain_rolls::turns(&found, &rolls, Timestamp::now());
            }
            (facts, explain_rolls::probe(cluster, &rolls, &halts, Timestamp::now()).await)
        };
        let (facts, probed) = progress::during(out, message, Box::pin(read)).await;
        let (kubectl, now) = (cluster.kubectl(), Timestamp::now());
        let context = Context { reconcilers: &reconcilers, facts: &facts, kubectl, now };
        let halted = halted_rolls(&halts, &rolls, &facts, probed, now);
        let judge = |object| Judged::of(object, &halted, &context);
        let mut judged: Vec<Judged<'_>> = found.into_iter().map(judge).collect();
        if nodes.is_empty() {
            let is_reported = |object| matches!(State::of(object), State::Blocked | State::Failed);
            judged.retain(|judged| !judged.is_well() || is_reported(judged.object));
        }
        explained = judged.len();
        if explain_all(judged, &context, out)? {
            exit = Exit::Failed;
        }
    }
    if nodes.is_empty() && explained == 0 {
        let none =
            if all.is_empty() { "No maintenances found." } else { "No maintenance is blocked or failed." };
        out.data(&Line::new(none))?;
    }
    Ok(exit)
}

/// Whether it matters what the cluster shows of a maintenance that is explained with all others.
fn needs_facts(object: &NodeMaintenance, now: Timestamp) -> bool {
    State::of(object) == State::Stopping || is_kept_by_pods(object, now) || has_unwatched_pods(object)
}

/// Whether pods have to leave that nm-reconciler does not evict now, so that the status does not tell if their node is Ready.
fn has_unwatched_pods(object: &NodeMaintenance) -> bool {
    let is_evicted = State::of(object) == State::Draining && hold(object).is_none();
    !is_evicted && !pending_pods(status(object)).is_empty()
}

/// Whether pods may be why a maintenance makes no progress: they are blocked, or wait for replacements that may be stuck.
fn is_kept_by_pods(object: &NodeMaintenance, now: Timestamp) -> bool {
    let status = status(object);
    let waits = |pod: &WaitingPod| now.duration_since(pod.since.0) > USUAL_TURN;
    matches!(State::of(object), State::Blocked | State::Failed)
        || status.surging_pods.as_ref().is_some_and(|pods| !pods.is_empty())
        || status.waiting_pods.iter().flatten().any(waits)
}

/// A maintenance with the causes why it makes no progress.
struct Judged<'a> {
    object: &'a NodeMaintenance,
    causes: Vec<Cause>,
    /// That its roll has halted, if that comes after what has to be done before the roll is resumed.
    halted: Option<Cause>,
}

impl<'a> Judged<'a> {
    /// The causes of a maintenance: of its roll, of a missing reconciler, and its own.
    fn of(object: &'a NodeMaintenance, halted: &BTreeMap<String, HaltedRoll>, context: &Context<'_>) -> Self {
        let Context { reconcilers, facts, kubectl, now } = *context;
        let mut causes = all_causes(object, reconcilers, facts, kubectl, now);
        let halted = roll_name(object).and_then(|roll| halted.get_key_value(roll));
        // The halt is what the roll is resumed after.
        let resume = halted.map(|(roll, _)| roll_command("resume", roll, kubectl));
        for cause in causes.iter_mut().filter(|cause| resume.iter().any(|it| cause.commands.contains(it))) {
            cause.clear_remedy();
        }
        let (first, last) = match halted {
            Some((_, halted)) if halted.awaits_drain() => (None, Some(halted.cause(kubectl))),
            Some((_, halted)) => (Some(halted.cause(kubectl)), None),
            None => (None, None),
        };
        causes.splice(0..0, first);
        Self { object, causes, halted: last }
    }

    /// Whether something blocks it that does not pass by itself.
    fn is_blocked(&self) -> bool {
        let mut causes = self.causes.iter().chain(&self.halted);
        causes.any(|cause| !cause.passes() && !cause.is_outage) || unlisted(self.object) > 0
    }

    /// Whether nobody has to do anything, as far as its causes tell.
    fn is_well(&self) -> bool {
        self.causes.iter().all(|cause| cause.passes() && cause.outlook != Outlook::WillBlock)
            && !self.is_blocked()
    }
}

/// Prints what blocks maintenances, a cause of several nodes once. Returns whether something does that does not pass by itself.
fn explain_all(judged: Vec<Judged<'_>>, context: &Context<'_>, out: &mut Output) -> Result<bool, Error> {
    let is_one_node = judged.windows(2).all(|pair| node(pair[0].object) == node(pair[1].object));
    let is_blocked = judged.iter().any(Judged::is_blocked);
    if is_one_node {
        for (at, judged) in judged.iter().enumerate() {
            if at > 0 {
                out.data(&Line::default())?;
            }
            explain_one(judged, context, out)?;
        }
        return Ok(is_blocked);
    }
    let mut common: Vec<CommonCause> = Vec::new();
    let mut rolls: Vec<(Cause, &str)> = Vec::new();
    for Judged { object, causes, halted } in judged {
        rolls.extend(halted.map(|halted| (halted, node(object))));
        out.wrapped_data(&headline(object))?;
        let more = unlisted(object);
        if more > 0 {
            out.data(&Line::new(format!("  {}", unlisted_words(more))))?;
        }
        for cause in causes {
            CommonCause::add(&mut common, cause, node(object));
        }
    }
    for (cause, node) in rolls {
        CommonCause::add(&mut common, cause, node);
    }
    if common.is_empty() && !is_blocked {
        out.data(&Line::new("Nothing is blocked."))?;
    }
    // What blocks comes before what passes.
    common.sort_by_key(|common| common.cause.passes());
    for mut common in common {
        out.data(&Line::default())?;
        common.cause.what = common.sentences();
        common.shorten_commands();
        let list = command_for_more(&common.cause.down, context.kubectl);
        common.cause.commands.extend(list.filter(|list| !common.cause.commands.contains(list)));
        print_paragraph(&common.cause, &common.nodes, context.now, out)?;
    }
    Ok(is_blocked)
}

fn unlisted_words(pods: usize) -> String {
    let (pods, are) = (counted(pods, "more pod"), if pods == 1 { "is" } else { "are" });
    format!("{pods} {are} blocked; the status does not list {}.", if are == "is" { "it" } else { "them" })
}

/// Prints what blocks a maintenance, and returns whether something does that does not pass by itself.
#[cfg(feature = "testing")]
pub(crate) fn explain(
    object: &NodeMaintenance,
    halted: &BTreeMap<String, HaltedRoll>,
    context: &Context<'_>,
    out: &mut Output,
) -> Result<bool, Error> {
    let judged = Judged::of(object, halted, context);
    explain_one(&judged, context, out)?;
    Ok(judged.is_blocked())
}

fn explain_one(judged: &Judged<'_>, context: &Context<'_>, out: &mut Output) -> Result<(), Error> {
    let Judged { object, causes, halted } = judged;
    let is_blocked = judged.is_blocked();
    out.wrapped_data(&headline(object))?;
    if let Some(part) = part_of_roll(object, &context.facts.rolls, context.now) {
        out.wrapped_data(&Line::new(part))?;
    }
    for cause in causes.iter().chain(halted) {
        out.data(&Line::default())?;
        print_paragraph(cause, &[], context.now, out)?;
    }
    let more = unlisted(object);
    if more > 0 {
        out.data(&Line::default())?;
        out.data(&Line::new(unlisted_words(more)))?;
    }
    let waits_for_hooks = hold(object).is_some_and(|hold| !hold.hooks.is_empty());
    // What is not known of workloads is nothing that blocks.
    let is_blocked_by_none = causes.iter().all(|cause| cause.is_outage && cause.passes());
    if !is_blocked && (is_blocked_by_none || State::of(object) == State::Draining) {
        let outlook = match (State::of(object), context.reconcilers.leadership) {
            (State::Drained, _) | (_, Leadership::Lapsed(_)) => "",
            _ if waits_for_hooks => ": the maintenance continues when the hooks are removed",
            (_, Leadership::Held) if maintenance::drain_times_out(object).is_some() => {
                ": the maintenance continues on its own until it times out"
            }
            (_, Leadership::Held) => ": the maintenance continues on its own",
            _ => ": the maintenance continues as long as nm-reconciler runs",
        };
        let coming: Vec<&Cause> = causes.iter().filter(|cause| cause.outlook == Outlook::WillBlock).collect();
        let end = if coming.is_empty() {
            format!("Nothing is blocked{outlook}.")
        } else if coming.iter().any(|cause| !cause.pods.is_empty()) {
            String::from("These pods count as blocked if nothing changes for a while.")
        } else {
            // Such as a Job that does not start: its cause says what becomes of it.
            return Ok(());
        };
        if !causes.is_empty() {
            out.data(&Line::default())?;
        }
        out.data(&Line::new(end))?;
    }
    Ok(())
}

/// `node/n1: Blocked 40%: …`.
fn headline(object: &NodeMaintenance) -> Line {
    let state = State::of(object);
    let headline = match state {
        // The reason why it is queued or failed is among the causes.
        State::Queued | State::Failed => {
            let line = Line::default().with(state.style(), state.word());
            match maintenance::drain_result(object) {
                Some(result) => line.and(": ").and(result),
                None => line,
            }
        }
        _ => maintenance::headline(object),
    };
    Line::new(format!("node/{}: ", node(object))).join(headline).and(name_unless_node(object))
}

/// A cause without its commands. `nodes` are those that it concerns, if several are explained.
fn paragraph(cause: &Cause, nodes: &[String], now: Timestamp) -> Vec<Line> {
    let style = if cause.passes() { Style::Busy } else { Style::Bad };
    let mut lines: Vec<Line> = cause.what.iter().map(|what| Line::default().with(style, what)).collect();
    if !nodes.is_empty() {
        let noun = if nodes.len() == 1 { "Node" } else { "Nodes" };
        lines.push(Line::new(format!("  {noun} {}.", first_names(nodes))));
    }
    lines.extend(extent(cause, now).map(|extent| Line::new(format!("  {extent}"))));
    lines.extend(cause.unseen.iter().map(|unseen| Line::new(format!("  {unseen}"))));
    // What passes may need nothing.
    if !cause.advice.is_empty() {
        let end = if cause.commands.is_empty() { '.' } else { ':' };
        lines.push(Line::new(format!("  {}{end}", cause.advice)));
    }
    lines
}

/// Prints a cause. A command stays on one line, so that it can be pasted.
fn print_paragraph(cause: &Cause, nodes: &[String], now: Timestamp, out: &mut Output) -> Result<(), Error> {
    for line in paragraph(cause, nodes, now) {
        out.wrapped_data(&line)?;
    }
    for command in &cause.commands {
        let command = if out.can_ask() { command.clone() } else { confirmed(command) };
        out.data(&Line::new(format!("    {command}")))?;
    }
    if !cause.left_out.is_empty() {
        let how = if nodes.len() > 1 { ONE_BY_ONE } else { ONCE_DONE };
        let words = left_out_words(cause.left_out.len(), "command");
        out.wrapped_data(&Line::new(format!("  {words}: {how}.")))?;
    }
    Ok(())
}

/// For how long: `for 3m, since 2026-01-02T03:04:05Z`. Not everything that it concerns may have begun then.
fn lasts(cause: &Cause, now: Timestamp) -> Option<String> {
    let time = |at: Timestamp| age(now.duration_since(at).as_secs());
    let since = Timestamp::from_second(cause.since?.as_second()).ok()?;
    let longest = time(since);
    Some(if cause.latest.is_none_or(|latest| time(latest) == longest) {
        format!("for {longest}, since {since}")
    } else {
        format!("for up to {longest}, the earliest since {since}")
    })
}

/// The pods, since when, and how often they were refused: `Blocks shop/cart-0 for 3m, since 2026-01-02T03:04:05Z; at least 3
/// evictions were refused.`
fn extent(cause: &Cause, now: Timestamp) -> Option<String> {
    let since = lasts(cause, now);
    let named = cause.pods.iter().take(MAX_PODS).cloned().collect::<Vec<_>>().join(", ");
    let more = match cause.pods.len().saturating_sub(MAX_PODS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let refused = match cause.refusals {
        0 => String::new(),
        // The status has the latest count once a minute.
        1 => String::from("; at least 1 eviction was refused"),
        refusals => format!("; at least {refusals} evictions were refused"),
    };
    let are_gone =
        matches!(&cause.common, Some(CommonGround::FirstCause(first)) if **first == FirstCause::PodsGone);
    if cause.outlook == Outlook::AwaitsDrain && are_gone {
        return Some(format!("Were blocked: {named}{more}{refused}."));
    }
    let verb = match cause.outlook {
        Outlook::Blocks => "Blocks",
        Outlook::WillBlock | Outlook::Passes => "Waits for",
        Outlook::AwaitsDrain | Outlook::Stays => "Staying:",
    };
    match (since, named.as_str()) {
        (None, "") => None,
        (Some(since), "") => Some(format!("Ongoing {since}.")),
        (None, named) => Some(format!("{verb} {named}{more}{refused}.")),
        (Some(since), named) => Some(format!("{verb} {named}{more} {since}{refused}.")),
    }
}

#[cfg(test)]
#[path = "explain_common_tests.rs"]
mod common_tests;
#[cfg(test)]
#[path = "explain_roll_tests.rs"]
mod roll_tests;
#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
