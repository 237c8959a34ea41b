//! Whether something moves a budget that allows no eviction now, so that the pods that wait for it are not blocked.

use std::time::Duration;

use jiff::Timestamp;

use crate::drain::steady_time::SteadyTime;

/// How long nothing may move a budget before the pods that wait for it count as blocked, unless a setting says otherwise.
pub const BLOCKED_AFTER: Duration = Duration::from_secs(30);

/// What is known about when a budget last moved towards allowing an eviction, or will.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BudgetMotion {
    /// Since when its numbers are as they are, or since when it is known.
    pub seen: SteadyTime,
    /// Whether its numbers have changed since it is known.
    pub has_changed: bool,
    /// Until when the pods whose evictions it allowed may take to terminate.
    pub busy_until: SteadyTime,
    /// Whether evictions that it allows are in flight.
    pub in_flight: bool,
    /// When it last changed, as it shows itself.
    pub last_change: Option<Timestamp>,
}

impl BudgetMotion {
    /// How much longer a pod waits for the budget before it counts as blocked, `limit` after the last motion; zero if that is
    /// over. A pod that `waited` when this program began to watch the budget waits on.
    pub fn left(&self, limit: Duration, waited: bool, steady_now: SteadyTime, now: Timestamp) -> Duration {
        if self.in_flight {
            return limit;
        }
        let shown = self.last_change.map_or(Duration::MAX, |at| {
            // Another clock may be ahead.
            Duration::try_from(now.duration_since(at)).unwrap_or(Duration::ZERO)
        });
        let is_known = self.has_changed || waited;
        let idle = if is_known { shown.min(steady_now.since(self.seen)) } else { shown };
        // A pod that terminates moves nothing until it is gone.
        let busy = self.busy_until.since(steady_now);
        let since_busy = if busy.is_zero() { steady_now.since(self.busy_until) } else { Duration::ZERO };
        let idle = if self.busy_until == SteadyTime::MIN { idle } else { idle.min(since_busy) };
        busy.saturating_add(limit.saturating_sub(idle))
    }
}
