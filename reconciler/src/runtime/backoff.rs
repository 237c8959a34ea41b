//! Consecutive failures: how long to wait before the next attempt, and which of them is worth a warning.

use std::time::Duration;

/// The delay after each consecutive failure; the last one repeats.
const DELAYS: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// Consecutive failures, without a success in between.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Backoff {
    failures: usize,
    warned: bool,
}

impl Backoff {
    /// Counts a failure and returns whether to log a warning: only for the first one that is not a conflict, which is
    /// normal.
    pub(crate) fn record_failure(&mut self, is_conflict: bool) -> bool {
        self.failures = self.failures.saturating_add(1);
        !is_conflict && !std::mem::replace(&mut self.warned, true)
    }

    /// How many attempts have failed.
    pub(crate) fn failures(self) -> usize {
        self.failures
    }

    /// How long to wait before the next attempt.
    pub(crate) fn delay(self) -> Duration {
        DELAYS[self.failures.clamp(1, DELAYS.len()) - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_consecutive_failure_that_is_not_a_conflict_is_worth_a_warning() {
        let warned = |codes: &[u16]| {
            let mut backoff = Backoff::default();
            codes.iter().map(|code| backoff.record_failure(matches!(code, 404 | 409))).collect::<Vec<_>>()
        };
        assert_eq!(warned(&[500, 500, 409, 500]), [true, false, false, false]);
        assert_eq!(warned(&[409, 500, 403]), [false, true, false]);
        assert_eq!(warned(&[404, 409, 409]), [false, false, false]);
    }

    #[test]
    fn delays_grow_up_to_ten_seconds() {
        let mut backoff = Backoff::default();
        let delays = (0..7).map(|_| {
            backoff.record_failure(false);
            backoff.delay().as_millis()
        });
        assert_eq!(delays.collect::<Vec<_>>(), [100, 500, 2_000, 5_000, 10_000, 10_000, 10_000]);
    }
}
