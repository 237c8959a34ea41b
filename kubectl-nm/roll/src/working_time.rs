//! For how long a roll was worked on: the time in which a program ran it, without halts, and without pauses in which nothing was
//! done. The estimate of its end is based on that.

use jiff::{SignedDuration, Timestamp};

use crate::observed::Observed;
use crate::record::{ActionState, HEARTBEAT_TIMEOUT, RollNode, RollRecord, Step};

/// The working time until now, in milliseconds. `continues`: a node comes closer to its end even while the roll is paused.
pub(crate) fn until(now: Timestamp, record: &RollRecord, continues: bool) -> i64 {
    let RollRecord { runner, worked_millis, halt, paused, pause, .. } = record;
    let Some(runner) = runner else { return *worked_millis };
    // The roll was worked on until it stopped, although no heartbeat shows that yet.
    let stopped = match (halt, pause) {
        (Some(halt), _) => halt.at,
        (None, Some(pause)) if *paused && !continues => pause.at,
        (None, None) if *paused && !continues => runner.at,
        (None, _) => now,
    };
    // A longer time was not spent on the roll: the computer slept, or its clock was set.
    let since = stopped.min(now).duration_since(runner.at).clamp(SignedDuration::ZERO, HEARTBEAT_TIMEOUT);
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
