//! All metrics: their names, and the functions that update them.
//!
//! Names follow the Prometheus conventions. Label values come from closed sets, never from the names of nodes or pods.
//! Maintenances and blocked pods are counted with each scrape from the objects that the leader watches; a standby replica
//! reports none.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use nm_shared::admission::certificate_renewal::Validity;
use nm_shared::api::condition::{self, ConditionReason, ConditionType};
use nm_shared::api::roll_state::SeenRoll;
use nm_shared::drain::eviction_outcome::EvictionOutcome;
use nm_shared::drain::transitions::StatusTransitions;
use nm_shared::gate::ownership;
use nm_shared::{NodeMaintenance, NodeMaintenanceStatus, Phase, Suspension};
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};
use tokio::runtime::Handle;

/// The media type of [`Metrics::expose`].
pub(crate) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Buckets from a second to a day, in seconds.
const LONG_BUCKETS: [f64; 13] =
    [1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 21600.0, 86400.0];

/// Buckets from a millisecond to a minute, in seconds.
const SHORT_BUCKETS: [f64; 11] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0];

/// The reason of blocked pods beyond those that a status lists.
const UNLISTED: &str = "Unlisted";

/// A metric with one label, whose name and value come from closed sets.
type ByLabel<M> = Family<[(&'static str, &'static str); 1], M>;

/// A metric that does not exist before it has a value.
type Optional<M> = Family<[(&'static str, &'static str); 0], M>;

/// The kind of a request to the API server, in the words of RBAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Verb {
    Get,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    Other,
}

impl Verb {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 7] =
        [Self::Get, Self::Watch, Self::Create, Self::Update, Self::Patch, Self::Delete, Self::Other];

    pub(crate) fn as_str(self) -> &'static str {
        self.into()
    }
}

pub(crate) struct Metrics {
    registry: Registry,
    maintenances: ByLabel<Gauge>,
    suspended_maintenances: ByLabel<Gauge>,
    degraded_maintenances: ByLabel<Gauge>,
    halted_rolls: Optional<Gauge>,
    oldest_maintenance: Optional<Gauge>,
    stalest_drain: Optional<Gauge>,
    blocked_pods: ByLabel<Gauge>,
    longest_blocked_pod: Optional<Gauge>,
    evictions: ByLabel<Counter>,
    evictions_queued: Gauge,
    eviction_queue_duration: Histogram,
    drain_duration: Histogram,
    pod_blocked_duration: Histogram,
    reconcile_duration: Histogram,
    reconcile_failures: Counter,
    api_requests: Family<[(&'static str, Cow<'static, str>); 2], Counter>,
    leader: Gauge,
    tasks: ByLabel<Gauge>,
    certificate_start: Optional<Gauge>,
    certificate_expiry: Optional<Gauge>,
    known: Mutex<KnownMaintenances>,
    /// The runtime of the leader, during its term.
    leader_runtime: Mutex<Option<Handle>>,
}

/// Counts a maintenance with this status.
pub(crate) type CountMaintenance<'a> = &'a mut dyn FnMut(&NodeMaintenance, Option<&NodeMaintenanceStatus>);

