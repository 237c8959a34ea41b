//! Runs a roll until it ends, and reports how.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use nm_core::client::cluster::Cluster;
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::maintenance::departures::departure_words;
use nm_core::maintenance::roll_window::Windows;
use nm_core::terminal::command_context::shell_quoted;
use nm_core::terminal::output::Output;
use nm_core::terminal::signals::interrupted;
use nm_core::terminal::text::{Line, counted};
use nm_dashboard::{Config, RollDashboard};
use nm_roll::absence::LeftNode;
use nm_roll::command::log_folder;
use nm_roll::record::{DoneNodes, Halt, HaltCause, Roll, RollRecord, Runner, Step};
use nm_roll::report::LineReporter;
use nm_roll::runner::{RollEnd, RollRunner};
use nm_roll::settings::{NodeAction, RollSettings};
use nm_roll::unfinished::{UnfinishedNode, again_sentences, by_step, return_hint};
use nm_roll::view::RollReporter;

use super::args::OutputArgs;
use crate::commands::outages;

/// This program, as the runner of a roll.
pub(super) fn this_runner() -> Runner {
    let now = Timestamp::now();
    let variable = |names: [&str; 2]| names.iter().find_map(|name| env::var(name).ok());
    let user = variable(["USER", "USERNAME"]).unwrap_or_else(|| String::from("somebody"));
    let who = format!("{user}@{}", host());
    Runner {
        id: format!("{who}/{}/{}", std::process::id(), now.as_nanosecond()),
        who,
        at: now,
        in_cluster: false,
        node: None,
    }
}

#[cfg(unix)]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host() -> String {
    env::var("COMPUTERNAME").unwrap_or_default()
}

