//! `kubectl nm watch`: the dashboard on a terminal; elsewhere one line per change, for logs and scripts.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use futures::StreamExt;
use jiff::Timestamp;
use nm_core::args::duration;
use nm_core::args::names;
use nm_core::client::all_groups;
use nm_core::client::cluster::Cluster;
use nm_core::client::merged_watch::watch_maintenances;
use nm_core::client::nodes::{check_exist, unchecked};
use nm_core::client::watch_stream::{WatchChange, WatchPolicy};
use nm_core::error::exit::Exit;
use nm_core::error::{Error, no_such_nodes};
use nm_core::interaction::progress;
use nm_core::leader::changes::{LeaderNeed, leader_changes};
use nm_core::maintenance::node;
use nm_core::terminal::command_context::shell_quoted;
use nm_core::terminal::output::Output;
use nm_core::terminal::signals::interrupted;
use nm_core::terminal::text::{Line, counted};
use nm_core::watch::deleted_nodes::DeletedNodes;
use nm_core::watch::event_loop::{self, LoopEvent};
use nm_core::watch::exit_summary::dashboard_summary;
use nm_core::watch::goal_tracker::{ExitCondition, Goal, GoalTracker, TrackerUpdate};
use nm_core::watch::ndjson::NdjsonReporter;
use nm_core::watch::wait_reporter::{ReportMode, WaitReporter};
use nm_dashboard::recording::error::RecordingError;
use nm_dashboard::{
    self, AppearanceFlags, Config, DashboardExit, EndReason, Header, HeadlessRecording, NewRecording,
    Options, RECORDING_VERSION, Recorder, RecordingMode,
};
use nm_shared::{Group, NodeMaintenance};

use crate::commands::outages;
use crate::commands::watch_lines::LineWatch;
use crate::install::installation::OWN_VERSION;

const EXAMPLES: &str = "\
Examples:
  # Open the dashboard of all maintenances; ? shows its keys
  kubectl nm watch

  # Open it with all nodes of the cluster
  kubectl nm watch --all

  # Watch one node and its pods until the node is drained
  kubectl nm watch node-1 --until drained --timeout 1h

  # Print lines for a log, even on a terminal
  kubectl nm watch --output lines

  # Record what the dashboard shows, and show it again, ten times as fast
  kubectl nm watch --record night.ndjson
  kubectl nm watch --replay night.ndjson --speed 10

  # Print why pods are blocked, as it happens
  kubectl nm watch -o json | jq -r 'select(.type==\"pod\" and .state==\"blocked\") | .message'";

const EXIT_CODES: &str = "\
Exit codes: 0 goal reached, or dashboard closed without a goal, 1 not in maintenance, 3 failed, 4 stopped or replaced \
before the goal was reached, 124 timed out, 130 interrupted or closed before the goal was reached. \
Closing the dashboard never stops a maintenance. Times are in UTC.";

/// Watch maintenances in the dashboard, or line by line
#[derive(Args, Debug)]
#[command(before_help = EXAMPLES, after_help = EXIT_CODES)]
pub(crate) struct WatchArgs {
    /// Names of the nodes; all if none is given
    #[arg(value_name = "NODE", value_parser = names::parse_node)]
    pub(crate) nodes: Vec<String>,

    /// Exit when all maintenances that exist at startup have reached this state; with `drained`, each given node must be in
    /// maintenance
    #[arg(long, value_name = "GOAL")]
    until: Option<Goal>,

    /// Exit when each maintenance is drained or has failed; each given node must be in maintenance
    #[arg(long, conflicts_with = "until")]
    exit_on_complete: bool,

    /// Exit after this time, such as 30s or 1h30m; 0 means never
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    timeout: Option<Duration>,

    /// Output format; the default is the dashboard on a terminal, otherwise lines
    #[arg(long, short = 'o', value_name = "FORMAT")]
    output: Option<WatchFormat>,

    #[command(flatten)]
    dashboard: DashboardFlags,

    #[command(flatten)]
    recording: RecordingFlags,
}

