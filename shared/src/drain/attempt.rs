//! What is known of the evictions of one pod so far, and when the next may be tried.

use std::time::Duration;

use crate::drain::eviction_outcome::EvictionOutcome;
use crate::drain::steady_time::SteadyTime;

/// The first pause after a refusal; it doubles up to [`LONGEST_PAUSE`].
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A server that names its pause is obeyed, but not for longer than this: whatever it meant, nobody waits for a day.
const LONGEST_OBEYED: Duration = Duration::from_secs(60);

/// An accepted eviction marks its pod at once. If the mark has not been seen for this long, it did not take.
const ACCEPTED_IS_VISIBLE: Duration = Duration::from_secs(10);

/// A run of refusals is broken when nobody has asked, and nobody was known to refuse, for longer than this: a pod that is
/// refused is seen to every ten seconds as a rule.
const LONGEST_GAP: Duration = Duration::from_secs(60);

/// The evictions of one pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attempt {
    /// A request is queued or under way.
    pub in_flight: bool,
    /// How many answers were refusals.
    pub refusals: u32,
    /// Since when the pod has been refused, or held back because it would be, without a break: what anything else answers
    /// begins the run anew.
    pub refused_since: Option<SteadyTime>,
    /// What last refused to have it deleted instead, in this run.
    pub deletion: Option<(SteadyTime, EvictionOutcome)>,
    /// When it was last seen to.
    pub seen_to: Option<SteadyTime>,
    /// The last answer and when it came.
    pub last: Option<(SteadyTime, EvictionOutcome)>,
}

impl Attempt {
    /// Notes that a request is to be sent.
    pub fn begin(&mut self, now: SteadyTime) {
        self.see_to(now);
        self.in_flight = true;
    }

    /// Notes that the request was taken back before it was sent.
    pub fn withdraw(&mut self) {
        self.in_flight = false;
    }

    /// Notes that the pod is not asked to go, because a budget would refuse.
    pub fn hold(&mut self, now: SteadyTime) {
        self.see_to(now);
        self.refused_since.get_or_insert(now);
    }

    /// Notes that nobody refuses the pod by now, or that nobody wants it to go.
    pub fn break_run(&mut self) {
        self.refused_since = None;
        self.deletion = None;
    }

    /// Since when the pod has been refused without a break, if it still is.
    pub fn unbroken_since(&self, now: SteadyTime) -> Option<SteadyTime> {
        let is_fresh = self.seen_to.is_some_and(|at| now.since(at) <= LONGEST_GAP);
        self.refused_since.filter(|_| is_fresh)
    }

    fn see_to(&mut self, now: SteadyTime) {
        if self.unbroken_since(now).is_none() {
            self.break_run();
        }
        self.seen_to = Some(now);
    }

    /// Notes the answer to a deletion. What refuses it says nothing of evictions.
    pub fn end_deletion(&mut self, outcome: EvictionOutcome, now: SteadyTime) {
        if matches!(outcome, EvictionOutcome::Accepted | EvictionOutcome::Gone) {
            return self.end(outcome, now);
        }
        self.see_to(now);
        self.in_flight = false;
        self.refusals += 1;
        self.deletion = Some((now, outcome));
    }

    /// Whether what was refused last was a deletion. An eviction, which may pass by now, comes before the next.
    pub fn was_deletion_refused(&self) -> bool {
        let answered = self.last.as_ref().map(|(at, _)| *at);
        self.deletion.as_ref().is_some_and(|(at, _)| Some(*at) >= answered)
    }

    /// Notes the answer to an eviction.
    pub fn end(&mut self, outcome: EvictionOutcome, now: SteadyTime) {
        self.see_to(now);
        self.in_flight = false;
        if outcome.is_refusal() {
            self.refused_since.get_or_insert(now);
        } else {
            self.break_run();
        }
        // A virtual machine on its way is not refused, however often it is asked.
        if !matches!(
            outcome,
            EvictionOutcome::Accepted | EvictionOutcome::Gone | EvictionOutcome::Migrating(_)
        ) {
            self.refusals += 1;
        }
        self.last = Some((now, outcome));
    }

    /// When the pod may be asked to go again; none while an answer is outstanding.
    pub fn next_try(&self) -> Option<SteadyTime> {
        if self.in_flight {
            return None;
        }
        let answers = [&self.last, &self.deletion].into_iter().flatten();
        let Some((at, outcome)) = answers.max_by_key(|(at, _)| *at) else {
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
            attempt.begin(start);
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
    fn a_run_is_broken_by_a_minute_in_which_nobody_saw_to_the_pod() {
        let at = |second| SteadyTime::after_start(Duration::from_secs(second));
        let refused = || EvictionOutcome::RefusedByBudget(String::new());
        let mut attempt = Attempt::default();
        attempt.end(refused(), at(0));
        attempt.hold(at(60));
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
        attempt.hold(at(430));
        assert_eq!(attempt.unbroken_since(at(430)), Some(at(430)));
        attempt.break_run();
        assert_eq!(attempt.unbroken_since(at(430)), None);
    }

    #[test]
    fn a_deletion_that_is_refused_is_retried_ever_more_slowly_and_leaves_the_run_as_it_is() {
        let at = |second| SteadyTime::after_start(Duration::from_secs(second));
        let refused = || EvictionOutcome::RefusedByBudget(String::new());
        let mut attempt = Attempt::default();
        attempt.end(refused(), at(0));
        assert!(!attempt.was_deletion_refused());
        for (second, pause) in [(1, 2), (10, 8), (20, 10)] {
            attempt.begin(at(second));
            attempt.end_deletion(EvictionOutcome::Forbidden(String::new()), at(second));
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
    fn only_an_unbroken_run_of_refusals_counts() {
        use EvictionOutcome::*;
        let said = String::new;
        let at = |second| SteadyTime::after_start(Duration::from_secs(second));
        let check = |between: EvictionOutcome, since: u64| {
            let mut attempt = Attempt::default();
            attempt.end(RefusedByBudget(said()), at(10));
            attempt.end(between.clone(), at(20));
            attempt.end(RefusedByBudget(said()), at(30));
            assert_eq!(attempt.refused_since, Some(at(since)), "{between:?}");
        };
        for refusal in [
            RefusedByBudget(said()),
            MultipleBudgets(said()),
            NotMigratable(said()),
            RefusedByWebhook { webhook: said(), message: said() },
        ] {
            check(refusal, 10);
        }
        for other in [
            Accepted,
            Gone,
            Migrating(said()),
            Forbidden(said()),
            NamespaceTerminating,
            Throttled { retry_after: None, message: said() },
            Unknown(said()),
        ] {
            check(other, 30);
        }
    }
}
