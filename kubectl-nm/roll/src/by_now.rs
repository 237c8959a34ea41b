//! What has become of the node that halted a roll: the roll stays halted until somebody resumes it, but the drain may have succeeded
//! since, the node may have rebooted, or the workloads may have recovered.

use nm_core::args::duration::TimeStyle;
use nm_core::maintenance::State;

use crate::absence::is_absent;
use crate::gates::{has_rebooted, is_ready, problem};
use crate::observed::{NodeView, Observed};
use crate::record::{Halt, HaltCause, Health, Roll, RollNode, RollRecord, Step};
use crate::settings::RollSettings;

/// What has become of the node that halted a roll, so that the roll continues with it when it is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByNow {
    /// Its drain has succeeded.
    Drained,
    /// Its drain is under way again.
    Drains,
    /// Its drain does not wait for the `--before` action any more, which failed: somebody has removed the hook.
    Unhooked,
    /// It has rebooted, and may not be Ready yet.
    Rebooted {
        /// Whether it is Ready.
        is_ready: bool,
    },
    /// It is Ready.
    Ready,
    /// It is healthy, with its DaemonSet pods.
    Healthy,
    /// It is healthy, and so are the workloads affected by its drain.
    Recovered,
    /// It is not part of the roll any more.
    Left,
}

/// `halted 12m ago: the drain of node n2 failed; by now, node n2 is drained`. The cause is that of the time when it halted.
pub fn halted_words(halt: &Halt, by_now: Option<ByNow>, times: TimeStyle) -> String {
    let by_now = by_now.map(|by_now| format!("; {}", by_now.words(&halt.node))).unwrap_or_default();
    format!("halted {}: {}{by_now}", times.words(halt.at), halt.message)
}

impl ByNow {
    /// That the node that halted a roll is not part of it any more.
    pub fn of_departed(roll: &Roll, record: &RollRecord) -> Option<Self> {
        let node = record.halt.as_ref().map(|halt| halt.node.as_str()).filter(|node| !node.is_empty())?;
        (roll.node(node).is_none() && !is_absent(node, &record.absent)).then_some(Self::Left)
    }

    /// None if the node did not halt the roll, if the cause stands, or if that is not known.
    pub(crate) fn of(
        record: &RollRecord,
        node: &RollNode,
        settings: &RollSettings,
        observed: &Observed,
    ) -> Option<Self> {
        let (view, step) = (observed.nodes.get(node.node()), node.record.step);
        let halt = record.halt.as_ref().filter(|halt| halt.node == node.node())?;
        if step == Step::Preparing && node.record.failed_action().is_some() && !node.is_hooked() {
            return Some(Self::Unhooked);
        }
        match (halt.cause?, State::of(&node.object)) {
            (HaltCause::Drain | HaltCause::DrainTimedOut, State::Drained) if node.is_in_drain() => {
                Some(Self::Drained)
            }
            // What blocks pods is what a roll halts for, too, unless the drain had timed out.
            (HaltCause::Drain | HaltCause::DrainTimedOut, State::Draining)
            | (HaltCause::DrainTimedOut, State::Blocked)
                if node.is_in_drain() =>
            {
                Some(Self::Drains)
            }
            (HaltCause::Unhealthy, _) => {
                let is_known = view.is_some_and(NodeView::is_known);
                let is_healthy = is_known && problem(node, view).is_none();
                match step {
                    _ if !is_healthy || observed.health_of(node) != Some(&Health::Healthy) => None,
                    Step::Checking => Some(Self::Healthy),
                    Step::Recovering => Some(Self::Recovered),
                    _ => None,
                }
            }
            (HaltCause::NotBack, _) if step == Step::Rejoining => {
                let view = view.filter(|view| view.is_known());
                match (settings.expect_reboot, is_ready(view)) {
                    (true, is_ready) if has_rebooted(node, view) => Some(Self::Rebooted { is_ready }),
                    (false, true) => Some(Self::Ready),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// `by now, node n2 is drained`.
    pub fn words(self, node: &str) -> String {
        match self {
            Self::Drained => format!("by now, node {node} is drained"),
            Self::Drains => format!("by now, the drain of node {node} is under way"),
            Self::Unhooked => format!(
                "by now, the roll's hook of node {node} is removed, so its drain does not wait for the --before action"
            ),
            Self::Rebooted { is_ready: true } => format!("by now, node {node} has rebooted and is Ready"),
            Self::Rebooted { is_ready: false } => {
                format!("by now, node {node} has rebooted, but is not Ready")
            }
            Self::Ready => format!("by now, node {node} is Ready"),
            Self::Left => format!("by now, node {node} is not part of the roll any more"),
            Self::Healthy => format!("by now, node {node} is healthy"),
            Self::Recovered => {
                format!("by now, node {node} and the workloads affected by its drain are healthy")
            }
        }
    }
}
