//! Which Jobs fail for good because a drain evicts their pods.
//!
//! A Job counts a pod that is deleted before it has ended as failed, unless its pod failure policy ignores disruptions; after
//! more failures than its back-off limit allows, it creates no further pod
//! (<https://kubernetes.io/docs/concepts/workloads/controllers/job/#handling-pod-and-container-failures>).

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::{Job, JobSpec};

use crate::api::pod_reference::PodReference;
use crate::api::status::BlockReason;
use crate::cluster::pod::{self, DrainPod};
use crate::forecast::{Forecast, PodForecast, PodOutcome};

/// The default of `spec.backoffLimit`.
const BACKOFF_LIMIT: i32 = 6;

/// The condition of a pod that was evicted.
const DISRUPTION: &str = "DisruptionTarget";

/// The Jobs that a forecast makes fail for good, of those that are known, by namespace and name: those that fail at once, and
/// by the seconds after the cordon those that fail unless some of their pods end before the drain evicts them.
pub fn failing(forecast: &Forecast, jobs: &[Job]) -> BTreeMap<Option<i64>, Vec<PodReference>> {
    // When the pods of each are evicted: 0 is at once.
    let mut evicted: BTreeMap<PodReference, Vec<i64>> = BTreeMap::new();
    for expected in &forecast.pods {
        if let (Some(job), Some(after)) = (pod::job(&expected.pod), evicted_after(expected)) {
            let namespace = pod::names(&expected.pod).namespace.to_owned();
            let of_job = PodReference { namespace, name: job.name.clone() };
            evicted.entry(of_job).or_default().push(after);
        }
    }
    let mut failing: BTreeMap<Option<i64>, Vec<PodReference>> = BTreeMap::new();
    for (name, mut evicted) in evicted {
        let job = jobs.iter().find(|job| pod::reference_in(&job.metadata) == name);
        let Some(spec) = job.and_then(|job| job.spec.as_ref()) else { continue };
        let failed = job.and_then(|job| job.status.as_ref()?.failed).unwrap_or(0);
        evicted.sort_unstable();
        // The first eviction that is one too many.
        let mut counted = (failed.saturating_add(1)..).zip(evicted);
        if let Some((_, after)) = counted.find(|(failures, _)| exceeds_limit(spec, *failures)) {
            failing.entry(Some(after).filter(|after| *after > 0)).or_default().push(name);
        }
    }
    failing
}

/// Whether one of these Jobs controls the pod.
pub fn control(jobs: &[PodReference], pod: &DrainPod) -> bool {
    let Some(owner) = pod::job(pod) else { return false };
    jobs.iter().any(|job| job.namespace == pod::names(pod).namespace && job.name == owner.name)
}

/// The seconds after the cordon when a pod is evicted at the earliest, or 0; none if it is not.
fn evicted_after(expected: &PodForecast) -> Option<i64> {
    match &expected.fate {
        PodOutcome::Evicted | PodOutcome::WaitsForBudget(_) | PodOutcome::Deleted(_) => Some(0),
        // Its eviction is not what is blocked.
        PodOutcome::Blocked(blocker) if blocker.reason == BlockReason::NodeNotReady && expected.leaves => {
            Some(0)
        }
        PodOutcome::Completes(limit) => *limit,
        PodOutcome::Stays(_)
        | PodOutcome::Terminating
        | PodOutcome::DeletedWithNamespace
        | PodOutcome::Migrated
        | PodOutcome::Surges(_)
        | PodOutcome::Blocked(_) => None,
    }
}

/// How many failures of its pods a Job allows.
pub fn backoff_limit(spec: &JobSpec) -> i32 {
    spec.backoff_limit.unwrap_or(BACKOFF_LIMIT)
}

fn exceeds_limit(spec: &JobSpec, failures: i32) -> bool {
    let ignores = spec.pod_failure_policy.iter().flat_map(|policy| &policy.rules).any(|rule| {
        let mut conditions = rule.on_pod_conditions.iter().flatten();
        rule.action == "Ignore" && conditions.any(|condition| condition.type_ == DISRUPTION)
    });
    // How often an index has failed is not in the Job.
    let exceeds = match spec.backoff_limit_per_index {
        Some(limit) => limit == 0,
        None => failures > backoff_limit(spec),
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
