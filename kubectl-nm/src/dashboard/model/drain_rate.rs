//! The rate of a drain: the sparkline, and an estimate of the time left.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

/// For how many seconds progress is recorded.
const RECORDED_SECONDS: usize = 300;

/// How long a drain has to run before the time left is estimated.
const MIN_ELAPSED: SignedDuration = SignedDuration::from_secs(5);

/// How many pods were gone, second by second.
#[derive(Debug, Clone, Default)]
pub(crate) struct DrainRate {
    gone: VecDeque<i32>,
}

impl DrainRate {
    pub(crate) fn note(&mut self, gone: i32) {
        if self.gone.len() == RECORDED_SECONDS {
            self.gone.pop_front();
        }
        self.gone.push_back(gone);
    }

    /// How many pods went in each of the last `count` seconds, the latest last.
    pub(crate) fn steps(&self, count: usize) -> Vec<i32> {
        let steps =
            self.gone.iter().zip(self.gone.iter().skip(1)).map(|(before, after)| (after - before).max(0));
        let skipped = self.gone.len().saturating_sub(1).saturating_sub(count);
        steps.skip(skipped).collect()
    }
}

/// The time until the pods that nothing blocks are gone, at the average rate so far; none if there is no basis for it.
pub(crate) fn estimate(
    gone: i32,
    unblocked: i32,
    since: Timestamp,
    now: Timestamp,
) -> Option<SignedDuration> {
    let so_far = now.duration_since(since);
    if gone <= 0 || unblocked <= 0 || so_far < MIN_ELAPSED {
        return None;
    }
    let seconds = so_far.as_secs().checked_mul(i64::from(unblocked))? / i64::from(gone);
    Some(SignedDuration::from_secs(seconds.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_are_those_of_the_last_seconds() {
        let mut rate = DrainRate::default();
        assert!(rate.steps(3).is_empty());
        for gone in [0, 2, 2, 5, 4, 6] {
            rate.note(gone);
        }
        assert_eq!(rate.steps(3), [3, 0, 2]);
        assert_eq!(rate.steps(100), [2, 0, 3, 0, 2]);
        (0..1000).for_each(|_| rate.note(6));
        assert_eq!(rate.steps(1000).len(), RECORDED_SECONDS - 1);
    }

    #[test]
    fn the_estimate_uses_the_average_rate_and_needs_progress() {
        let started = Timestamp::UNIX_EPOCH;
        for (gone, unblocked, seconds, expected) in [
            (10, 5, 60, Some(30)),
            (1, 1000, 60, Some(60_000)),
            (100, 1, 10, Some(1)),
            (0, 5, 60, None),
            (5, 0, 60, None),
            (5, 5, 4, None),
        ] {
            let now = started + SignedDuration::from_secs(seconds);
            let estimated = estimate(gone, unblocked, started, now).map(|left| left.as_secs());
            assert_eq!(estimated, expected, "{gone} {unblocked} {seconds}");
        }
    }
}
