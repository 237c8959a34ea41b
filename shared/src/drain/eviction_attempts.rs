//! The evictions of one pod, and when the next may be requested.

use std::time::Duration;

use crate::drain::eviction_outcome::EvictionOutcome;
use crate::drain::steady_time::SteadyTime;

/// The backoff after the first refusal; it doubles up to [`MAX_BACKOFF`].
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// The maximum of a `Retry-After` that is respected.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// An accepted eviction sets the deletion timestamp of its pod at once. It is retried if that is not observed in time.
const ACCEPTED_TIMEOUT: Duration = Duration::from_secs(10);

/// A run of refusals is interrupted if nothing was requested, and no budget was known to refuse, for longer than this. A
/// refused pod is usually retried every ten seconds.
pub const MAX_GAP: Duration = Duration::from_secs(60);

/// The evictions of one pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attempt {
    /// Whether a request is queued or in flight. Whoever owns the requests says so.
    pub in_flight: bool,
    /// Whether that request was decided although its budget seemed exhausted.
    pub is_probe: bool,
    /// The number of refused requests.
    pub refusals: u32,
    /// Since when its eviction has been refused, or not requested because its budget would refuse it, without
    /// interruption. Any other answer starts a new run.
    pub refused_since: Option<SteadyTime>,
    /// The last refusal of its deletion in this run. Boxed, because few pods are deleted.
    pub deletion: Option<Box<(SteadyTime, EvictionOutcome)>>,
    /// When it was last decided about.
    pub decided_at: Option<SteadyTime>,
    /// Whether KubeVirt migrates the virtual machine, by the last answer about the pod.
    pub migrates: bool,
    /// The last answer and when it came.
    pub last: Option<(SteadyTime, EvictionOutcome)>,
}

impl Attempt {
    /// A request is queued.
    pub fn begin(&mut self, now: SteadyTime) {
        self.mark_decided(now);
    }

    /// No request is sent, because a budget would refuse it.
    pub fn block_by_budget(&mut self, now: SteadyTime) {
        self.mark_decided(now);
        self.refused_since.get_or_insert(now);
    }

    /// The eviction is no longer refused, or no longer wanted.
    pub fn break_run(&mut self) {
        self.refused_since = None;
        self.deletion = None;
    }

    /// The time since which the eviction has been refused without interruption, if it still is.
    pub fn unbroken_since(&self, now: SteadyTime) -> Option<SteadyTime> {
        let is_fresh = self.decided_at.is_some_and(|at| now.since(at) <= MAX_GAP);
        self.refused_since.filter(|_| is_fresh)
    }

    fn mark_decided(&mut self, now: SteadyTime) {
        if self.unbroken_since(now).is_none() {
            self.break_run();
        }
        self.decided_at = Some(now);
    }

    /// The answer to a deletion. A refused deletion shows nothing about evictions.
    pub fn end_deletion(&mut self, outcome: EvictionOutcome, now: SteadyTime) {
        if matches!(outcome, EvictionOutcome::Accepted | EvictionOutcome::Gone) {
            return self.end(outcome, now);
        }
        self.mark_decided(now);
        self.refusals += 1;
        self.deletion = Some(Box::new((now, outcome)));
    }

    /// Whether the last refused request was a deletion. Then an eviction is tried before the next deletion.
    pub fn was_deletion_refused(&self) -> bool {
        let answered = self.last.as_ref().map(|(at, _)| *at);
        self.deletion.as_ref().is_some_and(|refused| Some(refused.0) >= answered)
    }

    /// The answer to an eviction.
    pub fn end(&mut self, outcome: EvictionOutcome, now: SteadyTime) {
        self.mark_decided(now);
        if outcome.is_refusal() {
            self.refused_since.get_or_insert(now);
        } else {
            self.break_run();
        }
        if !matches!(outcome, EvictionOutcome::Unknown(_) | EvictionOutcome::Throttled { .. }) {
            self.migrates = matches!(outcome, EvictionOutcome::Migrating(_));
        }
        // An eviction that starts a migration is not refused.
        if !matches!(
            outcome,
            EvictionOutcome::Accepted | EvictionOutcome::Gone | EvictionOutcome::Migrating(_)
        ) {
            self.refusals += 1;
        }
        self.last = Some((now, outcome));
    }

