//! Whether something moves a budget that allows no eviction now, so that the pods that wait for it are not blocked.

use std::time::Duration;

use jiff::Timestamp;

use crate::drain::steady_time::SteadyTime;

/// How long nothing may move a budget before the pods that wait for it count as blocked, unless a setting says otherwise.
pub const BLOCKED_AFTER: Duration = Duration::from_secs(30);

/// What is known about when a budget last moved towards allowing an eviction, or will.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct BudgetMotion {
    /// When it last came closer to an eviction, or since when it is known.
    pub seen: SteadyTime,
    /// Whether it has come closer since it is known.
    pub has_changed: bool,
    /// Until when the pods whose evictions it allowed may take to terminate, if it has allowed any.
    pub busy_until: Option<SteadyTime>,
    /// Whether evictions that it allows are in flight, or are about to be.
    pub in_flight: bool,
    /// When it last changed, as it shows itself, or when a node with pods of it that are not Ready became Ready.
    pub last_change: Option<Timestamp>,
    /// Whether it allows no eviction even with all of its pods healthy. It counts only those that exist, so that may pass once
    /// evicted pods have been replaced.
    pub never: bool,
    /// Whether it allows none, even with all others of its pods healthy, before pods are Ready that are stuck.
    pub lacks_stuck: bool,
}

impl BudgetMotion {
    /// How much longer a pod waits for the budget before it counts as blocked, `limit` after the last motion; zero if that is
    /// over. A budget that allows no eviction as it is blocks once no evicted pod is to be replaced. A pod that `waited` when this
    /// program began to watch the budget waits on even then: another program may have evicted the pods that are to be replaced.
    pub fn left(&self, limit: Duration, waited: bool, steady_now: SteadyTime, now: Timestamp) -> Duration {
        if self.in_flight {
            return limit;
        }
        // A pod that terminates moves nothing until it is gone.
        let busy = self.busy_until.map_or(Duration::ZERO, |at| at.since(steady_now));
        let left_after = |idle: Duration| busy.saturating_add(limit.saturating_sub(idle));
        let ended = self.busy_until.map(|at| steady_now.since(at));
        let inherited = waited && !self.has_changed;
        if (self.never || self.lacks_stuck) && !inherited {
            // It counts only pods that exist, and the replacements of evicted ones may not have been created yet.
            return ended.map_or(Duration::ZERO, left_after);
        }
        // Another clock may be ahead.
        let shown =
            self.last_change.map(|at| Duration::try_from(now.duration_since(at)).unwrap_or(Duration::ZERO));
        let seen = (self.has_changed || waited).then(|| steady_now.since(self.seen));
        left_after([shown, seen, ended].into_iter().flatten().min().unwrap_or(Duration::MAX))
    }
}
