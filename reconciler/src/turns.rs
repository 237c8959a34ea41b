//! Whose eviction goes out next.
//!
//! Not each node a little: the node that came first has its pods asked before the next one's, so that nodes get free one
//! after another and not all at the end, and each of them has something to tell for a short time only. Three rules keep
//! nodes from waiting for each other nevertheless. A node has at most half of the places. A request whose answer takes
//! long gives its place up, though there are bounds for those too, of one node and of all. And a node whose answers take
//! long comes after all that are not known to be slow; among the slow, who has the least under way.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

/// An answer that takes longer than this is slow: a webhook that thinks, an API server that is overloaded.
pub(crate) const SLOW: Duration = Duration::from_secs(1);

/// With those whose answers take long, so many times the limit may be under way,
const WITH_THE_SLOW: usize = 8;

/// and this many times its share for one node.
const WITH_THE_SLOW_OF_A_NODE: usize = 2;

/// A node may have this share of all that is under way: a half.
const SHARE_OF_A_NODE: usize = 2;

/// What waits to be sent, and when what is under way was.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    limit: usize,
    a_node: usize,
    /// In the order in which the nodes came.
    lines: Vec<Line<T>>,
}

/// What one node has waiting and under way.
#[derive(Debug)]
struct Line<T> {
    node: String,
    waiting: VecDeque<T>,
    sent: Vec<Instant>,
    /// Whether the last answer took long.
    was_slow: bool,
}

impl<T> Line<T> {
    fn is_slow(&self, now: Instant) -> bool {
        self.was_slow || self.sent.iter().any(|sent| is_slow(*sent, now))
    }

    /// How many of its requests are not known to be slow.
    fn quick(&self, now: Instant) -> usize {
        self.sent.iter().filter(|sent| !is_slow(**sent, now)).count()
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.sent.is_empty()
    }
}

fn is_slow(sent: Instant, now: Instant) -> bool {
    now.duration_since(sent) >= SLOW
}

impl<T> Turns<T> {
    /// At most `limit` are under way at once, but for those whose answers take long.
    pub(crate) fn new(limit: NonZeroUsize) -> Self {
        let a_node = limit.get().div_ceil(SHARE_OF_A_NODE);
        Self { limit: limit.get(), a_node, lines: Vec::new() }
    }

    /// Puts something of `node` in line.
    pub(crate) fn join(&mut self, node: &str, item: T) {
        let line = self.lines.iter_mut().find(|line| line.node == node);
        if let Some(line) = line {
            line.waiting.push_back(item);
        } else {
            let waiting = VecDeque::from([item]);
            self.lines.push(Line { node: node.to_owned(), waiting, sent: Vec::new(), was_slow: false });
        }
    }

    /// What is to be sent now, if anything may be: it counts as under way until it is [`Self::done`].
    pub(crate) fn next(&mut self, now: Instant) -> Option<(String, T)> {
        let quick: usize = self.lines.iter().map(|line| line.quick(now)).sum();
        let sent: usize = self.lines.iter().map(|line| line.sent.len()).sum();
        if quick >= self.limit || sent >= WITH_THE_SLOW * self.limit {
            return None;
        }
        let a_node = self.a_node;
        let has_place =
            |line: &Line<T>| line.quick(now) < a_node && line.sent.len() < WITH_THE_SLOW_OF_A_NODE * a_node;
        let may_send = |line: &&mut Line<T>| !line.waiting.is_empty() && has_place(line);
        let rank = |line: &&mut Line<T>| if line.is_slow(now) { 1 + line.sent.len() } else { 0 };
        // Of equals the first is found.
        let line = self.lines.iter_mut().filter(may_send).min_by_key(rank)?;
        let item = line.waiting.pop_front()?;
        line.sent.push(now);
        Some((line.node.clone(), item))
    }

    /// Whether anything waits.
    pub(crate) fn is_awaited(&self) -> bool {
        self.lines.iter().any(|line| !line.waiting.is_empty())
    }

    /// Whether anything is under way.
    pub(crate) fn is_under_way(&self) -> bool {
        self.lines.iter().any(|line| !line.sent.is_empty())
    }

    /// Notes that what went out for `node` at `sent` is answered `now`, or given up.
    pub(crate) fn done(&mut self, node: &str, sent: Instant, now: Instant) {
        if let Some(line) = self.lines.iter_mut().find(|line| line.node == node)
            && let Some(index) = line.sent.iter().position(|at| *at == sent)
        {
            line.sent.swap_remove(index);
            line.was_slow = is_slow(sent, now);
        }
        self.lines.retain(|line| !line.is_empty());
    }

