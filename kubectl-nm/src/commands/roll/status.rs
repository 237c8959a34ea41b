//! `kubectl nm roll status`: the rolls, and the nodes of one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use nm_core::args::duration::{self, TimeStyle};
use nm_core::client::cluster::Cluster;
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::format::{DataFormat, OutputFormat, list};
use nm_core::interaction::progress;
use nm_core::leader::changes::LeaderNeed;
use nm_core::leader::gap;
use nm_core::maintenance::roll::paused_words;
use nm_core::maintenance::roll_job::RollJob;
use nm_core::maintenance::roll_window::{WindowState, Windows};
use nm_core::terminal::command_context::shell_quoted;
use nm_core::terminal::output::Output;
use nm_core::terminal::table;
use nm_core::terminal::text::{Line, Style, counted};
use nm_roll::by_now::{ByNow, halted_words};
use nm_roll::decide::{NodeProgress, decide};
use nm_roll::error::RollError;
use nm_roll::finisher::{Finisher, RunnerSign, finisher, is_seen};
use nm_roll::halted::{find_rolls, forget_reboot, job_log};
use nm_roll::health::{self, if_permitted};
use nm_roll::in_cluster::starting::starting_jobs;
use nm_roll::job;
use nm_roll::observed::{NodeView, Observed};
use nm_roll::record::{ProbedHealth, Roll, RollNode, RollRecord, Step, roll_name, roll_names};
use nm_roll::skip;
use nm_roll::unfinished::{return_hint, run_again, runs_unless_rebooted, unfinished};
use nm_shared::NodeMaintenance;
use nm_shared::cluster::node;
use serde_json::{Value, json};

use super::args::StatusArgs;
use super::history;

/// A roll as `status` shows it.
struct RollStatus {
    roll: Roll,
    record: RollRecord,
    progress: Vec<NodeProgress>,
    state: StatusWord,
    /// The state, with its cause.
    sentence: String,
    /// Who finishes the nodes of an aborted roll; nobody, if it is not aborted.
    finisher: Finisher,
    /// What its Job shows while no program runs it.
    job: Option<RollJob>,
    /// Whether a program runs it, or a Job is about to.
    is_run: bool,
    /// The node that halted it, if that does not exist or is not Ready.
    off: Option<String>,
}

/// The state of a roll, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
enum StatusWord {
    /// A program runs it.
    Running,
    /// No program runs it yet, and a Job in the cluster will.
    Starting,
    /// No program runs it.
    NotRunning,
    /// Somebody has paused it.
    Paused,
    /// It has halted.
    Halted,
    /// Somebody has aborted it, and nodes are left to finish.
    Aborted,
    /// Its maintenances are being deleted.
    Ending,
    /// Not all of its maintenances are created.
    Incomplete,
    /// Its state was deleted with the maintenance of a node.
    RecordLost,
}

pub(super) async fn run(args: &StatusArgs, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let all = cluster.maintenances().await?;
    let nodes = cluster.list(&Api::<Node>::all(cluster.client()), "nodes", &ListParams::default()).await;
    let nodes = if_permitted(nodes)?;
    let seen = Surroundings::read(args, &all, cluster).await;
    let printed = print(&all, nodes.as_deref(), &seen, args.name.as_deref(), args.output, out);
    match (printed, &args.name) {
        (Err(error), Some(name)) if matches!(error.above(), Some(RollError::Unknown(_))) => {
            history::print(name, args.output, cluster, out).await?;
        }
        (printed, _) => printed?,
    }
    if !matches!(args.output, OutputFormat::Data(_)) {
        warn_of_leader(args.name.as_deref(), &all, cluster, out).await;
    }
    Ok(Exit::Done)
}

