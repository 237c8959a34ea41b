//! Whose eviction goes out next.
//!
//! Not each node a little: the node that came first has its pods asked before the next one's, so that nodes get free one
//! after another and not all at the end, and each of them has something to tell for a short time only. Two rules keep
//! nodes from waiting for each other nevertheless. A node has at most half of all that is under way, and one whose
//! answers take long comes after all that are not known to be slow; among the slow, who has the least under way.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

/// An answer that takes longer than this is slow: a webhook that thinks, an API server that is overloaded.
const SLOW: Duration = Duration::from_secs(1);

/// A node may have this share of all that is under way: a half.
const SHARE_OF_A_NODE: usize = 2;

/// What waits to be sent, and when what is under way was.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    limit: usize,
    a_node: usize,
    under_way: usize,
    /// In the order in which the nodes came.
    lines: Vec<Line<T>>,
}

/// What one node has waiting and under way.
#[derive(Debug)]
struct Line<T> {
    node: String,
    waiting: VecDeque<T>,
    sent: Vec<Instant>,
}

impl<T> Line<T> {
    fn is_slow(&self, now: Instant) -> bool {
        self.sent.iter().any(|sent| now.duration_since(*sent) > SLOW)
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.sent.is_empty()
    }
}

impl<T> Turns<T> {
    /// At most `limit` are under way at once.
    pub(crate) fn new(limit: NonZeroUsize) -> Self {
        let a_node = limit.get().div_ceil(SHARE_OF_A_NODE);
        Self { limit: limit.get(), a_node, under_way: 0, lines: Vec::new() }
    }

    /// Puts something of `node` in line.
    pub(crate) fn join(&mut self, node: &str, item: T) {
        let line = self.lines.iter_mut().find(|line| line.node == node);
        if let Some(line) = line {
            line.waiting.push_back(item);
        } else {
            let line = Line { node: node.to_owned(), waiting: VecDeque::from([item]), sent: Vec::new() };
            self.lines.push(line);
        }
    }

    /// What is to be sent now, if anything may be: it counts as under way until it is [`Self::done`].
    pub(crate) fn next(&mut self, now: Instant) -> Option<(String, T)> {
        if self.under_way >= self.limit {
            return None;
        }
        let a_node = self.a_node;
        let may_send = |line: &&mut Line<T>| !line.waiting.is_empty() && line.sent.len() < a_node;
        let rank = |line: &&mut Line<T>| if line.is_slow(now) { line.sent.len() } else { 0 };
        // Of equals the first is found.
        let line = self.lines.iter_mut().filter(may_send).min_by_key(rank)?;
        let item = line.waiting.pop_front()?;
        line.sent.push(now);
        self.under_way += 1;
        Some((line.node.clone(), item))
    }

    /// Notes that what went out for `node` at `sent` is answered, or given up.
    pub(crate) fn done(&mut self, node: &str, sent: Instant) {
        self.under_way -= 1;
        if let Some(line) = self.lines.iter_mut().find(|line| line.node == node)
            && let Some(index) = line.sent.iter().position(|at| *at == sent)
        {
            line.sent.swap_remove(index);
        }
        self.lines.retain(|line| !line.is_empty());
    }

    /// Takes out of line what is not `wanted` any more.
    pub(crate) fn retain(&mut self, wanted: impl Fn(&str, &T) -> bool) {
        for line in &mut self.lines {
            line.waiting.retain(|item| wanted(&line.node, item));
        }
        self.lines.retain(|line| !line.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What goes out at `now` until nothing may any more, by node.
    fn sent(turns: &mut Turns<u32>, now: Instant) -> Vec<String> {
        std::iter::from_fn(|| turns.next(now)).map(|(node, _)| node).collect()
    }

    fn turns(limit: usize, waiting: &[(&str, u32)]) -> Turns<u32> {
        let mut turns = Turns::new(NonZeroUsize::new(limit).unwrap());
        for (node, count) in waiting {
            (0..*count).for_each(|item| turns.join(node, item));
        }
        turns
    }

    #[test]
    fn the_node_that_came_first_is_served_first_with_half_of_all() {
        let now = Instant::now();
        let mut turns = turns(4, &[("a", 4), ("b", 4), ("c", 4)]);
        assert_eq!(sent(&mut turns, now), ["a", "a", "b", "b"]);
        turns.done("b", now);
        assert_eq!(sent(&mut turns, now), ["b"], "a has its half");
        turns.done("a", now);
        assert_eq!(sent(&mut turns, now), ["a"]);
    }

    #[test]
    fn one_alone_leaves_room_and_a_limit_of_one_serves_all() {
        let now = Instant::now();
        assert_eq!(sent(&mut turns(5, &[("a", 9)]), now), ["a"; 3]);
        let mut turns = turns(1, &[("a", 1), ("b", 1)]);
        for node in ["a", "b"] {
            assert_eq!(sent(&mut turns, now), [node]);
            turns.done(node, now);
        }
        assert_eq!(sent(&mut turns, now), [""; 0]);
        assert!(turns.lines.is_empty());
    }

    #[test]
    fn a_node_whose_answers_take_long_comes_after_the_others() {
        let began = Instant::now();
        let later = began + 2 * SLOW;
        let mut turns = turns(4, &[("slow", 9), ("sluggish", 9), ("quick", 2)]);
        assert_eq!(sent(&mut turns, began), ["slow", "slow", "sluggish", "sluggish"]);
        turns.done("slow", began);
        turns.done("sluggish", began);
        assert_eq!(sent(&mut turns, later), ["quick", "quick"]);
        turns.done("quick", later);
        turns.done("quick", later);
        turns.done("slow", began);
        assert_eq!(
            sent(&mut turns, later),
            ["slow", "slow", "sluggish"],
            "slow is not known to be slow any more"
        );
    }

    #[test]
    fn of_slow_nodes_each_has_its_turn() {
        let began = Instant::now();
        let later = began + 2 * SLOW;
        let mut turns = turns(4, &[("a", 9), ("b", 9), ("c", 9)]);
        assert_eq!(sent(&mut turns, began), ["a", "a", "b", "b"]);
        turns.done("a", began);
        assert_eq!(sent(&mut turns, later), ["c"]);
        let latest = later + 2 * SLOW;
        turns.done("b", began);
        turns.join("c", 0);
        assert_eq!(sent(&mut turns, latest), ["a"], "each has one under way, and a came first");
        turns.done("a", began);
        turns.done("a", later);
    }

    #[test]
    fn what_is_taken_back_is_never_sent_and_what_is_under_way_still_counts() {
        let now = Instant::now();
        let mut turns = turns(2, &[("a", 3), ("b", 3)]);
        assert_eq!(sent(&mut turns, now), ["a", "b"]);
        turns.retain(|node, item| node == "b" && *item != 1);
        turns.done("a", now);
        assert_eq!(sent(&mut turns, now), [""; 0], "b has its half");
        turns.done("b", now);
        assert_eq!(turns.next(now), Some(("b".to_owned(), 2)));
    }
}
