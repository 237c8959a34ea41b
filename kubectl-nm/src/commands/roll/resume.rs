//! `kubectl nm roll resume`: continues a roll.

use std::time::Duration;

use jiff::Timestamp;
use nm_core::args::duration;
use nm_core::client::cluster::Cluster;
use nm_core::error::Error;
use nm_core::error::exit::Exit;
use nm_core::explain::cause::capitalized;
use nm_core::interaction::confirm::Question;
use nm_core::interaction::progress;
use nm_core::maintenance::purposes;
use nm_core::terminal::output::Output;
use nm_core::terminal::text::Line;
use nm_roll::decide::HEARTBEAT_TIMEOUT;
use nm_roll::error::RollError;
use nm_roll::finisher::is_seen;
use nm_roll::in_cluster::runner_job;
use nm_roll::in_cluster::starting::starting;
use nm_roll::record::{ActionRecord, Roll, RollNode, RollRecord, Runner};
use nm_roll::settings::{NodeAction, RollSettings};
use nm_roll::skip::{self, Skip, can_skip, skipped};
use nm_roll::store;
use nm_roll::unfinished::{run_again, runs_unless_rebooted, unfinished};

use super::args::{GivenActions, ResumeArgs};
use super::in_cluster;
use super::run::{report_windows, run as run_roll, this_runner};

/// How long the program that runs a roll may take to answer before the user is asked something, or refused. It usually answers
/// within a second.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

pub(super) async fn resume(
    args: ResumeArgs,
    namespace: Option<&str>,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    let name = args.roll.name.as_str();
    let roll = store::load(cluster, name).await?;
    let before = roll.complete_record()?;
    if let Some(unknown) = args.skip.iter().find(|node| !can_skip(node, &roll, &before)) {
        return Err(RollError::NotInRoll { name: name.to_owned(), node: unknown.clone() }.into());
    }
    let is_in_cluster = roll.settings.in_cluster && !args.here;
    let namespace = if is_in_cluster { Some(runner_job::NAMESPACE) } else { namespace };
    let given = GivenActions::read(&args.around, args.run.as_ref(), args.job.as_ref(), namespace)?;
    // Whoever runs the roll, its actions do not change.
    refuse_other_actions(&given, &roll)?;
    if is_in_cluster {
        return resume_in_cluster(&args, &given, &roll, &before, cluster, out).await;
    }
    let last = before.runner.as_ref().filter(|_| !args.take_over);
    // The program that runs a paused roll continues it itself, and nothing has to be confirmed: if it was seen lately, it is waited
    // for. Otherwise, questions and refusals come before the wait: nobody watches that.
    let may_be_continued = before.paused && is_seen(&before, Timestamp::now());
    let mut runner = match last {
        Some(last) if may_be_continued => find_runner(name, last, cluster, out).await?,
        Some(last) => store::find_runner(cluster, name, last, FIRST_ANSWER_TIMEOUT).await?,
        None => None,
    };
    if runner.is_none() {
        confirm(&args, &given, &roll, &before, cluster.context(), out)?;
        if let Some(last) = last.filter(|_| !may_be_continued) {
            runner = find_runner(name, last, cluster, out).await?;
        }
    }
    if let Some(Runner { id, who, .. }) = runner {
        if !before.paused {
            return Err(running(&args, who).into());
        }
        ask(&args, &roll, &before, true, None, cluster.context(), out)?;
        skip(&args, &roll, cluster, out).await?;
        // The program that runs a paused roll waits, and then continues.
        let is_unchanged = |record: &RollRecord| record.runner.as_ref().is_some_and(|runner| runner.id == id);
        let (roll, _) = store::update(cluster, name, |now, record| {
            if now.settings != roll.settings {
                return Err(RollError::Contended.into());
            }
            refuse_what_others_ended(name, &before, &record)?;
            let record = RollRecord { paused: false, pause: None, aborted: None, ..record };
            if is_unchanged(&record) { Ok(record) } else { Err(RollError::Contended.into()) }
        })
        .await?;
        continue_drains(roll, &args, cluster).await?;
        out.data(&Line::new(format!("{who} continues roll {name}")))?;
        return Ok(Exit::Done);
    }
    let confirmed = roll.settings.clone();
    let earlier = roll;

    let me = this_runner();
    let (roll, record) = store::update(cluster, name, |roll, record| {
        if roll.settings != confirmed {
            return Err(RollError::Contended.into());
        }
        Ok(claim(name, &before, record, &me, args.take_over)?)
    })
    .await?;
    let continued = async {
        let skipped = skip(&args, &earlier, cluster, out).await?;
        Ok::<_, Error>((continue_drains(roll, &args, cluster).await?, skipped))
    };
    let (roll, skipped) = match continued.await {
        Ok(continued) => continued,
        Err(error) => {
            store::release_runner(cluster, name, &me.id).await;
            return Err(error);
        }
    };
    // The record stays that of the claim, so that a change of somebody else since then is noticed.
    let changed = skipped.unwrap_or_else(|| record.clone());
    let RollRecord { absent, skipped, gone, .. } = changed;
    run_roll(&roll, RollRecord { absent, skipped, gone, ..record }, before.halt, &args.output, cluster, out)
        .await
}

