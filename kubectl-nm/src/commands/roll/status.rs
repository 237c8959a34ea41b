//! `kubectl nm roll status`: the rolls, and the nodes of one.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use nm_core::args::duration;
use nm_core::client::cluster::Cluster;
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::format::{DataFormat, OutputFormat, list};
use nm_core::maintenance::roll::paused_words;
use nm_core::terminal::output::Output;
use nm_core::terminal::table;
use nm_core::terminal::text::{Line, Style, counted};
use nm_roll::decide::{HEARTBEAT_TIMEOUT, NodeProgress, decide};
use nm_roll::error::RollError;
use nm_roll::health::if_permitted;
use nm_roll::in_cluster::{runner_job, starting};
use nm_roll::observed::{NodeView, Observed};
use nm_roll::record::{Roll, RollNode, RollRecord, roll_names};
use nm_roll::unfinished::{return_hint, run_again, unfinished};
use nm_roll::window::{WindowState, Windows};
use nm_shared::NodeMaintenance;
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
    /// Who finishes the nodes of an aborted roll, as far as is known; none if nobody does.
    finisher: Option<String>,
    /// Whether a program runs it, or a Job is about to.
    is_run: bool,
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
    let starting = starting_jobs(&all, args.name.as_deref(), cluster).await;
    let printed = print(&all, nodes.as_deref(), &starting, args.name.as_deref(), args.output, out);
    match (printed, &args.name) {
        (Err(error), Some(name)) if matches!(error.above(), Some(RollError::Unknown(_))) => {
            history::print(name, error, args.output, cluster, out).await?;
        }
        (printed, _) => printed?,
    }
    Ok(Exit::Done)
}

/// Of the rolls that nobody runs, those whose Jobs are about to run them, and what the Jobs show. Without permission to read a
/// Job, nothing is known of it.
async fn starting_jobs(
    all: &[NodeMaintenance],
    name: Option<&str>,
    cluster: &Cluster,
) -> BTreeMap<String, String> {
    let objects: Vec<_> = all.iter().cloned().map(Arc::new).collect();
    let mut starting = BTreeMap::new();
    for of in name.map_or_else(|| roll_names(all), |name| vec![name]) {
        let Ok(Some(roll)) = Roll::find(of, &objects) else { continue };
        let Ok(record) = roll.complete_record() else { continue };
        if roll.settings.in_cluster && record.halt.is_none() && !is_seen(&record, Timestamp::now()) {
            let job = starting::starting(cluster, of).await.ok().flatten();
            starting.extend(job.map(|job| (of.to_owned(), job)));
        }
    }
    starting
}

