//! A rule: which requests it matches, which of those it applies to, and what happens to them.

use std::sync::Arc;
use std::time::Duration;

use crate::faults::failure::Failure;
use crate::request_log::target::Target;

/// What happens to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Delays the request.
    Delay(Duration),
    /// Delays the request as a server does whose processors all requests share: by `each` for itself, for every request
    /// that this rule delays at the moment, and for `background` others.
    Contend {
        /// What one request takes of the server's time.
        each: Duration,
        /// How many requests of others are in progress.
        background: u32,
    },
    /// Handles the request at once and delays the response.
    DelayAnswer(Duration),
    /// Responds with an error.
    Fail(Failure, Moment),
    /// Closes the connection without a response.
    Disconnect(Moment),
    /// Never responds, and keeps the connection open.
    NeverAnswer(Moment),
    /// Answers a list as it was so many revisions ago, as an API server does that lags behind another one. Later changes
    /// reach a watch that starts there.
    StaleList {
        /// How many revisions, at most.
        revisions: u64,
    },
    /// Sends the events of a watch so much later.
    DelayEvents(Duration),
    /// Ends a watch cleanly after so many events, as at its timeout. Bookmarks count.
    EndWatch {
        /// How many events are sent.
        after: usize,
    },
}

/// Whether a request takes effect when it fails. The client cannot see the difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// It fails before it takes effect.
    BeforeEffect,
    /// It takes effect, and its response is lost.
    AfterEffect,
}

/// Which of the requests that match.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum When {
    /// All of them.
    Always,
    /// So many, from the first.
    First(u64),
    /// Only this one, counted from one.
    Nth(u64),
    /// This one, and every multiple of it.
    Every(u64),
    /// Each with this probability. The same seed makes the same choices.
    Chance {
        /// Between zero and one.
        probability: f64,
        /// Any number.
        seed: u64,
    },
}

impl When {
    /// Whether it applies to the match with this number, counted from one.
    fn holds(self, number: u64) -> bool {
        match self {
            Self::Always => true,
            Self::First(count) => number <= count,
            Self::Nth(wanted) => number == wanted,
            Self::Every(count) => number.is_multiple_of(count),
            Self::Chance { probability, seed } => draw(seed, number) < probability,
        }
    }
}

/// A pseudo-random number in [0, 1) that depends only on its arguments (`splitmix64`).
fn draw(seed: u64, number: u64) -> f64 {
    let mut bits = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    let high = u32::try_from(bits >> 32).unwrap_or(u32::MAX);
    f64::from(high) / (f64::from(u32::MAX) + 1.0)
}

/// Applies an action to requests.
#[derive(Debug, Clone)]
pub struct Rule {
    target: Target,
    action: Action,
    when: When,
    matches: u64,
    played: u64,
    /// Each request in progress that contends has a reference.
    contending: Arc<()>,
}

impl Rule {
    /// Applies an action to every request that matches.
    pub fn new(target: Target, action: Action) -> Self {
        Self { target, action, when: When::Always, matches: 0, played: 0, contending: Arc::new(()) }
    }

    /// Applies it to some of them.
    #[must_use]
    pub fn when(mut self, when: When) -> Self {
        self.when = when;
        self
    }

    /// How many requests it was applied to.
    pub(crate) fn played(&self) -> u64 {
        self.played
    }

    /// The number of requests that contend, one more included, which counts until the reference is dropped.
    pub(crate) fn contend(&self) -> (u32, Arc<()>) {
        let one = self.contending.clone();
        (u32::try_from(Arc::strong_count(&one) - 1).unwrap_or(u32::MAX), one)
    }

    /// The action for this request, if any. Counts the request.
    pub(crate) fn meet(&mut self, entry: &crate::request_log::Entry) -> Option<Action> {
        let is_possible = match self.action {
            Action::EndWatch { .. } | Action::DelayEvents(_) => entry.verb == "watch",
            Action::StaleList { .. } => entry.verb == "list",
            _ => true,
        };
        if !is_possible || !self.target.matches(entry) {
            return None;
        }
        self.matches += 1;
        if !self.when.holds(self.matches) {
            return None;
        }
        self.played += 1;
        Some(self.action.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(when: When) -> Vec<u64> {
        (1..=8).filter(|number| when.holds(*number)).collect()
    }

    #[test]
    fn a_rule_plays_on_the_matches_it_names() {
        for (when, expected) in [
            (When::Always, &[1, 2, 3, 4, 5, 6, 7, 8][..]),
            (When::First(2), &[1, 2]),
            (When::Nth(3), &[3]),
            (When::Every(3), &[3, 6]),
            (When::Chance { probability: 0.0, seed: 7 }, &[]),
            (When::Chance { probability: 1.0, seed: 7 }, &[1, 2, 3, 4, 5, 6, 7, 8]),
        ] {
            assert_eq!(chosen(when), expected, "{when:?}");
        }
    }

    #[test]
    fn chance_is_fair_and_repeats_itself() {
        let when = |seed| When::Chance { probability: 0.3, seed };
        let hits = (1..=10_000).filter(|number| when(1).holds(*number)).count();
        assert!((2_800..=3_200).contains(&hits), "{hits}");
        assert_eq!(chosen(when(1)), chosen(when(1)));
        assert!((2..10).any(|seed| chosen(when(seed)) != chosen(when(1))));
    }
}
