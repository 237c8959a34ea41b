//! What to do about a roll that has halted: why it did, whether that is over by now, and what runs again when it is resumed.

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use nm_core::explain::cause::{Cause, sentence};
use nm_core::terminal::command_context::{nm_command, shell_quoted};
use nm_shared::NodeMaintenance;

use crate::by_now::ByNow;
use crate::job;
use crate::observed::NodeView;
use crate::record::{Halt, HaltCause, Roll, RollNode, Step, roll_name};
use crate::unfinished::{UnfinishedNode, again_sentences, unfinished};

/// A roll that has halted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HaltedRoll {
    name: String,
    halt: Halt,
    by_now: Option<ByNow>,
    /// Whether the node that halted it is still in maintenance.
    is_there: bool,
    /// Whether the node that halted it is back in service.
    is_in_service: bool,
    /// The nodes that are not done.
    left: Vec<UnfinishedNode>,
    /// The namespace and the name of the Job whose failure halted it.
    job: Option<(String, String)>,
    /// The node whose command has failed, and when the command began.
    command: Option<(String, Timestamp)>,
    /// Where the output of this command is kept, if it is on this machine.
    output: Option<PathBuf>,
}

impl HaltedRoll {
    /// The roll of this name among maintenances. `node` is the one that halted it, if it could be read. Of a roll whose records
    /// cannot be read, only the halt is known.
    pub fn of(name: &str, halt: &Halt, all: &[NodeMaintenance], node: Option<&Node>, now: Timestamp) -> Self {
        let objects = all.iter().filter(|object| roll_name(object) == Some(name)).cloned().map(Arc::new);
        let roll = Roll::find(name, &objects.collect::<Vec<_>>()).ok().flatten();
        let record = roll.as_ref().and_then(|roll| roll.complete_record().ok()).unwrap_or_default();
        let view = node.map(|node| NodeView::of(node, None, now));
        let halting = roll.as_ref().and_then(|roll| Some((roll, roll.node(&halt.node)?)));
        let by_now = halting.and_then(|(roll, node)| ByNow::of(&record, node, &roll.settings, view.as_ref()));
        let mut left = unfinished(roll.as_ref(), &record);
        forget_reboot(&mut left, by_now);
        Self {
            name: name.to_owned(),
            halt: halt.clone(),
            by_now,
            is_there: halting.is_some_and(|(_, node)| !node.is_leaving()),
            is_in_service: halting.is_some_and(|(_, node)| node.record.step > Step::Returning),
            left,
            job: halting.and_then(|(roll, node)| job::failed(roll, node)),
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

    /// Why it has halted, what has become of that, and what to do.
    pub fn cause(&self, kubectl: &str) -> Cause {
        let Self { halt, by_now, left, job, output, .. } = self;
        let (roll, node) = (shell_quoted(&self.name), halt.node.as_str());
        let mut what = vec![format!("Roll {roll} halted: {}.", halt.message)];
        what.extend(by_now.map(|by_now| sentence(&by_now.words(node))));
        what.extend(again_sentences(left));
        let kept = output.as_ref().map(|file| format!("The output of the command is in {}.", file.display()));
        what.extend(kept);
        let log = job.as_ref().map(|(namespace, name)| job_log(kubectl, namespace, name));
        let continue_it = match by_now {
            Some(_) => String::from("Continue the roll"),
            None if self.awaits_drain() => {
                format!("First let the drain of node {node} continue; then continue the roll")
            }
            None if log.is_some() => String::from(
                "The log of the Job may show why. When nothing prevents it any more, continue the roll",
            ),
            None if left.iter().any(|left| left.awaits_reboot) => {
                format!("Reboot node {node}, or power it on, then continue the roll")
            }
            None => String::from("When nothing prevents it any more, continue the roll"),
        };
        let skip = Some(node).filter(|node| !node.is_empty());
        let skip = skip.map(|node| format!("resume {roll} --skip {}", shell_quoted(node)));
        let without = match (&skip, self.is_in_service) {
            (None, _) => ", or",
            (Some(_), true) => "; or continue without the node, or",
            (Some(_), false) => "; or continue without the node, which returns it to service as it is, or",
        };
        let commands = [Some(format!("resume {roll}")), skip, Some(format!("abort {roll}"))];
        let commands =
            commands.into_iter().flatten().map(|rest| nm_command(kubectl, &format!("roll {rest}")));
        Cause {
            what,
            since: Timestamp::from_second(halt.at.as_second()).ok(),
            advice: format!("{continue_it}{without} abort the roll"),
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

/// The node whose command has failed, and when the command began.
fn failed_command(roll: &Roll, node: &RollNode) -> Option<(String, Timestamp)> {
    node.record.failed_action()?;
    roll.settings.runs_command(node.record.step).then(|| (node.node().to_owned(), node.record.since))
}
