//! `kubectl nm roll pause` and `abort`.

use std::time::Duration;

use jiff::Timestamp;
use nm_core::client::cluster::Cluster;
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::interaction::confirm::Question;
use nm_core::maintenance::purposes;
use nm_core::maintenance::roll::RollRunners;
use nm_core::maintenance::roll_job::RollJob;
use nm_core::terminal::command_context::shell_quoted;
use nm_core::terminal::output::Output;
use nm_core::terminal::text::{Line, Style, counted};
use nm_roll::error::RollError;
use nm_roll::finisher::{Finisher, RunnerSign, finisher, is_seen};
use nm_roll::in_cluster::starting::starting;
use nm_roll::record::{ActionRecord, ActionState, Roll, RollNode, RollRecord, Step};
use nm_roll::skip::is_untouched;
use nm_roll::stopped_rolls::ended_action;
use nm_roll::store;
use nm_roll::unfinished::return_hint;

use super::args::AbortArgs;
use super::run::this_runner;

/// How long the program that runs a roll may take to answer that it finishes its nodes. It usually answers within a second.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a node that has not had its turn stays in maintenance.
const STARTED_EARLY: &str = "somebody has started its drain before its turn";

pub(super) async fn pause(name: &str, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let (roll, record) = store::pause(cluster, name, true, &this_runner().who).await?;
    out.data(&Line::new(format!("roll {name} ")).with(Style::Good, "paused"))?;
    if let Some(continuing) = continuing(&roll, &record, Timestamp::now()) {
        out.message(&Line::new(continuing));
    }
    Ok(Exit::Done)
}

/// What a pause does not interrupt: commands and Jobs that have started. Without a program that runs the roll, only Jobs run on.
fn continuing(roll: &Roll, record: &RollRecord, now: Timestamp) -> Option<String> {
    let is_run = is_seen(record, now);
    let continues = |node: &&RollNode| {
        let is_running = node.record.current_action().is_some_and(ActionRecord::is_running);
        is_running && (is_run || !roll.settings.runs_command(node.record.step))
    };
    match roll.nodes.iter().filter(continues).count() {
        0 => None,
        acting if is_run => Some(format!("The action of {} is not interrupted.", counted(acting, "node"))),
        acting => Some(format!(
            "The Job of {} is not interrupted, and its result is read when the roll continues.",
            counted(acting, "node")
        )),
    }
}

pub(super) async fn abort(args: &AbortArgs, cluster: &Cluster, out: &mut Output) -> Result<Exit, Error> {
    let name = args.roll.name.as_str();
    let loaded = store::load(cluster, name).await;
    let broken =
        loaded.as_ref().err().and_then(Error::above).filter(|error: &&RollError| error.is_about_records());
    if let (true, Some(broken)) = (args.return_all, broken) {
        return abort_unread(args, broken, cluster, out).await;
    }
    let roll = loaded?;
    // Whoever has started a drain before its turn may work on the node.
    let is_left = |node: &RollNode| (node.is_worked_on() || node.is_started_early()) && !args.return_all;
    let nodes: Vec<String> =
        roll.nodes.iter().filter(|node| !is_left(node)).map(|node| node.node().to_owned()).collect();
    let what = match nodes.len() {
        // What has started stays, as the end of this command reports.
        0 => format!("End roll {name}"),
        ended => format!("End roll {name}, and the maintenance of {}", counted(ended, "node")),
    };
    let harms = match (args.return_all, args.yes) {
        (true, _) => ended_actions(&roll, cluster.kubectl(), Timestamp::now()),
        (false, false) => {
            roll.nodes.iter().filter(|node| is_left(node)).map(|node| stays(node, &roll)).collect()
        }
        // The end of this command says it.
        (false, true) => Vec::new(),
    };
    let context = cluster.context();
    let reasons = purposes(roll.nodes.iter().map(|node| &*node.object));
    let reason = reasons.as_deref();
    let question = Question {
        what: &what,
        cluster: context,
        nodes: &nodes,
        reason,
        harms: &harms,
        ..Question::default()
    };
    question.ask(args.yes, out)?;
    let record = match roll.complete_record() {
        Ok(_) => {
            // So that nothing begins meanwhile.
            let aborted = Some(this_runner().who);
            let abort =
                |_: &Roll, record| Ok(RollRecord { paused: true, aborted: aborted.clone(), ..record });
            store::update(cluster, name, abort).await?.1
        }
        Err(_) => RollRecord::default(),
    };
    for node in store::remove(cluster, name, |node| !is_left(node)).await? {
        out.data(&Line::new(format!("node/{} ", node.node())).with(Style::Good, removal(&node)))?;
    }
    let early = if args.return_all { Vec::new() } else { store::hand_over(cluster, name).await? };
    let rest = match store::load(cluster, name).await {
        Ok(roll) => Some(roll),
        Err(error) if matches!(error.above(), Some(RollError::Unknown(_))) => None,
        Err(error) => return Err(error),
    };
    let left: Vec<&RollNode> =
        rest.iter().flat_map(|roll| &roll.nodes).filter(|node| is_left(node)).collect();
    let finisher =
        if left.is_empty() { Finisher::Nobody } else { find_finisher(&roll, &record, cluster).await };
    report_left(&roll, &finisher, &left, &early, out)?;
    Ok(Exit::Done)
}

