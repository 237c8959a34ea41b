//! The measurements of one drain, from the observer, and from the API server's request log or the program's metrics.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube_sandbox::request_log::{Entry, RequestLog};
use kube_sandbox::sandbox::Sandbox;
use nm_tests::fault_proxy::FaultProxy;

use crate::observer::{Observation, Observer};
use crate::scenario::PreparedCluster;

/// The result of a drain.
#[derive(Debug)]
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
    /// The most memory that the program had, in bytes, if it is a process of its own.
    pub(crate) peak_memory: Option<u64>,
    /// The delay from each pod's deletion to the status that reports it.
    pub(crate) lags: Vec<Duration>,
    /// The program's requests; `None` where nobody counts them.
    pub(crate) requests: Option<Requests>,
}

/// The requests of a program.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    pub(crate) total: usize,
    /// Evictions answered with 201.
    pub(crate) accepted: usize,
    /// Requests answered with 429.
    pub(crate) refused: usize,
    /// Requests other than evictions, by kind.
    others: BTreeMap<String, usize>,
    /// The times of the first and the last eviction; `None` where only their number is known.
    pub(crate) evicted_between: Option<(Duration, Duration)>,
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
    pub(crate) async fn start(prepared: &PreparedCluster) -> Self {
        let observer = Observer::start(prepared).await;
        if let Some(log) = request_log(prepared) {
            log.clear();
        }
        Self { observer, began: Instant::now(), began_at: Timestamp::now() }
    }

    /// The rest of `limit`.
    pub(crate) fn left_of(&self, limit: Duration) -> Duration {
        limit.saturating_sub(self.began.elapsed())
    }

    /// Stops. The sandbox or the proxy has counted all requests with this user agent.
    pub(crate) fn stop(&self, prepared: &PreparedCluster, agent: &str, observation: Observation) -> Run {
        let requests = request_log(prepared).map(|log| {
            let mut entries = log.all();
            entries.retain(|entry| entry.user_agent.starts_with(agent));
            Requests::logged(&entries, self.began_at)
        });
        Run {
            nodes: prepared.nodes.len(),
            pods: prepared.pods.len(),
            left: observation.left,
            wall: observation.all_gone.map(|at| at - self.began),
            reported: observation.all_reported.map(|at| at - self.began),
            processor: None,
            peak_memory: None,
            lags: observation.lags,
            requests,
        }
    }
}

/// The log of all requests of the programs: the proxy's, or else the sandbox's.
fn request_log(prepared: &PreparedCluster) -> Option<&RequestLog> {
    let proxy = prepared.route.proxy().map(FaultProxy::requests);
    proxy.or_else(|| prepared.cluster.sandbox().map(Sandbox::requests))
}

impl Requests {
    fn logged(entries: &[Entry], began: Timestamp) -> Self {
        let evictions = || entries.iter().filter(|entry| entry.subresource == "eviction");
        let times = evictions().map(|entry| entry.at.duration_since(began).unsigned_abs());
        let mut others = BTreeMap::new();
        for entry in entries.iter().filter(|entry| entry.subresource != "eviction") {
            let below = if entry.subresource.is_empty() { "" } else { "/" };
            let kind = format!("{} {}{below}{}", entry.verb, entry.resource, entry.subresource);
            *others.entry(kind).or_default() += 1;
        }
        Self {
            total: entries.len(),
            accepted: evictions().filter(|entry| entry.code == 201).count(),
            refused: entries.iter().filter(|entry| entry.code == 429).count(),
            others,
            evicted_between: times.clone().min().zip(times.max()),
        }
    }

    /// What nm-reconciler counted between two scrapes of its metrics.
    pub(crate) fn scraped(before: &str, after: &str) -> Self {
        let mut requests = Self::default();
        let before = samples(before);
        let mut evictions = 0;
        for (name, count) in samples(after) {
            let count = count - before.get(name).unwrap_or(&0);
            if let Some(labels) = name.strip_prefix("nm_api_requests_total{verb=\"") {
                let (verb, code) = labels.split_once("\",code=\"").unwrap();
                requests.total += count;
                requests.refused += if code.starts_with("429") { count } else { 0 };
                *requests.others.entry(verb.to_owned()).or_default() += count;
            } else if name.starts_with("nm_evictions_total{") {
                evictions += count;
                requests.accepted += if name.contains("\"Accepted\"") { count } else { 0 };
            }
        }
        // An eviction is created.
        if let Some(created) = requests.others.get_mut("create") {
            *created -= evictions;
        }
        requests
    }

    /// Requests other than evictions per node, by kind, the most frequent first.
    pub(crate) fn others_per_node(&self, nodes: usize) -> Vec<(&str, f64)> {
        let mut kinds: Vec<(&str, f64)> =
            self.others.iter().map(|(kind, count)| (kind.as_str(), ratio(*count, nodes))).collect();
        kinds.sort_by(|a, b| b.1.total_cmp(&a.1));
        kinds
    }

    /// Created objects other than evictions.
    pub(crate) fn created(&self) -> usize {
        self.others.get("create").copied().unwrap_or_default()
    }
}

/// The counters of an exposition, by name with labels.
fn samples(metrics: &str) -> BTreeMap<&str, usize> {
    metrics
        .lines()
        .filter_map(|line| line.rsplit_once(' '))
        .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
        .collect()
}

impl Run {
    /// The ratio to the time of the floor, if both finished.
    pub(crate) fn ratio_to(&self, floor: Option<Duration>) -> Option<f64> {
        self.wall.zip(floor).map(|(wall, floor)| wall.as_secs_f64() / floor.as_secs_f64())
    }

    /// A count per pod.
    pub(crate) fn per_pod(&self, count: usize) -> f64 {
        ratio(count, self.pods)
    }

    /// Requests other than evictions per node, by kind.
    pub(crate) fn others_per_node(&self) -> Vec<(&str, f64)> {
        self.requests.as_ref().map(|requests| requests.others_per_node(self.nodes)).unwrap_or_default()
    }
}

fn ratio(count: usize, of: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts of requests are far below 2^52")]
    let ratio = count as f64 / of as f64;
    ratio
}
