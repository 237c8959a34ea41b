//! `spec.drain.waitForCompletion`: pods that may terminate on their own, because an eviction would waste their work.
//!
//! Without a selector, these are the pods of Jobs, by their controller. Whoever owns a Job (a `CronJob`, a `JobSet`, a
//! workflow) does not declare whether the work continues where it stopped, and reading Jobs would need a permission that
//! nothing else uses. A selector excludes Jobs that need not finish.

use jiff::Timestamp;

use crate::api::maintenance::{CompletionSpec, DrainSpec};
use crate::api::names::ROLL_RUNNER_LABEL;
use crate::cluster::pod;
use crate::drain::plan::{DrainPlan, InvalidSelector, PlannedPod, Verdict, validate};

/// Whether `waitForCompletion` is valid.
///
/// # Errors
/// If its selector is not. Then no pod may be evicted, because it could be the wrong one.
pub fn validate_completion(spec: &DrainSpec) -> Result<(), InvalidSelector> {
    let selector = spec.wait_for_completion.as_ref().and_then(|completion| completion.pod_selector.as_ref());
    validate("waitForCompletion.podSelector", selector)
}

impl DrainPlan {
    /// Waits until the pods that `waitForCompletion` selects terminate on their own, or until the time `ends`, if there is one.
    ///
    /// # Errors
    /// If its selector is not valid, even if the time is up.
    pub fn await_completion(
        &mut self,
        spec: &DrainSpec,
        ends: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(), InvalidSelector> {
        validate_completion(spec)?;
        let Some(completion) =
            spec.wait_for_completion.as_ref().filter(|_| ends.is_none_or(|ends| ends > now))
        else {
            return Ok(());
        };
        self.completion_ends = ends;
        for planned in self.pods.iter_mut().filter(|planned| may_complete(completion, planned)) {
            planned.verdict = Verdict::AwaitCompletion;
        }
        Ok(())
    }
}

/// Whether a pod that would leave, or block the drain, may end by itself first.
fn may_complete(completion: &CompletionSpec, planned: &PlannedPod) -> bool {
    let pod = &planned.pod;
    let is_selected = || match &completion.pod_selector {
        None => pod::job(pod).is_some(),
        Some(selector) => selector.matches(&pod.labels),
    };
    // It ends only when the nodes of its roll are done, of which this node may be one.
    let runs_roll = pod.labels.contains_key(ROLL_RUNNER_LABEL);
    matches!(planned.verdict, Verdict::Evict | Verdict::Block(_))
        && !runs_roll
        && !pod::is_finished(pod)
        && pod::deadline(pod).is_none()
        && is_selected()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::api::status::BlockReason;
    use crate::cluster::pod::DrainPod;
    use crate::drain::plan::{DaemonSets, StayReason};

    fn now() -> Timestamp {
        "2026-01-01T01:00:00Z".parse().unwrap()
    }

    fn in_seconds(seconds: i64) -> Timestamp {
        now() + jiff::SignedDuration::from_secs(seconds)
    }

    fn owned_by(api_version: &str, kind: &str) -> Value {
        json!([{"apiVersion": api_version, "kind": kind, "name": "o", "uid": "o", "controller": true}])
    }

    fn pod(metadata: &Value, phase: &str) -> Arc<DrainPod> {
        let mut pod = json!({"metadata": {"namespace": "ns", "name": "p", "uid": "u", "labels": {"app": "a"}},
            "spec": {"volumes": [{"name": "v", "emptyDir": {}}]}, "status": {"phase": phase}});
        for (name, value) in metadata.as_object().unwrap() {
            pod["metadata"][name] = value.clone();
        }
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn plan(
        pod: Arc<DrainPod>,
        drain: Value,
        ends: Option<Timestamp>,
    ) -> Result<(DrainPlan, DrainSpec), InvalidSelector> {
        let spec: DrainSpec = serde_json::from_value(drain).unwrap();
        let daemon_sets = DaemonSets { incomplete: true, ..DaemonSets::default() };
        let mut plan = DrainPlan::new([pod], &spec, &daemon_sets, now())?;
        plan.await_completion(&spec, ends, now())?;
        Ok((plan, spec))
    }

    fn verdict(metadata: &Value, phase: &str, drain: Value) -> Verdict {
        plan(pod(metadata, phase), drain, None).unwrap().0.pods[0].verdict
    }

    fn of_job() -> Value {
        json!({"ownerReferences": owned_by("batch/v1", "Job")})
    }

    #[test]
    fn without_a_selector_the_pods_of_jobs_are_left_to_end_and_no_others() {
        let check = |metadata: Value, expected: Verdict| {
            let drain = json!({"waitForCompletion": {}});
            assert_eq!(verdict(&metadata, "Running", drain), expected, "{metadata}");
        };
        check(of_job(), Verdict::AwaitCompletion);
        check(json!({"ownerReferences": owned_by("batch.volcano.sh/v1alpha1", "Job")}), Verdict::Evict);
        check(json!({"ownerReferences": owned_by("apps/v1", "ReplicaSet")}), Verdict::Evict);
        check(json!({}), Verdict::Evict);
        assert_eq!(verdict(&of_job(), "Running", json!({})), Verdict::Evict, "the option is off");
    }

    #[test]
    fn a_pod_that_runs_a_roll_ends_after_the_drain_and_is_not_waited_for() {
        let mut runner = of_job();
        runner["labels"] = json!({"kubectl-nm.dev/roll-runner": "kernel"});
        for completion in [json!({}), json!({"podSelector": {}})] {
            assert_eq!(verdict(&runner, "Running", json!({"waitForCompletion": completion})), Verdict::Evict);
        }
    }

    #[test]
    fn a_selector_replaces_the_default_and_an_empty_one_selects_all() {
        let check = |selector: Value, expected: Verdict| {
            let drain = json!({"waitForCompletion": {"podSelector": selector}});
            assert_eq!(verdict(&json!({}), "Running", drain), expected, "{selector}");
        };
        check(json!({"matchLabels": {"app": "a"}}), Verdict::AwaitCompletion);
        check(json!({"matchLabels": {"app": "b"}}), Verdict::Evict);
        check(json!({}), Verdict::AwaitCompletion);
        let other_jobs = json!({"waitForCompletion": {"podSelector": {"matchLabels": {"app": "b"}}}});
        assert_eq!(verdict(&of_job(), "Running", other_jobs), Verdict::Evict);
    }

    #[test]
    fn a_pod_that_has_ended_or_is_ending_or_stays_is_treated_as_without_the_option() {
        let all = || json!({"waitForCompletion": {"podSelector": {}}});
        for phase in ["Succeeded", "Failed"] {
            assert_eq!(verdict(&of_job(), phase, all()), Verdict::Evict, "{phase}");
        }
        let ending = json!({"deletionTimestamp": "2026-01-01T00:59:59Z"});
        assert_eq!(verdict(&ending, "Running", all()), Verdict::Evict);
        let daemon = json!({"ownerReferences": owned_by("apps/v1", "DaemonSet")});
        assert_eq!(verdict(&daemon, "Running", all()), Verdict::Stay(StayReason::DaemonSet));
        let only_others = json!({"waitForCompletion": {}, "podSelector": {"matchLabels": {"app": "b"}}});
        assert_eq!(verdict(&of_job(), "Running", only_others), Verdict::Stay(StayReason::NotSelected));
    }

    #[test]
    fn a_pod_that_would_block_the_drain_may_end_by_itself_and_blocks_when_the_time_is_up() {
        let drain = || json!({"waitForCompletion": {}, "deleteEmptyDirData": false});
        assert_eq!(verdict(&of_job(), "Running", drain()), Verdict::AwaitCompletion);
        let late = plan(pod(&of_job(), "Running"), drain(), Some(now())).unwrap().0;
        assert_eq!(late.pods[0].verdict, Verdict::Block(BlockReason::LocalStorage));
        assert_eq!(verdict(&of_job(), "Succeeded", drain()), Verdict::Evict);
    }

    #[test]
    fn the_time_limit_ends_the_wait_and_is_known_beforehand() {
        let at = |ends: Option<Timestamp>| {
            let (plan, spec) =
                plan(pod(&of_job(), "Running"), json!({"waitForCompletion": {}}), ends).unwrap();
            (plan.pods[0].verdict, plan.next_change(&spec, now()))
        };
        assert_eq!(at(None), (Verdict::AwaitCompletion, None));
        assert_eq!(at(Some(in_seconds(60))), (Verdict::AwaitCompletion, Some(in_seconds(60))));
        assert_eq!(at(Some(now())), (Verdict::Evict, None));
        let (nothing, spec) =
            plan(pod(&json!({}), "Running"), json!({"waitForCompletion": {}}), Some(in_seconds(60))).unwrap();
        assert_eq!(nothing.next_change(&spec, now()), None, "no pod is waited for");
    }

    #[test]
    fn an_invalid_selector_moves_nobody_even_when_the_time_is_up() {
        let selector = json!({"matchExpressions": [{"key": "app", "operator": "Near"}]});
        let drain = json!({"waitForCompletion": {"podSelector": selector}});
        let error = plan(pod(&of_job(), "Running"), drain, Some(now())).unwrap_err();
        assert!(error.to_string().starts_with("spec.drain.waitForCompletion.podSelector: "), "{error}");
    }
}