pub(super) fn dashboard(
    name: &str,
    log: Option<PathBuf>,
    output: &OutputArgs,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<RollDashboard, Error> {
    let (config, notice) = Config::load(out);
    let appearance = output.appearance.on(out, config.theme, config.ascii);
    RollDashboard::open(name, appearance, config.keys, log, notice, cluster.clone())
}

/// The path as a shell takes it, with `~` for the home.
fn below_home(path: &Path, home: Option<OsString>) -> PathBuf {
    let home = home.map(PathBuf::from).filter(|home| home.is_absolute());
    let below = home.and_then(|home| path.strip_prefix(home).ok().map(Path::to_owned));
    below.map_or_else(|| path.to_owned(), |below| Path::new("~").join(below))
}

/// Runs a roll whose record has this program as its runner. `retried` is why it had halted before.
pub(super) async fn run(
    roll: &Roll,
    record: RollRecord,
    retried: Option<Halt>,
    output: &OutputArgs,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    let name = roll.name.as_str();
    let has_commands = roll.settings.actions().any(|(step, _)| roll.settings.runs_command(step));
    let log = has_commands.then(|| log_folder(name, |variable| env::var_os(variable))).flatten();
    if let Some(log) = &log {
        out.message(&Line::new(format!("The output of the commands is kept in {}.", log.display())));
    }
    let shown_log = log.as_deref().map(|log| below_home(log, env::var_os("HOME")));
    let mut runner = RollRunner::new(cluster, roll, record, retried, log);
    let ended = match output.lines(out) {
        Some(format) => {
            until_ended(&mut runner, &mut LineReporter::new(out, format).with_leader_check(cluster)).await
        }
        None => match dashboard(name, shown_log, output, cluster, out) {
            Ok(mut dashboard) => {
                let ended = until_ended(&mut runner, &mut dashboard).await;
                dashboard.close().iter().for_each(|line| out.message(line));
                ended
            }
            Err(error) => Err(error),
        },
    };
    if !matches!(ended, Ok(RollEnd::TakenOver(_))) {
        runner.release().await;
    }
    let unfinished = runner.unfinished();
    let resume = format!("kubectl nm roll resume {name}");
    let confirmed = confirmation(&roll.settings, out);
    let continues = format!("`{resume}{confirmed}` continues");
    Ok(match ended {
        Ok(RollEnd::Left) => {
            report_interrupted(name, runner.is_stored(), &continues, &unfinished, runner.left(), out);
            Exit::Interrupted
        }
        Err(error) => {
            out.message(&Line::new(format!("Roll {name} cannot continue.")));
            report_unfinished(&unfinished, runner.left(), out);
            out.hint(&format!("{continues} once this is fixed"));
            return Err(error);
        }
        Ok(RollEnd::Done(record)) => report_done(roll, &record, cluster, out).await,
        Ok(RollEnd::Halted(halt, begun)) => {
            out.error(format!("roll {name} halted: {}", halt.message));
            report_unfinished(&unfinished, runner.left(), out);
            if let Some(who) = runner.aborted() {
                out.message(&Line::new(format!("{who} aborted the roll.")));
                let begun: Vec<&str> = begun.iter().map(String::as_str).collect();
                if !begun.is_empty() {
                    out.hint(&format!("{}; {continues}", return_hint(name, &begun)));
                }
                return Ok(Exit::Failed);
            }
            let continues = match halt.cause {
                Some(HaltCause::DrainTimedOut) => {
                    let evicts = evicted_within(&unfinished, ANOTHER_HOUR, Timestamp::now());
                    format!(
                        "`{resume} --timeout 1h{confirmed}` continues the drain for up to another hour{evicts}"
                    )
                }
                _ => continues,
            };
            let without = match halt.node.as_str() {
                "" => String::new(),
                node => {
                    out.hint(&format!(
                        "`kubectl nm explain {}` shows why, and what to do",
                        shell_quoted(node)
                    ));
                    let skip = runner.skip_consequence(node);
                    let skip = skip.map(|becomes| {
                        format!(" (add --skip {node} to continue without this node{becomes})")
                    });
                    skip.unwrap_or_default()
                }
            };
            let returned = match begun.as_slice() {
                [] => String::new(),
                begun => format!(" (add --return to also return {} to service)", begun.join(", ")),
            };
            out.hint(&format!(
                "{continues}{without}; `kubectl nm roll abort {name}` aborts the roll{returned}"
            ));
            Exit::Failed
        }
        Ok(RollEnd::Aborted(who, record)) => {
            out.message(&Line::new(format!("{who} aborted roll {name}: {}.", totals(roll, &record))));
            report_unfinished(&unfinished, runner.left(), out);
            Exit::Lost
        }
        Ok(RollEnd::TakenOver(other)) => {
            out.message(&Line::new(format!("{} runs roll {name} now.", other.who)));
            Exit::Lost
        }
    })
}

/// Reports what a roll has done, and what it left.
pub(super) async fn report_done(
    roll: &Roll,
    record: &RollRecord,
    cluster: &Cluster,
    out: &mut Output,
) -> Exit {
    for line in summary(roll, record) {
        out.message(&line);
    }
    outages::report_preempted(roll, record, cluster, out).await;
    if record.done.nodes >= roll.settings.nodes() { Exit::Done } else { Exit::Failed }
}

/// How much longer a drain that has timed out may take if its roll is continued as the hint says, which extends the drains of all
/// nodes.
const ANOTHER_HOUR: SignedDuration = SignedDuration::from_hours(1);

/// That drains that have failed evict pods that they have waited for if they continue for so long.
fn evicted_within(nodes: &[UnfinishedNode], time: SignedDuration, now: Timestamp) -> &'static str {
    let evicts = |node: &UnfinishedNode| node.evicts_awaited.is_some_and(|at| at.duration_since(now) < time);
    if nodes.iter().any(evicts) { ", and evicts pods that were to terminate on their own" } else { "" }
}

/// Reports when nodes may start.
pub(super) fn report_windows(windows: &Windows, out: &mut Output) {
    if let Some(windows) = windows.describe(Timestamp::now()) {
        out.message(&Line::new(format!("Nodes start only in the window {windows}.")));
    }
}

/// Reports what becomes of a roll that the user has left: another program finds it, if it is stored in a maintenance.
fn report_interrupted(
    name: &str,
    is_stored: bool,
    continues: &str,
    unfinished: &[UnfinishedNode],
    left: &[LeftNode],
    out: &mut Output,
) {
    let becomes = if is_stored { "stays as it is" } else { "has ended, because none of its nodes exists" };
    out.message(&Line::new(format!("Interrupted. Roll {name} {becomes}.")));
    report_unfinished(unfinished, left, out);
    if is_stored {
        out.hint(continues);
    }
}

/// Names every node that is not done, even if it has left the roll, and those whose action is repeated.
fn report_unfinished(nodes: &[UnfinishedNode], left: &[LeftNode], out: &mut Output) {
    let in_roll = Some(by_step(nodes)).filter(|nodes| !nodes.is_empty());
    let not_done: Vec<String> = in_roll.into_iter().chain(departed(left)).collect();
    if !not_done.is_empty() {
        out.message(&Line::new(format!("Not done: {}.", not_done.join("; "))));
    }
    for again in again_sentences(nodes) {
        out.message(&Line::new(again));
    }
}

