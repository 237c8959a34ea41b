//! `kubectl nm watch`: the dashboard on a terminal; elsewhere a line for every change, for logs and scripts.

use std::ops::ControlFlow;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use kube::runtime::watcher::Event;
use nm_shared::NodeMaintenance;

use crate::args::duration;
use crate::args::node_name;
use crate::client::cluster::Cluster;
use crate::client::nodes::{check_exist, unchecked};
use crate::client::watch_stream::news;
use crate::dashboard::{self, Appearance, DashboardExit, EndReason, ThemeName};
use crate::error::exit::Exit;
use crate::error::{Error, no_such_nodes};
use crate::interaction::progress;
use crate::maintenance::node;
use crate::terminal::interrupt::interrupted;
use crate::terminal::locale;
use crate::terminal::output::Output;
use crate::terminal::text::{Line, Style};
use crate::watch::exit_summary;
use crate::watch::follow::{Moment, follow};
use crate::watch::goal_tracker::{End, Outlook};
use crate::watch::ndjson::Report;
use crate::watch::wait::Goal;
use crate::watch::wait_reporter::{Vigil, Voice};

const EXAMPLES: &str = "\
Examples:
  # The dashboard of all maintenances; ? shows its keys
  kubectl nm watch

  # One node's, with its pods, until it is drained
  kubectl nm watch node-1 --until drained --timeout 1h

  # Lines for a log, also on a terminal
  kubectl nm watch --output lines

  # What is blocked, as it happens
  kubectl nm watch -o json | jq -r 'select(.type==\"pod\" and .state==\"blocked\") | .message'

Exit codes: 0 reached or left, 1 not in maintenance, 3 failed, 4 stopped or replaced meanwhile,
124 timed out, 130 interrupted, or left before the goal was reached.
Closing the dashboard never ends a maintenance. Times are in UTC.";

const JSON: &str = "\
With --output json every line is an object with \"version\":1, a \"type\" and a \"time\":
  snapshot   live, maintenances[]: everything there is, at first, when the connection was lost or
             is back, and every 30 s at least
  node       node, maintenance, uid, state, phase, progress, pods{}, reason, error: a maintenance changed;
             state: requested, queued, draining, blocked, drained, failed, stopping or gone;
             phase: that of the object's status, Pending, Running, Succeeded or Failed
  pod        node, namespace, name, state: blocked (with reason, message, since, attempts),
             unblocked, migrating (with machine, source, target, since) or gone
  condition  node, condition, status, reason, message, since
  done       exitCode, result: reached, failed, lost, timedOut, interrupted or error; nodes[]
New fields and types may be added; what is there keeps its meaning within a version.";

/// Follow maintenances, on a terminal in a dashboard
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = format!("{JSON}\n\n{EXAMPLES}"))]
pub(crate) struct WatchArgs {
    /// Names of the nodes; all if none is named
    #[arg(value_name = "NODE", value_parser = node_name::parse)]
    nodes: Vec<String>,

    /// End when this is true of every maintenance that there is at first; a named node must exist, and to be drained be
    /// in maintenance
    #[arg(long, value_name = "GOAL")]
    until: Option<Goal>,

    /// End when every maintenance is drained or failed, and none is being stopped; a named node must be in one
    #[arg(long, conflicts_with = "until")]
    exit_on_complete: bool,

    /// How long to watch, such as 30s or 1h30m; 0: as long as it takes
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    timeout: Option<Duration>,

    /// How to show it; without: a dashboard on a terminal, elsewhere lines
    #[arg(long, short = 'o', value_name = "FORMAT")]
    output: Option<Format>,

    #[command(flatten)]
    dashboard: DashboardFlags,
}

/// How the dashboard is to be.
#[derive(Args, Debug)]
#[command(next_help_heading = "Dashboard")]
struct DashboardFlags {
    /// Start and stop nothing from the dashboard
    #[arg(long)]
    readonly: bool,

    // A doc comment would have to put backticks around the variable.
    #[arg(help = "Colours of the dashboard; where there are none (--color never, NO_COLOR) it is mono")]
    #[arg(long, value_name = "THEME", default_value = "dark")]
    theme: ThemeName,

    // A doc comment would have to put backticks around the variable.
    #[arg(
        help = "Draw the dashboard with ASCII characters alone, as where the locale has no others (LC_ALL=C)"
    )]
    #[arg(long)]
    ascii: bool,

    /// Whether the dashboard takes the mouse; without, the terminal selects text with it
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    mouse: bool,
}

/// How changes are shown where there is no dashboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A line of text a change.
    Lines,
    /// A line of JSON a change.
    Json,
}

