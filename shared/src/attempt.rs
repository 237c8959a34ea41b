//! What is known of the evictions of one pod so far, and when the next may be tried.

use std::time::Duration;

use crate::eviction_outcome::EvictionOutcome;
use crate::steady_time::SteadyTime;

/// The first pause after a refusal; it doubles up to [`LONGEST_PAUSE`].
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A server that names its pause is obeyed, but not for longer than this: whatever it meant, nobody waits for a day.
const LONGEST_OBEYED: Duration = Duration::from_secs(60);

/// An accepted eviction marks its pod at once. If the mark has not been seen for this long, it did not take.
const ACCEPTED_IS_VISIBLE: Duration = Duration::from_secs(10);

/// The evictions of one pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attempt {
    /// A request is queued or under way.
    pub in_flight: bool,
    /// How many answers were refusals.
    pub refusals: u32,
    /// Since when the pod has been refused, or held back because it would be, without a break.
    pub refused_since: Option<SteadyTime>,
    /// The last answer and when it came.
    pub last: Option<(SteadyTime, EvictionOutcome)>,
}

impl Attempt {
    /// Notes that a request is to be sent.
    pub fn begin(&mut self) {
        self.in_flight = true;
    }

    /// Notes that the request was taken back before it was sent.
    pub fn withdraw(&mut self) {
        self.in_flight = false;
    }

    /// Notes that the pod is not asked to go, because a budget would refuse.
    pub fn hold(&mut self, now: SteadyTime) {
        self.refused_since.get_or_insert(now);
    }

    /// Notes an answer.
    pub fn end(&mut self, outcome: EvictionOutcome, now: SteadyTime) {
        self.in_flight = false;
        match outcome {
            // A virtual machine on its way is not refused, however often it is asked.
            EvictionOutcome::Accepted | EvictionOutcome::Gone | EvictionOutcome::Migrating(_) => {
                self.refused_since = None;
            }
            _ => {
                self.refusals += 1;
                self.refused_since.get_or_insert(now);
            }
        }
        self.last = Some((now, outcome));
    }

    /// When the pod may be asked to go again; none while an answer is outstanding.
    pub fn next_try(&self) -> Option<SteadyTime> {
        if self.in_flight {
            return None;
        }
        let Some((at, outcome)) = &self.last else {
            return Some(SteadyTime::MIN);
        };
        let pause = match outcome {
            EvictionOutcome::Accepted | EvictionOutcome::Gone => ACCEPTED_IS_VISIBLE,
            EvictionOutcome::Migrating(_) => LONGEST_PAUSE,
            EvictionOutcome::Throttled { retry_after: Some(wait), .. } => (*wait).min(LONGEST_OBEYED),
            _ => {
                SHORTEST_PAUSE.saturating_mul(1 << self.refusals.saturating_sub(1).min(4)).min(LONGEST_PAUSE)
            }
        };
        Some(at.after(pause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_retried_ever_more_slowly_up_to_ten_seconds() {
        let mut attempt = Attempt::default();
        assert_eq!(attempt.next_try(), Some(SteadyTime::MIN));
        let start = SteadyTime::MIN;
        let mut pauses = Vec::new();
        for _ in 0..6 {
            attempt.begin();
            assert_eq!(attempt.next_try(), None);
            attempt.end(EvictionOutcome::RefusedByBudget(String::new()), start);
            pauses.push(attempt.next_try().unwrap().since(start).as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 10, 10]);
        assert_eq!((attempt.refusals, attempt.refused_since), (6, Some(start)));
    }

    #[test]
    fn a_server_that_names_its_pause_is_obeyed_within_reason() {
        for (named, obeyed) in [(42, 42), (86_400, 60)] {
            let mut attempt = Attempt::default();
            let wait = Some(Duration::from_secs(named));
            attempt.end(
                EvictionOutcome::Throttled { retry_after: wait, message: String::new() },
                SteadyTime::MIN,
            );
            assert_eq!(attempt.next_try().unwrap().since(SteadyTime::MIN).as_secs(), obeyed);
        }
    }

    #[test]
    fn an_acceptance_ends_the_refusals() {
        let mut attempt = Attempt::default();
        attempt.end(EvictionOutcome::Unknown(String::new()), SteadyTime::MIN);
        attempt.end(EvictionOutcome::Accepted, SteadyTime::MIN);
        assert_eq!(attempt.refused_since, None);
    }
}