    /// When the next request may be sent; none while one is in flight.
    pub fn next_try(&self) -> Option<SteadyTime> {
        if self.in_flight {
            return None;
        }
        let answers = self.last.iter().chain(self.deletion.as_deref());
        let Some((at, outcome)) = answers.max_by_key(|(at, _)| *at) else {
            return Some(SteadyTime::MIN);
        };
        let wait = match outcome {
            EvictionOutcome::Accepted | EvictionOutcome::Gone => ACCEPTED_TIMEOUT,
            EvictionOutcome::Migrating(_) => MAX_BACKOFF,
            EvictionOutcome::Throttled { retry_after: Some(wait), .. } => (*wait).min(MAX_RETRY_AFTER),
            _ => MIN_BACKOFF.saturating_mul(1 << self.refusals.saturating_sub(1).min(4)).min(MAX_BACKOFF),
        };
        Some(at.after(wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_back_off_up_to_ten_seconds() {
        let mut attempt = Attempt::default();
        assert_eq!(attempt.next_try(), Some(SteadyTime::MIN));
        let start = SteadyTime::MIN;
        let mut pauses = Vec::new();
        for _ in 0..6 {
            attempt.begin(start);
            assert_eq!(Attempt { in_flight: true, ..attempt.clone() }.next_try(), None);
            attempt.end(EvictionOutcome::RefusedByBudget("".into()), start);
            pauses.push(attempt.next_try().unwrap().since(start).as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 10, 10]);
        assert_eq!((attempt.refusals, attempt.refused_since), (6, Some(start)));
    }

    #[test]
    fn a_retry_after_is_respected_up_to_a_minute() {
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
    fn a_minute_without_a_decision_interrupts_a_run_of_refusals() {
        let at = |second| SteadyTime::after_start(Duration::from_secs(second));
        let refused = || EvictionOutcome::RefusedByBudget("".into());
        let mut attempt = Attempt::default();
        attempt.end(refused(), at(0));
        attempt.block_by_budget(at(60));
        attempt.begin(at(120));
        attempt.end(refused(), at(155));
        assert_eq!(attempt.unbroken_since(at(215)), Some(at(0)));
        assert_eq!(attempt.unbroken_since(at(216)), None);
        attempt.begin(at(216));
        attempt.end(refused(), at(300));
        assert_eq!(attempt.unbroken_since(at(300)), Some(at(300)), "it waited too long in the queue");
        attempt.begin(at(361));
        attempt.end(refused(), at(362));
        assert_eq!(attempt.unbroken_since(at(363)), Some(at(362)));
        attempt.block_by_budget(at(430));
        assert_eq!(attempt.unbroken_since(at(430)), Some(at(430)));
        attempt.break_run();
        assert_eq!(attempt.unbroken_since(at(430)), None);
    }

    #[test]
    fn a_deletion_that_is_refused_is_retried_ever_more_slowly_and_leaves_the_run_as_it_is() {
        let at = |second| SteadyTime::after_start(Duration::from_secs(second));
        let refused = || EvictionOutcome::RefusedByBudget("".into());
        let mut attempt = Attempt::default();
        attempt.end(refused(), at(0));
        assert!(!attempt.was_deletion_refused());
        for (second, pause) in [(1, 2), (10, 8), (20, 10)] {
            attempt.begin(at(second));
            attempt.end_deletion(EvictionOutcome::Forbidden("".into()), at(second));
            assert_eq!(
                (attempt.was_deletion_refused(), attempt.next_try()),
                (true, Some(at(second + pause)))
            );
            attempt.end(refused(), at(second));
            attempt.last = Some((at(second + 1), refused()));
            assert!(
                !attempt.was_deletion_refused(),
                "the next refusal of an eviction is a reason to delete it"
            );
            assert_eq!(attempt.refused_since, Some(at(0)));
        }
        attempt.end_deletion(EvictionOutcome::Accepted, at(30));
        assert_eq!((attempt.refused_since, attempt.deletion), (None, None));
    }

    #[test]
    fn an_answer_that_says_nothing_about_the_pod_does_not_end_a_migration() {
        use EvictionOutcome::*;
        let mut attempt = Attempt::default();
        attempt.end(Migrating(String::new()), SteadyTime::MIN);
        for silent in [Unknown(String::new()), Throttled { retry_after: None, message: String::new() }] {
            attempt.end(silent, SteadyTime::MIN);
            assert!(attempt.migrates);
        }
        attempt.end(NotMigratable(String::new()), SteadyTime::MIN);
        assert!(!attempt.migrates);
    }

    #[test]
    fn only_an_uninterrupted_run_of_refusals_counts() {
        use EvictionOutcome::*;
        let said = String::new;
        let at = |second| SteadyTime::after_start(Duration::from_secs(second));
        let check = |between: EvictionOutcome, since: u64| {
            let mut attempt = Attempt::default();
            attempt.end(RefusedByBudget("".into()), at(10));
            attempt.end(between.clone(), at(20));
            attempt.end(RefusedByBudget("".into()), at(30));
            assert_eq!(attempt.refused_since, Some(at(since)), "{between:?}");
        };
        for refusal in [
            RefusedByBudget("".into()),
            MultipleBudgets(said()),
            NotMigratable(said()),
            RefusedByWebhook { webhook: said(), message: said() },
            RefusedByPolicy { policy: None, message: said() },
        ] {
            check(refusal, 10);
        }
        for other in [
            Accepted,
            Gone,
            Migrating(said()),
            HotplugPod(said()),
            Forbidden("".into()),
            NamespaceTerminating,
            Throttled { retry_after: None, message: said() },
            Unknown(said()),
        ] {
            check(other, 30);
        }
    }
}