#[derive(Args, Debug, Default)]
struct RecordingFlags {
    /// Record what the dashboard shows to this file, which must not exist yet; works without a terminal too
    #[arg(long, value_name = "FILE", help_heading = "Recordings")]
    record: Option<PathBuf>,

    /// Show a recording again, without a cluster; without a terminal, print its lines
    #[arg(long, value_name = "FILE", help_heading = "Recordings")]
    #[arg(conflicts_with_all = ["record", "until", "exit_on_complete", "timeout"])]
    replay: Option<PathBuf>,

    /// How many times as fast to replay; the default is 1 on a terminal, otherwise as fast as possible
    #[arg(long, value_name = "FACTOR", help_heading = "Recordings", requires = "replay")]
    #[arg(value_parser = nm_dashboard::parse_speed)]
    speed: Option<f64>,
}

#[derive(Args, Debug, Default)]
struct DashboardFlags {
    /// Open with all nodes of the cluster, not only those in maintenance; Tab switches
    #[arg(long, help_heading = "Dashboard", conflicts_with = "nodes")]
    all: bool,

    /// Leave out the keys of the dashboard that change the cluster
    #[arg(long, help_heading = "Dashboard")]
    readonly: bool,

    #[command(flatten)]
    appearance: AppearanceFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum WatchFormat {
    /// One line of text per change of a node and per blocked pod; with -v, every pod
    Lines,
    /// One JSON object per change
    Json,
}

/// What `--replay` needs of the arguments.
pub(crate) struct ReplayArgs {
    pub(crate) file: PathBuf,
    pub(crate) speed: Option<f64>,
    pub(crate) nodes: Vec<String>,
    pub(crate) all_nodes: bool,
    pub(crate) output: Option<WatchFormat>,
    pub(crate) appearance: AppearanceFlags,
}

impl WatchArgs {
    /// The arguments of a replay, which needs no cluster.
    pub(crate) fn into_replay(self) -> Result<ReplayArgs, Self> {
        let Some(file) = self.recording.replay else { return Err(self) };
        let nodes = names::distinct(&self.nodes);
        let DashboardFlags { all, appearance, .. } = self.dashboard;
        let speed = self.recording.speed;
        Ok(ReplayArgs { file, speed, nodes, all_nodes: all, output: self.output, appearance })
    }

    pub(crate) fn has_goal(&self) -> bool {
        self.exit_condition() != ExitCondition::Never
    }

    fn tracker(&self) -> GoalTracker {
        GoalTracker::new(names::distinct(&self.nodes), self.exit_condition())
    }

    fn exit_condition(&self) -> ExitCondition {
        match self.until {
            Some(goal) => ExitCondition::Goal(goal),
            None if self.exit_on_complete => ExitCondition::AllComplete,
            None => ExitCondition::Never,
        }
    }
}

impl DashboardFlags {
    /// The first line of a recording that begins now.
    fn header(&self, tracker: &GoalTracker, cluster: &Cluster) -> Header {
        Header {
            recording: RECORDING_VERSION,
            program: OWN_VERSION.to_owned(),
            started: Timestamp::now(),
            context: cluster.context().to_owned(),
            nodes: tracker.nodes().to_vec(),
            all_nodes: self.all,
        }
    }

