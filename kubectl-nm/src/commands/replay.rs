//! `kubectl nm watch --replay`: a recording of the dashboard, again. It needs no cluster and no kubeconfig.

use std::cell::Cell;

use jiff::Timestamp;
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::terminal::output::Output;
use nm_core::terminal::text::Line;
use nm_core::watch::goal_tracker::{ExitCondition, GoalTracker};
use nm_core::watch::ndjson::NdjsonReporter;
use nm_core::watch::wait_reporter::{ReportMode, WaitReporter};
use nm_dashboard::{Config, EndReason, Options, Pace, Player, RecordingFile, RecordingMode};

use crate::commands::watch::{ReplayArgs, WatchFormat};

pub(crate) async fn run(args: ReplayArgs, out: &mut Output) -> Result<Exit, Error> {
    let file = RecordingFile::open(&args.file)?;
    match args.output {
        None if out.is_on_terminal() => show(args, file, out).await,
        format => print(args, file, format, out).await,
    }
}

async fn show(args: ReplayArgs, file: RecordingFile, out: &mut Output) -> Result<Exit, Error> {
    // Without other wishes, the view is the one that was recorded.
    let header = file.header();
    let all_nodes = args.all_nodes || (args.nodes.is_empty() && header.all_nodes);
    let nodes = if args.nodes.is_empty() && !args.all_nodes { header.nodes.clone() } else { args.nodes };
    let (config, notice) = Config::load(out);
    let options = Options {
        nodes,
        all_nodes,
        context: header.context.clone(),
        kubectl: String::from("kubectl"),
        readonly: true,
        recording: RecordingMode::Replay,
        appearance: args.appearance.on(out, config.theme, config.ascii),
        without_colours: out.without_colours(),
        config,
        notice,
        size: (0, 0),
        now: header.started,
    };
    let mut player = Player::new(file, options, Pace::new(args.speed.unwrap_or(1.0)));
    let reason = nm_dashboard::replay(&mut player).await?;
    for line in nm_dashboard::summaries(&player.model, false) {
        out.message(&line);
    }
    report_cut(player.is_cut(), out);
    match (player.into_failure(), reason) {
        (Some(error), _) => Err(error.into()),
        (None, EndReason::Quit) => Ok(Exit::Done),
        (None, _) => Ok(Exit::Interrupted),
    }
}

async fn print(
    args: ReplayArgs,
    mut file: RecordingFile,
    format: Option<WatchFormat>,
    out: &mut Output,
) -> Result<Exit, Error> {
    let clock = Cell::new(Timestamp::UNIX_EPOCH);
    let now = || clock.get();
    let nodes = if args.nodes.is_empty() { file.header().nodes.clone() } else { args.nodes };
    let tracker = GoalTracker::new(nodes, ExitCondition::Never);
    if format == Some(WatchFormat::Json) {
        let mut reporter = NdjsonReporter::new(out, &now, tracker);
        match nm_dashboard::print_recording(&mut file, args.speed, &clock, |event| reporter.react(event))
            .await
        {
            Ok(()) => reporter.end()?,
            Err(error) => {
                // If stdout is closed, nobody expects the line.
                let _ = reporter.fail();
                return Err(error);
            }
        }
    } else {
        let mut reporter = WaitReporter::new(out, ReportMode::Log(&now), tracker, "");
        nm_dashboard::print_recording(&mut file, args.speed, &clock, |event| reporter.react(event)).await?;
    }
    report_cut(file.is_cut(), out);
    Ok(Exit::Done)
}

fn report_cut(is_cut: bool, out: &mut Output) {
    if is_cut {
        out.message(&Line::new("warning: the last line of the recording is incomplete and was left out"));
    }
}
