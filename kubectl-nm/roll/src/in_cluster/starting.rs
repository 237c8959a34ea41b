//! A Job that is to run a roll while none of its pods does: before the first one has written a heartbeat, and between two.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::api::ListParams;
use nm_core::args::duration::age;
use nm_core::client::cluster::Cluster;
use nm_core::client::objects;
use nm_core::client::pod_problem::{is_about_image, pod_problem};
use nm_core::error::Error;
use nm_core::maintenance::roll::HEARTBEAT_TIMEOUT;
use nm_core::maintenance::roll_job::RollJob;
use serde_json::Value;

use super::runner_job::{self, NAMESPACE, RUNNER_LABEL};
use crate::finisher::is_seen;
use crate::record::Roll;

/// In seconds.
const FIRST_BACK_OFF: i64 = 10;

/// In seconds.
const MAX_BACK_OFF: i64 = 600;

/// What the Jobs show of those of these rolls that run in the cluster, and that no program is known to run.
pub async fn starting_jobs(
    rolls: impl IntoIterator<Item = &Roll>,
    cluster: &Cluster,
) -> BTreeMap<String, RollJob> {
    let is_starting = |roll: &&Roll| {
        let Ok(record) = roll.complete_record() else { return false };
        // One that has not answered may have ended.
        let is_run = is_seen(&record, Timestamp::now()) && !record.asked;
        roll.settings.in_cluster && record.halt.is_none() && !is_run
    };
    let names: Vec<&str> = rolls.into_iter().filter(is_starting).map(|roll| roll.name.as_str()).collect();
    let unread = |error: Error| Some(RollJob::Unread(error.to_string()));
    let entry = |name: &str, job: Option<RollJob>| job.map(|job| (name.to_owned(), job));
    match names.as_slice() {
        [] => BTreeMap::new(),
        [only] => entry(only, starting(cluster, only).await.unwrap_or_else(unread)).into_iter().collect(),
        several => {
            let selection = ListParams::default().labels(RUNNER_LABEL);
            let (jobs, pods) = tokio::join!(
                objects::list(cluster, ("batch/v1", "Job"), Some(NAMESPACE), &selection),
                runner_pods(cluster, None)
            );
            let jobs = jobs.map_err(|error| error.to_string());
            let of = |name: &str| match &jobs {
                Err(error) => Some(RollJob::Unread(error.clone())),
                Ok(jobs) => {
                    let is_of_roll = |job: &&Value| job["metadata"]["name"] == runner_job::name(name);
                    let job = jobs.iter().find(is_of_roll).filter(|job| runner_job::is_live(job))?;
                    let is_of_roll = |pod: &&Value| pod["metadata"]["labels"][RUNNER_LABEL] == name;
                    let pods: Vec<Value> = pods.iter().filter(is_of_roll).cloned().collect();
                    without_sign(name, job, &pods)
                }
            };
            several.iter().filter_map(|name| entry(name, of(name))).collect()
        }
    }
}

/// The pods that run rolls in the cluster: of one roll, or of all. None without permission to read them.
async fn runner_pods(cluster: &Cluster, roll: Option<&str>) -> Vec<Value> {
    let label = roll.map_or_else(|| RUNNER_LABEL.to_owned(), |roll| format!("{RUNNER_LABEL}={roll}"));
    let selection = ListParams::default().labels(&label);
    objects::list(cluster, ("v1", "Pod"), Some(NAMESPACE), &selection).await.unwrap_or_default()
}

/// The Job of a roll which nobody runs while it is starting, and why its pod does not start, as far as its status shows that. None
/// if no Job is to run the roll, or if its pod has run for long without a sign.
///
/// # Errors
///
/// If the Job cannot be read. Without permission to read its pods, nothing is known of them.
pub async fn starting(cluster: &Cluster, roll: &str) -> Result<Option<RollJob>, Error> {
    let Some(job) = objects::get(cluster, &runner_job::reference(roll)).await?.filter(runner_job::is_live)
    else {
        return Ok(None);
    };
    let pods = runner_pods(cluster, Some(roll)).await;
    Ok(without_sign(roll, &job, &pods))
}

