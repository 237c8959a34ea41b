//! The gates of a node: what it waits for in each step, and what comes next.
//!
//! The gates of commands and Jobs are in `action_gates.rs`.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use nm_core::maintenance::slow_surge::SlowSurge;
use nm_core::maintenance::{State, blocking, hold, status};
use nm_core::terminal::command_context::skip_command;
use nm_shared::api::condition::ConditionReason;
use nm_shared::decide::drain_status;
use nm_shared::{BlockedPod, NodeMaintenance};

use crate::in_cluster::runner_job::{self, NAMESPACE};
use crate::observed::{HealthCheck, NodeView, Observed, shown};
use crate::record::{
    ActionRecord, ActionState, Halt, HaltCause, Health, NodeRecord, Roll, RollNode, RollRecord, Step,
};
use crate::settings::RollSettings;

/// For how long a roll that is resumed waits for nm-reconciler to try a failed drain again.
const FAILED_DRAIN_GRACE: SignedDuration = SignedDuration::from_secs(45);

/// How long the first check of what is not watched may take, in seconds.
const FIRST_CHECK_TIMEOUT: u64 = 60;

/// What a node does next.
pub(super) enum Next {
    Wait(String),
    /// It waits until somebody confirms that the roll continues with it.
    Confirm,
    /// It takes another step, with this record.
    Write(NodeRecord),
    /// Its command or its Job begins, with this record; why it begins again, if it had begun before.
    Act(NodeRecord, Option<Again>),
    /// Its maintenance is deleted: it returns to service.
    Delete,
    /// It leaves the roll before it has begun; why.
    Leave(String),
    /// All its gates are passed.
    Done,
    /// The roll halts; what of the node it is, if that may be over before somebody continues the roll, and why.
    Halt(Option<HaltCause>, String),
    /// Its action has failed, which is recorded.
    Failed(NodeRecord, String),
}

impl Next {
    /// The roll halts because of something that is not seen to be over.
    pub(super) fn halt(message: String) -> Self {
        Self::Halt(None, message)
    }
}

/// Why a command or a Job begins again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// Nobody saw the end of the command: the program that had begun it ended, or lost the cluster.
    Interrupted,
    /// The same of a Job, which does not end with that program.
    JobRunsOn,
    /// The command ended with exit code 255, and the node has not rebooted as expected.
    Disconnected,
    /// It succeeded, and the node has not rebooted as expected.
    NoReboot,
    Failed(String),
}

impl Again {
    /// `failed, and starts again: the command ended with exit code 1`. A roll that nobody runs, and one that is paused or has
    /// halted, begins nothing now.
    pub(super) fn words(&self, begins: bool) -> String {
        let when = if begins { "starts again" } else { "runs again when the roll is resumed" };
        let (what, why) = match self {
            Self::JobRunsOn if begins => {
                return String::from("its Job runs on, and the roll waits for its end");
            }
            Self::JobRunsOn => {
                return String::from(
                    "its Job is not interrupted, and its result is read when the roll continues",
                );
            }
            Self::Interrupted => ("was interrupted", None),
            Self::Disconnected => ("ended with exit code 255", None),
            Self::NoReboot => ("ended without a reboot", None),
            Self::Failed(why) => ("failed", Some(why)),
        };
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        format!("{what}, and {when}{why}")
    }
}

/// What a node waits for whose action does not begin, or not begin again, because the roll is paused.
pub(super) fn paused_action(again: Option<&Again>) -> String {
    match again {
        None => String::from("the roll is paused, and its action has not started"),
        Some(again @ Again::JobRunsOn) => format!("the roll is paused; {}", again.words(false)),
        Some(again) => format!("the roll is paused; its action {}", again.words(false)),
    }
}

/// What a node waits for that somebody has to confirm. Nobody is asked in a roll that nobody runs, or that has halted.
pub(super) fn confirmation(asks: bool) -> String {
    let words = if asks {
        "waits for a confirmation"
    } else {
        "is not confirmed: the roll asks again when it is resumed"
    };
    words.to_owned()
}

/// The last check of a node that must stay Ready for a while begins at most this long before that time is over.
pub(crate) const LAST_CHECKS: SignedDuration = SignedDuration::from_secs(2);