/// The flags with which `roll resume` is confirmed where it cannot ask: those of the commands and Jobs of the roll.
fn confirmation(settings: &RollSettings, out: &Output) -> String {
    if out.can_ask() {
        return String::new();
    }
    let flags = settings.actions().map(|(step, action)| {
        let (command_flag, job_flag) = match step {
            Step::Preparing => ("--before", "--before-job"),
            Step::Finishing => ("--after", "--after-job"),
            _ => ("--run", "--job"),
        };
        match action {
            NodeAction::Run(command) => format!(" {command_flag} {}", shell_quoted(command)),
            NodeAction::Job(_) => format!(" {job_flag} FILE"),
        }
    });
    let flags: String = flags.collect();
    if flags.is_empty() { String::from(" --yes") } else { flags }
}

/// What became of the nodes of a roll: `3 nodes done, 7 pods gone`, or `1 of 3 nodes done (7 pods gone), 1 skipped, 1 departed`.
fn totals(roll: &Roll, record: &RollRecord) -> String {
    let RollRecord { left, skipped, done, .. } = record;
    let all = roll.settings.nodes();
    let pods = departure_words(done.pods, &done.departures.unwrap_or_default(), "");
    let finished = match done.nodes {
        nodes if nodes >= all => return format!("{}, {pods}", counted(all, "node")),
        0 => format!("none of {} done", counted(all, "node")),
        nodes if done.pods == 0 => format!("{nodes} of {} done", counted(all, "node")),
        nodes => format!("{nodes} of {} done ({pods})", counted(all, "node")),
    };
    let others = [(skipped.len(), "skipped"), (left.len(), "departed")];
    let others = others.into_iter().filter(|(count, _)| *count > 0);
    others.fold(finished, |text, (count, what)| format!("{text}, {count} {what}"))
}

/// `n3 (its maintenance was deleted), n4 (the node was deleted)`; none if no node has left the roll.
fn departed(left: &[LeftNode]) -> Option<String> {
    let left: Vec<String> = left.iter().map(|left| format!("{} ({})", left.node, left.why.words())).collect();
    (!left.is_empty()).then(|| left.join(", "))
}

/// The end of a roll, in sentences.
pub(super) fn summary(roll: &Roll, record: &RollRecord) -> Vec<Line> {
    let RollRecord { left, skipped, unknown, .. } = record;
    let ended = if record.done.nodes >= roll.settings.nodes() { "is done" } else { "has ended" };
    let mut lines = vec![Line::new(format!("Roll {} {ended}: {}.", roll.name, totals(roll, record)))];
    if !skipped.is_empty() {
        lines.push(Line::new(format!("Skipped: {}.", skipped.join(", "))));
    }
    if let Some(left) = departed(left) {
        lines.push(Line::new(format!("Not done: {left}.")));
    }
    if !record.done.unchecked.is_empty() {
        let unchecked: Vec<String> = record.done.unchecked.iter().map(ToString::to_string).collect();
        let more = if unchecked.len() < DoneNodes::MAX_UNCHECKED { "" } else { ", and perhaps others" };
        let unchecked = unchecked.join(", ");
        lines.push(Line::new(format!(
            "Not checked after a drain, because not healthy before it: {unchecked}{more}."
        )));
    }
    if let Some(unknown) = unknown.filter(|unknown| *unknown > 0) {
        lines.push(Line::new(format!("Unknown: whether the other nodes ({unknown}) are done.")));
    }
    lines
}

async fn until_ended(runner: &mut RollRunner<'_>, reporter: &mut dyn RollReporter) -> Result<RollEnd, Error> {
    tokio::select! {
        () = interrupted() => Ok(RollEnd::Left),
        ended = runner.run(reporter) => ended,
    }
}

