//! Entry points for in-process tests: parsing of arguments, files and kubeconfigs, and rendering of API responses.
//!
//! These are the functions that the commands use. Nothing here prints, sends a request or starts a program.

use std::cell::Cell;
use std::io::Cursor;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use futures::FutureExt;
use jiff::Timestamp;
use nm_core::args::duration;
use nm_core::client::watch_stream::{WatchChange, WatchUpdate};
use nm_core::connection::{self, ConnectionError, ConnectionFlags};
use nm_core::error::Error;
use nm_core::explain::cluster_facts::ClusterFacts;
use nm_core::format::{DataFormat, OutputFormat};
use nm_core::leader::{Leadership, Reconcilers};
use nm_core::maintenance::roll::RollRunners;
use nm_core::maintenance::roll_window::{InvalidWindow, Window, Windows};
use nm_core::terminal::output::Output;
use nm_core::terminal::output::captured::{self, Captured};
use nm_core::watch::event_loop::LoopEvent;
use nm_core::watch::goal_tracker::{ExitCondition, GoalTracker};
use nm_core::watch::ndjson::NdjsonReporter;
use nm_core::watch::wait_reporter::{ReportMode, WaitReporter};
use nm_dashboard::RecordingFile;
use nm_roll::halted::find_rolls;
use nm_roll::record::roll_names;

use crate::cli::Cli;
use crate::commands::{explain, explain_rolls, roll, status};
pub use nm_dashboard::Received;

/// What is printed of maintenances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// `status`
    Table,
    /// `status -o wide`
    Wide,
    /// `status -o json`
    Json,
    /// `status -o yaml`
    Yaml,
    /// `status -o name`
    Name,
    /// `explain`, for each maintenance
    Explain,
    /// `watch`: their creation, a heartbeat and their deletion
    Watch,
    /// `watch -o json`, likewise
    WatchJson,
    /// `roll status`
    Rolls,
    /// `roll status NAME`, for each roll
    Roll,
    /// `roll status -o json`
    RollJson,
}

impl Report {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Table,
        Self::Wide,
        Self::Json,
        Self::Yaml,
        Self::Name,
        Self::Explain,
        Self::Watch,
        Self::WatchJson,
        Self::Rolls,
        Self::Roll,
        Self::RollJson,
    ];
}

/// What a command prints on stdout and on stderr.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Printed {
    /// On stdout.
    pub data: String,
    /// On stderr.
    pub messages: String,
}

/// What the commands print, with the colours of a terminal or without.
pub fn print(report: Report, received: &Received, is_coloured: bool) -> Printed {
    let (mut out, captured): (Output, Captured) =
        if is_coloured { captured::coloured_output() } else { captured::output() };
    if let Err(error) = try_print(report, received, &mut out) {
        error.print(&mut out);
    }
    Printed { data: captured.data(), messages: captured.messages() }
}

fn try_print(report: Report, received: &Received, out: &mut Output) -> Result<(), Error> {
    let objects = &received.maintenances;
    let rolls = |name: Option<&str>, format, out: &mut Output| {
        roll::status::print(
            objects,
            Some(&received.nodes),
            &roll::status::Surroundings::default(),
            name,
            format,
            out,
        )
    };
    match report {
        Report::Table => status::print(objects, false, OutputFormat::Table, out),
        Report::Wide => status::print(objects, false, OutputFormat::Wide, out),
        Report::Json => status::print(objects, false, OutputFormat::Data(DataFormat::Json), out),
        Report::Yaml => status::print(objects, false, OutputFormat::Data(DataFormat::Yaml), out),
        Report::Name => status::print(objects, false, OutputFormat::Data(DataFormat::Name), out),
        Report::Explain => {
            let now = Timestamp::now();
            let runners = RollRunners::of(objects);
            let halts = runners.halts().collect();
            let rolls = find_rolls(&roll_names(objects).into_iter().collect(), objects);
            for leadership in [Leadership::Held, Leadership::Lapsed(now)] {
                for object in objects {
                    let namespace = Some(String::from("node-maintenance"));
                    let context = explain::Context {
                        reconcilers: &Reconcilers { leadership, namespace },
                        facts: &ClusterFacts::default(),
                        kubectl: "kubectl",
                        now,
                    };
                    let halted = explain_rolls::halted_rolls(
                        &halts,
                        &rolls,
                        context.facts,
                        explain_rolls::Probed::new(),
                        now,
                    );
                    explain::explain(object, &halted, &context, out)?;
                }
            }
            Ok(())
        }
        Report::Watch => {
            let mut reporter = WaitReporter::new(out, ReportMode::Log(&Timestamp::now), tracker(), "");
            events(received).into_iter().try_for_each(|event| reporter.react(event).map(drop))
        }
        Report::WatchJson => {
            let mut reporter = NdjsonReporter::new(out, &Timestamp::now, tracker());
            events(received).into_iter().try_for_each(|event| reporter.react(event).map(drop))
        }
        Report::Rolls => rolls(None, OutputFormat::Table, out),
        Report::Roll => {
            roll_names(objects).into_iter().try_for_each(|name| rolls(Some(name), OutputFormat::Table, out))
        }
        Report::RollJson => rolls(None, OutputFormat::Data(DataFormat::Json), out),
    }
}

fn tracker() -> GoalTracker {
    GoalTracker::new(Vec::new(), ExitCondition::Never)
}