/// Warns that nobody leads if a node of the rolls that are shown needs that, as far as the user may see it.
async fn warn_of_leader(name: Option<&str>, all: &[NodeMaintenance], cluster: &Cluster, out: &mut Output) {
    let is_shown =
        |object: &&NodeMaintenance| roll_name(object).is_some_and(|of| name.is_none_or(|name| name == of));
    let need = LeaderNeed::of_all(all.iter().filter(is_shown));
    if need == LeaderNeed::Nothing {
        return;
    }
    let message = || format!("asking {} who leads", cluster.server());
    let warning = Box::pin(gap::warning(cluster, need == LeaderNeed::ToBegin));
    if let Some(warning) = progress::during(out, message, warning).await {
        out.message(&warning);
    }
}

/// What is read of rolls besides maintenances and nodes.
#[derive(Debug, Default)]
pub(crate) struct Surroundings {
    /// The Jobs that are about to run rolls, by the names of the rolls.
    starting: BTreeMap<String, RollJob>,
    /// Why the Jobs of the nodes of the roll that is shown do not start, by node.
    problems: BTreeMap<String, String>,
    /// The health of the nodes of the roll that is shown, if no program checks it.
    health: Vec<ProbedHealth>,
}

impl Surroundings {
    async fn read(args: &StatusArgs, all: &[NodeMaintenance], cluster: &Cluster) -> Self {
        let name = args.name.as_deref();
        let names: BTreeSet<&str> =
            name.map_or_else(|| roll_names(all), |name| vec![name]).into_iter().collect();
        let rolls = find_rolls(&names, all);
        let shown = name.and_then(|name| rolls.get(name));
        let problems = async {
            match shown {
                Some(roll) => job::problem_words(cluster, roll).await,
                None => BTreeMap::new(),
            }
        };
        let health = async {
            match shown {
                Some(roll) => health::probe(cluster, roll, None, Timestamp::now()).await,
                None => Vec::new(),
            }
        };
        let (starting, problems, health) =
            tokio::join!(starting_jobs(rolls.values(), cluster), problems, health);
        Self { starting, problems, health }
    }
}

/// Prints the roll of this name among maintenances; a line for each roll without a name. `nodes` is none if they cannot be
/// listed.
pub(crate) fn print(
    all: &[NodeMaintenance],
    nodes: Option<&[Node]>,
    seen: &Surroundings,
    name: Option<&str>,
    output: OutputFormat,
    out: &mut Output,
) -> Result<(), Error> {
    let names = name.map_or_else(|| roll_names(all), |name| vec![name]);
    let objects: Vec<_> = all.iter().cloned().map(Arc::new).collect();
    let now = Timestamp::now();
    // Who reads data may have kept it.
    let times = if matches!(output, OutputFormat::Data(_)) { TimeStyle::At } else { TimeStyle::Ago(now) };
    let (mut rolls, mut broken) = (Vec::new(), Vec::new());
    for of in names {
        match Roll::find(of, &objects) {
            Ok(Some(roll)) => rolls.push(RollStatus::new(roll, nodes, seen, now, times)),
            Ok(None) => return Err(RollError::Unknown(of.to_owned()).into()),
            Err(error) if name.is_some() => return Err(error.into()),
            Err(error) => broken.push(Error::from(error)),
        }
    }
    match (output, name) {
        (OutputFormat::Data(format), name) => data(&rolls, name.is_some(), now, format, out)?,
        (_, Some(_)) => {
            for roll in &rolls {
                print_one(roll, now, out)?;
            }
        }
        (_, None) if rolls.is_empty() && !broken.is_empty() => {}
        (_, None) if rolls.is_empty() => {
            out.message(&Line::new("No rolls found. A roll is gone when its last node is done."));
        }
        (_, None) => {
            let rows: Vec<Vec<(Style, String)>> = rolls.iter().map(row).collect();
            for line in table::lines(&["ROLL", "DONE", "LEFT", "STATE"], &rows) {
                out.data_with_commands(&line)?;
            }
        }
    }
    // The others are shown nevertheless.
    let last = broken.pop();
    for error in &broken {
        error.print(out);
    }
    last.map_or(Ok(()), Err)
}

