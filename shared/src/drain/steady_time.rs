//! Time by a clock that nobody sets, for everything that is counted from one moment to the next within this process.
//!
//! The wall clock may be set back or forward at any moment, and a pause that is counted by it lasts that much longer or
//! shorter. Only what other programs read, above all the status, is written in its time.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// A moment: so long after the process began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SteadyTime(Duration);

impl SteadyTime {
    /// Before everything: what was due then is due now.
    pub const MIN: Self = Self(Duration::ZERO);

    /// The moment that is so long after the process began.
    pub const fn after_start(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// The moment that is so much later.
    #[must_use]
    pub const fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }

    /// How long after `earlier` it is; zero if it is not.
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// What the wall clock, which says `wall` at `now`, would have said then, had nobody set it since.
    pub fn on_wall(self, now: Self, wall: Timestamp) -> Timestamp {
        let age = SignedDuration::try_from(now.since(self)).unwrap_or(SignedDuration::MAX);
        wall.checked_sub(age).unwrap_or(Timestamp::MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_a_place_on_the_wall_clock_as_it_goes_now() {
        let at = |seconds| SteadyTime::after_start(Duration::from_secs(seconds));
        let wall: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        assert_eq!(at(5).on_wall(at(35), wall).to_string(), "2026-01-01T00:59:30Z");
        assert_eq!(at(35).on_wall(at(5), wall), wall);
    }
}