/// What a live Job and its pods show while none of them has given a sign; none if one would have.
fn without_sign(roll: &str, job: &Value, pods: &[Value]) -> Option<RollJob> {
    let now = Timestamp::now();
    (!pods.iter().any(|pod| is_silent(pod, now))).then(|| shown(roll, job, pods))
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

fn shown(roll: &str, job: &Value, pods: &[Value]) -> RollJob {
    let title = runner_job::title(roll);
    // A pod that has ended shows what it waited for before.
    let mut pending = pods.iter().filter(|pod| pod["status"]["phase"] == "Pending");
    if let Some((pod, why)) = pending.find_map(|pod| Some((pod, pod_problem(pod)?))) {
        return RollJob::Stuck {
            words: format!("{title} is starting: {why}"),
            is_image: is_about_image(pod),
        };
    }
    // A pod that was evicted counts as failed.
    let ended = job["status"]["failed"].as_u64().unwrap_or(0);
    if ended == 0 {
        return RollJob::Starting(format!("{title} is starting"));
    }
    let again = format!("{title} is starting again: {ended} of its pods failed or were evicted");
    let has_pod =
        pods.iter().any(|pod| pod["status"]["phase"] == "Pending" || pod["status"]["phase"] == "Running");
    if has_pod {
        return RollJob::Starting(again);
    }
    let wait = age(back_off_seconds(ended));
    RollJob::Starting(format!("{again}, so Kubernetes waits up to {wait} before it creates the next"))
}

/// How long the Job controller waits at most before it creates the next pod of a Job of which so many have failed. Source:
/// `DefaultJobPodFailureBackOff` and `MaxJobPodFailureBackOff` in kubernetes, `pkg/controller/job`.
fn back_off_seconds(failed: u64) -> i64 {
    let doubled = u32::try_from(failed).unwrap_or(u32::MAX).saturating_sub(1);
    2_i64
        .checked_pow(doubled)
        .map_or(MAX_BACK_OFF, |times| times.saturating_mul(FIRST_BACK_OFF).min(MAX_BACK_OFF))
}

#[cfg(test)]
mod tests {
    use nm_core::testing::fake_server::{cluster, failure};
    use nm_shared::NodeMaintenance;
    use serde_json::json;

    use super::*;
    use crate::halted::find_rolls;
    use crate::record::{LABEL, NODE, SETTINGS, STATE};

    fn check(failed: u64, pod: &Value, expected: &str, stuck_by_image: Option<bool>) {
        let job = json!({"status": {"failed": failed}});
        let words = format!("Job node-maintenance-rolls/nm-roll-r is starting{expected}");
        let expected = match stuck_by_image {
            None => RollJob::Starting(words),
            Some(is_image) => RollJob::Stuck { words, is_image },
        };
        assert_eq!(shown("r", &job, std::slice::from_ref(pod)), expected);
    }

    #[test]
    fn a_job_is_starting_and_its_pod_shows_why_it_does_not_start() {
        let pod = |phase: &str, reason: &str| {
            let waiting = json!({"state": {"waiting": {"reason": reason, "message": "no such image"}}});
            json!({"metadata": {"name": "a"}, "status": {"phase": phase, "containerStatuses": [waiting]}})
        };
        check(0, &Value::Null, "", None);
        let again = |count: u64, wait: &str| {
            let words = format!(
                " again: {count} of its pods failed or were evicted, so Kubernetes waits up to {wait} before it creates the next"
            );
            check(count, &Value::Null, &words, None);
        };
        again(1, "10s");
        again(2, "20s");
        again(5, "2m40s");
        again(90, "10m");
        check(0, &pod("Pending", "ContainerCreating"), "", None);
        check(2, &pod("Pending", "ContainerCreating"), " again: 2 of its pods failed or were evicted", None);
        let why = ": pod a: ImagePullBackOff: no such image";
        check(1, &pod("Pending", "ImagePullBackOff"), why, Some(true));
        let why = ": pod a: CreateContainerConfigError: no such image";
        check(1, &pod("Pending", "CreateContainerConfigError"), why, Some(false));
        check(0, &pod("Failed", "ImagePullBackOff"), "", None);
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

    fn maintenance(roll: &str) -> NodeMaintenance {
        let settings = json!({"waves": [1], "maxUnavailable": 1, "minReadySeconds": 30, "actionTimeoutSeconds": 1,
            "returnTimeoutSeconds": 1, "recoveryTimeoutSeconds": 1, "inCluster": true});
        let node = json!({"wave": 0, "position": 0, "step": "Planned", "since": "2026-01-02T03:04:05Z"});
        let annotations = json!({SETTINGS: settings.to_string(), NODE: node.to_string(),
            STATE: json!({"revision": 2}).to_string()});
        serde_json::from_value(
            json!({"metadata": {"name": roll, "labels": {LABEL: roll}, "annotations": annotations},
            "spec": {"nodeName": roll}}),
        )
        .unwrap()
    }

    #[tokio::test]
    async fn the_jobs_of_several_rolls_are_read_at_once() {
        let job = |roll: &str| json!({"metadata": {"name": runner_job::name(roll)}, "spec": {}});
        let waiting = json!({"state": {"waiting": {"reason": "ErrImagePull"}}});
        let pod = json!({"metadata": {"name": "p", "labels": {RUNNER_LABEL: "b"}},
            "status": {"phase": "Pending", "containerStatuses": [waiting]}});
        let jobs = json!({"metadata": {}, "items": [job("a"), job("b"), job("other")]});
        let pods = json!({"metadata": {}, "items": [pod]});
        let (cluster, requests) =
            cluster(move |_, path| (200, if path.ends_with("/pods") { pods.clone() } else { jobs.clone() }));
        let all = ["a", "b", "c"].map(maintenance);
        let rolls = find_rolls(&["a", "b", "c"].into(), &all);
        let found = starting_jobs(rolls.values(), &cluster).await;
        assert_eq!(found.keys().collect::<Vec<_>>(), ["a", "b"], "there is no Job of the third");
        assert!(matches!(found["a"], RollJob::Starting(_)), "{found:?}");
        assert!(matches!(found["b"], RollJob::Stuck { is_image: true, .. }), "{found:?}");
        assert_eq!(requests.lock().unwrap().len(), 2);
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
        let words = String::from("Job node-maintenance-rolls/nm-roll-r is starting");
        assert_eq!(is_starting, Some(RollJob::Starting(words)));
        assert_eq!(read((200, job(json!({"suspend": true})))).await.unwrap(), None);
        assert_eq!(read(failure(404, "NotFound", "jobs.batch \"nm-roll-r\" not found")).await.unwrap(), None);
        assert!(read(failure(403, "Forbidden", "jobs.batch is forbidden")).await.unwrap_err().is_forbidden());
    }
}
