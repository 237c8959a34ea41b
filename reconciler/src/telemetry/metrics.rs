//! The metrics, all of them: their names, and how each is moved where something happens.
//!
//! Names follow the conventions of Prometheus. Labels have few values, all known in advance: no name of a node or pod is
//! among them. How many maintenances and blocked pods there are is counted when someone asks, from the objects that the
//! leader watches; a replica that stands by knows of none and tells of none.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use nm_shared::drain::eviction_outcome::EvictionOutcome;
use nm_shared::drain::transitions::StatusTransitions;
use nm_shared::{Grouped, Phase};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::cache::maintenances::Maintenances;

/// The media type of [`Metrics::expose`].
pub(crate) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// For what takes from a second to a day, in seconds.
const LONG: [f64; 13] =
    [1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 21600.0, 86400.0];

/// For what takes from a millisecond to a minute, in seconds.
const SHORT: [f64; 11] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0];

/// Blocked pods beyond those that a status lists.
const UNLISTED: &str = "Unlisted";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabel {
    phase: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    verb: &'static str,
    code: String,
}

/// For a metric that is not there before it has a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Unlabelled {}

/// All metrics of this process.
pub(crate) struct Metrics {
    registry: Registry,
    maintenances: Family<PhaseLabel, Gauge>,
    blocked_pods: Family<ReasonLabel, Gauge>,
    evictions: Family<OutcomeLabel, Counter>,
    evictions_queued: Gauge,
    eviction_queue_duration: Histogram,
    drain_duration: Histogram,
    pod_blocked_duration: Histogram,
    reconcile_duration: Histogram,
    reconcile_failures: Counter,
    api_requests: Family<RequestLabels, Counter>,
    leader: Gauge,
    certificate_expiry: Family<Unlabelled, Gauge>,
    watched: Mutex<Weak<Maintenances>>,
}

impl Metrics {
    /// All of them, at nothing.
    pub(crate) fn new() -> Self {
        let histogram = |buckets: &[f64]| Histogram::new(buckets.iter().copied());
        let mut metrics = Self {
            registry: Registry::with_prefix("nm"),
            maintenances: Family::default(),
            blocked_pods: Family::default(),
            evictions: Family::default(),
            evictions_queued: Gauge::default(),
            eviction_queue_duration: histogram(&SHORT),
            drain_duration: histogram(&LONG),
            pod_blocked_duration: histogram(&LONG),
            reconcile_duration: histogram(&SHORT),
            reconcile_failures: Counter::default(),
            api_requests: Family::default(),
            leader: Gauge::default(),
            certificate_expiry: Family::default(),
            watched: Mutex::default(),
        };
        metrics.register();
        metrics
    }

    // The library ends each help text with a full stop.
    fn register(&mut self) {
        let it = &mut self.registry;
        it.register("maintenances", "Maintenances by phase", self.maintenances.clone());
        it.register(
            "blocked_pods",
            "Pods that something refuses to let go, by reason",
            self.blocked_pods.clone(),
        );
        it.register("evictions", "Answers to evictions, by what they mean", self.evictions.clone());
        it.register(
            "evictions_queued",
            "Evictions that wait for others to be answered before they are sent",
            self.evictions_queued.clone(),
        );
        it.register_with_unit(
            "eviction_queue_duration",
            "How long evictions waited before they were sent",
            Unit::Seconds,
            self.eviction_queue_duration.clone(),
        );
        it.register_with_unit(
            "drain_duration",
            "From the cordon to the end of the last pod, of drains that succeeded",
            Unit::Seconds,
            self.drain_duration.clone(),
        );
        it.register_with_unit(
            "pod_blocked_duration",
            "How long pods were blocked that are blocked no more",
            Unit::Seconds,
            self.pod_blocked_duration.clone(),
        );
        it.register_with_unit(
            "reconcile_duration",
            "How long one look at a maintenance took, its writes included",
            Unit::Seconds,
            self.reconcile_duration.clone(),
        );
        it.register(
            "reconcile_failures",
            "Looks at a maintenance that ended with a failed write",
            self.reconcile_failures.clone(),
        );
        it.register(
            "api_requests",
            "Requests to the API server by verb and status code; the code is none where no answer came",
            self.api_requests.clone(),
        );
        it.register("leader", "Whether this replica does the work: 1 if it does", self.leader.clone());
        it.register(
            "webhook_certificate_expiry_timestamp_seconds",
            "When the certificate that the webhook serves with expires, in seconds since 1970",
            self.certificate_expiry.clone(),
        );
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        it.register("build", "The program's version", build);
    }

