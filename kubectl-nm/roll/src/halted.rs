//! What to do about a roll that has halted: why it did, whether that is over by now, and what runs again when it is resumed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use nm_core::explain::cause::{Cause, sentence};
use nm_core::explain::roll_causes::CHANGE_JOB;
use nm_core::terminal::command_context::{nm_command, shell_quoted};
use nm_shared::NodeMaintenance;

use crate::by_now::ByNow;
use crate::job;
use crate::observed::{NodeView, Observed};
use crate::record::{ActionState, Halt, HaltCause, Health, ProbedHealth, Roll, RollNode, roll_name};
use crate::skip;
use crate::unfinished::{UnfinishedNode, again_sentences, unfinished};

/// A roll that has halted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HaltedRoll {
    name: String,
    halt: Halt,
    by_now: Option<ByNow>,
    /// Whether it is not known if the node has rebooted since.
    is_unread: bool,
    /// What is not healthy now of the node that halted it, or of the workloads affected by its drain.
    unhealthy: Option<String>,
    /// Whether the node that halted it is still in maintenance.
    is_there: bool,
    /// What a skip means for the node that halted it; none if it cannot be skipped.
    skip: Option<&'static str>,
    /// The nodes that are not done.
    left: Vec<UnfinishedNode>,
    /// What is left of the Job whose failure halted it.
    job: Option<FailedJob>,
    /// The node whose command has failed, and when the command began.
    command: Option<(String, Timestamp)>,
    /// Where the output of this command is kept, if it is on this machine.
    output: Option<PathBuf>,
}

/// The Job whose failure halted a roll.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FailedJob {
    /// It has run: its namespace and its name, of which the log may be read.
    Run(String, String),
    /// Nothing of it has run, so that it will not run either as it is, unless what kept it from that is corrected.
    NotStarted,
}

/// What is read of the node that halted a roll, besides its maintenance.
#[derive(Clone, Debug, Default)]
pub struct HaltingNode {
    /// The node; none if it does not exist or could not be read.
    pub view: Option<NodeView>,
    /// Whether it could not be read.
    pub is_unread: bool,
    /// What [`probe`](crate::health::probe) has found.
    pub health: Option<ProbedHealth>,
}

/// The rolls of these names among maintenances, without those whose records cannot be read. Each has a copy of its maintenances.
pub fn find_rolls(names: &BTreeSet<&str>, all: &[NodeMaintenance]) -> BTreeMap<String, Roll> {
    let mut objects: BTreeMap<&str, Vec<Arc<NodeMaintenance>>> = BTreeMap::new();
    for object in all {
        if let Some(name) = roll_name(object).filter(|name| names.contains(name)) {
            objects.entry(name).or_default().push(Arc::new(object.clone()));
        }
    }
    let roll = |(name, objects): (&str, Vec<_>)| Some((name.to_owned(), Roll::find(name, &objects).ok()??));
    objects.into_iter().filter_map(roll).collect()
}

impl HaltedRoll {
    /// The roll of this name, with what was read of the node that halted it. Of a roll whose records cannot be read, only the halt is
    /// known.
    pub fn of(name: &str, halt: &Halt, roll: Option<&Roll>, seen: HaltingNode, now: Timestamp) -> Self {
        let record = roll.and_then(|roll| roll.complete_record().ok()).unwrap_or_default();
        let halting = roll.and_then(|roll| Some((roll, roll.node(&halt.node)?)));
        let unhealthy = seen.health.as_ref().and_then(|probed| match &probed.health {
            Health::Waiting(why) => Some(why.clone()),
            Health::Healthy => None,
        });
        let is_unread = seen.is_unread;
        let views = seen.view.map(|view| [(halt.node.clone(), view)].into());
        let by_now = halting.and_then(|(roll, node)| {
            let observed = Observed::shown_at(now, roll, views).with_health(seen.health);
            ByNow::of(&record, node, &roll.settings, &observed)
        });
        let by_now = by_now.or_else(|| ByNow::of_departed(roll?, &record));
        let node = halt.node.as_str();
        let skip = match roll {
            Some(roll) => skip::consequence(node, roll, &record),
            // Whether the node has started is not known.
            None => (!node.is_empty()).then_some(""),
        };
        let mut left = unfinished(roll, &record);
        forget_reboot(&mut left, by_now);
        Self {
            name: name.to_owned(),
            halt: halt.clone(),
            by_now,
            is_unread,
            unhealthy,
            is_there: halting.is_some_and(|(_, node)| !node.is_leaving()),
            skip,
            left,
            job: halting.and_then(|(roll, node)| failed_job(roll, node)),
            command: halting.and_then(|(roll, node)| failed_command(roll, node)),
            output: None,
        }
    }

    /// The same, with where the output of the command that failed is kept: `find` looks for the output of a node since a time.
    #[must_use]
    pub fn with_output(self, find: impl FnOnce(&str, Timestamp) -> Option<PathBuf>) -> Self {
        let output = self.command.as_ref().and_then(|(node, since)| find(node, *since));
        Self { output, ..self }
    }