    /// Takes what is `unwanted` of what waits for a node out of its line.
    pub(crate) fn take_back(&mut self, node: &str, unwanted: impl Fn(&T) -> bool) -> Vec<T> {
        let Some(line) = self.lines.iter_mut().find(|line| line.node == node) else { return Vec::new() };
        if !line.waiting.iter().any(&unwanted) {
            return Vec::new();
        }
        let (taken, kept): (VecDeque<T>, VecDeque<T>) = line.waiting.drain(..).partition(unwanted);
        line.waiting = kept;
        self.lines.retain(|line| !line.is_empty());
        taken.into()
    }

    /// Takes all that waits out of line, but for nodes that `stay`.
    pub(crate) fn retain(&mut self, stay: impl Fn(&str) -> bool) {
        for line in self.lines.iter_mut().filter(|line| !stay(&line.node)) {
            line.waiting.clear();
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
        turns.done("b", now, now);
        assert_eq!(sent(&mut turns, now), ["b"], "a has its half");
        turns.done("a", now, now);
        assert_eq!(sent(&mut turns, now), ["a"]);
    }

    #[test]
    fn one_alone_leaves_room_and_a_limit_of_one_serves_all() {
        let now = Instant::now();
        assert_eq!(sent(&mut turns(5, &[("a", 9)]), now), ["a"; 3]);
        let mut turns = turns(1, &[("a", 1), ("b", 1)]);
        for node in ["a", "b"] {
            assert_eq!(sent(&mut turns, now), [node]);
            turns.done(node, now, now);
        }
        assert_eq!(sent(&mut turns, now), [""; 0]);
        assert!(turns.lines.is_empty());
    }

    #[test]
    fn who_waits_long_for_an_answer_gives_the_place_up_within_bounds() {
        let began = Instant::now();
        let mut turns = turns(4, &[("hung", 9), ("stuck", 9), ("quick", 2)]);
        assert_eq!(sent(&mut turns, began), ["hung", "hung", "stuck", "stuck"]);
        assert_eq!(sent(&mut turns, began + SLOW / 2), [""; 0]);
        let late = began + SLOW;
        assert_eq!(sent(&mut turns, late), ["quick", "quick", "hung", "stuck"], "nothing was answered");
        assert_eq!(sent(&mut turns, late + SLOW), ["hung", "stuck"]);
        assert_eq!(sent(&mut turns, late + 2 * SLOW), [""; 0], "twice a node's share");
    }

    #[test]
    fn there_are_bounds_to_what_is_not_answered() {
        let began = Instant::now();
        let nodes: Vec<String> = (0..20).map(|index| format!("n{index}")).collect();
        let waiting: Vec<(&str, u32)> = nodes.iter().map(|node| (node.as_str(), 9)).collect();
        let mut turns = turns(4, &waiting);
        let all = (0..20).map(|round| sent(&mut turns, began + round * SLOW).len()).sum::<usize>();
        assert_eq!(all, WITH_THE_SLOW * 4);
    }

    #[test]
    fn a_node_whose_answers_take_long_comes_after_the_others_until_one_comes_soon() {
        let began = Instant::now();
        let late = began + SLOW;
        let mut turns = turns(2, &[("slow", 9), ("other", 9)]);
        assert_eq!(sent(&mut turns, began), ["slow", "other"]);
        turns.done("other", began, began);
        assert_eq!(sent(&mut turns, began), ["other"]);
        turns.done("slow", began, late);
        turns.done("other", began, began);
        assert_eq!(sent(&mut turns, late), ["other", "slow"]);
        turns.done("slow", late, late);
        turns.done("other", late, late);
        assert_eq!(sent(&mut turns, late), ["slow", "other"]);
    }

    #[test]
    fn what_is_taken_back_is_never_sent_and_what_is_under_way_still_counts() {
        let now = Instant::now();
        let mut turns = turns(2, &[("a", 3), ("b", 3)]);
        assert_eq!(sent(&mut turns, now), ["a", "b"]);
        turns.retain(|node| node != "a");
        assert_eq!(turns.take_back("b", |item| *item == 1), [1]);
        assert_eq!(turns.take_back("c", |_| true), [0; 0]);
        turns.done("a", now, now);
        assert_eq!(sent(&mut turns, now), [""; 0], "b has its half");
        turns.done("b", now, now);
        assert_eq!(turns.next(now), Some(("b".to_owned(), 2)));
        assert!(!turns.is_awaited());
    }
}