fn events(received: &Received) -> Vec<LoopEvent> {
    let objects: Vec<_> = received.maintenances.iter().cloned().map(Arc::new).collect();
    let deleted = objects.iter().cloned().map(WatchChange::Deleted);
    let changes = std::iter::once(WatchChange::Listed(objects.clone())).chain(deleted);
    let mut events: Vec<LoopEvent> =
        changes.map(|change| LoopEvent::Watch(WatchUpdate::Change(change))).collect();
    events.insert(1, LoopEvent::Heartbeat);
    events
}

/// What the dashboard shows on a screen of this many columns and rows: at first, after each key, and when the connection is
/// lost. What it copies is among them, and the dashboards of rolls. In `keys`, a line break is Enter, a tab is Tab, escape is Esc and delete is
/// Backspace.
pub fn draw(received: &Received, keys: &str, size: (u16, u16), now: Timestamp) -> Vec<String> {
    let mut shown = nm_dashboard::screens(received, keys, size, now);
    shown.extend(nm_dashboard::roll_screens(received, size, now));
    shown
}

/// What a replay shows and prints.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// The screens after some keys.
    pub shown: Vec<String>,
    /// What is printed without a terminal.
    pub printed: String,
    /// The error and the hint with which the replay ends.
    pub error: Option<String>,
}

/// Replays a recording on a screen of this many columns and rows, and without a terminal.
pub fn replay(recording: &[u8], size: (u16, u16)) -> Replayed {
    let (shown, failure) = match nm_dashboard::replay_screens(recording.to_vec(), size) {
        Ok((shown, failure)) => (shown, failure),
        Err(error) => (Vec::new(), Some(error)),
    };
    let (mut out, captured) = captured::output();
    let clock = Cell::new(Timestamp::UNIX_EPOCH);
    let now = || clock.get();
    let mut reporter = WaitReporter::new(&mut out, ReportMode::Log(&now), tracker(), "");
    let source = Box::new(Cursor::new(recording.to_vec()));
    if let Ok(mut file) = RecordingFile::read(source, String::from("recording")) {
        let printing = nm_dashboard::print_recording(&mut file, None, &clock, |event| reporter.react(event));
        // It waits for nothing. A line that is not valid is the error of the screens too.
        let _ = printing.now_or_never();
    }
    let printed = captured.data() + &captured.messages();
    let error = failure.map(|error| {
        let (mut out, captured) = captured::output();
        Error::from(error).print(&mut out);
        captured.messages()
    });
    Replayed { shown, printed, error }
}

/// Why an input is refused, as a command prints it.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct InputError(InputProblem);

#[derive(Debug, thiserror::Error)]
enum InputProblem {
    /// The message, and in a second line the hint.
    #[error("{error}\n{}", .error.hint())]
    Connection { error: ConnectionError },
    #[error("it starts a credential program")]
    CredentialProgram,
    #[error(transparent)]
    Arguments(clap::Error),
    /// The reason is that of the parser for clap.
    #[error("{0}")]
    Duration(String),
    #[error(transparent)]
    Window(InvalidWindow),
}

/// The address of the server that a kubeconfig selects. Credential programs are refused instead of started.
///
/// # Errors
///
/// The message and the hint of the error that a command prints.
pub async fn server(kubeconfig: &Path) -> Result<String, InputError> {
    let mut flags = ConnectionFlags::default();
    flags.kubeconfig = Some(kubeconfig.to_owned());
    let failed = |error| InputError(InputProblem::Connection { error });
    if connection::starts_program(&flags).map_err(failed)? {
        return Err(InputError(InputProblem::CredentialProgram));
    }
    Ok(connection::connect(&flags).await.map_err(failed)?.server)
}

/// Parses the arguments of a command line, without the name of the program.
///
/// # Errors
///
/// The message that a command prints.
pub fn parse_arguments(arguments: &[&str]) -> Result<(), InputError> {
    let parsed = Cli::try_parse_from(std::iter::once("kubectl-nm").chain(arguments.iter().copied()));
    parsed.map(drop).map_err(|error| InputError(InputProblem::Arguments(error)))
}

/// Parses a duration such as `1h30m`.
///
/// # Errors
///
/// Why it is not one.
pub fn parse_duration(text: &str) -> Result<Duration, InputError> {
    duration::parse(text).map_err(|why| InputError(InputProblem::Duration(why)))
}

/// A duration as messages show it, to the millisecond.
pub fn format_duration(duration: Duration) -> String {
    duration::show(duration)
}

/// Parses a window of a roll, such as `Sat,Sun 22:00-04:00 Europe/Berlin`, and decides whether it is open.
///
/// # Errors
///
/// Why it is not one.
pub fn parse_window(text: &str, now: Timestamp) -> Result<String, InputError> {
    let window = Window::from_str(text).map_err(|error| InputError(InputProblem::Window(error)))?;
    let shown = window.to_string();
    let _ = Windows(vec![window]).at(now);
    Ok(shown)
}

/// Whether a filter of the dashboard selects a row with this node, namespace, state and text.
pub fn is_selected(filter: &str, [node, namespace, state, text]: [&str; 4]) -> bool {
    nm_dashboard::is_selected(filter, [node, namespace, state, text])
}

/// The words of a filter of the dashboard.
pub fn filter_words(filter: &str) -> Vec<String> {
    nm_dashboard::filter_words(filter)
}