impl WatchArgs {
    /// Whether its exit code speaks of a goal.
    pub(crate) fn has_goal(&self) -> bool {
        self.end() != End::Never
    }

    fn outlook(&self) -> Outlook {
        Outlook::over(node_name::distinct(&self.nodes), self.end())
    }

    fn end(&self) -> End {
        match self.until {
            Some(goal) => End::Goal(goal),
            None if self.exit_on_complete => End::Rest,
            None => End::Never,
        }
    }
}

impl DashboardFlags {
    fn look(&self, out: &Output) -> Appearance {
        let theme = if out.is_coloured() { self.theme } else { ThemeName::Mono };
        let ascii = self.ascii || !locale::has_unicode(|name| std::env::var(name).ok());
        Appearance { readonly: self.readonly, theme, ascii, mouse: self.mouse }
    }
}

/// How what is watched is shown, and for how long.
struct Manner {
    timeout: Option<Duration>,
    output: Option<Format>,
    dashboard: DashboardFlags,
}

/// Runs the command.
///
/// # Errors
///
/// When there is nothing to wait for, or the server refuses.
pub(crate) async fn run(args: WatchArgs, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let outlook = args.outlook();
    let timeout = args.timeout.filter(|timeout| !timeout.is_zero());
    attend(outlook, Manner { timeout, output: args.output, dashboard: args.dashboard }, cluster, out).await
}

/// Tells a program that there is no way to the cluster: whatever goes wrong, it reads that it is the end.
pub(crate) fn fail(args: &WatchArgs, out: &mut Output) {
    if args.output == Some(Format::Json) {
        // Where nobody reads what is written, this is no news either.
        let _ = Report::of(out, Timestamp::now, args.outlook()).fail();
    }
}

/// Shows what the outlook is on as `watch` does of itself, until its end.
///
/// # Errors
///
/// When there is nothing to wait for, or the server refuses.
pub(super) async fn show_these(
    outlook: Outlook,
    timeout: Option<Duration>,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    let dashboard = DashboardFlags { readonly: false, theme: ThemeName::Dark, ascii: false, mouse: true };
    attend(outlook, Manner { timeout, output: None, dashboard }, cluster, out).await
}

async fn attend(
    outlook: Outlook,
    manner: Manner,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    let Manner { timeout, output, dashboard } = manner;
    // A cluster that is not there, or does not know maintenances, is an error and nothing to wait for. And whatever has
    // to be asked for the credentials is asked now, while there are lines to ask it on.
    let asking = || format!("asking {} for maintenances", cluster.server());
    let existing =
        progress::during(out, asking, existing(&outlook, cluster)).await.map(|(existing, notes)| {
            for note in notes {
                out.talk(&note);
            }
            existing
        });
    match output {
        Some(Format::Json) => {
            let mut report = Report::of(out, Timestamp::now, outlook);
            let followed = match existing {
                Ok(_) => follow(news(cluster), timeout, interrupted(), |moment| report.react(moment)).await,
                Err(error) => Err(error),
            };
            if followed.is_err() {
                // Where nobody reads what is written, this is no news either.
                let _ = report.fail();
            }
            followed
        }
        None if out.is_on_terminal() => {
            let look = dashboard.look(out);
            show(look, existing?, outlook, timeout, cluster, out).await
        }
        Some(Format::Lines) | None => {
            existing?;
            let mut vigil = Vigil::of(out, Voice::Journal(Timestamp::now), outlook, cluster.flags());
            follow(news(cluster), timeout, interrupted(), |moment| vigil.react(moment)).await
        }
    }
}

/// The maintenances that there are, and what is to be said of named nodes without one. If something is waited for, one that
/// does not exist has been misspelt; otherwise its maintenance may come, and so may the node.
async fn existing(outlook: &Outlook, cluster: &Cluster) -> Result<(Vec<NodeMaintenance>, Vec<Line>), Error> {
    let existing = cluster.maintenances().await?;
    let is_idle = |name: &&String| !existing.iter().any(|object| node(object) == *name);
    let checked = check_exist(cluster, outlook.nodes().iter().filter(is_idle)).await;
    let notes = match (checked, outlook.end()) {
        (Err(Error::UnknownNodes { names, meant }), End::Never) => {
            vec![Line::new(format!("warning: {}", no_such_nodes(&names, &meant)))]
        }
        // Who cannot ask about nodes watches all the same.
        (_, End::Never) => Vec::new(),
        (hidden, _) => hidden?.iter().map(|name| unchecked(name)).collect(),
    };
    Ok((existing, notes))
}