    /// Counts these maintenances from now on, for as long as somebody keeps it.
    pub(crate) fn watch(&self, maintenances: &Arc<Maintenances>) {
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(maintenances);
    }

    /// Notes the answer to an eviction.
    pub(crate) fn eviction_answered(&self, outcome: &EvictionOutcome) {
        self.evictions.get_or_create(&OutcomeLabel { outcome: outcome.as_str() }).inc();
    }

    /// Notes that an eviction waits, until what is returned is dropped.
    pub(crate) fn eviction_queued(&self) -> Queued {
        self.evictions_queued.inc();
        Queued {
            since: Instant::now(),
            waiting: self.evictions_queued.clone(),
            duration: self.eviction_queue_duration.clone(),
        }
    }

    /// Notes what a change of a status at `now` tells.
    pub(crate) fn reached(&self, milestones: &StatusTransitions<'_>, now: Timestamp) {
        let positive = |duration: SignedDuration| duration.as_secs_f64().max(0.0);
        for pod in &milestones.unblocked {
            self.pod_blocked_duration.observe(positive(now.duration_since(pod.since.0)));
        }
        if let Some(duration) = milestones.drained_in {
            self.drain_duration.observe(positive(duration));
        }
    }

    /// Notes one look at a maintenance.
    pub(crate) fn reconciled(&self, took: Duration, failed: bool) {
        self.reconcile_duration.observe(took.as_secs_f64());
        self.reconcile_failures.inc_by(failed.into());
    }

    /// Notes a request to the API server, and the status code of its answer, if there was one.
    pub(crate) fn requested(&self, verb: &'static str, code: Option<u16>) {
        let code = code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        self.api_requests.get_or_create(&RequestLabels { verb, code }).inc();
    }

    /// Says whether this replica does the work.
    pub(crate) fn leads(&self, leads: bool) {
        self.leader.set(leads.into());
    }

    /// Says when the webhook's certificate expires.
    pub(crate) fn certificate_expires(&self, at: Timestamp) {
        self.certificate_expiry.get_or_create(&Unlabelled {}).set(at.as_second());
    }

    /// All of them in the text format of `OpenMetrics`.
    pub(crate) fn expose(&self) -> String {
        // Kept, so that of two who ask at once neither sees the other's half.
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        self.maintenances.clear();
        self.blocked_pods.clear();
        if let Some(maintenances) = watched.upgrade() {
            self.count(&maintenances.all());
        }
        let mut lines = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut lines, &self.registry);
        lines
    }

    fn count(&self, maintenances: &[Arc<Grouped>]) {
        for phase in [Phase::Pending, Phase::Running, Phase::Succeeded, Phase::Failed] {
            self.maintenances.get_or_create(&PhaseLabel { phase: phase.as_str() }).set(0);
        }
        for maintenance in maintenances {
            let status = maintenance.status.as_ref();
            // One that nobody has looked at yet waits too.
            let phase = status.and_then(|status| status.phase).unwrap_or(Phase::Pending);
            self.maintenances.get_or_create(&PhaseLabel { phase: phase.as_str() }).inc();
            let Some(status) = status.filter(|_| maintenance.metadata.deletion_timestamp.is_none()) else {
                continue;
            };
            for pod in &status.blocked_pods {
                self.blocked_pods.get_or_create(&ReasonLabel { reason: pod.reason.as_str() }).inc();
            }
            let listed = i64::try_from(status.blocked_pods.len()).unwrap_or(i64::MAX);
            let unlisted = i64::from(status.pod_counts.blocked) - listed;
            if unlisted > 0 {
                self.blocked_pods.get_or_create(&ReasonLabel { reason: UNLISTED }).inc_by(unlisted);
            }
        }
    }
}

/// An eviction that waits.
pub(crate) struct Queued {
    since: Instant,
    waiting: Gauge,
    duration: Histogram,
}

impl Queued {
    /// Notes that it is sent now.
    pub(crate) fn sent(self) {
        self.duration.observe(self.since.elapsed().as_secs_f64());
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.waiting.dec();
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
