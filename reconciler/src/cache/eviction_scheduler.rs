//! Decides which eviction is sent next.
//!
//! Nodes are served in the order in which they came, not in equal shares, so that nodes are drained one after another and
//! not all at the end. Four rules keep nodes from blocking each other:
//!
//! - A node uses at most half of the concurrency limit.
//! - A request that takes much longer than the others, as behind a slow webhook, no longer counts towards the limit. Slow
//!   requests have limits of their own, per node and in total. Where all answers take long, as from an overloaded API
//!   server, none of them is slow, and the limit applies.
//! - Nodes with slow answers come after all others; among them the node with the fewest requests in progress is first.
//! - Retries, which may never end, come after all first attempts and are sent for each node in turn.
//!
//! The default limit comes from a real API server: `docs/performance.md` has the figures.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::time::Duration;

use tokio::time::Instant;

/// An answer within this time is never slow.
pub(crate) const MIN_SLOW_ANSWER: Duration = Duration::from_secs(1);

/// Every answer after this time is slow.
const MAX_SLOW_ANSWER: Duration = Duration::from_secs(5);

/// In between, an answer is slow if it takes this many times as long as a usual one.
const SLOW_ANSWER_FACTOR: u32 = 4;

/// The weight of one answer in the usual time. Quick answers count more: a few of them show that the API
/// server is not what makes the others slow.
const QUICKER_ANSWER_WEIGHT: u32 = 4;
const SLOWER_ANSWER_WEIGHT: u32 = 64;

/// All requests in progress, slow ones included, are at most the limit times this.
const SLOW_FACTOR: usize = 8;

/// All requests in progress for one node, slow ones included, are at most the node's share times this.
const SLOW_FACTOR_PER_NODE: usize = 2;

/// One node's share of the limit is the limit divided by this.
const NODE_SHARE_DIVISOR: usize = 2;

/// The requests that wait, and when each request in progress was sent.
#[derive(Debug)]
pub(crate) struct EvictionScheduler<T> {
    limit: usize,
    node_limit: usize,
    /// In the order in which the nodes came.
    queues: Vec<NodeQueue<T>>,
    /// How long an answer takes when nothing but the API server delays it.
    usual_answer: Duration,
}

#[derive(Debug)]
struct NodeQueue<T> {
    node: String,
    waiting: VecDeque<T>,
    /// Requests that wait and were refused before.
    retries: VecDeque<T>,
    /// When each request in progress was sent.
    sent: Vec<Instant>,
    was_last_answer_slow: bool,
}

impl<T> NodeQueue<T> {
    fn new(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            waiting: VecDeque::new(),
            retries: VecDeque::new(),
            sent: Vec::new(),
            was_last_answer_slow: false,
        }
    }

    /// `slow_since` is when the requests were sent that have just become slow.
    fn is_slow(&self, slow_since: Option<Instant>) -> bool {
        self.was_last_answer_slow || self.quick(slow_since) < self.sent.len()
    }

    /// How many requests in progress are not slow.
    fn quick(&self, slow_since: Option<Instant>) -> usize {
        self.sent.iter().filter(|sent| Some(**sent) > slow_since).count()
    }

    fn has_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.retries.is_empty()
    }

    fn is_empty(&self) -> bool {
        !self.has_waiting() && self.sent.is_empty()
    }
}

impl<T> EvictionScheduler<T> {
    /// At most `limit` requests are in progress at once, slow ones not counted.
    pub(crate) fn new(limit: NonZeroUsize) -> Self {
        let node_limit = limit.get().div_ceil(NODE_SHARE_DIVISOR);
        Self { limit: limit.get(), node_limit, queues: Vec::new(), usual_answer: Duration::ZERO }
    }

    /// The time after which an answer is slow.
    fn slow_answer(&self) -> Duration {
        (SLOW_ANSWER_FACTOR * self.usual_answer).clamp(MIN_SLOW_ANSWER, MAX_SLOW_ANSWER)
    }

    /// Adds a request of `node`. A retry was refused before.
    pub(crate) fn enqueue(&mut self, node: &str, item: T, is_retry: bool) {
        let index = self.queues.iter().position(|queue| queue.node == node).unwrap_or_else(|| {
            self.queues.push(NodeQueue::new(node));
            self.queues.len() - 1
        });
        let queue = &mut self.queues[index];
        if is_retry { &mut queue.retries } else { &mut queue.waiting }.push_back(item);
    }