/// Prints the roll of this name among maintenances; a line for each roll without a name. `nodes` is none if they cannot be
/// listed. `starting`: the Jobs that are about to run rolls, by the names of the rolls.
pub(crate) fn print(
    all: &[NodeMaintenance],
    nodes: Option<&[Node]>,
    starting: &BTreeMap<String, String>,
    name: Option<&str>,
    output: OutputFormat,
    out: &mut Output,
) -> Result<(), Error> {
    let names = name.map_or_else(|| roll_names(all), |name| vec![name]);
    let objects: Vec<_> = all.iter().cloned().map(Arc::new).collect();
    let now = Timestamp::now();
    let (mut rolls, mut broken) = (Vec::new(), Vec::new());
    for of in names {
        match Roll::find(of, &objects) {
            Ok(Some(roll)) => rolls.push(RollStatus::new(roll, nodes, starting.get(of), now)),
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
                out.data(&line)?;
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
    fn new(roll: Roll, nodes: Option<&[Node]>, starting: Option<&String>, now: Timestamp) -> Self {
        let record = roll.complete_record().unwrap_or_default();
        let view = |node: &Node| (node.name_any(), NodeView::of(node, None, now));
        let views = nodes.map(|nodes| nodes.iter().map(view).collect());
        let progress = decide(&roll, &record, &Observed::shown_at(now, &roll, views)).progress;
        let finisher = finisher(&roll, &record, starting, now);
        let (state, sentence) = match (&record.halt, &record.aborted, &record.runner) {
            (_, aborted, _) if is_ending(&roll) => {
                let by = aborted.as_ref().map(|who| format!("aborted by {who}, ")).unwrap_or_default();
                (StatusWord::Ending, format!("{by}its maintenances are being deleted"))
            }
            _ if roll.is_record_lost() => {
                (StatusWord::RecordLost, String::from("its state was deleted with the maintenance of a node"))
            }
            _ if roll.record.is_none() => {
                (StatusWord::Incomplete, String::from("not all maintenances are created"))
            }
            // Nobody has to continue a roll that was aborted after it had halted.
            (_, Some(who), _) => {
                let left = counted(roll.nodes.iter().filter(|node| !node.is_leaving()).count(), "node");
                let rest = match &finisher {
                    Some(finisher) => format!("{finisher} finishes {left}"),
                    None => format!("nobody finishes the {left} left"),
                };
                (StatusWord::Aborted, format!("aborted by {who}: {rest}"))
            }
            (Some(halt), ..) => (StatusWord::Halted, format!("halted: {}", halt.message)),
            (None, None, _) if record.paused => {
                (StatusWord::Paused, paused_words(record.pause.as_ref(), now))
            }
            _ if let Some(starting) = starting => (StatusWord::Starting, starting.clone()),
            (None, None, Some(runner)) => match seconds_ago(runner.at, now) {
                // The time is that of another computer, whose clock may differ.
                None => (StatusWord::Running, format!("{} runs it", runner.who)),
                Some(seconds) => {
                    let ago = duration::age(seconds);
                    (StatusWord::NotRunning, format!("{} ran it, last seen {ago} ago", runner.who))
                }
            },
            (None, None, None) => (StatusWord::NotRunning, String::from("not running")),
        };
        let is_run = starting.is_some() || is_seen(&record, now);
        Self { roll, record, progress, state, sentence, finisher, is_run }
    }
}

/// Who finishes the nodes of an aborted roll that are left: the program that runs it, or the Job that is about to start one. A program
/// whose roll has halted finishes nothing.
fn finisher(roll: &Roll, record: &RollRecord, starting: Option<&String>, now: Timestamp) -> Option<String> {
    let aborted = record.aborted.is_some() && record.halt.is_none();
    let runner = record.runner.as_ref().filter(|_| aborted && is_seen(record, now));
    let job = || (aborted && starting.is_some()).then(|| runner_job::title(&roll.name));
    runner.map(|runner| runner.who.clone()).or_else(job)
}

/// Whether somebody has deleted what is left of a roll, so that there is nothing to continue.
fn is_ending(roll: &Roll) -> bool {
    roll.nodes.iter().all(RollNode::is_leaving)
}

/// Whether a program runs the roll, as far as is known.
fn is_seen(record: &RollRecord, now: Timestamp) -> bool {
    record.runner.as_ref().is_some_and(|runner| seconds_ago(runner.at, now).is_none())
}

/// For how many seconds a heartbeat is overdue; none if it is not.
fn seconds_ago(at: Timestamp, now: Timestamp) -> Option<i64> {
    let ago = now.duration_since(at);
    (ago >= HEARTBEAT_TIMEOUT).then(|| ago.as_secs())
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

fn print_one(status: &RollStatus, now: Timestamp, out: &mut Output) -> Result<(), Error> {
    let RollStatus { roll, record, progress, sentence, is_run, .. } = status;
    out.data(&Line::new(format!(
        "roll {}: {} done, {} left, {sentence}",
        roll.name,
        record.done.nodes,
        progress.len()
    )))?;
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
        out.data(&line)?;
    }
    if let Some(windows) = roll.settings.windows.describe(now) {
        out.data(&Line::new(format!("window {windows}")))?;
    }
    let goes_on = match status.state {
        StatusWord::Paused | StatusWord::Halted => false,
        StatusWord::Aborted => status.finisher.is_some(),
        _ => *is_run,
    };
    if !goes_on && !is_ending(roll) && (roll.record.is_some() || roll.is_record_lost()) {
        let left = unfinished(Some(roll), record);
        let again = match run_again(&left).as_slice() {
            [] => String::new(),
            again => format!(", and runs the action of {} again", again.join(", ")),
        };
        let begun = roll.nodes.iter().filter(|node| node.is_worked_on() && !node.is_leaving());
        let begun: Vec<&str> = begun.map(RollNode::node).collect();
        let returned = match (status.state, begun.as_slice()) {
            (StatusWord::Aborted, [_, ..]) => return_hint(&roll.name, &begun) + "; ",
            _ => String::new(),
        };
        out.hint(&format!("{returned}`kubectl nm roll resume {}` continues it{again}", roll.name));
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
        "finishedBy": status.finisher,
        "runner": status.record.runner,
        "nodes": status.progress.iter().map(node).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use nm_core::terminal::output::captured::output;
    use nm_roll::record::{FINALIZER, LABEL, NODE, SETTINGS, STATE};
    use nm_shared::api::names;

    use super::*;

    /// A maintenance of a roll that somebody has aborted after it had halted, at a step of its node.
    fn maintenance(step: &str, is_deleted: bool, finalizers: &[&str]) -> NodeMaintenance {
        let settings = json!({"waves": [1], "maxUnavailable": 1, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
            "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1});
        let node = json!({"wave": 0, "position": 0, "step": step, "since": "2026-01-02T03:04:05Z",
            "action": {"attempt": 1, "state": "running"}});
        let halt = json!({"node": "n1", "message": "its command failed", "at": "2026-01-02T03:04:05Z"});
        let state = json!({"revision": 2, "paused": true, "aborted": "ada@laptop", "halt": halt});
        let annotations =
            json!({SETTINGS: settings.to_string(), NODE: node.to_string(), STATE: state.to_string()});
        serde_json::from_value(json!({
            "apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
            "metadata": {"name": "n1", "labels": {LABEL: "r"}, "annotations": annotations, "finalizers": finalizers,
                "deletionTimestamp": is_deleted.then_some("2026-01-02T03:04:05Z")},
            "spec": {"nodeName": "n1"},
        }))
        .unwrap()
    }

    /// What is printed about a roll of this maintenance: its first line, and the hints.
    fn check(object: NodeMaintenance, state: &str, hints: &str) {
        let (mut out, captured) = output();
        print(&[object], None, &BTreeMap::new(), Some("r"), OutputFormat::Table, &mut out).unwrap();
        let first = captured.data().lines().next().map(str::to_owned);
        assert_eq!(first, Some(format!("roll r: 0 done, 1 left, {state}")));
        assert_eq!(captured.messages(), hints);
    }

    #[test]
    fn the_state_for_programs_is_a_word_and_the_message_has_its_cause() {
        for (object, state, message) in [
            (
                maintenance("Acting", false, &[names::FINALIZER]),
                "aborted",
                "aborted by ada@laptop: nobody finishes the 1 node left",
            ),
            (
                maintenance("Draining", true, &[names::FINALIZER]),
                "ending",
                "aborted by ada@laptop, its maintenances are being deleted",
            ),
        ] {
            let (mut out, captured) = output();
            let json = OutputFormat::Data(DataFormat::Json);
            print(&[object], None, &BTreeMap::new(), Some("r"), json, &mut out).unwrap();
            let document: Value = serde_json::from_str(&captured.data()).unwrap();
            assert_eq!((&document["state"], &document["message"]), (&json!(state), &json!(message)));
        }
    }

    #[test]
    fn a_roll_whose_job_is_starting_is_not_to_be_resumed() {
        let of_job = |is_starting: bool| {
            let mut object = maintenance("Acting", false, &[names::FINALIZER]);
            object.annotations_mut().insert(STATE.into(), json!({"revision": 2}).to_string());
            let job = ("r".to_owned(), "Job a/b is starting: its pod is not scheduled".to_owned());
            let jobs = BTreeMap::from_iter(is_starting.then_some(job));
            let (mut out, captured) = output();
            print(&[object.clone()], None, &jobs, Some("r"), OutputFormat::Table, &mut out).unwrap();
            let (first, hints) = (captured.data().lines().next().map(str::to_owned), captured.messages());
            let (mut out, captured) = output();
            print(&[object], None, &jobs, Some("r"), OutputFormat::Data(DataFormat::Json), &mut out).unwrap();
            let document: Value = serde_json::from_str(&captured.data()).unwrap();
            (first.unwrap(), hints, document["state"].clone())
        };
        let starting = "roll r: 0 done, 1 left, Job a/b is starting: its pod is not scheduled";
        assert_eq!(of_job(true), (starting.to_owned(), String::new(), json!("starting")));
        let (first, hints, state) = of_job(false);
        assert_eq!((first.as_str(), state), ("roll r: 0 done, 1 left, not running", json!("notRunning")));
        assert!(hints.contains("`kubectl nm roll resume r` continues it"), "{hints}");
    }

    #[test]
    fn an_aborted_roll_names_who_finishes_its_nodes_and_a_paused_one_who_paused_it() {
        let now = Timestamp::now();
        let runner = |ago: i64| {
            let at = now - jiff::SignedDuration::from_secs(ago);
            json!({"id": "x", "who": "Job a/b", "at": at, "inCluster": true})
        };
        let aborted =
            |ago: i64| json!({"revision": 2, "paused": true, "aborted": "ada", "runner": runner(ago)});
        let pause = json!({"by": "bob@desk", "at": now - jiff::SignedDuration::from_secs(720)});
        let paused = json!({"revision": 2, "paused": true, "pause": pause, "runner": runner(5)});
        let mut halted = aborted(5);
        halted["halt"] = json!({"node": "n1", "message": "its command failed", "at": now});
        let job = || BTreeMap::from([("r".to_owned(), "Job a/b is starting".to_owned())]);
        let title = runner_job::title("r");
        let nobody = String::from("aborted by ada: nobody finishes the 1 node left");
        for (state, jobs, sentence, finisher, is_continued) in [
            (
                aborted(5),
                BTreeMap::new(),
                String::from("aborted by ada: Job a/b finishes 1 node"),
                json!("Job a/b"),
                false,
            ),
            (aborted(600), BTreeMap::new(), nobody.clone(), Value::Null, true),
            (aborted(600), job(), format!("aborted by ada: {title} finishes 1 node"), json!(title), false),
            (halted, BTreeMap::new(), nobody, Value::Null, true),
            (paused, BTreeMap::new(), String::from("paused by bob@desk 12m ago"), Value::Null, true),
        ] {
            let mut object = maintenance("Acting", false, &[names::FINALIZER]);
            object.annotations_mut().insert(STATE.into(), state.to_string());
            let (mut out, captured) = output();
            print(&[object.clone()], None, &jobs, Some("r"), OutputFormat::Table, &mut out).unwrap();
            let first = captured.data().lines().next().map(str::to_owned);
            assert_eq!(first, Some(format!("roll r: 0 done, 1 left, {sentence}")));
            assert_eq!(
                captured.messages().contains("`kubectl nm roll resume r` continues it"),
                is_continued,
                "{state}"
            );
            let (mut out, captured) = output();
            print(&[object], None, &jobs, Some("r"), OutputFormat::Data(DataFormat::Json), &mut out).unwrap();
            let document: Value = serde_json::from_str(&captured.data()).unwrap();
            assert_eq!((&document["finishedBy"], &document["pause"]), (&finisher, &state["pause"]));
        }
    }

    #[test]
    fn the_window_for_programs_is_open_or_closed_until_a_time_or_null() {
        let now = "2027-03-06T20:00:00Z".parse().unwrap();
        for (text, expected) in [
            (None, Value::Null),
            (Some("19:00-21:00 UTC"), json!({"isOpen": true, "closes": "2027-03-06T21:00:00Z"})),
            (Some("21:00-22:00 UTC"), json!({"isOpen": false, "opens": "2027-03-06T21:00:00Z"})),
            (Some("00:00-24:00 UTC"), json!({"isOpen": true, "closes": null})),
        ] {
            let windows = Windows(text.map(|text: &str| text.parse().unwrap()).into_iter().collect());
            assert_eq!(window(&windows, now), expected, "{text:?}");
        }
    }

    #[test]
    fn an_aborted_roll_is_continued_only_if_something_is_left_of_it() {
        let ours = [names::FINALIZER];
        let ends = "aborted by ada@laptop, its maintenances are being deleted";
        check(maintenance("Draining", true, &ours), ends, "");
        let left = "aborted by ada@laptop: nobody finishes the 1 node left";
        let hint = "hint: `kubectl nm roll resume r` continues it\n";
        let returned = format!(
            "hint: `kubectl nm stop n1` or `kubectl nm roll abort r --return` returns the node to service; {}",
            hint.trim_start_matches("hint: ")
        );
        check(maintenance("Acting", false, &ours), left, &returned);
        check(maintenance("Recovering", true, &[FINALIZER]), left, hint);
    }
}
