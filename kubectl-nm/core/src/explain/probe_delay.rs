//! How long a container may take until its readiness probe has succeeded, by the probes in its spec.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, Probe};

/// The default of `periodSeconds`, in seconds.
pub(super) const PERIOD: i32 = 10;

/// The defaults of `timeoutSeconds` and `successThreshold`, and of the `failureThreshold`.
const ONE: i32 = 1;
const FAILURES: i32 = 3;

/// How many times as long as its probes need a container may take before its readiness is in doubt: the kubelet delays probes, and
/// reports their results late.
const ALLOWANCE: i64 = 2;

/// The readiness probe of a container that runs, if it has not had the time to succeed. Without a readiness probe, a container is
/// ready once it has started.
pub(super) fn first_probe<'a>(pod: &'a Pod, status: &ContainerStatus, now: Timestamp) -> Option<&'a Probe> {
    let container = pod.spec.as_ref()?.containers.iter().find(|container| container.name == status.name)?;
    let probe = container.readiness_probe.as_ref()?;
    let started = status.state.as_ref()?.running.as_ref()?.started_at.as_ref()?.0;
    let runs_for = now.duration_since(started);
    (runs_for < SignedDuration::from_secs(needed(container, probe).saturating_mul(ALLOWANCE)))
        .then_some(probe)
}

/// Seconds after the start of a container until its readiness probe succeeds at the latest, if it does at first. It does not run
/// before the startup probe has succeeded.
fn needed(container: &Container, readiness: &Probe) -> i64 {
    let startup = container.startup_probe.as_ref().map_or(0, |startup| {
        let failures = i64::from(startup.failure_threshold.unwrap_or(FAILURES));
        sum([delay(startup), failures.saturating_mul(period(startup)), timeout(startup)])
    });
    let successes = i64::from(readiness.success_threshold.unwrap_or(ONE));
    let probes = successes.saturating_mul(period(readiness));
    sum([startup, delay(readiness), probes, timeout(readiness)])
}

/// The API server does not limit these numbers.
fn sum(seconds: impl IntoIterator<Item = i64>) -> i64 {
    seconds.into_iter().fold(0, i64::saturating_add)
}

fn delay(probe: &Probe) -> i64 {
    probe.initial_delay_seconds.unwrap_or(0).into()
}

fn period(probe: &Probe) -> i64 {
    probe.period_seconds.unwrap_or(PERIOD).into()
}

fn timeout(probe: &Probe) -> i64 {
    probe.timeout_seconds.unwrap_or(ONE).into()
}
