//! For how long a roll was worked on: the time in which a program ran it, without halts, and without pauses in which nothing was
//! done. The estimate of its end is based on that.

use jiff::{SignedDuration, Timestamp};

use crate::observed::Observed;
use crate::record::{ActionState, HEARTBEAT_TIMEOUT, RollNode, RollRecord, Step};

/// The working time until now, in milliseconds. `is_working` since the last heartbeat.
pub(crate) fn until(now: Timestamp, record: &RollRecord, is_working: bool) -> i64 {
    let RollRecord { runner, worked_millis, halt, .. } = record;
    let Some(runner) = runner.as_ref().filter(|_| is_working && halt.is_none()) else {
        return *worked_millis;
    };
    // A longer time was not spent on the roll: the computer slept, or its clock was set.
    let since = now.duration_since(runner.at).clamp(SignedDuration::ZERO, HEARTBEAT_TIMEOUT);
    worked_millis.saturating_add(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Whether a node comes closer to its end although the roll is paused.
pub(crate) fn continues_in_pause(node: &RollNode, observed: &Observed) -> bool {
    match node.record.step {
        Step::Planned | Step::Confirming => false,
        Step::Draining => node.drains(),
        Step::Preparing | Step::Acting | Step::Finishing => {
            let action = observed.actions.get(&(node.node().to_owned(), node.record.step));
            action == Some(&ActionState::Running)
        }
        Step::Rejoining | Step::Checking | Step::Returning | Step::Recovering | Step::Soaking => true,
    }
}
