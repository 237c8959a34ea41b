//! The causes that concern the roll of a maintenance: nobody runs it, somebody has paused or aborted it, or has to confirm.

use jiff::Timestamp;
use nm_shared::api::condition::ConditionType;
use nm_shared::{Hook, NodeMaintenance};

use crate::args::duration::TimeStyle;
use crate::explain::cause::{Cause, CommonGround, Outlook, sentence};
use crate::explain::cluster_facts::ClusterFacts;
use crate::maintenance::roll::{self, Pause, RollRunners, RollStanding, Runner, Step, awaits_confirmation};
use crate::maintenance::roll_job::{RollJob, describe_pods};
use crate::maintenance::{State, condition, hooks_removed, node, roll_hook_owner, roll_name};
use crate::terminal::command_context::{nm_command, shell_quoted, skip_command};

/// How the Job that a roll runs for its nodes is changed: the roll keeps the one that it was started with.
pub const CHANGE_JOB: &str = "To change the Job, abort the roll, which also ends what runs for its other nodes and returns them to \
    service, and start a new one";

/// `It is part of roll kernel, at step Acting; ada@vm runs the roll, last seen 12s ago.` None if it is part of none.
pub fn part_of_roll(maintenance: &NodeMaintenance, rolls: &RollRunners, now: Timestamp) -> Option<String> {
    let roll = roll_name(maintenance)?;
    // What a planned node waits for is its cause.
    let Some(step) = roll::step(maintenance).filter(|step| *step != Step::Planned) else {
        return Some(format!("It is part of roll {roll}."));
    };
    let runs = if rolls.is_run(roll, now) { "runs" } else { "ran" };
    let seen = |Runner { who, at, .. }: &Runner| {
        format!("; {who} {runs} the roll, last seen {}", TimeStyle::Ago(now).words(*at))
    };
    let seen = rolls.last_runner(roll).map(seen).unwrap_or_default();
    Some(format!("It is part of roll {roll}, at step {}{seen}.", step.word()))
}