    fn options(
        &self,
        tracker: &GoalTracker,
        is_recording: bool,
        cluster: &Cluster,
        out: &mut Output,
    ) -> Options {
        let (config, notice) = Config::load(out);
        Options {
            nodes: tracker.nodes().to_vec(),
            all_nodes: self.all,
            context: cluster.context().to_owned(),
            kubectl: cluster.kubectl().to_owned(),
            readonly: self.readonly,
            recording: if is_recording { RecordingMode::Recording } else { RecordingMode::Off },
            appearance: self.appearance.on(out, config.theme, config.ascii),
            without_colours: out.without_colours(),
            config,
            notice,
            size: (0, 0),
            now: Timestamp::now(),
        }
    }
}

pub(crate) async fn run(args: WatchArgs, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let timeout = args.timeout.filter(|timeout| !timeout.is_zero());
    let record = args.recording.record.as_deref();
    watch(args.tracker(), timeout, args.output, &args.dashboard, record, cluster, out).await
}

/// Prints the last line of `--output json` for a watch that cannot even connect: the program that reads it expects one.
pub(crate) fn fail(args: &WatchArgs, out: &mut Output) {
    if args.output == Some(WatchFormat::Json) {
        // If stdout is closed, nobody expects the line.
        let _ = NdjsonReporter::new(out, &Timestamp::now, args.tracker()).fail();
    }
}

/// Watches until the tracker's exit condition, with the default output of `watch`.
pub(super) async fn watch_with_defaults(
    tracker: GoalTracker,
    timeout: Option<Duration>,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    watch(tracker, timeout, None, &DashboardFlags::default(), None, cluster, out).await
}

/// Waits, and reports what becomes of nodes whose maintenance ends.
pub(super) async fn wait(
    tracker: GoalTracker,
    timeout: Option<Duration>,
    endings: BTreeMap<String, String>,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    let nodes = tracker.nodes().to_vec();
    let reporter = WaitReporter::new(out, ReportMode::Progress, tracker, cluster.flags());
    let deleted_nodes = DeletedNodes::default();
    let mut reporter = reporter.with_endings(endings).with_deleted_nodes(&deleted_nodes);
    let watch = watch_maintenances(cluster, WatchPolicy::COMMAND, |object| object);
    let watch = deleted_nodes.follow(&nodes, cluster, watch);
    let need = Rc::<Cell<LeaderNeed>>::default();
    let leader = leader_changes(cluster.clone(), Rc::clone(&need)).map(LoopEvent::Leader);
    let react = |event| {
        let flow = reporter.react(event);
        need.set(reporter.leader_need());
        flow
    };
    let exit = event_loop::run(watch, timeout, interrupted(), leader, react).await?;
    outages::report(&reporter.into_tracker(), exit, cluster, out).await;
    Ok(exit)
}

async fn watch(
    tracker: GoalTracker,
    timeout: Option<Duration>,
    output: Option<WatchFormat>,
    dashboard: &DashboardFlags,
    record: Option<&Path>,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    // The first list comes before the dashboard: a cluster that cannot be reached or does not serve maintenances is an
    // error, and credential plugins prompt while there are lines to prompt on.
    let message = || format!("asking {} for maintenances", cluster.server());
    let found = progress::during(out, message, Box::pin(existing(&tracker, cluster))).await;
    let (existing, cluster) = match found {
        Ok((existing, older, notes)) => {
            for note in notes {
                out.message(&note);
            }
            (Ok(existing), &cluster.with_older_groups(&older))
        }
        Err(error) => (Err(error), cluster),
    };
    // An unreachable cluster leaves no file behind.
    let recording = match record.filter(|_| existing.is_ok()) {
        Some(path) => Some(Recorder::create(path, &dashboard.header(&tracker, cluster))?),
        None => None,
    };
    if output.is_none() && out.is_on_terminal() {
        let options = dashboard.options(&tracker, recording.is_some(), cluster, out);
        let shown = show_dashboard(options, existing?, tracker, timeout, recording, cluster, out).await;
        let (exit, recorded) = shown?;
        return Ok(conclude_recording(record, recorded, exit, out));
    }
    let mut recording =
        recording.map(|recording| HeadlessRecording::begin(recording, cluster, tracker.nodes()));
    let mut last = None;
    let lines = LineWatch { timeout, cluster, recording: recording.as_mut(), last: &mut last };
    let followed = if output == Some(WatchFormat::Json) {
        lines.print_json(existing.map(drop), tracker, out).await
    } else {
        existing?;
        lines.print(tracker, out).await
    };
    let recorded = recording.map(|recording| recording.finish(last));
    followed.map(|exit| conclude_recording(record, recorded, exit, out))
}

/// Reports what was recorded, or why the recording is not complete.
fn conclude_recording(
    path: Option<&Path>,
    recorded: Option<Result<u64, RecordingError>>,
    exit: Exit,
    out: &mut Output,
) -> Exit {
    match (path, recorded) {
        (Some(path), Some(Ok(count))) => {
            let path = path.display().to_string();
            let messages = counted(count, "message");
            let again = format!("`kubectl nm watch --replay {}` shows it again", shell_quoted(&path));
            out.message(&Line::new(format!("recorded {messages} in {path}; {again}")));
            exit
        }
        (_, Some(Err(error))) => {
            Error::from(error).print(out);
            if exit == Exit::Done { Exit::Error } else { exit }
        }
        _ => exit,
    }
}

/// The existing maintenances, the older groups to watch, and remarks about those that cannot be watched and about given nodes
/// that have none. With an exit condition, a node that does not exist is an error; without, its maintenance and the node
/// itself may still be created.
async fn existing(
    tracker: &GoalTracker,
    cluster: &Cluster,
) -> Result<(Vec<NodeMaintenance>, Vec<Group>, Vec<Line>), Error> {
    let (existing, older) = all_groups::shown(cluster).await?;
    let existing: Vec<NodeMaintenance> = existing.into_iter().map(|object| object.maintenance).collect();
    let is_idle = |name: &&String| !existing.iter().any(|object| node(object) == *name);
    let checked = check_exist(cluster, tracker.nodes().iter().filter(is_idle)).await;
    let mut notes: Vec<Line> = older.warnings;
    notes.extend(match (checked, tracker.exit_condition()) {
        (Err(Error::UnknownNodes { names, meant }), ExitCondition::Never) => {
            vec![Line::new(format!("warning: {}", no_such_nodes(&names, &meant)))]
        }
        // The watch does not depend on access to nodes.
        (_, ExitCondition::Never) => Vec::new(),
        (hidden, _) => hidden?.iter().map(|name| unchecked(name)).collect(),
    });
    Ok((existing, older.shown, notes))
}

async fn show_dashboard(
    options: Options,
    existing: Vec<NodeMaintenance>,
    mut tracker: GoalTracker,
    timeout: Option<Duration>,
    recording: Option<NewRecording>,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<(Exit, Option<Result<u64, RecordingError>>), Error> {
    // If the exit condition is met already, no dashboard opens.
    let list = WatchChange::Listed(existing.into_iter().map(Arc::new).collect());
    let TrackerUpdate { settled, exit, .. } = tracker.apply(&list)?;
    let DashboardExit { reason, stale_since, results, tracker, summaries, recorded } = match exit {
        Some(exit) => DashboardExit {
            reason: EndReason::Settled(settled, exit),
            stale_since: None,
            results: Vec::new(),
            tracker,
            summaries: Vec::new(),
            recorded: recording.map(|_| Ok(0)),
        },
        None => nm_dashboard::run(options, cluster, tracker, timeout, recording, out).await?,
    };
    let has_failed = results.iter().any(Result::is_err);
    for result in results {
        match result {
            Ok(text) => out.message(&Line::new(text)),
            Err(text) => out.error(&text),
        }
    }
    for line in summaries {
        out.message(&line);
    }
    let settled = reason.settled().map(|exit| (tracker.clone(), exit));
    if tracker.goal().is_none() {
        for line in dashboard_summary(&tracker, cluster.flags(), stale_since) {
            out.message(&line);
        }
    }
    let exit = conclude(reason, tracker, cluster, out)?;
    outages::report_settled(settled, cluster, out).await;
    let exit = if has_failed && exit == Exit::Done { Exit::Error } else { exit };
    Ok((exit, recorded))
}

fn conclude(
    reason: EndReason,
    tracker: GoalTracker,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    let has_goal = tracker.exit_condition() != ExitCondition::Never;
    let mut reporter = WaitReporter::new(out, ReportMode::Progress, tracker, cluster.flags());
    let event = match reason {
        EndReason::Settled(settled, exit) => return reporter.conclude(&settled, exit),
        EndReason::Quit if !has_goal => return Ok(Exit::Done),
        EndReason::Quit | EndReason::Interrupted => LoopEvent::Interrupted,
        EndReason::TimedOut(after) => LoopEvent::TimedOut(after),
        EndReason::Failed(error) => return Err(Error::Screen(error)),
    };
    match reporter.react(event)? {
        ControlFlow::Break(exit) => Ok(exit),
        ControlFlow::Continue(()) => Ok(Exit::Interrupted),
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