/// For how long a node has to be Ready before it returns to service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyTime {
    /// Since when it is, as far as it counts.
    pub since: Timestamp,
    /// In seconds.
    pub wanted: u64,
}

impl ReadyTime {
    /// How much of the time is left.
    pub(super) fn left(&self, now: Timestamp) -> SignedDuration {
        let wanted =
            SignedDuration::try_from(Duration::from_secs(self.wanted)).unwrap_or(SignedDuration::MAX);
        wanted.saturating_sub(now.duration_since(self.since))
    }
}

/// The gates of the nodes of a roll.
pub(super) struct Gates<'a> {
    /// The roll, without the nodes that do not exist.
    pub(super) roll: &'a Roll,
    pub(super) settings: &'a RollSettings,
    pub(super) observed: &'a Observed,
}

impl Gates<'_> {
    pub(super) fn next_of(&self, node: &RollNode) -> Next {
        let name = node.node();
        if node.is_leaving() {
            return Next::Wait(String::from("its maintenance is being deleted"));
        }
        if let Some(why) = self.observed.failed.get(name) {
            return Next::halt(why.clone());
        }
        let view = self.observed.nodes.get(name);
        if view.is_none() && self.needs_node(node) {
            return self.await_return(node);
        }
        match node.record.step {
            Step::Planned if node.is_started_early() => {
                Next::Wait(String::from("somebody has started its drain before its turn"))
            }
            Step::Planned => Next::Wait(self.observed.refused.get(name).cloned().unwrap_or_default()),
            Step::Preparing => self.next_of_preparing(node, view),
            Step::Draining => self.next_of_draining(node, view),
            Step::Confirming => match self.observed.confirmed.get(name) {
                Some(true) => self.after_confirmation(node),
                Some(false) => Next::halt(format!("node {name} is drained, and was not confirmed")),
                None => Next::Confirm,
            },
            Step::Acting | Step::Finishing => self.next_of_action(node, view),
            Step::Rejoining => self.next_of_rejoining(node, view),
            Step::Checking => match self.check(node, view) {
                None if self.settings.after.is_some() => self.step(node, Step::Finishing),
                None => self.step(node, Step::Returning),
                Some(why) => self.wait_for_health(node, why),
            },
            Step::Returning => self.next_of_returning(node),
            Step::Recovering => match self.recovery(node, view) {
                None => self.step(node, Step::Soaking),
                Some(why) => self.wait_for_health(node, why),
            },
            // It has to be healthy for the whole time.
            Step::Soaking if problem(node, view).is_some() => self.step(node, Step::Recovering),
            Step::Soaking => {
                let soak = Duration::from_secs(self.settings.soak_seconds);
                if self.observed.elapsed(self.observed.since(node)) < soak {
                    Next::Wait(String::new())
                } else {
                    Next::Done
                }
            }
        }
    }

    /// Whether a node can do nothing in its step while it does not exist. A command that was interrupted begins again, because
    /// it may be what brings the node back.
    fn needs_node(&self, node: &RollNode) -> bool {
        match node.record.step {
            Step::Planned | Step::Draining | Step::Confirming => true,
            Step::Acting => {
                let is_begun = node.record.action.is_some() && !node.is_absent();
                !is_begun && self.observed_action(node).is_none()
            }
            Step::Preparing | Step::Finishing => self.observed_action(node).is_none(),
            Step::Rejoining | Step::Checking | Step::Returning | Step::Recovering | Step::Soaking => false,
        }
    }

    /// The node does not exist, and the roll waits for it.
    fn await_return(&self, node: &RollNode) -> Next {
        let name = node.node();
        let timeout = self.settings.return_timeout_seconds;
        if !self.observed.is_missing_for(name, timeout) {
            let roll = &self.roll.name;
            // Other programs find it in its maintenances.
            let is_found = self.roll.nodes.iter().any(|node| !node.is_leaving());
            // A roll that somebody runs can only be resumed once it is paused, or has halted.
            let goes_on =
                |record: &RollRecord| record.runner.is_some() && !record.paused && record.halt.is_none();
            let must_pause = self.roll.record.as_ref().is_none_or(goes_on);
            let end = match (is_found, self.settings.in_cluster) {
                (true, _) => format!("or for `{}`", skip_command("kubectl", roll, name, must_pause)),
                (false, false) => String::from("or for Ctrl-C, because the roll has no other node"),
                (false, true) => format!(
                    "or until its Job {NAMESPACE}/{} is deleted, because the roll has no other node",
                    runner_job::name(roll)
                ),
            };
            return Next::Wait(format!("the node does not exist: waits for its return, {end}"));
        }
        if node.record.step == Step::Planned {
            return Next::Leave(String::from("the node does not exist any more"));
        }
        Next::halt(format!("node {name} does not exist, and has not returned after {}", shown(timeout)))
    }

    /// The node takes this step now.
    pub(super) fn step(&self, node: &RollNode, step: Step) -> Next {
        Next::Write(NodeRecord { step, since: self.observed.now, ..node.record.clone() })
    }

    pub(super) fn next_of_draining(&self, node: &RollNode, view: Option<&NodeView>) -> Next {
        let (name, status) = (node.node(), status(&node.object));
        match State::of(&node.object) {
            State::Drained => {
                let mut drained = node.clone();
                boot_id(view).unwrap_or_default().clone_into(&mut drained.record.boot_id);
                if self.settings.confirm {
                    self.step(&drained, Step::Confirming)
                } else {
                    self.after_confirmation(&drained)
                }
            }
            State::Failed
                if is_about_missing_node(&node.object) && view.is_some_and(|view| self.is_new(view)) =>
            {
                Next::Wait(String::from("the node has returned: waits for nm-reconciler"))
            }
            State::Failed => {
                let message = format!("the drain of node {name} failed: {}", status.last_error);
                if self.is_past_deadline(node) {
                    Next::Halt(Some(HaltCause::DrainTimedOut), message)
                } else if self.may_be_tried_again(node) {
                    Next::Wait(format!("waits for nm-reconciler to try again: {}", status.last_error))
                } else {
                    Next::Halt(Some(HaltCause::Drain), message)
                }
            }
            State::Blocked => {
                let since = |pod: &BlockedPod| self.observed.blocked_since(node, pod);
                let oldest = status.blocked_pods.iter().min_by_key(|pod| (since(pod), pod.since.0));
                let Some(pod) = oldest else { return Next::Wait(String::new()) };
                let which = blocking(pod, &node.object);
                match self.settings.halt_on_blocked_seconds {
                    Some(limit) if self.observed.is_blocked_for(node, pod, limit) => Next::Halt(
                        Some(HaltCause::Drain),
                        format!(
                            "the drain of node {name} has been blocked for more than {} by {which}",
                            shown(limit)
                        ),
                    ),
                    _ => Next::Wait(format!("blocked by {which}")),
                }
            }
            State::Queued => Next::Wait(String::from(
                "queued: waits for --max-unavailable, the node's lease or etcd's quorum",
            )),
            State::Paused | State::Planned if node.object.spec.suspend => Next::Wait(String::from("paused")),
            State::Requested | State::Planned
                if self.observed.has_timed_out(node, self.settings.return_timeout_seconds) =>
            {
                let after = shown(self.settings.return_timeout_seconds);
                Next::halt(format!("nm-reconciler did not start the drain of node {name} within {after}"))
            }
            State::Requested | State::Paused | State::Planned => {
                Next::Wait(String::from("waits for nm-reconciler"))
            }
            State::Draining => {
                let surge = SlowSurge::of(&node.object);
                let words = surge.as_ref().and_then(|surge| surge.words(self.observed.now));
                Next::Wait(words.map(str::to_owned).unwrap_or_default())
            }
            State::Stopping => Next::Wait(String::new()),
        }
    }

    /// Whether a node exists only for so short a time that nm-reconciler may not have taken notice.
    fn is_new(&self, view: &NodeView) -> bool {
        !self.observed.has_passed(view.seen_since, self.settings.return_timeout_seconds)
    }

    /// Whether the time limit of a drain has passed: no other try begins.
    fn is_past_deadline(&self, node: &RollNode) -> bool {
        let now = self.observed.now;
        let drain = node.object.spec.drain.clone().unwrap_or_default();
        drain_status::deadline(&node.object, &drain, now).is_some_and(|deadline| deadline <= now)
    }

    /// Whether a drain failed before this program continued the roll, and nm-reconciler may not have tried again yet.
    fn may_be_tried_again(&self, node: &RollNode) -> bool {
        let Observed { now, started, .. } = *self.observed;
        self.observed.is_inherited(node) && now.duration_since(started) < FAILED_DRAIN_GRACE
    }

    /// The step after the drain.
    fn after_confirmation(&self, node: &RollNode) -> Next {
        self.step(node, if self.settings.action.is_some() { Step::Acting } else { Step::Rejoining })
    }

    fn next_of_rejoining(&self, node: &RollNode, view: Option<&NodeView>) -> Next {
        let name = node.node();
        let needs_reboot = self.settings.expect_reboot && !has_rebooted(node, view);
        let timeout = self.settings.return_timeout_seconds;
        let limit = SignedDuration::try_from(Duration::from_secs(timeout)).unwrap_or(SignedDuration::MAX);
        let was_over = |halt: &Halt| halt.node == name || halt.at.duration_since(node.record.since) >= limit;
        let is_new_try = self.observed.retried.as_ref().is_some_and(was_over)
            && !self.observed.actions.contains_key(&(name.to_owned(), Step::Acting))
            && is_ready(view);
        match &node.record.action {
            Some(ActionRecord { state: ActionState::Disconnected | ActionState::JobFailed(_), .. })
                if needs_reboot && is_new_try =>
            {
                return self.begin_action(node, view);
            }
            Some(ActionRecord { attempt, state: ActionState::Succeeded }) if needs_reboot && is_new_try => {
                let again = Some(Again::NoReboot);
                return self.act(node, view, Step::Acting, attempt.saturating_add(1), again);
            }
            _ => {}
        }
        let why = match view {
            None => "it does not exist",
            // A node that reboots is not Ready for a while, and one that is off stays so.
            Some(view) if needs_reboot && view.is_known() && view.ready_since.is_none() => {
                "it has not rebooted, and is not Ready"
            }
            Some(_) if needs_reboot => "it has not rebooted",
            Some(view) if view.ready_since.is_none() => "it is not Ready",
            Some(_) => return self.step(node, Step::Checking),
        };
        if self.observed.has_timed_out(node, timeout) {
            let message = format!("node {name} is not back after {}: {why}", shown(timeout));
            Next::Halt(Some(HaltCause::NotBack), message)
        } else {
            Next::Wait(why.to_owned())
        }
    }

    /// Why a node is not healthy yet; none if it is.
    fn check(&self, node: &RollNode, view: Option<&NodeView>) -> Option<String> {
        if let Some(problem) = problem(node, view) {
            return Some(problem);
        }
        let check = match self.observed.health.get(&(node.node().to_owned(), Step::Checking)) {
            Some(HealthCheck { health: Health::Waiting(why), .. }) => return Some(why.clone()),
            check => check,
        };
        let ready = self.ready_time(node);
        // A slow read may have kept the last checks from beginning.
        let is_checked = |ready: &ReadyTime| {
            let last =
                |check: &HealthCheck| check.began >= ready.since && ready.left(check.began) <= LAST_CHECKS;
            ready.left(self.observed.now) <= SignedDuration::ZERO && check.is_some_and(last)
        };
        if ready.as_ref().is_some_and(is_checked) {
            return None;
        }
        // Who only looks does not see when the pods are checked.
        Some(match self.settings.min_ready_seconds {
            0 => String::from("must have its DaemonSet pods Ready"),
            time => format!("must stay Ready for {}, with its DaemonSet pods Ready", shown(time)),
        })
    }

    /// For how long a node is Ready without new pressure, if that is all that it waits for.
    pub(super) fn ready_time(&self, node: &RollNode) -> Option<ReadyTime> {
        let view = self.observed.nodes.get(node.node())?;
        let check = self.observed.health.get(&(node.node().to_owned(), Step::Checking));
        let is_healthy =
            problem(node, Some(view)).is_none() && check.is_some_and(|check| check.health == Health::Healthy);
        if node.record.step != Step::Checking || node.is_leaving() || !is_healthy {
            return None;
        }
        let before = &node.record.baseline.pressure;
        let relieved = view.relieved.iter().filter(|(one, _)| !before.contains(one)).map(|(_, at)| *at).max();
        let since = view.ready_since?.max(self.observed.since(node));
        let since = relieved.map_or(since, |relieved| since.max(relieved));
        Some(ReadyTime { since, wanted: self.settings.min_ready_seconds })
    }

    fn next_of_returning(&self, node: &RollNode) -> Next {
        if !node.is_kept() {
            // The finalizer is written together with the step.
            return Next::Write(node.record.clone());
        }
        if !node.is_deleted() {
            return Next::Delete;
        }
        if node.is_in_service() {
            return self.step(node, Step::Recovering);
        }
        let error = &status(&node.object).last_error;
        let why = match hold(&node.object) {
            Some(hold) => format!("waits for {hold}"),
            None if error.is_empty() => String::from("waits for nm-reconciler to uncordon the node"),
            None => format!("waits for nm-reconciler to uncordon the node: {error}"),
        };
        let timeout = self.settings.return_timeout_seconds;
        if self.observed.has_timed_out(node, timeout) {
            let name = node.node();
            return Next::halt(format!(
                "node {name} has not returned to service after {}: {why}",
                shown(timeout)
            ));
        }
        Next::Wait(why)
    }

    /// Why a node, or a workload affected by its drain, has not recovered yet; none if it has.
    fn recovery(&self, node: &RollNode, view: Option<&NodeView>) -> Option<String> {
        if let Some(problem) = problem(node, view) {
            return Some(problem);
        }
        let ready_since = view.and_then(|view| view.ready_since);
        match self.observed.health.get(&(node.node().to_owned(), Step::Recovering)) {
            Some(HealthCheck { health: Health::Waiting(why), .. }) => Some(why.clone()),
            Some(check) if ready_since.is_some_and(|since| since <= check.began) => None,
            _ if self.observed.is_unchecked => {
                Some(String::from("the workloads affected by its drain have not been checked to the end"))
            }
            _ => Some(String::from("checking the workloads affected by its drain")),
        }
    }

    fn wait_for_health(&self, node: &RollNode, why: String) -> Next {
        let name = node.node();
        let is_checked = self.observed.health.contains_key(&(name.to_owned(), node.record.step));
        let timeout = self.settings.recovery_timeout_seconds;
        let timeout = if is_checked { timeout } else { timeout.max(FIRST_CHECK_TIMEOUT) };
        if !self.observed.has_timed_out(node, timeout) {
            return Next::Wait(why);
        }
        let after = shown(timeout);
        let is_of_node = node.record.step == Step::Checking
            || problem(node, self.observed.nodes.get(name)).is_some_and(|problem| problem == why);
        let message = if is_of_node {
            format!("node {name} is not healthy after {after}: {why}")
        } else {
            format!("workloads affected by the drain of node {name} are not healthy after {after}: {why}")
        };
        Next::Halt(Some(HaltCause::Unhealthy), message)
    }
}