    /// The request to send now, if any may be sent. It is in progress until [`Self::finish`].
    pub(crate) fn next(&mut self, now: Instant) -> Option<(String, T)> {
        let slow_since = now.checked_sub(self.slow_answer());
        let quick: usize = self.queues.iter().map(|queue| queue.quick(slow_since)).sum();
        let sent: usize = self.queues.iter().map(|queue| queue.sent.len()).sum();
        if quick >= self.limit || sent >= SLOW_FACTOR * self.limit {
            return None;
        }
        let node_limit = self.node_limit;
        let may_send = |queue: &NodeQueue<T>| {
            queue.has_waiting()
                && queue.quick(slow_since) < node_limit
                && queue.sent.len() < SLOW_FACTOR_PER_NODE * node_limit
        };
        let slowness =
            |queue: &NodeQueue<T>| if queue.is_slow(slow_since) { 1 + queue.sent.len() } else { 0 };
        let queues = self.queues.iter().enumerate().filter(|(_, queue)| may_send(queue));
        // Of equals the first is found.
        let (mut index, _) = queues.min_by_key(|(_, queue)| (queue.waiting.is_empty(), slowness(queue)))?;
        if self.queues[index].waiting.is_empty() {
            self.queues[index..].rotate_left(1);
            index = self.queues.len() - 1;
        }
        let queue = &mut self.queues[index];
        let item = queue.waiting.pop_front().or_else(|| queue.retries.pop_front())?;
        queue.sent.push(now);
        Some((queue.node.clone(), item))
    }

    pub(crate) fn has_waiting(&self) -> bool {
        self.queues.iter().any(NodeQueue::has_waiting)
    }

    pub(crate) fn has_in_progress(&self) -> bool {
        self.queues.iter().any(|queue| !queue.sent.is_empty())
    }

    /// Records that the request that was sent for `node` at `sent` is answered or aborted `now`.
    pub(crate) fn finish(&mut self, node: &str, sent: Instant, now: Instant) {
        let slow_answer = self.slow_answer();
        if let Some(queue) = self.queues.iter_mut().find(|queue| queue.node == node)
            && let Some(index) = queue.sent.iter().position(|at| *at == sent)
        {
            let took = now.duration_since(sent);
            queue.sent.swap_remove(index);
            queue.was_last_answer_slow = took >= slow_answer;
            let difference = took.abs_diff(self.usual_answer);
            if took < self.usual_answer {
                self.usual_answer = self.usual_answer.saturating_sub(difference / QUICKER_ANSWER_WEIGHT);
            } else {
                self.usual_answer += difference / SLOWER_ANSWER_WEIGHT;
            }
        }
        self.queues.retain(|queue| !queue.is_empty());
    }

    /// Removes and returns the waiting requests of a node that are `unwanted`.
    pub(crate) fn withdraw(&mut self, node: &str, unwanted: impl Fn(&T) -> bool) -> Vec<T> {
        let Some(queue) = self.queues.iter_mut().find(|queue| queue.node == node) else { return Vec::new() };
        let mut withdrawn = Vec::new();
        for items in [&mut queue.waiting, &mut queue.retries] {
            if items.iter().any(&unwanted) {
                let (unwanted, kept): (Vec<T>, Vec<T>) = items.drain(..).partition(&unwanted);
                withdrawn.extend(unwanted);
                items.extend(kept);
            }
        }
        self.queues.retain(|queue| !queue.is_empty());
        withdrawn
    }