/// Lets the cluster continue a roll. Its Job waits for that, or is created again.
async fn resume_in_cluster(
    args: &ResumeArgs,
    given: &GivenActions,
    roll: &Roll,
    before: &RollRecord,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Exit, Error> {
    let name = roll.name.as_str();
    let stands_still = before.paused || before.halt.is_some() || before.aborted.is_some();
    let may_wait = |runner: &&Runner| runner.in_cluster && stands_still;
    if let Some(last) = before.runner.as_ref().filter(|runner| !args.take_over && !may_wait(runner)) {
        let runner = store::find_runner(cluster, name, last, FIRST_ANSWER_TIMEOUT).await?;
        if let Some(runner) = runner.filter(|_| !stands_still || !last.in_cluster) {
            return Err(running(args, runner.who).into());
        }
    }
    // The Job that waits runs only the actions that were confirmed when it was created.
    let is_only_paused =
        before.paused && before.halt.is_none() && before.aborted.is_none() && !args.take_over;
    if is_only_paused && in_cluster::is_running(roll, args.runner_image.as_deref(), cluster).await? {
        ask(args, roll, before, true, None, cluster.context(), out)?;
    } else {
        confirm(args, given, roll, before, cluster.context(), out)?;
    }
    let image = in_cluster::image(args.runner_image.as_deref(), cluster).await?;
    let job = runner_job::of(name, &roll.settings, &image);
    skip(args, roll, cluster, out).await?;
    // Before the roll continues: its runner would see a drain that has timed out, and halt again.
    continue_drains(roll.clone(), args, cluster).await?;
    store::update(cluster, name, |now, record| {
        if now.settings != roll.settings {
            return Err(RollError::Contended.into());
        }
        refuse_what_others_ended(name, before, &record)?;
        // A program on a computer that runs the roll ends when it sees another runner.
        let job = || Runner {
            id: runner_job::name(name),
            who: runner_job::title(name),
            at: Timestamp::now(),
            in_cluster: true,
            node: None,
        };
        let runner = if args.take_over { Some(job()) } else { record.runner.clone() };
        Ok(RollRecord { paused: false, pause: None, halt: None, aborted: None, runner, ..record })
    })
    .await?;
    let given = args.runner_image.as_deref();
    in_cluster::ensure(cluster, &job, given, Some((name, out))).await?;
    out.data(&Line::new(format!("roll {name} continues in the cluster: {}", runner_job::title(name))))?;
    // Its pod may start only after a while, which a resume does not change.
    let is_awaited = !is_seen(before, Timestamp::now());
    if let Ok(Some(job)) = starting(cluster, name).await
        && let Some(words) = job.words().filter(|_| is_awaited)
    {
        out.message(&Line::new(words));
    }
    Ok(Exit::Done)
}

/// A roll that somebody else has aborted, or that has halted, since it was read is not continued.
fn refuse_what_others_ended(name: &str, before: &RollRecord, record: &RollRecord) -> Result<(), RollError> {
    if let (Some(who), None) = (&record.aborted, &before.aborted) {
        return Err(RollError::AbortedMeanwhile { name: name.to_owned(), who: who.clone() });
    }
    match &record.halt {
        Some(halt) if record.halt != before.halt => {
            Err(RollError::HaltedMeanwhile { name: name.to_owned(), message: halt.message.clone() })
        }
        _ => Ok(()),
    }
}

/// The error of a roll that another program runs.
fn running(args: &ResumeArgs, who: String) -> RollError {
    RollError::Running { name: args.roll.name.clone(), who, skip: args.skip.clone() }
}

/// The record of a roll that this program continues, unless somebody else has continued, paused or aborted it, or it has
/// halted, since it was read.
fn claim(
    name: &str,
    before: &RollRecord,
    record: RollRecord,
    me: &Runner,
    take_over: bool,
) -> Result<RollRecord, RollError> {
    let is_free = record.runner.is_none() || record.runner == before.runner;
    if !(is_free || take_over) {
        return Err(RollError::Contended);
    }
    refuse_what_others_ended(name, before, &record)?;
    if record.paused && !before.paused {
        return Err(RollError::PausedMeanwhile(name.to_owned()));
    }
    let runner = Some(me.clone());
    let ended = RollRecord { paused: false, pause: None, halt: None, aborted: None, ..record };
    Ok(RollRecord { asked: false, runner, health: Vec::new(), ..ended })
}

/// What the user has to know and to confirm before this program runs the roll.
fn confirm(
    args: &ResumeArgs,
    given: &GivenActions,
    roll: &Roll,
    record: &RollRecord,
    context: &str,
    out: &mut Output,
) -> Result<(), Error> {
    if roll.settings.confirm && !out.can_ask() {
        return Err(RollError::ResumeNeedsTerminal(roll.name.clone()).into());
    }
    if roll.is_record_lost() {
        warn_of_lost_record(roll, out);
    }
    warn_of_running_commands(args, roll, record, out);
    let mut left = unfinished(Some(roll), record);
    left.retain(|left| !args.skip.contains(&left.node));
    let again = run_again(&left);
    if !again.is_empty() {
        out.message(&Line::new(format!("The action of {} failed, and runs again.", again.join(", "))));
    }
    if let Some(again) = runs_unless_rebooted(&left) {
        out.message(&Line::new(format!("{}.", capitalized(&again))));
    }
    report_windows(&roll.settings.windows, out);
    let unconfirmed = unconfirmed_action(args, given, roll, record, out)?;
    ask(args, roll, record, false, unconfirmed.as_deref(), context, out)
}

/// Reports what the skips do, and asks whether the roll continues, if an action is `unconfirmed` or a skip interrupts one.
/// Without a terminal, a skip is no reason to stop: it was asked for. `is_run`: a program runs the roll, and waits until it is
/// resumed.
fn ask(
    args: &ResumeArgs,
    roll: &Roll,
    record: &RollRecord,
    is_run: bool,
    unconfirmed: Option<&str>,
    context: &str,
    out: &mut Output,
) -> Result<(), Error> {
    let skips: Vec<Skip<'_>> = args.skip.iter().map(|node| Skip::of(node, roll, record, is_run)).collect();
    let lines: Vec<Line> = skips.iter().map(Skip::line).collect();
    let needs_answer = unconfirmed.is_some() || skips.iter().any(Skip::interrupts);
    if !needs_answer || args.yes || !out.can_ask() {
        for line in &lines {
            out.message(line);
        }
        return Ok(());
    }
    let what = format!("Continue roll {}", roll.name);
    let left = roll.nodes.iter().map(|node| node.node().to_owned());
    let nodes: Vec<String> = left.filter(|node| !args.skip.contains(node)).collect();
    let (cluster, runs, harms) = (context, unconfirmed, lines.as_slice());
    let reasons = purposes(roll.nodes.iter().map(|node| &*node.object));
    let reason = reasons.as_deref();
    let question =
        Question { what: &what, cluster, nodes: &nodes, reason, runs, harms, ..Question::default() };
    match question.ask(false, out) {
        Err(Error::Declined) if record.paused => Err(RollError::StaysPaused(roll.name.clone()).into()),
        answered => answered,
    }
}

/// The program that runs the roll now, which `last` ran last; none if nobody does.
async fn find_runner(
    name: &str,
    last: &Runner,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Option<Runner>, Error> {
    let timeout = HEARTBEAT_TIMEOUT.unsigned_abs();
    let message = || {
        format!(
            "waiting up to {} for {}, who last ran roll {name}; --take-over skips the wait",
            duration::show(timeout),
            last.who
        )
    };
    progress::during(out, message, store::find_runner(cluster, name, last, timeout)).await
}

/// Takes the skipped nodes out of the roll, which was like this when the user decided that. A node whose command or Job has
/// begun since then stays. Returns the record with them; none if no node is skipped.
async fn skip(
    args: &ResumeArgs,
    roll: &Roll,
    cluster: &Cluster,
    out: &mut Output,
) -> Result<Option<RollRecord>, Error> {
    if args.skip.is_empty() {
        return Ok(None);
    }
    let change = |now: &Roll, record| Ok(skipped(&args.skip, now, record));
    let (before, record) = store::update(cluster, &roll.name, change).await?;
    let is_known =
        |node: &RollNode| !node.is_worked_on() || roll.node(node.node()).is_some_and(RollNode::is_worked_on);
    let is_skipped = |node: &RollNode| args.skip.iter().any(|name| name == node.node()) && is_known(node);
    let removed = store::remove(cluster, &roll.name, is_skipped).await?;
    for node in &removed {
        // By now, it may be back in service.
        out.message(&skip::result(before.node(node.node()).unwrap_or(node)));
    }
    // An absent node has no maintenance.
    let stays = |name: &&String| {
        roll.node(name).is_some() && !removed.iter().any(|node| node.node() == name.as_str())
    };
    match args.skip.iter().find(stays) {
        None => Ok(Some(record)),
        Some(node) => Err(RollError::HasBegun(node.clone()).into()),
    }
}

/// Lets the drains continue. Returns the roll without the nodes that were skipped.
async fn continue_drains(mut roll: Roll, args: &ResumeArgs, cluster: &Cluster) -> Result<Roll, Error> {
    roll.nodes.retain(|node| !args.skip.iter().any(|name| name == node.node()));
    if let Some(limit) = args.timeout {
        store::extend_drains(cluster, &roll, limit).await?;
    }
    store::suspend_drains(cluster, &roll, false).await?;
    Ok(roll)
}

fn warn_of_lost_record(roll: &Roll, out: &mut Output) {
    let left = roll.nodes.len();
    let gone = roll.settings.nodes().saturating_sub(left);
    out.message(&Line::new(format!(
        "warning: the state of roll {} was deleted together with the maintenance of a node. Unknown: how many of the \
         other nodes ({gone}) are done, how long they took, how many pods left, who ran the roll, and whether it was \
         paused or halted. The steps of the remaining nodes ({left}), and the results of their actions, are kept.",
        roll.name,
    )));
}

/// The program that ran the roll last may not have ended, or its command may run on the node although it has.
fn warn_of_running_commands(args: &ResumeArgs, roll: &Roll, record: &RollRecord, out: &mut Output) {
    let is_running = |node: &&RollNode| {
        let action = node.record.current_action();
        let is_skipped = args.skip.iter().any(|skipped| skipped == node.node());
        !is_skipped
            && roll.settings.runs_command(node.record.step)
            && action.is_some_and(ActionRecord::is_running)
    };
    let running = roll.nodes.iter().filter(is_running).map(RollNode::node).collect::<Vec<_>>().join(", ");
    let Some(runner) = &record.runner else { return };
    if !running.is_empty() {
        out.message(&Line::new(format!(
            "warning: {} has started the command for {running}. The command may still be running on that computer or \
             on the node, and is run again here.",
            runner.who
        )));
    }
}

/// The actions that flags give, each with that of the roll.
fn action_pairs<'a>(
    given: &'a GivenActions,
    roll: &'a Roll,
) -> [(&'a Option<NodeAction>, &'a Option<NodeAction>); 3] {
    let RollSettings { before, action, after, .. } = &roll.settings;
    [(&given.before, before), (&given.action, action), (&given.after, after)]
}

/// Refuses flags that give another action than the roll has.
fn refuse_other_actions(given: &GivenActions, roll: &Roll) -> Result<(), RollError> {
    let is_other = action_pairs(given, roll).iter().any(|(given, stored)| given.is_some() && given != stored);
    if !is_other {
        return Ok(());
    }
    let action = roll.settings.describe_actions().unwrap_or_else(|| String::from("none"));
    Err(RollError::OtherAction { name: roll.name.clone(), action })
}

/// The action that the user has not confirmed by flags, and has to confirm. The actions are in the objects, which others may write.
/// So the user who resumes the roll confirms what is run on this computer, or created with their permissions.
fn unconfirmed_action(
    args: &ResumeArgs,
    given: &GivenActions,
    roll: &Roll,
    record: &RollRecord,
    out: &mut Output,
) -> Result<Option<String>, Error> {
    let pairs = action_pairs(given, roll);
    let Some(shown) = roll.settings.describe_actions() else { return Ok(None) };
    let name = roll.name.clone();
    match () {
        () if pairs.iter().all(|(given, stored)| given == stored) => Ok(None),
        () if args.yes => {
            out.message(&Line::new(format!("Roll {name}, for each node: {shown}")));
            Ok(None)
        }
        () if !out.can_ask() => {
            let (is_paused, command) = (record.paused && record.aborted.is_none(), args.confirmed_command());
            Err(RollError::UnconfirmedAction { name, action: shown, is_paused, command }.into())
        }
        () => Ok(Some(shown)),
    }
}

#[cfg(test)]
#[path = "resume_tests.rs"]
mod tests;
