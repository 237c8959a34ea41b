//! One contender's drain, as it is measured: by the witness, and by the API server's log of requests.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube_sandbox::request_log::Entry;

use crate::scenario::Ground;
use crate::witness::{Sight, Witness};

/// What a drain took.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    /// How many nodes.
    nodes: usize,
    /// How many pods had to go.
    pub(crate) pods: usize,
    /// How many of them were left when the time was over.
    pub(crate) left: usize,
    /// Until the last pod was gone; none if one is left.
    pub(crate) wall: Option<Duration>,
    /// Until the contender said so: by its last status, or by its exit.
    pub(crate) told: Option<Duration>,
    /// The processor time that the contender's process used, where it has one.
    pub(crate) processor: Option<Duration>,
    /// Between which two moments it asked for evictions.
    pub(crate) asked: Option<(Duration, Duration)>,
    /// From each pod's end to the status that shows it.
    pub(crate) lags: Vec<Duration>,
    requests: Vec<Entry>,
}

/// A drain under way.
pub(crate) struct Stopwatch {
    /// What looks on.
    pub(crate) witness: Witness,
    /// When it began.
    pub(crate) began: Instant,
    began_at: Timestamp,
}

impl Stopwatch {
    /// Begins now, with an empty log of requests.
    pub(crate) fn start(ground: &Ground) -> Self {
        let witness = Witness::start(ground);
        ground.cluster.sandbox().unwrap().requests().clear();
        Self { witness, began: Instant::now(), began_at: Timestamp::now() }
    }

    /// What is left of `limit`.
    pub(crate) fn left_of(&self, limit: Duration) -> Duration {
        limit.saturating_sub(self.began.elapsed())
    }

    /// Ends it: all requests of whoever calls itself `agent` are counted.
    pub(crate) fn stop(&self, ground: &Ground, agent: &str, sight: Sight) -> Run {
        let mut requests = ground.cluster.sandbox().unwrap().requests().all();
        requests.retain(|entry| entry.user_agent.starts_with(agent));
        let evictions = requests.iter().filter(|entry| is_eviction(entry));
        let asked = evictions.map(|entry| entry.at.duration_since(self.began_at).unsigned_abs());
        Run {
            asked: asked.clone().min().zip(asked.max()),
            nodes: ground.nodes.len(),
            pods: ground.pods.len(),
            left: sight.left,
            wall: sight.all_gone.map(|at| at - self.began),
            told: sight.all_told.map(|at| at - self.began),
            processor: None,
            lags: sight.lags,
            requests,
        }
    }
}

impl Run {
    /// How many times as long as the floor it took, where both came to an end.
    pub(crate) fn ratio_to(&self, floor: Option<Duration>) -> Option<f64> {
        self.wall.zip(floor).map(|(wall, floor)| wall.as_secs_f64() / floor.as_secs_f64())
    }

    /// How many requests there were.
    pub(crate) fn requests(&self) -> usize {
        self.requests.len()
    }

    /// How many evictions were accepted for each pod.
    pub(crate) fn evictions_a_pod(&self) -> f64 {
        ratio(self.requests.iter().filter(|entry| is_eviction(entry) && entry.code == 201).count(), self.pods)
    }

    /// How many requests were answered by 429.
    pub(crate) fn refusals(&self) -> usize {
        self.requests.iter().filter(|entry| entry.code == 429).count()
    }

    /// Answers to evictions that are neither 201 nor 429, by code.
    pub(crate) fn odd_answers(&self) -> BTreeMap<u16, usize> {
        let mut odd = BTreeMap::new();
        for entry in
            self.requests.iter().filter(|entry| is_eviction(entry) && ![201, 429].contains(&entry.code))
        {
            *odd.entry(entry.code).or_default() += 1;
        }
        odd
    }

    /// Requests beside evictions, a node.
    pub(crate) fn others_a_node(&self) -> f64 {
        ratio(self.requests.iter().filter(|entry| !is_eviction(entry)).count(), self.nodes)
    }

    /// The same by kind, the most frequent first.
    pub(crate) fn others_by_kind(&self) -> Vec<(String, f64)> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for entry in self.requests.iter().filter(|entry| !is_eviction(entry)) {
            let below = if entry.subresource.is_empty() { "" } else { "/" };
            let kind = format!("{} {}{below}{}", entry.verb, entry.resource, entry.subresource);
            *counts.entry(kind).or_default() += 1;
        }
        let mut kinds: Vec<(String, f64)> =
            counts.into_iter().map(|(kind, count)| (kind, ratio(count, self.nodes))).collect();
        kinds.sort_by(|a, b| b.1.total_cmp(&a.1));
        kinds
    }
}

fn is_eviction(entry: &Entry) -> bool {
    entry.subresource == "eviction"
}

fn ratio(count: usize, of: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts of requests are far below 2^52")]
    let ratio = count as f64 / of as f64;
    ratio
}