    /// Removes the waiting requests of all nodes except those that `stays` accepts.
    pub(crate) fn retain_nodes(&mut self, stays: impl Fn(&str) -> bool) {
        for queue in self.queues.iter_mut().filter(|queue| !stays(&queue.node)) {
            queue.waiting.clear();
            queue.retries.clear();
        }
        self.queues.retain(|queue| !queue.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nodes of all requests that may be sent `now`, in order.
    fn sent(scheduler: &mut EvictionScheduler<u32>, now: Instant) -> Vec<String> {
        std::iter::from_fn(|| scheduler.next(now)).map(|(node, _)| node).collect()
    }

    fn scheduler(limit: usize, waiting: &[(&str, u32)]) -> EvictionScheduler<u32> {
        let mut scheduler = EvictionScheduler::new(NonZeroUsize::new(limit).unwrap());
        for (node, count) in waiting {
            (0..*count).for_each(|item| scheduler.enqueue(node, item, false));
        }
        scheduler
    }

    #[test]
    fn the_node_that_came_first_is_served_first_with_half_of_the_limit() {
        let now = Instant::now();
        let mut scheduler = scheduler(4, &[("a", 4), ("b", 4), ("c", 4)]);
        assert_eq!(sent(&mut scheduler, now), ["a", "a", "b", "b"]);
        scheduler.finish("b", now, now);
        assert_eq!(sent(&mut scheduler, now), ["b"], "a has its half");
        scheduler.finish("a", now, now);
        assert_eq!(sent(&mut scheduler, now), ["a"]);
    }

    #[test]
    fn retries_come_last_and_are_sent_for_each_node_in_turn() {
        let now = Instant::now();
        let mut scheduler = scheduler(2, &[]);
        for node in ["a", "b", "c"] {
            (0..3).for_each(|item| scheduler.enqueue(node, item, true));
        }
        let one = |scheduler: &mut EvictionScheduler<u32>| {
            let (node, _) = scheduler.next(now).unwrap();
            scheduler.finish(&node, now, now);
            node
        };
        assert_eq!([(); 4].map(|()| one(&mut scheduler)), ["a", "b", "c", "a"]);
        scheduler.enqueue("d", 0, false);
        scheduler.enqueue("b", 3, false);
        assert_eq!([(); 4].map(|()| one(&mut scheduler)), ["b", "d", "b", "c"]);
        assert_eq!(scheduler.withdraw("a", |_| true), [2]);
        assert_eq!([(); 2].map(|()| one(&mut scheduler)), ["b", "c"]);
        assert!(!scheduler.has_waiting());
    }

    #[test]
    fn a_single_node_uses_half_of_the_limit_and_a_limit_of_one_serves_all_nodes() {
        let now = Instant::now();
        assert_eq!(sent(&mut scheduler(5, &[("a", 9)]), now), ["a"; 3]);
        let mut scheduler = scheduler(1, &[("a", 1), ("b", 1)]);
        for node in ["a", "b"] {
            assert_eq!(sent(&mut scheduler, now), [node]);
            scheduler.finish(node, now, now);
        }
        assert_eq!(sent(&mut scheduler, now), [""; 0]);
        assert!(scheduler.queues.is_empty());
    }

    #[test]
    fn slow_requests_do_not_count_towards_the_limit_of_the_others() {
        let began = Instant::now();
        let mut scheduler = scheduler(4, &[("hung", 9), ("stuck", 9), ("quick", 2)]);
        assert_eq!(sent(&mut scheduler, began), ["hung", "hung", "stuck", "stuck"]);
        assert_eq!(sent(&mut scheduler, began + MIN_SLOW_ANSWER / 2), [""; 0]);
        let late = began + MIN_SLOW_ANSWER;
        assert_eq!(sent(&mut scheduler, late), ["quick", "quick", "hung", "stuck"], "nothing was answered");
        assert_eq!(sent(&mut scheduler, late + MIN_SLOW_ANSWER), ["hung", "stuck"]);
        assert_eq!(sent(&mut scheduler, late + 2 * MIN_SLOW_ANSWER), [""; 0], "twice a node's share");
    }

    #[test]
    fn unanswered_requests_are_limited() {
        let began = Instant::now();
        let nodes: Vec<String> = (0..20).map(|index| format!("n{index}")).collect();
        let waiting: Vec<(&str, u32)> = nodes.iter().map(|node| (node.as_str(), 9)).collect();
        let mut scheduler = scheduler(4, &waiting);
        let all =
            (0..20).map(|round| sent(&mut scheduler, began + round * MIN_SLOW_ANSWER).len()).sum::<usize>();
        assert_eq!(all, SLOW_FACTOR * 4);
    }

    #[test]
    fn a_slow_node_comes_after_the_others_until_an_answer_is_quick() {
        let began = Instant::now();
        let late = began + MIN_SLOW_ANSWER;
        let mut scheduler = scheduler(2, &[("slow", 9), ("other", 9)]);
        assert_eq!(sent(&mut scheduler, began), ["slow", "other"]);
        scheduler.finish("other", began, began);
        assert_eq!(sent(&mut scheduler, began), ["other"]);
        scheduler.finish("slow", began, late);
        scheduler.finish("other", began, began);
        assert_eq!(sent(&mut scheduler, late), ["other", "slow"]);
        scheduler.finish("slow", late, late);
        scheduler.finish("other", late, late);
        assert_eq!(sent(&mut scheduler, late), ["slow", "other"]);
    }

    #[test]
    fn an_overloaded_api_server_receives_no_more_than_the_limit() {
        let tick = MIN_SLOW_ANSWER / 10;
        let mut scheduler = scheduler(8, &[("a", 900), ("b", 900), ("c", 900), ("d", 900)]);
        let mut in_progress: VecDeque<(String, Instant)> = VecDeque::new();
        let mut now = Instant::now();
        for latency in [9 * tick, 20 * tick] {
            for _ in 0..1000 {
                now += tick;
                while in_progress.front().is_some_and(|(_, sent)| *sent + latency <= now) {
                    let (node, sent) = in_progress.pop_front().unwrap();
                    scheduler.finish(&node, sent, now);
                }
                in_progress.extend(sent(&mut scheduler, now).into_iter().map(|node| (node, now)));
                assert_eq!(in_progress.len(), 8, "each answer takes {latency:?}");
            }
        }
    }

    #[test]
    fn withdrawn_requests_are_never_sent_and_those_in_progress_still_count() {
        let now = Instant::now();
        let mut scheduler = scheduler(2, &[("a", 3), ("b", 3)]);
        assert_eq!(sent(&mut scheduler, now), ["a", "b"]);
        scheduler.retain_nodes(|node| node != "a");
        assert_eq!(scheduler.withdraw("b", |item| *item == 1), [1]);
        assert_eq!(scheduler.withdraw("c", |_| true), [0; 0]);
        scheduler.finish("a", now, now);
        assert_eq!(sent(&mut scheduler, now), [""; 0], "b has its half");
        scheduler.finish("b", now, now);
        assert_eq!(scheduler.next(now), Some(("b".to_owned(), 2)));
        assert!(!scheduler.has_waiting());
    }
}