/// What becomes of a node that the abort takes out of the roll.
fn removal(node: &RollNode) -> &'static str {
    match () {
        () if is_untouched(node) => "planned maintenance deleted",
        () if node.is_in_service() => "in service, and no longer checked",
        () => "maintenance is stopping",
    }
}

/// The commands and the Jobs that end because all nodes of a roll return to service.
fn ended_actions(roll: &Roll, kubectl: &str, now: Timestamp) -> Vec<Line> {
    let runners = RollRunners::of(roll.nodes.iter().map(|node| &*node.object));
    let ended = |node: &RollNode| ended_action(roll, node.node(), &runners, kubectl, now);
    roll.nodes.iter().filter_map(ended).map(|text| Line::new(format!("warning: {text}"))).collect()
}

/// That the maintenance of a node does not end with its roll.
fn stays(node: &RollNode, roll: &Roll) -> Line {
    let (name, step) = (node.node(), node.record.step.word());
    Line::new(format!("node/{name} ({step}) does not return to service now: {}", begun(node, roll)))
}

/// Who finishes the nodes of an aborted roll: the program that runs it is asked, and the Job that is to run it is read.
async fn find_finisher(roll: &Roll, record: &RollRecord, cluster: &Cluster) -> Finisher {
    let runner = match &record.runner {
        Some(last) if record.halt.is_none() => {
            match store::find_runner(cluster, &roll.name, last, ANSWER_TIMEOUT).await {
                Ok(None) => RunnerSign::Silent,
                Ok(Some(runner)) => RunnerSign::Runs(runner.who),
                // Meanwhile, it has finished the last node.
                Err(error) if matches!(error.above(), Some(RollError::Unknown(_))) => {
                    RunnerSign::Runs(last.who.clone())
                }
                // The roll is aborted already, whatever can be read now.
                Err(_) => RunnerSign::Unread(last.who.clone()),
            }
        }
        _ => RunnerSign::Silent,
    };
    let job = if roll.settings.in_cluster && runner == RunnerSign::Silent {
        starting(cluster, &roll.name).await.unwrap_or_else(|error| Some(RollJob::Unread(error.to_string())))
    } else {
        None
    };
    finisher(roll, record, runner, job.as_ref(), Timestamp::now())
}

