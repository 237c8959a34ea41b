//! Whose eviction goes out next.
//!
//! Not each node a little: the node that came first has its pods asked before the next one's, so that nodes get free one
//! after another and not all at the end, and each of them has something to tell for a short time only. Four rules keep
//! nodes from waiting for each other nevertheless. A node has at most half of the places. A request whose answer takes
//! long gives its place up, though there are bounds for those too, of one node and of all. A node whose answers take
//! long comes after all that are not known to be slow; among the slow, who has the least under way. And what was refused
//! before, which may go on for ever, comes after all that was not, and nodes take turns at it.

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
    /// What waits and was refused before.
    retries: VecDeque<T>,
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

    fn is_awaited(&self) -> bool {
        !self.waiting.is_empty() || !self.retries.is_empty()
    }

    fn is_empty(&self) -> bool {
        !self.is_awaited() && self.sent.is_empty()
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

    /// Puts something of `node` in line, which may have been refused before.
    pub(crate) fn join(&mut self, node: &str, item: T, is_retry: bool) {
        let index = self.lines.iter().position(|line| line.node == node).unwrap_or_else(|| {
            let (waiting, retries, sent) = (VecDeque::new(), VecDeque::new(), Vec::new());
            self.lines.push(Line { node: node.to_owned(), waiting, retries, sent, was_slow: false });
            self.lines.len() - 1
        });
        let line = &mut self.lines[index];
        if is_retry { &mut line.retries } else { &mut line.waiting }.push_back(item);
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
        let may_send = |line: &Line<T>| line.is_awaited() && has_place(line);
        let slowness = |line: &Line<T>| if line.is_slow(now) { 1 + line.sent.len() } else { 0 };
        let lines = self.lines.iter().enumerate().filter(|(_, line)| may_send(line));
        // Of equals the first is found.
        let (mut index, _) = lines.min_by_key(|(_, line)| (line.waiting.is_empty(), slowness(line)))?;
        if self.lines[index].waiting.is_empty() {
            self.lines[index..].rotate_left(1);
            index = self.lines.len() - 1;
        }
        let line = &mut self.lines[index];
        let item = line.waiting.pop_front().or_else(|| line.retries.pop_front())?;
        line.sent.push(now);
        Some((line.node.clone(), item))
    }

    /// Whether anything waits.
    pub(crate) fn is_awaited(&self) -> bool {
        self.lines.iter().any(Line::is_awaited)
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
        let mut taken = Vec::new();
        for queue in [&mut line.waiting, &mut line.retries] {
            if queue.iter().any(&unwanted) {
                let (unwanted, kept): (Vec<T>, Vec<T>) = queue.drain(..).partition(&unwanted);
                taken.extend(unwanted);
                queue.extend(kept);
            }
        }
        self.lines.retain(|line| !line.is_empty());
        taken
    }

    /// Takes all that waits out of line, but for nodes that `stay`.
    pub(crate) fn retain(&mut self, stay: impl Fn(&str) -> bool) {
        for line in self.lines.iter_mut().filter(|line| !stay(&line.node)) {
            line.waiting.clear();
            line.retries.clear();
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
            (0..*count).for_each(|item| turns.join(node, item, false));
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
    fn what_was_refused_before_keeps_nobody_waiting_and_nodes_take_turns_at_it() {
        let now = Instant::now();
        let mut turns = turns(2, &[]);
        for node in ["a", "b", "c"] {
            (0..3).for_each(|item| turns.join(node, item, true));
        }
        let one = |turns: &mut Turns<u32>| {
            let (node, _) = turns.next(now).unwrap();
            turns.done(&node, now, now);
            node
        };
        assert_eq!([(); 4].map(|()| one(&mut turns)), ["a", "b", "c", "a"]);
        turns.join("d", 0, false);
        turns.join("b", 3, false);
        assert_eq!([(); 4].map(|()| one(&mut turns)), ["b", "d", "b", "c"]);
        assert_eq!(turns.take_back("a", |_| true), [2]);
        assert_eq!([(); 2].map(|()| one(&mut turns)), ["b", "c"]);
        assert!(!turns.is_awaited());
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