/// Has the maintenances that a leader knows counted. Returns whether it leads; false after its term.
type KnownMaintenances = Box<dyn Fn(CountMaintenance<'_>) -> bool + Send>;

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("nm");
        let to = &mut registry;
        let mut metrics = Self {
            maintenances: register(to, "maintenances", "Maintenances by phase"),
            suspended_maintenances: register(to, "suspended_maintenances", "Suspended maintenances by state"),
            degraded_maintenances: register(
                to,
                "degraded_maintenances",
                "Maintenances whose condition Degraded is True, by its reason",
            ),
            halted_rolls: register(to, "halted_rolls", "Rolls that have halted"),
            oldest_maintenance: register(
                to,
                "oldest_maintenance_timestamp_seconds",
                "When the node that has been in maintenance longest was cordoned, in seconds since 1970",
            ),
            stalest_drain: register(
                to,
                "stalest_drain_timestamp_seconds",
                "When the status of the drain that has not changed for longest last changed, in seconds since 1970",
            ),
            blocked_pods: register(to, "blocked_pods", "Blocked pods by reason"),
            longest_blocked_pod: register(
                to,
                "longest_blocked_pod_timestamp_seconds",
                "When the pod that has been blocked longest became blocked, in seconds since 1970",
            ),
            evictions: register(to, "evictions", "Answers to evictions and deletions of pods by outcome"),
            evictions_queued: register(
                to,
                "evictions_queued",
                "Evictions that wait to be sent, because the concurrency limit is reached",
            ),
            eviction_queue_duration: register_duration(
                to,
                "eviction_queue_duration",
                "How long evictions waited before they were sent",
                &SHORT_BUCKETS,
            ),
            drain_duration: register_duration(
                to,
                "drain_duration",
                "Time from the cordon to the end of the last pod, for drains that succeeded",
                &LONG_BUCKETS,
            ),
            pod_blocked_duration: register_duration(
                to,
                "pod_blocked_duration",
                "How long pods were blocked, measured when they are unblocked",
                &LONG_BUCKETS,
            ),
            reconcile_duration: register_duration(
                to,
                "reconcile_duration",
                "Duration of a reconcile, including its writes",
                &SHORT_BUCKETS,
            ),
            reconcile_failures: register(to, "reconcile_failures", "Reconciles that failed on a write"),
            api_requests: register(
                to,
                "api_requests",
                "Requests to the API server by verb and status code; the code of a request without an answer is none",
            ),
            leader: register(to, "leader", "Whether this replica leads: 1 if it does"),
            tasks: register(to, "tasks", "Asynchronous tasks of the program that have not ended, by runtime"),
            certificate_start: register(
                to,
                "webhook_certificate_start_timestamp_seconds",
                "Since when the webhook's certificate is valid, in seconds since 1970",
            ),
            certificate_expiry: register(
                to,
                "webhook_certificate_expiry_timestamp_seconds",
                "When the webhook's certificate expires, in seconds since 1970",
            ),
            known: Mutex::new(Box::new(|_| false)),
            leader_runtime: Mutex::default(),
            registry,
        };
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        metrics.registry.register("build", "The program's version", build);
        metrics
    }

    /// Counts the maintenances of this term from now on, for as long as there are any.
    pub(crate) fn observe(&self, known: impl Fn(CountMaintenance<'_>) -> bool + Send + 'static) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(known);
    }

    pub(crate) fn eviction_answered(&self, outcome: &EvictionOutcome) {
        self.evictions.get_or_create(&[("outcome", outcome.as_str())]).inc();
    }

    /// Counts an eviction as queued until the returned timer is dropped.
    pub(crate) fn eviction_queued(&self) -> QueueTimer {
        self.evictions_queued.inc();
        QueueTimer {
            since: Instant::now(),
            waiting: self.evictions_queued.clone(),
            duration: self.eviction_queue_duration.clone(),
        }
    }

    /// Measures what a change of a status at `now` shows.
    pub(crate) fn reached(&self, transitions: &StatusTransitions<'_>, now: Timestamp) {
        let positive = |duration: SignedDuration| duration.as_secs_f64().max(0.0);
        for pod in &transitions.unblocked {
            self.pod_blocked_duration.observe(positive(now.duration_since(pod.since.0)));
        }
        if let Some(duration) = transitions.drained_in {
            self.drain_duration.observe(positive(duration));
        }
    }

    pub(crate) fn reconciled(&self, took: Duration, failed: bool) {
        self.reconcile_duration.observe(took.as_secs_f64());
        self.reconcile_failures.inc_by(failed.into());
    }

    /// Counts a request to the API server, with the status code of its answer, if there was one.
    pub(crate) fn requested(&self, verb: Verb, code: Option<u16>) {
        let code = code.map_or("none".into(), |code| code.to_string().into());
        self.api_requests.get_or_create(&[("verb", verb.as_str().into()), ("code", code)]).inc();
    }

    /// Counts this replica as the leader while there is a runtime of its term.
    pub(crate) fn leads(&self, runtime: Option<Handle>) {
        self.leader.set(runtime.is_some().into());
        *self.leader_runtime.lock().unwrap_or_else(PoisonError::into_inner) = runtime;
    }

    /// Counts the tasks of the runtime that this is called on, and of the leader's.
    fn count_tasks(&self) {
        self.tasks.clear();
        let leader = self.leader_runtime.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (name, runtime) in [("main", Handle::try_current().ok()), ("leader", leader)] {
            let Some(tasks) = runtime.map(|runtime| runtime.metrics().num_alive_tasks()) else { continue };
            self.tasks.get_or_create(&[("runtime", name)]).set(i64::try_from(tasks).unwrap_or(i64::MAX));
        }
    }

    /// Sets the validity of the webhook's certificate.
    pub(crate) fn certificate_is_valid(&self, validity: &Validity) {
        self.certificate_start.get_or_create(&[]).set(validity.from.as_second());
        self.certificate_expiry.get_or_create(&[]).set(validity.until.as_second());
    }

    /// All of them in the text format of `OpenMetrics`.
    pub(crate) fn expose(&self) -> String {
        // Locked until the end, so that two concurrent scrapes do not see each other's partial counts.
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        self.maintenances.clear();
        self.suspended_maintenances.clear();
        self.degraded_maintenances.clear();
        self.blocked_pods.clear();
        let optional =
            [&self.halted_rolls, &self.oldest_maintenance, &self.stalest_drain, &self.longest_blocked_pod];
        optional.into_iter().for_each(Optional::clear);
        if known(&mut |maintenance, status| self.count(maintenance, status)) {
            self.show_zeros();
        }
        self.count_tasks();
        let mut lines = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut lines, &self.registry);
        lines
    }

    /// The labels that no maintenance has are shown too.
    fn show_zeros(&self) {
        for phase in [Phase::Pending, Phase::Running, Phase::Succeeded, Phase::Failed] {
            drop(self.maintenances.get_or_create(&[("phase", phase.as_str())]));
        }
        for suspension in [Suspension::Planned, Suspension::Paused] {
            drop(self.suspended_maintenances.get_or_create(&[("state", suspension.as_str())]));
        }
        drop(self.halted_rolls.get_or_create(&[]));
    }

    fn count(&self, maintenance: &NodeMaintenance, status: Option<&NodeMaintenanceStatus>) {
        if SeenRoll::of(maintenance).is_some_and(|roll| roll.halt().is_some()) {
            self.halted_rolls.get_or_create(&[]).inc();
        }
        // A maintenance that has not been reconciled is pending too.
        let phase = status.and_then(|status| status.phase).unwrap_or(Phase::Pending);
        self.maintenances.get_or_create(&[("phase", phase.as_str())]).inc();
        // A hook may keep a node whose maintenance is being deleted.
        if !ownership::is_released(maintenance) {
            keep_earliest(&self.oldest_maintenance, status.and_then(NodeMaintenanceStatus::begun_at));
        }
        let Some(status) = status.filter(|_| maintenance.metadata.deletion_timestamp.is_none()) else {
            return;
        };
        let suspension = Suspension::in_status(status);
        if let Some(suspension) = suspension {
            self.suspended_maintenances.get_or_create(&[("state", suspension.as_str())]).inc();
        }
        let degraded = condition::find(&status.conditions, ConditionType::Degraded);
        if let Some(reason) = degraded.filter(|it| it.status == "True").and_then(ConditionReason::of) {
            self.degraded_maintenances.get_or_create(&[("reason", reason.as_str())]).inc();
        }
        // Nothing changes during a pause.
        let is_draining = phase == Phase::Running && suspension.is_none();
        let changed = status.last_update.as_ref().filter(|_| is_draining);
        keep_earliest(&self.stalest_drain, changed.map(|at| at.0));
        for pod in &status.blocked_pods {
            self.blocked_pods.get_or_create(&[("reason", pod.reason.as_str())]).inc();
            keep_earliest(&self.longest_blocked_pod, Some(pod.since.0));
        }
        let listed = i64::try_from(status.blocked_pods.len()).unwrap_or(i64::MAX);
        let unlisted = i64::from(status.pod_counts.blocked) - listed;
        if unlisted > 0 {
            self.blocked_pods.get_or_create(&[("reason", UNLISTED)]).inc_by(unlisted);
        }
    }
}

fn keep_earliest(gauge: &Optional<Gauge>, at: Option<Timestamp>) {
    let Some(at) = at.map(Timestamp::as_second) else { return };
    let gauge = gauge.get_or_create(&[]);
    // It is 0 if it did not exist.
    if gauge.get() == 0 || at < gauge.get() {
        gauge.set(at);
    }
}

// The library ends each help text with a full stop.
fn register<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

fn register_duration(registry: &mut Registry, name: &str, help: &str, buckets: &[f64]) -> Histogram {
    let histogram = Histogram::new(buckets.iter().copied());
    registry.register_with_unit(name, help, Unit::Seconds, histogram.clone());
    histogram
}

/// Measures how long an eviction is queued.
pub(crate) struct QueueTimer {
    since: Instant,
    waiting: Gauge,
    duration: Histogram,
}

impl QueueTimer {
    /// The eviction is sent now.
    pub(crate) fn sent(self) {
        self.duration.observe(self.since.elapsed().as_secs_f64());
    }
}

impl Drop for QueueTimer {
    fn drop(&mut self) {
        self.waiting.dec();
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
