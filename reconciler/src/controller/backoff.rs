//! Failures of one maintenance, one after another: how long to pause, and which of them is worth a warning.

use std::time::Duration;

/// Pauses after failures, one after another: the last one for all that follow.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// A row of failures, without a success in between.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Failures {
    count: usize,
    is_told: bool,
}

impl Failures {
    /// Notes one more, and returns whether it is worth a warning: the first that is, and none of the row after it. That
    /// another was faster to write is no news, however often it happens.
    pub(crate) fn note(&mut self, is_overtaken: bool) -> bool {
        self.count = self.count.saturating_add(1);
        !is_overtaken && !std::mem::replace(&mut self.is_told, true)
    }

    /// How long to wait before the next attempt.
    pub(crate) fn pause(self) -> Duration {
        PAUSES[self.count.clamp(1, PAUSES.len()) - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_of_a_row_that_is_no_conflict_is_worth_a_warning() {
        let warned = |row: &[u16]| {
            let mut failures = Failures::default();
            row.iter().map(|code| failures.note(matches!(code, 404 | 409))).collect::<Vec<_>>()
        };
        assert_eq!(warned(&[500, 500, 409, 500]), [true, false, false, false]);
        assert_eq!(warned(&[409, 500, 403]), [false, true, false]);
        assert_eq!(warned(&[404, 409, 409]), [false, false, false]);
    }

    #[test]
    fn each_pause_is_longer_than_the_one_before_until_they_are_all_the_same() {
        let mut failures = Failures::default();
        let pauses = (0..7).map(|_| {
            failures.note(false);
            failures.pause().as_millis()
        });
        assert_eq!(pauses.collect::<Vec<_>>(), [100, 500, 2_000, 5_000, 10_000, 10_000, 10_000]);
    }
}
