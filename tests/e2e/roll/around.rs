//! What a roll does before the first eviction of a node, and before the node returns: commands, and Jobs.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::watcher;
use nm_tests::cluster::Cluster;
use nm_tests::files::temp_file;
use nm_tests::programs::plugin;
use nm_tests::wait::wait_until_all;
use nm_tests::workload::{Workload, node_of, pods_on};
use serde_json::{Value, json};

use super::job::{end_without_runtime, endless, job, until_created, until_other};
use super::running_roll::{RunningRoll, make_pipe, pool};

const HOOK: &str = "pre-drain.hook.kubectl-nm.dev/roll";

/// Whether the roll holds the first eviction of the node, and the pod of the workload is still on it.
async fn is_held(cluster: &Cluster, node: &str, roll: &str) -> bool {
    let object = cluster.maintenances().get(node).await.unwrap();
    let is_hooked = object.annotations().get(HOOK) == Some(&format!("roll/{roll}"));
    let pods = pods_on(&cluster.client, node).await;
    is_hooked && pods.iter().any(|pod| pod.name_any() == "app" && pod.metadata.deletion_timestamp.is_none())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_before_the_drain_and_one_before_the_return_run_again_after_a_failure_and_a_crash() {
    let (cluster, nodes, _reconciler) = pool(2).await;
    let node = nodes[0].as_str();
    let workload = Workload::new(&cluster, "around").await;
    workload.pod_on(node, "app", json!({})).await;
    let folder = tempfile::tempdir().unwrap();
    let (flag, pipe) = (folder.path().join("flag"), folder.path().join("pipe"));
    make_pipe(&pipe);
    let (before, after) = (
        format!("echo prepares {{}}; test -e {}", flag.display()),
        format!("echo finishes; cat {}", pipe.display()),
    );
    let flags = ["--before", &before, "--run", "echo works", "--after", &after];
    let dry_run = [&["roll", node, "--dry-run"], &flags[..]].concat();
    let shown = plugin(&cluster, &dry_run).await.ok();
    let expected = format!(
        "for each node: before the first eviction, on this machine, run {before}; on this machine, run echo works; \
         before the return to service, on this machine, run {after}"
    );
    assert!(shown.stdout.contains(&expected), "{shown:?}");

    let mut roll = RunningRoll::begin(&cluster, "around", &nodes[..1], &[&flags[..], &["--force"]].concat());
    assert_eq!(roll.end().await, Some(3), "{:#?}", roll.lines);
    let message = format!("the --before action for node {node} failed: the command ended with exit code 1");
    assert_eq!(roll.summary()["message"], message);
    assert_eq!(roll.steps(node), ["Preparing"]);
    assert!(is_held(&cluster, node, "around").await, "no pod was evicted");
    let explained = plugin(&cluster, &["explain", node]).await;
    assert!(explained.stdout.contains("hook roll (owner: roll/around)"), "{explained:?}");

    // All three commands are confirmed.
    let refused = plugin(&cluster, &["roll", "resume", "around", "--run", "echo works"]).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    std::fs::write(&flag, "").unwrap();
    let mut resumed = RunningRoll::resume(&cluster, "around", &flags);
    resumed.until_step(node, "Finishing").await;
    resumed.until("its output", |line| line["text"] == "finishes").await;
    let expected = ["Preparing", "Draining", "Acting", "Rejoining", "Checking", "Finishing"];
    assert_eq!(resumed.steps(node), expected);
    assert!(resumed.output(node).contains(&format!("prepares {node}").as_str()), "{:#?}", resumed.lines);
    let object = cluster.maintenances().get(node).await.unwrap();
    assert!(!object.annotations().contains_key(HOOK), "the drain has begun");
    resumed.crash().await;

    let mut again = RunningRoll::resume(&cluster, "around", &[&flags[..], &["--take-over"]].concat());
    again.until("its output", |line| line["text"] == "finishes").await;
    let object = cluster.maintenances().get(node).await.unwrap();
    assert_eq!(object.metadata.deletion_timestamp, None, "the node has not returned");
    tokio::task::spawn_blocking(move || std::fs::write(pipe, "healed\n")).await.unwrap().unwrap();
    again.is_done(1).await;
    assert_eq!(again.output(node), ["finishes", "healed"]);
    assert_eq!(again.steps(node), ["Finishing", "Returning", "Recovering", "Soaking", "Done"]);
}

/// The pod of the Job of a node whose name ends like this, once it is there.
async fn until_pod_of(workload: &Workload, roll: &str, end: &str) -> Pod {
    let is_of =
        |pod: &Pod| pod.labels().get("batch.kubernetes.io/job-name").is_some_and(|job| job.ends_with(end));
    let selection = watcher::Config::default().labels(&format!("kubectl-nm.dev/roll={roll}"));
    let has_one = |pods: &[Pod]| pods.iter().any(is_of);
    let pods = wait_until_all(&workload.pods(), selection, "the Job has a pod", has_one).await;
    pods.into_iter().find(is_of).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_run_before_the_drain_and_before_the_return_and_are_replaced_and_followed() {
    let (cluster, nodes, _reconciler) = pool(2).await;
    let node = nodes[0].as_str();
    let workload = Workload::new(&cluster, "around-jobs").await;
    workload.pod_on(node, "app", json!({})).await;
    let (before, after) = (temp_file(endless(&workload).to_string()), temp_file(job(&workload).to_string()));
    let [before, after] = [&before, &after].map(|file| file.path().to_str().unwrap());
    let flags = ["--before-job", before, "--run", "true", "--after-job", after];
    let mut roll = RunningRoll::begin(&cluster, "by-jobs", &nodes[..1], &[&flags[..], &["--force"]].concat());
    let first = until_created(&workload, "by-jobs", node).await;
    assert!(is_held(&cluster, node, "by-jobs").await, "no pod is evicted meanwhile");
    workload.pods().delete(&first.name_any(), &DeleteParams::default()).await.unwrap();
    assert_eq!(roll.end().await, Some(3), "{:#?}", roll.lines);
    let message = roll.summary()["message"].as_str().unwrap();
    let expected =
        format!("the --before action for node {node} failed: Job {}/by-jobs-0-", workload.namespace());
    assert!(message.starts_with(&expected), "{message}");

    // A new Job replaces it, which is followed after a crash.
    let resumed = RunningRoll::resume(&cluster, "by-jobs", &flags);
    let second = until_other(&workload, "by-jobs", &first).await;
    assert_eq!(node_of(&second), node);
    resumed.crash().await;
    let mut again = RunningRoll::resume(&cluster, "by-jobs", &[&flags[..], &["--take-over"]].concat());
    again
        .until("the action", |line| line["detail"] == "its Job runs on, and the roll waits for its end")
        .await;
    assert!(is_held(&cluster, node, "by-jobs").await);
    let jobs: Api<Job> = Api::namespaced(cluster.client.clone(), workload.namespace());
    let all = jobs.list(&ListParams::default().labels("kubectl-nm.dev/roll=by-jobs")).await.unwrap().items;
    let mut names: Vec<String> = all.iter().map(Job::name_any).collect();
    names.sort_unstable();
    assert!(names.len() == 2 && names[0].ends_with("-pre") && names[1].ends_with("-pre-2"), "{names:?}");
    complete(&jobs, all.iter().find(|job| job.name_any() == names[1]).unwrap()).await;

    let last = until_pod_of(&workload, "by-jobs", "-post").await;
    end_without_runtime(&cluster, &workload, &last).await;
    again.is_done(1).await;
    let expected = [
        "Preparing",
        "Draining",
        "Acting",
        "Rejoining",
        "Checking",
        "Finishing",
        "Returning",
        "Recovering",
        "Soaking",
        "Done",
    ];
    assert_eq!(again.steps(node), expected);
    if cluster.sandbox().is_some() {
        assert_eq!(again.output(node), ["upgraded"]);
    }
}

/// The Job controller writes that a Job is complete.
async fn complete(jobs: &Api<Job>, job: &Job) {
    let now = jiff::Timestamp::now();
    let conditions: Value = ["SuccessCriteriaMet", "Complete"]
        .iter()
        .map(|type_| json!({"type": type_, "status": "True", "lastTransitionTime": now}))
        .collect();
    let started = job.status.as_ref().and_then(|status| status.start_time.clone());
    let ended = json!({"status": {"conditions": conditions, "active": 0, "ready": 0, "terminating": 0,
        "startTime": started, "completionTime": now}});
    jobs.patch_status(&job.name_any(), &PatchParams::default(), &Patch::Merge(ended)).await.unwrap();
}
