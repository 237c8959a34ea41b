//! The measurements of one drain, from the observer and the API server's request log.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube_sandbox::request_log::Entry;

use crate::observer::{Observation, Observer};
use crate::scenario::PreparedCluster;

/// The result of a drain.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    /// The number of nodes.
    nodes: usize,
    /// The number of pods to evict.
    pub(crate) pods: usize,
    /// How many of them were left at the timeout.
    pub(crate) left: usize,
    /// The time until the last pod was gone; `None` if one is left.
    pub(crate) wall: Option<Duration>,
    /// The time until the program reported it: by its last status, or by its exit.
    pub(crate) reported: Option<Duration>,
    /// The processor time of the program, if it is a process of its own.
    pub(crate) processor: Option<Duration>,
    /// The times of the first and the last eviction.
    pub(crate) evicted_between: Option<(Duration, Duration)>,
    /// The delay from each pod's deletion to the status that reports it.
    pub(crate) lags: Vec<Duration>,
    requests: Vec<Entry>,
}

/// A running drain.
pub(crate) struct Stopwatch {
    /// Observes the deletions and statuses.
    pub(crate) observer: Observer,
    /// When the drain began.
    pub(crate) began: Instant,
    began_at: Timestamp,
}

impl Stopwatch {
    /// Starts now, with an empty request log.
    pub(crate) fn start(prepared: &PreparedCluster) -> Self {
        let observer = Observer::start(prepared);
        prepared.cluster.sandbox().unwrap().requests().clear();
        Self { observer, began: Instant::now(), began_at: Timestamp::now() }
    }

    /// The rest of `limit`.
    pub(crate) fn left_of(&self, limit: Duration) -> Duration {
        limit.saturating_sub(self.began.elapsed())
    }

    /// Stops, and counts all requests with this user agent.
    pub(crate) fn stop(&self, prepared: &PreparedCluster, agent: &str, observation: Observation) -> Run {
        let mut requests = prepared.cluster.sandbox().unwrap().requests().all();
        requests.retain(|entry| entry.user_agent.starts_with(agent));
        let evictions = requests.iter().filter(|entry| is_eviction(entry));
        let times = evictions.map(|entry| entry.at.duration_since(self.began_at).unsigned_abs());
        Run {
            evicted_between: times.clone().min().zip(times.max()),
            nodes: prepared.nodes.len(),
            pods: prepared.pods.len(),
            left: observation.left,
            wall: observation.all_gone.map(|at| at - self.began),
            reported: observation.all_reported.map(|at| at - self.began),
            processor: None,
            lags: observation.lags,
            requests,
        }
    }
}

impl Run {
    /// The ratio to the time of the floor, if both finished.
    pub(crate) fn ratio_to(&self, floor: Option<Duration>) -> Option<f64> {
        self.wall.zip(floor).map(|(wall, floor)| wall.as_secs_f64() / floor.as_secs_f64())
    }

    /// The number of requests.
    pub(crate) fn requests(&self) -> usize {
        self.requests.len()
    }

    /// Accepted evictions per pod.
    pub(crate) fn evictions_per_pod(&self) -> f64 {
        ratio(self.requests.iter().filter(|entry| is_eviction(entry) && entry.code == 201).count(), self.pods)
    }

    /// Requests answered with 429.
    pub(crate) fn refusals(&self) -> usize {
        self.requests.iter().filter(|entry| entry.code == 429).count()
    }

    /// Evictions answered with neither 201 nor 429, by code.
    pub(crate) fn other_codes(&self) -> BTreeMap<u16, usize> {
        let mut codes = BTreeMap::new();
        for entry in
            self.requests.iter().filter(|entry| is_eviction(entry) && ![201, 429].contains(&entry.code))
        {
            *codes.entry(entry.code).or_default() += 1;
        }
        codes
    }

    /// Requests other than evictions, per node.
    pub(crate) fn other_requests_per_node(&self) -> f64 {
        ratio(self.requests.iter().filter(|entry| !is_eviction(entry)).count(), self.nodes)
    }

    /// Requests other than evictions per node, by kind, the most frequent first.
    pub(crate) fn other_requests_by_kind(&self) -> Vec<(String, f64)> {
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
