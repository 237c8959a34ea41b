//! Which runs are selected: all, those of a name, or a sample.

use std::collections::BTreeSet;

/// Selects runs by a part of their names. A violation prints the whole name, which replays it.
pub(crate) const FILTER: &str = "NM_FAULTS";

/// All of it: every occurrence of each kind of request, and more pairs.
const LONG: &str = "NM_FAULTS_LONG";

/// The seed of what is sampled.
const SEED: &str = "NM_FAULTS_SEED";

pub(crate) fn filter() -> Option<String> {
    std::env::var(FILTER).ok()
}

pub(crate) fn is_long() -> bool {
    std::env::var_os(LONG).is_some()
}

/// A generator that depends only on the seed (`splitmix64`).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new() -> Self {
        Self(std::env::var(SEED).ok().and_then(|seed| seed.parse().ok()).unwrap_or(1))
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((bits ^ (bits >> 31)) >> 1).unwrap_or_default() % bound.max(1)
    }
}

impl Random {
    /// Less than so many seconds.
    pub(crate) fn seconds(&mut self, bound: usize) -> u64 {
        u64::try_from(self.below(bound)).unwrap_or_default()
    }
}

/// Those that the filter selects; in the short form a sample that has each of `facets` at least once.
pub(crate) fn selected<F: Ord, R>(all: Vec<(F, R)>, short: usize, name: impl Fn(&R) -> String) -> Vec<R> {
    if let Some(wanted) = filter() {
        return all.into_iter().map(|(_, run)| run).filter(|run| name(run).contains(&wanted)).collect();
    }
    if is_long() || all.len() <= short {
        return all.into_iter().map(|(_, run)| run).collect();
    }
    let (mut random, count) = (Random::new(), all.len());
    let mut left: Vec<Option<(F, R)>> = all.into_iter().map(Some).collect();
    // A random order.
    for at in 1..count {
        left.swap(at, random.below(at + 1));
    }
    let mut facets = BTreeSet::new();
    let (mut first, mut others) = (Vec::new(), Vec::new());
    for (facet, run) in left.into_iter().flatten() {
        if facets.insert(facet) { first.push(run) } else { others.push(run) }
    }
    others.truncate(short.saturating_sub(first.len()));
    first.extend(others);
    first
}