#[cfg(test)]
mod tests {
    use nm_core::maintenance::departures::Departures;
    use nm_core::terminal::output::captured::output;
    use nm_roll::absence::Departure;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_end_of_a_roll_names_what_it_has_not_done() {
        let settings = json!({"waves": [3], "maxUnavailable": 1, "minReadySeconds": 30,
            "actionTimeoutSeconds": 1, "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
        let settings = serde_json::from_value(settings).unwrap();
        let roll = Roll { name: "r".into(), settings, nodes: Vec::new(), record: None };
        let gone = LeftNode { node: "n3".into(), why: Departure::MaintenanceDeleted };
        let end = |nodes: usize, skipped: &[&str], unknown: Option<usize>| {
            let left = Vec::from_iter((nodes + skipped.len() < 2 && unknown.is_none()).then(|| gone.clone()));
            let done = DoneNodes { nodes, pods: 7, ..DoneNodes::default() };
            let skipped = skipped.iter().map(ToString::to_string).collect();
            let (mut out, captured) = output();
            let record = RollRecord { left, skipped, done, unknown, ..RollRecord::default() };
            for line in summary(&roll, &record) {
                out.message(&line);
            }
            captured.messages()
        };
        assert_eq!(end(3, &[], None), "Roll r is done: 3 nodes, 7 pods gone.\n");
        let departures = Some(Departures { moved: 5, unmanaged: 2, ..Departures::default() });
        let done = DoneNodes { nodes: 3, pods: 7, departures, ..DoneNodes::default() };
        assert_eq!(
            summary(&roll, &RollRecord { done, ..RollRecord::default() })[0].to_string(),
            "Roll r is done: 3 nodes, 7 pods gone, including 2 deleted (no controller)."
        );
        let done = json!({"nodes": 3, "pods": 7, "unchecked": [{"kind": "Deployment", "namespace": "shop", "name": "web"}]});
        let done = serde_json::from_value(done).unwrap();
        assert_eq!(
            summary(&roll, &RollRecord { done, ..RollRecord::default() })[1].to_string(),
            "Not checked after a drain, because not healthy before it: Deployment shop/web."
        );
        let skipped = "Roll r has ended: 1 of 3 nodes done (7 pods gone), 2 skipped.\nSkipped: n1, n2.\n";
        assert_eq!(end(1, &["n1", "n2"], None), skipped);
        let left = "Roll r has ended: 1 of 3 nodes done (7 pods gone), 1 departed.\n\
             Not done: n3 (its maintenance was deleted).\n";
        assert_eq!(end(1, &[], None), left);
        assert!(
            end(0, &["n1"], None)
                .starts_with("Roll r has ended: none of 3 nodes done, 1 skipped, 1 departed.\n")
        );
        assert!(end(2, &[], Some(1)).ends_with("Unknown: whether the other nodes (1) are done.\n"));
    }

    #[test]
    fn what_a_roll_leaves_names_the_nodes_that_have_left_it() {
        let reported = |nodes: &[UnfinishedNode], left: &[LeftNode]| {
            let (mut out, captured) = output();
            report_unfinished(nodes, left, &mut out);
            captured.messages()
        };
        let acting = UnfinishedNode {
            node: "n1".into(),
            step: Some(Step::Acting),
            runs_again: false,
            awaits_reboot: false,
            evicts_awaited: None,
        };
        let now = Timestamp::UNIX_EPOCH;
        let evicts = |at: Option<i64>| {
            let at = at.map(|at| Timestamp::from_second(at).unwrap());
            let failed = UnfinishedNode { evicts_awaited: at, ..acting.clone() };
            !evicted_within(&[acting.clone(), failed], ANOTHER_HOUR, now).is_empty()
        };
        assert_eq!([None, Some(-60), Some(60), Some(7200)].map(evicts), [false, true, true, false]);
        let gone = LeftNode { node: "n2".into(), why: Departure::MaintenanceDeleted };
        let expected = "Not done: n1 (Acting); n2 (its maintenance was deleted).\n";
        assert_eq!(reported(std::slice::from_ref(&acting), std::slice::from_ref(&gone)), expected);
        assert_eq!(reported(&[acting], &[]), "Not done: n1 (Acting).\n");
        assert_eq!(reported(&[], &[gone]), "Not done: n2 (its maintenance was deleted).\n");
        assert_eq!(reported(&[], &[]), "");
    }

    #[test]
    fn a_path_below_the_home_begins_with_a_tilde() {
        for (path, home, shown) in [
            ("/home/ada/.local/log", Some("/home/ada"), "~/.local/log"),
            ("/home/adam/log", Some("/home/ada"), "/home/adam/log"),
            ("/srv/log", Some(""), "/srv/log"),
            ("/srv/log", None, "/srv/log"),
        ] {
            assert_eq!(below_home(Path::new(path), home.map(OsString::from)), Path::new(shown));
        }
    }
}