impl RollStatus {
    /// `times`: how the sentence states times.
    fn new(
        roll: Roll,
        nodes: Option<&[Node]>,
        seen: &Surroundings,
        now: Timestamp,
        times: TimeStyle,
    ) -> Self {
        let job = seen.starting.get(&roll.name);
        let record = roll.complete_record().unwrap_or_default();
        let view = |node: &Node| (node.name_any(), NodeView::of(node, None, now));
        let views = nodes.map(|nodes| nodes.iter().map(view).collect());
        let observed = Observed::shown_at(now, &roll, views).with_health(seen.health.iter().cloned());
        let mut progress = decide(&roll, &record, &observed).progress;
        job::add_problems(&mut progress, &seen.problems);
        let finisher = match record.aborted {
            Some(_) => finisher(&roll, &record, RunnerSign::seen(&record, now), job, now),
            None => Finisher::Nobody,
        };
        let unread = match job {
            Some(RollJob::Unread(error)) => format!("; its Job cannot be read: {error}"),
            _ => String::new(),
        };
        let (state, sentence) = match (&record.halt, &record.aborted, &record.runner) {
            (_, aborted, _) if is_ending(&roll) => {
                let by = aborted.as_ref().map(|who| format!("aborted by {who}, ")).unwrap_or_default();
                (StatusWord::Ending, format!("{by}its maintenances are being deleted"))
            }
            _ if roll.is_record_lost() => {
                (StatusWord::RecordLost, String::from("its state was deleted with the maintenance of a node"))
            }
            _ if roll.record.is_none() => {
                (StatusWord::Incomplete, String::from("not all maintenances exist"))
            }
            // Nobody has to continue a roll that was aborted after it had halted.
            (_, Some(who), _) => {
                let left = counted(roll.nodes.iter().filter(|node| !node.is_leaving()).count(), "node");
                let rest = match &finisher {
                    Finisher::Known(who) => format!("{who} finishes {left}"),
                    Finisher::Perhaps(who) => {
                        format!("nobody finishes the {left} left, unless {who} still runs the roll")
                    }
                    Finisher::Nobody => format!("nobody finishes the {left} left"),
                };
                (StatusWord::Aborted, format!("aborted by {who}: {rest}"))
            }
            (Some(halt), ..) => {
                (StatusWord::Halted, halted_words(halt, by_now(&roll, &record, &progress), times))
            }
            (None, None, _) if record.paused => {
                (StatusWord::Paused, paused_words(record.pause.as_ref(), times))
            }
            _ if let Some(words) = job.and_then(RollJob::words) => (StatusWord::Starting, words.to_owned()),
            // The time is that of another computer, whose clock may differ.
            (None, None, Some(runner)) if is_seen(&record, now) => {
                (StatusWord::Running, format!("{} runs it", runner.who))
            }
            (None, None, Some(runner)) => {
                let seen = times.words(runner.at);
                (StatusWord::NotRunning, format!("{} ran it, last seen {seen}{unread}", runner.who))
            }
            (None, None, None) => (StatusWord::NotRunning, format!("not running{unread}")),
        };
        let is_run = job.is_some_and(|job| job.words().is_some()) || is_seen(&record, now);
        let halted = record.halt.as_ref().map(|halt| halt.node.as_str()).filter(|node| !node.is_empty());
        let is_off = |name: &&str| {
            let named = |nodes: &[Node]| nodes.iter().find(|node| node.name_any() == **name).cloned();
            nodes.is_some_and(|nodes| !named(nodes).is_some_and(|node| node::reports_ready(&node)))
        };
        let off = halted.filter(is_off).filter(|_| state == StatusWord::Halted).map(str::to_owned);
        Self { roll, record, progress, state, sentence, finisher, job: job.cloned(), is_run, off }
    }
}

/// What has become of the node that halted a roll.
fn by_now(roll: &Roll, record: &RollRecord, progress: &[NodeProgress]) -> Option<ByNow> {
    ByNow::of_departed(roll, record).or_else(|| progress.iter().find_map(|node| node.by_now))
}