/// What its status shows about the health of a node: it is not Ready, or reports pressure that it did not report before.
pub(super) fn problem(node: &RollNode, view: Option<&NodeView>) -> Option<String> {
    let Some(view) = view else { return Some(String::from("it does not exist")) };
    if view.ready_since.is_none() {
        return Some(String::from("it is not Ready"));
    }
    let before = &node.record.baseline.pressure;
    let new: Vec<&str> =
        view.pressure.iter().filter(|one| !before.contains(one)).map(String::as_str).collect();
    (!new.is_empty()).then(|| format!("it reports {}", new.join(", ")))
}

/// Whether a maintenance failed because its node did not exist.
fn is_about_missing_node(object: &NodeMaintenance) -> bool {
    let mut reasons = status(object).conditions.iter().filter_map(ConditionReason::of);
    reasons.any(|reason| reason == ConditionReason::NodeNotFound)
}

pub(super) fn boot_id(view: Option<&NodeView>) -> Option<&str> {
    view.map(|view| view.boot_id.as_str()).filter(|boot_id| !boot_id.is_empty())
}

pub(super) fn is_ready(view: Option<&NodeView>) -> bool {
    view.is_some_and(|view| view.ready_since.is_some())
}

pub(super) fn has_rebooted(node: &RollNode, view: Option<&NodeView>) -> bool {
    boot_id(view).is_some_and(|boot_id| boot_id != node.record.boot_id)
}