/// Shows the dashboard, and says how things stand when it is closed.
async fn show(
    look: Appearance,
    existing: Vec<NodeMaintenance>,
    mut outlook: Outlook,
    timeout: Option<Duration>,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    // What is over already needs no screen.
    let mut settled = Vec::new();
    let mut over = None;
    let all = existing.into_iter().map(Event::InitApply);
    for event in [Event::Init].into_iter().chain(all).chain([Event::InitDone]) {
        let seen = outlook.see(event)?;
        settled.extend(seen.settled);
        over = over.or(seen.exit);
    }
    let DashboardExit { reason: ended, stale_since: old_since, results: done } = match over {
        Some(exit) => DashboardExit { reason: EndReason::Settled(settled, exit), stale_since: None, results: Vec::new() },
        None => dashboard::run(look, cluster, &mut outlook, timeout, out).await?,
    };
    let has_failed = done.iter().any(Result::is_err);
    for outcome in done {
        out.talk(&match outcome {
            Ok(words) => Line::new(words),
            Err(words) => Line::default().with(Style::Bad, words),
        });
    }
    if outlook.goal().is_none() {
        for line in exit_summary::farewell(outlook.picture(), outlook.nodes(), cluster.flags(), old_since) {
            out.talk(&line);
        }
    }
    let exit = conclude(ended, outlook, cluster, out)?;
    Ok(if has_failed && exit == Exit::Done { Exit::Error } else { exit })
}

/// Says how the dashboard ended, as far as it was to wait for something.
fn conclude(ended: EndReason, outlook: Outlook, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let waits = outlook.end() != End::Never;
    let mut vigil = Vigil::of(out, Voice::Progress, outlook, cluster.flags());
    let moment = match ended {
        EndReason::Settled(settled, exit) => return vigil.conclude(&settled, exit),
        EndReason::Quit if !waits => return Ok(Exit::Done),
        EndReason::Quit | EndReason::Interrupted => Moment::Interrupted,
        EndReason::TimedOut(after) => Moment::TimedOut(after),
    };
    match vigil.react(moment)? {
        ControlFlow::Break(exit) => Ok(exit),
        ControlFlow::Continue(()) => Ok(Exit::Interrupted),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::Value;

    use super::*;
    use crate::client::cluster::tests::{NEVER, cluster, failure, list, nodes};
    use crate::maintenance::fixture::requested;
    use crate::terminal::output::captured::output;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: WatchArgs,
    }

    #[tokio::test(start_paused = true)]
    async fn who_watches_a_node_that_is_not_there_is_told_which_was_meant() {
        let (cluster, _) = cluster(|_, path| match path {
            "watch" => (NEVER, Value::Null),
            "/api/v1/nodes" => nodes(&["worker-07"]),
            "/api/v1/nodes/worker-o7" => failure(404, "NotFound", "worker-o7"),
            _ => list(&[requested("n1")]),
        });
        let warning = "warning: nodes \"worker-o7\" not found; did you mean worker-07?\n";
        for (named, warned) in [("worker-o7", true), ("n1", false)] {
            let (mut out, captured) = output();
            let args = Line::parse_from(["watch", named, "--timeout", "1s"]).args;
            assert_eq!(run(args, &cluster, &mut out).await.unwrap(), Exit::TimedOut);
            assert_eq!(captured.talk().contains(warning), warned, "{}", captured.talk());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_reads_of_every_error_that_it_is_the_end() {
        for (line, list_code, before) in [
            ("", 200, 1),
            ("", 403, 0),
            ("n2 --until drained", 200, 0),
            ("n2 --until stopped", 200, 0),
            ("n2 --exit-on-complete", 200, 0),
            ("n3 --exit-on-complete", 200, 0),
            ("n1 --until drained", 200, 1),
        ] {
            let (cluster, _) = cluster(move |_, path| match path {
                "watch" => failure(403, "Forbidden", ""),
                "/api/v1/nodes/n2" => failure(404, "NotFound", "n2"),
                _ if list_code == 403 => failure(403, "Forbidden", ""),
                _ => list(&[requested("n1")]),
            });
            let line = ["watch", "-o", "json"].into_iter().chain(line.split_whitespace());
            let (mut out, captured) = output();
            assert!(run(Line::parse_from(line).args, &cluster, &mut out).await.is_err());
            let said = captured.data();
            let mut lines = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            assert_eq!(lines.by_ref().take(before).filter(|line| line["type"] == "snapshot").count(), before);
            let last = lines.next().unwrap();
            assert_eq!(
                (&last["type"], &last["exitCode"], &last["result"]),
                (&"done".into(), &1.into(), &"error".into())
            );
            assert!(lines.next().is_none());
        }
    }
}
