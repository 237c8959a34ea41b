//! Monotonic time, for durations within this process.
//!
//! The wall clock may be set at any time, which would change the durations that are measured by it. It is used only for
//! what other programs read, such as the status.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// A time, as the duration since the process started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SteadyTime(Duration);

impl SteadyTime {
    /// The earliest time: what is due then is due now.
    pub const MIN: Self = Self(Duration::ZERO);

    /// The time that is this long after the process started.
    pub const fn after_start(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// The time that is this much later.
    #[must_use]
    pub const fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }

    /// The duration since `earlier`; zero if that is later.
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The wall-clock time at this moment, given that it is `wall` at `now`.
    pub fn on_wall(self, now: Self, wall: Timestamp) -> Timestamp {
        let age = SignedDuration::try_from(now.since(self)).unwrap_or(SignedDuration::MAX);
        wall.checked_sub(age).unwrap_or(Timestamp::MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_converts_to_the_current_wall_clock() {
        let at = |seconds| SteadyTime::after_start(Duration::from_secs(seconds));
        let wall: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        assert_eq!(at(5).on_wall(at(35), wall).to_string(), "2026-01-01T00:59:30Z");
        assert_eq!(at(35).on_wall(at(5), wall), wall);
    }
}