    /// Whether something else has to be done before the roll can be resumed: the drain that halted it stands still.
    pub fn awaits_drain(&self) -> bool {
        let is_of_drain = matches!(self.halt.cause, Some(HaltCause::Drain | HaltCause::DrainTimedOut));
        is_of_drain && self.by_now.is_none() && self.is_there
    }

    /// The node that halted it; empty if none did.
    pub fn node(&self) -> &str {
        &self.halt.node
    }

    /// What has become of the node that halted it, if the cause does not stand any more: `by now, node n2 is drained`.
    pub fn by_now(&self) -> Option<String> {
        self.by_now.map(|by_now| by_now.words(self.node()))
    }

    /// Why it has halted, what has become of that, and what to do.
    pub fn cause(&self, kubectl: &str) -> Cause {
        let Self { halt, by_now, unhealthy, left, job, output, .. } = self;
        let (roll, node) = (shell_quoted(&self.name), halt.node.as_str());
        let at = halt.at.strftime("%Y-%m-%d %H:%M:%S UTC");
        let mut what = vec![format!("Roll {roll} halted at {at}: {}.", halt.message)];
        what.extend(by_now.map(|by_now| sentence(&by_now.words(node))));
        what.extend(unhealthy.as_ref().map(|why| format!("Still not healthy: {why}.")));
        what.extend(again_sentences(left));
        let kept = output.as_ref().map(|file| format!("The output of the command is in {}.", file.display()));
        what.extend(kept);
        let awaits_reboot = left.iter().any(|left| left.awaits_reboot && left.node == node);
        let unseen = (awaits_reboot && self.is_unread).then(|| {
            format!("Whether node {node} has rebooted since is not known, because it could not be read.")
        });
        let log = match job {
            Some(FailedJob::Run(namespace, name)) => Some(job_log(kubectl, namespace, name)),
            Some(FailedJob::NotStarted) | None => None,
        };
        let never_started = *job == Some(FailedJob::NotStarted);
        let continue_it = match by_now {
            Some(_) => String::from("Continue the roll"),
            None if never_started => {
                format!("{CHANGE_JOB}. Or correct what kept it from starting, and continue the roll")
            }
            None if self.awaits_drain() => {
                format!("First let the drain of node {node} continue; then continue the roll")
            }
            None if log.is_some() => String::from(
                "The log of the Job may show why. When nothing prevents it any more, continue the roll",
            ),
            None if unseen.is_some() => {
                format!(
                    "Unless node {node} has rebooted or is still at work, reboot it or power it on; then continue the roll"
                )
            }
            None if awaits_reboot => {
                format!(
                    "Unless node {node} is still at work, reboot it or power it on; then continue the roll"
                )
            }
            None => String::from("When nothing prevents it any more, continue the roll"),
        };
        let without = self.skip.map(|becomes| format!("; or continue without the node{becomes}"));
        let without = without.unwrap_or_default();
        let skip = self.skip.map(|_| format!("resume {roll} --skip {}", shell_quoted(node)));
        let (resume, abort) = (Some(format!("resume {roll}")), format!("abort {roll}"));
        // The same Job only starts once what kept it from that is corrected.
        let (advice, commands) = if never_started {
            (format!("{continue_it}{without}"), [Some(abort + " --return"), resume, skip])
        } else {
            (format!("{continue_it}{without}, or abort the roll"), [resume, skip, Some(abort)])
        };
        let commands =
            commands.into_iter().flatten().map(|rest| nm_command(kubectl, &format!("roll {rest}")));
        Cause {
            what,
            since: Timestamp::from_second(halt.at.as_second()).ok(),
            unseen: unseen.into_iter().collect(),
            advice,
            commands: log.into_iter().chain(commands).collect(),
            ..Cause::default()
        }
    }
}

/// A node that has rebooted by now does not run its action again.
pub fn forget_reboot(left: &mut [UnfinishedNode], by_now: Option<ByNow>) {
    let has_rebooted = matches!(by_now, Some(ByNow::Rebooted { .. }));
    for node in left {
        node.awaits_reboot &= !has_rebooted;
    }
}

/// The command that shows the log of a Job.
pub fn job_log(kubectl: &str, namespace: &str, name: &str) -> String {
    format!("{kubectl} -n {} logs job/{}", shell_quoted(namespace), shell_quoted(name))
}

/// What is left of the Job of a node that has failed; none if the action of its step is a command, or has not failed, or if nothing is
/// left of its Job.
fn failed_job(roll: &Roll, node: &RollNode) -> Option<FailedJob> {
    match node.record.failed_action()?.state {
        ActionState::NotStarted(_) => Some(FailedJob::NotStarted),
        _ => job::failed(roll, node).map(|(namespace, name)| FailedJob::Run(namespace, name)),
    }
}

/// The node whose command has failed, and when the command began.
fn failed_command(roll: &Roll, node: &RollNode) -> Option<(String, Timestamp)> {
    node.record.failed_action()?;
    roll.settings.runs_command(node.record.step).then(|| (node.node().to_owned(), node.record.since))
}
