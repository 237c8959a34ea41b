//! A Job that is to run a roll while none of its pods does: before the first one has written a heartbeat, and between two.

use jiff::Timestamp;
use kube::api::ListParams;
use nm_core::client::cluster::Cluster;
use nm_core::client::objects;
use nm_core::client::pod_problem::pod_problem;
use nm_core::error::Error;
use nm_core::maintenance::roll::HEARTBEAT_TIMEOUT;
use serde_json::Value;

use super::runner_job::{self, NAMESPACE, RUNNER_LABEL};

/// That the Job of a roll which nobody runs is starting, and why its pod does not start, as far as its status shows that. None if
/// no Job is to run the roll, or if its pod has run for long without a sign.
///
/// # Errors
///
/// If the Job cannot be read. Without permission to read its pods, nothing is known of them.
pub async fn starting(cluster: &Cluster, roll: &str) -> Result<Option<String>, Error> {
    let Some(job) = objects::get(cluster, &runner_job::reference(roll)).await?.filter(runner_job::is_live)
    else {
        return Ok(None);
    };
    let selection = ListParams::default().labels(&format!("{RUNNER_LABEL}={roll}"));
    let pods = objects::list(cluster, ("v1", "Pod"), Some(NAMESPACE), &selection).await.unwrap_or_default();
    let now = Timestamp::now();
    Ok((!pods.iter().any(|pod| is_silent(pod, now))).then(|| words(roll, &job, &pods)))
}

/// Whether a pod has run for so long that it would have given a sign.
fn is_silent(pod: &Value, now: Timestamp) -> bool {
    let started = |container: &Value| {
        container["state"]["running"]["startedAt"].as_str().and_then(|at| at.parse::<Timestamp>().ok())
    };
    let runs = pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null();
    let containers = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    runs && containers.filter_map(started).any(|at| now.duration_since(at) > HEARTBEAT_TIMEOUT)
}

fn words(roll: &str, job: &Value, pods: &[Value]) -> String {
    let title = runner_job::title(roll);
    // A pod that has ended shows what it waited for before.
    let mut pending = pods.iter().filter(|pod| pod["status"]["phase"] == "Pending");
    if let Some(why) = pending.find_map(pod_problem) {
        return format!("{title} is starting: {why}");
    }
    match job["status"]["failed"].as_u64() {
        None | Some(0) => format!("{title} is starting"),
        // A pod that was evicted counts as failed.
        Some(ended) => format!("{title} is starting again: {ended} of its pods failed or were evicted"),
    }
}

#[cfg(test)]
mod tests {
    use nm_core::testing::fake_server::{cluster, failure};
    use serde_json::json;

    use super::*;

    fn check(failed: u64, pod: &Value, expected: &str) {
        let job = json!({"status": {"failed": failed}});
        let words = words("r", &job, std::slice::from_ref(pod));
        assert_eq!(words, format!("Job node-maintenance-rolls/nm-roll-r is starting{expected}"));
    }

    #[test]
    fn a_job_is_starting_and_its_pod_shows_why_it_does_not_start() {
        let pod = |phase: &str, reason: &str| {
            let waiting = json!({"state": {"waiting": {"reason": reason, "message": "no such image"}}});
            json!({"metadata": {"name": "a"}, "status": {"phase": phase, "containerStatuses": [waiting]}})
        };
        check(0, &Value::Null, "");
        check(2, &Value::Null, " again: 2 of its pods failed or were evicted");
        check(0, &pod("Pending", "ContainerCreating"), "");
        check(1, &pod("Pending", "ImagePullBackOff"), ": pod a: ImagePullBackOff: no such image");
        check(0, &pod("Failed", "ImagePullBackOff"), "");
    }

    #[test]
    fn a_pod_that_has_run_for_long_without_a_sign_is_not_starting() {
        let started = "2026-01-02T03:04:05Z";
        let mut pod = json!({"metadata": {}, "status": {"phase": "Running",
            "containerStatuses": [{"state": {"running": {"startedAt": started}}}]}});
        let after =
            |seconds| started.parse::<Timestamp>().unwrap() + jiff::SignedDuration::from_secs(seconds);
        assert!(!is_silent(&pod, after(5)));
        assert!(is_silent(&pod, after(HEARTBEAT_TIMEOUT.as_secs() + 1)));
        pod["metadata"]["deletionTimestamp"] = json!(started);
        assert!(!is_silent(&pod, after(HEARTBEAT_TIMEOUT.as_secs() + 1)));
    }

    #[tokio::test]
    async fn a_job_is_only_starting_if_it_is_live_and_may_be_read() {
        let read = async |job: (u16, Value)| {
            let (cluster, _) = cluster(move |_, path| match path.rsplit('/').next().unwrap() {
                "pods" => failure(403, "Forbidden", "pods is forbidden"),
                _ => job.clone(),
            });
            starting(&cluster, "r").await
        };
        let job = |spec: Value| json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "nm-roll-r"}, "spec": spec});
        let is_starting = read((200, job(json!({})))).await.unwrap();
        assert_eq!(is_starting.as_deref(), Some("Job node-maintenance-rolls/nm-roll-r is starting"));
        assert_eq!(read((200, job(json!({"suspend": true})))).await.unwrap(), None);
        assert_eq!(read(failure(404, "NotFound", "jobs.batch \"nm-roll-r\" not found")).await.unwrap(), None);
        assert!(read(failure(403, "Forbidden", "jobs.batch is forbidden")).await.unwrap_err().is_forbidden());
    }
}
