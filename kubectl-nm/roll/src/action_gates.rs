//! The gates of the commands and Jobs of a node: before its drain, once it is drained, and before it returns to service.
//!
//! If the program dies while a command runs, the result of the command is unknown: the node stays in its step, and
//! `roll resume` runs the command again. A Job runs on, and `roll resume` waits for its end. Only a reboot since the command of the drained node began is visible, by the boot ID,
//! and is not repeated.
//!
//! A hook of the roll holds the first eviction until the command or the Job of `--before` has succeeded. Whoever removes the
//! hook has done its work by hand.

use nm_core::maintenance::{State, hold, status};
use nm_shared::Phase;

use crate::gates::{Again, Gates, Next, boot_id, has_rebooted, is_ready};
use crate::observed::{NodeView, shown};
use crate::record::{ActionRecord, ActionState, NodeRecord, RollNode, Step};

/// The step after the command or the Job of a step.
fn next_step(step: Step) -> Step {
    match step {
        Step::Preparing => Step::Draining,
        Step::Finishing => Step::Returning,
        _ => Step::Rejoining,
    }
}

/// The action of a step, in messages.
fn words(step: Step) -> &'static str {
    match step {
        Step::Preparing => "--before action",
        Step::Finishing => "--after action",
        _ => "action",
    }
}

impl Gates<'_> {
    /// How far the command or the Job of its step has come that this program has begun.
    pub(super) fn observed_action(&self, node: &RollNode) -> Option<&ActionState> {
        self.observed.actions.get(&(node.node().to_owned(), node.record.step))
    }

    pub(super) fn next_of_preparing(&self, node: &RollNode, view: Option<&NodeView>) -> Next {
        let before = node.record.before.as_ref().map(|action| &action.state);
        if before == Some(&ActionState::Succeeded) {
            return self.step(node, Step::Draining);
        }
        if self.observed_action(node).is_some() {
            return self.next_of_action(node, view);
        }
        if !node.is_hooked() {
            return self.step(node, Step::Draining);
        }
        match State::of(&node.object) {
            State::Draining | State::Blocked if hold(&node.object).is_some() => self.begin_action(node, view),
            _ => self.next_of_draining(node, view),
        }
    }

    pub(super) fn next_of_action(&self, node: &RollNode, view: Option<&NodeView>) -> Next {
        let (name, step) = (node.node(), node.record.step);
        let Some(seen) = self.observed_action(node) else { return self.begin_action(node, view) };
        let attempt = node.record.current_action().map_or(1, |action| action.attempt);
        let ended = ActionRecord { attempt, state: seen.clone() };
        let message = match seen {
            ActionState::Running => return Next::Wait(String::new()),
            ActionState::Succeeded => return self.end_action(node, ended),
            ActionState::Disconnected if self.may_reboot(node) => return self.end_action(node, ended),
            // The reboot ends the pod of the Job, which may be known before the new boot ID.
            ActionState::JobFailed(_)
                if self.has_rebooted_as_expected(node, view)
                    || (self.may_reboot(node) && !is_ready(view)) =>
            {
                return self.end_action(node, ended);
            }
            ActionState::Disconnected if step == Step::Acting => {
                format!("the command for node {name} failed: exit code 255")
            }
            ActionState::Disconnected => format!("the {} for node {name} failed: exit code 255", words(step)),
            ActionState::Failed(why) | ActionState::JobFailed(why) | ActionState::NotStarted(why) => {
                format!("the {} for node {name} failed: {why}", words(step))
            }
        };
        if node.record.current_action() == Some(&ended) {
            return Next::halt(message);
        }
        Next::Failed(node.record.clone().with_action(ended), message)
    }

    /// The action has ended as it should. That of `--before` is stored first: a roll that has halted does not remove the hook.
    fn end_action(&self, node: &RollNode, ended: ActionRecord) -> Next {
        let mut record = node.record.clone().with_action(ended);
        if record.step != Step::Preparing {
            record = NodeRecord { step: next_step(record.step), since: self.observed.now, ..record };
        }
        Next::Write(record)
    }

    /// Begins an action, or continues where another program left it: what failed is tried again, and of what was interrupted
    /// only a reboot is visible.
    pub(super) fn begin_action(&self, node: &RollNode, view: Option<&NodeView>) -> Next {
        let step = node.record.step;
        let is_undrained = matches!(status(&node.object).phase, None | Some(Phase::Pending | Phase::Running));
        // The node was deleted and has returned: what runs on it is drained again first.
        if step != Step::Preparing && is_undrained {
            let timeout = self.settings.return_timeout_seconds;
            return if self.observed.has_timed_out(node, timeout) {
                let name = node.node();
                Next::halt(format!("node {name} is not drained again after {}", shown(timeout)))
            } else {
                Next::Wait(String::from("the node has returned, and is being drained again"))
            };
        }
        // A node that did not rejoin begins its action again.
        let step = if step == Step::Rejoining { Step::Acting } else { step };
        let (attempt, again) = match node.record.action_of(step) {
            None => (1, None),
            Some(ActionRecord { state: ActionState::Running | ActionState::JobFailed(_), .. })
                if self.has_rebooted_as_expected(node, view) =>
            {
                return self.step(node, Step::Rejoining);
            }
            Some(ActionRecord { attempt, state: ActionState::Running }) => {
                let is_command = self.settings.runs_command(step);
                (*attempt, Some(if is_command { Again::Interrupted } else { Again::JobRunsOn }))
            }
            Some(ActionRecord { state: ActionState::Succeeded, .. }) => {
                return self.step(node, next_step(step));
            }
            Some(ActionRecord { attempt, state: ActionState::Disconnected }) => {
                (attempt.saturating_add(1), Some(Again::Disconnected))
            }
            Some(ActionRecord {
                attempt,
                state: ActionState::Failed(why) | ActionState::JobFailed(why) | ActionState::NotStarted(why),
            }) => (attempt.saturating_add(1), Some(Again::Failed(why.clone()))),
        };
        self.act(node, view, step, attempt, again)
    }

    /// Begins the action of a step.
    pub(super) fn act(
        &self,
        node: &RollNode,
        view: Option<&NodeView>,
        step: Step,
        attempt: u32,
        again: Option<Again>,
    ) -> Next {
        let mut record = NodeRecord { step, since: self.observed.now, ..node.record.clone() };
        if step == Step::Acting {
            boot_id(view).unwrap_or(&node.record.boot_id).clone_into(&mut record.boot_id);
        }
        Next::Act(record.with_action(ActionRecord { attempt, state: ActionState::Running }), again)
    }

    /// Whether the action of its step may reboot the node: that of the drained node, with `--expect-reboot`.
    fn may_reboot(&self, node: &RollNode) -> bool {
        self.settings.expect_reboot && matches!(node.record.step, Step::Acting | Step::Rejoining)
    }

    fn has_rebooted_as_expected(&self, node: &RollNode, view: Option<&NodeView>) -> bool {
        self.may_reboot(node) && has_rebooted(node, view)
    }
}
