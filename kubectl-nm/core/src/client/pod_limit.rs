//! What ends a pod even if its work is never done: the limits of the pod and of its Job.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nm_shared::forecast::failing_jobs::backoff_limit;

use crate::client::pod_problem::{CRASH_LOOP, container_statuses, failing_reason};

/// What ends a pod in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodLimit {
    /// Its time or that of its Job is limited (`activeDeadlineSeconds`), until then; none before it has started.
    Deadline(Option<Timestamp>),
    /// Its containers keep failing. Its Job fails, and ends it, after so many restarts of its pods (`backoffLimit`).
    Restarts(i32),
}

impl PodLimit {
    /// What ends a pod of this Job, if it is known and one controls the pod; none if nothing does.
    pub(crate) fn of(pod: &Pod, job: Option<&Job>, now: Timestamp) -> Option<Self> {
        let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
        let of_pod = pod.spec.as_ref().and_then(|spec| deadline(spec.active_deadline_seconds, started));
        let spec = job.and_then(|job| job.spec.as_ref());
        let started = job.and_then(|job| job.status.as_ref()?.start_time.as_ref());
        let of_job = spec.and_then(|spec| deadline(spec.active_deadline_seconds, started));
        // One that has not started is not known.
        if let Some(first) = [of_pod, of_job].into_iter().flatten().min_by_key(|end| (end.is_none(), *end)) {
            return Some(Self::Deadline(first));
        }
        // The kubelet restarts its containers, and the Job counts that. With another policy, the pod itself fails.
        let policy = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
        let restarts = || {
            let is_crashing = failing_reason(pod, now).as_deref() == Some(CRASH_LOOP);
            is_crashing && container_statuses(pod).any(|container| container.restart_count > 0)
        };
        let limit = spec.filter(|_| policy == Some("OnFailure") && restarts()).map(backoff_limit)?;
        Some(Self::Restarts(limit.max(1)))
    }
}

/// When so many seconds after the start are over; none without a limit.
#[expect(clippy::option_option, reason = "whether there is a limit, and whether its end is known")]
fn deadline(seconds: Option<i64>, started: Option<&Time>) -> Option<Option<Timestamp>> {
    let limit = SignedDuration::from_secs(seconds?);
    Some(started.and_then(|started| started.0.checked_add(limit).ok()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-01-02T03:04:05Z";

    fn limit(policy: &str, pod: &Value, job: Option<Value>) -> Option<PodLimit> {
        let container = |state: Value, restarts: i32| json!({"name": "app", "image": "", "imageID": "", "ready": false, "restartCount": restarts, "state": state});
        let waits = |reason: &str| json!({"waiting": {"reason": reason}});
        let container = match pod["waits"].as_str() {
            Some(reason) => container(waits(reason), i32::from(reason == CRASH_LOOP)),
            None => container(json!({"running": {}}), 0),
        };
        let spec =
            json!({"containers": [], "restartPolicy": policy, "activeDeadlineSeconds": pod["deadline"]});
        let status = json!({"startTime": pod["start"], "containerStatuses": [container]});
        let pod: Pod = serde_json::from_value(json!({"spec": spec, "status": status})).unwrap();
        let job: Option<Job> = job.map(|mut job| {
            job["spec"]["template"] = json!({});
            serde_json::from_value(job).unwrap()
        });
        PodLimit::of(&pod, job.as_ref(), NOW.parse().unwrap())
    }

    #[test]
    fn a_pod_ends_at_the_deadline_of_itself_or_of_its_job_whichever_is_first() {
        let at = |time: &str| Some(PodLimit::Deadline(Some(format!("2026-01-02T{time}Z").parse().unwrap())));
        let pod = |seconds: Option<i64>| json!({"deadline": seconds, "start": "2026-01-02T03:00:00Z"});
        let job = |seconds: i64| {
            Some(
                json!({"spec": {"activeDeadlineSeconds": seconds}, "status": {"startTime": "2026-01-02T03:00:00Z"}}),
            )
        };
        assert_eq!(limit("Never", &pod(None), None), None);
        assert_eq!(limit("Never", &pod(Some(600)), None), at("03:10:00"));
        assert_eq!(limit("Never", &pod(None), job(900)), at("03:15:00"));
        assert_eq!(limit("Never", &pod(Some(600)), job(900)), at("03:10:00"));
        assert_eq!(limit("Never", &pod(Some(600)), job(60)), at("03:01:00"));
        let pending = Some(json!({"spec": {"activeDeadlineSeconds": 60}}));
        assert_eq!(limit("Never", &pod(None), pending.clone()), Some(PodLimit::Deadline(None)));
        assert_eq!(limit("Never", &pod(Some(600)), pending), at("03:10:00"));
    }

    #[test]
    fn a_pod_whose_containers_are_restarted_ends_once_its_job_has_failed_too_often() {
        let crashing = json!({"waits": CRASH_LOOP});
        let job = |spec: Value| Some(json!({"spec": spec}));
        let restarts = |count| Some(PodLimit::Restarts(count));
        assert_eq!(limit("OnFailure", &crashing, job(json!({}))), restarts(6), "the default");
        assert_eq!(limit("OnFailure", &crashing, job(json!({"backoffLimit": 2}))), restarts(2));
        assert_eq!(limit("OnFailure", &crashing, job(json!({"backoffLimit": 0}))), restarts(1));
        assert_eq!(limit("OnFailure", &crashing, None), None, "its Job is not known");
        assert_eq!(limit("Always", &crashing, job(json!({}))), None);
        let image = json!({"waits": "ErrImagePull"});
        assert_eq!(limit("OnFailure", &image, job(json!({}))), None, "nothing counts that");
    }
}