/// Whether somebody has deleted what is left of a roll, so that there is nothing to continue.
fn is_ending(roll: &Roll) -> bool {
    roll.nodes.iter().all(RollNode::is_leaving)
}

fn row(status: &RollStatus) -> Vec<(Style, String)> {
    let style = if status.state == StatusWord::Halted { Style::Bad } else { Style::Plain };
    vec![
        (Style::Plain, status.roll.name.clone()),
        (Style::Plain, status.record.done.nodes.to_string()),
        (Style::Plain, status.progress.len().to_string()),
        (style, status.sentence.clone()),
    ]
}

/// The nodes that are no longer part of the roll and are not done: `1 skipped (n3), 1 departed (n4), `.
fn others(record: &RollRecord, progress: &[NodeProgress]) -> String {
    // One that could not be removed is still there.
    let is_gone = |name: &&str| !progress.iter().any(|node| node.node == *name);
    let skipped: Vec<&str> = record.skipped.iter().map(String::as_str).filter(is_gone).collect();
    let departed: Vec<&str> = record.left.iter().map(|left| left.node.as_str()).filter(is_gone).collect();
    let others = [(skipped, "skipped"), (departed, "departed")];
    others.iter().filter(|(nodes, _)| !nodes.is_empty()).fold(String::new(), |text, (nodes, what)| {
        format!("{text}{} {what} ({}), ", nodes.len(), nodes.join(", "))
    })
}

fn print_one(status: &RollStatus, now: Timestamp, out: &mut Output) -> Result<(), Error> {
    let RollStatus { roll, record, progress, sentence, is_run, .. } = status;
    let (name, done, remaining) = (&roll.name, record.done.nodes, progress.len());
    let others = others(record, progress);
    out.data(&Line::new(format!("roll {name}: {done} done, {others}{remaining} left, {sentence}")))?;
    let rows: Vec<Vec<(Style, String)>> = progress
        .iter()
        .map(|node| {
            let age = duration::age(now.duration_since(node.since).as_secs());
            vec![
                (Style::Plain, node.wave.saturating_add(1).to_string()),
                (Style::Plain, node.node.clone()),
                (Style::Plain, node.step.word().to_owned()),
                (Style::Plain, age),
                (Style::Plain, node.detail.clone()),
            ]
        })
        .collect();
    for line in table::lines(&["WAVE", "NODE", "STEP", "FOR", "DETAIL"], &rows) {
        out.data_with_commands(&line)?;
    }
    if let Some(windows) = roll.settings.windows.describe(now) {
        out.data(&Line::new(format!("window {windows}")))?;
    }
    if let Some((job, repair)) =
        status.job.as_ref().and_then(|job| Some((job, job.repair(&roll.name, "kubectl")?)))
        && !is_ending(roll)
    {
        // Without that, a plain resume changes nothing.
        out.hint(&format!("{}: `{repair}`", job.advice()));
        return Ok(());
    }
    let confirming = progress.iter().filter(|node| node.step == Step::Confirming);
    let confirming: Vec<&str> = confirming.map(|node| node.node.as_str()).collect();
    if let (StatusWord::Running, Some(runner), [_, ..]) = (status.state, &record.runner, &*confirming) {
        out.hint(&format!(
            "on the terminal where {} runs the roll, answer whether it continues with {}",
            runner.who,
            confirming.join(", ")
        ));
    }
    if status.state == StatusWord::Incomplete {
        out.hint(&format!(
            "unless a program is just starting the roll, `kubectl nm roll abort {}` deletes those that exist; then run the roll again",
            roll.name
        ));
    }
    let goes_on = match status.state {
        StatusWord::Paused | StatusWord::Halted => false,
        StatusWord::Aborted => matches!(status.finisher, Finisher::Known(_)),
        _ => *is_run,
    };
    if !goes_on && !is_ending(roll) && (roll.record.is_some() || roll.is_record_lost()) {
        let (mut left, by_now) = (unfinished(Some(roll), record), by_now(roll, record, progress));
        forget_reboot(&mut left, by_now);
        let again = match run_again(&left).as_slice() {
            [] => String::new(),
            again => format!(", and runs the action of {} again", again.join(", ")),
        };
        let unless_rebooted =
            runs_unless_rebooted(&left).map(|again| format!("; {again}")).unwrap_or_default();
        let becomes =
            status.off.as_ref().and_then(|node| Some((node, skip::consequence(node, roll, record)?)));
        let skip = becomes.map(|(node, becomes)| format!("; with --skip {node}, without that node{becomes}"));
        let skip = skip.unwrap_or_default();
        let begun = roll.nodes.iter().filter(|node| node.is_worked_on() && !node.is_leaving());
        let begun: Vec<&str> = begun.map(RollNode::node).collect();
        let halted =
            record.halt.as_ref().and_then(|halt| roll.node(&halt.node)).filter(|node| !node.is_leaving());
        let first = match (status.state, begun.as_slice(), halted) {
            (StatusWord::Aborted, [_, ..], _) => return_hint(&roll.name, &begun) + "; ",
            (StatusWord::Halted, _, Some(halted)) if by_now.is_none() => {
                let log =
                    job::failed(roll, halted).map(|(namespace, name)| job_log("kubectl", &namespace, &name));
                let log = log.map(|log| format!("`{log}` shows what its Job printed; ")).unwrap_or_default();
                let explain = shell_quoted(halted.node());
                format!("{log}`kubectl nm explain {explain}` shows why, and what to do; then ")
            }
            _ => String::new(),
        };
        // Commands and Jobs would have to be repeated, and each node needs a terminal.
        let is_confirmed_by_yes =
            roll.settings.actions().next().is_none() && !roll.settings.confirm && !out.can_ask();
        let confirmed = if is_confirmed_by_yes { " --yes" } else { "" };
        out.hint(&format!(
            "{first}`kubectl nm roll resume {}{confirmed}` continues it{again}{unless_rebooted}{skip}",
            roll.name
        ));
    }
    Ok(())
}