/// Reports that a roll is aborted, and what becomes of the nodes whose command or Job has started, and of those whose drain
/// somebody has started `early`, before their turn.
fn report_left(
    roll: &Roll,
    finisher: &Finisher,
    left: &[&RollNode],
    early: &[String],
    out: &mut Output,
) -> Result<(), Error> {
    let name = roll.name.as_str();
    let aborted = Line::new(format!("roll {name} ")).with(Style::Good, "aborted");
    let stay = |count: usize| {
        format!("{} {} in maintenance", counted(count, "node"), if count == 1 { "stays" } else { "stay" })
    };
    out.data(&aborted.and(match finisher {
        _ if left.is_empty() && early.is_empty() => String::new(),
        Finisher::Known(who) => {
            let it = if left.len() == 1 { "it" } else { "them" };
            format!(": {who} finishes {}, and returns {it} to service", counted(left.len(), "node"))
        }
        Finisher::Perhaps(who) => {
            format!(": {}, unless {who} still runs the roll", stay(left.len() + early.len()))
        }
        Finisher::Nobody => format!(": {}", stay(left.len() + early.len())),
    }))?;
    for node in early {
        out.message_with_commands(&Line::new(format!(
            "node/{node} stays in maintenance, and is no longer part of the roll: {STARTED_EARLY}; \
             `kubectl nm stop {}` returns it to service",
            shell_quoted(node)
        )));
    }
    if !left.is_empty() {
        report_begun(roll, finisher, left, out);
    }
    Ok(())
}

/// Reports what has begun on the nodes of an aborted roll, and what continues it or returns them.
fn report_begun(roll: &Roll, finisher: &Finisher, left: &[&RollNode], out: &mut Output) {
    let name = roll.name.as_str();
    let it = if left.len() == 1 { "it" } else { "them" };
    for node in left {
        let (name, step) = (node.node(), node.record.step.word());
        out.message(&Line::new(format!("node/{name} ({step}): {}", begun(node, roll))));
    }
    let nodes: Vec<&str> = left.iter().map(|node| node.node()).collect();
    let waits = left.iter().filter(|node| node.record.action_of(Step::Acting).is_none());
    let waits: Vec<&str> = waits.map(|node| node.node()).collect();
    let still = match waits.as_slice() {
        [] => String::new(),
        nodes => format!("the roll still drains {}, and runs its command or its Job; ", nodes.join(", ")),
    };
    let hint = match finisher {
        Finisher::Known(_) => format!(
            "{still}`kubectl nm roll watch {name}` shows the progress, and `kubectl nm roll abort {name} --return` returns \
             {it} to service at \
             once. A node whose command or Job fails stays in maintenance"
        ),
        Finisher::Perhaps(_) | Finisher::Nobody => {
            let resumes = if waits.is_empty() {
                "finishes the command or the Job first"
            } else {
                "continues the roll after all, and runs its command or its Job"
            };
            format!("{}; `kubectl nm roll resume {name}` {resumes}", return_hint(name, &nodes))
        }
    };
    out.hint(&hint);
}

/// Why an aborted roll does not just return a node to service.
fn begun(node: &RollNode, roll: &Roll) -> String {
    if node.is_started_early() {
        return STARTED_EARLY.to_owned();
    }
    let steps = [Step::Finishing, Step::Acting, Step::Preparing].into_iter();
    let mut actions = steps.filter_map(|step| Some((step, node.record.action_of(step)?)));
    let Some((step, action)) = actions.next() else { return String::from("its drain has ended") };
    let what = if roll.settings.runs_command(step) { "command" } else { "Job" };
    let flag = match step {
        Step::Preparing => "--before ",
        Step::Finishing => "--after ",
        _ => "",
    };
    let state = match action.state {
        ActionState::Running => "has started",
        ActionState::Succeeded | ActionState::Disconnected => "has run",
        ActionState::Failed(_) | ActionState::JobFailed(_) => "failed",
        ActionState::NotStarted(_) => "did not start",
    };
    format!("its {flag}{what} {state}")
}

/// Ends a roll whose records cannot be read: all of its nodes return to service.
async fn abort_unread(
    args: &AbortArgs,
    broken: &RollError,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    let name = args.roll.name.as_str();
    out.message(&Line::new(format!(
        "warning: {broken}. The nodes whose command or Job has started are unknown. Running Jobs continue."
    )));
    let what = format!("End roll {name}, and return all of its nodes to service");
    Question { what: &what, cluster: cluster.context(), ..Question::default() }.ask(args.yes, out)?;
    for object in store::remove_unread(cluster, name).await? {
        let node = Line::new(format!("node/{} ", object.spec.node_name));
        out.data(&node.with(Style::Good, "maintenance is stopping"))?;
    }
    Ok(Exit::Done)
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
