//! Jobs that a drain has made fail for good: they create no pods any more. Nothing else names them afterwards.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use nm_shared::{NodeMaintenance, PodReference};

use crate::explain::cause::{Cause, CommonGround};
use crate::explain::cluster_facts::{ClusterFacts, FailedJob, StoppedPod};
use crate::maintenance::node;
use crate::terminal::command_context::shell_quoted;
use crate::terminal::text::counted;

/// Why a Job fails because of its pods (`JobReasonBackoffLimitExceeded` and others in kubernetes), and not because of its own time.
const BY_PODS: [&str; 4] =
    ["BackoffLimitExceeded", "PodFailurePolicy", "FailedIndexes", "MaxFailedIndexesExceeded"];

impl FailedJob {
    /// What a Job shows, if it has failed because of its pods, and one of these was stopped on the node after the drain started and
    /// before it failed.
    pub fn of(job: &Job, node: &str, began: Timestamp, stopped: &[StoppedPod]) -> Option<Self> {
        let conditions = job.status.as_ref()?.conditions.as_ref()?;
        let find = |type_: &str| {
            conditions.iter().find(|condition| condition.type_ == type_ && condition.status == "True")
        };
        let failed = find("Failed")?;
        let reason = failed.reason.clone().filter(|reason| BY_PODS.contains(&reason.as_str()))?;
        // From then on, the Job ends its other pods itself.
        let at = find("FailureTarget").unwrap_or(failed).last_transition_time.as_ref()?.0;
        let namespace = job.namespace().unwrap_or_default();
        let mut left: Vec<&str> = stopped
            .iter()
            .filter(|pod| pod.node == node && pod.at >= began && pod.at <= at)
            .filter(|pod| pod.pod.namespace == namespace && is_pod_of(&job.name_any(), &pod.pod))
            .map(|pod| pod.uid.as_str())
            .collect();
        left.sort_unstable();
        left.dedup();
        (!left.is_empty()).then(|| Self {
            job: PodReference { namespace, name: job.name_any() },
            reason,
            at,
            left: left.len(),
        })
    }
}

/// Whether a pod has the name of one of this Job, which may have an index: `batch-x7k2p`, `batch-0-x7k2p`.
fn is_pod_of(job: &str, pod: &PodReference) -> bool {
    let is_random = |text: &str| text.len() == 5 && !text.contains('-');
    let Some(rest) = pod.name.strip_prefix(job).and_then(|rest| rest.strip_prefix('-')) else { return false };
    is_random(rest)
        || rest
            .split_once('-')
            .is_some_and(|(index, random)| index.parse::<u32>().is_ok() && is_random(random))
}

/// The Jobs that the drain of a node has made fail: each is a cause.
pub(super) fn failed(maintenance: &NodeMaintenance, facts: &ClusterFacts, kubectl: &str) -> Vec<Cause> {
    let failed = facts.failed_jobs.get(node(maintenance)).map(Vec::as_slice).unwrap_or_default();
    let cause = |failed: &FailedJob| {
        let PodReference { namespace, name } = &failed.job;
        let title = format!("{namespace}/job/{name}");
        let left = counted(failed.left, "pod");
        Cause {
            what: vec![
                format!("{title} has failed ({}), and creates no more pods.", failed.reason),
                format!("{left} of it left {} in the drain, before it failed.", node(maintenance)),
            ],
            since: Some(failed.at),
            advice: String::from("If its work is still needed, create the Job again"),
            commands: vec![format!(
                "{kubectl} -n {} describe job {}",
                shell_quoted(namespace),
                shell_quoted(name)
            )],
            common: Some(CommonGround::Outage(title)),
            is_outage: true,
            ..Cause::default()
        }
    };
    failed.iter().map(cause).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn time(second: u32) -> Timestamp {
        format!("2026-01-02T03:04:{second:02}Z").parse().unwrap()
    }

    fn job(reason: &str, conditions: &[(&str, u32)]) -> Job {
        let condition = |(type_, second): &(&str, u32)| json!({"type": type_, "status": "True", "reason": reason, "lastTransitionTime": time(*second)});
        let conditions: Vec<Value> = conditions.iter().map(condition).collect();
        serde_json::from_value(json!({"metadata": {"name": "batch", "namespace": "shop"},
            "status": {"conditions": conditions}}))
        .unwrap()
    }

    fn stopped(name: &str, node: &str, second: u32) -> StoppedPod {
        let pod = PodReference { namespace: "shop".into(), name: name.into() };
        StoppedPod { pod, uid: name.into(), node: node.into(), at: time(second) }
    }

    #[test]
    fn a_job_was_made_fail_by_the_drain_if_a_pod_of_it_left_before_it_failed_because_of_its_pods() {
        let exceeded = || job("BackoffLimitExceeded", &[("Failed", 20)]);
        let left = |job: &Job, pod: StoppedPod| {
            FailedJob::of(job, "n1", time(5), &[pod]).map(|failed| (failed.left, failed.reason))
        };
        let known = Some((1, "BackoffLimitExceeded".to_owned()));
        assert_eq!(left(&exceeded(), stopped("batch-x7k2p", "n1", 10)), known);
        assert_eq!(left(&exceeded(), stopped("batch-0-x7k2p", "n1", 10)), known, "it is indexed");
        let none = |job: &Job, name: &str, node: &str, second: u32, why: &str| {
            assert_eq!(left(job, stopped(name, node, second)), None, "{why}");
        };
        none(&exceeded(), "batch-x7k2p", "n2", 10, "another node");
        none(&exceeded(), "batch-x7k2p", "n1", 4, "before the drain");
        none(&exceeded(), "batch-x7k2p", "n1", 21, "after it had failed");
        none(&exceeded(), "batch-etl-x7k2p", "n1", 10, "another Job");
        let ends_pods = job("BackoffLimitExceeded", &[("FailureTarget", 8), ("Failed", 20)]);
        none(&ends_pods, "batch-x7k2p", "n1", 10, "the Job has ended the pod");
        none(&job("DeadlineExceeded", &[("Failed", 20)]), "batch-x7k2p", "n1", 10, "its own time");
        none(&job("CompletionsReached", &[("Complete", 20)]), "batch-x7k2p", "n1", 10, "complete");
    }
}
