//! Runs a roll until it ends, and reports how.

use std::env;

use jiff::Timestamp;

use super::args::OutputArgs;
use crate::client::cluster::Cluster;
use crate::dashboard::{Config, RollDashboard};
use crate::error::Error;
use crate::error::exit::Exit;
use crate::roll::command::log_folder;
use crate::roll::record::{Roll, RollRecord, Runner};
use crate::roll::report::LineReporter;
use crate::roll::runner::{RollEnd, RollRunner};
use crate::roll::view::RollReporter;
use crate::terminal::output::Output;
use crate::terminal::signals::interrupted;
use crate::terminal::text::{Line, counted};

/// This program, as the runner of a roll.
pub(super) fn this_runner() -> Runner {
    let now = Timestamp::now();
    let variable = |names: [&str; 2]| names.iter().find_map(|name| env::var(name).ok());
    let user = variable(["USER", "USERNAME"]).unwrap_or_else(|| String::from("somebody"));
    let who = format!("{user}@{}", host());
    Runner { id: format!("{who}/{}/{}", std::process::id(), now.as_nanosecond()), who, at: now }
}

#[cfg(unix)]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host() -> String {
    env::var("COMPUTERNAME").unwrap_or_default()
}

fn dashboard(name: &str, output: &OutputArgs, out: &mut Output) -> Result<RollDashboard, Error> {
    let (config, notice) = Config::load(out);
    let appearance = output.appearance.on(out, config.theme, config.ascii);
    RollDashboard::open(name, appearance, config.keys, notice)
}

/// Runs a roll whose record has this program as its runner. `retried` is the node that had halted it before.
pub(super) async fn run(
    roll: &Roll,
    record: RollRecord,
    retried: Option<String>,
    output: &OutputArgs,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    let name = roll.name.as_str();
    let log = roll.settings.command().and_then(|_| log_folder(name, |variable| env::var_os(variable)));
    if let Some(log) = &log {
        out.message(&Line::new(format!("The output of the commands is kept in {}.", log.display())));
    }
    let unknown = record.unknown;
    let mut runner = RollRunner::new(cluster, roll, record, retried, log);
    let ended = match output.lines(out) {
        Some(format) => until_ended(&mut runner, &mut LineReporter::new(out, format)).await,
        None => match dashboard(name, output, out) {
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
    let continues = format!("`kubectl nm roll resume {name}` continues");
    Ok(match ended {
        Ok(RollEnd::Left) => {
            out.message(&Line::new(format!("Interrupted. Roll {name} stays as it is.")));
            out.hint(&continues);
            Exit::Interrupted
        }
        Err(error) => {
            out.message(&Line::new(format!("Roll {name} cannot continue.")));
            out.hint(&format!("{continues} once this is fixed"));
            return Err(error);
        }
        Ok(RollEnd::Done(done)) => {
            // Nodes that were skipped or deleted are not done.
            let all = roll.settings.nodes();
            let nodes = if done.nodes == all { String::new() } else { format!("{} of ", done.nodes) };
            out.message(&Line::new(format!(
                "Roll {name} is done: {nodes}{}, {} moved.",
                counted(all, "node"),
                counted(usize::try_from(done.pods).unwrap_or_default(), "pod")
            )));
            if let Some(unknown) = unknown.filter(|unknown| *unknown > 0) {
                out.message(&Line::new(format!(
                    "It is not known whether the other nodes ({unknown}) are done."
                )));
            }
            Exit::Done
        }
        Ok(RollEnd::Halted(halt)) => {
            out.error(format!("roll {name} halted: {}", halt.message));
            if halt.timed_out {
                out.hint(&format!(
                    "`kubectl nm roll resume {name} --timeout 1h` gives its drain another hour"
                ));
            }
            let without = match halt.node.as_str() {
                "" => String::new(),
                node => format!(", and with --skip {node} continues without this node"),
            };
            out.hint(&format!("{continues}{without}; `kubectl nm roll abort {name}` ends it"));
            Exit::Failed
        }
        Ok(RollEnd::Aborted(who)) => {
            out.message(&Line::new(format!("{who} aborted roll {name}.")));
            Exit::Lost
        }
        Ok(RollEnd::TakenOver(other)) => {
            out.message(&Line::new(format!("{} runs roll {name} now.", other.who)));
            Exit::Lost
        }
    })
}

async fn until_ended(runner: &mut RollRunner<'_>, reporter: &mut dyn RollReporter) -> Result<RollEnd, Error> {
    tokio::select! {
        () = interrupted() => Ok(RollEnd::Left),
        ended = runner.run(reporter) => ended,
    }
}
