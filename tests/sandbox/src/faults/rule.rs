//! A rule: which requests, which of them, and what happens to those.

use std::time::Duration;

use crate::faults::failure::Failure;
use crate::request_log::target::Target;

/// What happens to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// It waits for this long first, and then goes on.
    Delay(Duration),
    /// It is carried out at once, and its answer waits for this long.
    DelayAnswer(Duration),
    /// It is answered with a failure.
    Fail(Failure, Moment),
    /// Its connection is closed without an answer.
    Disconnect(Moment),
    /// A watch that ends in good order after so many events, as if its time were over. Bookmarks count.
    EndWatch {
        /// How many events are let through.
        after: usize,
    },
}

/// Whether a request has done its work when it fails. The client cannot tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// It fails before anything happened.
    BeforeEffect,
    /// It is carried out, and then its answer is lost.
    AfterEffect,
}

/// Which of the requests that match.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum When {
    /// All.
    Always,
    /// So many from the beginning.
    First(u64),
    /// Only this one, counted from one.
    Nth(u64),
    /// This one, and again after as many more.
    Every(u64),
    /// Each with this probability; the same seed makes the same choices.
    Chance {
        /// Between zero and one.
        probability: f64,
        /// Any number.
        seed: u64,
    },
}

impl When {
    /// Whether the match of this number, counted from one, is one of them.
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

/// A number from zero up to one that looks like chance and depends on nothing but its arguments (`splitmix64`).
fn draw(seed: u64, number: u64) -> f64 {
    let mut bits = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    let high = u32::try_from(bits >> 32).unwrap_or(u32::MAX);
    f64::from(high) / (f64::from(u32::MAX) + 1.0)
}

/// What happens to which requests.
#[derive(Debug, Clone)]
pub struct Rule {
    target: Target,
    action: Action,
    when: When,
    matches: u64,
    played: u64,
}

impl Rule {
    /// Something that happens to every request of a target.
    pub fn new(target: Target, action: Action) -> Self {
        Self { target, action, when: When::Always, matches: 0, played: 0 }
    }

    /// Something that happens to some of them.
    #[must_use]
    pub fn when(mut self, when: When) -> Self {
        self.when = when;
        self
    }

    /// How often it has happened.
    pub(crate) fn played(&self) -> u64 {
        self.played
    }

    /// What happens to this request by this rule; counts it.
    pub(crate) fn meet(&mut self, entry: &crate::request_log::Entry) -> Option<&Action> {
        // Only a watch can be ended.
        let concerns = entry.verb == "watch" || !matches!(self.action, Action::EndWatch { .. });
        if !concerns || !self.target.matches(entry) {
            return None;
        }
        self.matches += 1;
        if !self.when.holds(self.matches) {
            return None;
        }
        self.played += 1;
        Some(&self.action)
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
