//! The gates of a node: what it waits for in each step, and what comes next.

use std::time::Duration;

use crate::maintenance::{State, status};
use crate::roll::observed::{ActionState, Health, NodeView, Observed, shown};
use crate::roll::record::{RollNode, Step};
use crate::roll::settings::RollSettings;

/// What a node does next.
pub(super) enum Next {
    Wait(String),
    Advance(Step),
    Act,
    /// All its gates are passed: it returns to service.
    Return,
    /// Its node does not exist: nothing is left to do for it.
    Delete(String),
    Halt(String),
}

/// The gates of the nodes of a roll.
pub(super) struct Gates<'a> {
    pub(super) settings: &'a RollSettings,
    pub(super) observed: &'a Observed,
}

impl Gates<'_> {
    pub(super) fn next_of(&self, node: &RollNode) -> Next {
        let name = node.node();
        if node.is_deleted() {
            return Next::Wait(String::from("its maintenance is being deleted"));
        }
        let view = self.observed.nodes.get(name);
        if view.is_none() && node.record.step < Step::Acting {
            return Next::Delete(String::from("the node does not exist any more"));
        }
        match node.record.step {
            Step::Planned => Next::Wait(self.observed.refused.get(name).cloned().unwrap_or_default()),
            Step::Draining => self.next_of_draining(node),
            Step::Confirming => match self.observed.confirmed.get(name) {
                Some(true) => self.after_confirmation(),
                Some(false) => Next::Halt(format!("node {name} is drained, and was not confirmed")),
                None => Next::Wait(String::from("waits for a confirmation")),
            },
            Step::Acting => self.next_of_acting(node, view),
            Step::Rejoining => self.next_of_rejoining(node, view),
            Step::Checking | Step::Returning | Step::Recovering | Step::Soaking => {
                let timeout = self.settings.recovery_timeout_seconds;
                match self.check(node, view) {
                    None => Next::Return,
                    Some(why) if self.observed.has_timed_out(node.record.since, timeout) => {
                        Next::Halt(format!("node {name} is not healthy after {}: {why}", shown(timeout)))
                    }
                    Some(why) => Next::Wait(why),
                }
            }
        }
    }

    fn next_of_draining(&self, node: &RollNode) -> Next {
        let (name, status) = (node.node(), status(&node.object));
        match State::of(&node.object) {
            State::Drained if self.settings.confirm => Next::Advance(Step::Confirming),
            State::Drained => self.after_confirmation(),
            State::Failed => Next::Halt(format!("the drain of node {name} failed: {}", status.last_error)),
            State::Blocked => {
                let oldest = status.blocked_pods.iter().min_by_key(|pod| pod.since.0);
                let Some(pod) = oldest else { return Next::Wait(String::new()) };
                let which = format!("pod {}/{}: {}", pod.namespace, pod.name, pod.message);
                match self.settings.halt_on_blocked_seconds {
                    Some(limit) if self.observed.elapsed(pod.since.0) >= Duration::from_secs(limit) => {
                        Next::Halt(format!(
                            "the drain of node {name} is blocked for more than {} by {which}",
                            shown(limit)
                        ))
                    }
                    _ => Next::Wait(format!("blocked by {which}")),
                }
            }
            State::Queued => {
                Next::Wait(String::from("queued by --max-unavailable, or by another holder of the node"))
            }
            State::Paused | State::Planned if node.object.spec.suspend => Next::Wait(String::from("paused")),
            State::Requested | State::Paused | State::Planned => {
                Next::Wait(String::from("waits for nm-reconciler"))
            }
            State::Draining | State::Stopping => Next::Wait(String::new()),
        }
    }

    /// The step after the drain.
    fn after_confirmation(&self) -> Next {
        Next::Advance(if self.settings.action.is_some() { Step::Acting } else { Step::Rejoining })
    }

    fn next_of_acting(&self, node: &RollNode, view: Option<&NodeView>) -> Next {
        let name = node.node();
        match self.observed.actions.get(name) {
            Some(ActionState::Running) => Next::Wait(String::new()),
            Some(ActionState::Succeeded) => Next::Advance(Step::Rejoining),
            Some(ActionState::Disconnected) if self.settings.expect_reboot => Next::Advance(Step::Rejoining),
            Some(ActionState::Disconnected) => {
                Next::Halt(format!("the command for node {name} failed: exit code 255"))
            }
            Some(ActionState::Failed(why)) => Next::Halt(format!("the action for node {name} failed: {why}")),
            // Another program began the action and did not see its end: the reboot is its effect.
            None if self.settings.expect_reboot && has_rebooted(node, view) => Next::Advance(Step::Rejoining),
            None => Next::Act,
        }
    }

    fn next_of_rejoining(&self, node: &RollNode, view: Option<&NodeView>) -> Next {
        let name = node.node();
        let why = match view {
            None => "it does not exist",
            Some(_) if self.settings.expect_reboot && !has_rebooted(node, view) => "it has not rebooted",
            Some(view) if view.ready_since.is_none() => "it is not Ready",
            Some(_) => return Next::Advance(Step::Checking),
        };
        let timeout = self.settings.return_timeout_seconds;
        if self.observed.has_timed_out(node.record.since, timeout) {
            Next::Halt(format!("node {name} is not back after {}: {why}", shown(timeout)))
        } else {
            Next::Wait(why.to_owned())
        }
    }

    /// Why a node is not healthy yet; none if it is.
    fn check(&self, node: &RollNode, view: Option<&NodeView>) -> Option<String> {
        let Some(view) = view else { return Some(String::from("it does not exist")) };
        let Some(ready) = view.ready_since else { return Some(String::from("it is not Ready")) };
        let baseline = &node.record.baseline;
        let new: Vec<&str> =
            view.pressure.iter().filter(|one| !baseline.pressure.contains(one)).map(String::as_str).collect();
        if !new.is_empty() {
            return Some(format!("it reports {}", new.join(", ")));
        }
        match self.observed.health.get(&(node.node().to_owned(), Step::Checking)) {
            Some(Health::Waiting(why)) => return Some(why.clone()),
            Some(Health::Healthy) => {}
            None => return Some(String::new()),
        }
        let wanted = self.settings.min_ready_seconds;
        let is_stable = self.observed.elapsed(ready.max(node.record.since)) >= Duration::from_secs(wanted);
        (!is_stable).then(|| format!("has to be Ready for {}", shown(wanted)))
    }
}

fn has_rebooted(node: &RollNode, view: Option<&NodeView>) -> bool {
    view.is_some_and(|view| !view.boot_id.is_empty() && view.boot_id != node.record.baseline.boot_id)
}
