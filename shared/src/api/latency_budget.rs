//! The delays between the end of a pod and the screen, in the order in which they apply, and the budget they share.
//!
//! Each delay turns a burst of events into one step of work. An event that arrives after a quiet period waits only for
//! [`POD_EVENT_COALESCING`]; the other three are minimum intervals between two steps of the same kind.

use std::time::Duration;

/// The reconciler: pod events on one node that arrive within this time of the first trigger one reconcile. Pods end in
/// bursts; without this the first of twenty would be reported alone, and the others only with the next status.
pub const POD_EVENT_COALESCING: Duration = Duration::from_millis(25);

/// The reconciler: two reconciles of one maintenance start at least this far apart.
pub const RECONCILE_INTERVAL: Duration = Duration::from_millis(100);

/// The reconciler: two status writes of one maintenance are sent at least this far apart.
pub const STATUS_WRITE_INTERVAL: Duration = Duration::from_millis(500);

/// The dashboard: two frames are drawn at least this far apart, except after a key press.
pub const FRAME_INTERVAL: Duration = Duration::from_millis(100);

/// The most that all delays together may add, requests and processing not counted.
pub const LATENCY_BUDGET: Duration = Duration::from_millis(750);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_delays_together_stay_within_the_budget() {
        let sum = POD_EVENT_COALESCING + RECONCILE_INTERVAL + STATUS_WRITE_INTERVAL + FRAME_INTERVAL;
        assert!(sum <= LATENCY_BUDGET, "{sum:?}");
    }
}
