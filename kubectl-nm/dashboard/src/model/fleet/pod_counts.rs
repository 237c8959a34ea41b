//! How many pods run on the nodes that are on the screen, as far as they were counted.
//!
//! One count is under way at most, of the rows that are on the screen when it begins, so that scrolling fast through
//! thousands of nodes costs few requests.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use crate::objects::watch_state::PodCountError;

/// For how long a count is shown before the pods are counted again.
const FRESH: SignedDuration = SignedDuration::from_secs(30);

/// How long to wait after a failure.
const RETRY: SignedDuration = SignedDuration::from_secs(10);

#[derive(Debug, Clone, Default)]
pub(crate) struct CountedPods {
    counted: HashMap<String, (usize, Timestamp)>,
    is_counting: bool,
    /// Why the last count ended early, and when.
    failed: Option<(PodCountError, Timestamp)>,
}

impl CountedPods {
    pub(crate) fn of(&self, node: &str) -> Option<usize> {
        self.counted.get(node).map(|(count, _)| *count)
    }

    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(self.failed, Some((PodCountError::Forbidden, _)))
    }

    /// The nodes to count now: those of the screen without a count, or with an old one.
    pub(crate) fn begin<'a>(
        &mut self,
        on_screen: impl Iterator<Item = &'a str>,
        now: Timestamp,
    ) -> Option<Vec<String>> {
        let may_count = match &self.failed {
            None => true,
            Some((PodCountError::Forbidden, _)) => false,
            Some((PodCountError::Failed, at)) => now.duration_since(*at) >= RETRY,
        };
        if self.is_counting || !may_count {
            return None;
        }
        let is_due =
            |node: &&str| self.counted.get(*node).is_none_or(|(_, at)| now.duration_since(*at) >= FRESH);
        let due: Vec<String> = on_screen.filter(is_due).map(str::to_owned).collect();
        self.is_counting = !due.is_empty();
        (!due.is_empty()).then_some(due)
    }

    pub(crate) fn end(&mut self, counts: Vec<(String, usize)>, error: Option<PodCountError>, now: Timestamp) {
        self.is_counting = false;
        self.failed = error.map(|error| (error, now));
        self.counted.extend(counts.into_iter().map(|(node, count)| (node, (count, now))));
    }

    /// Counts everything again, also what was not permitted before.
    pub(crate) fn renew(&mut self) {
        *self = Self { is_counting: self.is_counting, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn begun(counts: &mut CountedPods, nodes: &[&str], second: i64) -> String {
        counts.begin(nodes.iter().copied(), at(second)).unwrap_or_default().join(" ")
    }

    #[test]
    fn nodes_on_the_screen_are_counted_one_screen_at_a_time() {
        let mut counts = CountedPods::default();
        assert_eq!(begun(&mut counts, &[], 0), "");
        assert_eq!(begun(&mut counts, &["a", "b"], 0), "a b");
        assert_eq!(begun(&mut counts, &["c"], 0), "", "one count at a time");
        counts.end(vec![("a".into(), 3), ("b".into(), 0)], None, at(1));
        assert_eq!((counts.of("a"), counts.of("b"), counts.of("c")), (Some(3), Some(0), None));
        assert_eq!(begun(&mut counts, &["b", "c"], 2), "c");
        counts.end(vec![("c".into(), 1)], None, at(20));
        assert_eq!(begun(&mut counts, &["a", "c"], 30), "");
        assert_eq!(begun(&mut counts, &["a", "c"], 31), "a", "its count is old");
    }

    #[test]
    fn a_failure_is_retried_later_and_a_missing_permission_on_request() {
        let mut counts = CountedPods::default();
        assert_eq!(begun(&mut counts, &["a"], 0), "a");
        counts.end(vec![], Some(PodCountError::Failed), at(0));
        assert_eq!(begun(&mut counts, &["a"], 9), "");
        assert_eq!(begun(&mut counts, &["a"], 10), "a");
        counts.end(vec![], Some(PodCountError::Forbidden), at(10));
        assert!(counts.is_forbidden());
        assert_eq!(begun(&mut counts, &["a"], 1000), "");
        counts.renew();
        assert_eq!(begun(&mut counts, &["a"], 1000), "a");
    }
}