/// The cause that the Job of the roll does not start for the node.
pub(super) fn job_does_not_start(
    maintenance: &NodeMaintenance,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Option<Cause> {
    let (roll, problem) = (roll_name(maintenance)?, facts.job_problems.get(node(maintenance))?);
    let stop = || nm_command(kubectl, &format!("stop {}", shell_quoted(node(maintenance))));
    let (otherwise, commands) = if facts.rolls.aborted_by(roll).is_none() {
        let otherwise = format!("the roll halts when the Job has had its time. {CHANGE_JOB}");
        (otherwise, vec![format!("{} --return", roll_command("abort", roll, kubectl))])
    } else {
        let stays = "the node stays in maintenance when the Job has had its time. Or";
        if facts.rolls.is_run(roll, now) {
            (format!("{stays} return the node to service without its Job"), vec![stop()])
        } else {
            // Nobody deletes the Job: its pod could still start, on a node in service.
            let otherwise = format!("{stays} delete the Job, and then return the node to service");
            (otherwise, vec![problem.deletion(kubectl), stop()])
        }
    };
    Some(Cause {
        what: vec![sentence(&format!(
            "The Job that roll {roll} runs for the node does not start: {}",
            problem.words
        ))],
        advice: format!("Correct what its pod waits for; without that, {otherwise}"),
        commands: [roll_command("status", roll, kubectl)].into_iter().chain(commands).collect(),
        common: Some(CommonGround::RollJobs(roll.to_owned())),
        outlook: Outlook::WillBlock,
        ..Cause::default()
    })
}

/// The cause that nothing becomes of a node by itself after its drain: nobody runs its roll, somebody has paused it, or has to
/// confirm. Or that its roll, which was aborted, still returns it.
pub(super) fn left_by_roll(
    maintenance: &NodeMaintenance,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Option<Cause> {
    let roll = roll_name(maintenance)?;
    let paused = pause_sentence(roll, &facts.rolls);
    let is_left = facts.rolls.is_left(roll, now) && !facts.roll_jobs.contains_key(roll);
    if let Some(who) = facts.rolls.aborted_by(roll).filter(|_| is_left) {
        let stop = nm_command(kubectl, &format!("stop {}", shell_quoted(node(maintenance))));
        return Some(Cause {
            what: vec![format!(
                "{who} aborted roll {roll}, and nobody finishes the node: it stays in maintenance."
            )],
            advice: String::from(
                "Return the node to service once its work is done; or continue the roll after all, with its action",
            ),
            commands: vec![stop, roll_command("resume", roll, kubectl)],
            ..Cause::default()
        });
    }
    if facts.rolls.is_abandoned(roll, now) {
        let node = shell_quoted(node(maintenance));
        let what = "so the node stays in maintenance";
        let mut cause = abandoned(roll, what, facts, kubectl);
        if !cause.passes() {
            cause.advice.push_str(". Or return the node to service once its work is done");
            cause.commands.push(nm_command(kubectl, &format!("stop {node}")));
        }
        return Some(cause);
    }
    let standing = facts.rolls.standing(roll, now)?;
    if State::of(maintenance) != State::Drained {
        let RollStanding::Ending(who) = standing else { return None };
        return Some(Cause {
            what: vec![format!(
                "Roll {roll} was aborted: {who} still drains the node, runs its action, and returns it to service."
            )],
            advice: String::from("To return the node to service without its action, stop its maintenance"),
            commands: vec![nm_command(kubectl, &format!("stop {}", shell_quoted(node(maintenance))))],
            outlook: Outlook::Passes,
            ..Cause::default()
        });
    }
    let goes_on = matches!(standing, RollStanding::Running(_) | RollStanding::Paused);
    if let Some(early) = started_early(maintenance, roll, facts, kubectl).filter(|_| goes_on) {
        return Some(early);
    }
    if let Some((what, advice)) = drained_by_roll(maintenance, roll, &standing) {
        let commands = vec![roll_command("status", roll, kubectl)];
        return Some(Cause {
            what: vec![what],
            advice,
            commands,
            outlook: Outlook::Passes,
            ..Cause::default()
        });
    }
    let paused = paused?;
    Some(Cause {
        what: vec![
            paused,
            String::from("No further node, command or Job is started until the roll is resumed."),
        ],
        since: facts.rolls.pause(roll).map(|pause| pause.at),
        advice: String::from("To continue, resume the roll"),
        commands: vec![roll_command("resume", roll, kubectl)],
        outlook: Outlook::Passes,
        ..Cause::default()
    })
}

/// Why a roll keeps the maintenance of a node that is back in service: its last checks are not done.
pub(super) fn kept(
    roll: &str,
    maintenance: &NodeMaintenance,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Cause {
    let command = |verb: &str| roll_command(verb, roll, kubectl);
    let back = "The node is back in service, and roll";
    let checks = format!("{back} {roll} checks that it and its workloads stay healthy.");
    let unhealthy = facts.rolls.unhealthy(maintenance, now);
    let checks = match unhealthy {
        Some(why) => format!("{checks} Not healthy yet: {}", sentence(why)),
        None => checks,
    };
    let unchecked =
        format!("{back} {roll} has not checked to the end that it and its workloads stay healthy.");
    // The checks of a node go on while its roll is paused.
    let is_run = facts.rolls.is_run(roll, now);
    let wait = "Wait until the roll is done with the node; see how far it is";
    let (what, advice, commands) = match facts.rolls.standing(roll, now) {
        Some(RollStanding::Running(_)) => (vec![checks], wait.to_owned(), vec![command("status")]),
        Some(RollStanding::Ending(who)) => (
            vec![checks, format!("The roll was aborted, and {who} finishes the node.")],
            wait.to_owned(),
            vec![command("status")],
        ),
        Some(RollStanding::Paused) if is_run => (
            [checks].into_iter().chain(pause_sentence(roll, &facts.rolls)).collect(),
            format!("{wait}. To continue with other nodes, resume the roll"),
            vec![command("status"), command("resume")],
        ),
        Some(RollStanding::Paused) => (
            [unchecked].into_iter().chain(pause_sentence(roll, &facts.rolls)).collect(),
            String::from("To continue, resume the roll"),
            vec![command("resume")],
        ),
        Some(RollStanding::Abandoned) => {
            let mut cause = abandoned(roll, "so the maintenance stays", facts, kubectl);
            cause.what.insert(0, unchecked);
            if !cause.passes() {
                cause.advice.push_str(". Or abort the roll");
                cause.commands.push(command("abort"));
            }
            return cause;
        }
        Some(RollStanding::Halted) => (
            vec![unchecked],
            String::from("See why the roll halted; then continue it, or abort it"),
            ["status", "resume", "abort"].map(command).into(),
        ),
        Some(RollStanding::Over) => (
            vec![unchecked, String::from("The roll was aborted, and nobody finishes the node.")],
            String::from("To remove what is left of the roll, abort it again"),
            vec![command("abort")],
        ),
        None => (
            vec![checks],
            String::from("If nobody runs the roll, continue it, or abort it"),
            ["resume", "abort"].map(command).into(),
        ),
    };
    Cause { what, advice, commands, outlook: Outlook::Passes, ..Cause::default() }
}

/// That somebody has started the drain of a node before its turn, so that it stays drained until its turn comes.
fn started_early(
    maintenance: &NodeMaintenance,
    roll: &str,
    facts: &ClusterFacts,
    kubectl: &str,
) -> Option<Cause> {
    roll::step(maintenance).filter(|step| *step == Step::Planned)?;
    let name = node(maintenance);
    let early = format!(
        "Somebody started the drain before its turn in roll {roll}: the node stays drained until its turn comes."
    );
    let turn = facts.turns.get(name).into_iter().flatten().cloned();
    Some(Cause {
        what: [early].into_iter().chain(turn).chain(pause_sentence(roll, &facts.rolls)).collect(),
        advice: String::from(
            "See how far the roll is. To return the node to service until then, stop its maintenance: it leaves the roll",
        ),
        commands: vec![
            roll_command("status", roll, kubectl),
            nm_command(kubectl, &format!("stop {}", shell_quoted(name))),
        ],
        outlook: Outlook::Passes,
        ..Cause::default()
    })
}

/// What the program that runs the roll of a drained node waits for, or still does, and what to do: somebody has to confirm, or the
/// roll was aborted.
fn drained_by_roll(
    maintenance: &NodeMaintenance,
    roll: &str,
    standing: &RollStanding,
) -> Option<(String, String)> {
    let node = node(maintenance);
    match standing {
        RollStanding::Running(who) if awaits_confirmation(maintenance) => Some((
            format!("Roll {roll} waits until somebody confirms that it continues with node {node}."),
            format!("Answer the question on the terminal where {who} runs the roll"),
        )),
        RollStanding::Ending(who) => Some((
            format!(
                "Roll {roll} was aborted: {who} finishes the nodes whose command or Job has started, and returns them to \
                 service."
            ),
            String::from("Wait until the roll has returned the node; see how far it is"),
        )),
        _ => None,
    }
}

/// The cause that nobody runs a roll: it has to be resumed, or its Job is starting, or cannot start.
fn abandoned(roll: &str, so: &str, facts: &ClusterFacts, kubectl: &str) -> Cause {
    let nobody = format!("Nobody runs roll {roll}, {so}");
    let status = roll_command("status", roll, kubectl);
    let mut cause = match facts.roll_jobs.get(roll) {
        Some(RollJob::Starting(words)) => Cause {
            what: vec![format!("Nobody runs roll {roll} now. {words}.")],
            advice: String::from("The Job starts by itself; if it takes long, its pod shows why"),
            commands: vec![describe_pods(roll, kubectl)],
            outlook: Outlook::Passes,
            ..Cause::default()
        },
        Some(job @ RollJob::Stuck { words, .. }) => Cause {
            what: vec![format!("{nobody}. {words}.")],
            advice: job.advice().to_owned(),
            commands: job.repair(roll, kubectl).into_iter().collect(),
            ..Cause::default()
        },
        Some(RollJob::Unread(error)) => Cause {
            what: vec![format!("{nobody}, unless its Job is starting. The Job cannot be read: {error}.")],
            ..abandoned_by_program(roll, String::new(), status, kubectl)
        },
        None => abandoned_by_program(roll, format!("{nobody}."), status, kubectl),
    };
    if let Some(paused) = pause_sentence(roll, &facts.rolls).filter(|_| !cause.passes()) {
        cause.what.push(paused);
        cause.advice.push_str(", which also ends the pause");
    }
    Cause { since: facts.rolls.last_runner(roll).map(|runner| runner.at), ..cause }
}

fn abandoned_by_program(roll: &str, what: String, status: String, kubectl: &str) -> Cause {
    Cause {
        what: vec![what],
        advice: String::from("See what the roll was doing; then continue it"),
        commands: vec![status, roll_command("resume", roll, kubectl)],
        ..Cause::default()
    }
}

/// That a roll is paused; none if it is not.
fn pause_sentence(roll: &str, rolls: &RollRunners) -> Option<String> {
    rolls.is_paused(roll).then(|| match rolls.pause(roll) {
        Some(Pause { by, at }) => {
            format!("{by} paused roll {roll} at {}.", at.strftime("%Y-%m-%d %H:%M:%S UTC"))
        }
        None => format!("Roll {roll} is paused."),
    })
}

/// The commands that continue the roll of a maintenance without its node; none if it is part of none, or if the roll was aborted
/// and is not to be continued.
pub fn skip_of(
    maintenance: &NodeMaintenance,
    rolls: &RollRunners,
    kubectl: &str,
    now: Timestamp,
) -> Option<String> {
    let roll = roll_name(maintenance)?;
    let standing = rolls.standing(roll, now);
    let is_running = matches!(standing, Some(RollStanding::Running(_)));
    let was_aborted = matches!(standing, Some(RollStanding::Ending(_) | RollStanding::Over));
    (!was_aborted).then(|| skip_command(kubectl, roll, node(maintenance), is_running))
}

/// Adds to a cause that a node may not come back, that its roll can go on without it.
pub(super) fn offer_skip(
    cause: &mut Cause,
    maintenance: &NodeMaintenance,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) {
    let Some(roll) = roll_name(maintenance) else { return };
    let Some(skip) = skip_of(maintenance, &facts.rolls, kubectl, now) else { return };
    let ends_pause = if facts.rolls.is_paused(roll) { ", and the roll is no longer paused" } else { "" };
    cause.advice = format!(
        "{}. To continue roll {roll} without the node, skip it: it returns to service as it is{ends_pause}",
        cause.advice
    );
    cause.commands.push(skip);
}

/// A command about a roll.
pub fn roll_command(verb: &str, roll: &str, kubectl: &str) -> String {
    nm_command(kubectl, &format!("roll {verb} {}", shell_quoted(roll)))
}

/// Somebody wants it so: nothing is blocked, unless nobody runs the roll that is to begin the maintenance.
pub(super) fn suspended(
    maintenance: &NodeMaintenance,
    facts: &ClusterFacts,
    kubectl: &str,
    now: Timestamp,
) -> Cause {
    let (is_planned, roll) = (State::of(maintenance) == State::Planned, roll_name(maintenance));
    let runner = roll.and_then(|roll| facts.rolls.runner(roll, now));
    let paused = roll.and_then(|roll| pause_sentence(roll, &facts.rolls));
    let is_stuck = |roll: &str| matches!(facts.roll_jobs.get(roll), Some(RollJob::Stuck { .. }));
    let since =
        condition(maintenance, ConditionType::Suspended).map(|suspended| suspended.last_transition_time.0);
    if let Some(roll) = roll.filter(|roll| {
        is_planned && (paused.is_none() || is_stuck(roll)) && facts.rolls.is_abandoned(roll, now)
    }) {
        return abandoned(roll, "so the maintenance does not start", facts, kubectl);
    }
    if let Some((roll, who)) = roll.and_then(|roll| Some((roll, facts.rolls.aborted_by(roll)?)))
        && is_planned
    {
        return Cause {
            what: vec![format!("{who} aborted roll {roll}: the maintenance does not start.")],
            since,
            advice: String::from("To remove what is left of the roll, abort it again"),
            commands: vec![roll_command("abort", roll, kubectl)],
            outlook: Outlook::Passes,
            ..Cause::default()
        };
    }
    let what = match (is_planned, roll, runner) {
        (true, Some(roll), Some(who)) => {
            format!("The maintenance starts when its turn in roll {roll} comes; {who} runs the roll.")
        }
        (true, Some(roll), None) if paused.is_some() => {
            format!("The maintenance starts when its turn in roll {roll} comes.")
        }
        (true, Some(roll), None) => {
            format!(
                "The maintenance starts when its turn in roll {roll} comes, but the roll starts no node now."
            )
        }
        (true, None, _) => {
            String::from("The maintenance is planned: it was created suspended, and has not started.")
        }
        (false, ..) => {
            String::from("The maintenance is paused: no pod is evicted, and the node stays cordoned.")
        }
    };
    let (advice, commands) = match (is_planned, roll, runner) {
        (true, Some(roll), Some(_)) => {
            ("See how far the roll is", vec![roll_command("status", roll, kubectl)])
        }
        // Resumed alone, the node would not wait for the gates and the limit of its roll.
        (_, Some(roll), None) if paused.is_some() => {
            ("To continue, resume the roll", vec![roll_command("resume", roll, kubectl)])
        }
        // A roll whose state is gone cannot be resumed before its first node begins.
        (true, Some(roll), None) if facts.rolls.standing(roll, now).is_none() => {
            ("See why", vec![roll_command("status", roll, kubectl)])
        }
        (_, Some(roll), None) => (
            "See why, then resume the roll",
            ["status", "resume"].map(|verb| roll_command(verb, roll, kubectl)).into(),
        ),
        _ => (
            "To continue, resume the maintenance",
            vec![nm_command(kubectl, &format!("resume {}", shell_quoted(node(maintenance))))],
        ),
    };
    // In a roll that starts no node, it does not matter when its turn comes.
    let turn = runner.and_then(|_| Some((roll?, facts.turns.get(node(maintenance))?)));
    let waits = turn.iter().flat_map(|(_, waits)| waits.iter().cloned());
    let closed = roll.filter(|_| is_planned && turn.is_none());
    let closed = closed.and_then(|roll| Some(sentence(&facts.rolls.closed_window(roll, now)?)));
    let hooks = if is_planned { hooks_ahead(maintenance) } else { Vec::new() };
    Cause {
        what: [what].into_iter().chain(paused).chain(waits).chain(closed).chain(hooks).collect(),
        common: turn.map(|(roll, _)| CommonGround::Turn(roll.to_owned())),
        since,
        advice: advice.to_owned(),
        commands,
        outlook: Outlook::Passes,
        ..Cause::default()
    }
}

/// The hooks that a planned maintenance will wait for, apart from that of its roll.
fn hooks_ahead(maintenance: &NodeMaintenance) -> Vec<String> {
    let own = roll_name(maintenance).map(roll_hook_owner);
    let removed = |mut hooks: Vec<Hook>| {
        hooks.retain(|hook| own.as_ref() != Some(&hook.owner));
        hooks_removed(&hooks)
    };
    let evicts = removed(Hook::before_eviction(&maintenance.metadata));
    let returns = removed(Hook::before_return(&maintenance.metadata));
    let evicts = evicts.map(|removed| format!("No pod is evicted then until {removed}."));
    let returns = returns.map(|removed| format!("The node does not return to service then until {removed}."));
    evicts.into_iter().chain(returns).collect()
}

#[cfg(test)]
#[path = "roll_causes_tests.rs"]
mod tests;