fn data(
    rolls: &[RollStatus],
    alone: bool,
    now: Timestamp,
    format: DataFormat,
    out: &mut Output,
) -> Result<(), Error> {
    let items: Vec<Value> = rolls.iter().map(|roll| document(roll, now)).collect();
    match items.as_slice() {
        [only] if alone => format.print(only, out),
        items => format.print(&list(items), out),
    }
}

/// When nodes may start; null if they may at any time.
fn window(windows: &Windows, now: Timestamp) -> Value {
    match windows.at(now) {
        _ if windows.0.is_empty() => Value::Null,
        WindowState::Open { until } => json!({"isOpen": true, "closes": until}),
        WindowState::Closed { opens } => json!({"isOpen": false, "opens": opens}),
    }
}

fn document(status: &RollStatus, now: Timestamp) -> Value {
    let node = |node: &NodeProgress| {
        json!({
            "node": node.node,
            "wave": node.wave.saturating_add(1),
            "step": node.step.word(),
            "since": node.since,
            "detail": node.detail,
        })
    };
    let finished_by = match &status.finisher {
        Finisher::Known(who) => Some(who),
        Finisher::Perhaps(_) | Finisher::Nobody => None,
    };
    json!({
        "kind": "Roll",
        "version": 1,
        "name": status.roll.name,
        "state": status.state,
        "message": status.sentence,
        "window": window(&status.roll.settings.windows, now),
        "settings": status.roll.settings,
        "done": status.record.done,
        "skipped": status.record.skipped,
        "left": status.record.left,
        "halt": status.record.halt,
        "paused": status.record.paused,
        "pause": status.record.pause,
        "finishedBy": finished_by,
        "runner": status.record.runner,
        "nodes": status.progress.iter().map(node).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
