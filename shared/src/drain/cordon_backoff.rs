//! How often a cordon is put back that someone else keeps removing.
//!
//! The first time it is put back at once. Two controllers that want opposite things of a node would otherwise patch it as
//! fast as they hear of each other; so the interval doubles from [`SHORTEST_INTERVAL`] to [`LONGEST_INTERVAL`], until the
//! cordon has stood for [`CALM`].

use std::time::Duration;

/// After the first time.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);

/// However often it was put back.
const LONGEST_INTERVAL: Duration = Duration::from_secs(60);

/// A cordon that has stood for so long is not contested any more.
const CALM: Duration = Duration::from_secs(300);

/// So many times without [`CALM`] between them are more than a person does by mistake.
const CONTESTED: u32 = 3;

/// How often the cordon of one maintenance was put back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecordonBackoff {
    /// How often, since the cordon last stood for five minutes.
    pub count: u32,
    /// How long ago the last time was.
    pub since_last: Duration,
}

impl RecordonBackoff {
    /// How long to wait before the cordon is put back again; none if it may be now.
    pub fn wait(&self) -> Option<Duration> {
        let doublings = self.count.checked_sub(1)?.min(6);
        let interval = (SHORTEST_INTERVAL * (1 << doublings)).min(LONGEST_INTERVAL);
        interval.checked_sub(self.since_last).filter(|left| !left.is_zero())
    }

    /// Whether something keeps removing the cordon.
    pub fn is_contested(&self) -> bool {
        self.count >= CONTESTED && self.calm_in().is_some()
    }

    /// How long until the cordon counts as standing, if it is left alone; none if it does.
    pub fn calm_in(&self) -> Option<Duration> {
        CALM.checked_sub(self.since_last).filter(|left| !left.is_zero())
    }

    /// The count once the cordon is put back now.
    pub fn next_count(&self) -> u32 {
        if self.calm_in().is_some() { self.count.saturating_add(1) } else { 1 }
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
    fn the_interval_doubles_from_one_second_to_a_minute_until_the_cordon_has_stood_for_five() {
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
