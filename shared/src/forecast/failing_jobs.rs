//! Which Jobs fail for good because a drain evicts their pods.
//!
//! A Job counts a pod that is deleted before it has ended as failed, unless its pod failure policy ignores disruptions; after
//! more failures than its back-off limit allows, it creates no further pod
//! (<https://kubernetes.io/docs/concepts/workloads/controllers/job/#handling-pod-and-container-failures>).

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::{Job, JobSpec};

use crate::api::pod_reference::PodReference;
use crate::cluster::pod;
use crate::forecast::{Forecast, PodForecast, PodOutcome};

/// The default of `spec.backoffLimit`.
const BACKOFF_LIMIT: i32 = 6;

/// The condition of a pod that was evicted.
const DISRUPTION: &str = "DisruptionTarget";

/// The Jobs that a forecast makes fail, of those that are known, by namespace and name.
pub fn failing(forecast: &Forecast, jobs: &[Job]) -> Vec<PodReference> {
    let mut evicted: BTreeMap<PodReference, i32> = BTreeMap::new();
    for expected in forecast.pods.iter().filter(|expected| is_evicted(expected)) {
        if let Some(job) = pod::job(&expected.pod) {
            let namespace = pod::names(&expected.pod).namespace.to_owned();
            *evicted.entry(PodReference { namespace, name: job.name.clone() }).or_default() += 1;
        }
    }
    let fails = |(name, evicted): (PodReference, i32)| {
        let job = jobs.iter().find(|job| pod::reference_in(&job.metadata) == name)?;
        let failed = job.status.as_ref().and_then(|status| status.failed).unwrap_or(0);
        exceeds_limit(job.spec.as_ref()?, failed.saturating_add(evicted)).then_some(name)
    };
    evicted.into_iter().filter_map(fails).collect()
}

fn is_evicted(expected: &PodForecast) -> bool {
    match expected.fate {
        PodOutcome::Evicted | PodOutcome::WaitsForBudget(_) | PodOutcome::Deleted(_) => true,
        PodOutcome::Stays(_)
        | PodOutcome::Terminating
        | PodOutcome::DeletedWithNamespace
        | PodOutcome::Migrated
        | PodOutcome::Completes(_)
        | PodOutcome::Surges(_)
        | PodOutcome::Blocked(_) => false,
    }
}

fn exceeds_limit(spec: &JobSpec, failures: i32) -> bool {
    let ignores = spec.pod_failure_policy.iter().flat_map(|policy| &policy.rules).any(|rule| {
        let mut conditions = rule.on_pod_conditions.iter().flatten();
        rule.action == "Ignore" && conditions.any(|condition| condition.type_ == DISRUPTION)
    });
    // How often an index has failed is not in the Job.
    let exceeds = match spec.backoff_limit_per_index {
        Some(limit) => limit == 0,
        None => failures > spec.backoff_limit.unwrap_or(BACKOFF_LIMIT),
    };
    exceeds && !ignores
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(spec: &Value) -> JobSpec {
        let mut whole = json!({"template": {}});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn a_job_fails_once_its_limit_is_exceeded_unless_it_ignores_disruptions() {
        let policy = |action: &str, condition: &str| {
            let conditions = json!([{"type": condition, "status": "True"}]);
            json!({"backoffLimit": 0, "podFailurePolicy": {"rules": [{"action": action, "onPodConditions": conditions}]}})
        };
        for (settings, failures, fails) in [
            (json!({"backoffLimit": 0}), 1, true),
            (json!({"backoffLimit": 1}), 1, false),
            (json!({"backoffLimit": 1}), 2, true),
            (json!({}), 6, false),
            (json!({}), 7, true),
            (json!({"backoffLimit": 0, "backoffLimitPerIndex": 1}), 1, false),
            (json!({"backoffLimitPerIndex": 0}), 1, true),
            (policy("Ignore", DISRUPTION), 1, false),
            (policy("Ignore", "ConfigIssue"), 1, true),
            (policy("Count", DISRUPTION), 1, true),
        ] {
            assert_eq!(exceeds_limit(&spec(&settings), failures), fails, "{settings} {failures}");
        }
    }
}
