//! Retries of failed changes: the first at once, because somebody may have changed the object just then, later ones with
//! growing delays.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::decide::RollChange;

/// The delay before the second time. It doubles with each further failure.
const FIRST_DELAY: Duration = Duration::from_secs(1);

/// Well below the time after which a roll without a heartbeat has no runner.
const LONGEST_DELAY: Duration = Duration::from_secs(16);

/// The changes that failed, by node; those of the record of the roll by none.
#[derive(Default)]
pub(super) struct Backoff(BTreeMap<Option<String>, Failures>);

struct Failures {
    /// How many in a row.
    number: u32,
    /// When the change is made again.
    until: Instant,
}

fn key(change: &RollChange) -> Option<String> {
    change.node().map(str::to_owned)
}

impl Backoff {
    pub(super) fn is_due(&self, change: &RollChange) -> bool {
        self.0.get(&key(change)).is_none_or(|failures| failures.until <= Instant::now())
    }

    /// A change has failed. Returns how often in a row.
    pub(super) fn failed(&mut self, change: &RollChange) -> u32 {
        let now = Instant::now();
        let failures = self.0.entry(key(change)).or_insert(Failures { number: 0, until: now });
        failures.number = failures.number.saturating_add(1);
        let delay = match failures.number {
            0 | 1 => Duration::ZERO,
            number => FIRST_DELAY.saturating_mul(2_u32.saturating_pow(number.saturating_sub(2))),
        };
        failures.until = now + delay.min(LONGEST_DELAY);
        failures.number
    }

    pub(super) fn succeeded(&mut self, change: &RollChange) {
        self.0.remove(&key(change));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_fails_again_and_again_is_tried_at_once_and_then_less_and_less_often() {
        let (record, node) = (RollChange::Record(Box::default()), RollChange::Delete(String::from("n1")));
        let mut backoff = Backoff::default();
        let mut delays = Vec::new();
        for number in 1..=8 {
            assert_eq!(backoff.failed(&record), number);
            let failed = Instant::now();
            while !backoff.is_due(&record) {
                assert!(backoff.is_due(&node), "it is about something else");
                tokio::time::advance(Duration::from_millis(500)).await;
            }
            delays.push(failed.elapsed().as_secs());
        }
        assert_eq!(delays, [0, 1, 2, 4, 8, 16, 16, 16]);
        backoff.failed(&record);
        backoff.succeeded(&record);
        assert!(backoff.is_due(&record));
        assert_eq!(backoff.failed(&record), 1);
    }
}
