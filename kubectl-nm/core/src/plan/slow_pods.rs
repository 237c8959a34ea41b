//! Pods that may take long to terminate, by their grace periods: the drain waits for them.

use std::time::Duration;

use nm_shared::cluster::pod;
use nm_shared::forecast::{Forecast, PodForecast, PodOutcome};
use nm_shared::{DrainSpec, PodReference};
use serde_json::{Value, json};

use crate::args::duration;
use crate::terminal::text::{Line, Style, counted, first_names};

/// A longer grace period is reported.
const LONG: i64 = 300;

/// Pods with the same grace period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowPods {
    pods: Vec<PodReference>,
    /// The time in seconds that they may take to terminate.
    seconds: i64,
    /// The `timeoutSeconds` of the drain, if it is no longer than that.
    timeout: Option<i64>,
}

impl SlowPods {
    /// The pods that may take longer than five minutes, or than the timeout of the drain, the slowest first.
    pub(crate) fn of(forecast: &Forecast, drain_of: impl Fn(&str) -> DrainSpec) -> Vec<Self> {
        let mut slow: Vec<Self> = Vec::new();
        for expected in forecast.pods.iter().filter(|expected| is_waited_for(expected)) {
            let drain = drain_of(&expected.node);
            let of_pod = i64::from(expected.pod.grace_seconds);
            let seconds = Some(drain.grace_period_seconds).filter(|seconds| *seconds >= 0).unwrap_or(of_pod);
            let skipped = Some(drain.skip_wait_for_delete_timeout_seconds).filter(|after| *after > 0);
            let seconds = skipped.map_or(seconds, |after| seconds.min(after));
            let timeout = Some(drain.timeout_seconds).filter(|limit| (1..=seconds).contains(limit));
            if timeout.is_none() && seconds <= LONG {
                continue;
            }
            let pod = pod::reference(&expected.pod);
            match slow.iter_mut().find(|known| (known.seconds, known.timeout) == (seconds, timeout)) {
                Some(known) => known.pods.push(pod),
                None => slow.push(Self { pods: vec![pod], seconds, timeout }),
            }
        }
        slow.sort_by_key(|slow| (slow.timeout.is_none(), std::cmp::Reverse(slow.seconds)));
        slow
    }

    /// `shop/slow may take 10m to terminate, and the drain times out after 4m`.
    pub fn line(&self) -> Line {
        let names: Vec<String> = self.pods.iter().map(ToString::to_string).collect();
        let (who, end) = match names.as_slice() {
            [only] => (only.clone(), String::new()),
            names => (counted(names.len(), "pod"), format!(": {}", first_names(names))),
        };
        let line = Line::new(format!("{who} "))
            .with(Style::Busy, format!("may take {} to terminate", shown(self.seconds)));
        let line = match self.timeout {
            Some(limit) => {
                line.and(", and ").with(Style::Bad, format!("the drain times out after {}", shown(limit)))
            }
            None => line,
        };
        line.and(end)
    }

    pub(crate) fn document(&self) -> Value {
        json!({"pods": self.pods, "seconds": self.seconds, "timeoutSeconds": self.timeout})
    }
}

/// Whether the drain ends a pod, and waits for that. One that has finished is gone at once.
fn is_waited_for(expected: &PodForecast) -> bool {
    !pod::is_finished(&expected.pod)
        && match expected.fate {
            PodOutcome::Evicted
            | PodOutcome::Surges(_)
            | PodOutcome::WaitsForBudget(_)
            | PodOutcome::Deleted(_) => true,
            // Those that are blocked, or end on their own, take longer for other reasons.
            PodOutcome::Stays(_)
            | PodOutcome::Terminating
            | PodOutcome::DeletedWithNamespace
            | PodOutcome::Migrated
            | PodOutcome::Completes(_)
            | PodOutcome::Blocked(_) => false,
        }
}

fn shown(seconds: i64) -> String {
    duration::show(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Pod;

    use super::*;
    use crate::plan::report::tests::{pod, report, snapshot};

    fn graceful(name: &str, seconds: i64) -> Arc<Pod> {
        let mut pod = (*pod(name, &json!({"name": "v"}))).clone();
        pod.spec.as_mut().unwrap().termination_grace_period_seconds = Some(seconds);
        pod.into()
    }

    fn lines(drain: Value, pods: Vec<Arc<Pod>>) -> Vec<String> {
        let drain: DrainSpec = serde_json::from_value(drain).unwrap();
        let report = report(&["n1"], Some(&drain), snapshot(&["n1", "n2"], pods), &[]);
        report.slow.iter().map(|slow| slow.line().to_string()).collect()
    }

    #[test]
    fn pods_with_long_grace_periods_are_named_and_all_that_may_outlast_the_drain() {
        let pods =
            || vec![graceful("slow", 600), graceful("usual", 30), graceful("db", 600), graceful("five", 300)];
        let long = "2 pods may take 10m to terminate";
        let names = "shop/db, shop/slow";
        assert_eq!(lines(json!({}), pods()), [format!("{long}: {names}")]);
        assert_eq!(
            lines(json!({"timeoutSeconds": 240}), pods()),
            [
                format!("{long}, and the drain times out after 4m: {names}"),
                String::from("shop/five may take 5m to terminate, and the drain times out after 4m"),
            ]
        );
        assert_eq!(lines(json!({"timeoutSeconds": 900}), pods()), [format!("{long}: {names}")]);
        assert_eq!(lines(json!({"gracePeriodSeconds": 5}), pods()), [""; 0]);
        let mut finished = (*graceful("done", 600)).clone();
        finished.status = serde_json::from_value(json!({"phase": "Succeeded"})).unwrap();
        assert_eq!(lines(json!({}), vec![finished.into()]), [""; 0], "it is gone at once");
        assert_eq!(lines(json!({"skipWaitForDeleteTimeoutSeconds": 60}), pods()), [""; 0]);
        let one = vec![graceful("slow", 600)];
        assert_eq!(lines(json!({}), one), ["shop/slow may take 10m to terminate"]);
    }
}
