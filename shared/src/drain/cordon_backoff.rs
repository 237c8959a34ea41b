//! The backoff of restoring a cordon that another program keeps removing.
//!
//! The first time it is restored at once. Two controllers that disagree about a node would otherwise patch it without
//! pause, so the interval doubles from [`MIN_INTERVAL`] to [`MAX_INTERVAL`], until the cordon has stayed for
//! [`RESET_AFTER`].

use std::time::Duration;

/// The interval after the first time.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum interval.
const MAX_INTERVAL: Duration = Duration::from_secs(60);

/// A cordon that has stayed for so long is no longer contested.
const RESET_AFTER: Duration = Duration::from_secs(300);

/// A cordon that was restored so often is contested: a person does not remove it that often by mistake.
const CONTESTED: u32 = 3;

/// How often the cordon of one maintenance was restored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecordonBackoff {
    /// How often, since the cordon last stayed for five minutes.
    pub count: u32,
    /// The time since the last one.
    pub since_last: Duration,
}

impl RecordonBackoff {
    /// The time until the cordon is restored again; none if it may be restored now.
    pub fn wait(&self) -> Option<Duration> {
        let doublings = self.count.checked_sub(1)?.min(6);
        let interval = (MIN_INTERVAL * (1 << doublings)).min(MAX_INTERVAL);
        interval.checked_sub(self.since_last).filter(|left| !left.is_zero())
    }

    /// Whether something keeps removing the cordon.
    pub fn is_contested(&self) -> bool {
        self.count >= CONTESTED && self.reset_in().is_some()
    }

    /// The time until the cordon is no longer contested, if nobody removes it; none if it is not contested.
    pub fn reset_in(&self) -> Option<Duration> {
        RESET_AFTER.checked_sub(self.since_last).filter(|left| !left.is_zero())
    }

    /// The count once the cordon is restored now.
    pub fn next_count(&self) -> u32 {
        if self.reset_in().is_some() { self.count.saturating_add(1) } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(count: u32, since_last: u64, wait: Option<u64>, contested: bool, next: u32) {
        let recordons = RecordonBackoff { count, since_last: Duration::from_secs(since_last) };
        assert_eq!(recordons.wait(), wait.map(Duration::from_secs), "{recordons:?}");
        assert_eq!((recordons.is_contested(), recordons.next_count()), (contested, next), "{recordons:?}");
    }

    #[test]
    fn the_interval_doubles_from_one_second_to_a_minute_until_the_cordon_has_stayed_for_five() {
        check(0, 0, None, false, 1);
        check(1, 0, Some(1), false, 2);
        check(1, 1, None, false, 2);
        check(2, 0, Some(2), false, 3);
        check(3, 1, Some(3), true, 4);
        check(7, 0, Some(60), true, 8);
        check(1000, 59, Some(1), true, 1001);
        check(1000, 60, None, true, 1001);
        check(1000, 299, None, true, 1001);
        check(1000, 300, None, false, 1);
    }
}
